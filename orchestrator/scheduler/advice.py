"""Commands that a person types to ask or correct the scheduler.

`show_job("{job}")` gives a template.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.onnode.kernel.node_names import fold
from orchestrator.words import quoted

SCHEDULER = "Slurm"
"""The name of the cluster's scheduler."""
CANCEL = "scancel"
QUEUE_LISTING = "squeue"
"""The name of quoted lines of the job queue."""
ACCOUNTS = "sacctmgr show assoc where user=$USER format=account,partition,qos"
LIMITS = "sacctmgr show assoc where user=$USER format=account,qos,maxjobs,grptres,maxtres"
QOS = "sacctmgr show qos format=name,maxjobspu,maxtrespu,grptres,maxwall"
PARTITIONS = "sinfo -o '%P %a %l %D %t'"
ALL_PARTITIONS = "sinfo --all"
LIST_PARTITIONS = "sinfo"
BAD_NODES = "sinfo -R"
LICENSES = "scontrol show licenses"
RESERVATIONS = "scontrol show reservation"
PING = "scontrol ping"
RELEASE = "scontrol release"
GET_ALLOCATION = "salloc -N2"


def start_set(scheduler: str) -> str:
    """The command that starts a bundle's job, in its folder."""
    return "sbatch job.sh" if scheduler == "slurm" else "bash run_with_docker.sh"


def show_start(job: str) -> str:
    return f"squeue -j {quoted(job)} --start"


def show_queue(partition: str | None) -> str:
    """The command that shows the jobs on a partition's nodes, or waiting for them."""
    return f"squeue -p {quoted(partition)}" if partition else "squeue"


def show_job(job: str) -> str:
    return f"scontrol show job {quoted(job)}"


def show_partition(partition: str) -> str:
    return f"scontrol show partition {quoted(partition)}"


def look_at_nodes(nodes: str) -> str:
    """The command that shows why nodes take no jobs, who drained them, and when. No advice returns
    them: that would undo an administrator's drain."""
    return f"sinfo --list-reasons --nodes={quoted(nodes)}"


def drain_node(node: str, reason: str) -> str:
    """An operator's command that keeps jobs away from a node."""
    return f"scontrol update nodename={quoted(node)} state=drain reason={quoted(reason)}"


def run_on(nodes: Sequence[str], command: str, partition: str | None) -> str:
    """The command that runs a shell's command on these nodes."""
    where = f" --partition={quoted(partition)}" if partition else ""
    where += f" --nodes={len(nodes)}" if len(nodes) > 1 else ""
    return f"srun{where} --nodelist={quoted(fold(nodes))} bash -c {quoted(command)}"


def allocate(nodes: str, partition: str | None) -> str:
    """The command that opens a shell in an allocation of these nodes."""
    where = f" --partition={quoted(partition)}" if partition else ""
    return f"salloc{where} --nodelist={quoted(nodes)}"


def release(job: str) -> str:
    return f"{RELEASE} {job}"


def resume(job: str) -> str:
    return f"scontrol resume {job}"


def continue_stopped(job: str) -> str:
    return f"scancel --signal=CONT {job}"
