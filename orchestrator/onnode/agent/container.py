"""The container of a node: its image, its start, the shell in it that runs start from, and its end."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from ..settings import rehearsed
from .node import Node
from .run import Place
from .tuning import hold_log, last_words
from .waiting import CANNOT_START, NOT_DONE, Failed, Waiting, exit_code

END_S = 5
_REMOVE_S = 30

# Runs in the container; $1 is empty where the network is not looked at, $2 a prefix for rehearsals. Its first process ends when
# its input does, and everything in the container with it; that input is a pipe of the agent, which ends with it, however
# that ends. What comes through it are signals for runs. `exec` of the engine would do the same as this shell, but costs 0.1 s of
# processor per node and run, between run_stop and run_start, and a killed client would leave its process running. Each run
# has a process group of its own, so that what it leaves behind ends before the next one starts.
_SHELL = r"""
serve() {
  set -m
  exec 3<>/orch/request 4<>/orch/status
  while read -r name <&3; do
    bash "/orch/script.$name" 3<&- 4>&- &
    echo "$name started $!" >&4
    wait "$!"
    code=$?
    kill -KILL -- "-$!"
    echo "$name ended $code 0" >&4
  done
}
serve </dev/null >/dev/null 2>&1 &
%s
echo up
while read -r word group; do kill "-$word" -- "-$group" 2>/dev/null; done
"""


@dataclass(frozen=True)
class EngineState:
    """The engine of a node. `state`: up, silent or none; `image_id` "" where the image is missing; `problem`: what is wrong."""

    state: str
    image_id: str
    problem: str = ""

    @property
    def kind(self) -> str:
        """The protocol's word for the problem."""
        return "engine" if self.state == "silent" else "image"


def call(
    argv: Sequence[str], seconds: float | None = None, *, errors: int | IO[bytes] = subprocess.DEVNULL
) -> tuple[int, bytes]:
    """Do what Waiting.call does, where there is nothing else to do meanwhile."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, timeout=seconds)
    except subprocess.TimeoutExpired:
        return NOT_DONE, b""
    except OSError as error:
        return CANNOT_START, f"{argv[0]}: {error.strerror}".encode()
    return exit_code(done.returncode), done.stdout


def look_for_image(node: Node, call: Callable[..., tuple[int, bytes]] = call, *, pull: bool = True) -> EngineState:
    """Return the engine's state and the image's id; without the image, pull it where the site wants that and `pull` allows it.

    The id is the hash of the image's configuration: equal content has an equal id on every node, also where it came from a tar
    and has no registry digest.
    """
    settings = node.settings
    if settings.engine == "none":
        return EngineState("none", "none")

    def ask(*words: str) -> tuple[int, bytes]:
        return call([*settings.engine_command, *words], settings.preflight_check_s)

    def image_id() -> str:
        status, words = ask("image", "inspect", "--format", "{{.Id}}", settings.cont)
        return words.decode("utf-8", "replace").strip() if status == 0 else ""

    found = image_id()
    if not found and settings.pull == "missing" and pull:
        with hold_log(node) as log:
            _, words = call([*settings.engine_command, "pull", settings.cont], errors=log)
            log.write(words)
        found = image_id()
    if found:
        return EngineState("up", found)
    if ask("version")[0] == 0:
        return EngineState("up", "", f"image {settings.cont} is not on this node; pull or load it there")
    engine = " ".join(settings.engine_command)
    return EngineState("silent", "", f"the container engine ({engine}) does not answer on this node")


def folders(mounts: Iterable[str], data: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (variable, folder of the host or "", place in the container with its mode) for the MOUNTS of settings.sh."""
    found = []
    for mount in mounts:
        variable, below, target, mode = mount.split("\t")
        source = data.get(variable, "")
        found.append((variable, source if below == "." or not source else f"{source}/{below}", f"{target}:{mode}"))
    return found


def mounts(node: Node) -> list[str]:
    """Return the folders that the container sees, as the engine's option --volume has them. Raises Failed where one is missing."""
    settings, options = node.settings, [f"{node.folder}/scratch:/results", f"{node.channel}:/orch"]
    for variable, source, target in folders(settings.mounts, settings.data):
        if not source:
            hint = f"give the site file data.{settings.workload}.{variable}, or export {variable}"
            raise Failed("data", f"{variable} is not set: {hint}")
        if not os.path.exists(source):
            # Without this check the engine would make an empty folder there, as root.
            raise Failed("data", f"{variable}: {source} does not exist on this node")
        options.append(f"{source}:{target}")
    if settings.code_source:
        options.append(f"{settings.code_source}:{settings.code_dir}")
    return options


def client_argv(
    engine: Sequence[str],
    name: str,
    labels: Mapping[str, str],
    options: Sequence[str],
    volumes: Sequence[str],
    image: str,
) -> list[str]:
    """Return the command that runs bash in a container which lives as long as its input is open; bash's own words follow."""
    argv = [*engine, "run", "--rm", "--interactive", "--init", "--name", name]
    argv += [word for label, value in labels.items() for word in ("--label", f"orchestrator.{label}={value}")]
    argv += [*options, *(word for one in volumes for word in ("--volume", one))]
    return [*argv, "--entrypoint", "bash", image]


def run_argv(node: Node, name: str, volumes: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the command that runs bash with `words` in a container of this node."""
    settings, labels = node.settings, {"set": node.layout.root.name, "job": node.job_id, "node": node.name}
    argv = client_argv(settings.engine_command, name, labels, settings.container_options, volumes, settings.cont)
    return [*argv, *words]


def remove(node: Node, name: str, call: Callable[..., tuple[int, bytes]] = call) -> None:
    """Remove a container by force, if there is one of that name."""
    call([*node.settings.engine_command, "rm", "--force", name], _REMOVE_S)


class Container(Place):
    """A container that lives as long as its input is open. `up` once it has said so; `told` is what it said of the network before.

    Raises Failed where a folder to mount is missing, OSError where its pipes cannot be made.
    """

    def __init__(self, node: Node, waiting: Waiting, used: Sequence[str], generation: str) -> None:
        super().__init__("/orch", node.settings.code_dir)
        from .network import CONTAINER_NETWORK

        self._node, self._waiting = node, waiting
        self.up = self.gone = False
        self.told: list[str] = []
        self._pipes = []
        for name in ("request", "status"):
            os.mkfifo(f"{node.channel}/{name}", 0o600)
            # Both ends: nobody's open of it ever waits, and it never ends.
            self._pipes.append(os.open(f"{node.channel}/{name}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        self.listen(waiting, self._pipes[1], lambda: None)
        self._name = f"orch-{node.owner}-{generation}"
        inside = rehearsed("ORCH_CONTAINER_ROOT", "", node.name)
        words = ["-c", _SHELL % CONTAINER_NETWORK, "container", " ".join(used), inside]
        argv = run_argv(node, self._name, mounts(node), words)
        with hold_log(node) as errors:
            try:
                self._client = subprocess.Popen(
                    argv,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                raise Failed("engine", f"{argv[0]}: {error.strerror}") from error
        assert self._client.stdout is not None
        waiting.watch_lines(self._client.stdout.fileno(), self._said)
        waiting.on_child.append(self._look)

    def _said(self, line: str) -> None:
        if line == "up":
            self.up = True
        elif line.startswith("rdma "):
            self.told.append(line[5:])

    def _look(self) -> None:
        self.gone = self._client.poll() is not None

    def await_up(self) -> None:
        """Wait until the shell in it answers. Raises Failed."""
        limit = self._node.settings.container_start_s
        if not self._waiting.wait(lambda: self.up or self.gone, limit):
            raise Failed("container", f"the container does not answer after {limit} s")
        if not self.up:
            self._waiting.let_signals_come()
            raise Failed("container", f"the container ended at once: {last_words(self._node, 3)}")

    def start(self, name: str) -> None:
        os.write(self._pipes[0], f"{name}\n".encode())

    def signal(self, word: str, pid: str) -> None:
        assert self._client.stdin is not None
        try:
            self._client.stdin.write(f"{word} {pid}\n".encode())
        except (OSError, ValueError):  # it is gone
            pass

    def let_go(self) -> None:
        """Close its input: it ends, with all that is in it."""
        assert self._client.stdin is not None
        self._closed = time.monotonic()
        self._client.stdin.close()

    def close(self) -> None:
        """Wait until it is gone, and end it by force when that takes too long."""
        self._waiting.wait(lambda: self.gone, max(self._closed + END_S - time.monotonic(), 0))
        if self.gone and self._client.returncode == 0:
            return
        if not self.gone:
            self._client.kill()
        # A client that was ended between `create` and `start` (scancel reaches it, too) leaves a container that never runs, and
        # the engine may still be making it.
        for tries in range(1 if self.up else 3):
            self._waiting.wait(lambda: False, 0.3 if tries else 0)
            remove(self._node, self._name, self._waiting.call)
