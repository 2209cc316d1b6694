"""Leftover containers in a real engine."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from preflight_parts import Node

IMAGE = "rocm/amd-mlperf:flux1_training_6.0"
END = ("--entrypoint=sleep", IMAGE, "300")


def labels(node: Node, job: str) -> list[str]:
    return [
        f"--label=orchestrator.job={job}",
        "--label=orchestrator.node=n1",
        f"--volume={node.channel(job)}:/orch",
    ]


def ended_job() -> str:
    ended = subprocess.Popen(["true"])
    ended.wait()
    return f"local-{ended.pid}-1"


def end(lab: Any, command: list[str], name: str) -> None:
    lab.run(*command, "stop", "--time=0", name, check=False)
    lab.run(*command, "rm", "--force", name, check=False)


@pytest.mark.lab
@pytest.mark.parametrize("engine", ["docker", pytest.param("podman", marks=pytest.mark.long)])
def test_containers_of_an_ended_job_are_removed_from_a_real_engine(
    lab: Any, node: Node, engine: str, request: pytest.FixtureRequest
) -> None:
    command = (
        [request.getfixturevalue("podman")]
        if engine == "podman"
        else ["docker", "-H", lab.env["DOCKER_HOST"]]
    )
    node.write("dev/kfd", "")
    jobs = {"ended": ended_job(), "own": "7"}
    start = [*command, "run", "--detach", "--rm", "--network=none"]
    try:
        for name, job in jobs.items():
            Path(node.channel(job)).mkdir(exist_ok=True)
            lab.run(*start, f"--name=chk-{name}", *labels(node, job), *END)
        # podman reports device numbers, and the lab's are that of /dev/null; a privileged
        # container has all.
        lab.run(
            *start,
            "--name=chk-other",
            "--device=/dev/kfd" if engine == "docker" else "--privileged",
            *END,
        )
        # Made and never started: what a client leaves that was ended in between.
        made = [
            *command,
            "create",
            "--network=none",
            "--name=chk-made",
            *labels(node, jobs["ended"]),
        ]
        lab.run(*made, *END)
        (node.top / "bin/docker").unlink()
        row = node.check(ENGINE=engine, ENGINE_COMMAND=command).rows["leftovers"]
        left = lab.run(*command, "ps", "--all", "--format", "{{.Names}}").stdout.split()
    finally:
        for name in (
            "ended",
            "made",
            "own",
            "other",
        ):  # podman removes none of them when one is missing
            end(lab, command, f"chk-{name}")
    assert row.line == "warn: of somebody else, left alone: container chk-other"
    assert not {"chk-ended", "chk-made"} & set(left) and {"chk-own", "chk-other"} <= set(left)


@pytest.mark.long
@pytest.mark.lab
def test_a_podman_container_whose_monitor_was_killed_with_its_client_is_removed(
    lab: Any, node: Node, podman: str
) -> None:
    """Its processes ended with its input, but podman lists it, and fails to stop it at first."""
    job = ended_job()
    channel = Path(node.channel(job))
    channel.mkdir()
    arguments = [
        podman,
        "run",
        "--rm",
        "--interactive",
        "--init",
        "--network=host",
        "--name=chk-orphan",
        *labels(node, job),
    ]
    client = subprocess.Popen(
        [*arguments, "--entrypoint=cat", IMAGE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdin and client.stdout
    client.stdin.write(b"up\n")
    client.stdin.flush()
    assert client.stdout.readline() == b"up\n"
    pid_file = lab.run(
        podman, "inspect", "--format", "{{.ConmonPidFile}}", "chk-orphan"
    ).stdout.strip()
    os.kill(int(Path(pid_file).read_text()), signal.SIGKILL)
    client.kill()
    client.communicate()
    try:
        (node.top / "bin/docker").unlink()
        row = node.check(ENGINE="podman", ENGINE_COMMAND=[podman]).rows["leftovers"]
        left = lab.run(podman, "ps", "--all", "--format", "{{.Names}}").stdout.split()
    finally:
        end(lab, [podman], "chk-orphan")
    removed = f"{channel.name}, container chk-orphan"  # an empty folder is nobody's
    assert row.line == f"pass: removed what an ended job left: {removed}"
    assert left == []
