"""Our English may only get plainer: the tics of tools/tics.py stay below their ceilings, and these follow them down."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP / "tools"))

from tics import CEILINGS, PACKAGE, TICS, count, prose  # noqa: E402

SLACK = 0.4
"""Per 1,000 words: whoever brings a tic down by more than this lowers its ceiling, too."""


def test_tics_only_become_fewer() -> None:
    words, tics = count(PACKAGE)
    assert words > 20_000 and tics.keys() == CEILINGS.keys() == TICS.keys()
    assert {tic: (many, CEILINGS[tic]) for tic, many in tics.items() if many > CEILINGS[tic]} == {}
    assert {tic: many for tic, many in tics.items() if many < CEILINGS[tic] - SLACK} == {}, (
        "lower CEILINGS"
    )


@pytest.mark.parametrize(
    "source",
    [
        '"""Prose."""',
        "class A:\n    x = 1\n    'Prose.'",
        "def f():\n    'Prose.'\n    return 'no'",
        "x = 1  # Prose.",
    ],
)
def test_docstrings_and_comments_are_counted_and_other_texts_are_not(source: str) -> None:
    assert list(prose(source)) == ["Prose."]
