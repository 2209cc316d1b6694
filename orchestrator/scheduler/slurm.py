"""Slurm through sbatch, squeue, scontrol and scancel, used by the controller in this file only.

For Slurm 22.05 to 25.11: fixed formats (no --json), no accounting database (sacct) needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache

from orchestrator.errors import Fix, SchedulerError, SchedulerUnknown
from orchestrator.onnode.kernel.events import number
from orchestrator.onnode.kernel.jobs import comment
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.scheduler.command import (
    KEPT_SLURM,
    Answer,
    ask,
    busy,
    last_lines,
    refused,
    unknown,
)
from orchestrator.scheduler.job import Job, JobRequest
from orchestrator.scheduler.kinds import KINDS

QUERY_S = 20.0
SUBMIT_S = 150.0
"""sbatch retries for 120 s (sbatch.c, MAX_RETRIES)."""
AFTER_KILL_S = 60.0
"""After a plain scancel, a job that takes longer is stuck (KillWait is 30 s by default)."""

FIELD = "\x1f"
FIELDS = "%i", "%T", "%S", "%e", "%N", "%r", "%j"
"""The name is last: it may hold separators and line ends."""
JOB_ID = re.compile(r"^(\d+)(?:;\S*)?$")
NAMES_LIMIT = 100_000
"""Bytes of names on a command line. Linux refuses an argument above 128 KiB (execve(2),
MAX_ARG_STRLEN)."""

NO_ANSWER = re.compile(
    r"timed out|unable to contact|connection (?:refused|reset)|transport endpoint"
    r"|zero bytes were transmitted|temporarily unable|communication (?:connection )?failure"
    r"|try again|i/o error|message (?:send|receive) failure"
    r"|slurm_?ctld|protocol authentication|munge|signal|rate limit",
    re.IGNORECASE,
)
"""Failures of the connection to the controller, or of its load (texts: slurm_errno.c). They mean
unknown: the request may have arrived all the same."""

BUSY = re.compile(
    r"resource temporarily unavailable|slurm job queue full|temporarily disabled"
    r"|rate limit exceeded",
    re.IGNORECASE,
)
"""The controller took nothing now (EAGAIN, MaxJobCount, rl_enable; sbatch.c, slurm_errno.c): safe
to ask again."""

UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)
"""The controller's word on a job that never was, or that it has forgotten (slurm_errno.c)."""

NO_CLUSTER = re.compile(r"configuration source|slurm\.conf", re.IGNORECASE)
CLUSTER_HINT = "are you on a login node of the cluster? Otherwise set SLURM_CONF to its slurm.conf"


class Slurm:
    """The cluster of the commands on PATH (and of SLURM_CONF)."""

    name = "slurm"
    runs_here, allocates = KINDS[name]

    def __init__(self, world: World = THIS, ask: Callable[..., Answer] = ask) -> None:
        self._world = world
        self._ask = ask

    def command(self, request: JobRequest) -> list[str]:
        """Return the sbatch call as a person would type it."""
        return [
            "sbatch",
            "--parsable",
            f"--job-name={request.job_name}",
            f"--output={_pattern(request.output)}",
            f"--chdir={request.workdir}",
            "--export=ALL",
            *request.options,
            str(request.script),
        ]

    def submit(self, request: JobRequest) -> str:
        """Submit once and return the job id.

        The job gets exactly `request.env`: `--export=ALL` exports sbatch's environment.
        (`--export=NAME=VALUE,...` cannot carry a comma.) Without a file name sbatch reads the
        script from its input: nobody can change it after verification. Raises SchedulerError if
        Slurm refuses, SchedulerBusy for "not now", SchedulerUnknown for an unknown outcome.
        """
        argv, env = self.command(request), _with_cluster(request)
        if request.text:
            answer = self._ask(argv[:-1], timeout_s=SUBMIT_S, env=env, given=request.text)
        else:
            answer = self._ask(argv, timeout_s=SUBMIT_S, env=env)
        if answer.returncode == 0:
            return _job_id(answer)
        raise _not_taken(answer)

    def test(self, request: JobRequest) -> str:
        """Return Slurm's estimate of the start's time and place; nothing is submitted. Raises as
        `submit`."""
        argv = self.command(request)
        answer = self._ask(
            [*argv[:1], "--test-only", *argv[1:]], timeout_s=SUBMIT_S, env=_with_cluster(request)
        )
        if answer.returncode != 0:
            raise _not_taken(answer)
        return answer.complaint

    def jobs(self, *, names: Iterable[str] = (), ids: Iterable[str] = ()) -> dict[str, Job]:
        """Return jobs in Slurm's memory by name or id, from a single squeue.

        A job leaves Slurm's memory MinJobAge (300 s) after its end. Raises SchedulerUnknown without
        a readable answer.
        """
        wanted_names = frozenset(names)
        wanted_ids = frozenset(ids)
        if not wanted_names and not wanted_ids:
            return {}
        queue = self._queue(wanted_names, wanted_ids)
        return {job.id: job for job in queue if job.name in wanted_names or job.id in wanted_ids}

    def job(self, job_id: str) -> Job | None:
        """Return a job in Slurm's memory; None only if Slurm says that it does not know it.

        A list without the job proves little: sites put caches before squeue, and a controller that
        starts may answer with less. Raises SchedulerUnknown without a readable answer.
        """
        if not job_id.isdecimal():
            return None
        argv = ["scontrol", "--oneliner", "--all", "show", "job", job_id]
        answer = self._ask(argv, timeout_s=QUERY_S)
        if answer.returncode != 0 and UNKNOWN_JOB.search(answer.stderr):
            return None
        for job in parse_show(answer) if answer.returncode == 0 else ():
            if job.id == job_id:
                return job
        if re.search(rf"(?m)^JobId=\d+ (?:Array|Het)JobId={job_id} ", answer.stdout):
            return None  # of another: jobs of sets have no parts
        raise unknown(answer, f"Slurm gives no answer on job {job_id}", hint="ask again later")

    def _known(self, job_id: str) -> Job | None:
        """Return a job as squeue lists it, whatever its name, or as `job` does."""
        return self.jobs(ids=[job_id]).get(job_id) or self.job(job_id)

    def _queue(self, names: frozenset[str], ids: frozenset[str]) -> list[Job]:
        mark = self._world.token()
        form = queue_format(mark)
        argv = ["squeue", "--noheader", "--all", "--states=all", f"--format={form}"]
        # squeue loads every job first: a filter saves output alone. --jobs fails as a
        # whole if an id is forgotten, and with --name means "and": then jobs are filtered here.
        joined = ",".join(sorted(names))
        if not ids and len(joined) < NAMES_LIMIT:
            argv.append(f"--name={joined}")
        answer = self._ask(argv, timeout_s=QUERY_S)
        if answer.returncode != 0:
            return self._show(answer)
        return parse_queue(answer, mark)

    def _show(self, failed: Answer) -> list[Job]:
        """Ask another program of the same controller."""
        answer = self._ask(["scontrol", "--oneliner", "--all", "show", "job"], timeout_s=QUERY_S)
        if answer.returncode != 0:
            lost = NO_CLUSTER.search(failed.stderr)
            raise unknown(
                failed, "squeue does not answer", hint=CLUSTER_HINT if lost else "ask again later"
            )
        return parse_show(answer)

    def cancel(self, job_id: str, grace_s: float) -> bool:
        """Send TERM to the job's batch script, which closes the set; after `grace_s` a plain
        scancel.

        Return whether the job is over. Raises SchedulerError/SchedulerUnknown if scancel or squeue
        fails.
        """
        job = self._known(job_id)
        if job is None or not job.alive:
            return True
        if not job.waiting and job.state != "SUSPENDED":  # Slurm sends it no signal
            self._signal(["scancel", "--signal=TERM", "--batch", job_id])
            if self._over(job_id, grace_s):
                return True
        self._signal(["scancel", job_id])
        return self._over(job_id, AFTER_KILL_S)

    def comments(self, name: str, job_ids: Iterable[str]) -> dict[str, str]:
        """Return Slurm's comments on jobs called `name`, by id. Another cluster's job, or a later
        job, may have the id.

        The controller forgets jobs minutes after their end. Accounting keeps the comment if the
        site stores it (AccountingStoreFlags=job_comment).
        """
        wanted = [job_id for job_id in job_ids if job_id.isdecimal()]
        comments = {job_id: self._comment(name, job_id) for job_id in wanted}
        lacking = [job_id for job_id, text in comments.items() if not text]
        argv = [
            "sacct",
            "--noheader",
            "--parsable2",
            "--allocations",
            f"--jobs={','.join(lacking)}",
        ]
        answer = self._try([*argv, "--format=JobIDRaw,JobName,Comment"]) if lacking else ""
        for line in answer.splitlines():
            job_id, _, rest = line.partition("|")
            if job_id in lacking and rest.startswith(f"{name}|"):
                comments[job_id] = rest.removeprefix(f"{name}|")
        return {job_id: text for job_id, text in comments.items() if text}

    def _comment(self, name: str, job_id: str) -> str:
        shown = self._try(["scontrol", "show", "job", job_id])
        return comment(shown) if re.search(rf"(?m) JobName={re.escape(name)}$", shown) else ""

    def _try(self, argv: list[str]) -> str:
        """Return a command's output; "" if it fails."""
        try:
            answer = self._ask(argv, timeout_s=QUERY_S)
        except SchedulerError:
            return ""
        return answer.stdout if answer.returncode == 0 else ""

    def cluster(self) -> str:
        return cluster_name(self._ask)

    def _signal(self, argv: list[str]) -> None:
        answer = self._ask(argv, timeout_s=QUERY_S)
        ended = re.search(
            r"already completing or completed|invalid job id|not running",
            answer.stderr,
            re.IGNORECASE,
        )
        if answer.returncode == 0 or ended:
            return
        if NO_ANSWER.search(answer.stderr):
            raise unknown(answer, "scancel did not reach the Slurm controller")
        hint = "only its owner or an operator may cancel a job"
        raise refused(answer, "Slurm refused to cancel the job", hint=hint)

    def _over(self, job_id: str, limit_s: float) -> bool:
        deadline = self._world.now() + limit_s
        pause_s = 0.25
        while True:
            try:
                job = self._known(job_id)
            except SchedulerUnknown:
                job = Job(
                    job_id, "", "UNKNOWN"
                )  # a busy controller: keep asking until the deadline
            if job is None or not job.alive:
                return True
            if self._world.now() + pause_s > deadline:
                return False
            self._world.pause(pause_s)
            pause_s = min(pause_s * 1.5, 5.0)


def _with_cluster(request: JobRequest) -> dict[str, str]:
    return {**request.env, **{name: os.environ[name] for name in KEPT_SLURM if name in os.environ}}


def _not_taken(answer: Answer) -> SchedulerError:
    # sbatch tries several times; its last line is about the last one.
    if BUSY.search(last_lines(answer.stderr or answer.stdout, 1)):
        hint = "nothing was submitted; submit again later"
        return busy(answer, "Slurm takes no job now", hint=hint)
    if NO_ANSWER.search(answer.stderr) or answer.returncode < 0:
        return unknown(answer, "sbatch failed on the way to the Slurm controller")
    if NO_CLUSTER.search(answer.stderr):
        return refused(answer, "Slurm's commands do not know their cluster", hint=CLUSTER_HINT)
    from orchestrator.causes.lines import cause_in  # its tables are rarely needed
    from orchestrator.scheduler.slurm_reasons import REASONS

    cause = cause_in(answer.complaint, REASONS)
    remedy = "correct the site file or the option (partition, account, qos, time limit, ...)"
    hint = f"{cause.remedy if cause else remedy}, then submit again"
    # A fix names no job and no set: none exists.
    fix = Fix(cause.next) if cause and "{" not in cause.next else None
    return refused(answer, "Slurm refused the job", hint=hint, fix=fix)


def cluster_name(ask: Callable[..., Answer] = ask) -> str:
    """Return the cluster as in its jobs' SLURM_CLUSTER_NAME; "" without an answer."""
    try:
        return _cluster_name(os.environ.get("PATH", ""), os.environ.get("SLURM_CONF", ""), ask)
    except SchedulerError:
        return ""


@lru_cache(maxsize=4)
def _cluster_name(path: str, conf: str, ask: Callable[..., Answer]) -> str:
    """Raises SchedulerError."""
    answer = ask(["scontrol", "show", "config"], timeout_s=QUERY_S)
    if answer.returncode != 0:
        raise unknown(answer, "scontrol does not answer")
    match = re.search(r"^ClusterName\s*=\s*(\S+)", answer.stdout, re.MULTILINE)
    return match[1] if match else ""


def _pattern(output: str) -> str:
    """Escape it for --output: `%j` in the file's name is the job's id; in the folder's `%` is a
    character."""
    folder, slash, name = output.rpartition("/")
    return folder.replace("%", "%%") + slash + name


def _job_id(answer: Answer) -> str:
    # A site's wrapper around sbatch may print lines: the id is a line alone.
    matches = [
        match for line in answer.stdout.splitlines() if (match := JOB_ID.match(line.strip()))
    ]
    if len(matches) != 1:
        raise unknown(answer, "sbatch printed no job id")
    return matches[0].group(1)


def queue_format(mark: str) -> str:
    """Return squeue's format. `mark` starts every record; it is random: no job's name can look like
    a record."""
    return f"{FIELD}{mark}{FIELD}" + FIELD.join(FIELDS)


def parse_queue(answer: Answer, mark: str) -> list[Job]:
    """Read squeue's output in queue_format(mark). Raises SchedulerUnknown."""
    head, *records = answer.stdout.split(f"{FIELD}{mark}{FIELD}")
    rows = [record.removesuffix("\n").split(FIELD, len(FIELDS) - 1) for record in records]
    if head.strip() or any(len(row) != len(FIELDS) for row in rows):
        raise unknown(answer, "squeue's answer cannot be read")
    return [
        Job(
            id=row[0].strip(),
            state=row[1],
            start_ms=_time_ms(row[2]),
            end_ms=_time_ms(row[3]),
            nodes=row[4],
            reason="" if row[5] == "None" else row[5],
            name=row[6],
        )
        for row in rows
    ]


def parse_show(answer: Answer) -> list[Job]:
    """Read `scontrol --oneliner show job`. Raises SchedulerUnknown."""
    if answer.stdout.startswith("No jobs"):
        return []
    # A job is a line, except that its name may hold line ends.
    texts = re.split(r"(?m)^(?=JobId=)", answer.stdout)
    return [_shown(text, answer) for text in texts if text.strip()]


def _shown(text: str, answer: Answer) -> Job:
    names = re.match(r"JobId=(\d+)\S* (?:(?:Array|Het)\S+ )*JobName=(.*?) UserId=", text, re.DOTALL)
    state = re.search(r" JobState=(\w+)", text)
    # Twice: a job's name holds a line that looks like another job's.
    doubled = any(text.count(f" {key}=") != 1 for key in ("UserId", "JobState"))
    if not names or not state or doubled:
        raise unknown(answer, "scontrol's answer cannot be read")

    def value(key: str) -> str:
        match = re.search(rf" {key}=(\S+)", text)
        return match.group(1) if match and match.group(1) not in ("None", "(null)") else ""

    return Job(
        id=names.group(1),
        name=names.group(2),
        state=state.group(1),
        reason=value("Reason"),
        start_ms=_time_ms(value("StartTime")),
        end_ms=_time_ms(value("EndTime")),
        nodes=value("NodeList"),
    )


def _time_ms(text: str) -> int:
    """Read seconds since 1970 (SLURM_TIME_FORMAT=%s) or local ISO time; 0 for N/A, Unknown and the
    like."""
    if (seconds := number(text)) is not None:
        return max(seconds, 0) * 1000
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
