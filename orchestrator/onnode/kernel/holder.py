"""Who holds a lease, as its file says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """A process that holds a lease; the same record says who looks. What is not known is "" or 0."""

    cluster: str = ""
    uid: int = -1
    host: str = ""
    boot: str = ""
    """The kernel's boot id: machines may have one name, and one machine had other processes before it was booted."""
    pids: str = ""
    """The namespace in which `pid` means something."""
    pid: int = 0
    start: str = ""
    """Start time of the process in clock ticks since boot; tells a recycled pid."""
    job: str = ""
    """The job that it is the loop of; "" of a command."""
    restart: int = 0
    """How often Slurm had started that job again."""
    token: str = ""

    def __str__(self) -> str:
        who = f"job {self.job}" if self.job else f"process {self.pid}" if self.pid else "somebody"
        return f"{who} on {self.host or 'an unknown host'}"
