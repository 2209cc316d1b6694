"""Jobs as processes of this machine: the bundle's `run_with_docker.sh` in its own session.

A job id is `local-<pid>-<start>`: the start in clock ticks since boot (field 22 of /proc/PID/stat),
as pids are used again. ORCH_JOB_ID and ORCH_JOB_NAME show a job's processes in /proc.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import SchedulerError
from orchestrator.onnode.kernel.system import process_start
from orchestrator.scheduler.job import Job, JobRequest
from orchestrator.scheduler.kinds import KINDS

JOB_ID = re.compile(r"local-([1-9]\d{0,6})-(\d{1,19})")
"""A pid is at most 2^22 (kernel: PID_MAX_LIMIT), a start time a 64 bit number of ticks."""
AFTER_KILL_S = 10.0

# The process names itself before it becomes the script: same pid, same start time.
LAUNCH = r"""
read -r stat < /proc/$$/stat; set -f; fields=(${stat##*) })
export ORCH_JOB_ID="local-$$-${fields[19]}"
script=$1 folder=${2%/*} name=${2##*/}
exec > "$folder/${name//%j/"$ORCH_JOB_ID"}" 2>&1
[[ -z ${3:-} ]] || exec bash -c "$3" "$script"
exec bash "$script"
"""


class Local:
    """An ended job is forgotten, as in Slurm after a while: its files have the rest."""

    name = "local"
    runs_here, allocates = KINDS[name]

    def command(self, request: JobRequest) -> list[str]:
        """Return the command for people: the launcher only sets ORCH_JOB_ID."""
        return ["bash", str(request.script), *request.options]

    def submit(self, request: JobRequest) -> str:
        """Start the job. Raises SchedulerError."""
        argv = ["bash", "-c", LAUNCH, "orchestrator-job", str(request.script), request.output]
        argv += [request.text] if request.text else []
        try:
            process = subprocess.Popen(
                argv,
                cwd=request.workdir,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**request.env, "ORCH_JOB_NAME": request.job_name},
            )
        except OSError as error:
            raise SchedulerError(
                f"cannot start {request.script}: {error.strerror or error}", argv=argv
            ) from error
        process.returncode = (
            0  # it outlives us on purpose; without this, Popen warns when it is collected
        )
        start = process_start(process.pid)
        if not start:
            raise SchedulerError(
                f"{request.script} ended at once", argv=argv, hint=f"see {request.workdir}"
            )
        return f"local-{process.pid}-{start}"

    def jobs(self, *, names: Iterable[str] = (), ids: Iterable[str] = ()) -> dict[str, Job]:
        """Return running jobs by name or id, in at most one pass over /proc."""
        # An id needs no environment, which is empty while the launcher becomes the script.
        jobs = {job_id: _running(job_id) for job_id in ids if _pid(job_id) is not None}
        wanted = frozenset(names)
        if wanted:
            jobs |= {job.id: job for job in _leaders() if job.name in wanted}
        return jobs

    def job(self, job_id: str) -> Job | None:
        return self.jobs(ids=[job_id]).get(job_id)

    def cancel(self, job_id: str, grace_s: float) -> bool:
        """Send TERM to the first process, which closes the set; after `grace_s` KILL to all."""
        if not JOB_ID.fullmatch(job_id):
            raise SchedulerError(f"{job_id!r} is not a job of this machine (local-<pid>-<start>)")
        leader = _pid(job_id)
        if leader is not None:
            _send(leader, signal.SIGTERM)
            _until(lambda: _pid(job_id) is None, grace_s)
        return _until(lambda: not _kill_members(job_id), AFTER_KILL_S)

    def comments(self, name: str, job_ids: Iterable[str]) -> dict[str, str]:
        return {}

    def cluster(self) -> str:
        return ""


def _pid(job_id: str) -> int | None:
    """Return a running job's pid. An id can be anybody's text."""
    match = JOB_ID.fullmatch(job_id)
    if not match:
        return None
    pid = int(match[1])
    return pid if _start(pid) == match[2] else None


def _start(pid: int) -> str:
    """Return a process's start time, "" if dead. A dead child is reaped."""
    start = process_start(pid)
    if not start:
        with suppress(OSError):
            os.waitpid(pid, os.WNOHANG)
    return start


def _environments() -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (pid, ORCH_* variables) of our processes with some."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            raw = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:  # ended meanwhile, or another user's
            continue
        if b"ORCH_JOB_NAME=" in raw:
            ours = (item for item in raw.split(b"\0") if item.startswith(b"ORCH_"))
            pairs = (item.decode(errors="replace").partition("=") for item in ours)
            yield int(name), {key: value for key, _, value in pairs}


def _running(job_id: str, name: str = "") -> Job:
    ticks = int(job_id.rpartition("-")[2])
    return Job(job_id, name, "RUNNING", start_ms=_started_ms(ticks), nodes=os.uname().nodename)


def _leaders() -> Iterator[Job]:
    for pid, env in _environments():
        job_id = f"local-{pid}-{_start(pid)}"
        # The launcher has no id in its environment; it leads its session from the start.
        if env.get("ORCH_JOB_ID", job_id if _leads(pid) else "") == job_id:
            yield _running(job_id, env["ORCH_JOB_NAME"])


def _leads(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def _started_ms(ticks: int) -> int:
    since_boot_s = ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot_s) * 1000)


def members(job_id: str) -> list[int]:
    """Return the pids of the job's processes, in any session."""
    return [pid for pid, env in _environments() if env.get("ORCH_JOB_ID") == job_id and _start(pid)]


def _kill_members(job_id: str) -> bool:
    pids = members(job_id)
    for pid in pids:
        _send(pid, signal.SIGKILL)
    return bool(pids)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise SchedulerError(
            f"process {pid} belongs to another user", hint="ask its owner to cancel it"
        ) from error


def _until(done: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    pause_s = 0.02
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.5)
    return True
