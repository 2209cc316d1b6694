"""The node's part of the deep step: the files of measure/ in a container with the environment of a run. docs/deep.md has the rules.

Requests of the loop are its input, without a detour; when the loop is gone, however it ended, the input ends, and with it the
container. Only the answers pass through here.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import IO

from . import network
from .node import Node

# Runs in the container, or on the host without one; $0 is the folder with measure/.
START = """
. "$0/environment.sh"
for python in python3 python; do
  ! "$python" -c "import sys; sys.exit(sys.version_info < (3, 7))" 2>/dev/null || exec "$python" "$0/measure"
done
echo "no Python 3.7 or newer in it" >&2
exit 127"""
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Of this process's environment, where no container is used."""


def main(node: Node) -> int:
    """Measure what the loop asks for on standard input until that ends; return the exit status."""
    wake, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, lambda *_: None)
    # A folder of this host: the engine may not be allowed to read shared storage.
    folder = Path(f"{node.channel}-deep")
    try:
        node.folder.mkdir(parents=True, exist_ok=True)
        with open(node.folder / "deep.log", "wb") as log:
            _fill(node, folder)
            return _measure(node, folder, log, wake)
    except OSError as error:
        node.say("failed", "storage", f"cannot write to {error.filename or folder}: {error.strerror}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fill(node: Node, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    # Whoever finds the folder behind a killed process removes it.
    (folder / "hold_pid").write_text(f"{os.getpid()}\n")
    shutil.copytree(Path(__file__).parent.parent / "measure", folder / "measure")
    try:
        run = node.layout.environment.read_bytes()
    except FileNotFoundError:
        run = b""
    (folder / "environment.sh").write_bytes(run + _exports(node).encode("utf-8", "surrogateescape"))


def _exports(node: Node) -> str:
    """Return what the measurement has beyond the variables of a run: this node's own network, and what measure/ wants to know."""
    first, second = os.environ.get("MASTER_ADDR", ""), os.environ.get("ORCH_PEER", "")
    own: dict[str, str | None] = dict(network.look(node).exports())
    own["ORCH_DEEP_NODE"], own["ORCH_DEEP_GPUS"] = node.name, str(node.settings.gpus_per_node)
    own["ORCH_DEEP_PEER"] = second if first == node.name else first
    own["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in ("ORCH_DEEP_START_S", "ORCH_DEEP_PASS_S", "ORCH_DEEP_RCCL_TESTS"):
        own[name] = os.environ.get(name) or None
    lines = (f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}" for name, value in own.items())
    return "\n".join(("", *lines, ""))


def _measure(node: Node, folder: Path, log: IO[bytes], wake: int) -> int:
    name, environment = "", dict(os.environ)
    if node.settings.engine == "none":
        argv, environment = (
            ["bash", "-c", START, str(folder)],
            {one: os.environ[one] for one in KEPT if one in os.environ},
        )
    else:
        from . import container

        state = container.look_for_image(node, pull=True)
        if state.problem:
            node.say("failed", "image", state.problem)
            return 1
        name = f"orch-{node.owner}-deep-{os.getpid()}"
        argv = container.run_argv(node, name, [f"{folder}:/deep:ro"], ["-c", START, "/deep"])
    try:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True)
    except OSError as error:
        node.say("failed", "engine", f"cannot start {argv[0]}: {error.strerror}")
        return 1
    ended = _pass_on(node, process, wake)
    status = _end(node, process, name)
    if ended and status:
        last = (node.folder / "deep.log").read_bytes()[-2000:].decode("utf-8", "replace").splitlines()[-2:]
        node.say("failed", "container", f"the measurement ended (status {status}): {' '.join(last)}")
    return status


def _pass_on(node: Node, process: subprocess.Popen[bytes], wake: int) -> bool:
    """Pass answers on until the measurement ends by itself (True), or the input ends or a signal comes (False)."""
    assert process.stdout
    output, poll, rest = process.stdout.fileno(), select.poll(), b""
    # Nothing is read from the input, but its end is told.
    poll.register(0, 0)
    poll.register(wake, select.POLLIN)
    poll.register(output, select.POLLIN)
    while True:
        ready = [fd for fd, _ in poll.poll()]
        if wake in ready:
            process.terminate()
        if output not in ready:
            return False
        piece = os.read(output, 65536)
        if not piece:
            return True
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[-65536:]
        for line in lines:
            _say(node, line)


def _say(node: Node, line: bytes) -> None:
    """Say an answer. An image may print what it likes when it starts."""
    try:
        word, *fields = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return
    if word in ("deep-ready", "deep") and all(isinstance(one, (str, int)) for one in fields):
        node.say(word, *fields)


def _end(node: Node, process: subprocess.Popen[bytes], name: str) -> int:
    """Let it end, by force after some seconds; return its exit status. The engine's client passes TERM on to the container."""
    for seconds, number in ((2, signal.SIGTERM), (4, signal.SIGKILL)):
        try:
            process.wait(seconds)
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, number)
    status = process.wait()
    if name and status:
        from . import container

        container.remove(node, name)
    return status if status >= 0 else 128 - status
