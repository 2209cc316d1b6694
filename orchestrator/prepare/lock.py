"""One preparation of the same data at a time, on whatever machine: a lease (onnode/set/lease.py)
on the shared storage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import InputError, SetError
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.policy.lease import STALE_S
from orchestrator.onnode.set.lease import BEAT_S, HeldError, Lease


class DataLock:
    """`with DataLock(path, lost) as lock:`; raises SetError when somebody else holds it, InputError
    when it cannot be made.

    `lost` is called, in another thread, when the lock turns out to be another's: this machine was
    cut off for too long.
    """

    def __init__(self, path: Path, lost: Callable[[], None], *, beat_s: float = BEAT_S) -> None:
        self.lease = Lease(path, THIS.holder(), lost=lost, beat_s=beat_s)

    def __enter__(self) -> DataLock:
        try:
            self.lease.take()
        except HeldError as held:
            raise _held(held) from held
        except OSError as error:
            path = self.lease.path
            raise InputError(
                f"{path}: cannot be made: {error.strerror or error}", hint=f"ls -ld {path.parent}"
            ) from error
        return self

    def __exit__(self, *exc: object) -> None:
        self.lease.release()

    def confirm(self) -> None:
        """Raise SetError unless the lock is still ours."""
        try:
            self.lease.confirm()
        except HeldError as held:
            raise _held(held) from held
        except OSError as error:
            raise InputError(
                f"{self.lease.path}: cannot be read: {error.strerror or error}"
            ) from error


def _held(held: HeldError) -> SetError:
    return SetError(
        f"the same data are being prepared by {held.holder}; {held.verdict.why}",
        hint=f"wait for it; one that died is taken over {STALE_S:.0f} s after it was heard of last",
    )
