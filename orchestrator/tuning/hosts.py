"""Run a profile's script on hosts: one connection and one round trip for each host and action."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.tuning.rows import HostState, KnobRow, is_complete, parse_rows, parse_status
from orchestrator.tuning.script import SCRIPT

if TYPE_CHECKING:
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import NodeAnswer, Transport

ACTIONS = ("plan", "apply", "verify", "revert", "revert-all", "status")
_CHANGES = frozenset({"apply", "revert", "revert-all"})
_BEGIN = "#begin"
# `bash -s` would read the script from the pipe byte by byte; this reads it at once.
_RUN = 'eval "$(cat)"'
# sudo reads the password's line only if it needs it. It must never run as a command: commands start
# after a marker line.
_RUN_AFTER_PASSWORD = f'while IFS= read -r line && [[ $line != "{_BEGIN}" ]]; do :; done; {_RUN}'


@dataclass(frozen=True, slots=True)
class Root:
    """How to become root on a host. `sudo` False: the login is root; `password` None: sudo must
    not ask."""

    sudo: bool = False
    password: str | None = None


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """The result of one host. `problem`: why it has no rows, "" if the script ran to its end."""

    node: str
    rows: tuple[KnobRow, ...]
    state: HostState
    problem: str = ""
    answered: bool = True
    seconds: float = 0.0
    note: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and not any(row.broken for row in self.rows)


def tune_hosts(
    nodes: Iterable[str | NamedNode],
    script: bytes,
    action: str,
    *,
    transport: Transport,
    owner: str = "tune",
    root: Root = Root(),
    hold_seconds: int = 0,
    timeout_s: float = 60.0,
    limit: int = 16,
) -> Iterator[HostAnswer]:
    """Run one action of a profile's script on every host and yield the results as they arrive.

    `hold_seconds`: the host itself reverts the settings after this time; 0: they stay until
    `revert`. Raises UsageError for an unknown action; failures on a host are in its result.
    """
    from orchestrator.nodes.fanout import run_on_nodes

    if action not in ACTIONS:
        raise UsageError(f"there is no action {action}; there are: {', '.join(ACTIONS)}")
    argv, stdin = request(script, action, owner=owner, root=root, hold_seconds=hold_seconds)
    for answer in run_on_nodes(
        nodes, argv, transport=transport, stdin=stdin, timeout_s=timeout_s, limit=limit
    ):
        yield _host_answer(answer, action)


def request(
    script: bytes,
    action: str,
    *,
    owner: str,
    root: Root,
    hold_seconds: int = 0,
    env: Mapping[str, str] | None = None,
) -> tuple[list[str], bytes]:
    """Return the command for a host and its standard input. The password is in no command and no
    environment."""
    import shlex

    env = os.environ if env is None else env
    values = {"ORCH_OWNER_PID": "0", "ORCH_OWNER_S": str(hold_seconds)}
    values |= {
        name: env[name] for name in ("ORCH_TUNABLES_ROOT", "ORCH_TUNABLES_STATE") if env.get(name)
    }
    text = "".join(
        f"{name}={shlex.quote(value)}\n" for name, value in values.items()
    ).encode() + compact(script)
    words = [SCRIPT, action, *([owner] if action in ("apply", "revert") else [])]
    if not root.sudo:
        # As an argument it needs no reading process and no second packet; sudo would log all of it.
        return ["bash", "-c", text.decode("utf-8", "surrogateescape"), *words], b""
    if root.password is None:
        return ["sudo", "-n", "--", "bash", "-c", _RUN, *words], text
    if "\n" in root.password:
        raise UsageError("the sudo password holds a line break")
    secret = f"{root.password}\n{_BEGIN}\n".encode("utf-8", "surrogateescape")
    return ["sudo", "-S", "-p", "", "--", "bash", "-c", _RUN_AFTER_PASSWORD, *words], secret + text


def compact(script: bytes) -> bytes:
    """Return the script without comments and indentation: bash reads it once per host and action.

    The script has no multi-line strings (a test checks that), so a line is never part of a string.
    """
    lines = (line.strip() for line in script.splitlines())
    return b"\n".join(line for line in lines if line and not line.startswith(b"#")) + b"\n"


def _host_answer(answer: NodeAnswer, action: str) -> HostAnswer:
    lines = answer.text.splitlines()
    rows = tuple(parse_rows(lines)) if action != "status" else ()
    state = parse_status(lines) if action == "status" else HostState()
    problem = answer.problem
    if not problem and answer.returncode not in (0, 1):
        problem = answer.message
    elif not problem and answer.returncode == 1 and not rows:
        problem = answer.message  # the shell or sudo ended before the script
    elif not problem and answer.returncode == 0 and action in _CHANGES and not is_complete(lines):
        problem = f"the {action} ended before it was complete; repeat the command"
    note = "" if problem else answer.message if answer.stderr.strip() else ""
    return HostAnswer(answer.node, rows, state, problem, answer.answered, answer.seconds, note)
