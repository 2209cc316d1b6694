"""Whether the holder of a lease is gone. Pure functions of what is on record, who looks, and what each source says.

A holder is gone when the kernel that it ran on says so, or when who can see its job says that there is none and it was not heard
of for `STALE_S`, by the file server's clock. What is not seen from another cluster, user or host is unknown, never gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..kernel.holder import Holder

STALE_S = 90.0
"""Without a beat for so long a holder is silent: an NFS client may show a time that is a minute old (acregmax)."""

ALIVE, GONE, WAIT, UNKNOWN = "alive", "gone", "wait", "unknown"


@dataclass(frozen=True)
class Observation:
    """What is seen of a holder: its process by this kernel, its job by the scheduler that is asked here (None: no word of it), and
    how long ago it was heard of, in seconds of the file server's clock."""

    process: bool | None
    job: bool | None
    age_s: float


@dataclass(frozen=True)
class HolderVerdict:
    """`word`: ALIVE, GONE, UNKNOWN, or WAIT: it will count as gone in `wait_s` when nothing more is heard of it."""

    word: str
    why: str
    wait_s: float = 0.0

    @property
    def gone(self) -> bool:
        return self.word == GONE


def same_kernel(one: Holder, other: Holder) -> bool:
    """Whether both are processes of one kernel, in one namespace: what that kernel says of them is certain."""
    return bool(one.boot) and (one.boot, one.pids) == (other.boot, other.pids)


def unseen(holder: Holder, viewer: Holder) -> str:
    """Why the viewer's scheduler, or kernel, does not show this holder though it may be alive; "" when it would show it.

    Slurm hides the jobs of other users with PrivateData=jobs, and the kernel their processes with hidepid.
    """
    if holder.cluster and holder.cluster != viewer.cluster:
        return f"it is of cluster {holder.cluster}, and this is {viewer.cluster or 'not known to be one'}"
    if holder.uid >= 0 and viewer.uid not in (0, holder.uid):
        return "it is another user's, whose jobs may not be shown to you"
    if holder.job.startswith("local-") and holder.host != viewer.host:
        return f"it runs on {holder.host}, which cannot be seen from {viewer.host}"
    return ""


def judge(
    holder: Holder, viewer: Holder, sight: Observation, stale_s: float = STALE_S
) -> HolderVerdict:
    """Return what has become of a holder."""
    if same_kernel(holder, viewer) and sight.process is not None:
        return (
            HolderVerdict(ALIVE, "its process is at work")
            if sight.process
            else HolderVerdict(GONE, "its process is over")
        )
    heard, left_s = f"it was heard of {max(0, sight.age_s):.0f} s ago", stale_s - sight.age_s
    job = sight.job
    if holder.job and holder.job == viewer.job and holder.restart < viewer.restart:
        job = False  # Slurm has started this job again
    elif hidden := unseen(holder, viewer) if holder.job and not job else "":
        return (
            HolderVerdict(ALIVE, heard)
            if left_s > 0
            else HolderVerdict(UNKNOWN, f"{hidden}; {heard}")
        )
    elif holder.job.startswith("local-"):
        job = False  # a machine of this name that was booted since has no such process
    if job:
        return HolderVerdict(ALIVE, "the scheduler shows its job")
    if holder.job and job is None:
        return HolderVerdict(UNKNOWN, f"the scheduler does not answer; {heard}")
    if left_s > 0:
        return HolderVerdict(WAIT, heard, left_s)
    return HolderVerdict(GONE, heard)
