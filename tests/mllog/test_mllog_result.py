"""What a run and a set come to stays as it was made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.mllog.olympic import kept, olympic_mean
from orchestrator.mllog.referee import score_run, score_runs
from orchestrator.mllog.result import plain
from orchestrator.mllog.rules import rules
from orchestrator.mllog.score import read_logs
from orchestrator.mllog.source import find_source
from orchestrator.mllog.window import apply_window

MI355X = "v5.1/AMD/MI355X_EPYC_9575F_pytorch/llama2_70b_lora"


def test_a_window_leaves_the_set_and_its_runs_as_they_are(published: dict[str, Path]) -> None:
    source, ruleset = find_source(str(published[MI355X])), rules("5.1.0")
    runs = [score_run(run, log, ruleset) for run, log in read_logs(source)]
    assert {run.use for run in runs} == {""}
    score = score_runs("set", [*runs, runs[0].replace(file="result_10.txt")], ruleset)
    uses = [run.use for run in score.runs]
    chosen = apply_window(score, ruleset, adopt=True)
    assert {run.use for run in runs} == {""}
    assert [run.use for run in score.runs] == uses and "outside" not in uses
    assert [run.use for run in chosen.runs].count("outside") == 1
    assert score.window is None and chosen.window is not None and len(chosen.window["windows"]) == 2
    for thing, name in ((score, "notes"), (score.runs[0], "use")):
        with pytest.raises(AttributeError, match=f"{name} was set when the object was made"):
            setattr(thing, name, "other")


def test_a_failed_run_stands_for_a_slowest_one() -> None:
    assert kept([3.0, 1.0, 2.0, 9.0]) == [2.0, 3.0]
    assert kept([3.0, 1.0, 2.0], failed=1) == [2.0, 3.0]
    assert olympic_mean([1.0, 2.0]) is None and olympic_mean([1.0, 2.0, 6.0]) == 2.0
    assert olympic_mean([1.0, 2.0, 6.0], failed=2) is None
    assert olympic_mean([float(n) for n in range(1, 10)], failed=1, dropped=4) == 5.5


def test_what_json_cannot_say() -> None:
    assert plain({"a": (float("nan"), [float("inf"), 1.5])}) == {"a": [None, [None, 1.5]]}


def test_a_cold_score_loads_neither_typing_nor_dataclasses() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import orchestrator.mllog.score, orchestrator.mllog.window, orchestrator.mllog.forecast\n"
        "print(sorted({'typing', 'dataclasses', 'inspect'} & set(sys.modules)))"
    )
    top = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(top)], capture_output=True, text=True
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
