"""Output of commands in Slurm 22.05; later versions only extend it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from orchestrator.nodes.names import fold
from orchestrator.simulation.slurm_controller import Controller
from orchestrator.simulation.slurm_job import ON_NODES, SimJob
from orchestrator.simulation.slurm_node import SimNode

CODES = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA",
    "FAILED": "F", "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF",
    "DEADLINE": "DL", "OUT_OF_MEMORY": "OOM", "COMPLETING": "CG", "CONFIGURING": "CF",
    "RESIZING": "RS", "RESV_DEL_HOLD": "RD", "REQUEUED": "RQ", "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH", "REVOKED": "RV", "SIGNALING": "SI", "SPECIAL_EXIT": "SE",
    "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip
QUEUE_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
SINFO_FORMAT = "%9P %.5a %.10l %.6D %.6t %N"
BECAUSE = ("PENDING", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE", "FAILED")
"""States for which squeue shows a reason in place of nodes."""
_SPECIFIER = re.compile(r"%(\.?)(\d*)([A-Za-z])")


def moment(wall_ms: int, env: Mapping[str, str], unknown: str) -> str:
    """Return a time in SLURM_TIME_FORMAT (UTC)."""
    if not wall_ms:
        return unknown
    if env.get("SLURM_TIME_FORMAT") == "%s":
        return str(wall_ms // 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_ms / 1000))


def span(seconds: float | None, *, full: bool = False) -> str:
    """Return 9:58, 1:00:00, 1-00:00:00, with `full` 00:09:58; UNLIMITED for None."""
    if seconds is None:
        return "UNLIMITED"
    if seconds < 0:
        return "INVALID"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return (
        f"{hour:02}:{minute:02}:{second:02}"
        if full
        else f"{f'{hour}:' * bool(hour)}{minute:0{1 + bool(hour)}}:{second:02}"
    )


def start_ms(job: SimJob) -> int:
    """Return the start or earliest start, or 0."""
    queued = job.state == "PENDING" and not job.completing
    return job.times.begin_ms if queued else job.times.start_ms


def limit_end_ms(job: SimJob, cluster: Controller) -> int:
    """Return the end or latest end, or 0."""
    start, limit_s, end_ms = start_ms(job), job.request.time_limit_s, job.times.end_ms
    if end_ms or limit_s is None or not start:
        return end_ms
    if job.state in ON_NODES:
        return cluster.engine.wall_ms + int(1000 * (limit_s - job.run_s(cluster.engine.now)))
    return start + int(1000 * limit_s)


def _nodes_or_reason(job: SimJob) -> str:
    return f"({job.reason})" if job.shown in BECAUSE else fold(job.completing or job.nodes)


def left_s(job: SimJob, cluster: Controller) -> float | None:
    limit_s = job.request.time_limit_s
    return None if limit_s is None else limit_s - job.run_s(cluster.engine.now)


Cell = Callable[[SimJob, Controller, Mapping[str, str]], object]
QUEUE_CELLS: dict[str, tuple[str, Cell]] = {
    "A": ("JOBID", lambda job, *_: job.id),
    "D": ("NODES", lambda job, *_: len(job.nodes) or job.request.nodes),
    "L": ("TIME_LEFT", lambda job, cluster, _: span(left_s(job, cluster))),
    "M": ("TIME", lambda job, cluster, _: span(job.run_s(cluster.engine.now))),
    "N": ("NODELIST", lambda job, *_: fold(job.completing or job.nodes)),
    "P": ("PARTITION", lambda job, *_: job.request.partition),
    "R": ("NODELIST(REASON)", lambda job, *_: _nodes_or_reason(job)),
    "S": ("START_TIME", lambda job, _, env: moment(start_ms(job), env, "N/A")),
    "T": ("STATE", lambda job, *_: job.shown),
    "V": ("SUBMIT_TIME", lambda job, _, env: moment(job.times.submit_ms, env, "N/A")),
    "Z": ("WORK_DIR", lambda job, *_: job.request.script.workdir),
    "e": ("END_TIME", lambda job, cluster, env: moment(limit_end_ms(job, cluster), env, "N/A")),
    "i": ("JOBID", lambda job, *_: job.id),
    "j": ("NAME", lambda job, *_: job.request.name),
    "l": ("TIME_LIMIT", lambda job, *_: span(job.request.time_limit_s)),
    "r": ("REASON", lambda job, *_: job.reason),
    "t": ("ST", lambda job, *_: CODES[job.shown]),
    "u": ("USER", lambda job, *_: job.request.submitter.user),
}


def row(form: str, cells: Mapping[str, object]) -> str:
    """Return a line: `%.8j` is a cell of 8 characters, aligned right."""

    def cell(match: re.Match[str]) -> str:
        text, width = str(cells[match[3]]), int(match[2] or 0)
        return (text.rjust(width) if match[1] else text.ljust(width))[: width or None]

    return _SPECIFIER.sub(cell, form)


def unknown_cells(form: str, cells: Mapping[str, object]) -> list[str]:
    return [letter for _, _, letter in _SPECIFIER.findall(form) if letter not in cells]


def queue_line(job: SimJob, form: str, cluster: Controller, env: Mapping[str, str]) -> str:
    return row(form, {letter: cell(job, cluster, env) for letter, (_, cell) in QUEUE_CELLS.items()})


def queue_order(job: SimJob) -> tuple[str, int]:
    """Sort as squeue: by state, then by priority, which falls from job to job."""
    return job.shown, int(job.id)


# ---- scontrol show job ----


JOB = """\
JobId={job.id} JobName={request.name}
UserId={user} GroupId={user} MCS_label=N/A
Priority={priority} Nice=0 Account=(null) QOS=(null)
JobState={job.shown} Reason={reason} Dependency={dependency}
Requeue={request.requeue:d} Restarts={job.restarts} BatchFlag=1 Reboot=0 ExitCode={exit_code}
RunTime={ran} TimeLimit={limit} TimeMin=N/A
SubmitTime={submitted} EligibleTime={eligible}
AccrueTime={eligible}
StartTime={started} EndTime={ended} Deadline=N/A
PreemptEligibleTime={started} PreemptTime={preempted}
SuspendTime={suspended} SecsPreSuspend={ran_s:.0f} LastSchedEval={submitted} Scheduler=Main
Partition={request.partition} AllocNode:Sid={request.submitter.host}:1
ReqNodeList={wanted} ExcNodeList={excluded}
NodeList={nodes}
BatchHost={job.batch_host}
NumNodes={count} NumCPUs={cores} NumTasks={tasks} CPUs/Task=1 ReqB:S:C:T=0:0:*:*
TRES=cpu={cores},node={tasks},billing={cores}
Socks/Node=* NtasksPerN:B:S:C=1:0:*:* CoreSpec=*
MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
Features=(null) DelayBoot=00:00:00
OverSubscribe=NO Contiguous=0 Licenses=(null) Network=(null)
Command={command}
WorkDir={request.script.workdir}
StdErr={request.script.output}
StdIn=/dev/null
StdOut={request.script.output}
Power=
Comment={request.comment}"""


def shown_job(job: SimJob, cluster: Controller, env: Mapping[str, str], *, oneliner: bool) -> str:
    queued = job.state == "PENDING" and not job.completing
    absent: tuple[str, ...] = (
        ("PreemptEligibleTime=", "BatchHost=")
        if queued
        else ()
        if job.batch_host
        else ("BatchHost=",)
    )
    absent += () if job.request.comment else ("Comment=",)
    values = _job_values(job, cluster, env, first=queued and not job.restarts)
    lines = [
        line.format(job=job, request=job.request, **values)
        for line in JOB.split("\n")
        if not line.startswith(absent)
    ]
    return " ".join(lines) + " \n" if oneliner else "\n   ".join(lines) + "\n   \n\n"


def _job_values(
    job: SimJob, cluster: Controller, env: Mapping[str, str], *, first: bool
) -> dict[str, object]:
    request, times = job.request, job.times
    count = len(job.nodes) or request.nodes
    return {
        "user": f"{request.submitter.user}({request.submitter.uid})",
        "priority": 0 if job.held else 4294901760 - int(job.id),
        "reason": job.reason.replace(" ", "_"),
        "exit_code": ":".join(map(str, job.exit_code)),
        "dependency": _dependency(job),
        "ran_s": times.ran_s,
        "ran": span(job.run_s(cluster.engine.now), full=True),
        "limit": span(request.time_limit_s, full=True),
        "submitted": moment(times.submit_ms, env, "Unknown"),
        "eligible": moment(times.begin_ms or (0 if job.held else times.submit_ms), env, "Unknown"),
        "started": moment(start_ms(job), env, "Unknown"),
        "ended": moment(limit_end_ms(job, cluster), env, "Unknown"),
        "preempted": moment(times.preempt_ms, env, "None"),
        "suspended": moment(times.suspend_ms, env, "None"),
        "command": request.script.path if request.script.argv else "(null)",
        "wanted": fold(request.nodelist) or "(null)",
        "excluded": fold(request.exclude) or "(null)",
        "nodes": fold(job.completing or job.nodes),
        "count": f"{count}-{count}" if first else count,
        "tasks": count,
        "cores": 16 * count,
    }


def _dependency(job: SimJob) -> str:
    return (
        ",".join(f"{kind}:{job_id}(unfulfilled)" for kind, job_id in job.request.dependency)
        or "(null)"
    )


def node_state(node: SimNode, cluster: Controller) -> str:
    """Return sinfo's %T."""
    jobs = cluster.queue.on(node.name)
    state = "completing" if any(job.completing for job in jobs) else "allocated" if jobs else "idle"
    if state == "idle" and node.name in cluster.queue.planned:
        state = "planned"
    if node.drained:
        state = "draining" if jobs else "drained"
    elif node.down:
        state = "down"
    return state + "*" * node.unanswered


def sinfo_cells(names: Sequence[str], cluster: Controller) -> dict[str, object]:
    node, limit_s = cluster.nodes[names[0]], cluster.conf.max_time_s
    state = node_state(node, cluster)
    return {
        "D": len(names),
        "E": node.reason or "none",
        "G": "gpu:8",
        "N": fold(names),
        "P": f"{cluster.conf.partition}*",
        "T": state,
        "a": "up",
        "l": "infinite" if limit_s is None else span(limit_s),
        "t": SHORT[state.rstrip("*")] + "*" * state.endswith("*"),
    }


SINFO_HEADS = {
    "D": "NODES", "E": "REASON", "G": "GRES", "N": "NODELIST", "P": "PARTITION", "T": "STATE",
    "a": "AVAIL", "l": "TIMELIMIT", "t": "STATE",
}  # fmt: skip
SHORT = {
    "allocated": "alloc", "idle": "idle", "completing": "comp", "down": "down",
    "drained": "drain", "draining": "drng", "planned": "plnd",
}  # fmt: skip


def config(cluster: Controller, env: Mapping[str, str]) -> str:
    values = {
        "ClusterName": cluster.conf.name,
        "KillWait": f"{cluster.conf.kill_wait_s:.0f} sec",
        "MinJobAge": f"{cluster.conf.min_job_age_s:.0f} sec",
        "NEXT_JOB_ID": cluster.queue.next_id,
        "SlurmdTimeout": f"{cluster.conf.slurmd_timeout_s:.0f} sec",
        "SLURM_VERSION": "22.05.8",
    }
    lines = [f"{name:23s} = {value}" for name, value in values.items()]
    now = moment(cluster.engine.wall_ms, env, "")
    up = "Slurmctld(primary) at ctl is UP"
    return "\n".join([f"Configuration data as of {now}", *lines, "", up, ""])
