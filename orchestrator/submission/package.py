"""From sets to the submission tree:

results/<system>/<benchmark>/result_0.txt ... result_<N-1>.txt
systems/<system>.json
benchmarks/<benchmark>/implementations/<implementation>/ with the bundle's scripts, README.md,
    runs.json
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError, SetError, UsageError, is_full
from orchestrator.evidence import bundle
from orchestrator.evidence.files import is_inside
from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.result import plain
from orchestrator.onnode.set.ledger import NAME as LEDGER
from orchestrator.submission.chosen import Chosen, choose, content
from orchestrator.submission.description import (
    MEMBERS,
    STACK,
    describe,
    description_problems,
    empty_members,
    joined,
)
from orchestrator.submission.readme import readme
from orchestrator.submission.refusal import (
    LARGEST,
    Deviation,
    Refused,
    Undescribed,
    name_problem,
    tree_problems,
)
from orchestrator.words import count, quoted

MOST_PROBLEMS = 8
"""Listed problems of a ledger."""


@dataclass(slots=True)
class Options:
    """`status` is MLCommons' text; "": as in the sets."""

    submitter: str
    division: str = "closed"
    status: str = "Available on-premise"
    framework: str = ""
    system: str = ""
    implementation: str = ""
    ruleset: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    systems_dirs: Sequence[Path] = ()
    allow_differences: bool = False
    """Only warn of logs that differ from their description or name another organisation."""


@dataclass(slots=True)
class Package:
    """A tree as path -> bytes."""

    files: dict[str, bytes]
    ruleset: str
    benchmarks: list[str]
    warnings: list[str]


def make_package(directories: Sequence[str], options: Options) -> Package:
    """Raises Refused with every reason, InputError for unusable logs."""
    sets = [choose(directory, ruleset=options.ruleset) for directory in directories]
    problems = [problem for chosen in sets for problem in chosen.problems]
    package = Package({}, sets[0].score.ruleset, [], [])
    seen: dict[str, str] = {}
    for chosen in sets:
        problems += [] if chosen.has_own_rules else _add_set(package, chosen, options, seen)
    if len({chosen.score.ruleset for chosen in sets}) > 1:
        problems.append(
            "the sets are of different rounds: "
            f"{', '.join(sorted({chosen.score.ruleset for chosen in sets}))}"
        )
    problems += tree_problems(package.files)
    if problems:
        no_mlperf = all(chosen.has_own_rules for chosen in sets)
        hint = "orchestrator docs scoring"  # a benchmark of your own
        raise Refused(
            list(dict.fromkeys(problems)),
            hint=hint if no_mlperf else _hint(sets, directories, problems),
        )
    return package


def _hint(sets: Sequence[Chosen], directories: Sequence[str], problems: Sequence[str]) -> str:
    if way := next(filter(None, (chosen.way_to_real_runs for chosen in sets)), ""):
        return way
    if way := next(filter(None, (chosen.way_to_more_runs for chosen in sets)), ""):
        return way
    if any(isinstance(problem, Deviation) for problem in problems):
        return (
            "check each; --allow-differences packages the logs as they are, with the "
            "differences in runs.json"
        )
    if any(isinstance(problem, Undescribed) for problem in problems):
        return "orchestrator docs package"  # it has one to start from
    bad = [name for name, chosen in zip(directories, sets, strict=True) if chosen.problems]
    return (
        f"orchestrator score --compliance {quoted(bad[0])}" if bad else "orchestrator docs package"
    )


def _add_set(package: Package, chosen: Chosen, options: Options, seen: dict[str, str]) -> list[str]:
    described = chosen.source.described
    system = options.system or str(described.get("system") or "")
    if not system:
        return [f"{chosen.root}: a folder of logs does not name its system; give --system NAME"]
    implementation = options.implementation or system
    problems = [
        problem
        for problem in (
            name_problem(system, "system"),
            name_problem(implementation, "implementation"),
        )
        if problem
    ]
    benchmark = str(chosen.score.benchmark)
    results = f"results/{system}/{benchmark}"
    if problems or name_problem(benchmark, "benchmark"):
        return [*problems, *filter(None, [name_problem(benchmark, "benchmark")])]
    if results in seen:
        return [
            (
                f"{chosen.root} and {seen[results]} are both {benchmark} on {system}: a submission "
                "has "
                "one set of each"
            )
        ]
    seen[results] = str(chosen.root)
    package.benchmarks.append(benchmark)
    problems += _add_description(package, chosen, system, options)
    problems += _add_results(package, chosen, results)
    problems += _check_division(chosen, options)
    problems += _check_described(package, chosen, options)
    _add_code(package, chosen, f"benchmarks/{benchmark}/implementations/{implementation}", system)
    return problems


def _check_division(chosen: Chosen, options: Options) -> list[str]:
    division = chosen.score.division
    if not chosen.score.runs or division == options.division:
        return []
    reason = f"the logs are of the {division} division, and --division is {options.division}"
    return [f"{chosen.root}: {reason}"]


def _check_described(package: Package, chosen: Chosen, options: Options) -> list[str]:
    """Return differences from description or submitter; allowed ones become warnings."""
    differences = [f"{chosen.root}: {finding}" for finding in chosen.score.differences]
    differences += [
        f"{chosen.root}: ledger: {problem}" for problem in _ledger_problems(package, chosen)
    ]
    orgs = dict.fromkeys(str(run.org) for run in chosen.runs if run.org not in (None, ""))
    others = [org for org in orgs if _plain_name(org) != _plain_name(options.submitter)]
    if others:
        differences.append(
            f"{chosen.root}: the logs have submission_org {', '.join(map(repr, others))}, "
            f"and --submitter is {options.submitter!r}{_org_variable(chosen)}"
        )
    if not options.allow_differences:
        return [Deviation(problem) for problem in differences]
    package.warnings.extend(f"{difference} (allowed)" for difference in differences)
    return []


def _ledger_problems(package: Package, chosen: Chosen) -> list[str]:
    """Return differences from the ledger; a missing ledger is a warning."""
    if chosen.source.is_set and not (chosen.root / LEDGER).exists():
        package.warnings.append(
            f"{chosen.root}: without a ledger nothing shows how its runs came about"
        )
    problems = chosen.ledger_problems
    if len(problems) <= MOST_PROBLEMS:
        return problems
    audit = f"orchestrator audit --only ledger {quoted(chosen.root)}"
    more = f"{len(problems) - MOST_PROBLEMS} more: {audit}"
    return [*problems[:MOST_PROBLEMS], more]


def _org_variable(chosen: Chosen) -> str:
    """Name the organisation's variable, if the workload document does."""
    entries = chosen.source.workload.get("logged")
    named = (
        [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    )
    variable = next(
        (entry.get("env") for entry in named if entry.get("key") == "submission_org"), ""
    )
    return f" (for later runs, set {variable} in the site's `env`)" if variable else ""


def _plain_name(text: str) -> str:
    """Return a canonical spelling: ORACLE is Oracle, Giga Computing GigaComputing."""
    return "".join(char for char in text.casefold() if char.isalnum())


def _add_description(package: Package, chosen: Chosen, system: str, options: Options) -> list[str]:
    said = {
        "submitter": options.submitter,
        "division": options.division,
        "status": options.status,
        "framework": options.framework,
    }
    if options.system:
        said["system_name"] = str(options.given.get("system_name") or options.system)
    members, catalogued = describe(
        chosen.source.described,
        chosen.root,
        {name: text for name, text in said.items() if text},
        options.given,
        options.systems_dirs,
        options.system,
    )
    path = f"systems/{system}.json"
    if path in package.files:
        earlier = json.loads(package.files[path])
        members[STACK] = joined(earlier[STACK], members[STACK])
        differing = [name for name in MEMBERS if name != STACK and members[name] != earlier[name]]
        if differing:
            return [
                Undescribed(
                    f"{path}: {name} is {earlier[name]!r}, and {members[name]!r} in {chosen.root}: "
                    "pass it with --system-json FILE"
                )
                for name in differing
            ]
    text = json.dumps(members, indent=4, ensure_ascii=False) + "\n"
    package.files[path] = text.encode("utf-8", "replace")
    warnings = []
    if empty := empty_members(members):
        warnings.append(f"{path}: accepted, but empty: {', '.join(empty)}")
    if catalogued:
        warnings.append(
            f"{path}: from the catalogue, not from your nodes: {', '.join(catalogued)}; "
            "if your hardware differs: --system-json FILE"
        )
    package.warnings.extend(text for text in warnings if text not in package.warnings)
    return [*description_problems(members, system)]


def _add_results(package: Package, chosen: Chosen, results: str) -> list[str]:
    problems = []
    for index, run in enumerate(chosen.runs):
        if chosen.source.is_set and not is_inside(run.path, chosen.root):
            problems.append(
                f"{run.path}: this is a link out of the set; a package takes nothing from elsewhere"
            )
            continue
        data = content(run, LARGEST, chosen.source.inside)
        if len(data) > LARGEST:
            problems.append(f"{run.path}: more than 50 MB uncompressed, the accepted maximum")
            continue
        package.files[f"{results}/result_{index}.txt"] = data
    if chosen.score.unscored:
        package.warnings.append(
            f"{chosen.root}: lost, and recorded in runs.json: "
            f"{count(len(chosen.score.unscored), 'attempt')}"
        )
    return problems


def _add_code(package: Package, chosen: Chosen, folder: str, system: str) -> None:
    evidence = SetEvidence(chosen.root)
    scripts = bundle.files(evidence) if chosen.source.is_set else {}
    package.files.update({f"{folder}/{name}": content for name, content in scripts.items()})
    package.warnings.extend(map(str, evidence.findings))
    if not scripts:
        package.warnings.append(
            f"{chosen.root}: a folder of logs has no scripts; put them into {folder}"
        )
    record = plain(chosen.record())
    package.files[f"{folder}/runs.json"] = (json.dumps(record, indent=1) + "\n").encode()
    package.files[f"{folder}/README.md"] = readme(chosen, system, list(scripts)).encode(
        "utf-8", "replace"
    )


# ---- writing ----


def check_place(directory: Path) -> None:
    """Raise UsageError if `directory` cannot take the package."""
    if directory.is_symlink() or directory.is_file():
        raise UsageError(f"{directory} is not a folder", hint="give a new folder with -o")
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError(
            f"{directory} exists and is not empty; a package is never mixed with other files",
            hint=f"give a new folder with -o, such as {str(directory).rstrip('/')}-2",
        )


def write_tree(files: Mapping[str, bytes], folder: Path) -> None:
    """Write `files` below `folder`, made if missing. Raises OSError."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if data.startswith(b"#!"):
            path.chmod(path.stat().st_mode | 0o111)


def write_package(package: Package, directory: Path) -> None:
    """Write the tree completely or not at all. Raises UsageError or InputError."""
    directory = Path(os.path.abspath(directory))
    check_place(directory)
    temporary = directory.with_name(f".{directory.name}.tmp.{os.getpid()}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        write_tree(package.files, temporary)
        if directory.is_dir():
            directory.rmdir()
        temporary.rename(directory)
    except OSError as error:
        kind = SetError if is_full(error) else InputError
        raise kind(
            f"cannot write the package to {directory}: {error.strerror}; nothing was left"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
