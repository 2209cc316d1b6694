"""The bandwidth test, with the messages of onnode/agent/deep.py.

Links have the bandwidth of the site or the fabric; those of a slow node are slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.onnode.policy.bandwidth import Search
from orchestrator.simulation.agent_parts import AgentPost
from orchestrator.simulation.machine import Machine
from orchestrator.simulation.node_run import Part
from orchestrator.simulation.nodes import Agent

BYTES = 512 << 20
MEASURES_S = 5.0, 30.0
"""Mostly the meeting of processes."""
UNKNOWN_MBPS = 1000
"""For an unknown fabric."""


class MeasuringAgent(Agent):
    def __init__(
        self, post: AgentPost, machines: Mapping[str, Machine], running: list[Agent]
    ) -> None:
        super().__init__(post, lambda run: Part(), running)
        self._machines = machines

    def _begin(self) -> None:
        self._next(self._start_span, self._can_measure)

    def _can_measure(self) -> None:
        self.container.look_for_image()
        if text := self.container.missing_image or self.container.start():
            return self.fail("container", text)
        self.say(
            "deep-ready", self.post.settings.gpus_per_node, 0, f"{self.name}.cluster", 29_600, ""
        )

    def hear(self, message: Mapping[str, Any]) -> None:
        self.watch.reset()
        if message.get("do") == "measure":
            for members in message["groups"]:
                names = [name for name, *_ in members]
                if self.name in names:
                    self._meet(names, message)

    def _meet(self, group: list[str], message: Mapping[str, Any]) -> None:
        """Measure; if a node is missing, wait until the limit."""
        gone = [name for name in group if not self._machines[name].up]
        if gone:
            late = float(message["limit"])
            self._next(
                (late, late),
                lambda: self._answer(message, "error", 0, f"no word from {' '.join(gone)}"),
            )
        else:
            self._next(
                MEASURES_S,
                lambda: self._answer(message, "ok", self._mbps(group), ""),
            )

    def _mbps(self, group: list[str]) -> int:
        """Return MB/s: a ring is as fast as its slowest member."""
        search = Search(list(self._machines), self.post.settings)
        usual = search.reference()[0] or UNKNOWN_MBPS
        return max(
            1,
            int(
                usual
                * self.process.engine.between(0.92, 0.97)
                / max(self._machines[name].slow for name in group)
            ),
        )

    def _answer(self, message: Mapping[str, Any], state: str, mbps: int, note: str) -> None:
        microseconds = BYTES // mbps if mbps else 0
        self.say(
            "deep", message["id"], state, message["way"], BYTES, microseconds, mbps, 0, 29_600, note
        )
