"""What the bundle's README shows of a run: the container's command and the training's, as they will be executed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry

_LABELS = {"set": "SET", "job": "JOB", "node": "NODE"}


def shown_values(entry: Entry, values: Mapping[str, Any]) -> dict[str, str]:
    """Return `container`, `code_dir` and `command`. SET, JOB, NODE stand for names, $NAME for folders that are not known yet."""
    from orchestrator.onnode.agent.container import client_argv
    from orchestrator.onnode.settings import folders

    volumes = ["SET/nodes/NODE/scratch:/results", "/tmp/orch-UID-JOB-NODE:/orch"]
    data = dict(values["mount_values"])
    volumes += [f"{source or f'${variable}'}:{target}" for variable, source, target in folders(values["mounts"], data)]
    volumes += [f"{entry.code_path}:{entry.code_dir}"] if entry.code_path else []
    argv = client_argv(
        values["engine_command"], "orch-JOB-NODE-1", _LABELS, values["container_options"], volumes, entry.image or ""
    )
    code = entry.code_dir if values["engine"] != "none" else values["code_source"] or "code/ of this folder"
    return {"container": _words(argv), "code_dir": code, "command": _words(entry.command)}


def _words(argv: list[str] | tuple[str, ...]) -> str:
    return " ".join(word if word.startswith("$") else shlex.quote(word) for word in argv)
