"""Check submitter and site for an entry's needs besides its image."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.errors import Fix, UsageError, closest
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.model.documents import PrerequisitePart
    from orchestrator.model.entry import Entry
    from orchestrator.model.site_documents import Site

ACKNOWLEDGED = "prerequisites"
DATA = "data"
"""In the site's `acknowledged`: start sets without prerequisites, or with unchecked data."""


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
                "the command below reads it unseen; or `offline: true` in the site "
                f"file, after `orchestrator prepare {quoted(entry.workload)}`"
            )
            ask = f"read -rs {quoted(name)} && export {quoted(name)}"
            yield UnmetNeed("environment", text, remedy, True, Fix(ask))
    if ACKNOWLEDGED not in entry.site.acknowledged:
        for part in unmet(entry):
            text = f"{entry.system} needs {part.what}; the site mounts nothing at {part.mounted}"
            remedy = part.remedy.replace("{system}", entry.system)
            remedy = remedy.replace("{workload}", entry.workload)
            without = f"to run without it: `acknowledged: [{ACKNOWLEDGED}]` in the site file"
            fix = _mount(entry, part)
            yield UnmetNeed("prerequisite", text, f"{remedy}; {without}", True, fix)
    if DATA not in entry.site.acknowledged:
        yield from _missing_folders(entry, environment)
    if missing := missing_data(entry):
        kept = ("--site", "--override", "--systems-dir")  # else it is about other folders
        fix = Fix(other=("prepare", entry.workload), kept=kept)
        yield UnmetNeed("prepared", f"not there: {missing}", "", False, fix)


def _mount(entry: Entry, part: PrerequisitePart) -> Fix | None:
    """Return the command that mounts a prerequisite; None if only the user knows its content. A
    config is written first, unless it is next to the sets."""
    site = entry.site
    if entry.container.engine == "none" or part.mounted == entry.code_dir:
        return Fix(first=("config", "--set", f"code.{entry.workload}"))
    if not part.image_config or not site.log_dir:
        return None
    config = Path(site.log_dir).parent / PurePosixPath(part.mounted).name
    mounts = [mount.model_dump(exclude_defaults=True) for mount in site.container.mounts]
    mounts.append({"host": str(config), "container": part.mounted})
    write = ("--round", entry.round, "--image-config", str(config))
    return Fix(
        first=() if config.exists() else ("render", entry.system, entry.workload, *write),
        options=("--override", f"container.mounts={json.dumps(mounts)}"),
    )


def _missing_folders(entry: Entry, environment: Mapping[str, str]) -> Iterator[UnmetNeed]:
    given = entry.site.data.get(entry.workload, {})
    if unnamed := unnamed_folders(entry, environment):
        yield name_folders(entry.workload, unnamed)
    for name in dict.fromkeys(mount.variable for mount in entry.mounts):
        key = f"data.{entry.workload}.{name}"
        if name in given and _surely_missing(given[name]):
            path = Path(given[name])
            text = f"{path} ({key} of the site file) does not exist"
            if near := near_folder(str(path)):
                text = f'{text}; did you mean "{near}"?'
            fix = find_data(entry.site, entry.workload, name, given[name])
            remedy = f"correct `{key}` in the site file, or prepare the data there"
            yield UnmetNeed(DATA, text, remedy, True, fix)


def unnamed_folders(entry: Entry, environment: Mapping[str, str]) -> dict[str, str]:
    """Return variable -> likely_folder() of data named by neither site file nor environment."""
    site, workload = entry.site, entry.workload
    return {
        name: likely_folder(site, workload, name, environment)
        for name in dict.fromkeys(mount.variable for mount in entry.mounts)
        if name not in site.data.get(workload, {})
        and not (name in site.pass_env and environment.get(name))
    }


def likely_folder(site: Site, workload: str, name: str, environment: Mapping[str, str]) -> str:
    """Return the folder of site file or environment, else an existing folder named after the
    workload, next to the site's other data or its sets, else ""."""
    named = site.data.get(workload, {}).get(name) or environment.get(name, "")
    if os.path.isabs(named) and not _surely_missing(named):
        return named
    others = [Path(folder) for folders in site.data.values() for folder in folders.values()]
    places = [above for folder in others for above in (folder.parent, folder.parent.parent)]
    if site.log_dir:
        places.append(Path(site.log_dir).parent / "data")
    folders = [place / workload for place in places]
    return str(next((folder for folder in folders if folder.is_dir()), ""))


def name_folders(workload: str, folders: Mapping[str, str]) -> UnmetNeed:
    """Return the need of a site file without a workload's data folders. `folders`: variable ->
    folder, "" if unknown: then the user is asked, as a download to a guessed place would neither
    find the data nor set the key."""
    keys = {f"data.{workload}.{variable}": folder for variable, folder in folders.items()}
    text = f"the site file names no folder for {' and '.join(keys)}"
    if all(keys.values()):
        options = [("--override", f"{key}={folder}") for key, folder in keys.items()]
        remedy = "--override names it for one command, `orchestrator config --set` for all"
        return UnmetNeed(DATA, text, remedy, True, Fix(options=tuple(chain(*options))))
    options = [("--set", key) for key in keys]
    remedy = "the command below asks for it"
    return UnmetNeed(DATA, text, remedy, True, Fix(first=("config", *chain(*options))))


def near_folder(folder: str) -> str:
    """Return an existing folder that differs in a single similar name, or ""."""
    missing = Path(folder)
    with suppress(OSError):
        path = next(path for path in (missing, *missing.parents) if path.parent.is_dir())
        name = closest(path.name, os.listdir(path.parent))
        there = path.parent / name / missing.relative_to(path)
        return str(there) if name and there.is_dir() else ""
    return ""


def find_data(site: Site, workload: str, variable: str, missing: str) -> Fix:
    """Return the command for a missing folder of data, or part of it: the typed command with a near
    folder, else a check of the parts. A preparation would download into a mistyped path."""
    key = f"data.{workload}.{variable}"
    folder = site.data.get(workload, {}).get(variable, missing)
    folder = folder if PurePosixPath(missing).is_relative_to(folder) else missing
    if not os.path.exists(folder) and (near := near_folder(folder)):
        return Fix(options=("--override", f"{key}={near}"))
    return Fix(other=("prepare", workload, "--check", "--override", f"{key}={folder}"))


def _surely_missing(folder: str) -> bool:
    """Return whether a folder is missing in a file system mounted here: above a folder that only
    nodes have, another is missing, too, or a mount point has no mount."""
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
    """Return missing files, `a, b, c and 2 more`, or ""; skip folders invisible here."""
    folders = entry.site.data.get(entry.workload, {})
    seen = {name: Path(folder) for name, folder in folders.items() if os.path.isdir(folder)}
    paths = [
        str(seen[part.variable] / part.path) for part in entry.data_tree if part.variable in seen
    ]
    missing = [path for path in paths if not os.path.lexists(path)]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return ", ".join(missing[:3]) + more


def build_advice(entry: Entry) -> str:
    """Return how to build an image that no registry has, or ""."""
    build = entry.build
    if build is None:
        return ""
    return (
        f"build it from the published tree ({build.source}): orchestrator images build "
        f"{quoted(entry.system)} {quoted(entry.workload)} --tree DIR"
    )
