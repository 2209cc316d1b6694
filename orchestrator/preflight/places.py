"""Places of a preflight: an existing or a short allocation, SSH, or this host."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SchedulerError, UsageError
from orchestrator.evidence.checks import judge, parse_table
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.policy.verdict import Row, Verdicts
from orchestrator.preflight.bundle import INVISIBLE

if TYPE_CHECKING:
    from orchestrator.model import Entry, Site
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import Transport
    from orchestrator.preflight.bundle import Bundle
    from orchestrator.scheduler.slurm_nodes import AllocationReply

WAIT_S = 15
"""Idle nodes take seconds; after longer, a job has them."""
COMPLETING_S = 10
DEEP_S = 1200
"""No measurement starts after 900 s, or lasts more than 135 s; its end takes 30 s."""
SPARE_S = 60
"""For the start of a step, and for slow shared storage."""
ENDING_S = 25.0
"""Longer than the loop waits for its nodes' release before it ends them by force."""


@dataclass(frozen=True, slots=True)
class Request:
    bundle: Bundle
    deep: bool = False

    @property
    def limit_s(self) -> float:
        return 2 * self.bundle.check_s + SPARE_S + (DEEP_S if self.deep else 0)

    def argv(self, nodes: Sequence[str], *, judge: bool = False) -> list[str]:
        argv = self.bundle.command("preflight", "--tsv", str(self.bundle.table))
        if judge:
            argv.append("--judge")
        if self.deep:
            argv.append("--deep")
        if nodes:
            argv += ["--nodes", ",".join(nodes)]
        return argv


# ---- inside an allocation, and on this host ----


def in_allocation(request: Request, nodes: Sequence[str], caller: Mapping[str, str]) -> Verdicts:
    from orchestrator.scheduler.slurm_variables import of_allocation

    env = {**request.bundle.env, **of_allocation(caller)}
    done = _run(request.argv(nodes), env, request.limit_s)
    return judge(nodes, _rows(request, done), {})


def on_this_host(request: Request) -> Verdicts:
    done = _run(request.argv([]), request.bundle.env, request.limit_s)
    rows = _rows(request, done)
    return judge(list(dict.fromkeys(row.node for row in rows)), rows, {})


# ---- a short allocation ----


@dataclass(frozen=True)
class Selection:
    """Requested nodes; `untested`: why some are not idle."""

    nodes: list[str]
    untested: dict[str, str]
    completing: bool
    """Some become idle in seconds."""

    @property
    def idle(self) -> list[str]:
        return [name for name in self.nodes if name not in self.untested]


def allocate(
    request: Request,
    entry: Entry,
    names: Sequence[str],
    progress: Callable[[str], None],
    *,
    of: int = 0,
) -> Verdicts:
    """Check idle nodes of `names`, or of the partition, in a short allocation.

    `of`: the number of nodes that the site uses, if known. Raises SchedulerError unless allocated.
    """
    from orchestrator.scheduler.slurm_nodes import allocation_reply

    site = entry.site
    partition = f"partition {site.partition}" if site.partition else "the default partition"
    for last in (False, True):
        chosen = settled(site, names)
        idle = chosen.idle
        if not idle:
            return judge(chosen.nodes, [], {}, chosen.untested)
        count = f"{len(idle)} of {of or len(chosen.nodes)}"
        progress(
            f"checking {count} {'named nodes' if names and not of else 'nodes'} of {partition}"
        )
        done = _run(
            _allocation_command(request, entry, idle),
            request.bundle.env,
            request.limit_s + WAIT_S,
        )
        reply = allocation_reply(done.stderr)
        if reply.granted:
            return judge(chosen.nodes, _rows(request, done), {}, chosen.untested)
        # Another job may have taken a node: try again.
        if last or not reply.busy:
            raise _not_allocated(done, reply)
    raise AssertionError("the last try returns or raises")


def settled(site: Site, names: Sequence[str]) -> Selection:
    """Wait up to COMPLETING_S seconds while Slurm cleans up nodes after a job."""
    for _ in range(COMPLETING_S):
        chosen = select(site, names)
        if not chosen.completing:
            return chosen
        time.sleep(1)
    return select(site, names)


def select(site: Site, names: Sequence[str]) -> Selection:
    """Select `names`, else the site's nodes. Raises SchedulerError."""
    from orchestrator.nodes.names import expand_all
    from orchestrator.scheduler.slurm_nodes import node_states

    requested = list(names) or expand_all(site.nodelist)
    states = node_states(site.partition, requested)
    nodes = requested or list(states)
    if not names:
        excluded = set(expand_all(site.exclude))
        nodes = [name for name in nodes if name not in excluded]
    area = f"partition {site.partition}" if site.partition else "the cluster"
    untested = dict[str, str]()
    completing = False
    for name in nodes:
        state = states.get(name)
        if state is None:
            untested[name] = f"not in {area}"
        elif not state.idle and not (site.reservation and state.reserved):
            untested[name] = state.description
            completing = completing or state.completing
    return Selection(nodes, untested, completing)


def allocation_options(site: Site, gpu_options: Sequence[str] = ()) -> list[str]:
    from orchestrator.scheduler.slurm_nodes import shared_options

    requested = {
        "partition": site.partition,
        "account": site.account,
        "qos": site.qos,
        "reservation": site.reservation,
        "constraint": site.constraint,
    }
    options = [f"--{name}={value}" for name, value in requested.items() if value]
    return [*options, *gpu_options, *shared_options(site.sbatch)]


def _allocation_command(request: Request, entry: Entry, nodes: Sequence[str]) -> list[str]:
    from orchestrator.scheduler.slurm_nodes import allocation_command

    return allocation_command(
        nodes,
        allocation_options(entry.site, entry.gpu_options),
        minutes=2 + int(request.limit_s // 60),
        wait_s=WAIT_S,
        argv=request.argv(nodes),
    )


def _not_allocated(
    done: subprocess.CompletedProcess[str], reply: AllocationReply
) -> SchedulerError:
    reason = reply.problem or _last([], done)
    if reply.busy:
        reason = f"the nodes were taken, or not given within {WAIT_S} s ({reason})"
        hint = "ask again, or name the nodes with --nodes"
    else:
        hint = (
            "correct the site file (partition, account, qos, ...); "
            "or run it inside an allocation of yours, or with --via ssh"
        )
    return SchedulerError(
        f"no allocation for the preflight: {reason}",
        argv=list(done.args),
        returncode=done.returncode,
        stderr=done.stderr,
        hint=hint,
    )


# ---- SSH ----


def over_ssh(
    request: Request, nodes: Sequence[NamedNode], *, transport: Transport, limit: int
) -> Verdicts:
    from orchestrator.nodes.fanout import each
    from orchestrator.nodes.transport import NodeAnswer, NodeCommand
    from orchestrator.scheduler.slurm_variables import node_variables, run_variables

    if request.deep:
        raise UsageError(
            "--deep needs an allocation: its step runs on all nodes at the same time",
            hint="leave --via ssh away, or run it inside an allocation",
        )
    bundle = request.bundle
    names = [node.name for node in nodes]
    env = {
        "ORCH_SET_DIR": bundle.env["ORCH_SET_DIR"],
        "ORCH_JOB_ID": "preflight",
        "ORCH_NODES": " ".join(names),
        **run_variables(len(names)),
        **_marker(bundle),
    }

    def check(node: NamedNode, stopped: Event) -> NodeAnswer:
        rank = names.index(node.name)
        node_env = {**env, "ORCH_NODE": node.name, **node_variables(rank)}
        argv = ["env", *(f"{name}={value}" for name, value in node_env.items())]
        argv += bundle.on_node("check")
        return transport.run(node, NodeCommand(argv, timeout_s=request.limit_s), stopped)

    problems = {}
    without_bundle = []
    judge_env = {**bundle.env, **env, "ORCH_ASKED_MS": str(THIS.wall_ms())}
    with Judge(request.argv(names, judge=True), judge_env) as judging:
        for node, answer in each(nodes, check, limit=limit):
            judging.send(node.name, answer.stdout)
            if answer.returncode == INVISIBLE:
                without_bundle.append(_no_log_dir(node.name, bundle))
            elif not answer.ok:
                problems[node.name] = answer.message
        done = judging.end(request.limit_s)
    return judge(names, [*_rows(request, done), *without_bundle], problems)


def _no_log_dir(node: str, bundle: Bundle) -> Row:
    return Row(
        node,
        "log_dir",
        "fail",
        0,
        f"does not see {bundle.folder.parent}, the site's log_dir",
        "mount the shared storage there, or correct log_dir in the site file",
    )


def _marker(bundle: Bundle) -> dict[str, str]:
    text = THIS.token()
    path = bundle.folder / "preflight" / ".seen"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")
    return {"ORCH_MARKER": str(path), "ORCH_MARKER_TEXT": text}


# ---- processes ----


class Judge:
    """preflight.sh --judge: compares the nodes' clocks as lines arrive."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        self.process = _start(argv, env, stdin=subprocess.PIPE)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self.process)

    def send(self, node: str, output: bytes) -> None:
        """Pass on a node's lines about itself."""
        lines = output.decode("utf-8", "replace").split("\n")
        about_itself = [line for line in lines if line.split("\t", 2)[1:2] == [node]]
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # its last output has the reason
                self.process.stdin.write("".join(f"{line}\n" for line in about_itself))
                self.process.stdin.flush()

    def end(self, limit_s: float) -> subprocess.CompletedProcess[str]:
        return _outcome(self.process, limit_s)


def _run(
    argv: list[str], env: Mapping[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    return _outcome(_start(argv, env), limit_s)


def _start(
    argv: list[str], env: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    # In its own process group: Ctrl-C reaches only us, and we end the others in order.
    group: dict[str, Any]
    if sys.version_info >= (3, 11):
        group = {"process_group": 0}
    else:
        group = {"preexec_fn": os.setpgrp}
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(env),
            encoding="utf-8",
            errors="replace",
            **group,
        )
    except FileNotFoundError as error:
        from orchestrator.scheduler.command import not_on_path

        raise not_on_path(argv, "with --via ssh") from error


def _outcome(process: subprocess.Popen[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    try:
        _, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise SchedulerError(
            f"the preflight did not end within {limit_s:g} s",
            argv=list(process.args),  # type: ignore[arg-type]
            hint="a node may hang; name fewer nodes with --nodes",
        ) from error
    finally:
        _end(process)
    return subprocess.CompletedProcess(process.args, process.returncode, "", stderr)


def _end(process: subprocess.Popen[str]) -> None:
    """End it, by TERM first: the allocation releases its nodes, preflight.sh ends its step."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            _kill_all(process)
            process.wait()
    for stream in (process.stdin, process.stderr):
        if stream is not None and not stream.closed:
            with suppress(OSError):
                stream.close()


def _kill_all(process: subprocess.Popen[str]) -> None:
    """Kill the group, and this program's processes in other groups."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    argv = process.args if isinstance(process.args, list) else []
    archives = {str(word).encode() for word in argv if str(word).endswith(".tar.gz")}
    for name in os.listdir("/proc"):
        if archives and name.isdecimal() and int(name) != os.getpid():
            with suppress(OSError):
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    runs_it = not archives.isdisjoint(file.read().split(b"\0"))
                if runs_it:
                    os.kill(int(name), signal.SIGKILL)


def _rows(request: Request, done: subprocess.CompletedProcess[str]) -> list[Row]:
    """Return the table of preflight.sh. Raises SchedulerError if missing."""
    try:
        return parse_table(request.bundle.table.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        from orchestrator.scheduler.slurm_nodes import without_allocation_messages

        lines = without_allocation_messages(_complaints(done))
        raise SchedulerError(
            f"preflight.sh could not run: {_last(lines, done)}",
            argv=list(done.args),
            returncode=done.returncode,
            stderr=done.stderr,
            hint="its whole output: orchestrator render ... -o DIR, then bash DIR/preflight.sh",
        ) from error


def _complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [stripped for line in done.stderr.splitlines() if (stripped := line.strip())]


def _last(lines: Sequence[str], done: subprocess.CompletedProcess[str]) -> str:
    return lines[-1] if lines else f"exit code {done.returncode} and no message"
