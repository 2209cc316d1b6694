"""The list of systems comes from generated/systems.json while it matches the documents."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from until import LIMIT_S

from orchestrator.model import Catalogue, listing

TOP = Path(__file__).resolve().parents[2]


def systems(
    top: Path, *arguments: str, python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(top), "HOME": str(top)}
    argv = [sys.executable, *python, "-m", "orchestrator", "systems", *arguments]
    return subprocess.run(argv, env=env, cwd=top, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("checkout")
    for name in ("orchestrator", "systems", "workloads"):
        shutil.copytree(TOP / name, top / name, ignore=shutil.ignore_patterns("__pycache__"))
    return top


def test_the_index_says_what_the_documents_say() -> None:
    assert listing.shipped() == [listing.line(system) for system in Catalogue().systems()]


def test_the_list_needs_no_package(checkout: Path) -> None:
    done = systems(
        checkout, "--json", python=("-S",)
    )  # without site-packages: neither pydantic nor yaml
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["systems"] == listing.shipped()
    assert systems(checkout, "show", "MI300X_01x08x32", python=("-S",)).returncode != 0


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("systems/MI300X_01x08x32.yaml", "nodes: 1", "nodes: 01x"),
        ("systems/shared/fabrics.yaml", "kind: fabrics", "kind: fabric"),
        ("workloads/flux1.yaml", "kind: workload", "kind: workloads"),
    ],
)
def test_a_document_that_was_changed_is_read(checkout: Path, file: str, old: str, new: str) -> None:
    path, before = checkout / file, (checkout / file).read_text()
    assert old in before
    path.write_text(before.replace(old, new, 1))
    try:
        done = systems(checkout)
    finally:
        path.write_text(before)
    assert done.returncode == 2
    assert file in done.stderr


def test_an_index_that_is_no_index_is_not_used(checkout: Path) -> None:
    path = checkout / "orchestrator/generated" / listing.INDEX
    before = path.read_text()
    for damaged in ("", "[]", before[: len(before) // 2], before.replace('"systems"', '"system"')):
        path.write_text(damaged)
        done = systems(checkout, "--json")
        assert json.loads(done.stdout)["systems"] == json.loads(before)["systems"], done.stderr
    path.write_text(before)
