"""A short part of the fault campaign (campaign.py; the long one is `make faults`)."""

from __future__ import annotations

import pytest
from campaign import one_trial
from kinds import KINDS
from labs import lab_state

HOST = (
    ("private_tmp", "kill9_everything", "zombie_loop", "resumes_at_once"),
    pytest.param(
        ("clock_steps", "term_loop", "damage_run_state", "kill_resume", "other_user"),
        marks=pytest.mark.long,
    ),
)
DATABASE = ("slurmdbd_restart", "mariadb_restart")


@pytest.mark.parametrize("kinds", HOST, ids="-".join)
def test_a_set_on_this_machine_survives(kinds: tuple[str, ...]) -> None:
    record = one_trial(0, "local", list(kinds))
    assert record["violations"] == [], record


@pytest.mark.long
@pytest.mark.parametrize("flavour", [pytest.param("docker", marks=pytest.mark.lab), "local"])
def test_every_kind_once_in_one_set(flavour: str) -> None:
    """And it still ends with ten good runs and the right score."""
    accounting = list((lab_state() / "pids").glob("slurmdbd"))
    kinds = [
        one.name
        for one in KINDS.values()
        if flavour in one.flavours and (one.name not in DATABASE or accounting)
    ]
    record = one_trial(0, flavour, kinds, runs=10)
    assert record["violations"] == record["nothing_to_hit"] == [], record
    assert sorted(one["fault"] for one in record["injected"]) == sorted(kinds)
