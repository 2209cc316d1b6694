"""Check a document of any kind without composing it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from orchestrator.model.catalogue import Catalogue
from orchestrator.model.checks import label_warning, launch_problem
from orchestrator.model.documents import Workload
from orchestrator.model.problems import checked, validate
from orchestrator.model.shared_documents import SHARED
from orchestrator.model.sites import check_data_variables, group_problem, site_of
from orchestrator.model.source import Document, read

_KINDS = ("system", "workload", "site", *SHARED)


def validate_file(
    catalogue: Catalogue,
    path: Path,
    ruleset_problem: Callable[[str], str] = lambda ruleset: "",
    profile_problem: Callable[[str], str] = lambda profile: "",
    others: Mapping[str, Callable[[Path], object]] = {},
) -> tuple[str, list[str]]:
    """Return kind and warnings of the document at `path`.

    `ruleset_problem` returns why a ruleset cannot score a set, or ""; `profile_problem` why a
    tuning profile cannot be used. `others`: further kinds, with their checks. Raises
    DescriptorError with every problem.
    """
    document = read(path)
    kind = document.data.get("kind")
    if kind is None and "log_dir" in document.data:
        kind = "site"  # optional in a site file; no other kind has this key
    kinds = (*_KINDS, *others)
    if kind not in kinds:
        document.add(
            ("kind",),
            f"{kind!r} is not a kind of document; accepted: {', '.join(kinds)}"
            if kind is not None
            else f"this key is required; accepted: {', '.join(kinds)}",
        )
        document.check()
    if kind == "site":
        return kind, check_site(catalogue, document, profile_problem)
    if kind in others:
        others[kind](path)
    elif kind in SHARED:
        checked(document, validate(document, SHARED[kind]))
    elif kind == "workload":
        _check_rulesets(*catalogue.workload(_as_path(path)), ruleset_problem)
    else:
        return kind, _check_system(catalogue, path)
    return str(kind), []


def _check_rulesets(
    document: Document, workload: Workload, ruleset_problem: Callable[[str], str]
) -> None:
    for name, part in workload.rounds.items():
        if problem := ruleset_problem(part.ruleset):
            document.add(("rounds", name, "ruleset"), problem)
    document.check()


def _as_path(path: Path) -> str:
    # A bare "flux1" must mean the file here, never the catalogue's workload.
    return os.path.realpath(path)


def _check_system(catalogue: Catalogue, path: Path) -> list[str]:
    _, system = catalogue.system(_as_path(path))
    warnings = [
        warning
        for workload, rounds in system.workloads.items()
        for name, part in rounds.items()
        for warning in (
            label_warning(system, part, workload, name),
            launch_problem(system, part, catalogue.workload(workload)[1], name),
        )
    ]
    return [warning for warning in warnings if warning]


def check_site(
    catalogue: Catalogue,
    document: Document,
    profile_problem: Callable[[str], str] = lambda profile: "",
) -> list[str]:
    """Return warnings of a site document. Raises DescriptorError with every problem."""
    names = catalogue.workload_names()
    data, tuning = document.data.get("data"), document.data.get("tuning")
    for name, folders in data.items() if isinstance(data, dict) else ():
        if name in names and isinstance(folders, dict):
            check_data_variables(document, folders, catalogue.workload(name)[1])
    profile = tuning.get("profile") if isinstance(tuning, dict) else None
    if isinstance(profile, str) and (problem := profile_problem(profile)):
        document.add(("tuning", "profile"), problem)
    group = group_problem(site_of(document, names))
    return [group] if group else []
