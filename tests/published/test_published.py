"""The published results: complete, consistent with their own logs, found by any name, and compared in one wording."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import outputs
import pytest

from orchestrator.model import Catalogue
from orchestrator.published import compare, find, load, wording


def test_the_example_of_the_documentation() -> None:
    (result,) = find(benchmark="llama2_70b_lora", round="6.0.0", system="mi355x_1x8x1")
    assert compare(8.31, result) == "8.31 min, 0.5 % slower than the published 8.27 min"


@pytest.mark.parametrize(
    ("percent", "words"),
    [
        (0.0, "equal to"),
        (-0.04, "equal to"),
        (1.0, "1.0 % slower than"),
        (-1.7, "1.7 % faster than"),
        (18.44, "18.4 % slower than"),
        (-18.4, "18.4 % faster than"),
    ],
)
def test_the_words_of_a_difference(percent: float, words: str) -> None:
    assert wording(percent) == words


def test_every_score_follows_from_its_runs() -> None:
    """The mean of the middle runs times the factor, where both are known, within the published rounding."""
    checked = 0
    for one in load():
        if one.run_minutes:
            unended = one.runs - len(one.run_minutes)  # the slowest, as the rules have it
            assert unended == ("without run_stop" in one.note), one
            middle = sorted(one.run_minutes)[1 : len(one.run_minutes) - 1 + unended]
            mean = sum(middle) / len(middle)
            assert one.mean == pytest.approx(mean, abs=0.006), one
            assert (min(one.run_minutes), max(one.run_minutes)) == (one.fastest, one.slowest)
            if one.factor:
                assert one.minutes == pytest.approx(mean * one.factor, abs=0.05), one
                checked += 1
    assert checked > 20


def test_every_entry_has_its_source_and_its_system() -> None:
    known = set(Catalogue().system_names())
    for one in load():
        assert one.source and one.basis in ("quoted", "computed")
        assert one.system in known
    keys = [(one.round, one.benchmark, one.submitter, one.name) for one in load()]
    assert len(set(keys)) == len(keys) == 63


def test_every_submitted_system_of_the_catalogue_is_where_its_result_points() -> None:
    catalogue = Catalogue()
    for one in load():
        if one.system:
            system = catalogue.system(one.system)[1]
            part = system.workloads[one.benchmark][one.round]
            assert (system.nodes, part.submitted) == (one.nodes, True), one
            assert part.submitter == one.submitter


def test_what_was_submitted_has_a_result_here() -> None:
    have = {(one.system, one.benchmark, one.round) for one in load()}
    submitted = {
        (system.name, workload, name)
        for system in Catalogue().systems()
        for workload, rounds in system.workloads.items()
        for name, part in rounds.items()
        if part.submitted is True
    }
    assert have == submitted


def test_an_inferred_factor_is_called_so() -> None:
    for one in load():
        if (
            one.round == "6.0"
            and one.basis == "computed"
            and one.factor
            and one.submitter != "Krai"
        ):
            assert "published figure was not found" in one.note and "factor" in one.note, one


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"system": "MI355X", "round": "6.0"}, 14),
        ({"system": "MI355X_EPYC_9575F_primus"}, 2),
        ({"system": "MI355X_1x8x1", "round": "6.0"}, 2),
        ({"round": "v5.0"}, 11),
        ({"benchmark": "flux1"}, 2),
        ({"system": "nothing"}, 0),
    ],
)
def test_finding_by_any_name(query: dict[str, str], count: int) -> None:
    assert len(find(**query)) == count


def call(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", "published", *words],
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )


def test_the_command() -> None:
    rows = outputs.checked(call("--benchmark", "flux1", "--minutes", "93", "--json").stdout)[
        "results"
    ]
    assert [(one["minutes"], one["difference_percent"]) for one in rows] == [
        (74.44, 24.93),
        (92.36, 0.69),
    ]
    text = call("--system", "MI325X_08x08x32", "--minutes", "93").stdout
    assert "0.7 % slower than the published 92.36 min" in text
    text = call("--round", "6.0", "--sources").stdout
    assert "* computed from the published logs" in text and "training_results_v6.0" in text


def test_times_of_others_are_kept_apart() -> None:
    rows = outputs.checked(call("--others", "--round", "5.1", "--json").stdout)["results"]
    assert [(one["benchmark"], one["accelerator"], one["minutes"]) for one in rows] == [
        ("llama2_70b_lora", "B300", 9.59),
        ("llama2_70b_lora", "B200", 9.85),
        ("llama31_8b", "B200", 93.69),
        ("llama31_8b", "B300", 95.1),
    ]
    assert "5.0-0076" in call("--others").stdout
    assert not {"B200", "B300", "GB200"} & {one.accelerator for one in load()}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--others", "--round", "6.0"), "no time of another maker's GPU is quoted"),
        (("--others", "--system", "MI355X"), "--others goes with"),
        (("--system", "MI355X_1x8"), "did you mean MI355X_1x8x1"),
        (("--benchmark", "gpt"), "benchmarks: bert, flux1"),
        (("--round", "4.1"), "rounds: 5.0, 5.1, 6.0"),
    ],
)
def test_nothing_found_says_what_there_is(words: tuple[str, str], says: str) -> None:
    done = call(*words)
    assert done.returncode == 2 and says in done.stderr


def test_nothing_heavy_is_imported_for_a_comparison() -> None:
    code = (
        "import sys; from orchestrator.published import find, compare; compare(8, find(system='MI355X')[0]);"
        "print([one for one in ('yaml', 'pydantic', 'docker', 'rich', 'fabric') if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True)
    assert done.stdout.strip() == "[]"


def test_score_names_the_published_result_of_the_same_system(tmp_path: Path) -> None:
    from orchestrator.cli.score import against_published

    (tmp_path / "set.json").write_text(
        '{"benchmark": "llama2_70b_lora", "round": "6.0", "system": "MI355X_1x8x1"}'
    )
    score: Any = SimpleNamespace(own=False, no_result="", minutes=8.31)
    assert against_published(str(tmp_path), score) == [
        "8.31 min, 0.5 % slower than the published 8.27 min (AMD, round 6.0)"
    ]
    for no_score in ({"own": True}, {"no_result": "no training ran"}, {"minutes": None}):
        other: Any = SimpleNamespace(**vars(score) | no_score)
        assert against_published(str(tmp_path), other) == []
    (tmp_path / "set.json").write_text("[1]")
    assert against_published(str(tmp_path), score) == []
