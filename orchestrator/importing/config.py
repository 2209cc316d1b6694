"""Import a config: evaluate, split, write to a temporary folder, compose, compare."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import InputError, UsageError
from orchestrator.importing.evaluate import evaluate
from orchestrator.importing.split import Import, ImportOptions, split
from orchestrator.importing.writing import Documents, composed, documents, write
from orchestrator.model import Catalogue
from orchestrator.model.compose import round_order
from orchestrator.model.values import Minutes, Text, secret_problem

NEWEST_RULES = "6.1.0"


@dataclass(frozen=True)
class EnvironmentDifference:
    """A variable's values in the config and in a run; None: missing."""

    name: str
    config: str | None
    entry: str | None
    why: str


@dataclass(frozen=True)
class Checked:
    """An import with valid documents."""

    imported: Import
    documents: Documents
    differences: tuple[EnvironmentDifference, ...]


def import_config(
    path: Path,
    given: ImportOptions,
    dirs: list[Path],
    *,
    image: str = "",
    ruleset: str = "",
    ruleset_problem: Callable[[str], str],
    execute: bool = False,
) -> Checked:
    """Return the config's documents, and their differences.

    Raises UsageError or InputError for a config that cannot be evaluated or placed, DescriptorError
    if it contradicts itself.
    """
    catalogue = Catalogue([folder for folder in dirs if folder.is_dir()])
    evaluation = evaluate(path, execute=execute)
    imported = split(evaluation, given, catalogue)
    chosen, notes = _ruleset(given.round, imported, catalogue, ruleset, ruleset_problem)
    if evaluation.errors:
        notes = (*notes, f"{path.name} wrote to standard error: {evaluation.errors}")
    made = documents(imported, catalogue, image=image, ruleset=chosen, notes=notes)
    with tempfile.TemporaryDirectory(prefix="orchestrator-import-") as place:
        write(Path(place), made)
        env = composed(imported, made, Path(place), [folder for folder in dirs if folder.is_dir()])
    return Checked(imported, made, tuple(_differences(imported, env)))


def _ruleset(
    new: str,
    imported: Import,
    catalogue: Catalogue,
    wanted: str,
    problem_of: Callable[[str], str],
) -> tuple[str, tuple[str, ...]]:
    """Return the new round's own ruleset, else, with a note, the newest of the workload's rounds or
    of the built-in rulesets."""
    if not imported.new_round:
        return "", ()
    if wanted:
        if problem := problem_of(wanted):
            raise UsageError(f"--ruleset {wanted}: {problem}")
        return wanted, ()
    exact = f"{new}.0"
    problem = problem_of(exact)
    if not problem:
        return exact, ()
    rounds = catalogue.workload(imported.workload)[1].rounds.values()
    known = {part.ruleset for part in rounds if part.ruleset != "own"} | {NEWEST_RULES}
    newest = max(known, key=round_order)
    return newest, (f"{problem}. Until then the ruleset is {newest}",)


def _differences(imported: Import, env: dict[str, str]) -> list[EnvironmentDifference]:
    config = imported.evaluation.env
    reasons = {row.name: row.why for row in imported.placed if row.part in ("run", "site")}
    result = []
    for name in dict.fromkeys([*config, *imported.evaluation.chance, *env]):
        theirs = str(config[name]) if name in config else None
        ours = env.get(name)
        if theirs == ours and name not in imported.evaluation.chance:
            continue
        why = reasons.get(name, "")
        value = config.get(name)
        if not why and theirs == f"{ours}:":
            why = "the config appends the caller's value, which a run does not have"
        elif not why and isinstance(value, Text) and ours and ours.startswith("<"):
            form = next(
                (row.value for row in imported.placed if row.name == name), None
            ) or _known_form(imported, name)
            if isinstance(form, Minutes) and theirs == str(form.fixed + form.per_run):
                why = "computed with the number of runs, here at the start of each set"
        if not why:
            raise InputError(
                f"internal error: {name} is {theirs!r} in the config and {ours!r} in the entry",
                hint="please report it, with the config",
            )
        shown = None if secret_problem(name) else theirs
        result.append(EnvironmentDifference(name, shown, ours, why))
    return result


def _known_form(imported: Import, name: str) -> object:
    return imported.known_env.get(name)
