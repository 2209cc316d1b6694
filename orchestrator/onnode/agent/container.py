"""A node's container: image, start, shell for runs, end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence

from ..kernel.client import bind, client_argv, folders, registry_in, shared_folders
from ..kernel.files import make_below
from ..kernel.settings import Settings
from ..kernel.settings_file import rehearsed
from ..kernel.waiting import NOT_DONE, Failed, Partner, Waiting, end_session, failing
from .engine import Remover, mapped_users, users_question, users_remedy
from .executor import AtEnd, Conversation, Executor, Hear
from .node import HOST_NAME, HOST_S, EngineState, Node, hidden, make_hidden, removal, shortened

_END_S = 5
_REMOVE_S = 30

_END = "ended"
"""The last line of a conversation."""
_NOT_SEEN = "the engine does not see the folder of the job"
# Runs in the container; $1 is empty without a check of the network, $2 a prefix for rehearsals, $3
# /NAME/.../ of the site's mounts in /results. The container ends with its input, a pipe of the
# agent, which carries signals for runs, and scripts to converse with. The engine's `exec` would
# cost 0.1 s of processor per node, also between run_stop and run_start, and a killed client would
# leave its process running. Each run has its own process group, which is killed before the next.
_SHELL = r"""
share() {  # root of the container is another user on the host, and often nobody on its storage
  local one given=()
  for one in /results/* /results/.[!.]*; do
    # Mounts keep their modes; chmod follows links that it is given.
    [ ! -e "$one" ] || [ -L "$one" ] || [[ $mounted == *"/${one##*/}/"* ]] || given+=("$one")
  done
  [ ${#given[@]} = 0 ] || chmod -R a+rwX "${given[@]}"
}
end_sessions() {  # of a run; several passes, for processes that are forking
  local pass process entry found
  for pass in {1..5}; do
    found=
    for process in /proc/[0-9]*; do
      # With --pid=host all processes of the node are here.
      while IFS= read -r -d '' entry; do
        [[ $entry != "ORCH_MARK=$mark" ]] || { kill -KILL "${process##*/}" && found=1; break; }
      done <"$process/environ"
    done
    [ "$found" ] || break
  done
}
serve() {
  local mark runs=0
  set -m
  exec 3<>/orch/request 4<>/orch/status
  while read -r name <&3; do
    mark=$HOSTNAME.$$.$RANDOM.$((runs += 1))  # the last end_sessions may still look for its own
    ORCH_MARK=$mark bash "/orch/script.$name" 3<&- 4>&- &
    echo "$name started $!" >&4
    wait "$!"
    code=$?
    kill -KILL -- "-$!"
    # An environment cannot be read while its process hangs in the kernel.
    exec 5< <(end_sessions 3<&- 4>&-)
    read -r -t 5 -u 5 _
    exec 5<&-
    share
    echo "$name ended $code 0" >&4
    [ ! -d /orch-scratch ] || chmod -R a+rwX /orch-scratch/cache
  done
}
# An engine without the job's own /tmp (job_container/tmpfs, PrivateTmp) mounts an empty folder.
if [ ! -p /orch/request ] || [ ! -p /orch/status ]; then
  echo "the engine does not see the folder of the job: set container.channel_dir of the site to" \
    "one that is not private to jobs" >&2
  exit 1
fi
mounted=$3
for place in "${@:4}"; do
  tried=$place/.orch.$HOSTNAME.$$
  { mkdir "$tried" && rmdir "$tried"; } 2>/dev/null || echo "unwritable $place"
done
read -r _ root _ </proc/self/uid_map && [ "$root" = 0 ] || echo mapped
serve </dev/null >/dev/null 2>&1 &
%s%s
echo up
while read -r word name number; do
  case $word in
    converse) { bash "/orch/$name"; echo END; } <"/orch/ask.$number" >"/orch/answer.$number" & ;;
    *) kill "-$word" -- "-$name" ;;
  esac 2>/dev/null
done
""".replace("END", _END)
# torchrun in the container sorts the nodes by this.
_TELL_HOST = f"""
asked='python3 -ISc "{HOST_NAME}" || hostname -f'
echo "host $(timeout {HOST_S} sh -c "$asked" </dev/null 2>/dev/null)"
"""


def look_for_image(node: Node, waiting: Waiting) -> EngineState:
    """Return the engine's state and the image's id, the hash of its configuration, or of its
    manifest in Docker's containerd store, where a pulled and a loaded image differ."""
    settings = node.settings

    def ask(*arguments: str) -> tuple[int, bytes]:
        argv = [*settings.engine_command, *arguments]
        errors = subprocess.STDOUT if arguments == ("version",) else subprocess.DEVNULL
        return waiting.call(argv, settings.preflight_check_s, errors=errors)

    status, output = ask("image", "inspect", "--format", "{{.Id}}", settings.cont)
    image_id = output.decode("utf-8", "replace").strip() if status == 0 else ""
    if image_id:  # podman leaves out `sha256:`
        return EngineState("up", image_id if ":" in image_id else f"sha256:{image_id}")
    if status != NOT_DONE:
        status, output = ask("version")
        if status == 0:
            problem = f"image {settings.cont} is not on this node; pull or load it there"
            return EngineState("up", "", problem)
    engine = " ".join(settings.engine_command)
    text = f"the container engine ({engine}) does not answer on this node"
    last = shortened(output.decode("utf-8", "replace").strip().rpartition("\n")[2], 200)
    return EngineState("silent", "", f"{text}: {last}" if last else text)


def pulled_name(settings: Settings) -> str:
    """Complete a short name for podman, which would search this host's registries. The short name
    finds the pulled image."""
    if settings.engine != "podman" or registry_in(settings.cont):
        return settings.cont
    return f"docker.io/{'' if '/' in settings.cont else 'library/'}{settings.cont}"


def _shared(node: Node) -> dict[str, str]:
    """The group's shared folders: place in the container -> host."""
    place = hidden(_shared_place(node))
    names = shared_folders(node.settings.launch_shared, node.settings.site_mounts)
    return {target: f"{place}/{name}" for target, name in names.items()}


def _shared_place(node: Node) -> str:
    """A new folder per generation of containers: a dead run leaves it half done."""
    group, generation = (os.environ.get(f"ORCH_{name}", "0") for name in ("GROUP", "GENERATION"))
    return str(node.layout.shared(f"{group}-{generation}"))


def _volumes(node: Node) -> list[str]:
    """Raises Failed for a missing folder."""
    settings, volumes = node.settings, [bind(node.results, "/results"), bind(node.channel, "/orch")]
    for variable, source, target in folders(settings.mounts, settings.data):
        if not source:
            hint = f"give the site file data.{settings.workload}.{variable}, or export {variable}"
            raise Failed("data", f"{variable} is not set: {hint}")
        if not os.path.exists(source):
            # Otherwise the engine would create an empty folder there, as root.
            raise Failed("data", f"{variable}: {source} does not exist on this node")
        volumes.append(bind(source, *target.rsplit(":", 1)))
    if _shared(node):
        with failing("storage", f"cannot make {_shared_place(node)}"):
            node.make_in_set(_shared_place(node))
            make_hidden(_shared_place(node))
    for target, source in _shared(node).items():
        with failing("storage", f"cannot make {source}"):
            node.make_in_set(source)
            os.chmod(source, 0o1777)
            if target.startswith("/results/"):
                make_below(node.results, node.results + target[len("/results") :])
        volumes.append(bind(source, target))
    for source, target, mode in (mount.split("\t") for mount in settings.site_mounts):
        if not os.path.exists(source):
            raise Failed(
                "data", f"{source} does not exist on this node (container.mounts of the site)"
            )
        volumes.append(bind(source, target, mode))
    return volumes + (
        [bind(settings.code_source, settings.code_dir)] if settings.code_source else []
    )


def _written(node: Node) -> list[str]:
    mounts = (mount.split("\t") for mount in node.settings.mounts)
    return [place for _, _, place, mode in mounts if mode == "written"]


def _options(node: Node) -> list[str]:
    """Leave out RDMA devices missing on this node: docker would refuse to start."""
    device = "--device=/dev/infiniband"
    return [
        option
        for option in node.settings.container_options
        if not option.startswith(device)
        or os.path.exists(node.dev + option[len("--device=/dev") :].partition(":")[0])
    ]


def run_argv(
    node: Node, name: str, image: str, volumes: Sequence[str], arguments: Sequence[str]
) -> list[str]:
    """`image`: preferably an id, since a name may move."""
    labels = {"set": node.layout.root.name, "job": node.job_id, "node": node.name}
    engine = node.settings.engine_command
    return [*client_argv(engine, name, labels, _options(node), volumes, image), *arguments]


def remove_earlier(node: Node, waiting: Waiting) -> None:
    """Remove containers left by a killed agent of this job."""
    labels = {"job": node.job_id, "node": node.name}
    filters = [
        word
        for label, value in labels.items()
        for word in ("--filter", f"label=orchestrator.{label}={value}")
    ]
    listing = [*node.settings.engine_command, "ps", "--all", "--quiet", *filters]
    for container in waiting.call(listing, _REMOVE_S)[1].decode("utf-8", "replace").split():
        remove(node, container, waiting)


def remove(node: Node, name: str, waiting: Waiting) -> None:
    for command in removal(node, name):
        waiting.call(command, _REMOVE_S)


def _unseen(node: Node, output: str) -> str:
    """Explain which folder the engine cannot reach, by its output; or ""."""
    if node.results in output and node.settings.results == "shared":
        hint = "root is nobody on this storage; give the site container.results: local"
        return f"the engine cannot reach {node.results}: {hint}"
    for target, source in _shared(node).items():
        if source in output:
            hint = (
                f"root is nobody on this storage; give the site a container.mounts for {target}, "
                "from storage that root can use"
            )
            return f"the engine cannot reach {source}: {hint}"
    if node.channel in output:
        hint = (
            f"{node.channels} is private to the job; give the site a local container.channel_dir "
            "that is not, such as /var/tmp"
        )
        return f"the engine does not see {node.channel}: {hint}"
    return ""


class ShellReport:
    """The lines of the container's shell before the first run (_SHELL)."""

    def __init__(self) -> None:
        self.is_up = False
        self.is_mapped = False
        """Its root is another user on this node."""
        self.unwritable: list[str] = []
        self.host = ""
        self.network_lines: list[str] = []

    def take(self, line: str) -> bool:
        """Return whether the shell is up."""
        if line == "up":
            self.is_up = True
            return True
        if line.startswith("unwritable "):
            self.unwritable.append(line.removeprefix("unwritable "))
        elif line == "mapped":
            self.is_mapped = True
        elif line.startswith("host "):
            self.host = line[5:]
        elif line.startswith("rdma "):
            self.network_lines.append(line[5:])
        return False


class ContainerExecutor(Executor):
    """A container. `used`: its RDMA ports; `more`: further folders and their places in it.

    Raises Failed for a missing folder, OSError without pipes.
    """

    def __init__(
        self,
        node: Node,
        waiting: Waiting,
        used: Sequence[str],
        name: str,
        image: str,
        more: Sequence[tuple[str, str]] = (),
    ) -> None:
        from .network import CONTAINER_NETWORK

        super().__init__("/orch", node.settings.code_dir)
        self._node, self._waiting, self._name = node, waiting, name
        self._report = ShellReport()
        self._conversation: _ContainerConversation | None = None
        self._conversations = 0
        for pipe in ("request", "status"):
            os.mkfifo(f"{node.channel}/{pipe}", 0o600)
        # Open at both ends: no open waits, and they never end.
        self._requests, status = (
            os.open(f"{node.channel}/{pipe}", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            for pipe in ("request", "status")
        )
        waiting.watch_lines(status, self.hear)
        inside = rehearsed("ORCH_CONTAINER_ROOT", "", node.name)
        tell_host = _TELL_HOST if node.settings.nnodes > 1 else ""
        shell = _SHELL % (tell_host, CONTAINER_NETWORK)
        arguments = ["-c", shell, "container", " ".join(used), inside]
        arguments.append("/".join(["", *node.mounted_by_site, ""]))
        arguments += [inside + place for place in _written(node)]
        volumes = [*_volumes(node), *(bind(*mount) for mount in more)]
        argv = run_argv(node, name, image, volumes, arguments)
        with node.open_log() as errors, failing("engine", argv[0]):
            self._remover = Remover(node, name)
            try:
                self._client = Partner(
                    waiting, argv, self._said, self._lose, errors=errors, held=[self._remover.held]
                )
            except OSError:
                self._remover.end()
                raise

    @property
    def gone(self) -> bool:
        return self._client.process.poll() is not None

    def root(self) -> int:
        inspect = [
            *self._node.settings.engine_command,
            "inspect",
            "--format",
            "{{.State.Pid}}",
            self._name,
        ]
        said = self._waiting.call(inspect, self._node.settings.preflight_check_s)[1].strip()
        return int(said) if said.isdigit() else 0

    def command(self, argv: list[str], *, debugger: bool = False) -> list[str]:
        # A debugger needs more rights than the container has.
        more = ["--privileged"] if debugger else []
        return [*self._node.settings.engine_command, "exec", *more, self._name, *argv]

    def converse(self, waiting: Waiting, script: str, hear: Hear, at_end: AtEnd) -> Conversation:
        self._conversations += 1
        place = self._node.channel, self._conversations
        made = self._conversation = _ContainerConversation(waiting, *place, hear, at_end)
        if not self._client.send(f"converse {script} {self._conversations}"):
            made.close()
            raise OSError("the container has ended")
        return made

    def _lose(self) -> None:
        if self._conversation is not None:
            self._conversation.lose()

    def _said(self, line: str) -> None:
        if self._report.take(line):
            self._remover.made()

    @property
    def host(self) -> str:
        """ "" if unknown."""
        return self._report.host

    def await_up(self) -> list[str]:
        """Wait for its shell; return its lines about the network. Raises Failed."""
        limit = self._node.settings.container_start_s
        if not self._waiting.wait(lambda: self._report.is_up or self.gone, limit):
            raise Failed("container", f"the container does not answer after {limit} s")
        if not self._report.is_up:
            self._waiting.raise_if_signalled()
            output = self._node.last_words(3)
            text = _unseen(self._node, output)
            if text or _NOT_SEEN in output:
                mapped = self._users()
                text = f"{mapped} ({self._node.last_words(1)})" if mapped else text
            raise Failed("container", text or f"the container ended at once: {output}")
        if self._report.unwritable:
            places = ", ".join(self._report.unwritable)
            hint = "mount it writable, without root_squash, or give a copy of it"
            raise Failed(
                "data", f"the program writes to {places}, and root of the container cannot: {hint}"
            )
        return self._report.network_lines

    def unlike_root(self) -> str:
        """Return how root of the running container differs from root here, or ""."""
        return self._users() if self._report.is_mapped else ""

    def _users(self) -> str:
        settings = self._node.settings
        status, output = self._waiting.call(users_question(settings), settings.preflight_check_s)
        kind = mapped_users(settings, output.decode("utf-8", "replace")) if status == 0 else ""
        if not kind:
            return ""
        return (
            f"root of the container is another user on this node ({settings.engine}: {kind}): "
            f"{users_remedy(settings, kind)}"
        )

    def start(self, name: str) -> None:
        os.write(self._requests, f"{name}\n".encode())

    def signal(self, word: str, pid: str) -> None:
        self._client.send(f"{word} {pid}")

    def release(self) -> None:
        self._end_s = time.monotonic() + _END_S
        self._client.input.close()

    def close(self) -> None:
        self._await_end()
        self._client.leave(self._waiting)
        if _shared(self._node):  # the first node to arrive
            import shutil

            shutil.rmtree(_shared_place(self._node), ignore_errors=True)

    def _await_end(self) -> None:
        self._waiting.wait(lambda: self.gone, max(self._end_s - time.monotonic(), 0))
        if self._client.process.poll() == 0:
            self._remover.end()
            return
        end_session(self._client.process)
        # A client that ended between `create` and `start` (a cancellation reaches it, too)
        # leaves a container that never runs; the engine may still be creating it.
        for tries in range(1 if self._report.is_up else 3):
            self._waiting.wait(lambda: False, 0.3 if tries else 0)
            remove(self._node, self._name, self._waiting)
        status = self._client.process.poll()
        was_killed = status is None or status < 0
        if was_killed and not self._report.is_up:
            self._remover.leave()
        else:
            self._remover.end()


class _ContainerConversation(Conversation):
    """With new pipes: an earlier process may still read."""

    def __init__(
        self, waiting: Waiting, channel: str, number: int, hear: Hear, at_end: AtEnd
    ) -> None:
        self._waiting, self._hear, self._at_end = waiting, hear, at_end
        self._is_over = False
        self._pipes: list[tuple[str, int]] = []
        try:
            for pipe in ("ask", "answer"):
                path = f"{channel}/{pipe}.{number}"
                os.mkfifo(path, 0o600)
                fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
                self._pipes.append((path, fd))
        except OSError:  # a full folder
            self.close()
            raise
        (_, self._input), (_, output) = self._pipes
        waiting.watch_lines(output, self._take)

    def _take(self, line: str) -> None:
        if line == _END:
            self.lose()
        elif not self._is_over:
            self._hear(line)

    def lose(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._at_end()

    def send(self, line: str) -> bool:
        if self._is_over:
            return False
        try:
            os.write(self._input, f"{line}\n".encode())
        except OSError:  # it does not read
            return False
        return True

    def close(self) -> None:
        self._is_over = True
        pipes, self._pipes = self._pipes, []
        for path, fd in pipes:
            self._waiting.forget(fd)
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)
