"""A group's nodes during the job: chosen, made ready, renewed, excluded, released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..kernel.events import EventLog
from ..kernel.layout import group_name
from ..kernel.node_names import fold
from ..kernel.waiting import Flow
from ..policy import place
from ..policy.judge import agree_on_facts
from ..policy.place import GroupState
from .batch_job import BatchJob, GroupRecord
from .checks import CheckResults, GroupChecks, NodeComparison, Pulls
from .step import GroupStep, NodeDeadline


class Group:
    """Nodes that work together, on a run at a time."""

    def __init__(
        self,
        job: BatchJob,
        allocated: Sequence[str],
        events: EventLog,
        number: int = 1,
        results: CheckResults | None = None,
    ) -> None:
        """`results`: of all groups' checks; without other groups a new one."""
        self.job, self.settings, self.number = job, job.settings, number
        self.name = group_name(job.job_id, number)
        self.record = GroupRecord(events)
        self.step = GroupStep(job, self.record, allocated)
        self.checks = GroupChecks(job, self.record, self.name, results or CheckResults())
        self.comparison = NodeComparison(job, self.record, number)
        self.pulls = Pulls(job, self.record, self.step, number)
        self.problem = ""
        """Why the nodes are not ready."""
        self.too_few = False
        self._retries = 0
        """Remaining starts without a newly excluded node."""
        self._ranks_follow = False
        """Ranks follow the checks: until the nodes are ready, others can replace them."""
        settings = {**vars(self.settings), "data": {}}  # decisions need no folders
        del settings["side_by_side"]  # a group decides for itself
        need = self.settings.nnodes
        about = {"allocated": list(allocated), "need": need, "settings": settings}
        self.record.note("begin", detail=about)

    @property
    def state(self) -> GroupState:
        return self.record.state

    @property
    def is_at_work(self) -> bool:
        return self.step.is_at_work

    # ---- making nodes ready ----

    def make_ready(self) -> Flow:
        """Make the system's number of nodes ready; exclude unfit nodes while others remain.

        Value: False on failure; `problem` has the reason.
        """
        self._retries = 1
        while True:
            self._update_lost()
            self._reinforce()
            nodes = place.candidates(self.state)
            if isinstance(nodes, place.Pause):
                self.too_few, self.problem = True, nodes.reason
                return False
            before = place.unusable(self.state)
            if (yield from self._start_and_choose(nodes)):
                return True
            self.checks.write()
            # All are needed: the set reports the problem and ends.
            if not self.job.can_replace_nodes:
                self.job.ending.check()
                return False
            step_ended = not self.step.is_alive
            is_clear = self._exclude_failed()
            if self.job.ending.state:
                return False
            if place.unusable(self.state) == before:
                if not (self._retries and (step_ended or not is_clear)):
                    return False  # no node is to blame
                self._retries -= 1
                self.job.log(f"{self.problem}; once more")
            yield from self.release()

    def _start_and_choose(self, nodes: Sequence[str]) -> Flow:
        first = self.state.orders.generation == 0
        deep = first and self.settings.preflight_deep == 1
        self.problem = ""
        detail = {"generation": self.state.orders.generation + 1, "nodes": list(nodes)}
        self.record.note("hold", detail=detail)
        # Otherwise each node has a rank from the start.
        self._ranks_follow = deep or len(nodes) > self.settings.nnodes
        if not self._ranks_follow:
            self._use(nodes)
        self.start(nodes, "hold")
        if self._ranks_follow and not (yield from self._choose(nodes, first, deep)):
            return False
        return (yield from self._get_ready(nodes))

    def start(self, nodes: Sequence[str], action: str) -> None:
        """Start a step that holds `nodes` (`action` "hold") or checks them ("check")."""
        self.checks.leave_marker()
        self.pulls.begin()
        command = self.job.program.command(self.job.settings.python, "node", action)
        self.step.start(nodes, command, self._environment(nodes))

    def _environment(self, nodes: Sequence[str]) -> dict[str, str]:
        job, ranks = self.job, self.state.workers or list(nodes)
        master = job.allocation.master(ranks)
        return {
            "ORCH_SET_DIR": str(job.layout.root),
            "ORCH_JOB_ID": job.job_id,
            "ORCH_GENERATION": str(self.state.orders.generation),
            "ORCH_GROUP": self.name,
            "ORCH_CHOOSE": "1" if self._ranks_follow else "0",
            "ORCH_NODES": " ".join(ranks),
            "MASTER_ADDR": master,
            # The first node has no route to itself.
            "ORCH_PEER": ranks[1] if job.allocation.spans_hosts and len(ranks) > 1 else master,
            **self.checks.environment,
        }

    def wait_for(self, word: str, nodes: Sequence[str]) -> Flow:
        """Wait until each of `nodes` has sent `word` or failed; the limit counts after image pulls.

        Value: False at the end of set or step.
        """
        limit_s = self.settings.container_start_s + 30
        deadline = NodeDeadline(self.step, self.job.world.now, limit_s)
        while not self.job.ending.state:
            self.step.check_ended()
            if self.pulls.advance():
                deadline.restart()
            silent = self._missing(word, nodes)
            if not silent:
                return True
            if deadline.is_over():
                for node in silent:
                    self.record.fail(node, "silent", f"no word within {limit_s} s")
            elif not self.step.is_alive:
                self._update_lost()  # no step starts on a removed node
                last = self.step.complaints.last_lines
                reason = f"the step ended without a word from {fold(silent)}: {last}"
                self.problem = (
                    place.describe_failures(self.state, nodes)
                    or place.describe_lost(self.state, nodes)
                    or reason
                )
                return False
            else:
                yield deadline.next_check()
        return False

    def _missing(self, word: str, nodes: Sequence[str]) -> list[str]:
        reports, failed = self.state.reports, self.state.failed
        return [node for node in nodes if word not in reports[node].messages and node not in failed]

    def _choose(self, nodes: Sequence[str], first: bool, deep: bool) -> Flow:
        """Value: False on failure; `problem` has the reason."""
        if not (yield from self.wait_for("waits", nodes)):
            return False
        yield from self.checks.judging(nodes)
        self.problem = self.comparison.of_waiting(self._unfailed(nodes))
        if self.problem:
            return False
        if deep and not (yield from self._measure(self._unfailed(nodes))):
            return False
        is_placed = self._use(nodes, first=first, send=True)
        if is_placed and (not self.state.failed or self._exclude_failed() or self.job.ending.state):
            return True
        self.problem = place.describe_failures(self.state, nodes)
        return False

    def _get_ready(self, nodes: Sequence[str]) -> Flow:
        """Wait for the nodes in use; waiting nodes replace failed nodes."""
        while True:
            workers = self.state.workers
            if not (yield from self._wait_until_ready(workers)):
                return False
            if not self.record.has_failed(workers):
                yield from self.job.meet(self.number)
                self.problem = self.comparison.of_ready(workers, replaceable=self._ranks_follow)
                if not self.problem:
                    break
                if not self.record.has_failed(workers):
                    return False  # no replacement, or no single node to blame
            self.problem = place.describe_failures(self.state, nodes)
            if not self._ranks_follow:
                return False
            if not self._exclude_failed() or not self._use(nodes, send=True):
                return False
            self.problem = ""
        self.checks.write()
        self.order_ranks()
        return True

    def compare_with_runs(self) -> None:
        """Raises OSError. `problem`: why no run starts."""
        facts = {node: self.state.reports[node].facts for node in self.state.workers}
        self.problem = self.job.compare_with_runs(
            facts, lambda decision: self.record.note("experiment", detail=decision)
        )

    def _wait_until_ready(self, workers: Sequence[str]) -> Flow:
        """Also judge nodes not yet judged."""
        if not (yield from self.wait_for("ready", workers)):
            return False
        if self._ranks_follow:
            return True
        if self.checks.are_wanted and not (yield from self.wait_for("checked", workers)):
            return False
        yield from self.checks.judging(workers)
        return True

    def order_ranks(self) -> None:
        """Number the nodes like torchrun, so that rank 0 is the same."""
        before, ranks = self.state.workers, place.in_order(self.state)
        if len(ranks) > 1:
            self.record.note("ordered", detail={"ranks": ranks})
        if ranks != before:
            self.job.log(f"ranks, in the order of the host names: {' '.join(ranks)}")
            self.job.write()

    def meeting(self) -> dict[str, Any]:
        """Return the rendezvous: `master` is MASTER_ADDR, `hosts` lines of /etc/hosts."""
        ranks, settings = self.state.workers, self.settings
        reports = {node: self.state.reports[node] for node in ranks}
        master = self.job.allocation.master(ranks)
        if settings.launch_master == "address" and len(ranks) > 1:
            master = reports[ranks[0]].address or master
        hosts = []
        for node, report in reports.items():
            # No node has another's name, and hosts called localhost would all be the same.
            short = report.host.partition(".")[0]
            is_strange = short.startswith("localhost") or (short != node and short in ranks)
            full = node if is_strange else report.host or node
            if report.address and settings.launch_hosts:
                hosts.append(" ".join(dict.fromkeys((report.address, full, node))))
        return {"master": master, "hosts": hosts}

    def facts_now(self, nodes: Sequence[str]) -> list[tuple[str, str, str]]:
        """Return (node or *, field, value)."""
        return agree_on_facts(self.state.reports, nodes, self.settings).rows

    # ---- choosing nodes ----

    def _update_lost(self) -> None:
        state, source = self.state, self.job.allocation.name
        lost = self.job.allocation.lost(state.allocated)
        if lost is None:
            return
        for node in state.allocated:
            if node in lost and state.lost.get(node) != lost[node]:
                self.record.note("lost", node, lost[node], source)
            elif node in state.lost and node not in lost:
                self.record.note("back", node, source=source)

    def _reinforce(self) -> None:
        """Take unassigned nodes if there are too few here."""
        shared = self.job.shared
        while shared.pool and len(place.unblemished(self.state)) < self.settings.nnodes:
            node = shared.take_node()
            self.step.add_node(node)
            self.record.note("joined", node)
            self._update_lost()

    def _unfailed(self, nodes: Sequence[str]) -> list[str]:
        return [node for node in nodes if node not in self.state.failed]

    def _use(self, nodes: Sequence[str], *, first: bool = False, send: bool = False) -> bool:
        """Assign the ranks, and `send` them to the nodes; False with too few nodes."""
        placement = place.choose(self.state, nodes, first=first)
        if placement is None:
            return False
        ranks = placement.ranks
        for old, new in zip(self.state.ranks, ranks):
            if old and old != new:
                self.job.log(f"node {new} takes the place of node {old}")
        placed = {**place.as_json(placement), "from": list(nodes), "first": first}
        self.record.note("placed", detail=placed)
        if send:
            self.step.send({"do": "use", "nodes": list(ranks)})
            if placement.waiting:
                waiting = " ".join(placement.waiting)
                self.job.log(f"nodes {' '.join(ranks)}; waiting: {waiting}")
        self.job.write()
        return True

    def _measure(self, nodes: Sequence[str]) -> Flow:
        """Slow nodes are the last choice. Value: False if the set is ending."""
        job, settings = self.job, self.settings
        if "deep" in settings.preflight_skip or not nodes:
            return True
        from .deep import measure  # only some bundles have it

        verdict = yield from measure(job, nodes, job.layout.bandwidth(self.name))
        if job.ending.state:
            return False
        job.log(f"deep: {verdict.summary}")
        checks = {
            node: self.checks.take_deep(node, row, verdict.ms) for node, row in verdict.rows.items()
        }
        fast = [node for node in nodes if node not in verdict.slow]
        only_warns = "deep" in settings.preflight_warn or len(fast) < settings.nnodes
        for node in verdict.slow:
            self.record.note("slow", node)
            reason = f"check deep: {checks[node].sentence}"
            if only_warns:
                job.warn(f"{reason} ({node})")
            else:
                self.blame(node, "deep", reason)
        return True

    # ---- excluding nodes ----

    def _exclude_failed(self) -> bool:
        """Exclude failed nodes. False if the job is ending, or may be: without the scheduler's
        answer, nodes that it may have ended get another try if one is left."""
        job_ends = self.job.ending.check()
        may_retry = job_ends is None and self._retries > 0
        if job_ends or (may_retry and place.resembles_job_end(self.state)):
            return False
        for node, (kind, reason) in list(self.state.failed.items()):
            if node not in self.state.excluded:
                self.record.note_with_attempt("aside", node, kind, reason)
                self.job.exclude(node, kind, reason, self.record.last)
                self.checks.take_failure(node, kind, reason)
        self.job.write()
        return True

    def blame(self, node: str, kind: str, reason: str) -> bool:
        """Use a node only if too few others are left; return whether its attempt does not count.

        Nothing is recorded if the group needs all the job's nodes.
        """
        if not self.job.can_replace_nodes:
            return False
        if node not in self.state.blamed:
            self.job.blame(node, kind, reason, self.record.last)
        self.record.note_with_attempt("blamed", node, kind, reason)
        self._reinforce()
        if not place.costs_no_attempt(self.state, node):
            return False
        self.record.note("free", node)
        return True

    # ---- after an attempt ----

    def repeats(self) -> bool:
        """Return whether all attempts died alike, as would the next."""
        repeats_itself = place.repeats_itself(self.state, self.settings.max_attempts)
        if repeats_itself:
            self.record.note("repeated")
        return repeats_itself

    def refuses_settings(self) -> bool:
        """Return whether the program refuses its settings, now and in the next attempt."""
        refuses = place.refuses_settings(self.state)
        if refuses:
            self.record.note("refuses")
        return refuses

    # ---- releasing nodes ----

    def release(self) -> Flow:
        """End the containers; revert the host settings."""
        if self.step.process is None:
            return
        self.record.note("release")
        if self.job.ending.state:
            self.step.send({"do": "job_ends"})
        self.pulls.end()
        yield from self.step.release()
        for warning in place.revert_problems(self.state):
            self.job.warn(warning)
