"""Inspect a node with the bundle's own detection, in the folder for the sets."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import SchedulerError
from orchestrator.model import Site
from orchestrator.preflight.bundle import INVISIBLE, Bundle, hosts_only, temporary_bundle
from orchestrator.scheduler.command import ask
from orchestrator.scheduler.slurm_step import job_command

WAIT_S = 15
LOOK_S = 90.0
"""An engine may take 10 s to answer, with and without sudo; names and GPU tools take longer."""
FAR = "192.0.2.1"
"""Reserved address (RFC 5737), reached by the default route."""


@dataclass(frozen=True, slots=True)
class NodeLook:
    """`problem`: why the report is missing; `sees_log_dir` is None if unknown."""

    report: dict[str, Any]
    problem: str = ""
    sees_log_dir: bool | None = None

    @property
    def node(self) -> str:
        return str(self.report.get("node", ""))


def look(log_dir: Path, *, options: Sequence[str] | None, peer: str = "") -> NodeLook:
    """Inspect a node: allocated with these Slurm options, or this host (None).

    `peer`: another node, for the route between them. Raises SetError if `log_dir` is not writable
    here.
    """
    container = {"engine": "none"}
    site = Site(name="init", log_dir=str(log_dir), container=container, scheduler="local")  # type: ignore[arg-type]
    with temporary_bundle(hosts_only(site), log_dir, ["agent/look.py"]) as bundle:
        argv = bundle.on_node("look")
        if options is not None:
            argv = job_command([*options, f"--chdir={os.sep}"], wait_s=WAIT_S, argv=argv)
        # A bare address cannot be the node's own name.
        env = {**bundle.env, "ORCH_JOB_ID": "init", "MASTER_ADDR": peer or FAR, "LC_ALL": "C"}
        try:
            done = ask(argv, timeout_s=LOOK_S + WAIT_S, env=env)
        except SchedulerError as error:
            return NodeLook({}, error.message)
        return _look(bundle, done.returncode, done.stdout, done.complaint)


def _look(bundle: Bundle, status: int, stdout: str, complaint: str) -> NodeLook:
    if status == INVISIBLE:
        return NodeLook({}, f"the node does not see {bundle.folder.parent}", sees_log_dir=False)
    for line in reversed(stdout.splitlines()):
        with suppress(ValueError, RecursionError):
            report = json.loads(line)
            if (
                isinstance(report, dict)
                and report.get("schema") == 1
                and isinstance(report.get("network"), dict)
            ):
                left = report.get("log_dir") is True and (bundle.folder / "look.json").is_file()
                return NodeLook(
                    report,
                    "" if left else f"the node cannot write to {bundle.folder.parent}",
                    sees_log_dir=left,
                )
    return NodeLook({}, complaint if status else "the node sent no readable report")
