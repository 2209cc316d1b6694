"""The nodes of a group, held for the life of the job: chosen, made ready, renewed, let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..kernel.events import UNIT, EventLog
from ..kernel.flow import Flow
from ..kernel.layout import group_name
from ..policy import place
from ..policy.judge import Agreement, agree, agree_on_facts
from ..policy.place import ClusterState
from ..policy.reports import NodeReport
from .checks import GroupChecks
from .context import JobContext
from .nodes import node_command
from .pulls import Pulls
from .record import GroupRecord
from .step import GroupStep, stalled_s


class Group:
    """Nodes that work together on one run at a time."""

    def __init__(
        self,
        job: JobContext,
        allocated: Sequence[str],
        number: int = 1,
        events: EventLog | None = None,
    ) -> None:
        """`events` is the event file of a group; the job's own where there is only one."""
        self.job, self.settings, self.number = job, job.settings, number
        self.name = group_name(job.job_id, number)
        self.record = GroupRecord(events or job.events)
        self.step = GroupStep(job, self.record, allocated)
        self.checks = GroupChecks(job, self.record, self.name)
        self.pulls = Pulls(job, self.record, self.step, number)
        self.at = 0, 0
        """The last run and attempt that began."""
        self.problem = ""
        """Why the nodes could not be made ready."""
        self.too_few = False
        self.image = ""
        self.rdma_expected = False
        self._choosing = False
        settings = {**vars(self.settings), "data": {}}  # decisions need none of the site's folders
        del settings["side_by_side"]  # a group's decisions are its own
        need = self.settings.nnodes
        about = {"allocated": list(allocated), "need": need, "settings": settings}
        self.record.note("begin", detail=about)

    @property
    def cluster(self) -> ClusterState:
        return self.record.cluster

    @property
    def is_at_work(self) -> bool:
        return self.step.is_at_work

    def begin(self, run: int, attempt: int) -> None:
        """Take note of the attempt that begins."""
        self.at = run, attempt

    def wait_for(self, word: str, nodes: Sequence[str]) -> Flow:
        """Wait until each of `nodes` has said `word` or has failed.

        Its value is False when the set is ending or the step has ended. The limit counts from the
        moment at which no node has to pull the image any more.
        """
        limit_s = self.settings.container_start_s + 30
        until = self.job.world.now()
        deadline = until + limit_s
        while not self.job.ending:
            now = self.job.world.now()  # once: this process may stand still at any step
            deadline += stalled_s(until, now)
            self.step.check_ended()
            if self.pulls.go_on():
                deadline = now + limit_s
            silent = self._unheard(word, nodes)
            if not silent:
                return True
            if now >= deadline:
                for node in silent:
                    self.record.fail(node, "silent", f"no word within {limit_s} s")
            elif not self.step.is_alive:
                last = self.step.complaints.last_lines
                words = f"the step ended without a word from {' '.join(silent)}: {last}"
                self.problem = place.describe_failures(self.cluster, nodes) or words
                return False
            else:
                until = self.step.next_check(min(deadline, now + 1))
                yield until
        return False

    def _unheard(self, word: str, nodes: Sequence[str]) -> list[str]:
        reports, failed = self.cluster.reports, self.cluster.failed
        return [node for node in nodes if word not in reports[node].messages and node not in failed]

    # ---- having nodes ready ----

    def make_ready(self) -> Flow:
        """Have as many nodes ready as the system has.

        Who is not fit is set aside as long as others can take its rank. Its value is True, or
        False: `problem` says why not.
        """
        again = True
        while True:
            self._ask_for_lost()
            self._reinforce()
            found = place.candidates(self.cluster)
            if isinstance(found, place.Pause):
                self.too_few, self.problem = True, found.reason
                return False
            before = len(self.cluster.excluded), dict(self.cluster.blamed)
            if (yield from self._start_and_choose(found)):
                return True
            self.checks.write()
            # Without any node too many, the set says what is wrong and ends.
            if self.job.check_for_end() or not self.job.has_spares:
                return False
            has_ended = not self.step.is_alive
            self._exclude_failed()
            if (len(self.cluster.excluded), self.cluster.blamed) == before:
                # Nothing tells whose fault it was: once more before the set has to stop.
                if not (has_ended and again):
                    return False
                again = False
                self.job.log(f"{self.problem}; once more")
            yield from self.release()

    def _ask_for_lost(self) -> None:
        """Put on record which nodes the scheduler has lost, or has back."""
        cluster = self.cluster
        lost = self.job.scheduler.lost(cluster.allocated)
        for node in cluster.allocated:
            if node in lost and cluster.lost.get(node) != lost[node]:
                self.record.note("lost", node, lost[node], self.job.scheduler.name)
            elif node in cluster.lost and node not in lost:
                self.record.note("back", node, source=self.job.scheduler.name)

    def _reinforce(self) -> None:
        """Take nodes that are left for all groups, as long as there are too few here."""
        pool = self.job.pool
        while pool and len(place.healthy(self.cluster)) < self.settings.nnodes:
            node = pool.pop(0)
            self.step.welcome(node)
            self.record.note("joined", node)
            self._ask_for_lost()

    def _start_and_choose(self, nodes: Sequence[str]) -> Flow:
        """Start the step that holds the nodes, and get those ready that are chosen."""
        first = self.cluster.generation == 0
        deep = first and self.settings.preflight_deep == 1
        self.problem = ""
        detail = {"generation": self.cluster.generation + 1, "nodes": list(nodes)}
        self.record.note("hold", detail=detail)
        self._choosing = deep or len(nodes) > self.settings.nnodes
        if not self._choosing:
            self._use(nodes)
        self.start(nodes, "hold")
        if self._choosing and not (yield from self._choose(nodes, first, deep)):
            return False
        return (yield from self._get_ready(nodes))

    def start(self, nodes: Sequence[str], action: str) -> None:
        """Start the step that holds `nodes` ("hold"), or only checks them ("check")."""
        self.checks.leave_marker()
        self.pulls.begin()
        job, ranks = self.job, self.cluster.workers or list(nodes)
        master = job.scheduler.master(ranks)
        # The first node has no way to itself; it looks at the way to the second.
        peer = ranks[1] if job.scheduler.spans_hosts and len(ranks) > 1 else master
        own = {
            "ORCH_SET_DIR": str(job.layout.root),
            "ORCH_JOB_ID": job.job_id,
            "ORCH_GENERATION": str(self.cluster.generation),
            "ORCH_GROUP": self.name,
            "ORCH_CHOOSE": "1" if self._choosing else "0",
            "ORCH_NODES": " ".join(ranks),
            "MASTER_ADDR": master,
            "ORCH_PEER": peer,
            **self.checks.environment,
        }
        self.step.start(nodes, node_command(job.settings.python, job.bundle, action), own)

    def _choose(self, nodes: Sequence[str], first: bool, deep: bool) -> Flow:
        """Hear and compare the nodes, and choose among them.

        Its value is False where that cannot be: `problem` says why.
        """
        if not (yield from self.wait_for("waits", nodes)):
            return False
        yield from self.checks.judging(nodes)
        self.problem = self._compare(self._unfailed(nodes))
        if self.problem:
            return False
        if deep and not (yield from self._measure(self._unfailed(nodes))):
            return False
        if self._use(nodes, first=first, tell=True):
            if self.cluster.failed and not self.job.check_for_end():
                self._exclude_failed()
            return True
        self.problem = place.describe_failures(self.cluster, nodes)
        return False

    def _unfailed(self, nodes: Sequence[str]) -> list[str]:
        return [node for node in nodes if node not in self.cluster.failed]

    def _use(self, nodes: Sequence[str], *, first: bool = False, tell: bool = False) -> bool:
        """Give the ranks to some of `nodes`; False when there are too few."""
        placement = place.choose(self.cluster, nodes, first=first)
        if placement is None:
            return False
        ranks = placement.ranks
        for old, new in zip(self.cluster.ranks, ranks):
            if old and old != new:
                self.job.log(f"node {new} takes the place of node {old}")
        placed = {**place.as_json(placement), "from": list(nodes), "first": first}
        self.record.note("placed", detail=placed)
        if tell:
            self.step.send({"do": "use", "nodes": list(ranks)})
            if placement.waiting:
                waiting = " ".join(placement.waiting)
                self.job.log(f"nodes {' '.join(ranks)}; waiting: {waiting}")
        self.job.write()
        return True

    def _get_ready(self, nodes: Sequence[str]) -> Flow:
        """Wait for the nodes in use. One that fails now gives its rank to a node that waits."""
        while True:
            workers = self.cluster.workers
            if not (yield from self._hear_ready(workers)):
                return False
            if not self.record.has_failed(workers):
                yield from self.job.meet(self.number)
                if self._agree(workers):
                    break
                if not self.record.has_failed(workers):
                    return False  # nobody can be replaced, or nobody in particular is to blame
            self.problem = place.describe_failures(self.cluster, nodes)
            if not self._choosing or self.job.check_for_end():
                return False
            self._exclude_failed()
            if not self._use(nodes, tell=True):
                return False
            self.problem = ""
        self.checks.write()
        self.order_ranks()
        return True

    def _hear_ready(self, workers: Sequence[str]) -> Flow:
        """Wait until `workers` are ready, and judged where that was not done to choose them."""
        if not (yield from self.wait_for("ready", workers)):
            return False
        if self._choosing:
            return True
        if self.checks.are_wanted and not (yield from self.wait_for("checked", workers)):
            return False
        yield from self.checks.judging(workers)
        return True

    def order_ranks(self) -> None:
        """Number the nodes as torchrun does, so that our rank 0 is its rank 0."""
        before, ranks = self.cluster.workers, place.in_order(self.cluster)
        if len(ranks) > 1:
            self.record.note("ordered", detail={"ranks": ranks})
        if ranks != before:
            self.job.log(f"ranks, in the order of the host names: {' '.join(ranks)}")
            self.job.write()

    def meeting(self) -> dict[str, Any]:
        """Return where the nodes in use meet.

        `master` is MASTER_ADDR, `hosts` are lines of /etc/hosts where these are wanted.
        """
        ranks, settings = self.cluster.workers, self.settings
        reports = {node: self.cluster.reports[node] for node in ranks}
        master = self.job.scheduler.master(ranks)
        if settings.launch_master == "address" and len(ranks) > 1:
            master = reports[ranks[0]].address or master
        hosts = []
        for node, report in reports.items():
            # A host that calls itself localhost has everybody's own name.
            full = node if report.host.startswith("localhost") else report.host or node
            if report.address and settings.launch_hosts:
                hosts.append(" ".join(dict.fromkeys((report.address, full, node))))
        return {"master": master, "hosts": hosts}

    # ---- whether they are alike ----

    def _compare(self, nodes: Sequence[str]) -> str:
        """Fail who is not like the others, before anybody is chosen.

        Return what stops the set, or "".
        """
        if self.settings.nnodes < 2 or len(nodes) < 2:
            return ""
        found = agree(self.cluster.reports, nodes, self.settings, None)
        self._take_differences(found)
        return "" if found.differing else found.problem

    def _agree(self, nodes: Sequence[str]) -> bool:
        """Whether the nodes in use, those of other groups included, are one experiment.

        That is the same image, network and facts.
        """
        found = agree(self.cluster.reports, nodes, self.settings, self.image)
        others = self.job.others(self.number)
        if others:
            found = self._agree_with(others, nodes, found)
        self.problem, self.rdma_expected = found.problem, found.rdma_expected
        self.image = found.image or self.image
        self.job.take_image(self.image)
        self._take_differences(found)
        return not found.problem

    def _agree_with(
        self, others: dict[str, NodeReport], nodes: Sequence[str], found: Agreement
    ) -> Agreement:
        """Return what the nodes in use and `others`, of other groups, agree on.

        `found`: what the nodes in use agree on alone.
        """
        job = self.job
        everyone = [node for node in job.scheduler.allocated if node in others or node in nodes]
        reports = {**self.cluster.reports, **others}
        among = agree(reports, everyone, self.settings, self.image or job.image)
        own = {node: text for node, text in among.differing.items() if node in nodes}
        problem = "; ".join(f"node {node}: {text}" for node, text in own.items())
        if self.number in job.behind:  # runs have begun without it, so most are not asked
            problem = problem or among.problem
        if not problem:  # like the others, or these have a problem of their own that hides this one
            problem, own = found.problem, found.differing
        return replace(
            found,
            problem=problem,
            differing=own,
            image="" if problem else found.image,
            warnings=among.warnings or found.warnings,
        )

    def _take_differences(self, found: Agreement) -> None:
        for warning in found.warnings:
            self.job.warn(warning)
        if self._choosing or self.job.pool:  # where nodes can be replaced, a different one is
            for node, text in found.differing.items():
                self.record.fail(node, "versions", text)

    def facts_now(self, nodes: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return (node or *, field, value) of what the nodes are now."""
        return agree_on_facts(self.cluster.reports, nodes, self.settings).rows

    def _measure(self, nodes: Sequence[str]) -> Flow:
        """Measure the bandwidth between the nodes; its value is False when the set is ending.

        Slow ones get a rank last, and none where others can take all.
        """
        if "deep" in self.settings.preflight_skip or not nodes:
            return True
        from .deep import measure

        verdict = yield from measure(self.job, nodes, self.job.layout.bandwidth(self.name))
        if self.job.ending:
            return False
        self.job.log(f"deep: {verdict.summary}")
        checks = {
            node: self.checks.take_deep(node, row, verdict.ms) for node, row in verdict.rows.items()
        }
        fast = [node for node in nodes if node not in verdict.slow]
        only_warns = "deep" in self.settings.preflight_warn or len(fast) < self.settings.nnodes
        for node in verdict.slow:
            self.record.note("slow", node)
            reason = f"check deep: {checks[node].sentence}"
            if only_warns:
                self.job.warn(f"{reason} ({node})")
            else:
                self.blame(node, "deep", reason)
        return True

    # ---- who is out ----

    def _exclude_failed(self) -> None:
        """Put those that failed aside, on record."""
        for node, (kind, reason) in list(self.cluster.failed.items()):
            if node not in self.cluster.excluded:
                self._note_excluded("aside", node, kind, reason)
                self.job.exclude(node, kind, reason, self.at)
                self.checks.take_failure(node, kind, reason)
        self.job.write()

    def _note_excluded(self, word: str, node: str, kind: str, reason: str) -> None:
        self.record.note(word, node, UNIT.join((kind, reason, *map(str, self.at))))

    def blame(self, node: str, kind: str, reason: str) -> bool:
        """A run died there, or nearly so; True when the attempt that it cost is free."""
        if not self.job.has_spares:
            return False
        if node not in self.cluster.blamed:
            self.job.exclude(node, kind, reason, self.at)
        self._note_excluded("blamed", node, kind, reason)
        self._reinforce()
        if not place.is_free(self.cluster, node):
            return False
        self.record.note("free", node)
        return True

    def repeats(self) -> bool:
        """Whether all has died alike so far, so that the next run would as well."""
        found = place.is_repeated(self.cluster, self.settings.max_attempts)
        if found:
            self.record.note("repeated")
        return found

    # ---- letting go ----

    def release(self) -> Flow:
        """End the containers and put the settings back."""
        if self.step.process is None:
            return
        self.record.note("release")
        if self.job.ending:
            self.step.send({"do": "end"})
        self.pulls.end()
        yield from self.step.closing()
        for warning in place.revert_problems(self.cluster):
            self.job.warn(warning)
