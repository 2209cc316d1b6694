"""Logs of simulated trainings before the referee, mlperf-logging, and each catalogue entry's before this project's rules."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from seeded_sets import cheaply
from trainings import ENTRIES, facts, scripts, write_set

from orchestrator.mllog.score import score_dir
from orchestrator.model import Catalogue, Site, load_entry
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.simulation.faults import parse
from orchestrator.simulation.rehearsal import make_plan, rehearse
from orchestrator.simulation.training import Trainings, facts_of

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1] / "mllog")
)  # the referee of the tests of scoring

MLPERF = [entry for entry in ENTRIES if entry[1] != "builtin"]
QUICK = [entry for entry in MLPERF if entry[2] == "6.0" and entry[1] != "flux1"]
NO_ENGINE = Site(container={"engine": "none"}).container
CATALOGUE = [
    (name, workload, round)
    for name in Catalogue().system_names()
    for workload, rounds in Catalogue().system(name)[1].workloads.items()
    for round in rounds
]


@pytest.mark.parametrize(
    ("system", "workload", "round"),
    [pytest.param(*entry, marks=[] if entry in QUICK else pytest.mark.long) for entry in MLPERF],
)
def test_the_referee_accepts_a_rehearsed_set(
    system: str, workload: str, round: str, tmp_path: Path
) -> None:
    """Compliance of each log, different seeds, RCP: what the package checker asks; and the mean is ours."""
    import mllog_referee  # pandas and scipy take seconds to import

    site = Site(scheduler="slurm", log_dir=str(tmp_path / "sets"), spares=1)
    entry = load_entry(system, workload, round=round, site=site)
    if not entry.image:
        entry = load_entry(
            system, workload, round=round, site=site.model_copy(update={"container": NO_ENGINE})
        )
    plan = make_plan(entry, faults=[parse("node 1 dies in run 2")])
    with cheaply():
        played = rehearse(plan, tmp_path / "played")
    assert (
        played.complete
        and len(list(played.root.glob("runs/*/attempt_*"))) == entry.runs_required + 1
    )
    of, results = facts_of(entry), str(Layout(played.root).results)
    answer = mllog_referee.judge(results, of.benchmark, of.ruleset)
    assert (answer.crash, answer.valid) == ("", True), vars(answer)
    assert answer.olympic_mean == pytest.approx(score_dir(results, ruleset=of.ruleset).olympic_mean)


@pytest.mark.parametrize("entry", MLPERF, ids=" ".join)
def test_the_compliance_checker_has_no_warning(entry: tuple[str, str, str], tmp_path: Path) -> None:
    from mllog_referee import mlp_compliance

    ruleset = facts(*entry).ruleset
    folder = write_set(tmp_path, scripts(Trainings(facts(*entry)), 1))
    checker = mlp_compliance.make_checker("training", ruleset, True, False)
    with redirect_stdout(io.StringIO()):
        log = str(folder / "result_0.txt")
        assert mlp_compliance.main(log, f"training_{ruleset}/common.yaml", checker)[0]
    assert not any(checker.warnings.values()), checker.warnings


FIRST = {entry[1:]: entry for entry in reversed(CATALOGUE)}
"""(workload, round) -> its first entry."""


@pytest.mark.parametrize(
    ("system", "workload", "round"),
    [
        pytest.param(*entry, marks=[] if FIRST[entry[1:]] == entry else pytest.mark.long)
        for entry in CATALOGUE
    ],
)
def test_each_entry_of_the_catalogue_gives_logs_by_its_rules(
    system: str, workload: str, round: str, tmp_path: Path
) -> None:
    of = facts(system, workload, round)
    score = score_dir(str(write_set(tmp_path, scripts(Trainings(of), 3))), ruleset=of.ruleset)
    assert [str(finding) for run in score.runs for finding in run.findings] == []
    assert all(run.compliant and run.converged for run in score.runs)
