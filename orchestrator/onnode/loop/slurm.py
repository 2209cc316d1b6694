"""Slurm for the loop: allocation, srun's output, the job's end.

No other module of loop/ or policy/ names Slurm's programs, variables or messages, except in
messages for people.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ..kernel.events import MAX_WORD_BYTES, number
from ..kernel.jobs import (
    ENDED_STATES,
    JOB_ID,
    JOB_NODELIST,
    NNODES,
    NODEID,
    NODENAME,
    UNKNOWN_JOB,
    comment,
)
from ..kernel.node_names import fold
from ..kernel.plural import count
from ..kernel.settings import Settings
from ..kernel.world import World
from ..policy.job_state import PREEMPTED, TIME_LIMIT, JobEnd
from ..set.ledger import MARK
from .allocation import JobAllocation, LocalAllocation, OtherCopy

ANSWER_S = 4.0
"""Limit for scontrol before a kill."""
MOST_HELD = 100
"""Lines kept of a task whose node is unknown."""
_NOT_FOR_STEPS = (
    "SLURM_UMASK",  # srun prefers the submission's umask to its own
    "SLURM_CPU_BIND",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_EXPORT_ENV",
    "SLURM_DISTRIBUTION",
    "SLURM_HOSTFILE",
    "SLURM_LABELIO",
    "SLURM_UNBUFFEREDIO",
    "ORCH_NODE",  # differs per node
)
"""Variables of the batch script that must not shape its steps."""
_FORGOTTEN = "FORGOTTEN"
"""Unknown to Slurm, which forgets jobs minutes after their end (MinJobAge)."""
_FAILURES = ("NodeDown", "JobLaunchFailure")
"""Reasons of a job whose batch host failed."""
_FIELDS = re.compile(r"\b(JobState|Reason|PreemptTime)=(\S{1,60})")
_RECORDS = re.compile(r"(?m)^(?=JobId=)")
_PRESENT_NODES = re.compile(r"\bJobState=RUNNING .*?\bNodeList=([\w.,\[\]-]+)")
"""Of a running job: a completing job shows the nodes where it still ends."""
_NO_PYTHON = re.compile(
    r"slurmstepd(?:-([\w.-]+))?: error: execve\(\): (.*)|orchestrator: \S+ on ([\w.-]+) is Python"
)
_OTHER_PYTHON = "name another interpreter (`python:` in the site file, PYTHON=... for this bundle)"
_HARMLESS = "srun: cluster configuration lacks support for cpu binding"
_TASKS_ENDED = re.compile(rb"srun: error: ([\w.,\[\]-]+): tasks? ([\d,-]+): ")
# Without `Node failure on n1`: its slurmd is silent, but the run may be well. Dead nodes do not
# answer pings.
_ENDED = re.compile(r"on node ([\w.-]+)|(?:^|[^\w.\[\],-])([\w.,\[\]-]+): tasks? ")


# ---- the nodes of the job ----


def job_nodes(
    kind: str, settings: Settings, world: World, environment: dict[str, str]
) -> JobAllocation:
    """`kind`: slurm or local. Raises LookupError for too few nodes, OtherCopy if the batch script's
    copy on another node is to work."""
    at_once = settings.side_by_side
    wanted = settings.nnodes * at_once
    alone = wanted == 1 or (settings.engine == "none" and at_once == 1)
    if kind == "local" and not alone and environment.get("ALLOW_MANY_ON_ONE_HOST") != "1":
        more = f", and {at_once} runs are side by side" if at_once > 1 else ""
        hint = "(ALLOW_MANY_ON_ONE_HOST=1 puts them all on this host, for rehearsals)"
        size = f"{count(settings.nnodes, 'node')}{more}"
        raise LookupError(f"{settings.system} has {size}; use sbatch job.sh {hint}")
    nodes: JobAllocation
    if kind == "slurm":
        nodes = SlurmAllocation(environment, world)
        if first := first_copy(environment, nodes.allocated):
            raise OtherCopy(nodes.job_id, first)
    else:
        nodes = _host_nodes(environment, wanted + settings.spares if wanted > 1 else 1, world)
    allocated = len(nodes.allocated)
    if allocated < settings.nnodes:
        need = f"needs {count(settings.nnodes, 'node')}, the allocation has {allocated}"
        raise LookupError(f"{settings.system} {need} (--nodes of job.sh)")
    return nodes


def allocation_or_host(environment: dict[str, str], count: int, world: World) -> JobAllocation:
    """Return the surrounding allocation, or `count` nodes on this host."""
    if environment.get(JOB_ID):
        return SlurmAllocation(environment, world)
    return _host_nodes(environment, count, world)


def _host_nodes(environment: dict[str, str], count: int, world: World) -> LocalAllocation:
    """Remove a surrounding allocation's variables: runs get their own."""
    for name in (NODEID, NNODES, JOB_ID, NODENAME):
        environment.pop(name, None)
    return LocalAllocation(environment, count, world)


class SlurmAllocation(JobAllocation):
    name = "slurm"
    spans_hosts = True

    def __init__(self, environment: dict[str, str], world: World) -> None:
        """Raises LookupError outside of an allocation."""
        self.world = world
        if not environment.get(JOB_ID):
            raise LookupError(
                "this is not inside a Slurm allocation; "
                "use: sbatch job.sh (or run_with_docker.sh on one node)"
            )
        self.job_id = environment[JOB_ID]
        self.cluster = environment.get("SLURM_CLUSTER_NAME", "")
        self.restart = number(environment.get("SLURM_RESTART_COUNT", ""), 6) or 0
        node_list = environment.get(JOB_NODELIST, "")
        status, names = world.ask(["scontrol", "show", "hostnames", node_list], 60)
        if status < 0 or status == 127:
            raise LookupError(f"scontrol show hostnames: {names or 'no answer within 60 s'}")
        self.allocated = names.split()
        self._here = environment.get(NODENAME, "")
        self._removed: set[str] = set()
        for name in _NOT_FOR_STEPS:
            environment.pop(name, None)
        if environment.get("SLURM_CPUS_PER_TASK"):
            environment["SRUN_CPUS_PER_TASK"] = environment["SLURM_CPUS_PER_TASK"]

    def in_step(self, nodes: Sequence[str]) -> list[str]:
        """Sort like the allocation, the tasks' order at most sites (see Senders)."""
        wanted = frozenset(nodes)
        return [node for node in self.allocated if node in wanted]

    def commands(
        self, nodes: Sequence[str], argv: Sequence[str]
    ) -> list[tuple[list[str], dict[str, str]]]:
        """Return one srun that starts `argv` on each of `nodes`; a lost node ends no other.

        srun labels lines with their task (see Senders). Nodes cannot sign lines: they share
        environment and input, hence have no secrets.
        """
        count = len(nodes)
        srun = ["srun", "--overlap", "--export=ALL", "--mpi=none", "--cpu-bind=none", "--quiet"]
        srun += ["--kill-on-bad-exit=0", "--no-kill", "--wait=0", "--label"]
        srun += [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1"]
        srun.append(f"--nodelist={','.join(nodes)}")
        return [([*srun, *argv], {})]

    def lost(self, nodes: Sequence[str]) -> dict[str, str] | None:
        """A node set down leaves the job (--no-kill) for good, even if it is soon idle."""
        argv = ["sinfo", "--all", "--noheader", "--Node", f"--nodes={','.join(nodes)}"]
        argv.append("--format=%N %T")
        status, text = self.world.ask(argv, 20)
        rows = (line.split() for line in text.splitlines())
        states = {row[0]: row[1] for row in rows if len(row) == 2 and row[0] in nodes}
        if status != 0 or not states:
            return None
        bad = ("down", "fail", "unknown", "power")
        lost = {
            node: state
            for node, state in states.items()
            if state.startswith(bad) or state.endswith("*")
        }
        present = self._present_nodes()
        self._removed |= {node for node in nodes if present and node not in present}
        return dict.fromkeys(self._removed.intersection(nodes), "removed from the job") | lost

    def _present_nodes(self) -> list[str]:
        """The running job's nodes; [] if unknown."""
        argv = ["scontrol", "--oneliner", "show", "job", self.job_id]
        status, text = self.world.ask(argv, 20)
        match = _PRESENT_NODES.search(self._own(text)) if status == 0 else None
        return self.names(match[1]) if match else []

    def _own(self, shown: str) -> str:
        """A job array's id names all its tasks."""
        start = f"JobId={self.job_id} "
        records = [text for text in _RECORDS.split(shown) if text.startswith(start)]
        return records[0] if records else shown

    def is_here(self, node: str) -> bool:
        return node == self._here

    def seconds_left(self) -> float | None:
        argv = ["squeue", "--noheader", f"--jobs={self.job_id}", "--format=%L"]
        status, text = self.world.ask(argv, 20)
        if status != 0:
            return None
        parts = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text.strip())
        if parts is None:  # UNLIMITED, INVALID
            return None
        days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        return float(86400 * days + 3600 * hours + 60 * minutes + seconds)

    def job_end(self) -> JobEnd | None:
        argv = ["scontrol", "--oneliner", "show", "job", self.job_id]
        status, text = self.world.ask(argv, ANSWER_S, errors=True)
        end = job_end(self._own(text) if status >= 0 else "")
        # A Slurm in trouble may answer with nothing, and exit code 0.
        return end if end.text or (status == 0 and text.strip()) else None

    def keep_mark(self, word: str, *, urgent: bool) -> None:
        """Put a word into the job's comment, next to the site's and the user's."""
        limit_s = ANSWER_S if urgent else 20
        status, text = self.world.ask(["scontrol", "show", "job", self.job_id], limit_s)
        if status != 0:
            return
        kept = [entry for entry in comment(text).split() if not entry.startswith(MARK)]
        joined = " ".join([*kept, word])
        update = ["scontrol", "update", f"JobId={self.job_id}", f"Comment={joined}"]
        self.world.ask(update, limit_s)

    def names(self, text: str) -> list[str]:
        """Expand `n1,m2` or `n[1-3,5]`; [] if Slurm refuses."""
        if "[" not in text:
            return text.split(",")
        status, names = self.world.ask(["scontrol", "show", "hostnames", text], 20)
        return names.split() if status == 0 else []

    def master(self, ranks: Sequence[str]) -> str:
        """A single node's name may resolve nowhere."""
        return ranks[0] if len(ranks) > 1 else "127.0.0.1"


def first_copy(environment: Mapping[str, str], allocated: Sequence[str]) -> str:
    """Return the node whose copy of the batch script is to work; "" if this node's, or unknown.

    Slurm starts the script on the first node, ROCm/spur on every node, with the same job id. In a
    step of one node SLURM_NODEID is 0, whatever the node's name.
    """
    first = allocated[0] if allocated else "node 0"
    given = environment.get(NODEID, "")
    if given:
        return first if number(given, 6) else ""
    here = environment.get(NODENAME, "")
    return first if here in allocated[1:] else ""


# ---- the end of the job ----


def job_end(shown: str) -> JobEnd:
    """Parse `scontrol show job`, or the text of an earlier JobEnd."""
    if UNKNOWN_JOB in shown:
        shown = f"JobState={_FORGOTTEN}"
    fields = dict(_FIELDS.findall(shown))
    text = " ".join(f"{name}={value}" for name, value in fields.items())
    state = fields.get("JobState", "")
    # A pre-empted job is RUNNING in its grace time, then COMPLETING.
    is_preempted = fields.get("PreemptTime", "None") not in ("None", "N/A", "Unknown")
    is_ended = is_preempted or state in (*ENDED_STATES, "COMPLETING", _FORGOTTEN)
    reason = fields.get("Reason", "")
    cause = None
    if state == "TIMEOUT" or reason == "TimeLimit":
        cause = TIME_LIMIT
    elif is_preempted or state == "PREEMPTED":
        cause = PREEMPTED
    elif state == _FORGOTTEN:
        cause = "failed", "the scheduler has ended the job and no longer knows why"
    elif state in ENDED_STATES and state != "CANCELLED":
        cause = "failed", f"the scheduler has ended the job ({state})"
    elif state == "COMPLETING" and reason in _FAILURES:  # its batch host, and no user's signal
        cause = "failed", f"the scheduler has ended the job ({reason})"
    return JobEnd(text, is_ended, cause)


# ---- srun's standard error ----


class StepMessage(NamedTuple):
    """A step's line about ended processes."""

    ended: Mapping[str, str]
    """Node -> reason."""
    is_cause: bool = False
    """The line has the cause of an end, whose consequence may come first."""
    cancels: bool = False
    """srun ends all other processes, and names their nodes."""
    is_harmless: bool = False
    """The line explains no end."""


def step_message(sender: str, text: str, names: Callable[[str], list[str]]) -> StepMessage:
    """Parse a line of srun (`sender` "") or of a node, which can only report about itself. `names`
    expands `n[1-3]`."""
    if not sender and text.startswith(_HARMLESS):
        return StepMessage({}, is_harmless=True)
    cancels = not sender and "launch failed" in text
    match = _NO_PYTHON.match(text)
    if match is not None:
        slurmd, program, host = match.groups()
        reason = text
        if not host:
            hint = f"install python3 (3.9 or newer) there, or {_OTHER_PYTHON}"
            reason = f"cannot start {program}; {hint}"
        node = sender or slurmd or (host or "").partition(".")[0]
        return StepMessage({node: reason}, is_cause=True, cancels=cancels)
    nodes: list[str] = []
    for node, several in _ENDED.findall(text):
        if not sender:
            nodes += names(node or several)
        elif node == sender:
            nodes.append(node)
    return StepMessage(dict.fromkeys(nodes, f"its step ended: {text}"), cancels=cancels)


# ---- srun's labels ----


Take = Callable[[str, bytes], object]
"""Takes a line and its node, "" if unknown."""


def labelled(line: bytes, nodes: Sequence[str]) -> tuple[str, bytes]:
    """Split a line into the node at its label's place and its text; "" without a label.

    srun writes `TASK: ` before each line, padded with blanks, also after an unfinished line. No
    process of a node can change that.
    """
    label, colon, rest = line.partition(b": ")
    task = label.lstrip(b" ")
    if colon and task.isdigit() and len(task) < 8 and int(task) < len(nodes):
        return nodes[int(task)], rest
    return "", line


def has_labels(command: Sequence[str]) -> bool:
    """Return whether output has labels. Errors are then also the step's."""
    return command[0] == "srun"


class Senders:
    """Passes on the lines of a step, each with its node; srun's own come from "".

    `nodes` are sorted by name, but tasks may have the order of slurm.conf. So a task's place in
    `nodes` is a guess until the task names that node, tasks name each other's nodes, all others are
    known, or srun reports the task's end. Until then its lines are held back. A task that later
    names another node forges.
    """

    def __init__(self, nodes: Sequence[str], take: Take, complain: Take = lambda *_: None) -> None:
        """`take` gets the output, `complain` the standard error."""
        self._nodes, self._take, self._complain = tuple(nodes), take, complain
        self._confirmed: dict[str, str] = {}
        """Place -> node. A place is named after the node expected there."""
        self._claims: dict[str, str] = {}
        """Place -> the first node named by its task, unconfirmed."""
        self._held: dict[str, list[tuple[Take, bytes]]] = {}
        self._confirm(self._clear_claims())

    def receive_output(self, line: bytes) -> None:
        place, text = labelled(line, self._nodes)
        # Some schedulers' srun labels no lines of a single node.
        self.receive(place or (self._nodes[0] if len(self._nodes) == 1 else ""), text)

    def receive(self, place: str, line: bytes) -> None:
        """Pass on output, or hold it until its task's node is clear."""
        self._pass(self._take, place, line)
        if place and place not in self._confirmed:
            named = named_node(line)
            if named == place and named not in self._confirmed.values():
                self._confirm({place: place})
            elif named in self._nodes and place not in self._claims:
                self._claims[place] = named
                self._confirm(self._clear_claims())

    def receive_error(self, line: bytes) -> None:
        place, text = labelled(line, self._nodes)
        self._pass(self._complain, place, text)
        if not place and (ended := _TASKS_ENDED.match(text)):
            self._confirm(self._expected(ended[1].decode(), ended[2].decode()))

    def end(self) -> None:
        """Pass on the rest after the step's end: complaints, and lines of tasks that alone name
        their node."""
        claims = self._sole_claims()
        for place, held in self._held.items():
            for take, line in held:
                if place in claims or take is self._complain:
                    take(claims.get(place, place), line)
        self._held = {}

    def _pass(self, take: Take, place: str, line: bytes) -> None:
        if not place or place in self._confirmed:
            take(self._confirmed.get(place, ""), line)
        elif len(held := self._held.setdefault(place, [])) < MOST_HELD:
            held.append((take, line[: MAX_WORD_BYTES + 1]))

    def _sole_claims(self) -> dict[str, str]:
        """Claims of unknown nodes, each by a single task."""
        claimed = Counter([*self._claims.values(), *self._confirmed.values()])
        return {place: node for place, node in self._claims.items() if claimed[node] == 1}

    def _clear_claims(self) -> dict[str, str]:
        """Clear places: the last, and those of tasks that name each other's nodes."""
        places = set(self._nodes).difference(self._confirmed)
        if len(places) == 1:
            nodes = set(self._nodes).difference(self._confirmed.values())
            return {places.pop(): nodes.pop()}
        claims = self._sole_claims()
        while any(node not in claims for node in claims.values()):
            claims = {place: node for place, node in claims.items() if node in claims}
        return claims

    def _expected(self, names: str, tasks: str) -> dict[str, str]:
        """Places of tasks that srun has ended, if their nodes are as expected."""
        places = list[str]()
        for part in tasks.split(","):
            first, _, last = part.partition("-")
            ends = number(first, 7), number(last or first, 7)
            if ends[0] is not None and ends[1] is not None:
                places += self._nodes[ends[0] : ends[1] + 1]
        unknown = {place: place for place in places if place not in self._confirmed}
        if len(places) == 1 and names in self._nodes:
            unknown = dict.fromkeys(unknown, names)
        elif fold(places) != names:
            return {}
        return {} if set(unknown.values()) & set(self._confirmed.values()) else unknown

    def _confirm(self, places: Mapping[str, str]) -> None:
        while places:
            self._confirmed.update(places)
            for place in places:
                self._claims.pop(place, None)
                for take, line in self._held.pop(place, []):
                    take(self._confirmed[place], line)
            places = self._clear_claims()


def named_node(line: bytes) -> str:
    """ "" if the line is no message."""
    cells = line.split(b"\t", 2) if len(line) <= MAX_WORD_BYTES else []
    return cells[1].decode("utf-8", "replace") if len(cells) == 3 else ""
