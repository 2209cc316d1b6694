"""Bundles of simulated sets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.onnode.kernel import settings_file
from orchestrator.onnode.kernel.program import LOADER, PARTS, Program
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.loop.notice import SENDER
from orchestrator.onnode.set.bundle import MANIFEST
from orchestrator.render import manifest_hash, render_bundle
from orchestrator.simulation.training import facts_of

if TYPE_CHECKING:
    from orchestrator.model import Entry


class Rendered:
    """A rendered entry; bash evaluates its settings once for all simulated sets."""

    def __init__(self, entry: Entry, nexp: int, *, programs: bool = True) -> None:
        """Without `programs`, leave out Python files: only copied and hashed, they take time."""
        self.entry, self.nexp = entry, nexp
        self.files: dict[str, bytes] = render_bundle(entry, nexp=nexp)
        if not programs:
            self.files = _without_programs(self.files)
        self.sha256 = manifest_hash(self.files)
        self.facts = facts_of(entry)
        self._settings: dict[tuple[str, ...], Settings] = {}
        self._config: tuple[bytes, frozenset[str]] | None = None

    def settings(self, program: Program, environment: Mapping[str, str]) -> Settings:
        names = ("SPARES", "SIDE_BY_SIDE", "NEXP", "MAX_ATTEMPTS", "CHANGES")
        key = tuple(environment.get(name, "") for name in names)
        if key not in self._settings:
            given = {name: environment[name] for name in ("PATH", *names) if name in environment}
            self._settings[key] = settings_file.load(program.files, given)
        return self._settings[key]

    def config(
        self, program: Program, settings: Settings, nexp: int
    ) -> tuple[bytes, frozenset[str]]:
        self._config = self._config or settings_file.config(program.files, settings, nexp)
        return self._config


def _without_programs(files: Mapping[str, bytes]) -> dict[str, bytes]:
    looked_for = (LOADER, SENDER, *(f"lib/{part.path}" for part in PARTS))  # settings.check_parts
    kept = {
        name: content
        for name, content in files.items()
        if name.startswith(looked_for) or not name.endswith(".py")
    }
    manifest = json.loads(kept[MANIFEST])
    manifest["outputs"] = {name: sha for name, sha in manifest["outputs"].items() if name in kept}
    return kept | {MANIFEST: json.dumps(manifest).encode()}
