"""What is kept of a run that hangs in real containers."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from run_sets import Set
from test_set import Bench, bench_at
from until import until

from orchestrator.onnode.agent.node import hidden

if TYPE_CHECKING:
    from labs import Lab

pytestmark = [pytest.mark.lab, pytest.mark.long]

LIMITS = "limits: {hang_multiple: 1, hang_seconds: 20, hang_start_seconds: 60}\n"
ENVIRONMENT = {
    "BUILTIN_FAULT": "hang:run=1:attempt=1",
    "NCCL_DEBUG_FILE": "/results/rccl.%h.%p",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "200",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/results/record_",
}


@pytest.fixture
def bench(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from bench_at(lab, request.node.name)


def test_a_run_that_hangs_in_containers_leaves_what_its_nodes_know(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training has no torch and no RCCL: this test writes the files that they would leave, while the run hangs."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    assert shutil.which("py-spy", path=path), (
        "py-spy comes with what the tests need: pip install --editable '.[test]'"
    )
    monkeypatch.setitem(bench.lab.env, "PATH", path)
    bench.add_to_site(LIMITS)
    given = [word for name, value in ENVIRONMENT.items() for word in ("--env", f"{name}={value}")]
    answer = bench.orchestrator("submit", "local_2x2x8", "builtin", "--nexp", "1", *given)
    assert answer.returncode == 0, answer.stderr
    run_set = bench.only_set()
    attempt = run_set / "runs/1/attempt_1"
    until(lambda: "run_start" in text_of(attempt / "node_0.log"))
    nodes = Set(run_set).attempt(1, 1)["nodes"]
    for node in nodes:
        results = Path(hidden(str(run_set / f"nodes/{node}/scratch")))
        (results / f"rccl.{node}.7").write_text("the last line of RCCL")
        (results / "record_0").write_bytes(b"\x80\x02]q.")
    watched = bench.orchestrator("watch", run_set)
    assert watched.returncode == 0, watched.stderr
    state = Set(run_set).attempt(1, 1)
    assert state["outcome"] == "infrastructure" and state["reason"].startswith(
        "hung: no output of any node for "
    )
    assert Set(run_set).attempt(1, 2)["outcome"] == "success"
    for node in nodes:
        known = (attempt / f"hang/{node}.txt").read_text()
        for part in ("processes", "kernel log", "GPUs", "RCCL", "flight records (files/)"):
            assert known.count(f"==== {part}\n") == 1, known
        assert "train.py" in known and "the last line of RCCL" in known
        stacks = known.split("==== stack of ")[1:]
        assert [
            part
            for part in stacks
            if "(no py-spy" not in part.splitlines()[0] and "strike (" in part
        ], known
        assert (attempt / f"files/{node}/flight_recorder/record_0").read_bytes() == b"\x80\x02]q."


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""
