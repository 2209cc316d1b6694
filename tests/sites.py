"""Sites and systems that tests need: this machine alone, without engine and host settings, unless a test asks for more."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

CODE = Path(__file__).resolve().parents[1] / "workloads/builtin"


def local_site(log_dir: Path | str, **keys: Any) -> dict[str, Any]:
    """Return the document of a site; `keys` replace and add."""
    usual = {
        "scheduler": "local",
        "container": {"engine": "none"},
        "tunables": "off",
        "clear_caches": False,
    }
    return {"kind": "site", "log_dir": str(log_dir), **usual, **keys}


def write_site(path: Path, log_dir: Path, **keys: Any) -> Path:
    """Write a site file, make its folders, and return its path."""
    log_dir.mkdir(parents=True, exist_ok=True)
    return _write(path, local_site(log_dir, **keys))


def write_code(folder: Path, before: str) -> Path:
    """Copy the built-in workload, which runs the shell script `before` before it trains."""
    shutil.copytree(CODE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    script = folder / "run_and_time.sh"
    script.write_text(script.read_text().replace("\nexec ", f"\n{before}\nexec ", 1))
    return folder


def write_system(
    folder: Path, name: str = "one_node", *, nodes: int = 1, env: Any = None, **keys: Any
) -> Path:
    """Write a system that runs the built-in workload, with one GPU per node unless `keys` say more."""
    document = {
        "kind": "system",
        "name": name,
        "accelerator": "cpu",
        "nodes": nodes,
        "gpus_per_node": 1,
        **keys,
    }
    batch = {
        "micro_batch": 8,
        "global_batch": 8 * nodes * document["gpus_per_node"],
        "env": env or {},
    }
    return _write(folder / f"{name}.yaml", {**document, "workloads": {"builtin": {"1.0": batch}}})


def _write(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000))
    return path
