"""A bundle that was edited, with a word, in the middle of a set: every command that shows the result names it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import outputs
import pytest
import set_of_logs as sets
from hostile_parts import call
from recorded_set import declare, edit, keep_heads, record_runs, recorded_set

from orchestrator.errors import ExitCode

WORDS = "was edited between run"
CONFIG = "config_MI355X_1x8x1.sh"


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs 1 to 4 had the declared bundle, the others another config."""
    return recorded_set(tmp_path_factory.mktemp("edited"), sets.logs(sets.MI355X), edit_after=4)


@pytest.mark.parametrize(
    "words",
    [
        ["score"],
        ["score", "--json"],
        ["compare", str(sets.MI355X)],
        ["check"],
        ["check", "--json"],
        ["report", "-o", "-", "--format", "html"],
        ["report", "-o", "-", "--format", "md"],
        ["report", "-o", "-", "--format", "json"],
    ],
    ids=" ".join,
)
def test_it_is_a_finding(words: list[str], edited: Path, place: Path) -> None:
    answer = call([words[0], str(edited), *words[1:]])
    shown = answer.out.replace("\\_", "_")
    assert not answer.problem and WORDS in shown and CONFIG in shown, answer
    assert answer.code == (ExitCode.NO_SCORE if words[0] == "check" else ExitCode.OK)
    if "--json" in words:
        [finding] = outputs.checked(answer.out)[
            "differences" if words[0] == "score" else "findings"
        ]
        assert finding["key"] == "bundle" and "runs 1 to 4 and runs 5 to 10" in finding["message"]


@pytest.mark.parametrize("words", [["report", "-o", "-", "--format", "csv"], ["export"]])
def test_its_runs_are_marked(words: list[str], edited: Path, place: Path) -> None:
    answer = call([words[0], str(edited), *words[1:]])
    rows = {row["run"]: row["edited"] for row in csv.DictReader(io.StringIO(answer.out))}
    assert rows == {str(run): CONFIG if run > 4 else "" for run in range(1, 11)}, answer


def test_a_package_is_refused_unless_it_is_meant(edited: Path, place: Path) -> None:
    words = ["package", str(edited), "-o", "out", "--submitter", "AMD", "--framework", "x"]
    answer = call(words)
    assert answer.code == ExitCode.NO_SCORE and WORDS in answer.err, answer
    assert "--allow-differences" in answer.err and not (place / "out").exists()
    assert call([*words, "--allow-differences"]).code == ExitCode.OK
    [path] = (place / "out").rglob("runs.json")
    [difference] = json.loads(path.read_text())["differences"]
    assert WORDS in difference["message"]


def test_an_edit_before_the_first_run_is_a_note(place: Path) -> None:
    """All runs are of one experiment, which is not quite what was declared."""
    root = sets.make_set(place, sets.logs(sets.MI355X))
    declare(root)
    edit(root)
    record_runs(root, range(1, 11))
    keep_heads(root)
    answer = call(["score", str(root)])
    assert answer.code == ExitCode.OK and WORDS not in answer.out
    assert f"the bundle was edited before the first run: {CONFIG}" in answer.out, answer
    assert call(["check", str(root)]).code == ExitCode.OK
