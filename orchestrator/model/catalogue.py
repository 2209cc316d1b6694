"""Existing systems and workloads, by name or path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.errors import DescriptorError, UsageError, did_you_mean
from orchestrator.model.checks import check_system, check_workload
from orchestrator.model.documents import System, Workload
from orchestrator.model.extension import EXTENDS, chain_text, overlaid, with_rounds
from orchestrator.model.part import KINDS
from orchestrator.model.problems import checked, validate
from orchestrator.model.shared_documents import SHARED
from orchestrator.model.source import Document, Problem, read
from orchestrator.resources import data_dir

_OTHER_KINDS = tuple(kind for kind in KINDS if kind != "system")
_FIELD = {"accelerators": "accelerator", "hosts": "host", "fabrics": "fabric"}


class Catalogue:
    """Documents of `dirs`, earlier folders first, then of the package: systems as `*.yaml`,
    `workloads/*.yaml`, `shared/accelerators.yaml` and so on."""

    def __init__(self, dirs: Sequence[Path | str] = ()) -> None:
        self.dirs = [Path(folder) for folder in dirs]
        for folder in self.dirs:
            if not folder.is_dir():
                raise UsageError(
                    f"there is no folder {folder}",
                    hint=(
                        "--systems-dir, and systems_dirs in the site file, name folders with "
                        "system descriptors"
                    ),
                )
        self._beside: list[Path] = []
        self._systems: dict[Path, tuple[Document, System]] = {}
        self._workloads: dict[Path, tuple[Document, Workload]] = {}

    @cached_property
    def _system_files(self) -> dict[str, Path]:
        files = _files(self.dirs)
        others = {path for path in files.values() if _kind(path) in _OTHER_KINDS}
        systems = {name: path for name, path in files.items() if path not in others}
        return {**_files([data_dir("systems")]), **systems}

    def not_systems(self) -> dict[Path, str]:
        """Return documents of other kinds in `dirs`: path -> kind."""
        kinds = {path: _kind(path) for path in _files(self.dirs).values()}
        return {path: kind for path, kind in kinds.items() if kind in _OTHER_KINDS}

    @cached_property
    def _workload_files(self) -> dict[str, Path]:
        return _files(self._workload_folders)

    @property
    def _workload_folders(self) -> list[Path]:
        folders = [*(folder / "workloads" for folder in self.dirs), *self._beside]
        return [*folders, data_dir("workloads")]

    def system_names(self) -> list[str]:
        return sorted(self._system_files)

    def workload_names(self) -> list[str]:
        return sorted(self._workload_files)

    def systems(self) -> list[System]:
        """Raises DescriptorError for a wrong document."""
        return [self.system(name)[1] for name in self.system_names()]

    def workloads(self) -> list[Workload]:
        """Raises DescriptorError for a wrong document."""
        return [self.workload(name)[1] for name in self.workload_names()]

    def system(self, name: str) -> tuple[Document, System]:
        """Return the system by name, unique start of a name, or file.

        Workloads next to a file, which may refer to them, are known from then on, before the
        package's. Raises UsageError for an unknown name, DescriptorError for a wrong document.
        """
        path = _find(name, self._system_files, "system", "orchestrator systems lists the catalogue")
        if (
            path not in self._system_files.values()
            and (beside := path.parent / "workloads") not in self._beside
        ):
            self._beside.append(beside)
            self.__dict__.pop("_workload_files", None)
        if path not in self._systems:
            document = read(path)
            system = validate(document, System)
            if system is not None:
                check_system(document, system)
                self._check_names(document, system)
            _check_file_name(document, path)
            self._systems[path] = (document, checked(document, system))
        return self._systems[path]

    def workload(self, name: str) -> tuple[Document, Workload]:
        """Return the workload by name or file. Raises as `system` does."""
        path = _find(
            name, self._workload_files, "workload", f"there are: {', '.join(self.workload_names())}"
        )
        return self._workload(path, [])

    def _workload(self, path: Path, chain: list[Document]) -> tuple[Document, Workload]:
        """`chain`: the documents that extend `path`."""
        if path not in self._workloads:
            document = with_rounds(self._extended(read(path), chain))
            document.check()
            workload = validate(document, Workload)
            if workload is not None:
                check_workload(document, workload)
            _check_file_name(document, path)
            self._workloads[path] = (document, checked(document, workload))
        return self._workloads[path]

    def _extended(self, document: Document, chain: list[Document]) -> Document:
        given = document.data.get(EXTENDS)
        if not isinstance(given, str):
            return document
        path = self._to_extend(document, given)
        paths = [other.path.resolve() for other in (*chain, document)]
        if path.resolve() in paths:
            circle = [*chain, document][paths.index(path.resolve()) :]
            document.add((EXTENDS,), f"a circle: {chain_text([*circle, circle[0]])}")
            document.check()
        try:
            base = self._workload(path, [*chain, document])[0]
        except DescriptorError as error:
            if not chain:
                document.add((EXTENDS,), f"{given} cannot be extended, see its own problems")
            document.problems.extend(p for p in error.problems if isinstance(p, Problem))
            document.check()
            raise
        return overlaid(base, document)

    def _to_extend(self, document: Document, given: str) -> Path:
        """Return a path next to `document`, or of the next workload called `given`."""
        if "/" in given or given.endswith((".yaml", ".yml")):
            return document.path.parent / given
        mine = document.path.resolve()
        there = [
            path
            for folder in self._workload_folders
            if (path := folder / f"{given}.yaml").is_file()
        ]
        behind = [path.resolve() for path in there]
        if mine in behind:
            # A folder may be named twice: relative, and next to a system's file.
            after = behind.index(mine) + 1
            there = [path for path in there[after:] if path.resolve() != mine]
        if there:
            return there[0]
        names = [name for name in self.workload_names() if name != document.path.stem]
        document.add(
            (EXTENDS,),
            f"there is no {'other ' if mine in behind else ''}workload {given}"
            f"{did_you_mean(given, names)}; there are: {', '.join(names)}",
        )
        document.check()
        raise AssertionError("a problem was reported")

    def shared(
        self, kind: str
    ) -> tuple[dict[str, Any], dict[str, tuple[Document, tuple[str, str]]]]:
        """Return facts of `kind`, such as "hosts", and their places."""
        facts, homes = self._shared_cache.get(kind, (None, None))
        if facts is None or homes is None:
            facts, homes = {}, {}
            for folder in [data_dir("systems"), *reversed(self.dirs)]:
                path = folder / "shared" / f"{kind}.yaml"
                if path.is_file():
                    document = read(path)
                    model = checked(document, validate(document, SHARED[kind]))
                    for name, fact in getattr(model, kind).items():
                        facts[name] = fact
                        homes[name] = (document, (kind, name))
            self._shared_cache[kind] = (facts, homes)
        return facts, homes

    @cached_property
    def _shared_cache(self) -> dict[str, Any]:
        return {}

    def fact(self, kind: str, given: Any) -> Any:
        """Return a named fact, or the inline fact of a checked system."""
        return self.shared(kind)[0][given] if isinstance(given, str) else given

    def _check_names(self, document: Document, system: System) -> None:
        for kind, field in _FIELD.items():
            given = getattr(system, field)
            if isinstance(given, str) and given not in (facts := self.shared(kind)[0]):
                meant = did_you_mean(given, facts)
                document.add(
                    (field,),
                    f"there is no {field} {given}{meant}; there are: {', '.join(sorted(facts))}",
                )
        for workload, rounds in system.workloads.items():
            self._check_workload(document, workload, rounds)

    def _check_workload(self, document: Document, name: str, rounds: dict[str, Any]) -> None:
        names = self.workload_names()
        if name not in names:
            document.add(
                ("workloads", name),
                f"there is no workload {name}{did_you_mean(name, names)}; there are: "
                f"{', '.join(names)}",
            )
            return
        known = list(self.workload(name)[1].rounds)
        for round_name, part in rounds.items():
            for key, wanted in (((round_name,), round_name), ((round_name, "stack"), part.stack)):
                if wanted is not None and wanted not in known:
                    document.add(
                        ("workloads", name, *key),
                        f"{name} has no round {wanted}; it has: {', '.join(sorted(known))}",
                    )


def _kind(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            match = re.search(r"(?m)^kind:[ \t]*[\"']?(\w+)", file.read(1 << 20))
    except OSError:
        return ""
    return match[1] if match else ""


def _files(folders: list[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            files.setdefault(path.stem, path)
    return files


def _find(name: str, files: dict[str, Path], kind: str, hint: str) -> Path:
    if name in files:
        return files[name]
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name)
    begun = (
        sorted(candidate for candidate in files if name and candidate.startswith(name))
        if kind == "system"
        else []
    )
    if len(begun) == 1:
        return files[begun[0]]
    if begun:
        shown = "".join(f"\n    {candidate}" for candidate in begun[:8]) + (
            "\n    ..." if len(begun) > 8 else ""
        )
        raise UsageError(f"`{name}` matches {len(begun)} systems:{shown}", hint="be more specific")
    raise UsageError(f"there is no {kind} {name!r}{did_you_mean(name, list(files))}", hint=hint)


def _check_file_name(document: Document, path: Path) -> None:
    name = document.data.get("name")
    if isinstance(name, str) and name != path.stem:
        document.add(
            ("name",),
            f"{name!r}, but the file is called {path.name}; a descriptor is found by its file "
            "name, so both must agree",
        )
