"""The holder of a lease, as recorded in its file."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Holder:
    """A process that holds, or checks, a lease. Unknown members are "" or 0."""

    cluster: str = ""
    uid: int = -1
    host: str = ""
    boot: str = ""
    """The kernel's boot id: machines may share a name, and a reboot reuses process ids."""
    pids: str = ""
    """The namespace of `pid`."""
    pid: int = 0
    start: str = ""
    """Start time of the process in clock ticks since boot; distinguishes a recycled pid."""
    job: str = ""
    """The job whose loop it is; "" for a command."""
    restart: int = 0
    """How often Slurm had restarted that job."""
    token: str = ""

    def __str__(self) -> str:
        who = f"job {self.job}" if self.job else f"process {self.pid}" if self.pid else "somebody"
        return f"{who} on {self.host or 'an unknown host'}"
