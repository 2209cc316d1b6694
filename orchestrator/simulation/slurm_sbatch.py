"""sbatch on a simulated cluster."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.nodes.names import expand_all, fold
from orchestrator.scheduler.slurm_times import minutes_of
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
from orchestrator.simulation.slurm_job import SimJob
from orchestrator.simulation.slurm_request import BatchScript, SlurmRequest, Submitter
from orchestrator.simulation.slurm_words import moment

_VALUED = """
    account begin chdir comment constraint cpus-per-task dependency exclude export gpus-per-node
    gres job-name mem nodelist nodes ntasks ntasks-per-node open-mode output partition qos
    reservation signal time
"""
_FLAGS = "exclusive hold no-kill no-requeue parsable requeue test-only"
SBATCH = {**dict.fromkeys(_VALUED.split(), 1), **dict.fromkeys(_FLAGS.split(), 0)}
"""Option -> whether it has a value."""
NO_SCRIPT = (
    "sbatch: error: This does not look like a batch script.  The first\n"
    "sbatch: error: line must start with #! followed by the path to an interpreter.\n"
    "sbatch: error: For instance: #!/bin/sh\n"
)


def sbatch(cluster: Controller, call: Call) -> Reply:
    options, operands = parsed("sbatch", call.argv[1:], SBATCH, mixed=False)
    script = Path(call.cwd, *(operands[:1] or ["sbatch"]))
    try:
        text = call.read(call.host, script) if operands else call.given
    except OSError:
        raise Rejected(1, f"sbatch: error: Unable to open file {operands[0]}\n") from None
    if not text.startswith("#!"):
        raise Rejected(1, NO_SCRIPT if text else "sbatch: error: Batch script is empty!\n")
    given, _ = parsed("sbatch", script_options(text), SBATCH)
    for name in ("requeue", "no-requeue"):
        if name in options:
            given = {key: value for key, value in given.items() if not key.endswith("requeue")}
    options = given | options
    workdir = str(Path(call.cwd, options.get("chdir", "")))
    batch = BatchScript(
        path=script if operands else Path(workdir, "(null)"),
        argv=(str(script), *operands[1:]) if operands else (),
        text=text,
        workdir=workdir,
        submit_dir=call.cwd,
        append=options.get("open-mode", "") in ("a", "append"),
    )
    job = wanted_job(cluster, call, options, batch, script.name)
    if not set(job.request.nodelist) | set(job.request.exclude) <= set(cluster.nodes):
        raise Rejected(
            1, "sbatch: error: Batch job submission failed: Invalid node name specified\n"
        )
    if not _available(cluster, job):
        cluster.reject(job)
        raise Rejected(
            1,
            "sbatch: error: Batch job submission failed: Requested node configuration is not "
            "available\n",
        )
    if "test-only" in options:
        return _tested(cluster, job)
    cluster.submit(job)
    return Reply(0, f"{job.id}\n" if "parsable" in options else f"Submitted batch job {job.id}\n")


def script_options(text: str) -> list[str]:
    """Return the arguments of #SBATCH lines above the first command."""
    arguments: list[str] = []
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            arguments += shlex.split(line.removeprefix("#SBATCH"), comments=True)
        elif line.strip() and not line.startswith("#"):
            break
    return arguments


def wanted_job(
    cluster: Controller, call: Call, options: Options, script: BatchScript, script_name: str
) -> SimJob:
    """Return the requested job. Raises Rejected."""
    _refuse_unknown_names(cluster, options)
    job_id, name = str(cluster.queue.next_id), options.get("job-name", script_name)
    output = _expanded(options.get("output", "slurm-%j.out"), job_id, name, call.user)
    conf, nodes = cluster.conf, _count(options.get("nodes", "1"))
    limit_s = _limit(options["time"]) if "time" in options else conf.default_time_s
    exclude, nodelist = _nodes(options.get("exclude", "")), _nodes(options.get("nodelist", ""))
    env = _exported(call, options.get("export", "ALL"))
    request = SlurmRequest(
        name,
        Submitter(call.user, call.uid, call.host),
        replace(script, output=str(Path(script.workdir, output))),
        env,
        partition=conf.partition,
        nodes=max(nodes, len(nodelist)),
        nodelist=nodelist,
        exclude=exclude,
        time_limit_s=limit_s,
        dependency=_dependency(options.get("dependency", "")),
        begin_ms=_begin(options.get("begin", ""), cluster.engine.wall_ms),
        no_kill="no-kill" in options,
        requeue="no-requeue" not in options,
        warning=_warning(options["signal"]) if "signal" in options else None,
        held="JobHeldUser" if "hold" in options else "",
    )
    return SimJob(job_id, request, env)


def _refuse_unknown_names(cluster: Controller, options: Options) -> None:
    partition = options.get("partition", cluster.conf.partition)
    if cluster.conf.partition not in listed(partition):
        raise Rejected(
            1,
            f"sbatch: error: invalid partition specified: {partition}\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        )
    for name, problem in {
        "reservation": "Requested reservation is invalid",
        "constraint": "Invalid feature specification",
    }.items():
        if name in options:
            raise Rejected(1, f"sbatch: error: Batch job submission failed: {problem}\n")


def _available(cluster: Controller, job: SimJob) -> bool:
    """Return whether it may start some time. A job for more nodes than exist waits all the same."""
    usable, wanted = cluster.queue.usable(job), job.request.nodes
    enough = wanted <= len(usable) or wanted > len(cluster.nodes)
    return enough and set(job.request.nodelist) <= set(usable)


def _tested(cluster: Controller, job: SimJob) -> Reply:
    request, wanted = job.request, job.request.nodelist
    usable = [node for node in cluster.queue.usable(job) if node not in wanted]
    names = fold([*wanted, *usable][: request.nodes])
    when = moment(max(request.begin_ms, cluster.engine.wall_ms), {}, "")
    cores = f"using {16 * request.nodes} processors on nodes {names}"
    text = f"Job {job.id} to start at {when} {cores} in partition {request.partition}"
    return Reply(0, "", f"sbatch: {text}\n")


def _exported(call: Call, export: str) -> dict[str, str]:
    """Return the environment under --export: ALL, NONE, NAME and NAME=VALUE."""
    chosen = listed(export)
    env = (
        dict(call.env)
        if "ALL" in chosen
        else {"SLURM_GET_USER_ENV": "1"}
        if chosen == ["NONE"]
        else {}
    )
    for name, equals, value in (
        word.partition("=") for word in chosen if word not in ("ALL", "NONE")
    ):
        if equals or name in call.env:
            env[name] = value if equals else call.env[name]
    return env


def _expanded(output: str, job_id: str, name: str, user: str) -> str:
    signs = {"%": "%", "j": job_id, "x": name, "u": user}
    return re.sub("%(.)", lambda match: signs.get(match[1], match[0]), output)


def _count(text: str) -> int:
    if re.fullmatch("[0-9]+-[0-9]+", text):
        raise Unsupported(f"sbatch --nodes={text}")
    if not text.isdecimal():
        raise Rejected(255, f'sbatch: error: "{text}" is not a valid node count\n')
    return int(text)


def _limit(text: str) -> float | None:
    try:
        minutes = minutes_of(text)
    except ValueError:
        raise Rejected(255, "sbatch: error: Invalid --time specification\n") from None
    return 60.0 * minutes if minutes else None


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return tuple(expand_all([text]))
    except UsageError:
        raise Rejected(
            1, "sbatch: error: Batch job submission failed: Invalid node name specified\n"
        ) from None


def _dependency(text: str) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    for kind, *jobs in (word.split(":") for word in listed(text)):
        if "?" in text or kind == "singleton":
            raise Unsupported(f"sbatch --dependency={text}")
        if kind not in ("after", "afterany", "afterok", "afternotok") or not all(
            job.isdecimal() for job in jobs
        ):
            raise Rejected(
                1, "sbatch: error: Batch job submission failed: Job dependency problem\n"
            )
        pairs += [(kind, job) for job in jobs]
    return tuple(pairs)


def _begin(text: str, now_ms: int) -> int:
    """Return --begin in Unix milliseconds: `now+2hours`, `2030-01-31T08:00`, `22:00` (UTC)."""
    if not text or text == "now":
        return 0
    units = {"": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
    if (later := re.fullmatch(r"now\+([0-9]+)([a-z]*?)s?", text)) and later[2] in units:
        return now_ms + 1000 * int(later[1]) * units[later[2]]
    now = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
    try:
        if re.fullmatch("[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?", text):
            at = datetime.fromisoformat(f"{now:%Y-%m-%d}T{text.zfill(5)}")
        else:
            at = datetime.fromisoformat(text)
    except ValueError:
        err = (
            f"Invalid time specification (pos=0): {text}\nsbatch: error: Invalid --begin "
            "specification\n"
        )
        raise Rejected(255, err) from None
    ms = int(at.replace(tzinfo=timezone.utc).timestamp() * 1000)
    return ms if ms > now_ms or "-" in text else ms + 86_400_000


def _warning(text: str) -> tuple[bool, int, float]:
    match = re.fullmatch("(?:([BR]+):)?([A-Z0-9]+)(?:@([0-9]{1,5}))?", text)
    number = signal_number(match[2]) if match else 0
    if match is None or not number:
        raise Rejected(255, "sbatch: error: Invalid --signal specification\n")
    return "B" in (match[1] or ""), number, float(match[3] or 60)
