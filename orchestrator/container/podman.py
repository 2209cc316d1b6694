"""Reaching the local podman: it listens to nobody by itself, so a service of it is started while a command of ours needs it."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orchestrator.container.image import EngineError

START_S, END_S = 30, 10
IDLE_S = 60
"""A service whose user was killed ends by itself after so long."""


@contextmanager
def reachable(address: str, engine: str, command: Sequence[str] | None) -> Iterator[str]:
    """Give the address of the site's local engine: `address`, else that of a service of its podman, else "" (the engine's default).

    `command` calls the podman, None: by its name. Raises EngineError when its service cannot be used.
    """
    if address or engine != "podman":
        yield address
        return
    argv = tuple(command or ("podman",))
    with tempfile.TemporaryDirectory(prefix="orch-podman.") as folder:
        socket, log = Path(folder) / "sock", Path(folder) / "log"
        service = _start(argv, socket, log)
        try:
            _await(argv, service, socket, log)
            yield f"unix://{socket}"
        finally:
            service.terminate()
            try:
                service.wait(END_S)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait()


def _start(argv: Sequence[str], socket: Path, log: Path) -> subprocess.Popen[bytes]:
    words = [*argv, "system", "service", f"--time={IDLE_S}", f"unix://{socket}"]
    with log.open("wb") as errors:
        try:
            # Not in our session: Ctrl-C is for us, and it is needed to put things away.
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, start_new_session=True
            )
        except OSError as error:
            raise EngineError(
                f"the container engine ({shlex.join(argv)}) cannot be started: {error.strerror}",
                hint="install podman here, or name its socket: --engine unix:///run/podman/podman.sock",
            ) from error


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
