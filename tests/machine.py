"""What sets change on the machine itself when they apply the tuning profile for real, and where they note it meanwhile."""

from __future__ import annotations

from pathlib import Path

from until import until

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


def await_free_settings() -> None:
    """Return when nobody holds the machine's settings any more."""
    until(lambda: not TUNABLES_STATE.exists(), settings_owners)
