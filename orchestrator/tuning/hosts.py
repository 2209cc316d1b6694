"""Run a profile's script on hosts, in one round trip for each host and action."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.tuning.profile import SCRIPT
from orchestrator.tuning.rows import HostState, SettingRow, is_complete, parse_rows, parse_status

if TYPE_CHECKING:
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import NodeAnswer, Transport

ACTIONS = ("plan", "apply", "verify", "revert", "revert-all", "status")
_WITH_OWNER = frozenset({"apply", "revert"})
_CHANGES = frozenset({"apply", "revert", "revert-all"})
_PASSED = ("ORCH_TUNABLES_ROOT", "ORCH_TUNABLES_STATE")
"""Set by rehearsals and tests."""
_BEGIN = "#begin"
# `bash -s` would read the script from the pipe byte by byte.
_RUN = 'eval "$(cat)"'
# sudo reads the password's line only if it needs it. Commands start after a marker line, so that
# this line never runs.
_SKIP_PASSWORD = f'while IFS= read -r line && [[ $line != "{_BEGIN}" ]]; do :; done'
_RUN_AFTER_PASSWORD = f"{_SKIP_PASSWORD}; {_RUN}"


@dataclass(frozen=True, slots=True)
class Root:
    """By login, or with sudo and a `password` if it asks."""

    sudo: bool = False
    password: str | None = None


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """`problem` is the reason for missing rows."""

    node: str
    rows: tuple[SettingRow, ...]
    state: HostState
    problem: str = ""
    answered: bool = True
    seconds: float = 0.0
    note: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and not any(row.broken for row in self.rows)

    def to_json(self) -> dict[str, object]:
        return {
            "node": self.node,
            "ok": self.ok,
            "answered": self.answered,
            "problem": self.problem,
            "note": self.note,
            "seconds": round(self.seconds, 3),
            "rows": [row.to_json() for row in self.rows],
        }


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
    """Yield results as they arrive.

    The host reverts the settings after `hold_seconds`, unless 0. Raises UsageError for an unknown
    action; failures of a host are in its result.
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
    """Return command and input; only the input has the password."""
    import shlex

    env = os.environ if env is None else env
    values = {"ORCH_OWNER_PID": "0", "ORCH_OWNER_S": str(hold_seconds)}
    values |= {name: env[name] for name in _PASSED if env.get(name)}
    assignments = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    text = assignments.encode() + compact(script)
    arguments = [SCRIPT, action]
    if action in _WITH_OWNER:
        arguments.append(owner)
    if not root.sudo:
        # An argument saves a process and a packet, but sudo would log it.
        return ["bash", "-c", text.decode("utf-8", "surrogateescape"), *arguments], b""
    if root.password is None:
        return ["sudo", "-n", "--", "bash", "-c", _RUN, *arguments], text
    if "\n" in root.password:
        raise UsageError("the sudo password holds a line break")
    secret = f"{root.password}\n{_BEGIN}\n".encode("utf-8", "surrogateescape")
    return [
        "sudo",
        "-S",
        "-p",
        "",
        "--",
        "bash",
        "-c",
        _RUN_AFTER_PASSWORD,
        *arguments,
    ], secret + text


def compact(script: bytes) -> bytes:
    """Remove comments and indentation; no string of the script has several lines."""
    lines = (line.strip() for line in script.splitlines())
    return b"\n".join(line for line in lines if line and not line.startswith(b"#")) + b"\n"


def _host_answer(answer: NodeAnswer, action: str) -> HostAnswer:
    lines = answer.text.splitlines()
    rows = tuple(parse_rows(lines)) if action != "status" else ()
    state = parse_status(lines) if action == "status" else HostState()
    problem = ""
    note = ""
    code = answer.returncode
    # With 1 and without rows, the shell or sudo ended before the script.
    if not answer.answered or code not in (0, 1) or (code == 1 and not rows):
        problem = answer.message
    elif code == 0 and action in _CHANGES and not is_complete(lines):
        problem = f"the {action} ended before it was complete; repeat the command"
    elif answer.complaints:
        note = answer.message
    return HostAnswer(answer.node, rows, state, problem, answer.answered, answer.seconds, note)
