"""A node's part of the bandwidth test (docs/deep.md): measure/ in a container with a run's
environment.

The loop's requests address all nodes; this node's part goes to the container, which ends with the
input or the loop's beat (beat.py).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
from contextlib import suppress
from pathlib import Path

from ..kernel.beat import listen
from ..kernel.client import bind
from ..kernel.waiting import Failed, Partner, Waiting, end_session, exit_code
from . import network
from .leftovers import make_folder, remove_folder
from .node import Node, host_environment, lay, runs_environment

# Runs in the container, or on the host; $0 is the folder with measure/.
START = """
. "$0/environment.sh"
for python in python3 python; do
  "$python" -c "import sys; sys.exit(sys.version_info < (3, 7))" 2>/dev/null || continue
  exec "$python" "$0/measure"
done
echo "no Python 3.7 or newer in it" >&2
exit 127"""


def main(node: Node) -> int:
    """Return the exit status. Raises ReleaseRequested, Failed, OSError."""
    waiting = Waiting()
    # On this host: the engine may be unable to read shared storage.
    folder = Path(f"{node.channel}-deep")
    try:
        node.make_in_set(node.folder)
        shutil.rmtree(folder, ignore_errors=True)
        make_folder(str(folder))
        lay(node.program.below("lib/measure/"), str(folder / "measure"))
        (folder / "environment.sh").write_bytes(_environment(node))
        return _measure(node, folder, waiting)
    finally:
        with suppress(OSError):
            remove_folder(str(folder), held=True)


def _environment(node: Node) -> bytes:
    variables: dict[str, str | None] = dict(network.look(node).exports())
    variables |= {
        "ORCH_DEEP_GPUS": str(node.settings.gpus_per_node),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    variables["ORCH_DEEP_PEER"] = next(
        (peer for peer in os.environ.get("ORCH_DEEP_PEERS", "").split() if peer != node.name), ""
    )
    for name in ("ORCH_DEEP_START_S", "ORCH_DEEP_RCCL_TESTS"):
        variables[name] = os.environ.get(name) or None
    lines = (
        f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}"
        for name, value in variables.items()
    )
    run = runs_environment(node) if node.layout.environment.exists() else b""
    return run + "\n".join(("", *lines, "")).encode("utf-8", "surrogateescape")


def _measure(node: Node, folder: Path, waiting: Waiting) -> int:
    name, log, remover = "", node.folder / "deep.log", None
    argv, environment = ["bash", "-c", START, str(folder)], host_environment()
    if node.settings.engine != "none":
        from . import container
        from .engine import Remover

        state = container.look_for_image(node, waiting)
        if state.problem:
            raise Failed(state.kind, state.problem)
        name, environment = f"orch-{node.owner}-deep-{os.getpid()}", dict(os.environ)
        argv = container.run_argv(
            node, name, state.image_id, [bind(str(folder), "/deep", "ro")], ["-c", START, "/deep"]
        )
        remover = Remover(node, name)
    held = [remover.held] if remover else []
    with open(log, "wb") as errors:
        partner = Partner(
            waiting,
            argv,
            lambda line: _say(node, line),
            errors=errors,
            environment=environment,
            held=held,
        )
    over: list[bool] = []
    listen(
        waiting,
        node.settings.storage_wait_s,
        lambda line: _ask(node, partner, line),
        lambda _: over.append(True),
    )
    try:
        waiting.wait(lambda: over or partner.process.poll() is not None)
    finally:
        status = _end(node, waiting, partner, name)
        if remover:
            # The engine may still be creating a killed client's container.
            remover.leave() if status > 128 else remover.end()
    if status and not over:
        last = log.read_bytes()[-2000:].decode("utf-8", "replace").splitlines()[-2:]
        raise Failed("container", f"the measurement ended (status {status}): {' '.join(last)}")
    return status


def _ask(node: Node, partner: Partner, line: str) -> None:
    try:
        request = json.loads(line)
        if request["do"] == "measure":
            [members] = [
                group
                for group in request.pop("groups")
                if node.name in (member[0] for member in group)
            ]
            request["members"], request["rank"] = (
                members,
                [member[0] for member in members].index(node.name),
            )
        elif request["do"] != "cancel" or node.name not in request["nodes"]:
            return
        partner.send(json.dumps(request))
    except (ValueError, TypeError, LookupError):  # not for this node
        pass


def _say(node: Node, line: str) -> None:
    """Images may print anything at their start."""
    try:
        word, *fields = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return
    if word in ("deep-ready", "deep") and all(isinstance(field, (str, int)) for field in fields):
        node.say(word, *fields)


def _end(node: Node, waiting: Waiting, partner: Partner, name: str) -> int:
    """End it, by force after some seconds; return the exit status. The client passes TERM on."""
    process = partner.process
    waiting.start_release()
    partner.input.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not waiting.wait(lambda: process.poll() is not None, 4):
            end_session(process, number)
    is_over = waiting.wait(lambda: process.poll() is not None, 4)
    status = exit_code(process.returncode if is_over else -signal.SIGKILL)
    if name and status:
        from . import container

        container.remove(node, name, waiting)
    return status
