"""Reaching the local podman: it listens to nobody by itself, so a service of it is started while a command of ours needs it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.container.image import EngineError

START_S, END_S = 30, 10
IDLE_S = 60
"""A service that nobody may end, because it is another user's, ends by itself after so long."""

# Its input is a pipe of ours: when that ends, however we do, the service and its folder go. $1 is the folder, then the command.
_SERVE = r"""
exec 3<&0 </dev/null
{ read -r _ <&3; kill "$$"; rm -rf "$1"; } >/dev/null 2>&1 &
shift
exec "$@" 3<&-
"""


@contextmanager
def reachable(address: str, engine: str, command: Sequence[str] | None) -> Iterator[str]:
    """Give the address of the site's local engine: `address`, else that of a service of its podman, else "" (the engine's default).

    `command` calls the podman, None: by its name. Raises EngineError when its service cannot be used.
    """
    if address or engine != "podman":
        yield address
        return
    argv = tuple(command or ("podman",))
    if shutil.which(argv[0]) is None:
        raise EngineError(
            f"the container engine ({shlex.join(argv)}) cannot be started: there is no {argv[0]}",
            hint="install podman here, or name its socket: --engine unix:///run/podman/podman.sock",
        )
    folder = Path(tempfile.mkdtemp(prefix="orch-podman."))
    socket, log = folder / "sock", folder / "log"
    service = _start(argv, socket, log)
    try:
        _await(argv, service, socket, log)
        yield f"unix://{socket}"
    finally:
        if service.stdin:
            service.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            service.wait(END_S)
        shutil.rmtree(folder, ignore_errors=True)


def _start(argv: Sequence[str], socket: Path, log: Path) -> subprocess.Popen[bytes]:
    words = [*argv, "system", "service", f"--time={IDLE_S}", f"unix://{socket}"]
    with log.open("wb") as said:
        # Not in our session: Ctrl-C is for us, and the service is needed to put things away.
        return subprocess.Popen(
            ["sh", "-c", _SERVE, "sh", str(socket.parent), *words],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _await(argv: Sequence[str], service: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while not socket.exists():
        if service.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip().splitlines() or ["it says nothing"]
            raise EngineError(
                f"`{shlex.join(argv)} system service` does not run: {said[-1]}",
                hint="name a socket that there is: --engine unix:///run/podman/podman.sock",
            )
        time.sleep(0.02)
    if not os.access(socket, os.W_OK):
        raise EngineError(
            f"the service of `{shlex.join(argv)}` is for another user only",
            hint="call orchestrator as that user, or name a socket that you may use: --engine unix:///path/of/the.sock",
        )
