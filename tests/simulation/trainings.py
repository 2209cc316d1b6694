"""Sets of logs from simulated trainings, for the tests of them."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from orchestrator.model import Site, load_entry
from orchestrator.simulation.training import Script, TrainingFacts, Trainings, facts_of

START_MS = 1_790_000_000_000
# One entry of each benchmark and round, and MI325X_08x08x32.
ENTRIES = [
    ("local_2x2x8", "builtin", "1.0"),
    ("MI325X_08x08x32", "flux1", "6.0"),
    ("MI300X_1x8x1", "llama2_70b_lora", "5.0"),
    ("MI355X_1x8x1", "llama2_70b_lora", "5.1"),
    ("MI350X_2x8x1", "llama2_70b_lora", "6.0"),
    ("MI350X_1x8x1", "llama31_8b", "5.1"),
    ("MI355X_1x8x1", "llama31_8b", "6.0"),
    ("MI350X_2x8x1_tp1pp1ep1_gbs64", "gpt_oss_20b", "6.0"),
    ("tinybox_8xMI300X", "bert", "5.0"),
]
CACHE_CLEAR = (
    b':::MLLOG {"namespace": "", "time_ms": %d, "event_type": "POINT_IN_TIME", "key": "cache_clear", "value": true, '
    b'"metadata": {"file": "lib/loop/attempt.py", "lineno": 1}}\n'
)


@cache
def facts(system: str, workload: str, round: str) -> TrainingFacts:
    return facts_of(load_entry(system, workload, round=round, site=Site()))


def scripts(trainings: Trainings, count: int, chance: int = 1) -> list[Script]:
    """Trainings of one set, one after the other."""
    draws, now, scripts = random.Random(chance), START_MS, []
    for number in range(count):
        script = trainings.script(seed=1000 + number, start_ms=now, chance=draws, cold=number == 0)
        scripts.append(script)
        now += int(script.seconds * 1000) + 60_000
    return scripts


def write_set(folder: Path, scripts: list[Script]) -> Path:
    """Write the logs as the loop publishes them: its cache_clear in front."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, script in enumerate(scripts):
        (folder / f"result_{number}.txt").write_bytes(CACHE_CLEAR % START_MS + script.output)
    return folder
