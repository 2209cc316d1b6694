"""Leftover containers in a real engine."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from preflight_parts import Node

IMAGE = "rocm/amd-mlperf:flux1_training_6.0"


@pytest.mark.lab
def test_containers_of_an_ended_job_are_removed_from_a_real_engine(lab: Any, node: Node) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    names = {"ended": f"local-{ended.pid}-1", "own": "7"}
    try:
        for name, job in names.items():
            lab.run(
                "docker",
                "run",
                "--detach",
                "--rm",
                "--network=none",
                f"--name=chk-{name}",
                f"--label=orchestrator.job={job}",
                "--label=orchestrator.node=n1",
                f"--volume={node.channel(job)}:/orch",
                "--entrypoint=sleep",
                IMAGE,
                "300",
            )
        lab.run(
            "docker",
            "run",
            "--detach",
            "--rm",
            "--network=none",
            "--name=chk-other",
            "--device=/dev/kfd",
            "--entrypoint=sleep",
            IMAGE,
            "300",
        )
        # Made and never started: what a client leaves that was ended in between.
        lab.run(
            "docker",
            "create",
            "--network=none",
            "--name=chk-made",
            f"--label=orchestrator.job={names['ended']}",
            "--label=orchestrator.node=n1",
            f"--volume={node.channel(names['ended'])}:/orch",
            "--entrypoint=sleep",
            IMAGE,
            "300",
        )
        (node.top / "bin/docker").unlink()
        row = node.check(ENGINE_COMMAND=["docker", "-H", lab.env["DOCKER_HOST"]], PREFLIGHT_CHECK_S=20).rows[
            "leftovers"
        ]
        left = lab.run("docker", "ps", "--all", "--format", "{{.Names}}").stdout.split()
    finally:
        lab.run("docker", "rm", "--force", "chk-ended", "chk-made", "chk-own", "chk-other", check=False)
    assert (row.verdict, row.text) == ("warn", "not ours, left alone: container chk-other")
    assert not {"chk-ended", "chk-made"} & set(left) and {"chk-own", "chk-other"} <= set(left)
