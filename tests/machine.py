"""What sets change on the machine itself when they apply the tuning profile for real, and where they note it meanwhile."""

from __future__ import annotations

import time
from pathlib import Path

TUNABLES_STATE = Path("/run/orchestrator-tunables")
KNOBS = tuple(
    path
    for path in map(
        Path,
        (
            "/proc/sys/kernel/nmi_watchdog",
            "/proc/sys/kernel/numa_balancing",
            "/proc/sys/kernel/randomize_va_space",
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "/sys/kernel/mm/transparent_hugepage/defrag",
        ),
    )
    if path.exists()
)


def knobs() -> dict[str, bytes]:
    """The values of `KNOBS` now."""
    return {str(path): path.read_bytes() for path in KNOBS}


def settings_owners() -> list[str] | None:
    """JOB-NODE of everybody who holds the machine's settings; None when nothing is noted of them."""
    if not TUNABLES_STATE.exists():
        return None
    return sorted(path.name for path in TUNABLES_STATE.glob("owners/*"))


def settings_watchdog() -> int:
    """The process that puts them back for all owners; whoever came first has started it. 0: none."""
    try:
        return int((TUNABLES_STATE / "watchdog").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0


def settings_are_free(seconds: float = 60) -> bool:
    """Whether nobody holds the machine's settings any more, after so long at most."""
    deadline = time.monotonic() + seconds
    while TUNABLES_STATE.exists() and time.monotonic() < deadline:
        time.sleep(0.2)
    return not TUNABLES_STATE.exists()
