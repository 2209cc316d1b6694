"""Is the holder of a lease gone? Decided from its record, the viewer, and the sources' answers.

It is gone if its kernel reports so, or if its lease is `STALE_S` old by the file server's clock and
a scheduler that could see its job does not. Invisible from another cluster, user or host, it is
unknown.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..kernel.holder import Holder

STALE_S = 90.0
"""An NFS client may show times up to a minute old (acregmax)."""

ALIVE, GONE, WAIT, UNKNOWN = "alive", "gone", "wait", "unknown"


@dataclass(frozen=True)
class Observation:
    process: bool | None
    """The kernel's answer, if any."""
    job: bool | None
    """The scheduler's answer, if any."""
    age_s: float
    """Since its last beat, by the file server's clock."""


@dataclass(frozen=True)
class HolderVerdict:
    """`word`: ALIVE, GONE, UNKNOWN, or WAIT: gone after `wait_s` without a beat."""

    word: str
    why: str
    wait_s: float = 0.0

    @property
    def gone(self) -> bool:
        return self.word == GONE


def same_kernel(holder: Holder, viewer: Holder) -> bool:
    """In the same kernel and namespace, answers about processes are certain."""
    return bool(holder.boot) and (holder.boot, holder.pids) == (viewer.boot, viewer.pids)


def unseen(holder: Holder, viewer: Holder) -> str:
    """Return why a live holder may be invisible to the viewer, or "".

    Slurm hides other users' jobs (PrivateData=jobs), the kernel their processes (hidepid).
    """
    if holder.cluster and holder.cluster != viewer.cluster:
        here = viewer.cluster or "not known to be one"
        return f"it is of cluster {holder.cluster}, and this is {here}"
    if holder.uid >= 0 and viewer.uid not in (0, holder.uid):
        return "it is another user's, whose jobs may not be shown to you"
    if holder.job.startswith("local-") and holder.host != viewer.host:
        return f"it runs on {holder.host}, which cannot be seen from {viewer.host}"
    return ""


def judge(
    holder: Holder, viewer: Holder, seen: Observation, stale_s: float = STALE_S
) -> HolderVerdict:
    if same_kernel(holder, viewer) and seen.process is not None:
        if seen.process:
            return HolderVerdict(ALIVE, "its process is at work")
        return HolderVerdict(GONE, "its process is over")
    age = f"it was heard of {max(0, seen.age_s):.0f} s ago"
    left_s = stale_s - seen.age_s
    job = seen.job
    if holder.job and holder.job == viewer.job and holder.restart < viewer.restart:
        job = False  # restarted by Slurm
    elif hidden := unseen(holder, viewer) if holder.job and not job else "":
        if left_s > 0:
            return HolderVerdict(ALIVE, age)
        return HolderVerdict(UNKNOWN, f"{hidden}; {age}")
    elif holder.job.startswith("local-"):
        job = False  # a host has no such process after a reboot
    if job:
        return HolderVerdict(ALIVE, "the scheduler shows its job")
    if holder.job and job is None:
        return HolderVerdict(UNKNOWN, f"the scheduler does not answer; {age}")
    if left_s > 0:
        return HolderVerdict(WAIT, age, left_s)
    return HolderVerdict(GONE, age)
