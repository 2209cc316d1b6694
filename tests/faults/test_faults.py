"""A short part of the fault campaign (campaign.py; the long one is `make faults`)."""

from __future__ import annotations

import pytest
from campaign import one_trial
from kinds import KINDS

HOST = [["term_loop", "damage_run_state", "kill_resume"], ["kill9_everything", "zombie_loop", "resumes_at_once"]]
LAB = [["training_dies", "container_kill", "damage_lock"]]


@pytest.mark.parametrize("number", range(len(HOST)))
def test_a_set_on_this_machine_survives(number: int) -> None:
    record = one_trial(number, "local", HOST[number])
    assert record["violations"] == [], record


@pytest.mark.lab
@pytest.mark.parametrize("number", range(len(LAB)))
def test_a_set_on_the_cluster_survives(number: int) -> None:
    record = one_trial(number, "docker", LAB[number])
    assert record["violations"] == [], record


@pytest.mark.lab
@pytest.mark.long
@pytest.mark.parametrize("flavour", ["docker", "local"])
def test_every_kind_once_in_one_set(flavour: str) -> None:
    record = one_trial(0, flavour, [one.name for one in KINDS.values() if flavour in one.flavours])
    assert record["violations"] == [], record
