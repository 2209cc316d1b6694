"""Reading site files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orchestrator.model.documents import Site, Workload
from orchestrator.model.problems import validate
from orchestrator.model.source import Document, nearest, read


def load_site(path: Path | str, workloads: Iterable[str] = ()) -> Site:
    """Read the site file at `path`. Raises DescriptorError with every problem found.

    `workloads`: the names that exist, to find site data for a workload that does not; not checked when empty.
    """
    document = read(Path(path))
    return site_of(document, list(workloads))


def systems_folders(path: Path) -> list[Path]:
    """Return the `systems_dirs` of the site file at `path`, before the rest of it is checked."""
    return folders_in(read(path))


def folders_in(document: Document) -> list[Path]:
    """Return the `systems_dirs` of a read site document, as far as they are paths."""
    given = document.data.get("systems_dirs")
    return [Path(one) for one in given if isinstance(one, str)] if isinstance(given, list) else []


def site_of(document: Document, workloads: list[str]) -> Site:
    """Turn a read document into a Site, or raise DescriptorError."""
    site = validate(document, Site)
    if "log_dir" not in document.data:
        document.add(("log_dir",), "this key is required: the folder on shared storage where sets live")
    for section in ("data", "code"):
        given = document.data.get(section)
        for name in given if workloads and isinstance(given, dict) else ():
            if name not in workloads:
                near = nearest(name, workloads)
                meant = f'; did you mean "{near}"?' if near else ""
                document.add((section, name), f"there is no workload {name}{meant}; there are: {', '.join(workloads)}")
    document.check()
    if site is None:
        raise AssertionError("a site without problems was not built")
    return site


def check_data_variables(document: Document, site: Site, workload: Workload) -> None:
    """Note every folder of `data` that no mount of `workload` uses, in any round."""
    known = {mount.variable for mount in workload.mounts}
    for one in workload.rounds.values():
        known |= {mount.variable for mount in one.mounts or []}
    for variable in site.data.get(workload.name, {}):
        if variable not in known:
            near = nearest(variable, sorted(known))
            meant = f'; did you mean "{near}"?' if near else ""
            document.add(
                ("data", workload.name, variable),
                f"{workload.name} mounts no folder {variable}{meant}; accepted: {', '.join(sorted(known)) or 'none'}",
            )
