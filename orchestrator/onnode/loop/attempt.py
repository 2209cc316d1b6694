"""An attempt of a run: the nodes get ready, run and end; the outcome is recorded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from ..kernel.jobs import port_base
from ..kernel.mllog_tail import has_record
from ..kernel.records import RunRecord
from ..kernel.records import replace as replace_file
from ..kernel.settings_file import fingerprint
from ..kernel.waiting import Flow
from ..policy.experiment import folded
from ..policy.outcome import AttemptFacts, Outcome, decide
from ..set.new import seed_of
from . import storage
from .attempt_logs import LogFindings, read_logs
from .attempt_reports import AttemptReports, HangWatch, ping_interval_s
from .group import Group
from .set_job import SetJob
from .step import NodeDeadline, stalled_s

GATE_S = 300.0
"""Limit to get ready: dropping a large node's caches takes minutes."""
SIGNAL_S = 2.0
"""A cancelled job's processes, and the loop, get their signals within this time."""
STOP_S = 25.0
"""Limit for a stopped run's end: nodes kill it after 10 s and record that within 20."""
PORTS = 100
"""Ports tried for MASTER_PORT."""
_CACHE_CLEAR = (
    ':::MLLOG {"namespace": "", "time_ms": %d, "event_type": "POINT_IN_TIME", '
    '"key": "cache_clear", "value": true, '
    '"metadata": {"file": "lib/loop/attempt.py", "lineno": 1}}\n'
)


class Attempt:
    def __init__(self, job: SetJob, group: Group, run: int, number: int) -> None:
        self._job, self._group = job, group
        self._run, self._number = run, number
        self._ranks = tuple(group.state.workers)
        self._reports = AttemptReports(run, number, self._ranks)
        self._gate = self._reports.gate
        self._watch = HangWatch(group, self._reports)
        self._logs = LogFindings()
        self._started = job.world.now()
        """World.now."""
        self.change = ""
        """How the run was not the experiment of earlier runs."""

    @property
    def is_hopeless(self) -> bool:
        """A retry on these nodes must fail."""
        return bool(self._gate.cannot_drop)

    def play(self) -> Flow:
        """Value: the Outcome. Raises OSError, FolderError."""
        job, group = self._job, self._group
        state = self._new_state()
        job.status.start(self._run, self._number)
        group.record.start_attempt(self._run, self._number)
        yield from storage.retry(job, partial(job.folder.begin, state))
        about = {"run": self._run, "attempt": self._number}
        request = {**about, "seed": state.seed, "port": state.master_port}
        group.record.note("attempt", detail={**request, "ranks": list(self._ranks)})
        group.step.start_attempt(self._reports)
        job.write("running")
        problem, timed_out = yield from self._to_its_end(request)
        unanswered = False
        if not self._reports.has_result:
            unanswered = yield from self._await_signal()
            yield from self._outwait_storage()
        if not problem and not self._reports.has_result:
            self._logs = yield from storage.retry(job, self._read_logs)
        group.step.end_attempt()
        facts = replace(self._facts(problem, timed_out), unanswered=unanswered)
        outcome = decide(facts)
        group.record.note("outcome", detail=as_json(facts, outcome))
        final = _final_state(state, outcome, job.world.wall_ms(), folded(self._reports.inside))
        yield from storage.retry(job, storage.closer(job, final, outcome.rank))
        if final.done:
            inside = self._reports.inside
            self.change = yield from storage.retry(job, lambda: job.compare_after(final, inside))
        for node in outcome.silent:
            group.record.note("silent", node)
        return outcome

    def _new_state(self) -> RunRecord:
        job = self._job
        return RunRecord(
            run=self._run,
            attempt=self._number,
            state="running",
            seed=seed_of(job.folder.record.root_seed, self._run, self._number),
            job_id=job.job_id,
            master_port=self._port(),
            nodes=list(self._ranks),
            image_digest=job.shared.image,
            start_ms=job.world.wall_ms(),
        )

    def _port(self) -> int:
        """Differs between jobs, runs and attempts, below the kernel's range; on this host, free."""
        job = self._job
        first = port_base(job.job_id) + 37 * self._run + 7 * self._number
        ports = [10000 + (first + step) % 22000 for step in range(PORTS)]
        if not job.allocation.is_here(self._ranks[0]):
            return ports[0]
        return next(filter(job.world.is_free, ports), ports[0])

    def _to_its_end(self, request: dict[str, int]) -> Flow:
        """Value: why the nodes could not start, or "", and whether the run timed out."""
        job, group, reports = self._job, self._group, self._reports
        failed = group.state.failed
        self._gate.take_ended({node: failed[node][1] for node in self._ranks if node in failed})
        order = {"do": "prepare", "id": reports.id, "nodes": list(self._ranks), **request}
        clear = job.settings.clear_caches == 1
        if self._shows_all():
            order["verbose"] = True
        group.step.send({**order, **group.meeting(), "clear": clear})
        problem = yield from self._get_ready()
        if not problem:
            yield from storage.retry(job, self._write_start)
            group.record.note("go", detail=reports.id)
            group.step.send({"do": "go", "id": reports.id})
            return "", (yield from self._until_over())
        if self._gate.prepared:  # these wait for the order to go
            yield from self._stop(self._gate.prepared)
        return problem, False

    def _shows_all(self) -> bool:
        """The last attempt's logs have no MLLOG line: its errors may be hidden."""
        job = self._job
        if self._number == 1 or not job.settings.launch_verbose:
            return False
        logs = [
            job.layout.node_log(self._run, self._number - 1, rank)
            for rank in range(len(self._ranks))
        ]
        return not any(has_record(log, job.world.files) for log in logs)

    # ---- before the run ----

    def _get_ready(self) -> Flow:
        """Wait for verified settings and dropped caches. Value: problem or ""."""
        job, step, gate = self._job, self._group.step, self._gate
        deadline = NodeDeadline(step, job.world.now, GATE_S)
        while not job.ending.state and (unanswered := gate.unanswered()):
            step.check_ended()
            if self._take_gone(unanswered):
                return gate.refusals()
            if deadline.is_over() or not step.is_alive:
                return gate.refusals("not every node answered the request to get ready for the run")
            yield deadline.next_check()
        return gate.refusals() or job.ending.reason

    def _take_gone(self, unanswered: Iterable[str]) -> bool:
        group = self._group
        failed = group.state.failed
        gone = [node for node in unanswered if group.record.is_gone(node)]
        if gone:
            reasons = {node: failed.get(node, ("", "its agent ended"))[1] for node in gone}
            self._gate.take_gone(reasons)
        return bool(gone)

    def _write_start(self) -> None:
        """Raises OSError."""
        job, layout, files = self._job, self._job.layout, self._job.world.files
        text = "".join("\t".join(row) + "\n" for row in self._start_rows())
        table = layout.start_table(self._run, self._number)
        replace_file(table, text.encode(), sync=False, files=files)
        # A separate file: on NFS two hosts must not append to the same.
        event = _CACHE_CLEAR % job.world.wall_ms() if job.settings.clear_caches == 1 else ""
        files.write(layout.cache_log(self._run, self._number), event.encode())

    def _start_rows(self) -> list[tuple[str, str, str]]:
        """Raises OSError."""
        sha = fingerprint(self._job.run_environment(), self._job.unique)
        rows = [("node", "field", "value"), ("*", "environment", sha)]
        rows += self._group.facts_now(self._ranks)
        for node in self._ranks:
            ready_ms, before, after = self._gate.prepared[node]
            rows.append((node, "ready_ms", ready_ms))
            if before != "-":
                rows.append((node, "cache_before_kib", before))
                rows.append((node, "cache_after_kib", after))
        return rows

    # ---- during the run ----

    def _until_over(self) -> Flow:
        """Await the run; the first failure stops it everywhere. Value: whether it timed out."""
        job, step, reports = self._job, self._group.step, self._reports
        started = self._started = until = asked = job.world.now()
        deadline, grace = started + job.settings.run_timeout_s, 0.0
        silence_s, ask_s = float(job.settings.node_silence_s), ping_interval_s(job.settings)
        step.reset_silence(self._ranks)
        while True:
            step.check_ended()
            now = job.world.now()
            if stalled := stalled_s(until, now):  # meanwhile no node was asked
                step.excuse(stalled, silence_s)
            left = self._drop_silent(self._left(), now - silence_s)
            if not left:
                return False
            lost = len(left) + len(reports.exits) < len(self._ranks)
            has_failed = lost or any(reports.exits.values())
            if reports.exits and not grace:
                grace = now + job.settings.end_grace_s
            timed_out = now >= deadline
            if reports.has_news() and not (has_failed or timed_out or job.ending.state):
                yield from self._watch.check(left, now)
            is_late = bool(grace) and now >= grace
            is_cut = job.ending.state or self._watch.stop_reason or not step.is_alive
            if has_failed or timed_out or is_late or is_cut:
                yield from self._stop(left)
                return timed_out
            if now >= asked + ask_s:  # the time of `until`: rounding cannot miss it
                asked = now
                step.send({"do": "ping", "n": int(now - started)})
            until = step.next_check(min(deadline, grace or deadline, asked + ask_s))
            yield until

    def _left(self) -> list[str]:
        exits = self._reports.exits
        return self._group.record.still_there(node for node in self._ranks if node not in exits)

    def _drop_silent(self, left: list[str], since: float) -> list[str]:
        """Record nodes silent `since` (World.now); return the others."""
        group = self._group
        silent = group.step.silent(left, since)
        for node in silent:
            group.record.note("silent", node)
            reason = f"no word for {group.settings.node_silence_s} s"
            group.record.fail(node, "silent", reason)
        return [node for node in left if node not in silent]

    def _stop(self, nodes: Iterable[str]) -> Flow:
        self._reports.stop()
        if self._group.step.process is not None:
            self._group.record.note("stop", detail=self._reports.id)
            self._group.step.send({"do": "stop", "id": self._reports.id})
        yield from self._await_exits(nodes)

    def _await_exits(self, nodes: Iterable[str]) -> Flow:
        group, exits = self._group, self._reports.exits
        deadline = NodeDeadline(group.step, self._job.world.now, STOP_S)
        while group.step.is_alive and not deadline.is_over():
            group.step.check_ended()
            if all(node in exits or group.record.is_gone(node) for node in nodes):
                return
            yield deadline.next_check()

    # ---- after the run ----

    def _await_signal(self) -> Flow:
        """After the run's signal, the loop's may follow: nodes of an ending job are not blamed.
        Value: whether the scheduler did not answer."""
        now = self._job.world.now
        deadline = now() + SIGNAL_S
        is_ending = self._job.ending.check()
        while not is_ending and self._reports.was_signalled and now() < deadline:
            yield deadline
            is_ending = self._job.ending.check()
        return is_ending is None

    def _outwait_storage(self) -> Flow:
        """The storage has the logs, and delays reports."""
        now = self._job.world.now
        started = now()
        yield from storage.wait(self._job)
        if now() > started:
            prepared = [node for node in self._ranks if node in self._gate.prepared]
            yield from self._await_exits(prepared)

    def _read_logs(self) -> LogFindings:
        return read_logs(self._job, self._run, self._number, self._ranks)

    def _facts(self, problem: str, timed_out: bool) -> AttemptFacts:
        job, group, reports = self._job, self._group, self._reports
        cut_off = self._cut_off()
        cause = f"the agents ended: {next(iter(cut_off.values()))}" if cut_off else ""
        refused = self._gate.not_ready() if problem else {}
        return AttemptFacts(
            run=self._run,
            ranks=self._ranks,
            exits=reports.exits,
            stops={**reports.stops, **self._logs.stops},
            gate={node: reason for node, reason in refused.items() if node not in cut_off},
            gate_problem=problem,
            timed_out=job.settings.run_timeout_s if timed_out else 0,
            ending=job.ending.reason,
            errors=self._logs.errors,
            cause=cause,
            lasted=reports.lasted,
            remark=self._watch.remark(),
            cut_short=self._watch.stop_reason,
            quiet={node: pulse.quiet_ms for node, pulse in reports.pulses.items()},
            doing=dict(self._watch.evidence),
            sockets=self._watch.sockets,
            protocol_errors={
                node: reason
                for node, reason in group.step.protocol_errors.items()
                if node in self._ranks
            },
            failed=self._gate.failed,
            silent_ms=self._silent_ms(),
            started=self._logs.started,
        )

    def _silent_ms(self) -> dict[str, int]:
        silent = [node for node in self._ranks if node in self._group.state.silent]
        heard = {node: self._group.step.last_message(node) - self._started for node in silent}
        return {node: max(0, int(1000 * seconds)) for node, seconds in heard.items()}

    def _cut_off(self) -> dict[str, str]:
        """Nodes that missed this loop end by themselves: node -> reason."""
        reports = self._group.state.reports
        return {node: reason for node in self._ranks if (reason := reports[node].loop_gone)}


def _final_state(
    state: RunRecord, outcome: Outcome, end_ms: int, inside: dict[str, dict[str, str]]
) -> RunRecord:
    return replace(
        state,
        state=outcome.state,
        outcome=outcome.outcome,
        reason=outcome.reason,
        end_ms=end_ms,
        exit_codes=dict(outcome.codes),
        inside=inside,
    )


def as_json(facts: AttemptFacts, outcome: Outcome) -> dict[str, object]:
    """For `replay`."""
    return {"facts": {**facts.__dict__}, "outcome": {**outcome.__dict__}}
