"""squeue, scontrol, scancel and sinfo on a simulated cluster, as in Slurm 22.05."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator.nodes.names import expand
from orchestrator.simulation import slurm_words
from orchestrator.simulation.slurm_call import (
    Call,
    Options,
    Rejected,
    Reply,
    Unsupported,
    listed,
    parsed,
    signal_number,
)
from orchestrator.simulation.slurm_controller import Controller
from orchestrator.simulation.slurm_job import ON_NODES, SimJob
from orchestrator.simulation.slurm_sbatch import sbatch

SQUEUE = {
    "all": 0,
    "format": 1,
    "jobs": 1,
    "me": 0,
    "name": 1,
    "noheader": 0,
    "states": 1,
    "user": 1,
}
SINFO = {"Node": 0, "all": 0, "format": 1, "noheader": 0, "nodes": 1, "partition": 1}
SCANCEL = {"batch": 0, "full": 0, "signal": 1}
SCONTROL = {"all": 0, "oneliner": 0}
UNANSWERED_S = 95.0
"""How long scancel repeats a signal to a job about to start (MAX_CANCEL_RETRY of scancel.c)."""


# ---- squeue ----


def squeue(cluster: Controller, call: Call) -> Reply:
    options, _ = parsed("squeue", call.argv[1:], SQUEUE)
    form = options.get("format", slurm_words.QUEUE_FORMAT)
    if wrong := slurm_words.unknown_cells(form, slurm_words.QUEUE_CELLS):
        raise Unsupported(f"squeue --format: %{wrong[0]}")
    states, names = _states(options), listed(options.get("name", ""))
    users = [call.user] if "me" in options else listed(options.get("user", ""))
    jobs = [job for job in _asked_for(cluster, options) if _matches(job, states, names, users)]
    lines = [
        slurm_words.queue_line(job, form, cluster, call.env)
        for job in sorted(jobs, key=slurm_words.queue_order)
    ]
    if "noheader" not in options:
        heads = {letter: head for letter, (head, _) in slurm_words.QUEUE_CELLS.items()}
        lines.insert(0, slurm_words.row(form, heads))
    return Reply(0, "".join(f"{line}\n" for line in lines))


def _asked_for(cluster: Controller, options: Options) -> list[SimJob]:
    if "jobs" not in options:
        return list(cluster.jobs.values())
    wanted = listed(options["jobs"])
    for job_id in wanted:
        if not job_id.isdecimal():
            raise Rejected(1, f"squeue: error: Invalid job id: {job_id}\n")
    if (
        len(wanted) == 1 and wanted[0] not in cluster.jobs
    ):  # several are selected from all jobs, without an error
        raise Rejected(1, "slurm_load_jobs error: Invalid job id specified\n")
    return [cluster.jobs[job_id] for job_id in wanted if job_id in cluster.jobs]


def _states(options: Options) -> list[str]:
    states = [state.upper() for state in listed(options.get("states", ""))]
    for state in states:
        if state not in (*slurm_words.CODES, *slurm_words.CODES.values(), "ALL"):
            valid = f"squeue: error: Valid job states include: {','.join(slurm_words.CODES)}\n"
            raise Rejected(
                1, f"squeue: error: Invalid job state specified: {state.lower()}\n{valid}\n"
            )
    return states


def _matches(
    job: SimJob, states: Sequence[str], names: Sequence[str], users: Sequence[str]
) -> bool:
    if not states:
        fits = job.alive or bool(job.completing)
    else:
        fits = "ALL" in states or job.shown in states or slurm_words.CODES[job.shown] in states
    return (
        fits
        and (not users or job.request.submitter.user in users)
        and (not names or job.request.name in names)
    )


# ---- scontrol ----


def scontrol(cluster: Controller, call: Call) -> Reply:
    options, operands = parsed("scontrol", call.argv[1:], SCONTROL)
    keyword, *rest = operands or [""]
    if keyword == "show":
        return _show(cluster, call, options, rest)
    if keyword == "update":
        return _update(cluster, call, rest)
    action = {
        "requeue": _requeue,
        "hold": _hold,
        "release": _release,
        "suspend": _suspend,
        "resume": _resume,
    }.get(keyword)
    if action is None:
        if keyword in (
            "create",
            "delete",
            "ping",
            "reconfigure",
            "top",
            "wait",
            "write",
            "listpids",
        ):
            raise Unsupported(f"scontrol {keyword}")
        raise Rejected(1, f"invalid keyword: {keyword}\n")
    if not rest:
        raise Rejected(1, f"too few arguments for keyword:{keyword}\n")
    for job_id in listed(rest[0]):
        _act(cluster, call, keyword, job_id, action)
    return Reply(0)


def _update(cluster: Controller, call: Call, operands: Sequence[str]) -> Reply:
    values = dict(word.split("=", 1) for word in operands if "=" in word)
    if list(values) != ["JobId", "Comment"]:
        raise Unsupported(f"scontrol update {' '.join(operands)}")

    def change(_: Controller, job: SimJob, __: Call) -> str:
        job.amend(comment=values["Comment"])
        return ""

    _act(cluster, call, "update", values["JobId"], change)
    return Reply(0)


def _act(
    cluster: Controller,
    call: Call,
    keyword: str,
    job_id: str,
    action: Callable[[Controller, SimJob, Call], str],
) -> None:
    job = cluster.jobs.get(job_id)
    denied = "" if job is None or call.may_change(job) else "Access/permission denied"
    problem = denied or (action(cluster, job, call) if job else "Invalid job id specified")
    if problem:
        again = f"slurm_suspend error: {problem}\n" if keyword in ("hold", "release") else ""
        raise Rejected(1, f"{problem} for job {job_id}\n{again}")


def _requeue(cluster: Controller, job: SimJob, call: Call) -> str:
    if not job.request.requeue:
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
    return (
        ""
        if cluster.suspend(job)
        else "Job is pending execution"
        if job.alive
        else "Job has already finished"
    )


def _resume(cluster: Controller, job: SimJob, call: Call) -> str:
    if call.uid:
        return "Access/permission denied"
    return "" if cluster.unsuspend(job) else "Job is not suspended"


def _show(cluster: Controller, call: Call, options: Options, rest: Sequence[str]) -> Reply:
    if not rest:
        raise Rejected(1, "too few arguments for keyword:show\n")
    entity, wanted = rest[0], rest[1] if len(rest) > 1 else ""
    if entity in ("job", "jobs"):
        return Reply(0, _shown_jobs(cluster, call, options, wanted))
    if entity == "config":
        return Reply(0, slurm_words.config(cluster, call.env))
    if entity.startswith("reservation"):
        return Reply(0, "No reservations in the system\n")
    if entity in ("node", "nodes", "partition", "partitions", "step", "steps"):
        raise Unsupported(f"scontrol show {entity}")
    raise Rejected(1, f"invalid entity:{entity} for keyword:show \n")


def _shown_jobs(cluster: Controller, call: Call, options: Options, wanted: str) -> str:
    if wanted and wanted not in cluster.jobs:
        who = "slurm_load_jobs" if wanted.isdecimal() else "scontrol_print_job"
        raise Rejected(1, f"{who} error: Invalid job id specified\n")
    jobs = [cluster.jobs[wanted]] if wanted else list(cluster.jobs.values())
    texts = [
        slurm_words.shown_job(job, cluster, call.env, oneliner="oneliner" in options)
        for job in jobs
    ]
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
        raise Rejected(1, "scancel: error: No job identification provided\n")
    replies = [_cancelled(cluster, call, options, job_id) for job_id in job_ids]
    last = replies[-1]
    return replace(
        last,
        status=max(reply.status for reply in replies),
        err="".join(reply.err for reply in replies),
    )


def _cancelled(cluster: Controller, call: Call, options: Options, job_id: str) -> Reply:
    if not job_id.isdecimal():
        raise Rejected(1, f"scancel: error: Invalid job id {job_id}\n")
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
        raise Rejected(1, f"scancel: error: Unknown job signal: {options['signal']}\n")
    if job is None or not (job.alive or job.completing):
        return _kill_error(job_id, "Invalid job id specified", 1)
    if job.state not in ON_NODES:
        return replace(
            _kill_error(job_id, "Job can not be altered now, try again later", 228),
            delay_s=UNANSWERED_S,
        )
    cluster.signal(
        job, number, to="batch" if "batch" in options else "all" if "full" in options else "steps"
    )
    return Reply(0)


def _kill_error(job_id: str, problem: str, status: int) -> Reply:
    return Reply(status, "", f"scancel: error: Kill job error on job id {job_id}: {problem}\n")


# ---- sinfo ----


def sinfo(cluster: Controller, call: Call) -> Reply:
    options, _ = parsed("sinfo", call.argv[1:], SINFO)
    if "Node" in options and "format" not in options:
        raise Unsupported("sinfo --Node without --format")
    form = options.get("format", slurm_words.SINFO_FORMAT)
    if wrong := slurm_words.unknown_cells(form, slurm_words.SINFO_HEADS):
        raise Unsupported(f"sinfo --format: %{wrong[0]}")
    lines = [slurm_words.row(form, cells) for cells in _groups(cluster, options, form)]
    lines = lines if "Node" in options else list(dict.fromkeys(lines))
    head = [] if "noheader" in options else [slurm_words.row(form, slurm_words.SINFO_HEADS)]
    return Reply(0, "".join(f"{line}\n" for line in [*head, *lines]))


def _groups(cluster: Controller, options: Options, form: str) -> list[dict[str, object]]:
    """Return cells for each node, or for all nodes with equal cells."""
    if "partition" in options and cluster.conf.partition not in listed(options["partition"]):
        return []
    wanted = frozenset(expand(options["nodes"])) if "nodes" in options else cluster.nodes
    names = [name for name in cluster.nodes if name in wanted]
    if "Node" in options:
        return [slurm_words.sinfo_cells([name], cluster) for name in names]
    alike: dict[str, list[str]] = {}
    for name in names:
        cells = slurm_words.sinfo_cells([name], cluster)
        alike.setdefault(slurm_words.row(form, cells | {"N": "", "D": ""}), []).append(name)
    return [slurm_words.sinfo_cells(group, cluster) for group in alike.values()]


# ---- without slurmctld ----

NO_CONTACT = "Unable to contact slurm controller (connect failure)"
TIMED_OUT = "Socket timed out on send/recv operation"
ERRNO = {NO_CONTACT: 1800 & 255, TIMED_OUT: 5004 & 255}


def unreached(call: Call, problem: str, delay_s: float) -> Reply:
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
