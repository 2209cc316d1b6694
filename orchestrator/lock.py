"""A lease on shared storage as a context manager, with errors for people."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.errors import OrchestratorError, SetError
from orchestrator.onnode.set.lease import HeldError, Lease
from orchestrator.words import quoted


class Lock:
    """`with Lock(lease, held, error) as lock:` holds `lease`.

    `held` describes another holder, in a SetError. `error`: the lease cannot be written. Call
    `confirm()` directly before a step that must not happen twice.
    """

    def __init__(
        self,
        lease: Lease,
        held: Callable[[HeldError], SetError],
        error: type[OrchestratorError] = SetError,
    ) -> None:
        self.lease, self._held, self._error = lease, held, error

    def __enter__(self) -> Lock:
        try:
            self.lease.take()
        except HeldError as held:
            raise self._held(held) from held
        except OSError as error:
            path = self.lease.path
            raise self._error(
                f"{path}: cannot be written: {error.strerror or error}",
                hint=f"ls -ld {quoted(path.parent)}; df -h {quoted(path.parent)}",
            ) from error
        return self

    def __exit__(self, *exc: object) -> None:
        self.lease.release()

    def confirm(self) -> None:
        """Raise SetError unless the lease is still held."""
        try:
            self.lease.confirm()
        except HeldError as held:
            raise self._held(held) from held
        except OSError as error:
            reason = error.strerror or error
            raise self._error(f"{self.lease.path}: cannot be read: {reason}") from error
