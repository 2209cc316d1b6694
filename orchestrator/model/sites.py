"""Site files."""

from __future__ import annotations

import grp
import os
from collections.abc import Iterable
from pathlib import Path

from orchestrator.errors import OrchestratorError, UsageError, did_you_mean
from orchestrator.model.documents import Workload
from orchestrator.model.problems import checked, validate
from orchestrator.model.site_documents import Site
from orchestrator.model.source import Document, override, read


def load_site(
    path: Path | str,
    workloads: Iterable[str] = (),
    overrides: Iterable[tuple[str, str]] = (),
) -> Site:
    """Read a site file. Raises DescriptorError with every problem.

    `workloads`: existing names, to find data for an unknown workload; empty: unchecked.
    `overrides`: as in load_entry().
    """
    document = read(Path(path))
    override(document, overrides)
    return site_of(document, list(workloads))


def site_of(document: Document, workloads: list[str]) -> Site:
    """Build a Site. Raises DescriptorError."""
    site = validate(document, Site)
    if "log_dir" not in document.data:
        document.add(
            ("log_dir",), "this key is required: the folder of the sets, on shared storage"
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
    """Return the sets' folder on shared storage. Raises `error` if the site lacks it."""
    if not site.log_dir:
        raise error(
            "the site file has no log_dir, the folder on shared storage for the sets",
            hint="add `log_dir: /shared/results` to the site file",
        )
    return Path(site.log_dir)


def group_problem(site: Site) -> str:
    """Return why this user cannot give a set to the site's `shared_group`, or ""."""
    name = site.shared_group
    if not name:
        return ""
    try:
        number = grp.getgrnam(name).gr_gid
    except KeyError:
        return f"there is no group {name} (`shared_group`) on {os.uname().nodename}"
    if os.geteuid() == 0 or number in {os.getegid(), *os.getgroups()}:
        return ""
    return f"you are not a member of the group {name} (`shared_group`)"


def check_data_variables(document: Document, variables: Iterable[str], workload: Workload) -> None:
    """Report `variables` of `data` that `workload` mounts in no round."""
    known = {mount.variable for mount in workload.mounts}
    for part in workload.rounds.values():
        known |= {mount.variable for mount in part.mounts or []}
    for variable in variables:
        if variable not in known:
            meant = did_you_mean(variable, known)
            document.add(
                ("data", workload.name, variable),
                f"{workload.name} mounts no folder {variable}{meant}; accepted: "
                f"{', '.join(sorted(known)) or 'none'}",
            )
