"""`orchestrator rehearse`: what it plays and prints, how it is marked, and what it refuses."""

from __future__ import annotations

import csv
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import set_invariants as invariants
from outputs import checked
from seeded_sets import cheaply

from orchestrator.cli import main
from orchestrator.cli.rehearsal_parts import spares_table
from orchestrator.model import Site, load_entry
from orchestrator.onnode.kernel.records import REHEARSAL
from orchestrator.simulation.faults import parse, sentences
from orchestrator.simulation.rehearsal import RehearsedWorld, make_plan
from orchestrator.simulation.rendered import Rendered
from orchestrator.simulation.trials import Case, Failures, SparesResult, Trial, scheduled_s

SYSTEM = """kind: system
name: three_nodes
accelerator: cpu
nodes: 3
gpus_per_node: 1
workloads:
  builtin:
    "1.0": {micro_batch: 8, global_batch: 24}
"""
ENTRY = ("three_nodes", "builtin", "--nexp", "3", "--run-time", "10min")


class Result:
    """A command that was called: its exit code and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def row(self, text: str) -> str:
        """Return the first line of the output with this text."""
        return next(line for line in self.out.splitlines() if text in line)


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Call the command line in a folder with a site for three nodes and a spare."""
    folder = tmp_path / "work"
    (folder / "systems").mkdir(parents=True)
    (folder / "systems/three_nodes.yaml").write_text(SYSTEM)
    (tmp_path / "sets").mkdir()
    (folder / "site.yaml").write_text(site_text(tmp_path))
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("ORCHESTRATOR_SITE", raising=False)
    before = sorted(tmp_path.iterdir())

    def call(*argv: str | Path) -> Result:
        capfd.readouterr()
        try:
            with cheaply():
                code = main([str(word) for word in argv])
        except SystemExit as ended:
            code = int(ended.code or 0)
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        assert sorted(tmp_path.iterdir()) == before, "something is left behind"
        assert not list((tmp_path / "sets").iterdir()), "the site's log directory is for real sets"
        return Result(code, out, err)

    return call


def site_text(place: Path, more: str = "") -> str:
    return (
        f"kind: site\nscheduler: slurm\npartition: gpu\nlog_dir: {place}/sets\nspares: 1\n"
        'limits: {run_timeout_minutes: 40}\ntime_limit: "10:00:00"\n'
        f"systems_dirs: [{place}/work/systems]\n{more}"
    )


def rehearsed(run: Run, *more: str | Path) -> dict[str, Any]:
    """Return what a rehearsal of three runs prints as JSON."""
    return checked(run("rehearse", *ENTRY, *more, "--json").out)


def texts(document: dict[str, Any]) -> list[str]:
    return [moment["text"] for moment in document["timeline"]]


# ---- what is played ----


def test_a_node_that_dies_is_replaced_by_the_spare(run: Run) -> None:
    result = run("rehearse", *ENTRY, "--fault", "node 2 dies in run 2")
    assert result.code == 0
    lines = [
        "job 1 starts on n[1-4]",
        "node n2 dies",
        "run 2 attempt 1 failed",
        "node n4 takes the place of node n2",
    ]
    places = [result.out.index(line) for line in lines]
    assert places == sorted(places)
    assert result.out.count("has converged after") == 3
    assert result.row("rehearsal: complete after").endswith("without `resume`")
    assert "rehearsal, not a result (no training ran):" in result.out


def test_a_job_that_is_too_short_is_resumed(run: Run) -> None:
    document = rehearsed(run, "--time", "30", "--resume-after", "2h")
    assert document["complete"] and document["resumes"] >= 1
    commands = [moment for moment in document["timeline"] if moment["kind"] == "user"]
    assert [moment["text"] for moment in commands[:2]] == [
        "orchestrator submit",
        "orchestrator resume",
    ]
    assert commands[1]["at_s"] > 7200
    assert "resumed" in run("rehearse", *ENTRY, "--time", "30").out


def test_a_rehearsal_is_not_compared_with_the_published_result(run: Run) -> None:
    """Its times are drawn from that result."""
    with Path("site.yaml").open("a") as file:
        file.write("data: {llama2_70b_lora: {DATADIR: /data}}\n")
    result = run("rehearse", "MI355X_1x8x1", "llama2_70b_lora")
    assert result.code == 0 and "valid score: " in result.out
    assert "the published" not in result.out


def test_the_user_resumes_when_it_is_said(run: Run) -> None:
    """Slurm has given up the node after SlurmdTimeout, six minutes; it is back after two hours."""
    document = rehearsed(
        run, "--spares", "0", "--fault", "node 2 dies for 2h in run 2", "--resume-after", "10min"
    )
    at = {moment["text"]: moment["at_s"] for moment in document["timeline"]}
    died, resumed, started = (
        at["node n2 dies, for 2h"],
        at["orchestrator resume"],
        at["job 2 starts on n[1-3]"],
    )
    assert 600 < resumed - died < 600 + 700 and 7200 < started - died < 7230


def test_a_job_without_its_batch_host_is_cancelled_and_resumed(run: Run) -> None:
    """With --no-kill Slurm keeps such a job until its time limit; the loop has been silent for five minutes before it is noticed."""
    document = rehearsed(
        run, "--fault", "the batch host dies in run 2", "--resume-after", "20min", "--cluster", "5"
    )
    at = {moment["text"]: moment["at_s"] for moment in document["timeline"]}
    assert 300 <= round(at["orchestrator cancel"] - at["the batch host dies"], 3) < 310
    ended = at["job 1 is ended by Slurm: CANCELLED"]
    assert 1200 <= round(at["orchestrator resume"] - ended, 3) < 1210
    assert document["complete"] and document["resumes"] == 1


def test_a_requeued_job_starts_again_without_a_resume(run: Run) -> None:
    document = rehearsed(run, "--fault", "the batch host dies and the job is requeued in run 2")
    assert texts(document).count("job 1 starts on n[1-4]") == 2
    assert document["complete"] and not document["resumes"]


def test_a_reservation_that_ends_ends_the_job(run: Run) -> None:
    document = rehearsed(run, "--fault", "the reservation ends for 1h at 20 min")
    second = next(moment for moment in document["timeline"] if "job 3 starts" in moment["text"])
    assert document["resumes"] == 1 and second["at_s"] > 1200 + 3600


@pytest.mark.parametrize("scheduler", ["slurm", "local"])
def test_every_site_is_played_as_slurm(run: Run, tmp_path: Path, scheduler: str) -> None:
    more = 'container: {engine: none}\ntunables: "off"\n' if scheduler == "local" else (
        "reservation: mlperf\nqos: high\nconstraint: mi325x\nnodelist: [gpu07, 'gpu[10-14]']\nexclude: [gpu11]\n"
        "sbatch: [--comment=x]\n"
    )  # fmt: skip
    Path("site.yaml").write_text(site_text(tmp_path, more).replace("slurm", scheduler))
    document = rehearsed(run, "--fault", "node 1 dies in run 1")
    assert document["complete"]
    names = (
        ["gpu07", "gpu10", "gpu12", "gpu13"] if scheduler == "slurm" else ["n1", "n2", "n3", "n4"]
    )
    assert document["nodes"] == names
    assert f"node {names[0]} dies" in texts(document)


def test_runs_side_by_side(run: Run) -> None:
    document = rehearsed(run, "--side-by-side", "3", "--spares", "0")
    assert document["complete"] and len(document["nodes"]) == 9
    ends = [moment["at_s"] for moment in document["timeline"] if moment["kind"] == "run"]
    alone = rehearsed(run, "--spares", "0")
    assert max(ends) < alone["ended_s"] / 2


def test_the_same_seed_gives_the_same_bytes_and_another_one_does_not(
    run: Run, tmp_path: Path
) -> None:
    faults = tmp_path / "work/faults.txt"
    faults.write_text(
        "# what goes wrong\nnode 3 dies in run 2   # in the middle\n\nthe storage is full for 2m in run 1\n"
    )
    words = ["rehearse", *ENTRY, "--faults", str(faults), "--seed"]
    first = run(*words, "7").out
    assert "seed        7" in first
    command = [sys.executable, "-m", "orchestrator", *words]
    again = subprocess.run([*command, "7"], capture_output=True, text=True, timeout=300, check=True)
    assert again.stdout == first
    assert run(*words, "8").out != first


def test_a_fault_whose_time_never_comes_is_named(run: Run) -> None:
    result = run("rehearse", *ENTRY, "--fault", "node 1 dies at 100 days")
    assert "this fault did not happen, its time never came: node 1 dies at 100d" in result.out


def test_a_set_that_is_never_complete_says_so(run: Run) -> None:
    result = run(
        "rehearse", *ENTRY, "--spares", "0", "--fault", "node 1 dies for 1000 days in run 2"
    )
    assert result.code == 1
    last = result.row("rehearsal: not complete after")
    assert "2 of 3 runs without result (job 2 is pending: Nodes required for job are DOWN" in last
    assert "lost: the rehearsal ended, and its job had not closed the set" in result.out


def test_a_user_gives_up(run: Run) -> None:
    result = run(
        "rehearse",
        *ENTRY,
        "--nexp",
        "1",
        "--spares",
        "0",
        "--fault",
        "node 2 fails a check for 1000 days at 0s",
    )
    assert result.code == 1
    assert "after 20 resumes: 1 of 1 run without result" in result.row("rehearsal: not complete")


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.long), signal.SIGTERM]
)
def test_trials_that_are_ended_leave_nothing_behind(
    run: Run, tmp_path: Path, number: signal.Signals
) -> None:
    words = ["rehearse", *ENTRY, "--node-mtbf", "1h", "--trials", "100000"]
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any("the trials take about" in line for line in process.stderr)
        process.send_signal(number)
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sets", "work"]


# ---- how it is marked ----


@pytest.fixture
def kept(run: Run, tmp_path: Path) -> Path:
    """The folder of a rehearsed set with a dead node."""
    folder = tmp_path / "work/kept"
    result = run("rehearse", *ENTRY, "--fault", "node 2 dies in run 2", "-o", folder)
    assert result.code == 0 and f"kept: {folder}" in result.out
    return folder


def test_a_kept_set_is_whole(kept: Path) -> None:
    found = [
        *invariants.record_violations(kept, 3),
        *invariants.leftover_files(kept),
        *invariants.ledger_violations(kept),
    ]
    assert not [*found, *invariants.replay_violations(kept), *invariants.score_violations(kept)]
    assert invariants.read_json(kept / "set.json")["created_by"] == REHEARSAL  # type: ignore[index]


def test_every_command_says_that_it_is_a_rehearsal(run: Run, kept: Path) -> None:
    for command in ("status", "score", "watch", "check", "explain"):
        result = run(command, kept)
        assert result.code == 0 and "rehearsal" in result.out, command
    assert "blamed" in run("nodes", kept).out
    assert run("ledger", "verify", kept).code == 0
    assert checked(run("status", kept, "--json").out)["rehearsal"] is True
    assert checked(run("score", kept, "--json").out)["rehearsal"] is True
    row = next(csv.DictReader(run("export", kept).out.splitlines()))
    assert (row["rehearsal"], row["stand_in"]) == ("1", "0")
    run("report", kept, "-o", "report.html")
    assert "rehearsal, not a result (no training ran)" in Path("report.html").read_text()
    assert (
        "rehearsal, not a result (no training ran)"
        in run("report", kept, "--format", "md", "-o", "-").out
    )
    assert "is a rehearsal: no training ran" in run("compare", kept, kept).out


def test_metrics_have_a_label(run: Run, kept: Path, tmp_path: Path) -> None:
    Path("site.yaml").write_text(site_text(tmp_path).replace("/sets", "/work/all"))
    Path("all").mkdir()
    kept.rename("all/kept")
    assert 'rehearsal="true"' in run("metrics").out


@pytest.mark.parametrize("logs_alone", [False, True])
def test_package_refuses_a_rehearsal(run: Run, kept: Path, logs_alone: bool) -> None:
    folder = kept
    if logs_alone:
        folder = Path("logs")
        folder.mkdir()
        for number in (1, 2, 3):
            (folder / f"result_{number}.txt").write_bytes(
                (kept / f"runs/{number}/result_{number}.txt").read_bytes()
            )
    result = run("package", folder, "-o", "tree", "--submitter", "AMD", "--system", "x")
    assert result.code == 1 and "this is a rehearsal: no training ran" in result.err
    assert not Path("tree").exists()


@pytest.mark.parametrize("command", ["resume", "cancel"])
def test_a_rehearsal_has_no_job(run: Run, kept: Path, command: str) -> None:
    result = run(command, kept)
    assert result.code == 5 and "is a rehearsal: it has no job" in result.err


# ---- what is refused ----


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--fault", "node 3 explodes in run 1"], "did you mean `node 3 dies`?"),
        (["--fault", "node 3 dies in run 4"], "the set has 3 runs, and this names run 4"),
        (["--fault", "node 5 dies in run 1"], "the cluster has 4 nodes, and this names node 5"),
        (["--fault", "node 0 dies in run 1"], "the cluster has 4 nodes, and this names node 0"),
        (["--fault", "node 1 dies"], "has no time"),
        (["--fault", "node 1 dies at 3 parsecs"], "is not a duration"),
        (["--faults", "missing.txt"], "missing.txt: No such file or directory"),
        (["--faults", "faults.txt"], "faults.txt:3: unknown fault: 'the roof falls in'"),
        (["--cluster", "3"], "the job asks for 4"),
        (["--time", "soon"], "'soon' is not a time"),
        (["--resume-after", "later"], "is not a duration"),
        (["-o", "systems"], "exists and is not empty"),
        (["-o", "nowhere/kept"], "nowhere is not a folder"),
        (["-o", "../sets/kept"], "is in the site's log directory, among real sets"),
    ],
)
def test_wrong_input_is_refused(run: Run, words: list[str], problem: str) -> None:
    Path("faults.txt").write_text("# two\nnode 1 dies in run 1\nthe roof falls in\n")
    result = run("rehearse", *ENTRY, *words)
    assert (result.code, result.out) == (2, "")
    assert problem in result.err


# ---- the page ----


def test_the_page_has_every_sentence() -> None:
    page = (Path(__file__).parents[2] / "docs/rehearse.md").read_text()
    table = page.partition("## Faults")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == sentences()


def test_a_fault_is_written_as_it_is_read() -> None:
    for text in (
        "node 3 dies for 1d in run 4 after 20m",
        "the storage is full for 1h30m at 12.5s",
        "the loop is killed in run 1",
    ):
        assert str(parse(text)) == text
    assert parse("node gpu-12 dies at 2 hours.", ["gpu-11", "gpu-12"]) == parse("node 2 dies at 2h")


# ---- nodes that fail at random ----


def tried(run: Run, *more: str | Path) -> dict[str, Any]:
    """Return what trials of three runs print as JSON."""
    return checked(run("rehearse", *ENTRY, *more, "--json").out)


@pytest.mark.long
def test_spares_save_time_where_nodes_fail(run: Run) -> None:
    words = (
        "--node-mtbf",
        "3h",
        "--trials",
        "10",
        "--spares",
        "0..1",
        "--within",
        "50min",
        "--cluster",
        "9",
        "--seed",
        "3",
    )
    document = tried(run, *words)
    none, one = document["spares"]
    assert none["nodes"] == one["nodes"] == 9
    assert 0 < none["played"] < 10 and none["failures_mean"] > 0
    assert none["within_share"] < one["within_share"] < 1.0 <= none["complete_share"]
    assert none["node_hours_mean"] >= 3 * min(none["ended_s"]) / 3600
    assert one["node_hours_mean"] >= 4 * min(one["ended_s"]) / 3600
    assert one["unattended_share"] > none["unattended_share"]
    assert none["median_s"] <= none["p90_s"] <= none["p99_s"] == max(none["ended_s"])


def test_trials_follow_from_their_seed(run: Run) -> None:
    words = ("--node-mtbf", "3h", "--trials", "2", "--run-time", "5min")
    assert tried(run, *words) == tried(run, *words) != tried(run, *words, "--seed", "2")


def test_the_table_of_trials(run: Run) -> None:
    result = run("rehearse", *ENTRY, "--node-mtbf", "2000h", "--trials", "4", "--within", "1h")
    assert result.code == 0
    header, row = (result.out.splitlines()[k] for k in (-4, -3))
    assert header.split() == [
        "SPARES",
        "NODES",
        "FAILURES",
        "NODE-HOURS",
        "MEDIAN",
        "90",
        "%",
        "99",
        "%",
        "WITHOUT",
        "RESUME",
        "COMPLETE",
        "WITHIN",
        "1h",
    ]
    assert row.split()[:2] == ["1", "4"] and row.endswith("100.0 %")


@pytest.mark.parametrize("at_once", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_trial_without_failures_takes_as_long_as_if_it_were_played(
    run: Run, tmp_path: Path, at_once: int
) -> None:
    site = Site(
        partition="gpu",
        log_dir=str(tmp_path),
        side_by_side=at_once,
        limits={"run_timeout_minutes": 40},
        time_limit="10:00:00",
    )
    entry = load_entry("three_nodes", "builtin", site=site, systems_dirs=[Path("systems")])
    plan = make_plan(entry, 5, run_s=600.0)
    case = Case(plan, Rendered(plan.entry, 5))
    case = replace(case, known=case.measured(tmp_path / "work/measured"))
    for seed in (11, 12, 13):
        world = RehearsedWorld(replace(plan, seed=seed), tmp_path / "work/played", case.rendered)
        world.play()
        assert (
            abs(world.ended_s - scheduled_s(world.lengths, at_once) - case.known.overhead_s) < 10.0
        )
    assert not case.played(
        tmp_path / "work/played", Failures(1e9, 3600.0), 14, [random.Random(1)] * 6
    ).failures
    assert case.unplayed_s(14) < 3600 * 3
    assert replace(case, known=replace(case.known, limit_s=1900.0)).unplayed_s(14) == inf


def test_the_runs_of_a_set_follow_one_another() -> None:
    assert scheduled_s([3.0, 1.0, 2.0], 1) == 6.0
    assert scheduled_s([3.0, 1.0, 2.0, 2.0], 2) == 5.0


def test_quantiles_count_sets_that_are_never_complete() -> None:
    trials = [
        Trial(100.0 * k, k < 10, resumes=k % 2, failures=0, played=True, node_hours=8.0)
        for k in range(1, 11)
    ]
    result = SparesResult(0, 3, tuple(trials))
    assert (result.quantile(0.5), result.quantile(0.9), result.quantile(0.99)) == (
        500.0,
        900.0,
        inf,
    )
    assert (result.within(450.0), result.complete, result.unattended) == (0.4, 0.9, 0.4)
    assert spares_table([result], 450.0, "7m30s").rows[0] == [
        "0",
        "3",
        "0.00",
        "8",
        "8m20s",
        "15m",
        "never",
        "40.0 %",
        "90.0 %",
        "40.0 %",
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--trials", "3"], "--trials goes with --node-mtbf"),
        (["--within", "3h"], "--within goes with --node-mtbf"),
        (["--node-repair", "3h"], "--node-repair goes with --node-mtbf"),
        (["--spares", "0..3"], "a range of --spares goes with --node-mtbf"),
        (["--spares", "3..1", "--node-mtbf", "1h"], "is not a range such as 0..3"),
        (["--spares", "0..99", "--node-mtbf", "1h"], "of at most 20 numbers"),
        (["--node-mtbf", "1h", "-o", "kept"], "-o goes with one set"),
        (["--node-mtbf", "often"], "is not a duration"),
        (["--node-mtbf", "0h"], "is not a duration above 0"),
    ],
)
def test_wrong_rates_are_refused(run: Run, words: list[str], problem: str) -> None:
    result = run("rehearse", *ENTRY, *words)
    assert (result.code, result.out) == (2, "")
    assert problem in result.err
