"""What is read of a set that is as it should be: events of nodes, and a log that grows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from damaged_sets import UNIT, events, full_set
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.evidence.events import read_job_notes, unreleased
from orchestrator.evidence.nodes import read_history
from orchestrator.evidence.picture import Logs, picture
from orchestrator.evidence.progress import TAIL_BYTES, Tail, tail_of
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.mllog_tail import MAX_LINE, StopFinder, WholeLines, last_status
from orchestrator.views.sets import unfit_facts


def line(key: str, time_ms: int, value: object = None, **metadata: object) -> bytes:
    record = {"namespace": "", "time_ms": time_ms, "key": key, "value": value, "metadata": metadata}
    return f":::MLLOG {json.dumps(record)}\n".encode()


# ---- jobs ----


def test_jobs_are_in_the_order_of_the_ledger_whatever_the_clocks_of_their_hosts_say(
    tmp_path: Path,
) -> None:
    root = full_set(tmp_path)
    (root / "jobs/7.json").unlink()
    for job, started_ms, head in ((8, 2_000, "14 ab"), (9, 1_000, "18 cd")):
        about = {"job_id": str(job), "state": "failed", "started_ms": started_ms, "ledger": head}
        (root / f"jobs/{job}.json").write_text(json.dumps(about))
    assert [job.job_id for job in SetEvidence(root).jobs] == ["8", "9"]
    about |= {"job_id": "8", "started_ms": 2_000, "ledger": "of another form"}
    (root / "jobs/8.json").write_text(json.dumps(about))
    assert [job.job_id for job in SetEvidence(root).jobs] == ["9", "8"]


# ---- events ----


def test_what_the_loop_noted_about_nodes(tmp_path: Path) -> None:
    root = full_set(tmp_path)
    (root / "events-7.tsv").write_text(
        events(
            ("node", "check", "node-a", UNIT.join(("engine", "pass", "2", "loop\taside", ""))),
            ("loop", "blamed", "node-b", UNIT.join(("silent", "it went silent", "2", "1"))),
            ("slurm", "lost", "node-b", "down*"),
            ("loop", "aside", "node-b", UNIT.join(("lost", "Slurm has lost it", "2", "1"))),
            ("node", "aside", "node-a", "a node cannot say this"),
            ("loop", "aside", "node-a", "torn"),
        )
        + "1777\tloop\taside\tnode-a\twithout an end"
    )
    notes = read_job_notes(SetEvidence(root))
    assert [(one.node, one.kind, one.reason, one.when) for one in notes.aside] == [
        ("node-b", "lost", "Slurm has lost it", "run 2, attempt 1"),
        ("node-a", "torn", "", "before the first run"),
    ]
    assert [(one.node, one.kind, one.reason, one.run) for one in notes.blamed] == [
        ("node-b", "silent", "it went silent", 2)
    ]
    assert [(one.node, one.kind, one.reason) for one in notes.lost] == [("node-b", "lost", "down*")]
    node = next(node for node in read_history(SetEvidence(root)) if node.node == "node-b").to_json()
    assert len(node["set_aside"]) == len(node["blamed"]) == len(node["lost"]) == 1


def test_nodes_that_did_not_report_their_release_are_named(tmp_path: Path) -> None:
    root = full_set(tmp_path)
    rows = [
        ("loop", "hold", "node-z", "{}"),
        ("node", "network", "node-a", "off"),
        ("node", "network", "node-b", "off"),
        ("node", "left", "node-b", ""),
    ]
    (root / "events-7.tsv").write_text(events(*rows))
    (root / "events-7.2.tsv").write_text(events(("node", "network", "node-c", "off")))
    assert unreleased(SetEvidence(root), "7") == ["node-a", "node-c"]
    rows += [("node", "left", "node-a", ""), ("node", "network", "node-b", "held once more")]
    (root / "events-7.tsv").write_text(events(*rows))
    assert unreleased(SetEvidence(root), "7") == ["node-b", "node-c"]
    assert unreleased(SetEvidence(root), "8") == []


def test_what_several_groups_of_nodes_noted_is_in_order(tmp_path: Path) -> None:
    root = full_set(tmp_path)
    for name, rows in {
        "7": ((5, "node-a"), (9, "node-d")),
        "7.2": ((7, "node-b"),),
        "7.10": ((8, "node-c"),),
    }.items():
        text = "".join(
            f"{ms}\tloop\taside\t{node}\tcheck{UNIT}no{UNIT}1{UNIT}1\n" for ms, node in rows
        )
        (root / f"events-{name}.tsv").write_text(text)
    aside = [one.node for one in read_job_notes(SetEvidence(root)).aside]
    assert aside[:4] == ["node-a", "node-b", "node-c", "node-d"]


def test_a_blamed_node_is_not_called_excluded(tmp_path: Path) -> None:
    """A job's record lists both in `set_aside`; its events distinguish them."""
    root = full_set(tmp_path)
    job = json.loads((root / "jobs/7.json").read_bytes())
    blamed = {"node": "node-b", "kind": "exit", "reason": "run 2 died there", "run": 2}
    excluded = {"node": "node-c", "kind": "check", "reason": "no GPU", "run": 0}
    both = [{**entry, "attempt": min(entry["run"], 1)} for entry in (blamed, excluded)]
    (root / "jobs/7.json").write_text(json.dumps({**job, "set_aside": both}))
    (root / "events-7.tsv").write_text(
        events(
            ("slurm", "lost", "node-c", "down*"),
            ("loop", "blamed", "node-b", UNIT.join(("exit", "run 2 died there", "2", "1"))),
        )
    )
    notes = read_job_notes(SetEvidence(root))
    assert [(one.node, one.kind) for one in notes.blamed] == [("node-b", "exit")]
    assert [(one.node, one.kind) for one in notes.aside] == [("node-c", "check")]
    drawn = picture(SetEvidence(root), {}, Logs())
    assert [word for word, _ in unfit_facts(drawn)] == ["excluded", "blamed"]


def test_a_set_from_before_there_were_events(tmp_path: Path) -> None:
    root = full_set(tmp_path)
    job = json.loads((root / "jobs/7.json").read_bytes())
    aside = [{"node": "node-x", "reason": "no GPU", "run": 0, "attempt": 0, "time_ms": 5}]
    (root / "jobs/7.json").write_text(json.dumps({**job, "set_aside": aside}))
    # One that both name is told once.
    (root / "events-7.tsv").write_text(
        events(("loop", "aside", "node-x", UNIT.join(("check", "no GPU", "0", "0"))))
    )
    assert [(one.node, one.kind) for one in read_job_notes(SetEvidence(root)).aside] == [
        ("node-x", "check")
    ]
    (root / "events-7.tsv").unlink()
    assert [(one.node, one.kind) for one in read_job_notes(SetEvidence(root)).aside] == [
        ("node-x", "")
    ]


# ---- a log that grows ----


@given(st.lists(st.binary(max_size=80), max_size=20), st.integers(1, 50))
def test_any_bytes_in_any_pieces(noise: list[bytes], size: int) -> None:
    log = b"".join(
        bytes(part) + b"\n" + line("eval_accuracy", k, k / 8, samples_count=k)
        for k, part in enumerate(noise)
    )
    log += (
        b"\n"
        + line("tracked_stats", 3, {"throughput": 12.5})
        + line("run_stop", 9, status="success")
    )
    tail = Tail()
    for at in range(0, len(log), size):
        tail.feed(log[at : at + size])
    assert (tail.rate, tail.stop_ms, tail.status) == (12.5, 9, "success")
    assert tail.evaluation is None or tail.evaluation.value == (len(noise) - 1) / 8


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_any_values(value: object) -> None:
    keys = ("run_start", "run_stop", "eval_accuracy", "tracked_stats")
    records = [
        {"key": key, "value": value, "time_ms": value, "metadata": {"status": value}}
        for key in keys
    ]
    records += [
        {"key": value, "metadata": {}},
        {"key": "tracked_stats", "value": {"throughput": value}, "metadata": {}},
    ]
    tail = tail_of(b"\n".join(b":::MLLOG " + json.dumps(one).encode() for one in records))
    assert tail.minutes is None
    json.dumps(
        [tail.start_ms, tail.status, tail.rate, tail.evaluation and tail.evaluation.value],
        allow_nan=False,
    )


def test_what_counts_as_a_number() -> None:
    """As in a score: every number whose square is one, too."""
    for value, taken in (
        (True, None),
        (1e150, 1e150),
        (1e155, None),
        (10**400, None),
        (1 << 53, 2.0**53),
    ):
        tail = tail_of(
            line("tracked_stats", 1, {"throughput": value}) + line("eval_accuracy", 2, value)
        )
        assert (tail.rate, tail.evaluation and tail.evaluation.value) == (taken, taken)


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    tail = Tail()
    for _ in range(200):
        tail.feed(b"x" * 50_000)
    assert len(tail._lines._rest) <= 2 * MAX_LINE
    tail.feed(b" " + line("run_stop", 9, status="aborted"))
    assert tail.status == "aborted"


def test_whole_lines_of_a_log_in_pieces() -> None:
    whole, record = WholeLines(), line("run_stop", 1)
    assert [whole.feed(piece) for piece in (b"a", b"b\nc\nd", b"e", b"\n")] == [
        b"",
        b"ab\nc\n",
        b"",
        b"de\n",
    ]
    for _ in range(3):
        assert whole.feed(b"#" * MAX_LINE) == b""
    assert whole.feed(record + b"next") == record, "a record at the end of a long line counts"
    assert whole.feed(b"\n") == b"next\n"
    whole.feed(b"#" * (MAX_LINE + 1))
    whole.feed(record[:20])
    assert whole.feed(record[20:]) == record[20:], "the rest of a long record is damage"


@pytest.mark.parametrize(("size", "status"), [(500_000, "success"), (2 * MAX_LINE, "")])
def test_a_view_and_the_loop_have_the_same_longest_line(size: int, status: str) -> None:
    """A progress bar draws behind the record on its line."""
    tail, finder = Tail(), StopFinder()
    log = line("run_stop", 9, status="success").replace(b"\n", b"\r") + b"#" * size + b"\n"
    for at in range(0, len(log), 4096):
        tail.feed(log[at : at + 4096])
        finder.feed(log[at : at + 4096])
    assert tail.status == finder.status == status


def test_a_view_sees_a_run_stop_before_much_output(tmp_path: Path) -> None:
    log = tmp_path / "node_0.log"
    log.write_bytes(line("run_start", 1))
    tail = Tail(log)
    tail.look()
    with log.open("ab") as file:
        file.write(line("run_stop", 9, status="success") + b"teardown\n" * TAIL_BYTES)
    tail.look()
    assert tail.status == last_status(log) == "success"


def test_nested_and_numeric_damage_is_passed_over() -> None:
    bad = b":::MLLOG " + b"[" * 100_000 + b"\n:::MLLOG " + b"9" * 30_000 + b"\n"
    assert (
        tail_of(
            bad + line("run_start", 1) + line("run_stop", 60_001, status="success") + bad
        ).minutes
        == 1.0
    )


def test_the_last_status_of_a_log_of_any_size(tmp_path: Path) -> None:
    log = tmp_path / "node_0.log"
    assert last_status(log) == ""
    log.write_bytes(b"no run_stop here\n" + line("run_start", 5))
    assert last_status(log) == ""
    log.write_bytes(line("run_stop", 6, status="aborted") + line("run_stop", 7, status="success"))
    assert last_status(log) == "success"
    log.write_bytes(log.read_bytes().rstrip(b"\n") + b" written by somebody else on the same line")
    assert last_status(log) == "success"
    os.truncate(log, 50_000_000)  # 50 MB follow it
    assert last_status(log) == "success" and last_status(log, 1 << 20) == ""
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert last_status(folder) == last_status(tmp_path / "pipe") == ""


@given(st.integers(0, 300), st.integers(0, 300))
def test_a_run_stop_across_two_blocks(before: int, after: int) -> None:
    import tempfile

    stop = line("run_stop", 7, status="success")
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"a" * before + b"\n" + stop + b"b" * ((1 << 20) - after) + b"\n")
        file.flush()
        assert last_status(file.name) == "success"
