"""What is told of a set's nodes: set aside, waiting, slow, checked."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from controller_parts import Commands, mllog, write_set

from orchestrator.cli.frame import one_set
from orchestrator.cli.watch import _lines
from orchestrator.evidence.bandwidth import best_of_each, parse
from orchestrator.evidence.events import aside_of
from orchestrator.evidence.nodes import NodeHistory, read_history, suspicions
from orchestrator.evidence.picture import picture
from orchestrator.evidence.progress import Logs
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.records import (
    JobRecord,
    RunRecord,
    SetRecord,
    read,
    write,
)
from orchestrator.views.nodes import summary, unit_of
from orchestrator.views.terminal import lines
from orchestrator.words import Screen

DEEP = """round\tnodes\tway\tbytes\tseconds\tbusbw_gbps\twrong\tnote
all\tn1,n2,n3,n4\trccl\t536870912\t0.003\t120.500\t0\t
pairs-1\tn1,n2\trccl\t536870912\t0.001\t310.000\t0\t
pairs-1\tn3,n4\trccl\t536870912\t0.003\t121.000\t0\t
pairs-2\tn1,n3\trccl\t536870912\t0.001\t309.000\t0\t
pairs-2\tn2,n4\trccl\t536870912\t0.003\t122.000\t0\t
torn\tn1
"""
CHECKS = """node\tcheck\tverdict\tms\ttext\tremedy
n1\tengine\tpass\t2\tdocker 27\t
n3\tclock\twarn\t1\tits clock is off\tsynchronise it
n4\tgpu_count\tfail\t3\t7 of 8 GPUs\tcheck dmesg
n4\tverdict\tfail\t0\tcheck gpu_count: 7 of 8 GPUs\t
"""

SAMPLES = {1: 126_000, 2: 240_000}
"""Run 2 takes twice as long as run 1 and is 5 % slower per sample."""


@pytest.fixture
def a_set(tmp_path: Path) -> Path:
    """Three runs on n1, n2 and a third node: n3, and from run 2 on n4 in its place; n5 waits."""
    job = JobRecord(
        job_id="7",
        state="running",
        started_ms=2_000,
        run=3,
        attempt=1,
        nodes=["n1", "n2", "n4"],
        spares=["n5"],
        set_aside=[
            {
                "node": "n3",
                "reason": "its container ended in run 2",
                "run": 2,
                "attempt": 1,
                "time_ms": 9,
            }
        ],
        warnings=["check clock: off (n3)"],
    )
    root = write_set(tmp_path, "s", nexp=3, job=job)
    for run, attempt, third, outcome, minutes in (
        (1, 1, "n3", "success", 1),
        (2, 1, "n3", "infrastructure", 0),
        (2, 2, "n4", "success", 2),
        (3, 1, "n4", "", 0),
    ):
        folder = root / f"runs/{run}/attempt_{attempt}"
        folder.mkdir(parents=True, exist_ok=True)
        state = {"success": "success", "infrastructure": "failed", "": "running"}[outcome]
        names = ["n1", "n2", third]
        codes = (
            {"n1": 143, "n2": 143, "n3": 139}
            if outcome == "infrastructure"
            else dict.fromkeys(names, 0)
        )
        record = RunRecord(
            run=run,
            attempt=attempt,
            state=state,
            outcome=outcome,
            start_ms=1_000,
            nodes=names,
            exit_codes=codes if outcome else {},
            end_ms=61_000 if outcome else 0,
        )
        write(record, folder / "state.json")
        write(record, folder.parent / "state.json")
        if not outcome:
            continue
        for rank, name in enumerate(names):
            end_ms = 61_000 + (3_000 if name == "n4" else 0)
            (folder / f"node_{rank}.json").write_text(
                json.dumps(
                    {
                        "node": name,
                        "rank": rank,
                        "exit": codes[name],
                        "start_ms": 1_000,
                        "end_ms": end_ms,
                    }
                )
            )
        if outcome == "success":
            (folder.parent / f"result_{run}.txt").write_text(
                mllog("run_start", 5, None)
                + mllog("eval_accuracy", 6, 1.0, samples_count=SAMPLES[run])
                + mllog("run_stop", 5 + minutes * 60_000, None, status="success")
            )
    (root / "preflight").mkdir()
    (root / "preflight/7.tsv").write_text(CHECKS)
    (root / "preflight/deep-7.tsv").write_text(DEEP)
    return root


def test_a_job_record_with_spares_and_set_aside_nodes(a_set: Path) -> None:
    job = read(JobRecord, a_set / "jobs/7.json")
    assert (
        isinstance(job, JobRecord)
        and job.spares == ["n5"]
        and job.warnings == ["check clock: off (n3)"]
    )
    assert [(exclusion.node, exclusion.run, exclusion.when) for exclusion in aside_of(job)] == [
        ("n3", 2, "run 2, attempt 1")
    ]
    odd = {
        "schema": 1,
        "job_id": "8",
        "state": "running",
        "set_aside": [{"node": "a", "run": "x", "reason": 3}, 7, {}],
        "new": 1,
    }
    (a_set / "jobs/8.json").write_text(json.dumps(odd))
    job = read(JobRecord, a_set / "jobs/8.json")
    assert isinstance(job, JobRecord) and [
        (exclusion.node, exclusion.reason, exclusion.when) for exclusion in aside_of(job)
    ] == [("a", "", "before the first run")]


def test_status_tells_spares_set_aside_nodes_and_warnings(
    cli: Commands, a_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    cli("status", a_set)
    assert "spares    n5 (1 waiting)" in cli.out
    assert "excluded  n3 (run 2, attempt 1): its container ended in run 2" in cli.out
    assert "warning   check clock: off (n3)" in cli.out
    answer = cli.json("status", a_set)
    assert (
        answer["spares"] == ["n5"] and answer["set_aside"][0]["node"] == "n3" and answer["warnings"]
    )


def test_watch_has_a_line_when_a_node_is_set_aside(a_set: Path) -> None:
    now = picture(SetEvidence(a_set), {}, Logs())
    before = picture(SetEvidence(a_set), {}, Logs())
    object.__setattr__(before, "set_aside", ())
    out = io.StringIO()
    _lines(iter([before, now, now]), out, None)
    assert out.getvalue().count("excluded n3 (run 2, attempt 1): its container ended in run 2") == 1


def test_a_blamed_node_is_shown_as_blamed(cli: Commands, a_set: Path) -> None:
    reason = "its container ended in run 2"
    blame = "\x1f".join(("container", reason, "2", "1"))
    (a_set / "events-7.tsv").write_text(f"5\tloop\tblamed\tn3\t{blame}\n")
    drawn, out = picture(SetEvidence(a_set), {}, Logs()), io.StringIO()
    _lines(iter([drawn]), out, None)
    for text, shown in (
        (cli("status", a_set).out, f"\nblamed   n3 (run 2, attempt 1): {reason}\n"),
        ("\n".join(one_set(drawn, Screen(120), 40)), f"blamed   n3 (run 2, attempt 1): {reason}"),
        (out.getvalue(), f"blamed n3 (run 2, attempt 1): {reason}"),
        (cli("nodes", a_set).out, f"blamed (run 2, attempt 1): {reason} (n3)"),
    ):
        assert shown in text and "excluded" not in text
    answer = cli.json("status", a_set)
    assert answer["set_aside"] == [] and answer["blamed"][0]["node"] == "n3"


def test_the_nodes_of_a_set(cli: Commands, a_set: Path) -> None:
    answer = cli.json("nodes", a_set)
    nodes = {row["node"]: row for row in answer["nodes"]}
    assert list(nodes) == ["n1", "n2", "n4", "n3", "n5"]
    first, third, fourth = nodes["n1"], nodes["n3"], nodes["n4"]
    assert (first["ranks"], first["good"], first["failed"], first["exit_codes"]) == ([0], 2, 1, [])
    assert (third["good"], third["failed"], third["exit_codes"]) == (1, 1, [139])
    assert third["set_aside"][0]["reason"] == "its container ended in run 2"
    assert (fourth["ranks"], fourth["good"], round(fourth["relative"], 3)) == ([2], 1, 1.05)
    assert (fourth["minutes_with"], fourth["minutes_without"]) == (2, 1)
    assert (fourth["bandwidth_gbps"], fourth["preflight"]["verdict"]) == (122.0, "fail")
    assert fourth["preflight"]["reason"] == "gpu_count: 7 of 8 GPUs"
    assert nodes["n5"]["waits"] and nodes["n5"]["preflight"] is None
    assert any("n4 reached 122.0 GB/s" in text for text in answer["suspicions"])
    assert any(
        "runs with n4 were 5.0 % slower per sample: 2,000 samples/s, those without it 2,100" in text
        for text in answer["suspicions"]
    )
    assert any("n4 took 5.0 % longer" in text for text in answer["suspicions"])
    groups = {tuple(row["nodes"]): (row["runs"], row["mean"]) for row in answer["groups"]}
    assert groups == {("n1", "n2", "n3"): ([1], 1), ("n1", "n2", "n4"): ([2], 2)}
    cli("nodes", a_set)
    assert "\nn[1-2,4]  2     2.000 min  2.000 min  2.000 min   1.333\n" in cli.out
    assert "fail: gpu_count: 7 of 8 GPUs; check dmesg (n4)" in cli.out
    assert cli.code == 0 and "VS OTHERS" in cli.out and "waits" in cli.out
    assert "excluded (run 2, attempt 1): its container ended in run 2 (n3)" in cli.out
    assert "warn: clock: its clock is off; synchronise it (n3)" in cli.out and "slow: n4" in cli.out
    assert "with: mean time to train of the good runs with it (plain, not olympic)" in cli.out
    assert re.search(r"^n3 .* s failed ", cli.out, re.MULTILINE)


def test_equal_nodes_in_every_run_end_in_the_test_that_tells_them_apart(
    cli: Commands, a_set: Path, tmp_path: Path
) -> None:
    def closing(**changes: str) -> list[str]:
        record = read(SetRecord, root / "set.json")
        assert isinstance(record, SetRecord)
        write(replace(record, **changes), root / "set.json")
        cli("nodes", root)
        return cli.out.splitlines()[-2:]

    root = write_set(tmp_path / "same", "s", done=2)
    for run in (1, 2):
        folder = root / f"runs/{run}/attempt_1"
        attempt = read(RunRecord, folder / "state.json")
        assert isinstance(attempt, RunRecord)
        names = ["n1", "n2"]
        changed = replace(attempt, nodes=names, exit_codes=dict.fromkeys(names, 0))
        write(changed, folder / "state.json")
    sentence, command = closing(engine="docker", workload="a b")
    assert sentence.endswith(
        "times cannot show which node is slow. The bandwidth test can, if the image has torch:"
    )
    assert command.startswith("  orchestrator doctor ") and " 'a b' --round " in command
    assert command.endswith(" --all-nodes --deep")
    assert closing(engine="none")[-1].endswith("times cannot show which node is slow.")
    cli("nodes", a_set)
    assert "cannot show" not in cli.out, "its runs had different nodes"


def test_without_spares_it_says_why_no_node_is_named(
    cli: Commands, a_set: Path, tmp_path: Path
) -> None:
    cli("nodes", a_set)
    assert "No node is blamed" not in cli.out
    job = read(JobRecord, a_set / "jobs/7.json")
    assert isinstance(job, JobRecord)
    write(replace(job, spares=[], set_aside=[]), a_set / "jobs/7.json")
    cli("nodes", a_set)
    *_, sentence, command = cli.out.splitlines()
    assert sentence == (
        "No node is blamed for the failed attempts: the set has no spare node to replace one. "
        "Their cause:"
    )
    assert command == f"  orchestrator explain {a_set}"
    good = write_set(tmp_path / "good", "s", done=2)
    cli("nodes", good)
    assert "No node is blamed" not in cli.out, "none of its attempts failed"


def test_no_node_is_slow_because_of_its_seeds(cli: Commands, a_set: Path) -> None:
    log = a_set / "runs/2/result_2.txt"
    log.write_text(log.read_text().replace("240000", "252000"))
    answer = cli.json("nodes", a_set)
    fourth = next(row for row in answer["nodes"] if row["node"] == "n4")
    assert (fourth["minutes_with"], fourth["minutes_without"]) == (2, 1)
    assert not any("runs with" in text for text in answer["suspicions"])


def test_a_set_without_nodes_or_with_damage(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s")
    cli("nodes", root)
    assert cli.code == 0 and "has had nodes yet" in cli.out
    root = write_set(tmp_path, "t", done=2)
    (root / "runs/1/attempt_1/node_0.json").write_text("[]")
    (root / "runs/2/attempt_1/state.json").write_text("{")
    (root / "preflight").mkdir()
    (root / "preflight/7.tsv").write_bytes(b"\xff\n")
    [history] = read_history(SetEvidence(root))
    assert (history.node, history.good, history.last) == ("n1", 1, None) and suspicions(
        [history]
    ) == []


def test_a_good_group_clears_its_nodes() -> None:
    best = best_of_each(parse(DEEP))
    result = {node: measurement.gbps for node, measurement in best.items()}
    assert result == {"n1": 310.0, "n2": 310.0, "n3": 309.0, "n4": 122.0}
    assert best_of_each(parse("")) == {} and parse("a\tb\tc\td\te\tnan\t0\t\n") == []


def test_every_node_has_a_row() -> None:
    """Pages have limits; a terminal and a pipe show all that there is."""
    history = [NodeHistory(f"n{index}") for index in range(1000)]
    shown = lines([summary(history, unit_of(history))])
    assert shown.index("") == 1001 and shown[1000].startswith("n999 ")
