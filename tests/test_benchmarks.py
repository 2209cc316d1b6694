"""The benchmark of commands that can fail. What it measures, no test asserts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from processes import captured

PROGRAM = Path(__file__).resolve().parents[1] / "benchmarks/bench_commands.py"


@pytest.mark.parametrize(
    ("limit_ms", "code"), [("0", 1), pytest.param("1e9", 0, marks=pytest.mark.long)]
)
def test_a_limit_for_the_status_of_many_sets(limit_ms: str, code: int) -> None:
    few = ["--rounds", "1", "--sets", "20"]
    done = captured([sys.executable, PROGRAM, *few, "--limit-ms", limit_ms], os.environ)
    assert done.returncode == code, done.stderr
    assert ("status of 20 sets took" in done.stderr) is (code == 1)
