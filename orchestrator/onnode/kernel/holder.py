"""The holder of a lease: a process, as every host knows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """A process that holds, or checks, a lease. Unknown members: "" or 0."""

    cluster: str = ""
    uid: int = -1
    host: str = ""
    boot: str = ""
    """The kernel's boot id: names may be shared, and reboots reuse process ids."""
    pids: str = ""
    """The namespace of `pid`."""
    pid: int = 0
    start: str = ""
    """Clock ticks since boot, against recycled pids."""
    job: str = ""
    """The loop's job; "" for a command."""
    restart: int = 0
    """How often Slurm had restarted the job."""
    token: str = ""

    def __str__(self) -> str:
        who = f"job {self.job}" if self.job else f"process {self.pid}" if self.pid else "somebody"
        return f"{who} on {self.host or 'an unknown host'}"
