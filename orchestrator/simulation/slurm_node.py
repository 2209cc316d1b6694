"""A node as slurmctld sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.simulation.slurm_job import SimJob


@dataclass(eq=False)
class SimNode:
    name: str
    silent: bool = False
    """Its slurmd does not answer, noticed or not."""
    unanswered: bool = False
    """slurmctld has noticed: the asterisk."""
    down: bool = False
    drained: bool = False
    reason: str = ""
    life: int = 0
    """Changes whenever plans for the node are void."""
    unheard: list[Callable[[], object]] = field(default_factory=list)
    """Its slurmd's reports for later."""
    orphans: list[SimJob] = field(default_factory=list)
    """Jobs that lost it, perhaps with processes here."""

    @property
    def sound(self) -> bool:
        """Return whether slurmctld gives it to jobs."""
        return not (self.down or self.drained or self.unanswered)

    def fall_silent(self) -> None:
        self.silent, self.life = True, self.life + 1

    def rejoin(self) -> None:
        self.life += 1

    def miss(self) -> None:
        self.unanswered = True

    def mark_down(self, reason: str) -> None:
        self.down, self.unanswered, self.reason = True, self.silent, reason

    def register(self) -> list[Callable[[], object]]:
        """Answer again; return the kept reports."""
        self.silent = self.unanswered = self.down = False
        self.reason = self.reason if self.drained else ""
        reports, self.unheard = self.unheard, []
        return reports

    def drain(self, reason: str) -> None:
        self.drained, self.reason = True, reason

    def undrain(self) -> None:
        self.drained, self.reason = False, ""

    def take_orphans(self) -> list[SimJob]:
        orphans, self.orphans = self.orphans, []
        return orphans
