"""What the zipapp is made of: every file by its hash, above versions with known advisories, with its licence."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

TOP = Path(__file__).resolve().parents[1]
LOCK = (TOP / "requirements-zipapp.txt").read_text()
ENTRY = re.compile(r"(?m)^([\w.-]+)==([^\s;\\]+)(.*(?:\n {4}--hash=sha256:[0-9a-f]{64}.*)*)")
FLOORS = {
    "jinja2": "3.1.6",  # CVE-2025-27516
    "paramiko": "3.4.0",  # CVE-2023-48795
    "cryptography": "44.0.1",  # CVE-2024-12797
    "requests": "2.32.4",  # CVE-2024-47081
    "urllib3": "2.6.3",  # CVE-2026-21441
    "certifi": "2024.7.4",  # CVE-2024-39689
    "idna": "3.7",  # CVE-2024-3651
    "pygments": "2.15.1",  # CVE-2022-40896
}


def declared() -> dict[str, Requirement]:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    return {
        requirement.name: requirement for requirement in map(Requirement, project["dependencies"])
    }


def zipapp() -> ModuleType:
    spec = spec_from_file_location("zipapp_of_ours", TOP / "tools/zipapp.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_file_has_its_hash() -> None:
    entries = ENTRY.findall(LOCK)
    assert len(entries) == len(re.findall(r"(?m)^[\w.-]+==", LOCK)) > 20
    assert [name for name, _, rest in entries if "--hash=sha256:" not in rest] == []


def test_what_is_declared_is_locked() -> None:
    locked: dict[str, list[str]] = {}
    for name, version, _ in ENTRY.findall(LOCK):
        locked.setdefault(name, []).append(version)
    for name, wanted in declared().items():
        versions = locked.get(name, [])
        assert versions, name
        assert all(
            wanted.specifier.contains(locked_version, prereleases=True)
            for locked_version in versions
        ), name


def test_no_version_with_a_known_advisory_is_allowed() -> None:
    wanted = declared()
    for name, floor in FLOORS.items():
        lowest = min(
            Version(limit.version) for limit in wanted[name].specifier if limit.operator == ">="
        )
        assert lowest >= Version(floor), name


def test_only_the_lock_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []
    module = zipapp()
    monkeypatch.setattr(module.subprocess, "run", lambda argv, **_: calls.append(argv))
    module.install(tmp_path)
    locked, project = calls
    assert "--require-hashes" in locked and str(TOP / "requirements-zipapp.txt") in locked
    assert all("--no-deps" in argv and argv[0] == sys.executable for argv in calls)
    assert project[-1] == str(TOP)


def test_a_package_without_its_licence_is_named(tmp_path: Path) -> None:
    for name, file in (("a-1", "METADATA"), ("b-1", "licenses/LICENSE"), ("c-1", "COPYING.txt")):
        path = tmp_path / f"{name}.dist-info" / file
        path.parent.mkdir(parents=True)
        path.write_text("")
    assert zipapp().without_licence(tmp_path) == ["a-1.dist-info"]
