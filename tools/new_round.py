"""A round that does not exist, brought in with three commands, timed.

    python tools/new_round.py [--json]

Writes the config that an image of llama31_8b 7.0 might have (that of MI355X in round 6.0, with
values changed, added and removed), imports it, validates the documents and renders a bundle. Then
compares the bundle's environment with the config, and counts lines copied from shipped documents.
Exit code 1 if a command fails, the environments differ, a line was copied, or it takes five
minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from orchestrator.model import Site, load_entry

ROOT = Path(__file__).resolve().parent.parent
CHANGED = {"PRIMUS_LR": "9e-4", "PRIMUS_MIN_LR": "9e-5", "GPU_MAX_HW_QUEUES": "4"}
ADDED = {"NVTE_USE_MXFP6": "1", "AITER_CONFIG_GEMM_A6W6": "/workspace/code/a6w6 tuned.csv"}
REMOVED = ("NVTE_MXFP4_USE_HADAMARD", "NCCL_BUFFSIZE")
OF_THE_RUN = {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES"}
MOST_SECONDS = 300


def invented() -> dict[str, str]:
    """Return the environment of the invented round."""
    entry = load_entry("MI355X_1x8x1", "llama31_8b", round="6.0", site=Site())
    env = {name: str(value) for name, value in entry.env.items() if name not in REMOVED}
    return {**env, **CHANGED, **ADDED}


def write_config(folder: Path, env: dict[str, str]) -> Path:
    """Write it as an image has it: a file of common values, and the system's own."""
    names = list(env)
    common = [f"export {name}={shlex.quote(env[name])}" for name in names[len(names) // 2 :]]
    (folder / "config_common.sh").write_text("\n".join(common) + "\n")
    lines = ["#!/bin/bash", "source $(dirname ${BASH_SOURCE[0]})/config_common.sh"]
    lines += [f"export {name}={shlex.quote(env[name])}" for name in names[: len(names) // 2]]
    lines += ["export PRIMUS_EVAL_INTERVAL=$((EVAL_SAMPLES_INTERVAL / PRIMUS_GLOBAL_BATCH_SIZE))"]
    lines += ['export MLLOG_CONFIG_FILENAME=$(basename "${BASH_SOURCE[0]}")']
    path = folder / "config_MI355X_1x8x1.sh"
    path.write_text("\n".join(lines) + "\n")
    return path


def play(folder: Path) -> dict[str, Any]:
    """Run the three commands in `folder` and return what they gave."""
    env = invented()
    config = write_config(folder, env)
    site = folder / "own.yaml"
    site.write_text(
        f"kind: site\nlog_dir: {folder}\nsystems_dirs: [{folder}/mine]\n"
        "data: {llama31_8b: {DATADIR: /data, MODEL: /model}}\n"
    )
    commands = [
        f"systems import {config} --round 7.0 --as MI355X_1x8x2_next -o mine".split(),
        ["systems", "validate", "mine"],
        ["render", "MI355X_1x8x2_next", "llama31_8b", "--site", str(site), "-o", "bundle"],
    ]  # fmt: skip
    start = time.monotonic()
    failed = []
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            failed.append(f"orchestrator {shlex.join(command)}: {done.stderr.strip()}")
    seconds = time.monotonic() - start
    documents = sorted((folder / "mine").rglob("*.yaml"))
    return {
        "commands": [shlex.join(["orchestrator", *command]) for command in commands],
        "failed": failed,
        "seconds": round(seconds, 1),
        "lines": {
            str(path.relative_to(folder)): len(path.read_text().splitlines()) for path in documents
        },
        "copied": copied(documents),
        "differing": differing(folder, env) if not failed else [],
    }


def copied(documents: list[Path]) -> list[str]:
    """Return the variables of `documents` that stand with the same value in the shipped ones."""
    shipped = {
        line.strip()
        for path in (ROOT / "workloads").glob("*.yaml")
        for line in path.read_text().splitlines()
        if '": ' not in line and ': "' in line and not line.startswith((" " * 3 + "s", "kind"))
    }
    return [
        f"{path.name}: {line.strip()}"
        for path in documents
        for line in path.read_text().splitlines()
        if line.strip() in shipped and line.startswith(" " * 6)
    ]


def differing(folder: Path, env: dict[str, str]) -> list[str]:
    """Return the variables that the bundle's config does not export as the invented one."""
    bundle = next((folder / "bundle").rglob("config_*.sh"))
    program = f'set -a; NEXP=1; . "{bundle}" >/dev/null; env -0'
    output = subprocess.run(
        ["bash", "-c", program], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True
    ).stdout
    theirs = dict(item.split("=", 1) for item in output.split("\0") if "=" in item)
    wanted = {name: value for name, value in env.items() if name not in OF_THE_RUN}
    return [name for name in wanted if theirs.get(name) != wanted[name]] + [
        name for name in REMOVED if name in theirs
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        result = play(Path(place))
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print("\n".join(f"$ {command}" for command in result["commands"]))
        for name, lines in result["lines"].items():
            print(f"{name}: {lines} lines")
        print(
            f"lines copied: {len(result['copied'])}; variables that differ: {result['differing']}"
        )
        print(f"{result['seconds']} s")
        for failure in result["failed"]:
            print(failure, file=sys.stderr)
    bad = result["failed"] or result["copied"] or result["differing"]
    return 1 if bad or result["seconds"] >= MOST_SECONDS else 0


if __name__ == "__main__":
    sys.exit(main())
