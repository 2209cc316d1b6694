"""Event files whose decisions nobody can read: they are told as such, and the others are made again all the same."""

from __future__ import annotations

import json

import pytest

from orchestrator.evidence.replay import _settings, replay
from orchestrator.onnode.kernel.events import Event

DETAILS = (
    "",
    "{}",
    "[]",
    "junk",
    '{"nodes": 7, "from": 1, "ranks": null, "outcome": [], "facts": {"ranks": 3}}',
)


@pytest.mark.parametrize("detail", DETAILS)
@pytest.mark.parametrize("word", ["hold", "placed", "ordered", "outcome", "judged", "repeated"])
def test_a_damaged_decision_is_one_that_differs(word: str, detail: str) -> None:
    found = replay([Event(1, "loop", word, "", detail)])
    assert found.decisions == len(found.differences) == 1
    assert word in str(found.differences[0])


@pytest.mark.parametrize(
    "settings", ['{"settings": 7}', '{"settings": [1]}', '{"settings": {"odd": 1}}', "[]", ""]
)
def test_damaged_settings_decide_nothing(settings: str) -> None:
    assert replay([Event(1, "loop", "begin", "", settings)]).decisions == 0


def test_a_setting_that_an_older_job_lacks_has_its_default() -> None:
    begin = Event(1, "loop", "begin", "", '{"settings": {"nnodes": 1}}')
    settings = _settings(begin)
    assert settings and (settings.side_by_side, settings.notify_seconds) == (1, 10)
    assert (settings.nnodes, settings.nexp, settings.notify_mail) == (1, 0, ())


def test_settings_of_another_version_decide_as_far_as_they_go() -> None:
    """Unknown settings are ignored, missing ones have their defaults."""
    begin = {
        "allocated": ["n1"],
        "need": 1,
        "settings": {"nnodes": 1, "max_attempts": 3, "of_tomorrow": [1]},
    }
    said = [
        Event(1, "loop", "begin", "", json.dumps(begin)),
        Event(2, "loop", "hold", "", '{"nodes": ["n1"]}'),
    ]
    judged = Event(3, "loop", "judged", "", json.dumps({"nodes": ["n1"], "failed": {}}))
    assert replay([*said, judged]).differences == []
