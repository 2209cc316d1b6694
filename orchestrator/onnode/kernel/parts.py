"""Which files of lib/ a bundle carries: those that its entry cannot use are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Part(NamedTuple):
    """A file of lib/, or a folder (`measure/`), that a bundle has where its `need` is one."""

    path: str
    need: str


PARTS = (
    Part("agent/warden.py", "engine none"),
    Part("agent/container.py", "containers"),
    Part("agent/pull.py", "containers"),
    Part("agent/remover.py", "containers"),
    Part("agent/deep.py", "deep"),
    Part("loop/deep.py", "deep"),
    Part("policy/search.py", "deep"),
    Part("measure/", "deep"),
)
"""All other files are in every bundle."""

SITE = {
    "engine none": "`container: {engine: none}`",
    "containers": "an engine (`container: {engine: docker}`)",
    "deep": "`preflight: {deep: true}`",
}
"""Need -> what of the site file it follows from."""


def needs(engine: str, *, deep: bool) -> dict[str, bool]:
    """Return the needs of an entry: what runs are started with, and whether bandwidth is measured."""
    return {"engine none": engine == "none", "containers": engine != "none", "deep": deep}


def is_carried(name: str, wanted: Mapping[str, bool]) -> bool:
    """Whether a file of the package, by its path in lib/, is carried by a bundle with these needs."""
    return all(wanted[part.need] for part in PARTS if name.startswith(part.path))
