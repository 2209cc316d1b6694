"""Slurm's commands on a simulated cluster: what they accept, do and print, as those of Slurm 22.05."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.nodes.names import expand, expand_all, fold
from orchestrator.scheduler.slurm_nodes import minutes_of
from orchestrator.simulation import slurm_words as words
from orchestrator.simulation.slurm_controller import Controller
from orchestrator.simulation.slurm_job import ON_NODES, SimJob

Options = dict[str, str]
Read = Callable[[str, Path], str]
"""Return the text of a file as a host sees it."""

UNANSWERED_S = 95.0
"""How long scancel repeats a signal to a job that is about to start (MAX_CANCEL_RETRY of scancel.c)."""


class Unsupported(AssertionError):
    """Slurm's commands can do this, and the simulated ones cannot."""


@dataclass(frozen=True)
class Call:
    """A command as it is called."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    host: str
    uid: int
    read: Read

    @property
    def program(self) -> str:
        return Path(self.argv[0]).name

    @property
    def operands(self) -> list[str]:
        return [word for word in self.argv[1:] if not word.startswith("-")]

    @property
    def attempts(self) -> int:
        """How often it asks slurmctld before it gives up."""
        of_jobs = self.operands[:2] == ["show", "job"] or any(word.startswith("--signal") for word in self.argv)
        return 2 if self.program == "squeue" or of_jobs else 1

    @property
    def user(self) -> str:
        return "root" if self.uid == 0 else f"user{self.uid}"

    def may_change(self, job: SimJob) -> bool:
        return self.uid in (0, job.uid)


@dataclass(frozen=True)
class Reply:
    """What a command answers, after `delay_s`; engine.NEVER: not at all, so that the caller's limit ends it."""

    status: int
    out: str = ""
    err: str = ""
    delay_s: float = 0.05


class Refused(Exception):
    """The command ends with this reply."""

    def __init__(self, status: int, err: str, out: str = "", delay_s: float = 0.05) -> None:
        super().__init__(err)
        self.reply = Reply(status, out, err, delay_s)


# ---- options ----

SBATCH = {
    "account": 1, "begin": 1, "chdir": 1, "comment": 1, "constraint": 1, "cpus-per-task": 1, "dependency": 1,
    "exclude": 1, "exclusive": 0, "export": 1, "gpus-per-node": 1, "gres": 1, "hold": 0, "job-name": 1, "mem": 1,
    "no-kill": 0, "no-requeue": 0, "nodelist": 1, "nodes": 1, "ntasks": 1, "ntasks-per-node": 1, "open-mode": 1,
    "output": 1, "parsable": 0, "partition": 1, "qos": 1, "requeue": 0, "reservation": 1, "signal": 1,
    "test-only": 0, "time": 1,
}  # fmt: skip
"""Options and whether they have a value."""
SQUEUE = {"all": 0, "format": 1, "jobs": 1, "me": 0, "name": 1, "noheader": 0, "states": 1, "user": 1}
SINFO = {"Node": 0, "all": 0, "format": 1, "noheader": 0, "nodes": 1, "partition": 1}
SCANCEL = {"batch": 0, "full": 0, "signal": 1}
SCONTROL = {"all": 0, "oneliner": 0}


def parsed(
    program: str, args: Sequence[str], known: Mapping[str, int], *, mixed: bool = True
) -> tuple[Options, list[str]]:
    """Return options and operands; with `mixed` options may stand behind these. Raises Refused."""
    options, operands, rest = Options(), list[str](), list(args)
    while rest and (mixed or not operands):
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            operands.append(word)
        elif not word.startswith("--"):
            raise Unsupported(f"{program} {word}: a short option")
        elif name not in known:
            raise _unrecognized(program, f"unrecognized option '--{name}'")
        elif known[name] and not equals and not rest:
            raise _unrecognized(program, f"option '{word}' requires an argument")
        else:
            options[name] = rest.pop(0) if known[name] and not equals else value
    return options, operands + rest


def _unrecognized(program: str, problem: str) -> Refused:
    status = 255 if program == "sbatch" else 1
    return Refused(status, f'{program}: {problem}\nTry "{program} --help" for more information\n')


def listed(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


# ---- sbatch ----


def sbatch(cluster: Controller, call: Call) -> Reply:
    options, operands = parsed("sbatch", call.argv[1:], SBATCH, mixed=False)
    if not operands:
        raise Unsupported("sbatch reads no script from its standard input here")
    script = Path(call.cwd, operands[0])
    try:
        text = call.read(call.host, script)
    except OSError:
        raise Refused(1, f"sbatch: error: Unable to open file {operands[0]}\n") from None
    given, _ = parsed("sbatch", script_options(text), SBATCH)
    for name in ("requeue", "no-requeue"):
        if name in options:
            given = {key: value for key, value in given.items() if not key.endswith("requeue")}
    job = wanted_job(cluster, call, given | options)
    job.script, job.text, job.argv = script, text, (str(script), *operands[1:])
    if not set(job.nodelist) | set(job.exclude) <= set(cluster.nodes):
        raise Refused(1, "sbatch: error: Batch job submission failed: Invalid node name specified\n")
    if not _available(cluster, job):
        cluster.reject(job)
        raise Refused(1, "sbatch: error: Batch job submission failed: Requested node configuration is not available\n")
    if "test-only" in options:
        return _tested(cluster, job)
    cluster.submit(job)
    return Reply(0, f"{job.id}\n" if "parsable" in options else f"Submitted batch job {job.id}\n")


def script_options(text: str) -> list[str]:
    """Return the words of the #SBATCH lines above the first command."""
    found: list[str] = []
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            found += shlex.split(line.removeprefix("#SBATCH"), comments=True)
        elif line.strip() and not line.startswith("#"):
            break
    return found


def wanted_job(cluster: Controller, call: Call, options: Options) -> SimJob:
    """Return the job that is asked for. Raises Refused."""
    _refuse_unknown_names(cluster, options)
    job_id, workdir = str(cluster.next_id), str(Path(call.cwd, options.get("chdir", "")))
    kinds, any_of = _dependency(options.get("dependency", ""))
    job = SimJob(job_id, options.get("job-name", ""), user=call.user, uid=call.uid, host=call.host)
    job.env, job.workdir, job.submit_dir = _exported(call, options.get("export", "ALL")), workdir, call.cwd
    job.output = str(Path(workdir, _expanded(options.get("output", "slurm-%j.out"), job)))
    job.append = options.get("open-mode", "") in ("a", "append")
    job.partition, job.nodes_wanted = cluster.partition, _count(options.get("nodes", "1"))
    job.time_limit_s = _limit(options["time"]) if "time" in options else cluster.default_time_s
    job.exclude, job.nodelist = _nodes(options.get("exclude", "")), _nodes(options.get("nodelist", ""))
    job.nodes_wanted = max(job.nodes_wanted, len(job.nodelist))
    job.dependency, job.any_dependency = kinds, any_of
    job.begin_ms = _begin(options.get("begin", ""), cluster.engine.wall_ms)
    job.no_kill = "no-kill" in options
    job.requeue = "no-requeue" not in options
    job.warning = _warning(options["signal"]) if "signal" in options else None
    job.held = "JobHeldUser" if "hold" in options else ""
    return job


def _refuse_unknown_names(cluster: Controller, options: Options) -> None:
    partition = options.get("partition", cluster.partition)
    if cluster.partition not in listed(partition):
        raise Refused(
            1,
            f"sbatch: error: invalid partition specified: {partition}\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        )
    for name, problem in {
        "reservation": "Requested reservation is invalid",
        "constraint": "Invalid feature specification",
    }.items():
        if name in options:
            raise Refused(1, f"sbatch: error: Batch job submission failed: {problem}\n")


def _available(cluster: Controller, job: SimJob) -> bool:
    """Whether the cluster could ever start the job. One for more nodes than there are waits all the same."""
    usable = cluster.usable(job)
    enough = job.nodes_wanted <= len(usable) or job.nodes_wanted > len(cluster.nodes)
    return enough and set(job.nodelist) <= set(usable)


def _tested(cluster: Controller, job: SimJob) -> Reply:
    names = fold([*job.nodelist, *(n for n in cluster.usable(job) if n not in job.nodelist)][: job.nodes_wanted])
    when = words.moment(max(job.begin_ms, cluster.engine.wall_ms), {}, "")
    cores = f"using {16 * job.nodes_wanted} processors on nodes {names} in partition {job.partition}"
    return Reply(0, "", f"sbatch: Job {job.id} to start at {when} {cores}\n")


def _exported(call: Call, export: str) -> dict[str, str]:
    """Return the environment of the submission as --export wants it: ALL, NONE, NAME and NAME=VALUE."""
    chosen = listed(export)
    env = dict(call.env) if "ALL" in chosen else {"SLURM_GET_USER_ENV": "1"} if chosen == ["NONE"] else {}
    for name, equals, value in (word.partition("=") for word in chosen if word not in ("ALL", "NONE")):
        if equals or name in call.env:
            env[name] = value if equals else call.env[name]
    return env


def _expanded(output: str, job: SimJob) -> str:
    signs = {"%": "%", "j": job.id, "x": job.name, "u": job.user}
    return re.sub("%(.)", lambda match: signs.get(match[1], match[0]), output)


def _count(text: str) -> int:
    if not re.fullmatch("[0-9]+", text):
        raise Refused(255, f'sbatch: error: "{text}" is not a valid node count\n')
    return int(text)


def _limit(text: str) -> float | None:
    try:
        minutes = minutes_of(text)
    except ValueError:
        raise Refused(255, "sbatch: error: Invalid --time specification\n") from None
    return 60.0 * minutes if minutes else None


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand_all([text]))
    except UsageError:
        raise Refused(1, "sbatch: error: Batch job submission failed: Invalid node name specified\n") from None


def _dependency(text: str) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return pairs of kind and job, and whether one of them is enough."""
    found: list[tuple[str, str]] = []
    for word in re.split("[,?]", text) if text else ():
        kind, *jobs = word.split(":")
        known = (kind in ("after", "afterany", "afterok", "afternotok") and jobs) or word == "singleton"
        if not known or not all(job.isdecimal() for job in jobs):
            raise Refused(1, "sbatch: error: Batch job submission failed: Job dependency problem\n")
        found += [(kind, job) for job in jobs] or [(kind, "")]
    return tuple(found), "?" in text


def _begin(text: str, now_ms: int) -> int:
    """Return the time of --begin: `now+2hours`, `2030-01-31T08:00`, `22:00` (of the cluster's time, UTC)."""
    if not text or text == "now":
        return 0
    units = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
    if (later := re.fullmatch(r"now\+([0-9]+)([a-z]*?)s?", text)) and later[2] in units:
        return now_ms + 1000 * int(later[1]) * units[later[2]]
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    try:
        if re.fullmatch("[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
            moment = datetime.fromisoformat(f"{now:%Y-%m-%d}T{text.zfill(5)}")
        else:
            moment = datetime.fromisoformat(text)
    except ValueError:
        err = f"Invalid time specification (pos=0): {text}\nsbatch: error: Invalid --begin specification\n"
        raise Refused(255, err) from None
    ms = int(moment.replace(tzinfo=UTC).timestamp() * 1000)
    return ms if ms > now_ms or "-" in text else ms + 86_400_000


def _warning(text: str) -> tuple[bool, int, float]:
    match = re.fullmatch("(?:([BR]+):)?([A-Z0-9]+)(?:@([0-9]{1,5}))?", text)
    number = signal_number(match[2]) if match else 0
    if match is None or not number:
        raise Refused(255, "sbatch: error: Invalid --signal specification\n")
    return "B" in (match[1] or ""), number, float(match[3] or 60)


def signal_number(text: str) -> int:
    """Return the number of `USR1`, `SIGUSR1` or `10`; 0 if it is none."""
    if text.isdecimal():
        return int(text)
    return int(getattr(signal, f"SIG{text.removeprefix('SIG')}", 0))


# ---- squeue ----


def squeue(cluster: Controller, call: Call) -> Reply:
    options, _ = parsed("squeue", call.argv[1:], SQUEUE)
    form = options.get("format", words.QUEUE_FORMAT)
    if wrong := words.unknown_cells(form, words.QUEUE_CELLS):
        raise Unsupported(f"squeue --format: %{wrong[0]}")
    states, names = _states(options), listed(options.get("name", ""))
    users = [call.user] if "me" in options else listed(options.get("user", ""))
    jobs = [job for job in _asked_for(cluster, options) if _matches(job, states, names, users)]
    lines = [words.queue_line(job, form, cluster, call.env) for job in sorted(jobs, key=words.queue_order)]
    if "noheader" not in options:
        lines.insert(0, words.row(form, {letter: head for letter, (head, _) in words.QUEUE_CELLS.items()}))
    return Reply(0, "".join(f"{line}\n" for line in lines))


def _asked_for(cluster: Controller, options: Options) -> list[SimJob]:
    if "jobs" not in options:
        return list(cluster.jobs.values())
    wanted = listed(options["jobs"])
    for job_id in wanted:
        if not job_id.isdecimal():
            raise Refused(1, f"squeue: error: Invalid job id: {job_id}\n")
    if len(wanted) == 1 and wanted[0] not in cluster.jobs:  # several are picked from all jobs, without an error
        raise Refused(1, "slurm_load_jobs error: Invalid job id specified\n")
    return [cluster.jobs[job_id] for job_id in wanted if job_id in cluster.jobs]


def _states(options: Options) -> list[str]:
    states = [state.upper() for state in listed(options.get("states", ""))]
    for state in states:
        if state not in (*words.CODES, *words.CODES.values(), "ALL"):
            valid = f"squeue: error: Valid job states include: {','.join(words.CODES)}\n"
            raise Refused(1, f"squeue: error: Invalid job state specified: {state.lower()}\n{valid}\n")
    return states


def _matches(job: SimJob, states: Sequence[str], names: Sequence[str], users: Sequence[str]) -> bool:
    if not states:
        fits = job.alive or bool(job.completing)
    else:
        fits = "ALL" in states or job.shown in states or words.CODES[job.shown] in states
    return fits and (not users or job.user in users) and (not names or job.name in names)


# ---- scontrol ----


def scontrol(cluster: Controller, call: Call) -> Reply:
    options, operands = parsed("scontrol", call.argv[1:], SCONTROL)
    keyword, *rest = operands or [""]
    if keyword == "show":
        return _show(cluster, call, options, rest)
    action = {"requeue": _requeue, "hold": _hold, "release": _release, "suspend": _suspend, "resume": _resume}.get(
        keyword
    )
    if action is None:
        if keyword in ("update", "create", "delete", "ping", "reconfigure", "top", "wait", "write", "listpids"):
            raise Unsupported(f"scontrol {keyword}")
        raise Refused(1, f"invalid keyword: {keyword}\n")
    if not rest:
        raise Refused(1, f"too few arguments for keyword:{keyword}\n")
    for job_id in listed(rest[0]):
        _act(cluster, call, keyword, job_id, action)
    return Reply(0)


def _act(
    cluster: Controller, call: Call, keyword: str, job_id: str, action: Callable[[Controller, SimJob, Call], str]
) -> None:
    job = cluster.jobs.get(job_id)
    denied = "" if job is None or call.may_change(job) else "Access/permission denied"
    problem = denied or (action(cluster, job, call) if job else "Invalid job id specified")
    if problem:
        again = f"slurm_suspend error: {problem}\n" if keyword in ("hold", "release") else ""
        raise Refused(1, f"{problem} for job {job_id}\n{again}")


def _requeue(cluster: Controller, job: SimJob, call: Call) -> str:
    if not job.requeue:
        return "Requested operation is presently disabled"
    if job.state == "PENDING":
        return "Job is pending execution"
    cluster.requeue(job)
    return ""


def _hold(cluster: Controller, job: SimJob, call: Call) -> str:
    return cluster.hold(job, "JobHeldUser" if call.uid else "JobHeldAdmin")


def _release(cluster: Controller, job: SimJob, call: Call) -> str:
    return cluster.unhold(job)


def _suspend(cluster: Controller, job: SimJob, call: Call) -> str:
    if call.uid:
        return "Access/permission denied"
    return "" if cluster.suspend(job) else "Job is pending execution" if job.alive else "Job has already finished"


def _resume(cluster: Controller, job: SimJob, call: Call) -> str:
    if call.uid:
        return "Access/permission denied"
    return "" if cluster.unsuspend(job) else "Job is not suspended"


def _show(cluster: Controller, call: Call, options: Options, rest: Sequence[str]) -> Reply:
    if not rest:
        raise Refused(1, "too few arguments for keyword:show\n")
    entity, wanted = rest[0], rest[1] if len(rest) > 1 else ""
    if entity in ("job", "jobs"):
        return Reply(0, _shown_jobs(cluster, call, options, wanted))
    if entity == "config":
        return Reply(0, words.config(cluster, call.env))
    if entity.startswith("reservation"):
        return Reply(0, "No reservations in the system\n")
    if entity in ("node", "nodes", "partition", "partitions", "step", "steps"):
        raise Unsupported(f"scontrol show {entity}")
    raise Refused(1, f"invalid entity:{entity} for keyword:show \n")


def _shown_jobs(cluster: Controller, call: Call, options: Options, wanted: str) -> str:
    if wanted and wanted not in cluster.jobs:
        who = "slurm_load_jobs" if wanted.isdecimal() else "scontrol_print_job"
        raise Refused(1, f"{who} error: Invalid job id specified\n")
    jobs = [cluster.jobs[wanted]] if wanted else list(cluster.jobs.values())
    texts = [words.shown_job(job, cluster, call.env, oneliner="oneliner" in options) for job in jobs]
    return "".join(texts) or "No jobs in the system\n"


def host_names(call: Call) -> Reply:
    """Answer `scontrol show hostnames`, which asks no slurmctld."""
    text = call.argv[3] if len(call.argv) > 3 else call.env.get("SLURM_JOB_NODELIST", "")
    if not text:
        return Reply(0, "", "scontrol: error: host list is empty\n")
    return Reply(0, "".join(f"{name}\n" for name in expand(text)))


# ---- scancel ----


def scancel(cluster: Controller, call: Call) -> Reply:
    options, job_ids = parsed("scancel", call.argv[1:], SCANCEL)
    if not job_ids:
        raise Refused(1, "scancel: error: No job identification provided\n")
    replies = [_cancelled(cluster, call, options, job_id) for job_id in job_ids]
    last = replies[-1]
    return replace(last, status=max(reply.status for reply in replies), err="".join(reply.err for reply in replies))


def _cancelled(cluster: Controller, call: Call, options: Options, job_id: str) -> Reply:
    if not job_id.isdecimal():
        raise Refused(1, f"scancel: error: Invalid job id {job_id}\n")
    job = cluster.jobs.get(job_id)
    if job is not None and job.alive and not call.may_change(job):
        return _kill_error(job_id, "Access/permission denied", 210)
    if "signal" not in options and not options:
        if job is not None:
            cluster.cancel(job)
        return Reply(0)
    return _signalled(cluster, options, job_id, job)


def _signalled(cluster: Controller, options: Options, job_id: str, job: SimJob | None) -> Reply:
    number = signal_number(options.get("signal", "KILL"))
    if not number:
        raise Refused(1, f"scancel: error: Unknown job signal: {options['signal']}\n")
    if job is None or not (job.alive or job.completing):
        return _kill_error(job_id, "Invalid job id specified", 1)
    if job.state not in ON_NODES:
        return replace(_kill_error(job_id, "Job can not be altered now, try again later", 228), delay_s=UNANSWERED_S)
    cluster.signal(job, number, to="batch" if "batch" in options else "all" if "full" in options else "steps")
    return Reply(0)


def _kill_error(job_id: str, problem: str, status: int) -> Reply:
    return Reply(status, "", f"scancel: error: Kill job error on job id {job_id}: {problem}\n")


# ---- sinfo ----


def sinfo(cluster: Controller, call: Call) -> Reply:
    options, _ = parsed("sinfo", call.argv[1:], SINFO)
    form = options.get("format", words.SINFO_NODES_FORMAT if "Node" in options else words.SINFO_FORMAT)
    if wrong := words.unknown_cells(form, words.SINFO_HEADS):
        raise Unsupported(f"sinfo --format: %{wrong[0]}")
    lines = [words.row(form, cells) for cells in _groups(cluster, options, form)]
    lines = lines if "Node" in options else list(dict.fromkeys(lines))
    head = [] if "noheader" in options else [words.row(form, words.SINFO_HEADS)]
    return Reply(0, "".join(f"{line}\n" for line in [*head, *lines]))


def _groups(cluster: Controller, options: Options, form: str) -> list[dict[str, object]]:
    """Return the cells of each line: one for a node, or one for all nodes that are alike in what is asked."""
    if "partition" in options and cluster.partition not in listed(options["partition"]):
        return []
    names = [name for name in cluster.nodes if "nodes" not in options or name in expand(options["nodes"])]
    if "Node" in options:
        return [words.sinfo_cells([name], cluster) for name in names]
    alike: dict[str, list[str]] = {}
    for name in names:
        own = words.sinfo_cells([name], cluster)
        alike.setdefault(words.row(form, own | {"N": "", "D": ""}), []).append(name)
    return [words.sinfo_cells(group, cluster) for group in alike.values()]


# ---- without slurmctld ----

NO_CONTACT = "Unable to contact slurm controller (connect failure)"
TIMED_OUT = "Socket timed out on send/recv operation"
ERRNO = {NO_CONTACT: 1800 & 255, TIMED_OUT: 5004 & 255}


def unreached(call: Call, problem: str, delay_s: float) -> Reply:
    """Return what a command prints that cannot talk to slurmctld."""
    keyword, entity = (*call.operands, "", "")[:2]
    loads = {"config": "slurm_load_ctl_conf error", "reservation": "slurm_load_reservations error"}
    text, status = f"{loads.get(entity, 'slurm_load_jobs error')}: {problem}\n", 1
    if call.program == "sinfo":
        text = f"slurm_load_partitions: {problem}\n"
    elif call.program == "sbatch":
        text = f"sbatch: error: Batch job submission failed: {problem}\n"
    elif call.program == "scontrol" and keyword != "show":
        text = f"Unexpected message received for job {entity}\n"
    elif call.program == "scancel" and call.attempts == 1:
        text, status = _kill_error(keyword, problem, 0).err, ERRNO[problem]
    return Reply(status, "", text, delay_s)


Program = Callable[[Controller, Call], Reply]
PROGRAMS: dict[str, Program] = {
    "sbatch": sbatch,
    "squeue": squeue,
    "scontrol": scontrol,
    "scancel": scancel,
    "sinfo": sinfo,
}
