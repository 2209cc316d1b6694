"""The README's commands, as executed: the container's and the training's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.onnode.kernel.client import bind, client_argv, folders, shared_folders
from orchestrator.onnode.kernel.jobs import NODEID

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry

_FROM_CALLER = re.compile(r"type=bind,source=\$[A-Z_]+[,/][\w=,./-]*$")
"""A folder from the caller's environment."""
_LABELS = {"set": "SET", "job": "JOB", "node": "NODE"}


def shown_values(entry: Entry, values: Mapping[str, Any]) -> dict[str, str]:
    """Return `container`, `code_dir` and `command`. SET, JOB, NODE stand for names, $NAME for
    folders still unknown."""
    channel = f"{entry.site.container.channel_dir}/orch-UID-JOB-NODE"
    results = (
        f"{channel}/results"
        if entry.site.container.results == "local"
        else "SET/nodes/NODE/scratch/RANDOM"
    )
    volumes = [bind(results, "/results"), bind(channel, "/orch")]
    data = dict(values["mount_values"])
    volumes += [
        bind(source or f"${variable}", *target.rsplit(":", 1))
        for variable, source, target in folders(values["mounts"], data)
    ]
    shared = shared_folders(entry.launch.shared, values["site_mounts"])
    volumes += [bind(f"SET/shared/JOB-1/RANDOM/{name}", target) for target, name in shared.items()]
    volumes += [bind(*mount.split("\t")) for mount in values["site_mounts"]]
    volumes += [bind(entry.code_path, entry.code_dir)] if entry.code_path else []
    argv = client_argv(
        values["engine_command"],
        "orch-JOB-NODE-1",
        _LABELS,
        values["container_options"],
        volumes,
        entry.image or "",
    )
    code = (
        entry.code_dir
        if entry.container.engine != "none"
        else entry.code_path or "code/ of this folder"
    )
    return {
        "container": _shell_line(argv),
        "code_dir": code,
        "command": " ".join(_run_word(entry, word) for word in entry.command),
    }


def _run_word(entry: Entry, word: str) -> str:
    known = {"nodes": entry.nodes, "gpus_per_node": entry.gpus_per_node, "world_size": entry.ranks}
    for name, value in known.items():
        word = word.replace("{" + name + "}", str(value))
    shown = word
    for name, variable in (
        ("node_rank", NODEID),
        ("master", "MASTER_ADDR"),
        ("port", "MASTER_PORT"),
    ):
        shown = shown.replace("{" + name + "}", f"${variable}")
    return shlex.quote(word) if shown == word else f'"{shown}"'


def _shell_line(argv: list[str] | tuple[str, ...]) -> str:
    return " ".join(word if _FROM_CALLER.match(word) else shlex.quote(word) for word in argv)
