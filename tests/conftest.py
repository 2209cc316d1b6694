"""The one-machine cluster (lab/) for tests.

A test that needs it carries the marker `lab` and takes the fixture `lab`. Where the cluster is not up such tests skip,
all with the same line; with CI=true they fail instead, because there a skipped test would go unseen.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent

# A shell starts what it puts in the background with SIGINT and SIGQUIT ignored, nohup does so with SIGHUP, and children
# inherit it: commands that tests interrupt would not notice. (A child's other signals are put back by subprocess.)
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, ())


@dataclass(frozen=True)
class Lab:
    """A running one-machine cluster."""

    state: Path
    """The folder that holds all of it; `lab/down` removes it."""
    shared: Path
    """What stands for shared storage: the same folder on every node."""
    env: dict[str, str]
    """The environment for commands that are to talk to it: SLURM_CONF, DOCKER_HOST, nothing of an outer job."""
    docker_socket: Path
    nodes: tuple[str, ...]

    def run(self, *argv: str | Path, timeout: float = 300, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in `env` from the shared folder; its output is text. Raises CalledProcessError unless `check=False`."""
        return subprocess.run(
            argv,
            env=self.env,
            cwd=self.shared,
            timeout=timeout,
            check=check,
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )


def lab_state() -> Path:
    """Where lab/up keeps (or would keep) its state."""
    return Path(os.environ.get("ORCHESTRATOR_LAB", "/var/tmp/orchestrator-lab"))


def lab_at(state: Path) -> Lab:
    """Describe the lab that was started at `state`."""
    settings = dict(line.split("=", 1) for line in (state / "settings").read_text().splitlines())
    socket = state / "docker.sock"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_", "DOCKER_"))}
    env |= {
        "ORCHESTRATOR_LAB": str(state),
        "SLURM_CONF": str(state / "slurm/slurm.conf"),
        "DOCKER_HOST": f"unix://{socket}",
    }
    names = tuple(f"{settings['LAB_PREFIX']}{k}" for k in range(1, int(settings["LAB_NODES"]) + 1))
    return Lab(state, state / "shared", env, socket, names)


@cache
def lab_problem() -> str:
    """Why the lab cannot be used; "" when it can."""
    answer = subprocess.run([TOP / "lab/status", "--quiet"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if answer.returncode == 0:
        return ""
    return f"no one-machine cluster at {lab_state()}: `make lab` starts one (as root on Debian)"


def require_lab() -> None:
    problem = lab_problem()
    if problem and os.environ.get("CI") == "true":
        pytest.fail(f"{problem}; with CI=true its tests may not be skipped", pytrace=False)
    if problem:
        pytest.skip(problem)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("lab"):
        require_lab()


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The running one-machine cluster."""
    require_lab()
    return lab_at(lab_state())


@pytest.fixture
def another_lab() -> Iterator[Callable[[int, str], Lab]]:
    """Starts a cluster of its own, with so many nodes of that name: what breaks there disturbs nobody. It is removed afterwards."""
    require_lab()
    state = Path(f"{lab_state()}-more")
    env = {name: value for name, value in os.environ.items() if name not in ("LAB_PORT", "SLURM_CONF", "DOCKER_HOST")}
    env["ORCHESTRATOR_LAB"] = str(state)

    def command(name: str, **more: str) -> None:
        subprocess.run(
            [TOP / "lab" / name], env=env | more, check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=300
        )

    def start(nodes: int, prefix: str) -> Lab:
        command("up", LAB_NODES=str(nodes), LAB_PREFIX=prefix)
        return lab_at(state)

    try:
        yield start
    finally:
        command("down")
