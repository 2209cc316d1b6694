"""Places of a preflight: an allocation, a short allocation of its own, SSH, or this host."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import SchedulerError, UsageError
from orchestrator.evidence.checks import judge, parse_table
from orchestrator.onnode.policy.verdict import Row, Verdicts

if TYPE_CHECKING:
    from orchestrator.model import Entry, Site
    from orchestrator.nodes.names import NamedNode
    from orchestrator.nodes.transport import Transport
    from orchestrator.preflight.bundle import Bundle

WAIT_S = 15
"""For idle nodes salloc waits for one pass of the scheduler, some seconds. A longer wait means
waiting for a job."""
COMPLETING_S = 10
DEEP_S = 1200
"""The bundle starts no measurement after 900 s; one may last 135 s, and its end 30 s."""
SPARE_S = 60
"""Beyond the checks themselves: the start of a step, and a judge that waits for shared storage."""
ENDING_S = 15.0
INVISIBLE = 96
"""Exit code of a host that does not see the bundle."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to check nodes; `deep` also measures the bandwidth between them."""

    bundle: Bundle
    deep: bool = False

    @property
    def limit_s(self) -> float:
        return 2 * self.bundle.check_s + SPARE_S + (DEEP_S if self.deep else 0)

    def argv(self, nodes: Sequence[str], *, judge: bool = False) -> list[str]:
        words = ["bash", str(self.bundle.script), "--tsv", str(self.bundle.table)]
        words += ["--judge"] if judge else []
        words += ["--deep"] if self.deep else []
        return [*words, *(["--nodes", ",".join(nodes)] if nodes else [])]


# ---- inside an allocation, and on this host ----


def in_allocation(request: Request, nodes: Sequence[str], caller: Mapping[str, str]) -> Verdicts:
    """Check `nodes` of this shell's allocation."""
    slurm = {name: value for name, value in caller.items() if name.startswith("SLURM")}
    done = _run(request.argv(nodes), {**request.bundle.env, **slurm}, request.limit_s)
    return judge(nodes, _rows(request, done), {})


def on_this_host(request: Request) -> Verdicts:
    """Check this host."""
    done = _run(request.argv([]), request.bundle.env, request.limit_s)
    rows = _rows(request, done)
    return judge(list(dict.fromkeys(row.node for row in rows)), rows, {})


# ---- a short allocation ----


def allocate(
    request: Request, entry: Entry, names: Sequence[str], tell: Callable[[str], None]
) -> Verdicts:
    """Check the idle nodes of `names` (() for the whole partition) in an allocation that ends with
    the checks.

    The verdicts list nodes that are down, drained or in use as not tested. Raises SchedulerError if
    Slurm does not allocate the idle ones.
    """
    from orchestrator.scheduler.slurm_nodes import BUSY, GRANTED

    site = entry.site
    for last in (False, True):
        given, untried, idle = _idle(site, names)
        for _ in range(COMPLETING_S):
            # The nodes of a job that has just ended are free in a second or two.
            if not any(state.startswith("completing") for state in untried.values()):
                break
            time.sleep(1)
            given, untried, idle = _idle(site, names)
        if not idle:
            return judge(given, [], {}, untried)
        tell(
            f"checking {len(idle)} of {len(given)} nodes in an allocation of {site.partition or 'the default partition'}"
        )
        done = _run(_salloc(request, entry, idle), request.bundle.env, request.limit_s + WAIT_S)
        if GRANTED.search(done.stderr):
            return judge(given, _rows(request, done), {}, untried)
        if last or not BUSY.search(done.stderr):
            raise _not_allocated(done)
        # Another job took a node between our question and our request.
    raise AssertionError("the last try returns or raises")


def _idle(site: Site, names: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Return (all requested nodes, why some cannot be tested, the others)."""
    from orchestrator.nodes.names import expand_all
    from orchestrator.scheduler.slurm_nodes import node_states

    wanted = list(names) or expand_all(site.nodelist)
    states = node_states(site.partition, wanted)
    given = wanted or list(states)
    if not names:
        avoided = set(expand_all(site.exclude))
        given = [name for name in given if name not in avoided]
    where = f"partition {site.partition}" if site.partition else "the cluster"
    untried = {
        name: states[name].words if name in states else f"not in {where}"
        for name in given
        if name not in states
        or not (states[name].idle or (site.reservation and states[name].reserved))
    }
    return given, untried, [name for name in given if name not in untried]


def _salloc(request: Request, entry: Entry, nodes: Sequence[str]) -> list[str]:
    from orchestrator.scheduler.slurm_nodes import salloc_command, shared_options

    site = entry.site
    asked = (
        ("partition", site.partition),
        ("account", site.account),
        ("qos", site.qos),
        ("reservation", site.reservation),
        ("constraint", site.constraint),
    )
    options = [f"--{name}={value}" for name, value in asked if value]
    options += [f"--gres=gpu:{entry.gpus_per_node}"] if entry.gfx else []
    return salloc_command(
        nodes,
        [*options, *shared_options(site.sbatch)],
        minutes=2 + int(request.limit_s // 60),
        wait_s=WAIT_S,
        argv=request.argv(nodes),
    )


def _not_allocated(done: subprocess.CompletedProcess[str]) -> SchedulerError:
    from orchestrator.scheduler.slurm_nodes import BUSY

    lines = [
        line.strip().removeprefix("salloc: ") for line in done.stderr.splitlines() if line.strip()
    ]
    errors = [
        line.removeprefix("error: ") for line in lines if line.startswith("error: ")
    ] or lines[-1:]
    words = errors[-1] if errors else f"exit code {done.returncode} and no message"
    if BUSY.search(done.stderr):
        words = f"the nodes were taken, or not given within {WAIT_S} s ({words})"
        hint = "ask again, or name the nodes with --nodes"
    else:
        hint = "correct the site file (partition, account, qos, ...); or run it inside an allocation of yours, or with --via ssh"
    return SchedulerError(
        f"no allocation for the preflight: {words}",
        argv=list(done.args),
        returncode=done.returncode,
        stderr=done.stderr,
        hint=hint,
    )


# ---- SSH ----


def over_ssh(
    request: Request, nodes: Sequence[NamedNode], *, transport: Transport, limit: int
) -> Verdicts:
    """Check `nodes`, which need no scheduler. Their lines go to the judge as they arrive."""
    from orchestrator.nodes.fanout import each
    from orchestrator.nodes.transport import NodeAnswer

    if request.deep:
        raise UsageError(
            "--deep needs an allocation: its step runs on all nodes at the same time",
            hint="leave --via ssh away, or run it inside an allocation",
        )
    bundle, names = request.bundle, [node.name for node in nodes]
    env = {
        "ORCH_SET_DIR": bundle.env["ORCH_SET_DIR"],
        "ORCH_JOB_ID": "preflight",
        "ORCH_NODES": " ".join(names),
        "SLURM_NNODES": str(len(names)),
        **_marker(bundle),
    }

    def check(node: NamedNode, stopped: threading.Event) -> NodeAnswer:
        own = {**env, "ORCH_NODE": node.name, "SLURM_NODEID": str(names.index(node.name))}
        words = ["env", *(f"{name}={value}" for name, value in own.items())]
        argv = [*words, "bash", "-c", SEE, "preflight", bundle.python, str(bundle.lib), "check"]
        return transport.run(node, argv, b"", request.limit_s, stopped)

    problems, blind = {}, []
    asked_ms = {"ORCH_ASKED_MS": str(time.time_ns() // 10**6)}
    with Judge(request.argv(names, judge=True), {**bundle.env, **env, **asked_ms}) as judging:
        for node, answer in each(nodes, check, limit=limit):
            judging.give(node.name, answer.stdout)
            if answer.returncode == INVISIBLE:
                blind.append(
                    Row(
                        node.name,
                        "log_dir",
                        "fail",
                        0,
                        f"does not see {bundle.folder.parent}, the site's log_dir",
                        "mount the shared storage there, or correct log_dir in the site file",
                    )
                )
            elif not answer.ok:
                problems[node.name] = answer.message
        done = judging.end(request.limit_s)
    return judge(names, [*_rows(request, done), *blind], problems)


SEE = f'test -r "$2/__main__.py" || exit {INVISIBLE}; exec "$1" -I -S -B "$2" node "$3"'


def _marker(bundle: Bundle) -> dict[str, str]:
    """Write a marker on shared storage for every node to see. Return its variables for nodes and
    judge."""
    text, path = os.urandom(8).hex(), bundle.folder / "preflight" / ".seen"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{text}\n")
    return {"ORCH_MARKER": str(path), "ORCH_MARKER_TEXT": text}


# ---- processes ----


class Judge:
    """preflight.sh --judge, which reads the nodes' lines as they arrive: it compares their
    clocks with its own."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        self.process = _start(argv, env, stdin=subprocess.PIPE)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self.process)

    def give(self, node: str, lines: bytes) -> None:
        """Pass on a node's lines with its name: the judge cannot see their origin."""
        said = lines.decode("utf-8", "replace").split("\n")
        own = "".join(f"{line}\n" for line in said if line.split("\t", 2)[1:2] == [node])
        with suppress(BrokenPipeError):  # its last output has the reason
            self.process.stdin.write(own)  # type: ignore[union-attr]
            self.process.stdin.flush()  # type: ignore[union-attr]

    def end(self, limit_s: float) -> subprocess.CompletedProcess[str]:
        return _outcome(self.process, limit_s)


def _run(
    argv: list[str], env: Mapping[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    return _outcome(_start(argv, env), limit_s)


def _start(
    argv: list[str], env: Mapping[str, str], stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    # A process group of its own: Ctrl-C reaches us alone, and we end the others in order.
    try:
        return subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(env),
            encoding="utf-8",
            errors="replace",
            process_group=0,
        )
    except FileNotFoundError as error:
        raise SchedulerError(
            f"`{argv[0]}` is not on PATH",
            argv=argv,
            hint="run this on a login node of the cluster, or with --via ssh",
        ) from error


def _outcome(process: subprocess.Popen[str], limit_s: float) -> subprocess.CompletedProcess[str]:
    try:
        _, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise SchedulerError(
            f"the preflight did not end within {limit_s:g} s",
            argv=list(process.args),  # type: ignore[arg-type]
            hint="a node may hang; name fewer nodes with --nodes",
        ) from error
    finally:
        _end(process)
    return subprocess.CompletedProcess(process.args, process.returncode, "", said)


def _end(process: subprocess.Popen[str]) -> None:
    """End the rest. TERM first: salloc then releases its nodes and preflight.sh ends its step."""
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
    """Kill all processes in the folder of this preflight: salloc gives its command a group of
    its own."""
    words = process.args if isinstance(process.args, list) else []
    script = next(
        (str(word).encode() for word in words if str(word).endswith("/preflight.sh")), b""
    )
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for entry in os.listdir("/proc"):
        if script and entry.isdecimal() and int(entry) != os.getpid():
            with suppress(OSError):
                with open(f"/proc/{entry}/cmdline", "rb") as file:
                    named = script in file.read().split(b"\0")
                if named:
                    os.kill(int(entry), signal.SIGKILL)


def _rows(request: Request, done: subprocess.CompletedProcess[str]) -> list[Row]:
    """Return the table written by preflight.sh. Without one, raise SchedulerError with its last
    output."""
    try:
        return parse_table(request.bundle.table.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        lines = [
            text
            for line in done.stderr.splitlines()
            if (text := line.strip()) and not text.startswith("salloc: ")
        ]
        raise SchedulerError(
            f"preflight.sh could not run: {lines[-1] if lines else f'exit code {done.returncode} and no message'}",
            argv=list(done.args),
            returncode=done.returncode,
            stderr=done.stderr,
            hint="its whole output: orchestrator render ... -o DIR, then bash DIR/preflight.sh",
        ) from error
