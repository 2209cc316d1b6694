"""1,000 command lines with one thing wrong in each: a message and the right exit code, in time, and nothing left behind."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bad_lines import LINES as KINDS_OF_LINES
from bad_lines import BadLine, bad_line, bad_lines, good_line, make_places
from hostile_parts import Answer, call
from until import LIMIT_S

import orchestrator
from orchestrator.errors import ExitCode

TOP = Path(orchestrator.__file__).resolve().parent.parent
LINES = 150
MORE = 20_000
"""Of `make long`."""


def problem(answer: Answer, may: frozenset[int]) -> str:
    if answer.problem:
        return answer.problem
    if answer.code not in may:
        return f"exit code {answer.code}, not one of {sorted(map(int, may))}"
    return f"leaves {os.listdir('.')}" if os.listdir(".") else ""


def remove(out: str) -> None:
    for path in Path(out).parent.glob("out*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def answer_of(line: BadLine, place: Path, places: dict[str, str]) -> tuple[Answer, str]:
    """Return the answer to a line, and what is wrong with it."""
    answer = call(line.words, place.parent)
    what = problem(answer, frozenset(line.may))
    remove(places["OUT"])
    return answer, what


def wrong(seeds: range, place: Path, whole: Path) -> list[str]:
    """The lines that were not answered as they should."""
    places = make_places(place.parent / "places", whole)
    found = []
    for seed, line in bad_lines(seeds, places):
        answer, what = answer_of(line, place, places)
        if what:
            found.append(f"seed {seed}: {line.why[:200]}: {what}: {answer}"[:2000])
    return found


def test_bad_command_lines(place: Path, whole: Path) -> None:
    assert wrong(range(LINES), place, whole) == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(LINES, LINES + MORE, 4000))
def test_more_bad_command_lines(first: int, place: Path, whole: Path) -> None:
    assert wrong(range(first, first + 4000), place, whole) == []


EXPECTED = ("has started yet", "no password was written")
"""Refusals of good lines here: no set runs, and nobody writes a password."""


def test_a_line_is_good_but_for_one_thing(place: Path, whole: Path) -> None:
    """Otherwise what is wrong with every line would hide what was put into it."""
    places = make_places(place.parent / "places", whole)
    refused = []
    for line in KINDS_OF_LINES:
        answer = call(good_line(line, places))
        for_another_reason = any(text in answer.err for text in EXPECTED)
        if answer.code == ExitCode.BAD_INPUT and not for_another_reason:
            refused.append(str(answer))
        remove(places["OUT"])
    assert refused == []


def test_lines_differ_and_are_the_same_again(place: Path, whole: Path) -> None:
    places = make_places(place.parent / "places", whole)
    words = [line.words for _, line in bad_lines(range(LINES), places)]
    assert words == [bad_line(random.Random(seed), places).words for seed in range(LINES)]
    assert len(set(words)) > LINES / 2 and len({line[0] for line in words}) > 20


def test_some_through_the_real_command(place: Path, whole: Path) -> None:
    """What the shell sees is what main() returned."""
    places = make_places(place.parent / "places", whole)
    for seed, line in bad_lines(range(0, 240, 40), places):
        if any("\n" in word for word in line.words):
            continue
        own = call(line.words)
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *map(os.fsencode, line.words)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(TOP)},
            timeout=LIMIT_S,
        )
        assert (done.returncode, b"Traceback" in done.stderr) == (own.code, False), (
            seed,
            line.why,
            done.stderr,
        )
        remove(places["OUT"])
