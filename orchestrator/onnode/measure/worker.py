"""The processes that measure: both ends of the pipes between them and the service. Requests and answers are lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from queue import Queue
from typing import Any, Callable

Request = Any  # that of `measure`, with "gpus"
Answer = Any  # {"bytes", "microseconds", "mbps", "wrong"}, or {"error"}


class Worker:
    """A process that measures. It ends when its input does."""

    def __init__(self, way: str, index: int, *fds: int) -> None:
        read, write = os.pipe()
        argv = [sys.executable, os.path.dirname(os.path.abspath(__file__)), way, *map(str, (index, write, *fds))]
        # Libraries print on standard output what they like; answers have a pipe of their own.
        self.process = subprocess.Popen(
            argv, bufsize=0, stdin=subprocess.PIPE, stdout=sys.stderr, pass_fds=(write, *fds), start_new_session=True
        )
        os.close(write)
        self.name = f"process {index}"
        # Without a buffer: what it had read ahead, select would not tell.
        self.output = os.fdopen(read, "rb", 0)

    def ask(self, request: Request) -> None:
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError:
            pass  # it has ended; the end of its output says so

    def answer(self) -> Answer:
        """Return its next answer; None when it has ended."""
        line = self.output.readline()
        return json.loads(line.decode()) if line.endswith(b"\n") else None

    def kill(self) -> str:
        """End it and what it started; return how it ended."""
        if self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        assert self.process.stdin
        self.process.stdin.close()
        self.output.close()
        status = self.process.wait()
        return f"signal {-status}" if status < 0 else f"exit status {status}"


def serve(measure: Callable[[Request], Answer], hello: Answer = None) -> None:
    """Answer the requests on standard input with `measure` until that ends. An exception is an answer, too."""
    requests: Queue[str] = Queue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(line)
        # The one that measures may hang in a library that no signal reaches.
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    with os.fdopen(int(sys.argv[3]), "w", 1) as output:
        if hello is not None:
            output.write(json.dumps(hello) + "\n")
        while True:
            try:
                answer = measure(json.loads(requests.get()))
            except Exception as error:  # whatever a library raises: the loop is told, and this process replaced
                answer = {"error": f"{type(error).__name__}: {str(error)[:500]}"}
            output.write(json.dumps(answer) + "\n")
