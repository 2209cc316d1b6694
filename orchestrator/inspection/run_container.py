"""A container as a run finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Mounted:
    """A host's folder; preparation makes the paths `holds` there, None if unknown."""

    place: str
    read_only: bool = False
    holds: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RunContainer:
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mounted, ...] = ()
    cwd: str = "/"

    def mount_of(self, path: str) -> Mounted | None:
        """Return the innermost mount that has `path`."""
        inside = [
            mount for mount in self.mounts if (path + "/").startswith(mount.place.rstrip("/") + "/")
        ]
        return max(inside, key=lambda mount: len(mount.place), default=None)


@dataclass(frozen=True)
class NodeStart:
    """A run's command on one node."""

    command: tuple[str, ...]
    around: RunContainer
