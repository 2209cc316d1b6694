"""Documents of an imported config: a system, and a workload if the round is new."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import DescriptorError, UsageError
from orchestrator.importing.split import Import
from orchestrator.model import Catalogue, Site
from orchestrator.model.documents import WorkloadRound
from orchestrator.model.fields import NAME
from orchestrator.model.shared_documents import Fabric
from orchestrator.model.values import EnvValue, Minutes, Text, Unique


@dataclass(frozen=True)
class Documents:
    """`files`: path below the folder -> text. `notes` are assumptions."""

    system: str
    files: dict[str, str]
    notes: tuple[str, ...]


def documents(
    imported: Import, catalogue: Catalogue, *, image: str, ruleset: str, notes: tuple[str, ...] = ()
) -> Documents:
    """`image` "": the nearest round's, with this round's number. Raises UsageError for an unusable
    name."""
    name = imported.given.name or _free_name(imported, catalogue)
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--as {name!r} is not a name; accepted: letters, digits, '.', '_' and '-'"
        )
    known = catalogue.workload(imported.workload)[1].rounds[imported.base]
    files = {f"{name}.yaml": _system_text(imported, name, known, image)}
    if imported.new_round:
        chosen = image or _next_image(imported, known)
        if not image and chosen:
            notes = (
                *notes,
                f"the image {chosen} is assumed, as round {imported.base} has it; --image REF",
            )
        files[f"workloads/{imported.workload}.yaml"] = _workload_text(imported, chosen, ruleset)
    return Documents(name, files, notes)


def write(folder: Path, made: Documents) -> list[Path]:
    """Write, never over existing files. Raises UsageError."""
    there = [path for name in made.files if (path := folder / name).exists()]
    if there:
        raise UsageError(
            f"{there[0]} is there already",
            hint="it may have been edited: remove it, or give another folder with -o, or another "
            "--as",
        )
    try:
        for name, text in made.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from error
    return [folder / name for name in made.files]


def _free_name(imported: Import, catalogue: Catalogue) -> str:
    """Return a name that hides no system of the catalogue."""
    name = imported.published_as
    return f"{name}_{imported.given.round}" if name in catalogue.system_names() else name


def _next_image(imported: Import, known: WorkloadRound) -> str:
    return re.sub(rf"{re.escape(imported.base)}$", imported.given.round, known.image or "")


def _workload_text(imported: Import, image: str, ruleset: str) -> str:
    name, new, base = imported.workload, imported.given.round, imported.base
    lines = [
        f"# {name}: every known round, and {new}, which starts from {base}.",
        "kind: workload",
        f"name: {name}",
        f"extends: {name}",
        "rounds:",
        f'  "{new}":',
        f'    extends: "{base}"',
        f"    ruleset: {json.dumps(ruleset)}",
        *([f"    image: {image}"] if image else []),
        f"    source: {json.dumps(imported.evaluation.name)}",
        *_env_lines(imported.env("workload"), "    "),
    ]
    return "\n".join(lines) + "\n"


def _system_text(imported: Import, name: str, known: WorkloadRound, image: str) -> str:
    facts = imported.facts
    parallel = [
        f"      {fact}: {facts[fact]}"
        for fact in ("tensor_parallel", "pipeline_parallel", "context_parallel")
        if facts[fact] != "1"
    ]
    minutes = facts["minutes_per_run"]
    nearest = f"{imported.workload} {imported.base}"
    source = json.dumps(imported.evaluation.name)
    lines = [
        f"# Imported from {source}; the values that differ from {nearest}.",
        "kind: system",
        f"name: {name}",
        f'title: "{facts["nodes"]} x {facts["gpus_per_node"]} {imported.accelerator}"',
        f"accelerator: {imported.accelerator}",
        f"nodes: {facts['nodes']}",
        f"gpus_per_node: {facts['gpus_per_node']}",
        *_fabric_lines(imported.fabric),
        "workloads:",
        f"  {imported.workload}:",
        f'    "{imported.given.round}":',
        f"      source: {source}",
        *([f'      stack: "{imported.base}"'] if imported.stack else []),
        *(
            [f"      published_as: {json.dumps(facts['system'])}"]
            if facts["system"] != name
            else []
        ),
        *([f"      image: {image}"] if image and not imported.new_round else []),
        f"      micro_batch: {facts['micro_batch']}",
        f"      global_batch: {facts['global_batch']}",
        *parallel,
        *([f"      minutes_per_run: {minutes}"] if minutes != str(known.minutes_per_run) else []),
        *_env_lines(imported.env("system"), "      "),
    ]
    return "\n".join(lines) + "\n"


def _fabric_lines(fabric: str | Fabric) -> list[str]:
    if isinstance(fabric, str):
        return [f"fabric: {fabric}"]
    plain = {key: value for key, value in fabric if key not in ("env", "source", "note") and value}
    return [
        "fabric:",
        *(f"  {key}: {json.dumps(value)}" for key, value in plain.items()),
        *_env_lines(fabric.env, "  "),
    ]


def _env_lines(env: Mapping[str, EnvValue | None], indent: str) -> list[str]:
    if not env:
        return []
    return [f"{indent}env:", *(f"{indent}  {name}: {_value(value)}" for name, value in env.items())]


def _value(value: EnvValue | None) -> str:
    match value:
        case None:
            return "null"
        case Text(text):
            return json.dumps(text, ensure_ascii=False)
        case Minutes(fixed, per_run):
            return f"{{minutes: {{fixed: {fixed}, per_run: {per_run}}}}}"
        case Unique(prefix):
            return f"{{unique: {json.dumps(prefix)}}}"


def as_published() -> Site:
    """Return a site without additions to the environment: no caches, no RCCL log."""
    return Site(offline=False, pass_env=["NCCL_DEBUG"])


def composed(imported: Import, made: Documents, folder: Path, dirs: list[Path]) -> dict[str, str]:
    """Return the documents' environment. Raises DescriptorError for invalid documents: an error of
    the import."""
    from orchestrator.model import load_entry

    try:
        entry = load_entry(
            made.system,
            imported.workload,
            round=imported.given.round,
            site=as_published(),
            systems_dirs=[folder, *dirs],
        )
    except DescriptorError as error:
        # The folder is removed before anybody reads the message: no fix can open a file there.
        raise DescriptorError(
            [str(problem).replace(f"{folder}/", "") for problem in error.problems],
            hint="the config breaks the catalogue's rules; "
            "correct it, or give the facts as options",
        ) from error
    return {name: str(value) for name, value in entry.whole_env.items()}
