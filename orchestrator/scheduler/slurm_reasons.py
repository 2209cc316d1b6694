"""Slurm's reasons for a job that waits, was refused or has ended, and their meaning, as data.

The reasons are squeue's (%r), the refusals sbatch's. Sources: Slurm's pages "Job Reason Codes" and
"Job State Codes", and slurm_errno.c.
"""

from __future__ import annotations

import re

from orchestrator.causes.cause import MACHINE, PROGRAM, RESUME, SYMPTOM, Cause
from orchestrator.causes.lines import cause_in
from orchestrator.scheduler import advice

START = advice.show_start("{job}")
SHOW = advice.show_job("{job}")
RELEASE = advice.release("{job}")

REASONS: tuple[Cause, ...] = (
    Cause("held_by_user", PROGRAM, RELEASE,
          "it is held by its user",
          "release it",
          "jobhelduser | job held by user"),
    Cause("held_by_admin", PROGRAM, SHOW,
          "it is held by an administrator",
          "ask who runs the cluster why",
          "job held by administrator | jobheld"),
    Cause("requeue_held", PROGRAM, RELEASE,
          "Slurm put it back in the queue and holds it",
          "look at the node that failed it, then release it",
          "requeued in held state | requeued held | launch_failed_requeued_held | requeue_hold | "
          "maxrequeue | "
          "special_exit"),
    Cause("account_invalid", PROGRAM, advice.ACCOUNTS,
          "the account may not be used here",
          "correct `account` in the site file",
          "invalidaccount | accountnotallowed | invalid account | account/partition combination | "
          "notallowed*account"),
    Cause("qos_invalid", PROGRAM, advice.QOS,
          "the QOS may not be used here",
          "correct `qos` in the site file",
          "invalidqos | qosnotallowed | invalid qos | qosusagethreshold"),
    Cause("qos_limit", SYMPTOM, advice.QOS,
          "a limit of its QOS is reached",
          "it starts when other jobs end, or ask for less",
          "qosmax | qosgrp | qosmin | qosresourcelimit | qosjoblimit | qostimelimit | violates "
          "accounting/qos policy | "
          "maxsubmitjobs | per-user limit | peraccount"),
    Cause("association_limit", SYMPTOM, advice.LIMITS,
          "a limit of its account or user is reached",
          "it starts when other jobs end, or ask for less",
          "assocgrp | assocmax | associationjoblimit | associationresourcelimit | "
          "associationtimelimit | accountingpolicy"),
    Cause("partition_down", PROGRAM, advice.PARTITIONS,
          "the partition takes no jobs to run now",
          "wait, or name another `partition` in the site file",
          "partitiondown | partitioninactive | partition is down | partition*drained | required "
          "partition not available"),
    Cause("partition_limit", PROGRAM, advice.PARTITIONS,
          "it asks for more nodes or time than the partition allows",
          "correct `time_limit`, nodes or `partition`",
          "partitionnodelimit | partitiontimelimit | requested time limit is invalid | exceeds "
          "partition | "
          "node count specification invalid | requested partition configuration not available | "
          "partitionconfig | requested nodes not in this partition | "
          "invalid time-min specification"),
    Cause("partition_invalid", PROGRAM, advice.PARTITIONS,
          "there is no such partition",
          "correct `partition` in the site file",
          "invalid partition | no partition specified or system"),
    Cause("wait_licenses", SYMPTOM, advice.LICENSES,
          "it waits for licenses",
          "it starts when they are free",
          "licenses"),
    Cause("reservation_invalid", PROGRAM, advice.RESERVATIONS,
          "the reservation may not be used, or has not started",
          "correct `reservation` in the site file",
          "reservationdeleted | reservation is invalid | ^reservation | resv_del_hold | "
          "reservation*not available | "
          "requested reservation"),
    Cause("nodes_unavailable", SYMPTOM, advice.BAD_NODES,
          "nodes that it needs are down, drained or reserved",
          "leave them out, or wait: who drained them returns them (scontrol update ... "
          "state=resume)",
          "reqnodenotavail | nodes required for job are down | nodedown | unavailablenodes | "
          "required node not available | "
          "frontenddown"),
    Cause("never_fits", PROGRAM, SHOW,
          "no node has the requested resources",
          "correct nodes, `gpu_request` and `sbatch` of the site",
          "more processors requested than permitted | badconstraints | ^constraints | "
          "node configuration is not available | feature specification | "
          "invalid generic resource | invalid gres | invalid trackable resource | insufficient "
          "gres | badnodelist | "
          "requested node configuration | maxmemperlimit | memory specification can not be "
          "satisfied | "
          "memory required by task is not available | invalid node name | cpu count specification "
          "invalid | "
          "cpu count per node can not be satisfied | topology configuration is not available | "
          "invalid license specification"),
    Cause("wait_dependency", SYMPTOM, SHOW,
          "it waits for another job",
          "it starts when that one ends",
          "dependency"),
    Cause("wait_begin", SYMPTOM, START,
          "its start time has not come",
          "it starts then",
          "begintime | deadline"),
    Cause("node_failed", MACHINE, RESUME,
          "Slurm lost a node of the job",
          "resume continues at the first missing run",
          "node_fail"),
    Cause("boot_failed", MACHINE, RESUME,
          "a node did not boot for the job",
          "resume continues at the first missing run",
          "boot_fail"),
    Cause("time_limit", MACHINE, RESUME,
          "the job's time limit was reached",
          "resume continues at the first missing run; `--time` gives the next job another limit",
          "timeout | ^timelimit"),
    Cause("preempted", MACHINE, RESUME,
          "a job with a higher priority pre-empted this job",
          "resume continues at the first missing run",
          "preempted"),
    Cause("host_out_of_memory", MACHINE, RESUME,
          "the memory of the job's cgroup is used up",
          "ask for all memory of the node (--mem=0)",
          "out_of_memory | ^outofmemory"),
    Cause("script_invalid", PROGRAM, RESUME,
          "Slurm cannot read the job script",
          "write the bundle anew; its lines must end as on Linux (dos2unix)",
          "dos line breaks | batch script is empty | not have a #! line | does not look like a "
          "batch script"),
    Cause("submission_denied", PROGRAM, advice.PARTITIONS,
          "this user may not submit there",
          "ask who runs the cluster",
          "access/permission denied | user's group not permitted | user not permitted | not "
          "permitted to use this partition"),
    Cause("controller_trouble", PROGRAM, advice.PING,
          "the Slurm controller cannot keep the job (its disk, its plugins)",
          "ask who runs the cluster",
          "i/o error writing script | plugin*not found*fail | slurmdbd*down | systemfailure | "
          "slurm internal error | "
          "unable to connect to database | incompatible versions of client and server"),
    Cause("submissions_off", SYMPTOM, advice.PING,
          "the cluster takes no new jobs now",
          "ask who runs the cluster until when",
          "submissions disabled"),
    Cause("launch_failed", PROGRAM, RESUME,
          "Slurm could not start the job's processes on a node",
          "can the job's user write the set's job_*.out? Otherwise look at slurmd's log and the "
          "prolog on that node, and leave the node out until then",
          "joblaunchfailure | prolog failed"),
    Cause("wait_configuring", SYMPTOM, START,
          "its nodes are made ready, or cleaned up after another job",
          "it starts then",
          "^prolog | ^cleaning | ^configuring | prologslurmctld"),
    Cause("slurm_credentials", MACHINE, RESUME,
          "Slurm's credentials were refused on a node",
          "are the clocks of the nodes the same, and does munge run on each?",
          "protocol authentication error | munge | credential"),
    Cause("scheduler_away", SYMPTOM, advice.PING,
          "the Slurm controller does not answer",
          "ask again later",
          "configuration source | _config_source | fetch_config | resolve_ctls | "
          "unable to contact slurm controller | socket timed out | rate limit exceeded | zero "
          "bytes were transmitted | "
          "standby mode | connection timed out | slurmctld"),
    Cause("wait_resources", SYMPTOM, START,
          "other jobs hold the nodes it needs",
          "it starts when they end",
          "resources | requested nodes are busy | powernotavail | powerreserved | "
          "jobarraytasklimit | burstbuffer"),
    Cause("wait_priority", SYMPTOM, START,
          "jobs with a higher priority come first",
          "it starts after them",
          "priority"),
)  # fmt: skip


_STEP_REFUSED = re.compile(
    r"\b(?:srun|salloc): (?:error: (?:Unable to (?:create step|allocate)|Job submit)"
    r"|(?:error|fatal): .{0,40}(?:config(?:uration)?[_ ]source|fetch_config|resolve_ctls))"
)


def refused_step(text: str) -> Cause | None:
    return cause_in(text, REASONS) if _STEP_REFUSED.search(text) else None


def with_meaning(reason: str) -> str:
    """Return `jobs with a higher priority come first (Priority)`."""
    cause = cause_in(reason, REASONS) if reason else None
    return f"{cause.sentence} ({reason})" if cause else reason
