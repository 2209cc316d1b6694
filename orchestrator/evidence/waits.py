"""Why Slurm delays, refuses or has ended a job, as data: its reasons (squeue's %r), sbatch's errors
and its job states.

From Slurm's pages "Job Reason Codes" and "Job State Codes", and the texts of slurm_errno.c; at the
end the loop's own reasons.
"""

from __future__ import annotations

from orchestrator.causes.cause import LEAVE_OUT, MACHINE, PROGRAM, RESUME, SYMPTOM, Cause
from orchestrator.causes.lines import cause_in

START = "squeue -j {job} --start"
SHOW = "scontrol show job {job}"
RELEASE = "scontrol release {job}"
LIMITS = "sacctmgr show assoc where user=$USER format=account,qos,maxjobs,grptres,maxtres"
QOS = "sacctmgr show qos format=name,maxjobspu,maxtrespu,grptres,maxwall"
PARTITION = "sinfo -o '%P %a %l %D %t'"

WAITS: tuple[Cause, ...] = (
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
    Cause("account_invalid", PROGRAM, "sacctmgr show assoc where user=$USER format=account,partition,qos",
          "the account is none that may be used here",
          "correct `account` in the site file",
          "invalidaccount | accountnotallowed | invalid account | account/partition combination | "
          "notallowed*account"),
    Cause("qos_invalid", PROGRAM, QOS,
          "the QOS is none that may be used here",
          "correct `qos` in the site file",
          "invalidqos | qosnotallowed | invalid qos | qosusagethreshold"),
    Cause("qos_limit", SYMPTOM, QOS,
          "a limit of its QOS is reached",
          "it starts when other jobs end, or ask for less",
          "qosmax | qosgrp | qosmin | qosresourcelimit | qosjoblimit | qostimelimit | violates "
          "accounting/qos policy | "
          "maxsubmitjobs | per-user limit | peraccount"),
    Cause("association_limit", SYMPTOM, LIMITS,
          "a limit of its account or user is reached",
          "it starts when other jobs end, or ask for less",
          "assocgrp | assocmax | associationjoblimit | associationresourcelimit | "
          "associationtimelimit | accountingpolicy"),
    Cause("partition_down", PROGRAM, PARTITION,
          "the partition takes no jobs to run now",
          "wait, or name another `partition` in the site file",
          "partitiondown | partitioninactive | partition is down | partition*drained | required "
          "partition not available"),
    Cause("partition_limit", PROGRAM, PARTITION,
          "it asks for more nodes or time than the partition allows",
          "correct `time_limit`, nodes or `partition`",
          "partitionnodelimit | partitiontimelimit | requested time limit is invalid | exceeds "
          "partition | "
          "node count specification invalid | more processors requested than permitted | "
          "requested partition configuration not available | partitionconfig | requested nodes not "
          "in this partition | "
          "invalid time-min specification"),
    Cause("partition_invalid", PROGRAM, PARTITION,
          "there is no such partition",
          "correct `partition` in the site file",
          "invalid partition | no partition specified"),
    Cause("wait_licenses", SYMPTOM, "scontrol show licenses",
          "it waits for licenses",
          "it starts when they are free",
          "licenses"),
    Cause("reservation_invalid", PROGRAM, "scontrol show reservation",
          "the reservation is none that may be used, or has not begun",
          "correct `reservation` in the site file",
          "reservationdeleted | reservation is invalid | ^reservation | resv_del_hold | "
          "reservation*not available | "
          "requested reservation"),
    Cause("nodes_unavailable", SYMPTOM, "sinfo -R",
          "nodes that it needs are down, drained or reserved",
          "leave them out, or wait until they are back",
          "reqnodenotavail | nodes required for job are down | nodedown | unavailablenodes | "
          "required node not available | "
          "frontenddown"),
    Cause("never_fits", PROGRAM, SHOW,
          "no node has what it asks for",
          "correct nodes, `gpu_request` and `sbatch` of the site",
          "badconstraints | ^constraints | node configuration is not available | feature "
          "specification | "
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
          "its begin time has not come",
          "it starts then",
          "begintime | deadline"),
    Cause("node_failed", MACHINE, RESUME,
          "Slurm lost a node of the job",
          "resume goes on at the first missing run",
          "node_fail"),
    Cause("boot_failed", MACHINE, RESUME,
          "a node did not boot for the job",
          "resume goes on at the first missing run",
          "boot_fail"),
    Cause("time_limit", MACHINE, RESUME,
          "the job's time limit was reached",
          "resume goes on at the first missing run",
          "timeout | ^timelimit"),
    Cause("preempted", MACHINE, RESUME,
          "the job was pre-empted by one with a higher priority",
          "resume goes on at the first missing run",
          "preempted"),
    Cause("host_out_of_memory", MACHINE, RESUME,
          "the memory of the job's cgroup is used up",
          "ask for all memory of the node (--mem=0)",
          "out_of_memory | ^outofmemory"),
    Cause("script_invalid", PROGRAM, RESUME,
          "the job script is none that Slurm can read",
          "write the bundle anew; its lines must end as on Linux (dos2unix)",
          "dos line breaks | batch script is empty | not have a #! line | does not look like a "
          "batch script"),
    Cause("submission_denied", PROGRAM, PARTITION,
          "this user may not submit there",
          "ask who runs the cluster",
          "access/permission denied | user's group not permitted | user not permitted | not "
          "permitted to use this partition"),
    Cause("controller_trouble", PROGRAM, "scontrol ping",
          "the Slurm controller cannot keep the job (its disk, its plugins)",
          "ask who runs the cluster",
          "i/o error writing script | plugin*not found*fail | slurmdbd*down | systemfailure | "
          "slurm internal error | "
          "unable to connect to database | incompatible versions of client and server"),
    Cause("submissions_off", SYMPTOM, "scontrol ping",
          "the cluster takes no new jobs now",
          "ask who runs the cluster until when",
          "submissions disabled"),
    Cause("launch_failed", PROGRAM, RESUME,
          "Slurm could not start the job's processes on a node",
          "look at slurmd's log and the prolog on that node; leave the node out until then",
          "joblaunchfailure | prolog failed"),
    Cause("wait_configuring", SYMPTOM, START,
          "its nodes are made ready, or cleaned up after another job",
          "it starts then",
          "^prolog | ^cleaning | ^configuring | prologslurmctld"),
    Cause("slurm_credentials", MACHINE, RESUME,
          "Slurm's credentials were refused on a node",
          "are the clocks of the nodes the same, and does munge run on each?",
          "protocol authentication error | munge | credential"),
    Cause("scheduler_away", SYMPTOM, "scontrol ping",
          "the Slurm controller does not answer",
          "ask again later",
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

OWN_WORDS: tuple[Cause, ...] = (
    Cause("run_timeout", SYMPTOM, "orchestrator logs {set} --run {run}",
          "a run did not end within its time-out",
          "it hung, or `run_timeout_s` is too short for it",
          "no run_stop within"),
    Cause("node_silent", SYMPTOM, RESUME,
          "a node went silent",
          "look at the node; resume takes another one",
          "went silent | no word for | it did not answer before run"),
    Cause("node_babbles", SYMPTOM, LEAVE_OUT,
          "a node sends what it should not",
          "look at what runs there: `python:` of the site, or a program that writes to the agent's "
          "output",
          "was given up: it | it sends too much"),
    Cause("container_ended", SYMPTOM, RESUME,
          "the container of a node ended under its run",
          "look at the engine's log on the node",
          "its container ended"),
    Cause("caches_kept", PROGRAM, RESUME,
          "a node cannot drop its caches",
          "run as root, give the site a sudo prefix, or set clear_caches: false",
          "or set clear_caches: false"),
    Cause("setting_lost", PROGRAM, RESUME,
          "a host setting does not hold",
          "`orchestrator tune verify` tells who changes it",
          " wanted * found "),
    Cause("state_unwritable", MACHINE, RESUME,
          "the set's folder cannot be written",
          "make room on the shared storage, or mount it again",
          "cannot write to "),
)  # fmt: skip
"""The loop's own reasons for the end of an attempt or a job."""


UNFIT = Cause(
    "node_unfit", PROGRAM, LEAVE_OUT, "a node failed a check", "mend it, or leave the node out", ""
)
"""One of our checks failed there, and has the details."""


def words_of(text: str) -> str:
    """Return Slurm's `text` after its meaning: `jobs with a higher priority come first
    (Priority)`."""
    cause = cause_in(text, WAITS) if text else None
    return f"{cause.sentence} ({text})" if cause else text
