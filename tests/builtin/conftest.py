"""Starts the real built-in workload, one process per node, on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from ports import free_port
from until import LIMIT_S, until

CODE = Path(__file__).parents[2] / "workloads" / "builtin"
HOST = ["unshare", "--uts", "bash", "-c", 'hostname "$1"; exec "${@:2}"', "_"]
PIPE_BYTES = 1 << 20  # a whole log fits, so processes can be waited for before they are read


def records_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[9:]) for line in text.splitlines() if line.startswith(":::MLLOG ")]


@dataclass
class Ended:
    """One run after all its processes have ended; lists are by node."""

    codes: list[int]
    outputs: list[str]
    errors: list[str]
    records: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.records = records_of(self.outputs[0])

    def of(self, key: str) -> list[dict[str, Any]]:
        return [record for record in self.records if record["key"] == key]

    @property
    def losses(self) -> list[float]:
        return [record["value"] for record in self.of("eval_accuracy")]

    @property
    def samples(self) -> int:
        return self.of("eval_accuracy")[-1]["metadata"]["samples_count"]

    @property
    def status(self) -> str:
        return self.of("run_stop")[-1]["metadata"]["status"]


class Launcher:
    """Starts nodes and sees to it that none outlives its test."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def port(self) -> int:
        return free_port("0.0.0.0")

    def connect(self, port: int) -> socket.socket:
        """A connection to `port`, as soon as somebody listens there."""

        def connected() -> socket.socket | None:
            with suppress(ConnectionRefusedError):
                return socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
            return None

        return until(connected)  # type: ignore[return-value]

    def start(
        self,
        node: int,
        nodes: int,
        port: int,
        *,
        host: str = "",
        code: Path = CODE,
        **variables: str,
    ) -> subprocess.Popen[str]:
        """Start a node; `host`: in a name space of its own, with this host name."""
        contract = {
            "PATH": os.environ["PATH"],
            "SEED": "7",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "SLURM_NNODES": str(nodes),
            "SLURM_NODEID": str(node),
        }
        environment = {name: value for name, value in (contract | variables).items() if value}
        process = subprocess.Popen(
            [*(HOST + [host] if host else []), "bash", str(code / "run_and_time.sh")],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pipesize=PIPE_BYTES,
        )
        self.processes.append(process)
        return process

    def finish(self, processes: list[subprocess.Popen[str]]) -> Ended:
        for process in processes:
            process.wait(LIMIT_S)
        texts = [process.communicate() for process in processes]
        return Ended(
            [p.returncode for p in processes], [t[0] for t in texts], [t[1] for t in texts]
        )

    def run(
        self, nodes: int, per_node: dict[int, dict[str, str]] | None = None, **variables: str
    ) -> Ended:
        port = self.port()
        own = per_node or {}
        return self.finish(
            [self.start(k, nodes, port, **(variables | own.get(k, {}))) for k in range(nodes)]
        )

    def clean(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.clean()


@pytest.fixture
def run(launcher: Launcher) -> Callable[..., Ended]:
    return launcher.run
