"""Event files whose decisions nobody can read: they are told as such, and the others are made again all the same."""

from __future__ import annotations

import pytest

from orchestrator.evidence.replay import replay
from orchestrator.onnode.events import Event

DETAILS = ("", "{}", "[]", "junk", '{"nodes": 7, "from": 1, "ranks": null, "outcome": [], "facts": {"ranks": 3}}')


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("word", ["hold", "placed", "ordered", "outcome", "judged", "repeated"])
def test_a_damaged_decision_is_one_that_differs(word: str, detail: str) -> None:
    found = replay([Event(1, "loop", word, "", detail)])
    assert found.decisions == len(found.differences) == 1
    assert word in str(found.differences[0])


@pytest.mark.parametrize("settings", ['{"settings": 7}', '{"settings": [1]}', '{"settings": {"odd": 1}}', "[]", ""])
def test_damaged_settings_decide_nothing(settings: str) -> None:
    assert replay([Event(1, "loop", "begin", "", settings)]).decisions == 0
