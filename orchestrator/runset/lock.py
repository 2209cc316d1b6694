"""One controller per set, for as long as it submits: a lease (onnode/set/lease.py) on
`.controller.lock`."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import SetError
from orchestrator.onnode.kernel.world import THIS, World
from orchestrator.onnode.set.lease import HeldError, Lease


class ControllerLock:
    """`with ControllerLock(path) as lock:`; raises SetError when somebody else holds it.

    Call `confirm()` directly before the step that must not happen twice.
    """

    def __init__(self, path: Path, cluster: str = "", world: World = THIS) -> None:
        self.lease = Lease(path, world.holder(cluster=cluster), world=world)

    def __enter__(self) -> ControllerLock:
        try:
            self.lease.take()
        except HeldError as held:
            raise _held(held) from held
        except OSError as error:
            path = self.lease.path
            raise SetError(
                f"{path}: cannot be written: {error.strerror or error}",
                hint=f"look at the folder: ls -ld {path.parent}; df -h {path.parent}",
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
            raise SetError(
                f"{self.lease.path}: cannot be read: {error.strerror or error}"
            ) from error


def _held(held: HeldError) -> SetError:
    wait = f"ask again in {held.verdict.wait_s:.0f} s" if held.verdict.wait_s else "wait for it"
    return SetError(
        f"another controller works on {held.path.parent.name}: {held.holder}; {held.verdict.why}",
        hint=f"{wait}; if that process is gone for certain: rm {held.path}",
    )
