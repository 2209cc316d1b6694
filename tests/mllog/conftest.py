"""The published sets, unpacked once per test session."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

DATA = Path(__file__).resolve().parent.parent / "data" / "mllog"
INDEX: dict[str, Any] = yaml.safe_load((DATA / "index.yaml").read_text(encoding="utf-8"))


def unpack(name: str, target: Path) -> Path:
    target.mkdir(parents=True)
    for path in sorted((DATA / name).glob("*.gz")):
        (target / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))
    return target


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Path in the index -> folder with its ten uncompressed files."""
    base = tmp_path_factory.mktemp("published")
    return {entry["path"]: unpack(entry["path"], base / entry["path"]) for entry in INDEX["sets"]}


@pytest.fixture
def write_logs(tmp_path: Path) -> Any:
    """write_logs({name: bytes}) -> folder"""

    def write(files: dict[str, bytes], folder: str = "set") -> Path:
        target = tmp_path / folder
        target.mkdir(exist_ok=True)
        for name in os.listdir(target):
            (target / name).unlink()
        for name, data in files.items():
            (target / name).write_bytes(data)
        return target

    return write
