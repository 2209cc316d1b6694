"""The parts of a score with what logs leave out, leave blank or exaggerate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import set_of_logs as sets

from orchestrator import open_set
from orchestrator.compare.comparison import compare
from orchestrator.compare.page import page
from orchestrator.compare.sides import find_side
from orchestrator.mllog.rcp import FAILED, RcpResult, table
from orchestrator.mllog.result import RunScore, Score
from orchestrator.mllog.score import score_dir
from orchestrator.views.figures import MINUTES, MISSING
from orchestrator.views.score import (
    about,
    check_text,
    logged,
    score_facts,
    score_parts,
    scored_runs,
)
from orchestrator.views.sets import run_table
from orchestrator.views.terminal import lines
from orchestrator.words import Screen


@pytest.fixture(scope="module")
def score() -> Score:
    return score_dir(str(sets.MI355X))


def changed(score: Score, **members: object) -> list[RunScore]:
    first, *others = score.runs
    return [first.replace(**members), *others]


def test_a_blank_value_of_a_log_is_missing(score: Score) -> None:
    header = list(scored_runs(score.runs).header)
    [row, *_] = scored_runs(changed(score, status="", seed=" ")).rows
    assert [row[header.index(name)] for name in ("status", "seed")] == [MISSING, MISSING]


def test_logs_without_a_benchmark_say_so(score: Score, tmp_path: Path) -> None:
    without = score.replace(benchmark=None)
    assert "None" not in about(without) and "None" not in check_text(without)
    for index, text in enumerate(sets.logs(sets.MI355X)):
        kept = b"".join(
            line for line in text.splitlines(True) if b'"submission_benchmark"' not in line
        )
        (tmp_path / f"result_{index}.txt").write_bytes(kept)
    side = find_side(str(tmp_path), ruleset="5.1.0")
    assert side and "unknown benchmark: B against A" in page([compare(side, side)])


def test_a_run_that_did_not_converge_has_no_samples(score: Score) -> None:
    [row, *_] = scored_runs(changed(score, samples=None)).rows
    assert row[3] == MISSING
    assert score.rcp and score.rcp.point
    rcp = RcpResult(True, score.rcp.message, score.rcp.point, FAILED / 8, converged=False)
    exaggerated = score.replace(rcp=rcp)
    assert "samples to converge" in dict(score_facts(score, MINUTES))
    assert "samples to converge" not in dict(score_facts(exaggerated, MINUTES))
    assert "00000000" not in "\n".join(lines(score_parts(exaggerated)))


@pytest.mark.parametrize("lost", [0, 2])
def test_large_samples_are_no_failures(score: Score, lost: int) -> None:
    """dlrmv4 needs more than 1e8 samples: as many as the mean of a set with a failed run."""
    samples = [112_394_240.0] * (10 - lost) + [FAILED] * lost
    reference = table("6.1.0", "dlrmv4")
    assert reference
    result = reference.check(32768, samples)
    assert result.shown_mean == (None if lost else samples[0])
    [row, *_] = scored_runs(changed(score, samples=samples[0])).rows
    assert str(row[3]).replace("\u202f", "") == "112394240"


@pytest.mark.parametrize("use", ["counted", "bad"])
def test_80_columns_show_the_file_that_findings_name(score: Score, use: str) -> None:
    shown = lines([scored_runs(changed(score, use=use))], Screen(80, signs="unicode"))
    for run in score.runs:
        assert any(line.endswith(f" {run.file}") for line in shown), run.file


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1941693939.0, "1941693939"),
        (0.12345678901, "0.12345678901"),
        (7, "7"),
        (True, "True"),
        (None, MISSING),
        ("", MISSING),
        ("seven", "seven"),
        (1e300, "1e+300"),
    ],
)
def test_a_logged_value_keeps_its_digits(value: object, text: str) -> None:
    assert logged(value) == text


def test_views_have_one_sign_for_a_missing_value(score: Score, tmp_path: Path) -> None:
    assert about(score.replace(runs=())).endswith(f"batch size {MISSING}")
    seen = open_set(sets.make_set(tmp_path, sets.logs(sets.MI355X)))
    shown = replace(seen, runs=(replace(seen.runs[0], seed=0, minutes=None),))._repr_html_()
    assert f">{MISSING}</td>" in shown and ">-</td>" not in shown
    assert "-" in lines([run_table(seen.runs)])[1].split()
