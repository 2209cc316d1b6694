"""Files of lib/ in a bundle: all but those that its entry cannot use."""

from __future__ import annotations

from typing import NamedTuple


class LibPart(NamedTuple):
    """A file or folder of lib/, carried if its `need` holds."""

    path: str
    need: str


PARTS = (
    LibPart("agent/reaper.py", "engine none"),
    LibPart("agent/container.py", "containers"),
    LibPart("agent/look.py", "look"),
    LibPart("agent/pull.py", "containers"),
    LibPart("agent/remover.py", "containers"),
    LibPart("agent/scratch.py", "scratch"),
    LibPart("agent/users.py", "containers"),
    LibPart("agent/deep.py", "deep"),
    LibPart("loop/deep.py", "deep"),
    LibPart("policy/bandwidth.py", "deep"),
    LibPart("measure/", "deep"),
    LibPart("loop/notice.py", "notifications"),
    LibPart("loop/notify.py", "notifications"),
)
"""Other files are in every bundle."""

SITE = {
    "engine none": "`container: {engine: none}`",
    "containers": "an engine (`container: {engine: docker}`)",
    "deep": "`preflight: {deep: true}`",
    "notifications": "`notify:`",
    "scratch": "`container: {scratch: /a/local/folder}`",
}
"""Need -> its reason in the site file."""


def needs(engine: str, *, deep: bool, notifies: bool, scratch: bool) -> dict[str, bool]:
    return {
        "engine none": engine == "none",
        "containers": engine != "none",
        "deep": deep,
        "notifications": notifies,
        "scratch": scratch,
        "look": False,  # `orchestrator init` adds it
    }
