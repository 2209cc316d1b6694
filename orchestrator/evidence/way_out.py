"""The way out of a failure: another command, if the usual one would repeat it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.causes.cause import LEAVE_OUT
from orchestrator.evidence.explanation import NODE_LOG, RUN_LOG, UNKNOWN, Explanation, Wording
from orchestrator.evidence.failures import AttemptEvidence, FailedAttempts, failed_alone, failed_in
from orchestrator.scheduler.kinds import kind_of

_OF_A_NODE = frozenset({"killed", "crash", "log_missing"})
"""Causes that blame a node that failed first in each attempt, as does an end without any line."""


def way_out(explanation: Explanation, failures: FailedAttempts, wording: Wording) -> Explanation:
    """Return the explanation with a command that does not repeat the failure.

    A node that alone failed alike in every attempt is left out of a complete set. If the run failed
    alike in an earlier job, the log is next: the program or a setting is wrong.
    """
    last = failures.last
    of_a_node = explanation.cause in _OF_A_NODE or (
        explanation.cause == UNKNOWN and not explanation.remedy
    )
    if last is None or not of_a_node:
        return explanation
    jobs = failures.by_job(last)
    movable = _may_leave_out(last, failures)
    always = movable and failed_alone(
        explanation.node, [attempt for job in jobs for attempt in job]
    )
    is_bad = always or (movable and failed_alone(explanation.node, jobs[-1]))
    alike = [failed_in(job) for job in jobs[:-1] if job[-1].is_like(last)]
    others = [node for node in dict.fromkeys(alike) if node not in ("", explanation.node)]
    if alike and (others or explanation.node in alike or not is_bad):
        return _to_the_log(explanation, last, others if is_bad else None, wording)
    if is_bad and failures.picture.state == "complete":
        return _leave_out(explanation, last, jobs, "run" if always else "last job", wording)
    return explanation


def _may_leave_out(last: AttemptEvidence, failures: FailedAttempts) -> bool:
    """Return whether another job could do without a node of an attempt."""
    record = failures.picture.record
    return record is not None and kind_of(record.scheduler).allocates and len(last.record.nodes) > 1


def _to_the_log(
    explanation: Explanation, last: AttemptEvidence, others: list[str] | None, wording: Wording
) -> Explanation:
    """`others`: the nodes that failed alike before; None if no single node failed now."""
    if others is None:
        remedy = "it failed alike before: the cause is in the program or its settings"
    elif others:
        who = " and ".join([*others, explanation.node])
        remedy = f"{who} failed alike before: the cause is in the program or its settings"
    else:
        remedy = f"{explanation.node} failed alike in an earlier job: leave it out, or repair it"
    log = last.logs.get(explanation.node)
    template = NODE_LOG if log and log.text.strip() else RUN_LOG
    command = wording.command(template, explanation.node, last.record)
    return replace(explanation, remedy=remedy, next=command)


def _leave_out(
    explanation: Explanation,
    last: AttemptEvidence,
    jobs: Sequence[Sequence[AttemptEvidence]],
    of: str,
    wording: Wording,
) -> Explanation:
    """Leave a node out of the next job, with those that the last job left out."""
    before = [failed_in(job) for job in jobs[:-1]]
    excluded = [node for node in before if node and node not in last.record.nodes]
    command = wording.command(LEAVE_OUT, ",".join(dict.fromkeys([*excluded, explanation.node])))
    why = f"{explanation.node} failed in every attempt of the {of}: leave it out"
    return replace(
        explanation, remedy="; ".join(filter(None, (why, explanation.remedy))), next=command
    )
