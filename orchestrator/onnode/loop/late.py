"""Before a run begins: whether the job's time limit leaves enough for it."""

from __future__ import annotations

from ..policy.queue import fits
from .hold import Group
from .work import SetWork


def too_late(job: SetWork, group: Group, left: int) -> str:
    """Return why none of the `left` runs is begun any more, "" where one can end in time; the decision is on record.

    How long a run takes is not known before it has ended: only one that is longer than the shortest so far is certain not to fit.
    The first run of a job is always begun: a clock that stepped, or a loop that stood still, may have made the only time that
    is known far too long, and then no job would ever begin another run.
    """
    if not job.diary.run:
        return ""
    records = [job.folder.run_state(run) for run in range(1, job.folder.record.nexp + 1)]
    took = [
        (one.end_ms - one.start_ms) / 1000
        for one in records
        if one is not None and one.done and one.start_ms
    ]
    left_s, needs_s = job.scheduler.seconds_left() if took else None, min(took, default=0)
    if left_s is None or fits(left_s, needs_s):
        return ""
    group.record.note("late", detail={"left_s": left_s, "needs_s": needs_s})
    return (
        f"{left} of {job.folder.record.nexp} runs are left; a run takes {needs_s / 60:.0f} min at least, and the job's time limit"
        f" leaves {left_s / 60:.0f}; `{job.resume_command}` does them in another job"
    )
