"""The SSH transport. ~/.ssh/config is read as ssh does; host keys must stand in a known_hosts file.

An unknown or a changed key is an error of that node, whatever the configuration says: `StrictHostKeyChecking no` is
not honoured. Keys come from the agent and from files; a password is never asked for.
"""

from __future__ import annotations

import selectors
import shlex
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.errors import UsageError
from orchestrator.nodes.known_hosts import KnownHosts
from orchestrator.nodes.names import NamedNode
from orchestrator.nodes.transport import NodeAnswer, Until, bounded, too_slow
from orchestrator.resources import user_path

if TYPE_CHECKING:
    from fabric import Config, Connection
    from paramiko import Channel, SSHConfig

CONNECT_S = 15.0
"""For the TCP connection, the banner and the login, each; less when the time-out is shorter."""
POLL_S = 0.25
CHUNK = 65_536


class _Files:
    """What the connections of one transport need from files, read once for all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ssh_config: SSHConfig | None = None
        self._known: dict[tuple[Path | None, ...], KnownHosts] = {}

    def config(self, file: str | None) -> Config:
        """Return a new one each time, because connections change it; what ssh's files say is looked up only."""
        from fabric import Config

        with self._lock:
            if self._ssh_config is None:
                self._ssh_config = (
                    Config(runtime_ssh_path=file) if file else Config()
                ).base_ssh_config
        return Config(ssh_config=self._ssh_config)

    def known_hosts(self, paths: tuple[Path | None, ...]) -> KnownHosts:
        """Return what the files say; the last one is that of RevokedHostKeys."""
        with self._lock:
            if paths not in self._known:
                *known, revoked = paths
                self._known[paths] = KnownHosts([path for path in known if path], revoked)
            return self._known[paths]


@dataclass(frozen=True)
class Ssh:
    """`config_file` replaces ~/.ssh/config and /etc/ssh/ssh_config."""

    config_file: str | None = None
    _files: _Files = field(default_factory=_Files, init=False, repr=False, compare=False)

    def run(
        self, node: NamedNode, argv: Sequence[str], stdin: bytes, timeout_s: float, until: Until
    ) -> NodeAnswer:
        began = time.monotonic()
        connection = None
        try:
            connection = self._connection(node, min(CONNECT_S, timeout_s))
            connection.open()
            # sshd gives the line to the user's login shell; quoted word by word it means the same to every one of them.
            line = shlex.join(bounded(argv, timeout_s))
            outcome = _exchange(
                connection.transport.open_session(timeout=CONNECT_S), line, stdin, until
            )
        except _failures() as error:
            why = _problem(node, error, connection)
            return NodeAnswer(node.name, -1, seconds=time.monotonic() - began, problem=why)
        finally:
            if connection is not None:
                connection.close()
        return _answer(node, outcome, time.monotonic() - began, timeout_s, until)

    def _connection(self, node: NamedNode, timeout_s: float) -> Connection:
        """Return a connection of fabric's, which knows ssh's configuration (user, port, keys, jump hosts)."""
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
        # fabric's own policy is to accept and forget every key.
        connection.client.set_missing_host_key_policy(RejectPolicy())
        # As paramiko looks it up.
        name = (
            connection.host if connection.port == 22 else f"[{connection.host}]:{connection.port}"
        )
        config = connection.ssh_config
        known = self._files.known_hosts((*known_hosts_files(config), revoked_file(config)))
        if (
            known.add_to(connection.client.get_host_keys(), name)
            and not connection.client.get_host_keys()
        ):
            raise UsageError(
                "its host key is revoked (@revoked in known_hosts, or RevokedHostKeys)"
            )
        return connection


def known_hosts_files(ssh_config: Any) -> list[Path]:
    """Return the known_hosts files that exist, of the user and of the machine, as ssh's configuration names them."""
    user = ssh_config.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    machine = ssh_config.get(
        "globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
    )
    paths = [user_path(word) for word in f"{user} {machine}".split() if word != "none"]
    return [path for path in paths if path.is_file()]


def revoked_file(ssh_config: Any) -> Path | None:
    """Return the file that RevokedHostKeys names; with one that is not there no host is trusted (ssh_config(5))."""
    name = ssh_config.get("revokedhostkeys", "none")
    return None if name.lower() == "none" else user_path(name)


def _failures() -> tuple[type[BaseException], ...]:
    from paramiko import SSHException

    return (SSHException, OSError, EOFError, UsageError, ValueError)


def _problem(node: NamedNode, error: BaseException, connection: Connection | None) -> str:
    from paramiko import AuthenticationException, BadHostKeyException, PasswordRequiredException

    host = f"{connection.host}:{connection.port}" if connection else node.name
    if isinstance(error, BadHostKeyException):
        return (
            f"SSH to {host}: its host key is not the one in known_hosts; somebody may be in between"
        )
    if isinstance(error, PasswordRequiredException):
        return f"SSH to {host}: the key is protected by a passphrase; load it with ssh-add"
    if isinstance(error, AuthenticationException):
        return f"SSH to {host}: login refused for {connection.user if connection else 'this user'}"
    if "not found in known_hosts" in str(error):
        return f"SSH to {host}: its host key is not in known_hosts; connect once with ssh and compare the fingerprint"
    if isinstance(error, TimeoutError | socket.timeout):
        return f"SSH to {host}: no answer in time"
    if isinstance(error, socket.gaierror):
        return f"SSH to {host}: there is no host of that name"
    return f"SSH to {host}: {str(error) or 'the connection ended'}"  # an EOFError has no words


def _exchange(
    channel: Channel, line: str, stdin: bytes, until: Until
) -> tuple[int | None, bytes, bytes]:
    """Run `line`, feed it `stdin`, and read both its outputs at the same time, until it ends or time is over.

    Returns its exit code (None without one) and the two outputs.
    """
    with channel, selectors.DefaultSelector() as selector:
        channel.settimeout(max(until.left, 0.01))
        channel.exec_command(line)
        channel.setblocking(False)
        selector.register(channel.fileno(), selectors.EVENT_READ)
        output: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
        rest = memoryview(stdin)
        fed = False
        while not until.over:
            rest, fed = (rest, True) if fed else _feed(channel, rest)
            # Asked before the last drain: what came in before the end is in the channel's buffers by then.
            ended = (channel.exit_status_ready() and channel.eof_received) or channel.closed
            if _drain(channel, output):
                continue
            if ended:
                break
            selector.select(min(POLL_S if fed else 0.01, until.left))
        done = channel.exit_status_ready() and not until.over
        return (
            channel.recv_exit_status() if done else None,
            bytes(output["out"]),
            bytes(output["err"]),
        )


def _feed(channel: Channel, rest: memoryview) -> tuple[memoryview, bool]:
    try:
        while rest and channel.send_ready():
            rest = rest[channel.send(bytes(rest[:CHUNK])) :]
    except (TimeoutError, OSError):
        if channel.closed:
            return rest, True
    if not rest:
        channel.shutdown_write()
    return rest, not rest


def _drain(channel: Channel, output: dict[str, bytearray]) -> bool:
    found = False
    if channel.recv_ready():
        output["out"] += channel.recv(CHUNK)
        found = True
    if channel.recv_stderr_ready():
        output["err"] += channel.recv_stderr(CHUNK)
        found = True
    return found


def _answer(
    node: NamedNode,
    outcome: tuple[int | None, bytes, bytes],
    seconds: float,
    timeout_s: float,
    until: Until,
) -> NodeAnswer:
    code, out, err = outcome
    if code is None or code < 0:
        why = (
            "was interrupted"
            if until.stopped.is_set()
            else f"no answer within {timeout_s:g} s"
            if until.over
            else "the connection ended before the command"
        )
        return NodeAnswer(node.name, -1, out, err, seconds, why)
    answer = NodeAnswer(node.name, code, out, err, seconds)
    if too_slow(answer, timeout_s):
        return NodeAnswer(
            node.name, -1, out, err, seconds, f"the command did not end within {timeout_s:g} s"
        )
    return answer
