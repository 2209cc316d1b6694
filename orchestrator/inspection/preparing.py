"""A preparation's image: its steps' commands, and every entry that will run in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.container.local import find_image
from orchestrator.inspection.contract import contract_of
from orchestrator.inspection.findings import findings
from orchestrator.inspection.given import Given, given_by
from orchestrator.inspection.kept import KeptContract, entry_name, keep, kept_path
from orchestrator.inspection.run_container import Mounted, RunContainer
from orchestrator.inspection.sources import Progress, read_engine
from orchestrator.inspection.tree import ImageTree

if TYPE_CHECKING:
    from docker import DockerClient

    from orchestrator.model import Entry


@dataclass(frozen=True)
class StepCommand:
    """A step's text, and its container's working folder and mounts."""

    name: str
    text: str
    workdir: str
    mounts: tuple[str, ...]


def inspect_for_preparation(
    client: DockerClient,
    image: str,
    steps: Iterable[StepCommand],
    entries: Iterable[Entry],
    folder: Path,
    *,
    now_ms: int,
    progress: Progress,
) -> Mapping[str, str]:
    """Return each step's and entry's first error: name -> text.

    Entries' results are kept in `folder`. Nothing is read if the engine lacks the image, or all
    results are there. Raises EngineError or OSError.
    """
    known = find_image(client, image)
    wanted = {entry_name(entry.system, entry.workload, entry.round): entry for entry in entries}
    if known is None or all(kept_path(folder, known.id, name).exists() for name in wanted):
        return {}
    givens = {name: given_by(entry) for name, entry in wanted.items()}
    names = frozenset[str]().union(*(given.configured for given in givens.values()))
    tree = read_engine(client, image, names, progress)
    problems = {step.name: _of_step(tree, step) for step in steps}
    folder.mkdir(exist_ok=True)
    for name, given in givens.items():
        problems[name] = _of_entry(tree, name, given, folder, now_ms).problem
    return {name: text for name, text in problems.items() if text}


def _of_step(tree: ImageTree, step: StepCommand) -> str:
    around = RunContainer({}, tuple(Mounted(place) for place in step.mounts), step.workdir)
    contract = contract_of(tree, ("bash", "-c", step.text), around)
    missing = [program for program in contract.trace.missing if not program.start.place.maybe]
    if not missing:
        return ""
    return missing[0].fault or f"the image has no {missing[0].what}"


def _of_entry(tree: ImageTree, name: str, given: Given, folder: Path, now_ms: int) -> KeptContract:
    contract = contract_of(tree, given.command, given.around, given.second)
    return keep(folder, contract, findings(contract, given), name, now_ms)
