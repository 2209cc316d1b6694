"""From the start of a run's script to run_start, and from run_stop to its end: what is told, and what is not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orchestrator.evidence.progress import KeptLogs, Logs
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.startup import StartUp, as_json, startups
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import NodeRunRecord, write
from orchestrator.published import results, startup

COLD, WARM = (
    {"state": "cold", "files": 0, "bytes": 0, "whole": True},
    {"state": "warm", "files": 9, "bytes": 9, "whole": True},
)


def line(key: str, ms: int) -> str:
    return f":::MLLOG {json.dumps({'namespace': '', 'time_ms': ms, 'key': key, 'value': None, 'metadata': {'status': 'success'}})}\n"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def attempt(layout: Layout, run: int, number: int, rank: int, log: str, end: NodeRunRecord) -> None:
    """Two nodes, of which `rank` logs."""
    layout.attempt(run, number).mkdir(parents=True)
    for one in (0, 1):
        layout.node_log(run, number, one).write_text(log if one == rank else "nothing\n")
        record = end if one == rank else NodeRunRecord(f"n{one}", one, 0, 1, 2)
        write(record, layout.node_state(run, number, one), sync=False)


def test_the_node_that_logs_tells_all_of_it(layout: Layout) -> None:
    chatter = "x" * 100_000 + "\n"
    log = chatter + line("run_start", 435_000) + chatter * 30 + line("run_stop", 925_000) + chatter
    attempt(layout, 1, 1, 1, log, NodeRunRecord("n1", 1, 0, 1000, 951_000, [], 1, COLD))
    attempt(
        layout,
        2,
        1,
        0,
        line("run_start", 12_000),
        NodeRunRecord("n0", 0, 1, 2000, 20_000, [], 2, WARM),
    )
    attempt(
        layout,
        3,
        1,
        0,
        line("run_start", 12_000) + line("run_stop", 15_000),
        NodeRunRecord("n0", 0, 0, 4000, 16_000),
    )
    attempt(layout, 4, 1, 0, "no record at all\n", NodeRunRecord("n0", 0, 1, 4000, 16_000))
    found = startups(SetEvidence(layout.root))
    assert found == [
        StartUp(1, 1, "n1", 434.0, 490.0, 26.0, True, "cold"),
        StartUp(2, 1, "n0", 10.0, None, None, False, "warm"),
        StartUp(3, 1, "n0", 8.0, 3.0, 1.0, None, ""),
    ]
    told = as_json(found)
    assert (told["cold_s"], told["warm_s"], told["warm_range_s"], told["shutdown_s"]) == (
        [434.0],
        10.0,
        [10.0, 10.0],
        13.5,
    )
    assert told["attempts"][0]["startup_s"] == 434.0


def test_clocks_that_make_no_sense_and_damaged_records_give_nothing(layout: Layout) -> None:
    attempt(layout, 1, 1, 0, line("run_start", 5), NodeRunRecord("n0", 0, 0, 1000, 2000))
    attempt(layout, 2, 1, 0, line("run_start", 5000), NodeRunRecord("n0", 0, 0, 1000, 9000))
    layout.node_state(2, 1, 0).write_text('{"node": "n0", "exit": 0, "cache": 7}')
    assert startups(SetEvidence(layout.root)) == []


def test_who_looks_again_and_again_reads_an_attempt_once() -> None:
    read: list[int] = []
    kept, each = KeptLogs(), Logs()
    for logs in (kept, kept, each, each):
        logs.once((1, 1), lambda: read.append(1))
    assert len(read) == 3


def test_published_times_are_of_published_entries() -> None:
    [hpe] = startup.find("llama2_70b_lora", "6.0.0", "MI355X_1x8x1_HPE")
    assert (hpe.cold_s, hpe.warm_s, hpe.shutdown_s, hpe.run_s) == ([435, 431], 215, 26, 490)
    assert hpe.words.endswith(
        "(round 6.0): start-up cold 435, 431 s, warm 215 s; shut-down 26 s; run_stop to the next run_start 254 s"
    )
    assert startup.find("llama2_70b_lora", "6.0", "no_such_system") == []
    known = {
        (one.round, one.benchmark, one.submitter, one.name): one.minutes for one in results.load()
    }
    rows = [
        one
        for entry in results.load()
        for one in startup.find(entry.benchmark, entry.round, entry.system)
    ]
    assert len({(one.round, one.benchmark, one.submitter, one.name) for one in rows}) == 52
    for one in rows:
        minutes = known[(one.round, one.benchmark, one.submitter, one.name)]
        assert one.run_s is not None and 0.8 < one.run_s / 60 / minutes < 1.25, (one.name, minutes)
