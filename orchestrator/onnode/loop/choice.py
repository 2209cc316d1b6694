"""The choice of a group's nodes: compared, measured, given ranks, excluded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..kernel.layout import group_name
from ..kernel.waiting import Flow
from ..policy import place
from ..policy.judge import Agreement, agree
from ..policy.place import GroupState
from ..policy.reports import NodeReport
from .checks import GroupChecks
from .context import JobContext
from .record import GroupRecord
from .step import GroupStep


class GroupChoice:
    """Decides which of a group's nodes work, and their ranks."""

    def __init__(
        self,
        job: JobContext,
        record: GroupRecord,
        step: GroupStep,
        checks: GroupChecks,
        number: int,
    ) -> None:
        """`number`: the group's."""
        self._job, self._record, self._step = job, record, step
        self._checks, self._number = checks, number
        self.is_open = False
        """Ranks follow the checks: nodes without a rank can replace others."""
        self.image = ""
        self.rdma_expected = False

    @property
    def _state(self) -> GroupState:
        return self._record.state

    def begin(self, nodes: Sequence[str], *, deep: bool) -> None:
        """Assign the ranks, unless there are more `nodes` than needed or a bandwidth test
        follows."""
        self.is_open = deep or len(nodes) > self._job.settings.nnodes
        if not self.is_open:
            self.use(nodes)

    def update_lost(self) -> None:
        state, source = self._state, self._job.allocation.name
        lost = self._job.allocation.lost(state.allocated)
        if lost is None:
            return
        for node in state.allocated:
            if node in lost and state.lost.get(node) != lost[node]:
                self._record.note("lost", node, lost[node], source)
            elif node in state.lost and node not in lost:
                self._record.note("back", node, source=source)

    def reinforce(self) -> None:
        """Take unassigned nodes if there are too few here."""
        shared = self._job.shared
        while shared.pool and len(place.healthy(self._state)) < self._job.settings.nnodes:
            node = shared.take_node()
            self._step.add_node(node)
            self._record.note("joined", node)
            self.update_lost()

    def unfailed(self, nodes: Sequence[str]) -> list[str]:
        return [node for node in nodes if node not in self._state.failed]

    def use(self, nodes: Sequence[str], *, first: bool = False, send: bool = False) -> bool:
        """Assign the ranks, and `send` them to the nodes; False with too few nodes."""
        placement = place.choose(self._state, nodes, first=first)
        if placement is None:
            return False
        ranks = placement.ranks
        for old, new in zip(self._state.ranks, ranks):
            if old and old != new:
                self._job.log(f"node {new} takes the place of node {old}")
        placed = {**place.as_json(placement), "from": list(nodes), "first": first}
        self._record.note("placed", detail=placed)
        if send:
            self._step.send({"do": "use", "nodes": list(ranks)})
            if placement.waiting:
                waiting = " ".join(placement.waiting)
                self._job.log(f"nodes {' '.join(ranks)}; waiting: {waiting}")
        self._job.write()
        return True

    # ---- comparing nodes ----

    def compare_waiting(self, nodes: Sequence[str]) -> str:
        """Fail nodes unlike the others; return why the set stops, or ""."""
        if self._job.settings.nnodes < 2 or len(nodes) < 2:
            return ""
        agreement = agree(self._state.reports, nodes, self._job.settings, None)
        self._take_differences(agreement)
        return "" if agreement.differing else agreement.problem

    def compare_ready(self, nodes: Sequence[str]) -> str:
        """Compare all nodes of all groups; return why the nodes cannot run, or ""."""
        agreement = agree(self._state.reports, nodes, self._job.settings, self.image)
        others = self._job.others(self._number)
        if others:
            agreement = self._agree_with(others, nodes, agreement)
        self.rdma_expected = agreement.rdma_expected
        self.image = agreement.image or self.image
        self._job.shared.take_image(self.image)
        self._take_differences(agreement)
        return agreement.problem

    def _agree_with(
        self, others: dict[str, NodeReport], nodes: Sequence[str], agreement: Agreement
    ) -> Agreement:
        """Include `others`, the nodes of other groups."""
        job = self._job
        everyone = [node for node in job.allocation.allocated if node in others or node in nodes]
        reports = {**self._state.reports, **others}
        among_all = agree(reports, everyone, job.settings, self.image or job.shared.image)
        differing = {node: text for node, text in among_all.differing.items() if node in nodes}
        problem = "; ".join(f"node {node}: {text}" for node, text in differing.items())
        if self._number in job.shared.behind:  # others have started runs and are the reference
            problem = problem or among_all.problem
        if not problem:  # alike, or the others have the problem
            problem, differing = agreement.problem, agreement.differing
        return replace(
            agreement,
            problem=problem,
            differing=differing,
            image="" if problem else agreement.image,
            warnings=among_all.warnings or agreement.warnings,
        )

    def _take_differences(self, agreement: Agreement) -> None:
        for warning in agreement.warnings:
            self._job.warn(warning)
        if self.is_open or self._job.shared.pool:  # replaceable
            for node, text in agreement.differing.items():
                self._record.fail(node, "versions", text)

    def measure(self, nodes: Sequence[str]) -> Flow:
        """Slow nodes are the last choice. Value: False if the set is ending."""
        job, settings = self._job, self._job.settings
        if "deep" in settings.preflight_skip or not nodes:
            return True
        from .deep import measure  # only some bundles have it

        table = job.layout.bandwidth(group_name(job.job_id, self._number))
        verdict = yield from measure(job, nodes, table)
        if job.end_state:
            return False
        job.log(f"deep: {verdict.summary}")
        checks = {
            node: self._checks.take_deep(node, row, verdict.ms)
            for node, row in verdict.rows.items()
        }
        fast = [node for node in nodes if node not in verdict.slow]
        only_warns = "deep" in settings.preflight_warn or len(fast) < settings.nnodes
        for node in verdict.slow:
            self._record.note("slow", node)
            reason = f"check deep: {checks[node].sentence}"
            if only_warns:
                job.warn(f"{reason} ({node})")
            else:
                self.blame(node, "deep", reason)
        return True

    # ---- excluding nodes ----

    def exclude_failed(self, *, may_retry: bool) -> bool:
        """Exclude failed nodes. False if the job is ending, or may be: without the scheduler's
        answer, nodes that it may have ended get another try if `may_retry`."""
        is_ending = self._job.check_for_end()
        if is_ending or (is_ending is None and may_retry and place.may_be_ended(self._state)):
            return False
        for node, (kind, reason) in list(self._state.failed.items()):
            if node not in self._state.excluded:
                self._record.note_with_attempt("aside", node, kind, reason)
                self._job.exclude(node, kind, reason, self._record.last)
                self._checks.take_failure(node, kind, reason)
        self._job.write()
        return True

    def blame(self, node: str, kind: str, reason: str) -> bool:
        """Use a node only if too few others are left; return whether its attempt does not count.

        Without spares nothing is recorded: all nodes are needed.
        """
        if not self._job.has_spares:
            return False
        if node not in self._state.blamed:
            self._job.exclude(node, kind, reason, self._record.last)
        self._record.note_with_attempt("blamed", node, kind, reason)
        self.reinforce()
        if not place.is_free(self._state, node):
            return False
        self._record.note("free", node)
        return True
