"""The time that a job asks for, beside that of the published runs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from orchestrator.model import load_entry
from orchestrator.render.job_time import between_minutes, job_time, published_need

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from job_times import rows


def test_every_configuration_asks_for_what_its_published_runs_need() -> None:
    """As backfill and a 24-hour partition allow: at most 1.8 times, at least 1.2 times."""
    found = rows()
    ratios = {row[:3]: row[3] / row[4] for row in found if row[4] is not None}
    assert len(ratios) >= 66
    assert {what: ratio for what, ratio in ratios.items() if not 1.2 <= ratio <= 1.8} == {}
    assert {row[1] for row in found if row[4] is None} == {
        "builtin",
        "flux1",
        "gpt_oss_20b",
        "llama31_8b",
    }


def test_the_time_has_a_reason() -> None:
    entry = load_entry("MI355X_1x8x1", "llama2_70b_lora")
    found = job_time(entry)
    assert (found.each, found.minutes(10)) == (17, 187)
    assert (
        found.why
        == "8.2 min of AMD MI355X_EPYC_9575F_primus, round 6.0, 4.2 between runs, and 30 %"
    )


def test_like_machines_stand_for_a_system_without_a_result() -> None:
    entry = load_entry("MI355X_1x8x1", "llama31_8b")
    system = entry.documents.system.model_copy(update={"name": "MINE_1x8x1"})
    entry = replace(entry, documents=replace(entry.documents, system=system))
    need = published_need(entry)
    assert (
        need is not None and need.run > 80 and need.source.endswith((", round 5.1", ", round 6.0"))
    )
    assert published_need(load_entry("local_2x2x8", "builtin")) is None
    assert job_time(load_entry("local_2x2x8", "builtin")).each == 7


def test_the_time_between_runs_is_that_of_the_round() -> None:
    assert 3.5 < between_minutes("llama2_70b_lora", "6.0") < 5
    assert between_minutes("llama2_70b_lora", "9.9") > 3 and between_minutes("none", "6.0") == 5
