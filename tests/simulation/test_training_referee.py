"""Logs of simulated trainings before the referee, mlperf-logging, and before this project's rules for each catalogue entry."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from mlperf_logging.compliance_checker import mlp_compliance
from trainings import ENTRIES, facts, scripts, write_set

from orchestrator.mllog.score import score_dir
from orchestrator.model import Catalogue
from orchestrator.simulation.training import Trainings

RUNS = 3
CATALOGUE = [
    (name, workload, round)
    for name in Catalogue().system_names()
    for workload, rounds in Catalogue().system(name)[1].workloads.items()
    for round in rounds
]


@pytest.mark.parametrize(("system", "workload", "round"), [entry for entry in ENTRIES if entry[1] != "builtin"])
def test_the_compliance_checker_accepts_each_log(system: str, workload: str, round: str, tmp_path: Path) -> None:
    of = facts(system, workload, round)
    folder = write_set(tmp_path, scripts(Trainings(of), RUNS))
    for path in folder.iterdir():
        checker = mlp_compliance.make_checker("training", of.ruleset, True, False)
        with redirect_stdout(io.StringIO()):
            valid = mlp_compliance.main(str(path), f"training_{of.ruleset}/common.yaml", checker)[0]
        assert valid, (checker.overwritable, checker.not_overwritable)
        assert not any(checker.warnings.values()), checker.warnings


@pytest.mark.parametrize(("system", "workload", "round"), CATALOGUE)
def test_each_entry_of_the_catalogue_gives_logs_by_its_rules(
    system: str, workload: str, round: str, tmp_path: Path
) -> None:
    of = facts(system, workload, round)
    score = score_dir(str(write_set(tmp_path, scripts(Trainings(of), RUNS))), ruleset=of.ruleset)
    assert [str(finding) for run in score.runs for finding in run.findings] == []
    assert all(run.compliant and run.converged for run in score.runs)
