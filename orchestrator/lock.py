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
        folder = quoted(self.lease.path.parent)
        self._do(self.lease.take, "written", hint=f"ls -ld {folder}; df -h {folder}")
        return self

    def __exit__(self, *exc: object) -> None:
        self.lease.release()

    def confirm(self) -> None:
        """Raise SetError unless the lease is still held."""
        self._do(self.lease.confirm, "read")

    def _do(self, step: Callable[[], object], done: str, *, hint: str = "") -> None:
        try:
            step()
        except HeldError as held:
            raise self._held(held) from held
        except OSError as error:
            text = f"{self.lease.path}: cannot be {done}: {error.strerror or error}"
            raise self._error(text, hint=hint) from error
