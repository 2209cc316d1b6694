"""Checks, comparison and image of a group's nodes before a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..kernel.events import UNIT
from ..kernel.files import raise_if_away
from ..kernel.plural import count
from ..kernel.records import replace as replace_file
from ..kernel.waiting import Flow
from ..policy.check_names import OUTCOMES
from ..policy.judge import Agreement, agree, judge_checks
from ..policy.place import lacking, next_to_pull
from ..policy.reports import Check, NodeReport
from ..policy.verdict import Row, table
from .batch_job import BatchJob, GroupRecord
from .step import GroupStep


class CheckResults:
    """The results of a job's checks, of all its groups: a node can join another group."""

    def __init__(self) -> None:
        self._rows: dict[str, dict[str, Check]] = {}
        """Node -> check -> result."""

    def judge(self, node: str, checks: Sequence[Check]) -> None:
        """Replace the results of a node, but keep those of its other failures."""
        before = self._rows.get(node, {})
        kept = {name: check for name, check in before.items() if name in OUTCOMES}
        self._rows[node] = {**{check.name: check for check in checks}, **kept}

    def add(self, node: str, check: Check) -> None:
        self._rows.setdefault(node, {})[check.name] = check

    def write(self, job: BatchJob) -> None:
        if not self._rows:
            return
        rows = [
            Row(node, *check) for node, checks in self._rows.items() for check in checks.values()
        ]
        try:
            job.world.files.make_folder(job.layout.preflight, exist_ok=True)
            path = job.layout.checks(job.job_id)
            replace_file(path, table(rows).encode(), sync=False, files=job.world.files)
        except OSError as error:
            job.log(f"error: cannot write the checks: {error.strerror}")


class GroupChecks:
    """The checks of a group's nodes. Markers are files that test the shared storage."""

    def __init__(
        self, job: BatchJob, record: GroupRecord, name: str, results: CheckResults
    ) -> None:
        self._job, self._record, self._name = job, record, name
        self._results = results
        self._marker = self._text = ""

    @property
    def are_wanted(self) -> bool:
        return self._job.settings.preflight_run == 1

    # ---- shared storage ----

    def leave_marker(self) -> None:
        """Write a marker for the nodes of the next step."""
        self._marker = ""
        if not self.are_wanted:
            return
        job, folder = self._job, self._job.layout.preflight
        marker = folder / f".seen-{self._name}-{self._record.state.orders.generation}"
        self._text = job.world.token()
        try:
            job.world.files.make_folder(folder, exist_ok=True)
            job.world.files.write(marker, f"{self._text}\n".encode())
            self._marker = str(marker)
        except OSError as error:
            self._warn(f"write {marker}", error)

    def _warn(self, cannot: str, error: OSError) -> None:
        consequence = "the nodes' view of shared storage is not checked"
        self._job.log(f"WARNING: cannot {cannot} ({error.strerror}); {consequence}")

    def take_marker(self, marker: str, text: str) -> None:
        self._marker, self._text = marker, text

    @property
    def environment(self) -> dict[str, str]:
        return {"ORCH_MARKER": self._marker, "ORCH_MARKER_TEXT": self._text}

    def see_markers(self, nodes: Sequence[str]) -> Flow:
        """Record nodes whose markers stay invisible for a check's limit; none if the storage of
        this host is away."""
        if not self._marker:
            return
        now = self._job.world.now
        deadline = now() + self._job.settings.preflight_check_s
        reports = self._record.state.reports
        verdicts = {node: reports[node].checks.get("log_dir") for node in nodes}
        missing = [node for node, row in verdicts.items() if row and row.verdict == "pass"]
        away: OSError | None = None
        while missing and not self._job.ending.state:
            with suppress(OSError):  # NFS reads the folder again
                self._job.world.files.names(self._job.layout.preflight)
            try:
                missing, away = [node for node in missing if not self._sees(node)], None
            except OSError as error:
                away = error
            if not missing or now() >= deadline:
                break
            yield now() + 0.1
        if away is not None:
            self._warn(f"read {self._marker}", away)
            missing = []
        for node in missing:
            self._record.note("unseen", node)
        self.remove_markers()

    def _sees(self, node: str) -> bool:
        """Raises OSError if the storage of this host is away."""
        marker = f"{self._marker}.{node}"
        try:
            text, _ = self._job.world.files.read_with_time(marker, 100)
        except OSError as error:
            raise_if_away(marker, error)
            return False
        return text.partition(b"\n")[0].strip() == self._text.encode()

    def remove_markers(self) -> None:
        if not self._marker:
            return
        files = self._job.world.files
        folder, name = os.path.split(self._marker)
        with suppress(OSError):
            for marker in files.names(folder):
                if marker.startswith(name):
                    files.remove(os.path.join(folder, marker))
        self._marker = ""

    # ---- verdicts ----

    def judging(self, nodes: Sequence[str]) -> Flow:
        """Unfit nodes fail."""
        if not self.are_wanted:
            return
        yield from self.see_markers(nodes)
        reports = self._record.state.reports
        judged = judge_checks(
            {node: reports[node] for node in nodes}, self._job.settings, rdma=False
        )
        self._record.note("judged", detail={"nodes": list(nodes), "failed": judged.failed})
        for node, rows in judged.rows.items():
            self._results.judge(node, rows)
        for warning in judged.warnings:
            self._job.warn(warning)
        for node, reason in judged.failed.items():
            self._record.fail(node, "check", reason)

    def take_deep(self, node: str, verdict: Sequence[str], ms: int) -> Check:
        """`verdict`: verdict, text, remedy."""
        check = Check("deep", verdict[0], ms, verdict[1], verdict[2])
        detail = (check.name, check.verdict, str(check.ms), check.text, check.remedy)
        self._record.note("deep", node, UNIT.join(detail))
        self._results.add(node, check)
        return check

    def take_failure(self, node: str, kind: str, reason: str) -> None:
        names: Mapping[str, str] = {"check": "verdict", "tunables": "tunables"}
        self._results.add(node, Check(names.get(kind, "container"), "fail", 0, reason))

    def write(self) -> None:
        self._results.write(self._job)


class NodeComparison:
    """Compares a group's nodes, also with those of other groups."""

    def __init__(self, job: BatchJob, record: GroupRecord, group: int) -> None:
        self._job, self._record, self._group = job, record, group
        self.rdma_expected = False
        """The ready nodes have RDMA for their runs."""

    def of_waiting(self, nodes: Sequence[str]) -> str:
        """Fail nodes unlike the others; return why the set stops, or ""."""
        if self._job.settings.nnodes < 2 or len(nodes) < 2:
            return ""
        agreement = agree(self._record.state.reports, nodes, self._job.settings, None)
        self._take_differences(agreement, replaceable=True)
        return "" if agreement.differing else agreement.problem

    def of_ready(self, nodes: Sequence[str], *, replaceable: bool) -> str:
        """Compare all nodes of all groups; return why `nodes` cannot run, or "". If `replaceable`,
        nodes unlike the others fail."""
        job = self._job
        agreement = agree(self._record.state.reports, nodes, job.settings, job.shared.image)
        others = job.others(self._group)
        if others:
            agreement = self._include(others, nodes, agreement)
        self.rdma_expected = agreement.rdma_expected
        job.shared.take_image(agreement.image)
        self._take_differences(agreement, replaceable=replaceable)
        return agreement.problem

    def _include(
        self, others: dict[str, NodeReport], nodes: Sequence[str], agreement: Agreement
    ) -> Agreement:
        """Include `others`, the nodes of other groups."""
        job = self._job
        everyone = [node for node in job.allocation.allocated if node in others or node in nodes]
        reports = {**self._record.state.reports, **others}
        among_all = agree(reports, everyone, job.settings, job.shared.image)
        differing = {node: text for node, text in among_all.differing.items() if node in nodes}
        problem = "; ".join(f"node {node}: {text}" for node, text in differing.items())
        if self._group in job.shared.behind:  # others have started runs and are the reference
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

    def _take_differences(self, agreement: Agreement, *, replaceable: bool) -> None:
        for warning in agreement.warnings:
            self._job.warn(warning)
        if replaceable or self._job.shared.pool:
            for node, text in agreement.differing.items():
                self._record.fail(node, "versions", text)


PULL_GRACE_S = 60.0
"""Nodes end a pull at the limit; after this time more, it fails."""


class Pulls:
    """A group's pulls; a job's groups share the limit."""

    def __init__(self, job: BatchJob, record: GroupRecord, step: GroupStep, group: int) -> None:
        self._job, self._record, self._step, self._group = job, record, step, group
        self._deadlines: dict[str, float] = {}
        """Pulling node -> its limit (World.now)."""

    def begin(self) -> None:
        self._deadlines = {}

    def advance(self) -> bool:
        """Start the next pulls; return whether any node lacks the image."""
        job, state = self._job, self._record.state
        at_once = job.settings.pull_at_once - job.shared.pulls_of_others(self._group)
        for node in next_to_pull(state, at_once):
            self._start(node, at_once)
        for node in lacking(state):
            if job.world.now() >= self._deadlines.get(node, float("inf")):
                reason = f"its pull did not end within {count(job.settings.pull_minutes, 'minute')}"
                self._record.fail(node, "image", reason)
        remaining = lacking(state)
        job.shared.set_pulls(self._group, sum(node in state.orders.pulling for node in remaining))
        return bool(remaining)

    def _start(self, node: str, at_once: int) -> None:
        job = self._job
        self._record.note("pull", node, str(at_once))
        self._step.send({"do": "pull", "nodes": [node]})
        limit_s = 60 * job.settings.pull_minutes
        self._deadlines[node] = job.world.now() + limit_s + PULL_GRACE_S
        job.log(f"node {node} pulls the image {job.settings.cont}")

    def end(self) -> None:
        """Leave the registry to the other groups."""
        self._job.shared.end_pulls(self._group)
