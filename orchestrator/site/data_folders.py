"""The data folders of a site file: from --data, else from the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError, did_you_mean
from orchestrator.resources import user_path

if TYPE_CHECKING:
    from orchestrator.model.documents import Workload

SKIP = "none"

Folders = dict[str, dict[str, str]]
"""Workload -> variable -> folder, as the site's `data`."""


def given_folders(given: Sequence[tuple[str, str]]) -> Folders:
    """Resolve (WORKLOAD or WORKLOAD.VARIABLE, folder). Raises UsageError."""
    known, folders = _workloads(), Folders()
    for name, folder in given:
        workload, _, variable = name.partition(".")
        variables = _variables(_known(workload, known), f"--data {name}={folder}")
        if not variable and len(variables) > 1:
            raise UsageError(
                f"--data {name}={folder}: {workload} has several folders: {', '.join(variables)}",
                hint=" ".join(f"--data {workload}.{other}=DIR" for other in variables),
            )
        variable = variable or variables[0]
        if variable not in variables:
            raise UsageError(
                f"--data {name}={folder}: {workload} has no folder {variable}"
                f"{did_you_mean(variable, variables)}; accepted: {', '.join(variables)}"
            )
        folders.setdefault(workload, {})[variable] = _absolute(folder, f"--data {name}")
    return folders


def asked_folders(ask: Callable[[str, str], str]) -> Folders:
    known, folders = _workloads(), Folders()
    with_data = [name for name, workload in known.items() if workload.mounts]
    answer = ask(f"workloads to run, separated by commas ({', '.join(with_data)})", SKIP)
    for name in (part.strip() for part in answer.split(",")):
        if name in ("", SKIP):
            continue
        for variable in _variables(_known(name, known), name):
            folder = ask(question(name, variable), SKIP)
            if folder not in ("", SKIP):
                folders.setdefault(name, {})[variable] = _absolute(folder, f"{name}, {variable}")
    return folders


def question(workload: str, variable: str) -> str:
    return f"folder of the data of {workload} ({variable}), as nodes see it"


def _workloads() -> dict[str, Workload]:
    from orchestrator.model import Catalogue

    return {workload.name: workload for workload in Catalogue().workloads()}


def _known(name: str, known: dict[str, Workload]) -> Workload:
    if name not in known:
        raise UsageError(
            f"there is no workload {name}{did_you_mean(name, known)}; there are: {', '.join(known)}"
        )
    return known[name]


def _variables(workload: Workload, what: str) -> list[str]:
    """Return the variables of a workload's mounts, in any round."""
    mounts = [*workload.mounts]
    for part in workload.rounds.values():
        mounts += part.mounts or []
    variables = list(dict.fromkeys(mount.variable for mount in mounts))
    if not variables:
        raise UsageError(f"{what}: {workload.name} mounts no data")
    return variables


def _absolute(folder: str, what: str) -> str:
    path = user_path(folder)
    if not path.is_absolute():
        raise UsageError(f"{what}: {folder} is not an absolute path", hint=f"{path.absolute()}")
    return str(path)
