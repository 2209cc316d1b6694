"""What the bundle's README shows of a run: the container's command and the training's, as they will be executed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry

_FROM_CALLER = re.compile(r"type=bind,source=\$[A-Z_]+[,/][\w=,./-]*$")
"""A folder that the environment of whoever starts the bundle names; the shell puts it in."""
_LABELS = {"set": "SET", "job": "JOB", "node": "NODE"}


def shown_values(entry: Entry, values: Mapping[str, Any]) -> dict[str, str]:
    """Return `container`, `code_dir` and `command`. SET, JOB, NODE stand for names, $NAME for folders that are not known yet."""
    from orchestrator.onnode.agent.container import bind, client_argv
    from orchestrator.onnode.settings import folders

    channel = f"{entry.site.container.channel_dir}/orch-UID-JOB-NODE"
    results = f"{channel}/results" if entry.site.container.results == "local" else "SET/nodes/NODE/scratch"
    volumes = [bind(results, "/results"), bind(channel, "/orch")]
    data = dict(values["mount_values"])
    volumes += [
        bind(source or f"${variable}", *target.rsplit(":", 1))
        for variable, source, target in folders(values["mounts"], data)
    ]
    volumes += [bind(*mount.split("\t")) for mount in values["site_mounts"]]
    volumes += [bind(entry.code_path, entry.code_dir)] if entry.code_path else []
    argv = client_argv(
        values["engine_command"], "orch-JOB-NODE-1", _LABELS, values["container_options"], volumes, entry.image or ""
    )
    code = entry.code_dir if values["engine"] != "none" else values["code_source"] or "code/ of this folder"
    return {"container": _words(argv), "code_dir": code, "command": _words(entry.command)}


def _words(argv: list[str] | tuple[str, ...]) -> str:
    return " ".join(word if _FROM_CALLER.match(word) else shlex.quote(word) for word in argv)
