"""The SSH transport, with the user's ssh_config, agent and keys.

An unknown or changed host key is an error of that node, even with `StrictHostKeyChecking no`. No
password is requested.
"""

from __future__ import annotations

import errno
import re
import selectors
import shlex
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.errors import UsageError
from orchestrator.nodes.known_hosts import KnownHosts
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import Deadline, NodeAnswer, NodeCommand, checked
from orchestrator.resources import user_path

if TYPE_CHECKING:
    from fabric import Config, Connection
    from paramiko import Channel, SSHConfig

CONNECT_S = 15.0
"""Limit of the connection, the banner and the login, each."""
POLL_S = 0.25
FEED_POLL_S = 0.01
"""While input is left: nothing reports that the channel accepts more."""
CHUNK = 65_536


_PORT = re.compile(r"""(?im)^[ \t]*port[ \t=]+"?([^\s"]+)""")


class _Files:
    """SSH configuration and known_hosts files, read once per transport."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ssh_config: SSHConfig | None = None
        self._known: dict[tuple[Path | None, ...], KnownHosts] = {}

    def config(self, file: str | None) -> Config:
        """Return a copy: connections change their configuration."""
        from fabric import Config

        with self._lock:
            if self._ssh_config is None:
                source = Config(runtime_ssh_path=file) if file else Config()
                self._ssh_config = source.base_ssh_config
        return Config(ssh_config=self._ssh_config)

    def check(self, file: str) -> None:
        """Raise UsageError for an unusable configuration, before any node is blamed for it."""
        from paramiko import SSHException

        try:
            self.config(file)
            text = Path(file).read_text(errors="replace")
        except (OSError, SSHException, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"--ssh-config {file}: {reason}") from error
        for port in _PORT.findall(text):
            if not port.isdecimal():
                raise UsageError(f"--ssh-config {file}: Port {port} is not a number")

    def known_hosts(self, paths: Sequence[Path], revoked: Path | None) -> KnownHosts:
        key = (*paths, revoked)
        with self._lock:
            if key not in self._known:
                self._known[key] = KnownHosts(paths, revoked)
            return self._known[key]


@dataclass(frozen=True)
class _Outcome:
    """Result of a command; `code` is None or negative without an exit code."""

    code: int | None
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True)
class Ssh:
    """Uses ssh_config, or `config_file` in place of all its files."""

    config_file: str | None = None
    _files: _Files = field(default_factory=_Files, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.config_file:
            self._files.check(self.config_file)

    def run(self, node: NamedNode, command: NodeCommand, stopped: Event) -> NodeAnswer:
        start = time.monotonic()
        deadline = Deadline(command.timeout_s, stopped)
        # sshd passes the line to the login shell; quoted words mean the same to every shell.
        line = shlex.join(command.bounded)
        connection = None
        try:
            connection = self._connection(node, min(CONNECT_S, command.timeout_s))
            connection.open()
            channel = connection.transport.open_session(timeout=CONNECT_S)
            outcome = _exchange(channel, line, command.stdin, deadline)
        except _failures() as error:
            problem = _problem(node, error, connection)
            return NodeAnswer(node.name, -1, seconds=time.monotonic() - start, problem=problem)
        finally:
            if connection is not None:
                connection.close()
        return _answer(node, outcome, time.monotonic() - start, deadline)

    def _connection(self, node: NamedNode, timeout_s: float) -> Connection:
        from fabric import Connection
        from paramiko import RejectPolicy

        address = urlsplit(node.address or f"ssh://{node.name}")
        if not address.hostname:
            raise UsageError(f"node {node}: {node.address} names no host")
        connection = Connection(
            address.hostname,
            user=address.username,
            port=address.port,
            config=self._files.config(self.config_file),
            connect_timeout=timeout_s,
            connect_kwargs={"banner_timeout": timeout_s, "auth_timeout": timeout_s},
        )
        # fabric's default accepts and forgets every key.
        connection.client.set_missing_host_key_policy(RejectPolicy())
        config = connection.ssh_config
        known = self._files.known_hosts(known_hosts_files(config), revoked_file(config))
        keys = connection.client.get_host_keys()
        # The names by which paramiko looks keys up.
        with_port = f"[{connection.host}]:{connection.port}"
        name = connection.host if connection.port == 22 else with_port
        if known.add_to(keys, name) and not keys:
            raise UsageError(
                "its host key is revoked (@revoked in known_hosts, or RevokedHostKeys)"
            )
        return connection


def known_hosts_files(ssh_config: Any) -> list[Path]:
    user = ssh_config.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    machine = ssh_config.get(
        "globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
    )
    paths = [user_path(word) for word in f"{user} {machine}".split() if word != "none"]
    return [path for path in paths if path.is_file()]


def revoked_file(ssh_config: Any) -> Path | None:
    """Return the file of RevokedHostKeys. A missing file trusts no host (ssh_config(5))."""
    name = ssh_config.get("revokedhostkeys", "none")
    return None if name.lower() == "none" else user_path(name)


_NO_CONNECTION = {
    errno.ECONNREFUSED: "connection refused: no SSH server listens on that port",
    errno.EHOSTUNREACH: "no route to this host",
    # paramiko continues with the closed socket if a name has the same address twice.
    errno.EBADF: "connection refused, or no route to this host",
}


def _failures() -> tuple[type[BaseException], ...]:
    from paramiko import SSHException

    return (SSHException, OSError, EOFError, UsageError, ValueError)


def _problem(node: NamedNode, error: BaseException, connection: Connection | None) -> str:
    from paramiko import AuthenticationException, BadHostKeyException, PasswordRequiredException

    host = f"{connection.host}:{connection.port}" if connection else node.name
    user = connection.user if connection else "this user"
    if isinstance(error, BadHostKeyException):
        reason = "its host key differs from known_hosts; somebody may be in between"
    elif isinstance(error, PasswordRequiredException):
        reason = "the key is protected by a passphrase; load it with ssh-add"
    elif isinstance(error, AuthenticationException):
        reason = f"login refused for {user}"
    elif "not found in known_hosts" in str(error):
        reason = (
            "its host key is not in known_hosts; connect once with ssh and compare the fingerprint"
        )
    elif isinstance(error, TimeoutError | socket.timeout):
        reason = "no answer in time"
    elif isinstance(error, socket.gaierror):
        reason = "there is no host of that name"
    else:
        reason = _NO_CONNECTION.get(_number(error)) or str(error) or "the connection ended"
    return f"SSH to {host}: {reason}"


def _number(error: BaseException) -> int:
    """Return the error number of the first address tried; 0 if missing."""
    tried = vars(error).get("errors")
    first = next(iter(tried.values())) if isinstance(tried, dict) and tried else error
    return getattr(first, "errno", None) or 0


def _exchange(channel: Channel, line: str, stdin: bytes, deadline: Deadline) -> _Outcome:
    """Read both outputs until `line` ends or the deadline passes."""
    stdout = bytearray()
    stderr = bytearray()
    with channel, selectors.DefaultSelector() as selector:
        channel.settimeout(max(deadline.left, 0.01))
        channel.exec_command(line)
        channel.setblocking(False)
        selector.register(channel.fileno(), selectors.EVENT_READ)
        unsent = memoryview(stdin)
        sent = False
        while not deadline.over:
            if not sent:
                unsent, sent = _feed(channel, unsent)
            # Checked before the last read: all output is then in the channel's buffers.
            ended = (channel.exit_status_ready() and channel.eof_received) or channel.closed
            if _drain(channel, stdout, stderr):
                continue
            if ended:
                break
            selector.select(min(POLL_S if sent else FEED_POLL_S, deadline.left))
        has_code = channel.exit_status_ready() and not deadline.over
        code = channel.recv_exit_status() if has_code else None
    return _Outcome(code, bytes(stdout), bytes(stderr))


def _feed(channel: Channel, unsent: memoryview) -> tuple[memoryview, bool]:
    """Send what the channel accepts. Returns the rest, and whether all is sent."""
    try:
        while unsent and channel.send_ready():
            unsent = unsent[channel.send(bytes(unsent[:CHUNK])) :]
    except (TimeoutError, OSError):
        if channel.closed:
            return unsent, True
    if not unsent:
        channel.shutdown_write()
    return unsent, not unsent


def _drain(channel: Channel, stdout: bytearray, stderr: bytearray) -> bool:
    ready = False
    if channel.recv_ready():
        stdout += channel.recv(CHUNK)
        ready = True
    if channel.recv_stderr_ready():
        stderr += channel.recv_stderr(CHUNK)
        ready = True
    return ready


def _answer(node: NamedNode, outcome: _Outcome, seconds: float, deadline: Deadline) -> NodeAnswer:
    code = outcome.code
    if code is None or code < 0:
        ended = "the connection ended before the command"
        problem = deadline.reason if deadline.over else ended
        return NodeAnswer(node.name, -1, outcome.stdout, outcome.stderr, seconds, problem)
    answer = NodeAnswer(node.name, code, outcome.stdout, outcome.stderr, seconds)
    return checked(answer, deadline.timeout_s)
