"""What Slurm's commands print: fixed texts of Slurm 22.05, which later versions only add to."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence

from orchestrator.nodes.names import fold
from orchestrator.simulation.slurm_controller import Controller
from orchestrator.simulation.slurm_job import ON_NODES, SimJob, SimNode

Row = Sequence[tuple[str, object]]
CODES = {
    "PENDING": "PD", "RUNNING": "R", "SUSPENDED": "S", "COMPLETED": "CD", "CANCELLED": "CA", "FAILED": "F",
    "TIMEOUT": "TO", "NODE_FAIL": "NF", "PREEMPTED": "PR", "BOOT_FAIL": "BF", "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM", "COMPLETING": "CG", "CONFIGURING": "CF", "RESIZING": "RS", "RESV_DEL_HOLD": "RD",
    "REQUEUED": "RQ", "REQUEUE_FED": "RF", "REQUEUE_HOLD": "RH", "REVOKED": "RV", "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST",
}  # fmt: skip
QUEUE_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
SINFO_FORMAT, SINFO_NODES_FORMAT = "%9P %.5a %.10l %.6D %6t %N", "%N %.6D %.9P %6t"
_SPECIFIER = re.compile(r"%(\.?)(\d*)([A-Za-z])")


def moment(wall_ms: int, env: Mapping[str, str], unknown: str) -> str:
    """Return a time as SLURM_TIME_FORMAT wants it. The cluster's hosts keep UTC."""
    if not wall_ms:
        return unknown
    if env.get("SLURM_TIME_FORMAT") == "%s":
        return str(wall_ms // 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_ms / 1000))


def span(seconds: float | None, *, full: bool = False) -> str:
    """Return a duration: 9:58, 1:00:00, 1-00:00:00, with `full` 00:09:58; UNLIMITED for None."""
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


def limit_end_ms(job: SimJob, cluster: Controller) -> int:
    """Return when a job ended or has to end; 0 if nobody knows."""
    if job.end_ms or job.state not in ON_NODES or job.time_limit_s is None:
        return job.end_ms
    return cluster.engine.wall_ms + int(1000 * (job.time_limit_s - job.run_s(cluster.engine.now)))


def start_ms(job: SimJob) -> int:
    """Return when a job started or will start at the earliest; 0 if nobody knows."""
    return job.begin_ms if job.state == "PENDING" and not job.completing else job.start_ms


def left_s(job: SimJob, cluster: Controller) -> float | None:
    return None if job.time_limit_s is None else job.time_limit_s - job.run_s(cluster.engine.now)


# ---- squeue ----

Cell = Callable[[SimJob, Controller, Mapping[str, str]], object]
QUEUE_CELLS: dict[str, tuple[str, Cell]] = {
    "A": ("JOBID", lambda job, *_: job.id),
    "D": ("NODES", lambda job, *_: len(job.nodes) or job.nodes_wanted),
    "L": ("TIME_LEFT", lambda job, cluster, _: span(left_s(job, cluster))),
    "M": ("TIME", lambda job, cluster, _: span(job.run_s(cluster.engine.now))),
    "N": ("NODELIST", lambda job, *_: fold(job.completing or job.nodes)),
    "P": ("PARTITION", lambda job, *_: job.partition),
    "R": ("NODELIST(REASON)", lambda job, *_: fold(job.completing or job.nodes) or f"({job.reason})"),
    "S": ("START_TIME", lambda job, _, env: moment(start_ms(job), env, "N/A")),
    "T": ("STATE", lambda job, *_: job.shown),
    "V": ("SUBMIT_TIME", lambda job, _, env: moment(job.submit_ms, env, "N/A")),
    "Z": ("WORK_DIR", lambda job, *_: job.workdir),
    "e": ("END_TIME", lambda job, cluster, env: moment(limit_end_ms(job, cluster), env, "N/A")),
    "i": ("JOBID", lambda job, *_: job.id),
    "j": ("NAME", lambda job, *_: job.name),
    "l": ("TIME_LIMIT", lambda job, *_: span(job.time_limit_s)),
    "r": ("REASON", lambda job, *_: job.reason),
    "t": ("ST", lambda job, *_: CODES[job.shown]),
    "u": ("USER", lambda job, *_: job.user),
}


def row(form: str, cells: Mapping[str, object]) -> str:
    """Return a line of squeue or sinfo: `%.8j` is a cell of 8 characters, to the right."""

    def cell(match: re.Match[str]) -> str:
        text, width = str(cells[match[3]]), int(match[2] or 0)
        return (text.rjust(width) if match[1] else text.ljust(width))[: width or None]

    return _SPECIFIER.sub(cell, form)


def unknown_cells(form: str, cells: Mapping[str, object]) -> list[str]:
    """Return the letters of a format that are none of `cells`."""
    return [letter for _, _, letter in _SPECIFIER.findall(form) if letter not in cells]


def queue_line(job: SimJob, form: str, cluster: Controller, env: Mapping[str, str]) -> str:
    return row(form, {letter: cell(job, cluster, env) for letter, (_, cell) in QUEUE_CELLS.items()})


def queue_order(job: SimJob) -> tuple[str, int]:
    """Sort as squeue does: by state, then by priority, which falls from job to job."""
    return job.shown, int(job.id)


# ---- scontrol show job ----


def shown_job(job: SimJob, cluster: Controller, env: Mapping[str, str], *, oneliner: bool) -> str:
    lines = [" ".join(f"{key}={value}" for key, value in line) for line in _rows(job, cluster, env)]
    return " ".join(lines) + " \n" if oneliner else "\n   ".join(lines) + "\n   \n\n"


def _rows(job: SimJob, cluster: Controller, env: Mapping[str, str]) -> list[Row]:
    def at(wall_ms: int, unknown: str = "Unknown") -> str:
        return moment(wall_ms, env, unknown)

    pending, limit = job.state == "PENDING" and not job.completing, limit_end_ms(job, cluster)
    started = (
        []
        if job.state == "PENDING"
        else [[("PreemptEligibleTime", at(job.start_ms)), ("PreemptTime", at(job.preempt_ms, "None"))]]
    )
    count, run_s = len(job.nodes) or job.nodes_wanted, job.run_s(cluster.engine.now)
    eligible = job.begin_ms or job.submit_ms
    lines: list[Row] = [
        [("JobId", job.id), ("JobName", job.name)],
        [("UserId", f"{job.user}({job.uid})"), ("GroupId", f"{job.user}({job.uid})"), ("MCS_label", "N/A")],
        [("Priority", 0 if job.held else 4294901760 - int(job.id)), ("Nice", 0), ("Account", "(null)"), ("QOS", "(null)")],
        [("JobState", job.shown), ("Reason", job.reason.replace(" ", "_")), ("Dependency", _dependency(job))],
        [
            ("Requeue", int(job.requeue)), ("Restarts", job.restarts), ("BatchFlag", 1), ("Reboot", 0),
            ("ExitCode", f"{job.exit_code[0]}:{job.exit_code[1]}"),
        ],
        [("RunTime", span(run_s, full=True)), ("TimeLimit", span(job.time_limit_s, full=True)), ("TimeMin", "N/A")],
        [("SubmitTime", at(job.submit_ms)), ("EligibleTime", at(0 if job.held else eligible))],
        [("AccrueTime", at(0 if job.held else job.submit_ms))],
        [("StartTime", at(start_ms(job))), ("EndTime", at(limit)), ("Deadline", "N/A")],
        *started,
        [
            ("SuspendTime", at(job.suspend_ms, "None")), ("SecsPreSuspend", int(job.ran_s)),
            ("LastSchedEval", at(job.submit_ms)), ("Scheduler", "Main"),
        ],
        [("Partition", job.partition), ("AllocNode:Sid", f"{job.host}:1")],
        [("ReqNodeList", fold(job.nodelist) or "(null)"), ("ExcNodeList", fold(job.exclude) or "(null)")],
        [("NodeList", fold(job.completing or job.nodes))],
        *([] if pending or not job.batch_host else [[("BatchHost", job.batch_host)]]),
        [
            ("NumNodes", count), ("NumCPUs", 16 * count), ("NumTasks", count), ("CPUs/Task", 1),
            ("ReqB:S:C:T", "0:0:*:*"),
        ],
        [("TRES", f"cpu={16 * count},node={count},billing={16 * count}")],
        [("Socks/Node", "*"), ("NtasksPerN:B:S:C", "1:0:*:*"), ("CoreSpec", "*")],
        [("MinCPUsNode", 1), ("MinMemoryNode", 0), ("MinTmpDiskNode", 0)],
        [("Features", "(null)"), ("DelayBoot", "00:00:00")],
        [("OverSubscribe", "NO"), ("Contiguous", 0), ("Licenses", "(null)"), ("Network", "(null)")],
        [("Command", job.script)], [("WorkDir", job.workdir)], [("StdErr", job.output)], [("StdIn", "/dev/null")],
        [("StdOut", job.output)], [("Power", "")],
    ]  # fmt: skip
    return lines


def _dependency(job: SimJob) -> str:
    between = "?" if job.any_dependency else ","
    return (
        between.join(f"{kind}{f':{job_id}' * bool(job_id)}(unfulfilled)" for kind, job_id in job.dependency) or "(null)"
    )


# ---- nodes ----


def node_state(node: SimNode, cluster: Controller) -> str:
    """Return the state as sinfo's %T has it."""
    jobs = [job for job in cluster.jobs.values() if node.name in cluster.held_by(job)]
    state = "completing" if any(job.completing for job in jobs) else "allocated" if jobs else "idle"
    if state == "idle" and node.name in cluster.planned:
        state = "planned"
    if node.drained:
        state = "draining" if jobs else "drained"
    elif node.down:
        state = "down"
    return state + "*" * node.unanswered


def sinfo_cells(names: Sequence[str], cluster: Controller) -> dict[str, object]:
    """Return the cells of a line for nodes that are alike."""
    node, limit_s = cluster.nodes[names[0]], cluster.max_time_s
    state = node_state(node, cluster)
    return {
        "D": len(names),
        "E": node.reason or "none",
        "G": "gpu:8",
        "N": fold(names),
        "P": f"{cluster.partition}*",
        "T": state,
        "a": "up",
        "l": "infinite" if limit_s is None else span(limit_s),
        "t": SHORT[state.rstrip("*")] + "*" * state.endswith("*"),
    }


SINFO_HEADS = {
    "D": "NODES", "E": "REASON", "G": "GRES", "N": "NODELIST", "P": "PARTITION", "T": "STATE", "a": "AVAIL",
    "l": "TIMELIMIT", "t": "STATE",
}  # fmt: skip
SHORT = {
    "allocated": "alloc", "idle": "idle", "completing": "comp", "down": "down", "drained": "drain", "draining": "drng",
    "planned": "plnd",
}  # fmt: skip


def config(cluster: Controller, env: Mapping[str, str]) -> str:
    """Return some of the lines of `scontrol show config`."""
    values = {
        "ClusterName": cluster.name,
        "KillWait": f"{cluster.kill_wait_s:.0f} sec",
        "MinJobAge": f"{cluster.min_job_age_s:.0f} sec",
        "NEXT_JOB_ID": cluster.next_id,
        "SlurmdTimeout": f"{cluster.slurmd_timeout_s:.0f} sec",
        "SLURM_VERSION": "22.05.8",
    }
    lines = [f"{name:23s} = {value}" for name, value in values.items()]
    now = moment(cluster.engine.wall_ms, env, "")
    up = "Slurmctld(primary) at ctl is UP"
    return "\n".join([f"Configuration data as of {now}", *lines, "", up, ""])
