"""Check submitter and site for an entry's needs besides its image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.errors import Fix, UsageError, closest
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.model.documents import PrerequisitePart
    from orchestrator.model.entry import Entry

ACKNOWLEDGED = "prerequisites"
DATA = "data"
"""In the site's `acknowledged`: start sets without prerequisites, or without checking data
folders."""


class UnmetNeed(NamedTuple):
    """`stops`: no set starts without it."""

    check: str
    """The row of `doctor`: environment, prerequisite, data or prepared."""
    text: str
    remedy: str
    stops: bool
    fix: Fix | None = None


def unmet(entry: Entry) -> list[PrerequisitePart]:
    """Return prerequisites that the site does not give."""
    site = entry.site
    places = [mount.container or mount.host for mount in site.container.mounts]
    if entry.code_path:
        places.append(entry.code_dir)
    parts = entry.documents.mine.prerequisites
    if entry.container.engine == "none":  # nothing is mounted; only the site's code exists
        return [] if entry.code_path else list(parts)
    return [
        part
        for part in parts
        if not any(PurePosixPath(part.mounted).is_relative_to(place) for place in places)
    ]


def needs(entry: Entry, environment: Mapping[str, str]) -> Iterator[UnmetNeed]:
    """Yield needs unmet by the submitter's host or the site."""
    for name, what in entry.needs_env.items():
        if not environment.get(name):
            text = f"{entry.workload} needs {name} for {what}, and it is not set here"
            remedy = (
                f"export {quoted(name)}=...; or `offline: true` in the site file, after "
                "`orchestrator "
                f"prepare {quoted(entry.workload)}`"
            )
            yield UnmetNeed("environment", text, remedy, True)
    if ACKNOWLEDGED not in entry.site.acknowledged:
        for part in unmet(entry):
            text = f"{entry.system} needs {part.what}; the site mounts nothing at {part.mounted}"
            remedy = part.remedy.replace("{system}", entry.system)
            remedy = remedy.replace("{workload}", entry.workload)
            without = f"to run without it: `acknowledged: [{ACKNOWLEDGED}]` in the site file"
            yield UnmetNeed("prerequisite", text, f"{remedy}; {without}", True)
    if DATA not in entry.site.acknowledged:
        yield from _missing_folders(entry, environment)
    if missing := missing_data(entry):
        remedy = f"orchestrator prepare {quoted(entry.workload)}"
        yield UnmetNeed("prepared", f"not there: {missing}", remedy, False)


def _missing_folders(entry: Entry, environment: Mapping[str, str]) -> Iterator[UnmetNeed]:
    given = entry.site.data.get(entry.workload, {})
    unnamed = unnamed_folders(entry, environment)
    for name in dict.fromkeys(mount.variable for mount in entry.mounts):
        key = f"data.{entry.workload}.{name}"
        if name in unnamed:
            text = f"the site file names no folder for {key}, which the runs mount"
            folder = unnamed[name]
            there = os.path.isdir(folder)
            fix = Fix(options=("--override", f"{key}={folder}")) if there else None
            yield UnmetNeed(DATA, text, name_folders(entry.workload, unnamed), True, fix)
        elif name in given and _surely_missing(given[name]):
            path = Path(given[name])
            text = f"{path} ({key} of the site file) does not exist"
            fix = Fix(check_data(entry.workload, key, given[name]))
            if near := near_folder(str(path)):
                text = f'{text}; did you mean "{near}"?'
                fix = Fix(options=("--override", f"{key}={near}"))
            remedy = f"correct `{key}` in the site file, or prepare the data there"
            yield UnmetNeed(DATA, text, remedy, True, fix)


def unnamed_folders(entry: Entry, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variable -> likely folder of the data that neither site file nor environment names."""
    given = entry.site.data.get(entry.workload, {})
    others = [place for folders in entry.site.data.values() for place in folders.values()]
    log_dir = entry.site.log_dir or "/data/sets"
    return {
        name: likely_folder(entry.workload, name, environment, others, log_dir)
        for name in dict.fromkeys(mount.variable for mount in entry.mounts)
        if name not in given and not (name in entry.site.pass_env and environment.get(name))
    }


def likely_folder(
    workload: str, name: str, environment: Mapping[str, str], others: Sequence[str], log_dir: str
) -> str:
    """Return the folder in the environment's variable, else a folder named after the workload, next
    to the site's `others` or its sets."""
    if os.path.isabs(value := environment.get(name, "")):
        return value
    places = [Path(folder) for folder in others]
    named = [above / workload for place in places for above in (place.parent, place.parent.parent)]
    shared = Path(log_dir).parent / "data" / workload
    return str(next((folder for folder in named if folder.is_dir()), shared))


def near_folder(folder: str) -> str:
    """Return an existing folder whose path differs in one similar name, or ""."""
    missing = Path(folder)
    with suppress(OSError):
        path = next(path for path in (missing, *missing.parents) if path.parent.is_dir())
        name = closest(path.name, os.listdir(path.parent))
        there = path.parent / name / missing.relative_to(path)
        return str(there) if name and there.is_dir() else ""
    return ""


def name_folders(workload: str, folders: Mapping[str, str]) -> str:
    """Return the remedy for a site file without the data folders of a workload."""
    shown = ", ".join(f"{variable}: {folder}" for variable, folder in folders.items())
    return (
        f"add to the site file the folder that has the data, or that `orchestrator prepare "
        f"{quoted(workload)}` is to fill: data: {{{workload}: {{{shown}}}}}"
    )


def check_data(workload: str, key: str, folder: str) -> str:
    check = f"orchestrator prepare {quoted(workload)} --check"
    return f"{check} --override {quote(f'{key}={folder}')}"


def _surely_missing(folder: str) -> bool:
    """Return whether a folder is missing though its file system is mounted here. Above a folder
    that only nodes have, another is missing, too, or a mount point has no mount."""
    above = PurePosixPath(folder).parent
    if os.path.lexists(folder) or not os.path.isdir(above):
        return False
    with suppress(OSError):
        return os.stat(above).st_dev != os.stat("/").st_dev or len(above.parts) > 2
    return False


def refusals(entry: Entry, environment: Mapping[str, str]) -> Iterator[UsageError]:
    """Yield an error for each need that stops a set."""
    for need in needs(entry, environment):
        if need.stops:
            yield UsageError(need.text, hint=need.remedy, fix=need.fix)


def missing_data(entry: Entry) -> str:
    """Return missing files, `a, b, c and 2 more`, or "". Skip folders invisible from here."""
    folders = entry.site.data.get(entry.workload, {})
    seen = {name: Path(folder) for name, folder in folders.items() if os.path.isdir(folder)}
    paths = [
        str(seen[part.variable] / part.path) for part in entry.data_tree if part.variable in seen
    ]
    missing = [path for path in paths if not os.path.lexists(path)]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return ", ".join(missing[:3]) + more


def build_advice(entry: Entry) -> str:
    """Return how to build an image that no registry has; "" for other images."""
    build = entry.build
    if build is None:
        return ""
    return (
        f"build it from the published tree ({build.source}): orchestrator images build "
        f"{quoted(entry.system)} {quoted(entry.workload)} --tree DIR"
    )
