"""Faults: sentences such as `node 3 dies in run 4`, and their effects.

SUBJECT EVENT [for DURATION] [in | before | at the end of run R [after DURATION] | at DURATION]

Durations: `90 min`, `8h`, `1h30m`. Times count
    in run R             from the start of its first attempt (default: half of its expected time)
    at the end of run R  from the expected end of that attempt
    before run R         from the request to get ready for it
    at                   from the submission
docs/rehearse.md lists the events.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError, did_you_mean
from orchestrator.simulation.engine import NEVER
from orchestrator.simulation.storage_crash import cut

if TYPE_CHECKING:
    from orchestrator.simulation.engine import SimProcess
    from orchestrator.simulation.play import Simulation
    from orchestrator.simulation.slurm import SimJob

_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_PART = r"[0-9]+(?:\.[0-9]+)? ?[a-z]+"
_DURATION = rf"{_PART}(?: ?{_PART})*"
_SENTENCE = re.compile(
    rf"(?P<event>.+?)(?: for (?P<for>{_DURATION}))?"
    r"(?: (?P<when>in|before|at the end of) run (?P<run>[0-9]{1,9})"
    rf"(?: after (?P<after>{_DURATION}))?| at (?P<at>{_DURATION}))?"
)
_NODE = re.compile(r"\bnode ([0-9]+)\b")
STOPS_S = 150.0
"""Longer than a lease allows."""
MOST_S = 100 * 365 * 86400.0
UNSENT_BYTES = 200
BACK_S = 3600.0
"""Until a dead node is back."""
REBOOTED_S = 120.0
"""For a requeued job's host: within SlurmdTimeout, thus never marked down."""
DOWN_S = 1.0
"""With ReturnToService=2 an answering node returns at once."""
GIVEN_UP_S = 1800.0
"""Of an unreachable batch host."""
SET_BACK_S = 365 * 86400.0
"""Without a time source a server starts with its firmware's date."""
NODE_AHEAD_MS, NODES_BACK_MS = 3_600_000, 2 * 86_400_000


@dataclass(frozen=True)
class Fault:
    """A fault `at_s` after `when` of run `run`; run 0: after the submission.

    `at_s` below 0: in the middle of the run. `for_s` 0: the event's own duration.
    """

    event: str
    run: int = 0
    at_s: float = -1.0
    for_s: float = 0.0
    when: str = "in"

    def __str__(self) -> str:
        lasts = f" for {span(self.for_s)}" if self.for_s else ""
        after = f" after {span(self.at_s)}" if self.at_s >= 0 else ""
        moment = (
            f"{self.when} run {self.run}{after}" if self.run else f"at {span(max(self.at_s, 0))}"
        )
        return f"{self.event}{lasts} {moment}"


def sentences() -> list[str]:
    """Return all events: `node N dies`."""
    return [event.replace(r"(\d+)", "N") for event in EVENTS]


def parse(text: str, nodes: Sequence[str] = ()) -> Fault:
    """Read a sentence; `nodes` may replace the numbers, from 1. Raises UsageError."""
    plain = " ".join(text.split()).removesuffix(".")
    for number, name in enumerate(nodes, 1):
        plain = re.sub(rf"\bnode {re.escape(name)}(?=\s|$)", f"node {number}", plain)
    match = _SENTENCE.fullmatch(plain)
    event = match["event"] if match else ""
    if match is None or not any(re.fullmatch(pattern, event) for pattern in EVENTS):
        numbers = re.findall(r"\d+", event)
        near = did_you_mean(re.sub(r"\d+", "N", event), sentences(), before="`", after="`")
        for number in numbers:
            near = near.replace("N", number, 1)
        raise UsageError(
            f"unknown fault: {text!r}{near}", hint="orchestrator docs rehearse lists the sentences"
        )
    run, at = int(match["run"] or 0), match["after"] or match["at"]
    if match["run"] and not run:
        raise UsageError(f"fault {text!r}: runs count from 1")
    if not run and not at:
        raise UsageError(
            f"fault {text!r} has no time", hint=f"write `{event} in run 2`, or `{event} at 90 min`"
        )
    lasts_s = seconds(match["for"]) if match["for"] else 0.0
    return Fault(event, run, seconds(at) if at else -1.0, lasts_s, match["when"] or "in")


def refuse_unknown(fault: Fault, nodes: int, runs: int) -> None:
    """Raise UsageError for a missing node or run."""
    for number in map(int, _NODE.findall(fault.event)):
        if not 1 <= number <= nodes:
            raise UsageError(
                f"fault `{fault}`: the cluster has {nodes} nodes, and this names node {number}"
            )
    if fault.run > runs:
        raise UsageError(
            f"fault `{fault}`: the set has {runs} runs, and this names run {fault.run}"
        )


def seconds(text: str) -> float:
    """Read `90 min` or `1h30m`. Raises UsageError."""
    parts = re.findall(r"([0-9.]+) ?([a-z]+)", text)
    if not re.fullmatch(_DURATION, text.strip()) or any(unit not in _UNITS for _, unit in parts):
        raise UsageError(
            f"{text!r} is not a duration", hint="such as 90 s, 30 min, 8h, 1h30m or 2 days"
        )
    total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if total > MOST_S:
        raise UsageError(f"{text!r} is more than a hundred years")
    return total


def span(total_s: float) -> str:
    """Write a duration for `seconds()`: `1h30m`, `8h`, `12.5s`."""
    if total_s != int(total_s):
        return f"{total_s!r}s"
    rest, parts = int(total_s), []
    for unit in "dhms":
        count, rest = divmod(rest, int(_UNITS[unit]))
        parts += [f"{count}{unit}"] if count else []
    return "".join(parts) or "0s"


Happens = Callable[["Simulation", Fault, "list[str]"], None]
"""The effect of an event, given the numbers in its sentence."""


def plant(world: Simulation, fault: Fault) -> None:
    if fault.run and fault.when == "before":
        world.trainings.when_run_is_prepared(fault.run, lambda: _start(world, fault, 0.0))
    elif fault.run:
        world.trainings.when_run_starts(fault.run, partial(_start, world, fault))
    else:
        world.engine.after(max(0.0, fault.at_s), lambda: happen(world, fault))


def _start(world: Simulation, fault: Fault, expected_s: float) -> None:
    if fault.when == "at the end of":
        delay_s = expected_s + max(fault.at_s, 0.0)
    else:
        delay_s = fault.at_s if fault.at_s >= 0 else expected_s / 2
    world.engine.after(delay_s, lambda: happen(world, fault))


def happen(world: Simulation, fault: Fault) -> None:
    for pattern, does in EVENTS.items():
        if match := re.fullmatch(pattern, fault.event):
            world.happened.append((world.engine.now, fault))
            does(world, fault, list(match.groups()))
            return


# ---- nodes ----


def _node(world: Simulation, number: str) -> str:
    names = list(world.machines)
    return names[(int(number) - 1) % len(names)]


def _dies(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    _power_cycle(world, _node(world, numbers[0]), fault.for_s or BACK_S)


def _power_cycle(world: Simulation, node: str, for_s: float) -> None:
    if not world.machines[node].up:
        return
    world.jobs.power_off(node)
    world.server.lose_host(node)
    _lose_unsent(world, node)
    world.cluster.node_down(node)
    world.engine.after(for_s, lambda: _back(world, node))


def _lose_unsent(world: Simulation, node: str) -> None:
    """The host's kernel had buffered them, torn ends included."""
    for job in world.live():
        if job.batch_host == node and world.run_set is not None:
            path = world.run_set.layout.events(job.id)
            size = path.stat().st_size if path.exists() else 0
            if size:
                sent = size - world.engine.random.randrange(min(size, UNSENT_BYTES))
                world.engine.after(0.0, partial(cut, path, sent))


def _back(world: Simulation, node: str) -> None:
    world.jobs.power_on(node)
    world.cluster.node_up(node, rebooted=True)


def _batch_host_dies(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    for job in world.live():
        if job.nodes:
            _power_cycle(world, job.nodes[0], fault.for_s or BACK_S)


def _batch_host_dies_and_is_requeued(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    """Requeue as --requeue does, when the host registers anew. Once it is marked down, --no-kill
    keeps the job running without it."""
    for job in world.live():
        if job.nodes:
            job.amend(requeue=True)
            _power_cycle(world, job.nodes[0], fault.for_s or REBOOTED_S)


def _batch_host_cut_off(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    """Silence its slurmd: Slurm cannot end its processes."""
    for job in world.live():
        if job.nodes:
            node = job.nodes[0]
            world.cluster.node_down(node)
            world.engine.after(fault.for_s or BACK_S, partial(world.cluster.node_up, node))


def _job_given_up(*, frozen: bool) -> Happens:
    """Slurm cannot reach the batch host; `frozen`: nor does its loop run."""

    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        for job in world.live():
            if job.batch_host in job.nodes:
                node = job.batch_host
                world.cluster.node_down(node)
                halted = [
                    process
                    for process in world.engine.processes
                    if frozen and process.host == node and process.alive
                ]
                for process in halted:
                    process.stop()
                world.engine.after(
                    fault.for_s or GIVEN_UP_S, partial(_reached_again, world, node, halted)
                )
                _scancel(world, job, fault)

    return does


def _reached_again(world: Simulation, node: str, halted: Sequence[SimProcess]) -> None:
    for process in halted:
        process.resume()
    world.cluster.node_up(node)


def _set_down(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    """Take an answering node from its job."""
    node = _node(world, numbers[0])
    if world.machines[node].up:
        for agent in list(world.jobs.agents[node]):
            world.jobs.stall(agent)
        world.cluster.set_down(node)
        world.engine.after(fault.for_s or DOWN_S, partial(world.cluster.node_up, node))


def _agent_killed(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    for agent in list(world.jobs.agents[_node(world, numbers[0])]):
        agent.process.kill()
        world.jobs.stall(agent)


def _agent_stopped(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    for agent in world.jobs.agents[_node(world, numbers[0])]:
        agent.process.stop()
        world.engine.after(fault.for_s or 60.0, agent.process.resume)


def _container_lost(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    for agent in list(world.jobs.agents[_node(world, numbers[0])]):
        if agent.ready:
            agent.process.after(0.0, agent.lose_container)
            world.jobs.stall(agent)


def _slow(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    machine = world.machines[_node(world, numbers[0])]
    machine.slow_down(10.0)
    world.engine.after(fault.for_s or 1800.0, lambda: machine.slow_down(1.0))


def _plant(
    world: Simulation, fault: Fault, number: str, name: str, value: object, good: object
) -> None:
    machine = world.machines[_node(world, number)]
    machine.change(**{name: value})
    world.engine.after(fault.for_s or BACK_S, lambda: machine.change(**{name: good}))


def _refuses(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    _plant(world, fault, numbers[0], "refuses", "kernel.numa_balancing is 1, not 0", "")


def _broken_engine(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    _plant(
        world,
        fault,
        numbers[0],
        "broken_container",
        "Error response from daemon: no space left on device",
        "",
    )


def _starts_nothing(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    _plant(world, fault, numbers[0], "starts_nothing", True, False)


def _fails_check(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    _plant(
        world, fault, numbers[0], "failing", {"gpu_errors": "GPU 3 has 2 uncorrectable errors"}, {}
    )


def _other_image(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    from orchestrator.simulation.machine import NodeCondition

    _plant(world, fault, numbers[0], "image", "sha256:" + "7" * 64, NodeCondition.image)


def _tag_moves(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    from orchestrator.simulation.machine import NodeCondition

    for number in range(1, len(world.machines) + 1):
        _plant(world, fault, str(number), "image", "sha256:" + "6" * 64, NodeCondition.image)


def _content_changes(part: str) -> Happens:
    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        from orchestrator.simulation.machine import CONTENTS

        changed = {**CONTENTS, part: "d" * 16}
        _plant(world, fault, numbers[0], "contents", changed, dict(CONTENTS))

    return does


def _clock(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    machine = world.machines[_node(world, numbers[0])]
    machine.step_clock(NODE_AHEAD_MS)
    world.engine.after(fault.for_s or BACK_S, lambda: machine.step_clock(-NODE_AHEAD_MS))


def _clocks(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    """As a time server does."""

    def step(by_ms: int) -> None:
        for machine in world.machines.values():
            machine.step_clock(by_ms)

    step(-NODES_BACK_MS)
    world.engine.after(fault.for_s or BACK_S, lambda: step(NODES_BACK_MS))


def _storage_clock(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    world.server.step_clock(-SET_BACK_S)
    if fault.for_s:
        world.engine.after(fault.for_s, lambda: world.server.step_clock(SET_BACK_S))


def _floods(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    for agent in world.jobs.agents[_node(world, numbers[0])]:
        agent.flood()
    if fault.for_s:
        _plant(world, fault, numbers[0], "floods", True, False)


def _forges(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    """End the next node, if the loop believes it."""
    name = _node(world, numbers[0])
    machines = list(world.machines)
    other = machines[(machines.index(name) + 1) % len(machines)]
    for agent in world.jobs.agents[name]:
        agent.forge(other)
    if fault.for_s:
        _plant(world, fault, numbers[0], "forges", other, "")


# ---- the training ----

_LAST_WORDS = "RuntimeError: HIP error: an illegal memory access was encountered"


def _ends(code: int, text: str) -> Happens:
    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        for agent in list(world.jobs.agents[_node(world, numbers[0])]):
            if agent.run in world.jobs.runs() and agent.run is not None:
                world.jobs.stall(agent)
                run = agent.run
                agent.process.after(0.0, partial(run.crash, code, text))

    return does


def _hangs(*, deaf: bool) -> Happens:
    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        begun = {run.id for run in world.jobs.runs()}
        for agent in world.jobs.every_agent():
            if agent.run is not None and agent.run.id in begun:  # nodes follow at their start
                agent.run.hang(deaf=deaf)

    return does


# ---- the loop and Slurm ----


def _loop_killed(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    for job in world.live():
        if loop := world.jobs.loops.get(job.id):
            loop.process.kill()


def _loop_stopped(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    for job in world.live():
        if loop := world.jobs.loops.get(job.id):
            loop.process.stop()
            world.engine.after(fault.for_s or 60.0, loop.process.resume)


AtStep = Callable[["Simulation", "SimProcess", int, Fault], object]


def _loop(act: AtStep) -> Happens:
    """The number counts from now."""

    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        for job in world.live():
            if loop := world.jobs.loops.get(job.id):
                act(world, loop.process, loop.process.steps + int(numbers[0]), fault)

    return does


def _next_loop(act: AtStep) -> Happens:
    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        world.jobs.at_next_loop(lambda loop: act(world, loop.process, int(numbers[0]), fault))

    return does


def _killed(world: Simulation, process: SimProcess, step: int, fault: Fault) -> None:
    process.die_at(step)


def _stopped(world: Simulation, process: SimProcess, step: int, fault: Fault) -> None:
    process.stop_at(step, fault.for_s or STOPS_S)


def _without_storage(world: Simulation, process: SimProcess, step: int, fault: Fault) -> None:
    world.server.faults.once(process, step)


def _unanswered(world: Simulation, process: SimProcess, step: int, fault: Fault) -> None:
    world.server.faults.once(process, step, reply=True)


def _each_job(act: Callable[[Simulation, SimJob, Fault], object]) -> Happens:
    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        for job in world.live():
            act(world, job, fault)

    return does


def _scancel(world: Simulation, job: SimJob, fault: Fault) -> None:
    world.cluster.command(["scancel", job.id], {}, "/", host="login")


def _reservation_ends(world: Simulation, job: SimJob, fault: Fault) -> None:
    """As the time limit; then others have the nodes for `for_s`."""
    nodes = list(job.nodes)
    world.cluster.shorten(job, 0.0)
    if fault.for_s and nodes:
        world.cluster.occupy(nodes, fault.for_s)


def _user_signal(world: Simulation, job: SimJob, fault: Fault) -> None:
    world.jobs.signal(job, signal.SIGUSR1, batch_only=True)


def _storage(act: Callable[[Simulation, bool], object], default_s: float = 120.0) -> Happens:
    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        act(world, True)
        world.engine.after(fault.for_s or default_s, lambda: act(world, False))

    return does


LOST = 0.2
"""The chance that a reply is lost."""
AT_TIMES = 0.02
"""The chance of a failing call; closing a run takes about 80."""


def _storage_at_times(*processes: str) -> Happens:
    return _storage(
        lambda world, on: world.server.faults.at_times(processes, AT_TIMES if on else 0.0)
    )


def _cut(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    host = _node(world, numbers[0])
    world.server.faults.cut(host, on=True)
    world.engine.after(fault.for_s or 120.0, lambda: world.server.faults.cut(host, on=False))


LOOKS_S = 20.0
"""Between checks whether damage can happen: between jobs, while runs are missing."""


def _damaged(*, empty: bool) -> Happens:
    """Lose or empty a file that the next job can restore."""

    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        # A loop on a frozen host may come back, and finish the set.
        frozen = any(loop.ended_at == NEVER for loop in world.jobs.every_loop)
        if world.run_set is None or frozen or not world.idle():
            world.engine.after(LOOKS_S, lambda: does(world, fault, numbers))
            return
        if not world.missing():
            return
        root = world.run_set.layout.root
        patterns = (
            "set.json",
            "runs/*/state.json",
            "runs/*/attempt_*/state.json",
            "jobs/*.json",
            *(() if empty else ("runs/*/result_*",)),
        )
        files = sorted(path for pattern in patterns for path in root.glob(pattern))
        path = world.engine.random.choice(files) if files else None
        if files and world.engine.random.random() < 0.5:  # a crash takes the last writes
            path = max(files, key=lambda file: file.stat().st_mtime_ns)
        if path is not None and empty:
            cut(path, 0)
        elif path is not None:
            path.unlink()
            world.server.stamp(path.parent)

    return does


def _next_resume_killed(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    world.user.lose_next_resume(float(numbers[0]))


def _next_resume_given_twice(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    world.user.repeat_next_resume()


def _cancelled_twice(world: Simulation, fault: Fault, numbers: list[str]) -> None:
    world.cancel()
    world.cancel()


def _user(name: str, *, stops: bool = False) -> Happens:
    def does(world: Simulation, fault: Fault, numbers: list[str]) -> None:
        process = getattr(world, name)(
            dies_at=float(numbers[0]) if numbers and not stops else NEVER
        )
        if stops:
            process.stop_at(float(numbers[0]), fault.for_s or STOPS_S)

    return does


EVENTS: dict[str, Happens] = {
    r"node (\d+) dies": _dies,
    r"Slurm sets node (\d+) down": _set_down,
    r"the batch host dies": _batch_host_dies,
    r"the batch host dies and the job is requeued": _batch_host_dies_and_is_requeued,
    r"the batch host is cut off": _batch_host_cut_off,
    r"the batch host is cut off and the job is cancelled": _job_given_up(frozen=False),
    r"the batch host freezes and the job is cancelled": _job_given_up(frozen=True),
    r"the agent of node (\d+) is killed": _agent_killed,
    r"the agent of node (\d+) is stopped": _agent_stopped,
    r"the container of node (\d+) ends": _container_lost,
    r"node (\d+) is slow": _slow,
    r"node (\d+) refuses its settings": _refuses,
    r"containers do not start on node (\d+)": _broken_engine,
    r"tasks do not start on node (\d+)": _starts_nothing,
    r"node (\d+) fails a check": _fails_check,
    r"node (\d+) has another image": _other_image,
    r"the tag of the image moves": _tag_moves,
    r"a package changes on node (\d+)": _content_changes("packages"),
    r"the code changes on node (\d+)": _content_changes("code"),
    r"a tokenizer changes on node (\d+)": _content_changes("caches"),
    r"the clock of node (\d+) steps": _clock,
    r"the clocks of all nodes are set back": _clocks,
    r"node (\d+) sends too much": _floods,
    r"node (\d+) speaks for another node": _forges,
    r"the training crashes on node (\d+)": _ends(1, _LAST_WORDS),
    r"the training exits early on node (\d+)": _ends(0, "Training finished."),
    r"the training hangs": _hangs(deaf=False),
    r"the training hangs and ignores TERM": _hangs(deaf=True),
    r"the loop is killed": _loop_killed,
    r"the loop is stopped": _loop_stopped,
    r"the loop is killed in (\d+) steps": _loop(_killed),
    r"the loop is stopped in (\d+) steps": _loop(_stopped),
    r"the next loop is killed at its step (\d+)": _next_loop(_killed),
    r"the storage fails for the loop in (\d+) steps": _loop(_without_storage),
    r"the storage fails for the next loop at its step (\d+)": _next_loop(_without_storage),
    r"the storage loses a reply to the loop in (\d+) steps": _loop(_unanswered),
    r"the storage loses a reply to the next loop at its step (\d+)": _next_loop(_unanswered),
    r"the job is cancelled": _each_job(_scancel),
    r"the job is pre-empted": _each_job(
        lambda world, job, fault: world.cluster.preempt(job, fault.for_s or 30.0)
    ),
    r"the job is requeued": _each_job(lambda world, job, fault: world.cluster.requeue(job)),
    r"the job reaches its time limit": _each_job(
        lambda world, job, fault: world.cluster.shorten(job, 30.0)
    ),
    r"the reservation ends": _each_job(_reservation_ends),
    r"the job gets USR1": _each_job(_user_signal),
    r"Slurm does not answer": lambda world, fault, numbers: world.cluster.slurmctld_down(
        fault.for_s or 120.0
    ),
    r"Slurm loses (\d+) answers": lambda world, fault, numbers: world.cluster.lose_replies(
        int(numbers[0])
    ),
    r"Slurm gives (\d+) empty answers": lambda world, fault, numbers: world.cluster.empty_answers(
        int(numbers[0])
    ),
    r"Slurm forgets ended jobs": lambda world, fault, numbers: world.cluster.purge(),
    r"the storage is full": _storage(lambda world, on: world.server.faults.full(on)),
    r"the storage is over quota": _storage(lambda world, on: world.server.faults.quota(on)),
    r"the storage is read-only": _storage(lambda world, on: world.server.faults.read_only(on)),
    r"the storage is away": _storage(lambda world, on: world.server.faults.away(on, errno.EIO)),
    r"the storage is not mounted": _storage(
        lambda world, on: world.server.faults.away(on, errno.ENOENT)
    ),
    r"the storage hangs": _storage(lambda world, on: world.server.faults.away(on, hang=True)),
    r"the storage is slow": _storage(
        lambda world, on: world.server.faults.slow(0.2 if on else 0.0)
    ),
    r"the storage fails now and then for the loop": _storage_at_times("loop"),
    r"the storage fails now and then for commands": _storage_at_times("submit", "resume", "cancel"),
    r"the storage loses replies": _storage(
        lambda world, on: world.server.faults.lost_replies(LOST if on else 0.0)
    ),
    r"the storage has stale handles": lambda world, fault, numbers: (
        world.server.faults.stale_handles()
    ),
    r"the storage is cut off on node (\d+)": _cut,
    r"the clock of the storage is set back": _storage_clock,
    r"a file of the set is lost": _damaged(empty=False),
    r"a file of the set is emptied": _damaged(empty=True),
    r"the set is submitted twice": _user("submit"),
    r"the set is resumed": _user("resume"),
    r"the set is cancelled": _user("cancel"),
    r"the set is cancelled twice": _cancelled_twice,
    r"the next resume is given twice": _next_resume_given_twice,
    r"a resume is killed at its step (\d+)": _user("resume"),
    r"the next resume is killed at its step (\d+)": _next_resume_killed,
    r"a cancel is killed at its step (\d+)": _user("cancel"),
    r"a resume is stopped at its step (\d+)": _user("resume", stops=True),
    r"a cancel is stopped at its step (\d+)": _user("cancel", stops=True),
}
