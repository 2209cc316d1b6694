"""One attempt of one run: the nodes get ready, run, and end; what became of it is on record before anything else begins."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..kernel.log_ends import read_log_ends
from ..kernel.mllog_tail import last_status
from ..kernel.records import RunRecord
from ..kernel.records import replace as replace_file
from ..kernel.settings import fingerprint
from ..policy.during import on_sockets
from ..policy.explain import Ended, cause_of, symptoms
from ..policy.outcome import AttemptFacts, Outcome, decide
from ..policy.trouble import telling_line
from ..set.seeds import seed_of
from . import storage
from .during import look_s, why_end
from .going import Going
from .hold import Group
from .nodes import Flow
from .work import SetWork

GATE_S = 300.0
SIGNAL_S = 2.0
STOP_S = 25.0
"""An ended run has 20 s to end by itself before it is killed, and then must be recorded."""


def try_run(job: SetWork, group: Group, run: int, attempt: int) -> Flow:
    """One attempt of `run` on the nodes of `group`; its Outcome. Raises OSError, FolderError when nothing can be written."""
    seed = seed_of(job.folder.record.root_seed, run, attempt)
    # Differs between the jobs of a node, between runs and between attempts; below the range the kernel gives out itself.
    port = 10000 + (job.port_base + 37 * run + 7 * attempt) % 22000
    ranks = group.standing.workers
    state = RunRecord(
        run=run, attempt=attempt, state="running", seed=seed, job_id=job.job_id, master_port=port, nodes=ranks,
        image_digest=group.image, start_ms=job.world.wall_ms(),
    )  # fmt: skip
    job.run, job.attempt = group.at = run, attempt
    yield from storage.patiently(job, lambda: storage.begin(job, state))
    job.state = "running"
    group.note("attempt", detail={"run": run, "attempt": attempt, "ranks": ranks, "seed": seed, "port": port})
    going = group.attempt = Going(run, attempt, ranks)
    job.write()
    group.said = {}
    # Whose container ended since the last run has said so already.
    failed = group.standing.failed
    going.refused = {node: failed[node][1] for node in ranks if node in failed}
    request = {"id": going.id, "nodes": ranks, "run": run, "attempt": attempt, "seed": seed, "port": port}
    group.send({"do": "prepare", **request, **group.meeting(), "clear": job.settings.clear_caches == 1})
    problem = yield from _gate(job, group, going)
    timed_out = False
    if not problem:
        yield from storage.patiently(job, lambda: _record_start(group, going))
        group.note("go", detail=going.id)
        group.send({"do": "go", "id": going.id})
        timed_out = yield from _until_over(job, group, going)
    elif going.prepared:  # what waits for the word must not wait for ever
        yield from _stop(group, going, going.prepared)
    if not any(going.stops.values()):
        yield from _hear_of_end(job, going)
        yield from _outwait_storage(job, group, going)
    group.attempt, group.hopeless = None, bool(going.kept)
    facts = _facts(job, group, going, problem, job.settings.run_timeout_s if timed_out else 0)
    outcome = decide(facts)
    group.note("outcome", detail=as_json(facts, outcome))
    yield from storage.patiently(job, storage.closing(job, _closed(state, outcome, job.world.wall_ms()), outcome.rank))
    for node in outcome.silent:
        group.note("silent", node)
    return outcome


def _closed(state: RunRecord, outcome: Outcome, end_ms: int) -> RunRecord:
    """Return the final state of an attempt."""
    final = replace(state, state=outcome.state, outcome=outcome.outcome, reason=outcome.reason, end_ms=end_ms)
    return replace(final, exit_codes=dict(outcome.codes))


def _gate(job: SetWork, group: Group, going: Going) -> Flow:
    """Wait until every node has verified its settings and dropped its caches; why not, or ""."""
    now = job.world.now
    until = now()
    deadline = until + GATE_S
    while not job.ending and (unheard := _unheard(going)):
        now_s = now()  # once: this process may stand still at any step
        deadline += group.missed_s(until, now_s)
        group.look_for_ended()
        gone = [node for node in unheard if group.is_gone(node)]
        if gone:  # the others are not waited for, and not to blame
            failed = {node: group.standing.failed.get(node, ("", "it let go"))[1] for node in gone}
            going.refused, going.waits_for_all = {**failed, **going.refused}, False
            return "; ".join(_refusals(going))
        if now_s >= deadline or group.step is None or not group.step.alive:
            return "; ".join([*_refusals(going), "not every node answered the request to get ready for the run"])
        until = group.look_again(min(deadline, now_s + 1))  # so that a time in which this process stood still is seen
        yield until
    return "; ".join(_refusals(going)) or (job.ending_reason if job.ending else "")


def _unheard(going: Going) -> list[str]:
    return [node for node in going.ranks if node not in going.prepared and node not in going.refused]


def _refusals(going: Going) -> list[str]:
    """Return a sentence for each node that is not ready, in rank order."""
    help_words = "; run as root, give the site a sudo prefix, or set clear_caches: false"
    return [
        f"node {node} (rank {rank})" + (f" {text}{help_words}" if node in going.kept else f": {text}")
        for rank, node in enumerate(going.ranks)
        if (text := going.refused.get(node, ""))
    ]


def _not_ready(going: Going) -> dict[str, str]:
    """Return why each node was not ready, as words about the node."""
    found = {
        node: f"before run {going.run}{' it' if node in going.kept else ':'} {text}"
        for node, text in going.refused.items()
    }
    unheard = _unheard(going) if going.waits_for_all else []
    return {**found, **dict.fromkeys(unheard, f"it did not answer before run {going.run}")}


def _until_over(job: SetWork, group: Group, going: Going) -> Flow:
    """Wait for the end of the run on all nodes; the first failure ends it everywhere. True when its time was over."""
    now_s = job.world.now
    started = now_s()
    deadline, grace, asked = started + job.settings.run_timeout_s, 0.0, started
    silence_s, ask_s = float(job.settings.node_silence_s), look_s(job.settings)
    until = started
    group.heard.update(dict.fromkeys(going.ranks, started))
    while True:
        group.look_for_ended()
        now = now_s()
        if now > until + 1:  # this process itself was stopped, and has asked nobody meanwhile
            group.heard = {node: min(now, heard + now - until) for node, heard in group.heard.items()}
        left = group.still_there(node for node in going.ranks if node not in going.exits)
        heard, since = group.heard, now - silence_s
        if late := [node for node in left if heard[node] < since]:
            _believe_no_more(group, late)
            left = [node for node in left if node not in late]
        if not left:
            return False
        failed = any(going.exits.values()) or len(left) + len(going.exits) < len(going.ranks)
        if going.exits and not grace:
            grace = now + job.settings.end_grace_s
        timed_out = now >= deadline
        if going.has_news and not (failed or timed_out or job.ending):
            going.has_news = False
            going.ended = yield from why_end(group, going, left, now)
        is_late, alive = grace and now >= grace, group.step is not None and group.step.alive
        if failed or timed_out or going.ended or job.ending or is_late or not alive:
            yield from _stop(group, going, left)
            return timed_out
        if now >= asked + ask_s:  # the time that was waited for, so that rounding cannot miss it
            asked = now
            group.send({"do": "ping", "n": int(now - started)})
        until = group.look_again(min(deadline, grace or deadline, asked + ask_s))
        yield until


def _believe_no_more(group: Group, nodes: Iterable[str]) -> None:
    """Put on record who was silent: in this attempt nothing of them counts any more."""
    for node in nodes:
        group.note("silent", node)
        group.fail(node, "silent", f"no word for {group.settings.node_silence_s} s")


def _stop(group: Group, going: Going, nodes: Iterable[str]) -> Flow:
    """End the run on `nodes`, and wait for their word about it."""
    going.is_stopped = True
    if group.step is not None:
        group.note("stop", detail=going.id)
        group.send({"do": "stop", "id": going.id})
    yield from _await_exits(group, going, nodes)


def _await_exits(group: Group, going: Going, nodes: Iterable[str]) -> Flow:
    """Wait until `nodes` have reported the end of their part of the run."""
    now = group.job.world.now
    deadline = now() + STOP_S
    while group.step is not None and group.step.alive and now() < deadline:
        group.look_for_ended()
        if all(node in going.exits or group.is_gone(node) for node in nodes):
            return
        yield group.look_again(deadline)


def _hear_of_end(job: SetWork, going: Going) -> Flow:
    """Learn whether the job is being ended before its nodes are blamed for an attempt; after a signal wait for the loop's own."""
    now = job.world.now
    deadline = now() + SIGNAL_S
    while not job.learns_of_end() and going.was_signalled and now() < deadline:
        yield deadline


def _outwait_storage(job: SetWork, group: Group, going: Going) -> Flow:
    """Wait for storage that is full or away: the logs are evidence, and nodes that it held up report late."""
    now = job.world.now
    started = now()
    yield from storage.patiently(job, lambda: None)
    if now() > started:
        yield from _await_exits(group, going, [node for node in going.ranks if node in going.prepared])


def _facts(job: SetWork, group: Group, going: Going, problem: str, timed_out: int) -> AttemptFacts:
    """Return what is known of the attempt now that it is over."""
    stops = dict(going.stops)
    errors, cause = dict[str, str](), ""
    if not problem and not any(
        stops.values()
    ):  # it may have finished before the node was lost, or before its storage was
        for rank, node in enumerate(going.ranks):
            stops[node] = last_status(job.layout.node_log(going.run, going.number, rank), files=job.world.files)
    if not problem and not any(stops.values()):
        errors, cause = _errors(job, going)
    deaf = {node: text for node in going.ranks if (text := group.standing.reports[node].loop_gone)}
    cause = f"the nodes let go: {next(iter(deaf.values()))}" if deaf else cause
    refused = _not_ready(going) if problem else {}
    return AttemptFacts(
        run=going.run,
        ranks=going.ranks,
        exits=going.exits,
        stops=stops,
        gate={node: text for node, text in refused.items() if node not in deaf},  # the loop was away
        gate_problem=problem,
        timed_out=timed_out,
        ending=job.ending_reason if job.ending else "",
        errors=errors,
        cause=cause,
        lasted=going.lasted,
        remark=_sockets(group, going),
        ended=going.ended,
        quiet={node: one.quiet_ms for node, one in going.pulses.items()},
        doing=going.doing,
        sockets=going.sockets,
        broken={node: group.broken[node] for node in going.ranks if node in group.broken},
        failed=going.failed,
    )


def _errors(job: SetWork, going: Going) -> tuple[dict[str, str], str]:
    """Return what went wrong by the ends of the nodes' logs: node -> last telling line, and the first cause in a sentence."""
    layout, files = job.layout, job.world.files
    logs = {
        node: read_log_ends(layout.node_log(going.run, going.number, rank), files)
        for rank, node in enumerate(going.ranks)
    }
    texts = {node: log.text for node, log in logs.items() if log is not None}
    ends = {node: Ended(going.exits.get(node), going.lasted.get(node)) for node in going.ranks}
    errors = {node: telling_line(text) for node, text in texts.items()}
    cause = cause_of({node: symptoms(text) for node, text in texts.items()}, ends)
    return {node: text for node, text in errors.items() if text}, cause


def as_json(facts: AttemptFacts, outcome: Outcome) -> dict[str, object]:
    """Return the decision and all that it was made from, so that it can be made again."""
    return {"facts": {**facts.__dict__}, "outcome": {**outcome.__dict__}}


_CACHE_CLEAR = (
    ':::MLLOG {"namespace": "", "time_ms": %d, "event_type": "POINT_IN_TIME", "key": "cache_clear", '
    '"value": true, "metadata": {"file": "lib/loop/run.py", "lineno": 1}}\n'
)


def _record_start(group: Group, going: Going) -> None:
    """Write what every node was when the attempt began, and the event that all caches were dropped. Raises OSError."""
    job, layout = group.job, group.job.layout
    files = job.world.files
    sha = fingerprint(files.read_bytes(layout.environment), job.unique)
    rows = [("node", "field", "value"), ("*", "environment", sha), *group.facts_now(going.ranks)]
    for node in going.ranks:
        ready, before, after = going.prepared[node]
        rows.append((node, "ready_ms", ready))
        if before != "-":
            rows += [(node, "cache_before_kib", before), (node, "cache_after_kib", after)]
    text = "".join("\t".join(row) + "\n" for row in rows)
    replace_file(layout.start_table(going.run, going.number), text.encode(), sync=False, files=files)
    # A file of its own: the nodes have their logs open, and on NFS two hosts must not append to one file.
    event = _CACHE_CLEAR % job.world.wall_ms() if job.settings.clear_caches == 1 else ""
    files.write(layout.cache_log(going.run, going.number), event.encode())


def _sockets(group: Group, going: Going) -> str:
    """Return words about RCCL on TCP sockets where RDMA was expected."""
    found = on_sockets(going.transports) if group.rdma_expected and not going.ended else ""
    return f"RCCL used TCP sockets although the nodes have RDMA ({found})" if found else ""
