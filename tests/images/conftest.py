"""Stand-ins for nodes: real dockerd and sshd processes, ended by their pid."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from command_line import call
from images_parts import EngineNode, SshHosts, start_hosts
from programs import need

TOP = Path(__file__).resolve().parents[2]

# The lab's functions: a clean environment for a daemon, and its pid with its start time.
START = r"""
. lab/lib.sh
mkdir -p "$LAB_STATE"/{pids,log}
for name in "$@"; do
    dir=$LAB_STATE/$name
    mkdir -p "$dir"
    echo '{}' >"$dir/daemon.json"
    # An engine that ends its containerd lets it first write where it stood, into a temporary file.
    spawn "$name" env TMPDIR="$dir" dockerd --host="unix://$dir/sock" \
        --data-root="$dir/data" --exec-root="$dir/exec" \
        --pidfile="$dir/pid" --config-file="$dir/daemon.json" --bridge=none \
        --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
done
for name in "$@"; do
    wait_until 40 docker --host "unix://$LAB_STATE/$name/sock" version ||
        { cat "$LAB_STATE/log/$name.out" >&2; exit 1; }
done
"""
END = r"""
. lab/lib.sh
for file in "$LAB_STATE"/pids/*; do
    pid=$(live_pid "$(basename "$file")") || continue
    end_pid "$pid" 15 || echo "$file did not end" >&2
done
awk -v top="$LAB_STATE/" 'index($5, top) == 1 { print $5 }' /proc/self/mountinfo | sort --reverse |
    while IFS= read -r point; do umount "$point"; done
rm -rf --one-file-system "$LAB_STATE"
"""


def _bash(script: str, state: str, *arguments: str) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script, "tests/images", *arguments],
        cwd=TOP,
        text=True,
        env={**os.environ, "ORCHESTRATOR_LAB": state},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def engines(lab: object) -> Iterator[tuple[EngineNode, EngineNode]]:
    """Two engines, n1 and n2."""
    # A socket's path has at most 107 bytes, and the engine's own containerd adds some.
    state = tempfile.mkdtemp(prefix="orch-engines.", dir="/var/tmp")
    try:
        _bash(START, state, "n1", "n2")
        yield tuple(EngineNode(name, Path(state, name, "sock")) for name in ("n1", "n2"))  # type: ignore[misc]
    finally:
        _bash(END, state)


@pytest.fixture
def nodes(engines: tuple[EngineNode, EngineNode]) -> Iterator[tuple[EngineNode, EngineNode]]:
    """The two engines, empty."""
    yield engines
    for engine in engines:
        engine.clear()


@pytest.fixture(scope="session")
def start_ssh(lab: object) -> Iterator[Callable[..., SshHosts]]:
    """Start SSH servers with the environment of their commands: `start_ssh({"n1": "A=b"})`."""
    need("sshd", package="openssh-server", path="/usr/sbin:/usr/bin")
    # As the package's service makes it at boot. It stays: another server may need it.
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with ExitStack() as stack:
        yield lambda hosts: start_hosts(stack, hosts)


@pytest.fixture
def orchestrator(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Call the command line outside any allocation, and in an empty folder: the checkout may have a
    site.yaml."""
    empty = tmp_path_factory.mktemp("empty")
    return lambda *arguments, stdin="", env={}: call(arguments, env, stdin, cwd=empty)
