"""Preflight of many nodes on a one-machine Slurm: wall time beyond the slowest check.

    python benchmarks/bench_preflight.py [--nodes 64] [--rounds 3] [--json]     (root on Debian; starts a lab of its own)

Three ways, in turns, of the published MI325X_08x08x32 with flux1 and a real Docker engine: `bash preflight.sh` and `orchestrator
preflight` inside an allocation, and `orchestrator doctor --all-nodes` outside, which also makes the allocation. All nodes are this machine:
its processors do the work of all of them, so a real cluster is faster. Every round checks that all nodes were tested and fit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
SYSTEM, WORKLOAD = "MI325X_08x08x32", "flux1"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    state = Path(f"{os.environ.get('ORCHESTRATOR_LAB', '/var/tmp/orchestrator-lab')}-preflight")
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM", "DOCKER", "LAB_"))
    }
    env |= {"ORCHESTRATOR_LAB": str(state), "LAB_NODES": str(args.nodes), "LAB_PREFIX": "pf"}
    subprocess.run(
        [TOP / "lab/up"], env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        env |= {
            "SLURM_CONF": str(state / "slurm/slurm.conf"),
            "DOCKER_HOST": f"unix://{state}/docker.sock",
            "PYTHONPATH": str(TOP),
        }
        rows = measure(state / "shared", env, args.nodes, args.rounds)
    finally:
        subprocess.run(
            [TOP / "lab/down"],
            env=env,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
    if args.json:
        print(json.dumps({"nodes": args.nodes, "ways": rows}, indent=1))
        return 0
    print(f"{args.nodes} nodes, {os.cpu_count()} processors, median of {args.rounds}")
    print(f"{'':36}{'wall s':>8}{'slowest check s':>17}{'beyond it s':>13}")
    for name, row in rows.items():
        print(
            f"{name:36}{row['wall_s']:8.2f}{row['slowest_s']:17.2f}{row['beyond_s']:13.2f}   {row['check']}"
        )
    return 0


def measure(
    shared: Path, env: dict[str, str], nodes: int, rounds: int
) -> dict[str, dict[str, float | str]]:
    folder = Path(tempfile.mkdtemp(prefix="preflight-", dir=shared))
    log_dir, bundle, table = folder / "results", folder / "bundle", folder / "rows.tsv"
    log_dir.mkdir()
    site = subprocess.run(
        [TOP / "lab/site"], env=env, check=True, capture_output=True, text=True
    ).stdout
    lines = [
        f"log_dir: {log_dir}" if line.startswith("log_dir:") else line for line in site.splitlines()
    ]
    (folder / "site.yaml").write_text("\n".join([*lines, ""]))
    orchestrator = [sys.executable, "-m", "orchestrator"]
    asked = [SYSTEM, WORKLOAD, "--site", str(folder / "site.yaml")]
    subprocess.run(
        [*orchestrator, "render", *asked, "-o", str(bundle)],
        env=env,
        check=True,
        capture_output=True,
    )
    ways = {
        "bash preflight.sh, in an allocation": (
            True,
            ["bash", str(bundle / "preflight.sh"), "--tsv", str(table), "--json"],
        ),
        "orchestrator doctor --all-nodes, inside": (
            True,
            [*orchestrator, "preflight", *asked, "--json"],
        ),
        "orchestrator doctor --all-nodes, outside": (
            False,
            [*orchestrator, "preflight", *asked, "--json"],
        ),
    }
    measured: dict[str, list[tuple[float, float, str]]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (inside, argv) in ways.items():
            measured[name].append(once(argv, inside, nodes, env, folder))
    rows: dict[str, dict[str, float | str]] = {}
    for name, times in measured.items():
        wall, slowest, check = sorted(times, key=lambda pair: pair[0] - pair[1])[len(times) // 2]
        rows[name] = {
            "wall_s": wall,
            "slowest_s": slowest,
            "check": check,
            "beyond_s": statistics.median(pair[0] - pair[1] for pair in times),
        }
    return rows


def once(
    argv: list[str], inside: bool, nodes: int, env: dict[str, str], folder: Path
) -> tuple[float, float, str]:
    """(wall seconds, seconds of the slowest check, its name). The time to get an allocation counts only where it is ours."""
    if inside:
        timed = [
            "bash",
            "-c",
            'start=$EPOCHREALTIME; "$@" >"$OUT"; echo "$start $EPOCHREALTIME" >"$OUT.times"',
            "timed",
            *argv,
        ]
        argv = ["salloc", "--quiet", f"--nodes={nodes}", *timed]
    out = folder / "out.json"
    start = time.perf_counter()
    done = subprocess.run(
        argv,
        env=env | {"OUT": str(out)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    wall = time.perf_counter() - start
    if inside:
        begin, end = map(float, Path(f"{out}.times").read_text().split())
        wall = end - begin
    document = json.loads(out.read_text() if inside else done.stdout)
    assert (document["given"], document["tested"]) == (nodes, nodes), done.stderr
    assert document["verdict"] in ("pass", "warn"), document
    slowest, check = max(
        (row["ms"] / 1000, row["check"]) for node in document["nodes"] for row in node["checks"]
    )
    return wall, slowest, check


if __name__ == "__main__":
    sys.exit(main())
