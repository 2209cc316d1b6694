"""Which log of an attempt says how far the training is: the one of the node that logs for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.evidence.telling import telling_log
from orchestrator.onnode.kernel.layout import Layout


def line(key: str) -> str:
    return (
        f':::MLLOG {{"namespace": "", "time_ms": 1, "key": "{key}", "metadata": {{"lineno": 1}}}}\n'
    )


EVERY_RANK = line("cache_clear") + line("init_start")
NOISE = "noise\n" * (1 << 18)


@pytest.mark.parametrize(
    ("logs", "rank"),
    [
        ({}, 0),
        ({0: "", 1: ""}, 0),
        ({0: line("run_start"), 1: line("run_start")}, 0),
        ({0: "", 1: "words\n", 2: line("run_start")}, 2),
        ({0: EVERY_RANK, 1: EVERY_RANK, 10: EVERY_RANK + line("init_stop")}, 10),
        ({0: EVERY_RANK, 1: EVERY_RANK}, 0),
        ({0: "run_start\n", 1: f" 3: {line('run_start')}"}, 1),
        ({0: "", 1: NOISE + line("eval_accuracy") + NOISE[:600000], 2: ""}, 1),
        ({0: "", 1: line("run_start") + NOISE + NOISE}, 1),
    ],
)
def test_the_log_of_the_one_that_logs(tmp_path: Path, logs: dict[int, str], rank: int) -> None:
    layout = Layout(tmp_path)
    layout.attempt(1, 2).mkdir(parents=True)
    for number, text in logs.items():
        layout.node_log(1, 2, number).write_text(text)
    assert telling_log(layout, 1, 2) == layout.node_log(1, 2, rank)
