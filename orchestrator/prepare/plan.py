"""A workload's plan on a site: folders, image, steps."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.model.prerequisites import name_folders

if TYPE_CHECKING:
    from orchestrator.model import Catalogue, Site
    from orchestrator.model.documents import BuildPart, MountPart
    from orchestrator.prepare.documents import (
        CleanPart,
        OverwritePart,
        PathPart,
        PinPart,
        Preparation,
        PreparationRound,
        StepPart,
    )

STATE_FOLDER = ".orchestrator-prepare"


@dataclass(frozen=True, slots=True)
class Plan:
    workload: str
    round: str
    image: str
    part: PreparationRound
    folders: dict[str, Path]
    """By variable."""
    steps: tuple[StepPart, ...]
    engine_command: tuple[str, ...] = ("docker",)
    proxy: Mapping[str, str] = field(default_factory=dict)
    """Variables of the site's proxy."""
    build: BuildPart | None = None
    """For an image that no registry has."""

    @property
    def own_folder(self) -> Path:
        """For all rounds: they may share data. Any machine can continue from here."""
        return self.folders[self.part.mounts[0].variable] / STATE_FOLDER / self.workload

    @property
    def state_folder(self) -> Path:
        return self.own_folder / self.round

    def log_file(self, step: StepPart) -> Path:
        return self.state_folder / f"{step.name}.log"

    @property
    def lock_file(self) -> Path:
        return self.own_folder / "lock"

    def mounts(self, step: StepPart) -> list[MountPart]:
        return step.mounts or self.part.mounts

    def binds(self, step: StepPart) -> list[tuple[str, str]]:
        return [
            (str(self.folders[mount.variable] / (mount.subpath or "")), mount.container)
            for mount in self.mounts(step)
        ]

    def host_path(self, part: PathPart | CleanPart | OverwritePart) -> Path:
        return self.folders[part.variable] / part.path

    def container_path(self, step: StepPart, part: CleanPart) -> str:
        """Raises UsageError for a path outside all mounts."""
        path = Path(part.path)
        for mount in self.mounts(step):
            top = mount.subpath or "."
            if mount.variable == part.variable and path.is_relative_to(top):
                return str(Path(mount.container) / path.relative_to(top))
        raise UsageError(f"{part.variable}/{part.path} is in no mount of the preparation")

    def workdir(self, step: StepPart) -> str:
        return step.workdir or self.part.workdir

    def text(self, step: StepPart, *, again: bool) -> str:
        """Return a step's text with its pinned scripts; `again`: first delete a try's remains."""
        text = step.run
        for number, pin in enumerate(self.part.pins):
            if pin.published in text:
                name = f"pinned_{number}"
                text = _fetched(name, pin) + text.replace(pin.published, f'"${name}"')
        if not again or not step.clean:
            return text
        remains = [self.container_path(step, part) for part in step.clean]
        return f"rm -rf -- {shlex.join(remains)}\n{text}"

    def fingerprint(self, step: StepPart) -> str:
        """Another hash makes a done step due."""
        mounts = [
            f"{mount.variable}/{mount.subpath or ''}:{mount.container}"
            for mount in self.mounts(step)
        ]
        definition = "\0".join([self.workdir(step), *mounts, step.run])
        return hashlib.sha256(definition.encode()).hexdigest()


def _fetched(name: str, pin: PinPart) -> str:
    """Fetch a script into a file named by a variable, and verify it."""
    lost = f"cannot fetch {pin.at}"
    text = (
        f'{name}=$(mktemp)\ncurl -fsSL {shlex.quote(pin.at)} >"${name}" || '
        f"{{ echo {shlex.quote(lost)} >&2; exit 1; }}\n"
    )
    if pin.sha256 is None:
        return text
    other = (
        f"{pin.at} is not the script of this preparation: its SHA-256 is not {pin.sha256}; "
        "read it, and give its own to `pins` of the preparation"
    )
    return (
        f'{text}echo "{pin.sha256}  ${name}" | sha256sum --check --status || '
        f"{{ echo {shlex.quote(other)} >&2; exit 1; }}\n"
    )


def make_plan(
    workload: str,
    site: Site,
    *,
    round: str | None = None,
    image: str = "",
    extra: Sequence[str] = (),
    systems_dirs: Sequence[Path] = (),
) -> Plan:
    """Plan a workload by name, or a preparation file.

    `round` None: the newest; `extra`: optional steps. Raises UsageError or DescriptorError.
    """
    from orchestrator.model import Catalogue
    from orchestrator.prepare.documents import load_preparation

    folders = [*map(Path, systems_dirs), *map(Path, site.systems_dirs)]
    catalogue = Catalogue(folders)
    _, preparation = load_preparation(workload, folders)
    chosen = round or max(preparation.rounds, key=_version)
    prepared = _prepared(catalogue, preparation, chosen)
    if prepared is None:
        raise UsageError(
            f"no preparation of {preparation.name} is published for round {chosen}; "
            f"rounds with a preparation: {', '.join(sorted(preparation.rounds))}",
            hint=f"your own: workloads/preparations/{preparation.name}.yaml in a folder of "
            "--systems-dir",
        )
    part = preparation.rounds[prepared]
    unknown = [name for name in extra if name not in [step.name for step in part.steps]]
    if unknown:
        optional = [step.name for step in part.steps if step.optional]
        raise UsageError(
            f"there is no step {', '.join(unknown)}; optional: {', '.join(optional) or 'none'}"
        )
    build = None
    if not image:
        known = catalogue.workload(preparation.name)[1]
        if chosen in known.rounds:
            image, build = known.rounds[chosen].image or "", known.rounds[chosen].build
    if not image:
        raise UsageError(f"{preparation.name} has no image for round {chosen}", hint="--image REF")
    steps = tuple(step for step in part.steps if not step.optional or step.name in extra)
    engine = "podman" if site.container.engine == "podman" else "docker"
    return Plan(
        workload=preparation.name,
        round=chosen,
        image=image,
        part=part,
        folders=_folders(preparation.name, part, site),
        steps=steps,
        engine_command=tuple(site.container.command or [engine]),
        proxy=site.container.proxy.variables,
        build=build,
    )


def _prepared(catalogue: Catalogue, preparation: Preparation, chosen: str) -> str | None:
    """Return the round with the steps for `chosen`: itself, or the nearest that it extends."""
    name: str | None = chosen
    rounds = (
        catalogue.workload(preparation.name)[1].rounds
        if chosen not in preparation.rounds and preparation.name in catalogue.workload_names()
        else {}
    )
    while name is not None and name not in preparation.rounds:
        name = rounds[name].extends if name in rounds else None
    return name


def _version(round: str) -> tuple[int, ...]:
    return tuple(int(number) for number in round.split("."))


def _folders(workload: str, part: PreparationRound, site: Site) -> dict[str, Path]:
    folders = site.data.get(workload, {})
    wanted = list(dict.fromkeys(mount.variable for mount in part.mounts))
    missing = [variable for variable in wanted if variable not in folders]
    if missing:  # no likely folder: a wrong one would be filled
        need = name_folders(workload, dict.fromkeys(missing, ""))
        raise UsageError(need.text, hint=need.remedy, fix=need.fix)
    return {variable: Path(folders[variable]) for variable in wanted}
