"""Site files, and a workload's needs of the host on which it is submitted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError, UsageError, did_you_mean
from orchestrator.model.documents import Workload
from orchestrator.model.problems import checked, validate
from orchestrator.model.site_documents import Site
from orchestrator.model.source import Document, read

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry


def load_site(path: Path | str, workloads: Iterable[str] = ()) -> Site:
    """Read the site file at `path`. Raises DescriptorError with every problem found.

    `workloads`: the existing names, to find site data for an unknown workload; not checked if
    empty.
    """
    document = read(Path(path))
    return site_of(document, list(workloads))


def site_of(document: Document, workloads: list[str]) -> Site:
    """Turn a read document into a Site, or raise DescriptorError."""
    site = validate(document, Site)
    if "log_dir" not in document.data:
        document.add(
            ("log_dir",), "this key is required: the folder on shared storage where sets live"
        )
    for section in ("data", "code"):
        given = document.data.get(section)
        for name in given if workloads and isinstance(given, dict) else ():
            if name not in workloads:
                meant = did_you_mean(name, workloads)
                document.add(
                    (section, name),
                    f"there is no workload {name}{meant}; there are: {', '.join(workloads)}",
                )
    return checked(document, site)


def sets_folder(site: Site, error: type[OrchestratorError] = UsageError) -> Path:
    """Return the folder on shared storage for the sets. Raises `error` for a site made without
    one."""
    if not site.log_dir:
        raise error(
            "the site file gives no log_dir, the folder on shared storage for the sets",
            hint="add `log_dir: /shared/results` to the site file",
        )
    return Path(site.log_dir)


def check_data_variables(document: Document, site: Site, workload: Workload) -> None:
    """Report every folder of `data` that no mount of `workload` uses, in any round."""
    known = {mount.variable for mount in workload.mounts}
    for part in workload.rounds.values():
        known |= {mount.variable for mount in part.mounts or []}
    for variable in site.data.get(workload.name, {}):
        if variable not in known:
            meant = did_you_mean(variable, known)
            document.add(
                ("data", workload.name, variable),
                f"{workload.name} mounts no folder {variable}{meant}; accepted: "
                f"{', '.join(sorted(known)) or 'none'}",
            )


def refuse_unset(entry: Entry, environment: Mapping[str, str]) -> None:
    """Raise UsageError if the submitter lacks a variable that the program needs."""
    for name, what in entry.needs_env.items():
        if not environment.get(name):
            raise UsageError(
                f"{entry.workload} needs {name} for {what}, and it is not set here",
                hint=f"export {name}=...; or `offline: true` in the site file, after `orchestrator "
                f"prepare {entry.workload}`",
            )


def missing_data(entry: Entry) -> str:
    """Return the first missing files of the workload's data, `a, b, c and 2 more`; "" if all are
    there. Folders that cannot be seen from here are left out."""
    folders = entry.site.data.get(entry.workload, {})
    seen = {name: Path(folder) for name, folder in folders.items() if os.path.isdir(folder)}
    paths = [
        str(seen[part.variable] / part.path) for part in entry.data_tree if part.variable in seen
    ]
    missing = [path for path in paths if not os.path.lexists(path)]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    return ", ".join(missing[:3]) + more
