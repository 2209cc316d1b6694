"""The order of events of the simulated world (orchestrator/simulation/engine.py, host.py)."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from orchestrator.simulation.engine import NEVER, Engine
from orchestrator.simulation.host import Loop


def test_an_end_is_seen_before_time_moves_on() -> None:
    engine, seen = Engine(1), list[float]()
    engine.after(10.0, lambda: seen.append(engine.now))
    engine.after(5000.0, lambda: None)
    engine.run(lambda: bool(seen))
    assert engine.now == 10.0


def test_a_loop_reads_what_came_during_a_call_before_its_flow_is_resumed() -> None:
    """Even if the flow itself asked to be resumed before the call."""
    engine, seen = Engine(1), list[str]()
    job: Any = SimpleNamespace()
    loop = Loop(engine.process("loop", "n1"), job, lambda status: None)

    def flow() -> Iterator[float]:
        loop.wake()
        loop.post(0.2, lambda: seen.append("line"))
        engine.pause(loop.process, 1.0)
        seen.append("call")
        yield engine.now
        seen.append("resumed")
        yield NEVER

    loop.start(flow())  # type: ignore[arg-type]
    engine.run(lambda: "resumed" in seen)
    assert seen == ["call", "line", "resumed"]
