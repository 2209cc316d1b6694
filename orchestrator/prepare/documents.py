"""Documents of workloads/preparations/: a workload's published steps, by round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from orchestrator.errors import UsageError
from orchestrator.model.documents import DataPart, MountPart
from orchestrator.model.extension import EXTENDS, overlaid, with_rounds
from orchestrator.model.fields import (
    AbsolutePath,
    Line,
    Name,
    RelativePath,
    Round,
    Variable,
    refuse,
)
from orchestrator.model.part import DocumentPart
from orchestrator.model.problems import checked, validate
from orchestrator.model.source import Document, read
from orchestrator.resources import data_dir

Address = Annotated[str, Field(pattern=r"^https://[\w.~:/@%+-]+$")]
"""Only plain characters: it stands in commands."""


def _below(text: str) -> str:
    if text.strip("./") == "":
        raise refuse(f"{text!r} is the data folder itself, which is never deleted")
    return text


class PathPart(DocumentPart):
    """A file or folder below `$variable`."""

    variable: Variable
    path: RelativePath


class CleanPart(DocumentPart):
    """Remains of a failed try, deleted before the next."""

    variable: Variable
    path: Annotated[RelativePath, AfterValidator(_below)]


class OverwritePart(DocumentPart):
    """The commands delete or overwrite files here. It must be empty before the first try; later it
    may hold files of `makes`."""

    variable: Variable
    path: Annotated[RelativePath, AfterValidator(_below)]
    makes: Annotated[list[Line], Field(min_length=1)]


class SpacePart(DocumentPart):
    """Bytes below `$variable` for the whole preparation."""

    variable: Variable
    bytes: Annotated[int, Field(ge=0)]


class StepPart(DocumentPart):
    """Bash text for its own container; it ends at its first failing command.

    `secret` names a hidden variable. `leaves` must exist and not be empty afterwards: the published
    `bash <(curl ...)` succeeds even if curl fails. `mounts` replace the round's.
    """

    name: Name
    what: Line
    run: Annotated[str, Field(min_length=1)]
    workdir: AbsolutePath | None = None
    secret: Variable | None = None
    mounts: list[MountPart] = []
    leaves: list[PathPart] = []
    clean: list[CleanPart] = []
    overwrites: list[OverwritePart] = []
    optional: bool = False
    accepts: bool = False
    """Accept `leaves` made by others."""


class PinPart(DocumentPart):
    """A script that steps run by `<(curl -s URL)`: fetched from `at`, which names a commit, and run
    only with the content `sha256`."""

    url: Address
    at: Address
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    @property
    def published(self) -> str:
        """As steps write it."""
        return f"<(curl -s {self.url})"


Use = SpacePart | DataPart | PathPart | CleanPart | OverwritePart | MountPart


class PreparationRound(DocumentPart):
    """Steps, and the tree that they leave."""

    extends: Round | None = None
    """Another round, for keys missing here."""
    source: Line = "your own"
    space: list[SpacePart] = []
    engine_bytes: Annotated[int, Field(ge=0)] = 0
    """Bytes in the engine's storage, outside all mounts."""
    mounts: list[MountPart] = Field(min_length=1)
    workdir: AbsolutePath
    devices: list[AbsolutePath] = []
    security_opt: list[Line] = []
    pins: list[PinPart] = []
    steps: list[StepPart] = Field(min_length=1)
    tree: list[DataPart] = Field(min_length=1)


class Preparation(DocumentPart):
    """workloads/preparations/<workload>.yaml"""

    kind: Literal["preparation"]
    name: Name
    extends: Name | None = None
    """Its own name: the next preparation with that name."""
    rounds: dict[Round, PreparationRound] = Field(min_length=1)


FOLDER = "workloads/preparations"


def _folders(systems_dirs: Sequence[Path]) -> list[Path]:
    return [*(folder / FOLDER for folder in systems_dirs), data_dir(FOLDER)]


def names(systems_dirs: Sequence[Path] = ()) -> list[str]:
    return sorted(
        {path.stem for folder in _folders(systems_dirs) for path in folder.glob("*.yaml")}
    )


def load_preparation(name: str, systems_dirs: Sequence[Path] = ()) -> tuple[Document, Preparation]:
    """Return a workload's preparation, or a file's.

    `workloads/preparations/` in `systems_dirs` wins over the package. Raises UsageError if it is
    missing, DescriptorError with all problems.
    """
    files = [
        path for folder in _folders(systems_dirs) if (path := folder / f"{name}.yaml").is_file()
    ]
    if "/" in name or name.endswith(".yaml"):
        files = [Path(name), *_files_behind(Path(name), systems_dirs)]
    if not files:
        raise UsageError(
            f"no preparation is published for {name!r}; the published preparations: "
            f"{', '.join(names(systems_dirs))}",
            hint=f"your own: {FOLDER}/{name}.yaml in a folder of --systems-dir",
        )
    document = _extended(files)
    preparation = validate(document, Preparation)
    if preparation is not None:
        for key, part in preparation.rounds.items():
            _check(document, key, part)
    return document, checked(document, preparation)


def _files_behind(path: Path, systems_dirs: Sequence[Path]) -> list[Path]:
    candidates = [folder / path.name for folder in _folders(systems_dirs)]
    return [file for file in candidates if file.is_file() and not file.samefile(path)]


def _extended(files: list[Path]) -> Document:
    """Return the first of `files`, over the others as far as each extends the next."""
    document = read(files[0])
    given = document.data.get(EXTENDS)
    if given is not None and given != document.data.get("name"):
        document.add((EXTENDS,), f"{given!r}: a preparation extends the next with its name")
    elif given is not None and not files[1:]:
        document.add((EXTENDS,), f"there is no other preparation of {given}")
    elif given is not None:
        document = overlaid(_extended(files[1:]), document)
    document = with_rounds(document)
    document.check()
    return document


def _check(document: Document, key: str, part: PreparationRound) -> None:
    known = {mount.variable for mount in part.mounts}
    for keys, uses in _uses(part):
        for number, use in enumerate(uses):
            if use.variable not in known:
                problem = f"{use.variable} is not mounted; mounted: {', '.join(sorted(known))}"
                document.add(("rounds", key, *keys, number), problem)
    for number, pin in enumerate(part.pins):
        if not any(pin.published in step.run for step in part.steps):
            document.add(("rounds", key, "pins", number, "url"), f"no step runs {pin.published}")
    names = [step.name for step in part.steps]
    for number, name in enumerate(names):
        if name in names[:number]:
            document.add(("rounds", key, "steps", number, "name"), f"{name} stands twice")


def _uses(part: PreparationRound) -> Iterator[tuple[tuple[str | int, ...], Sequence[Use]]]:
    yield ("space",), part.space
    yield ("tree",), part.tree
    for number, step in enumerate(part.steps):
        yield ("steps", number, "leaves"), step.leaves
        yield ("steps", number, "clean"), step.clean
        yield ("steps", number, "overwrites"), step.overwrites
        yield ("steps", number, "mounts"), step.mounts
