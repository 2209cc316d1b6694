"""Launch overhead on the one-machine cluster: how much of a ten-run set's wall time is not the runs themselves.

A run lasts from run_start to run_stop. Two comparisons, each in one go so that the machine's mood hits both sides:

  one node    run_with_docker.sh of our bundle against the published flow (benchmarks/published_flow.sh)
  8 nodes     `orchestrator run` from the command line to its exit

usage (as root, with the cluster of lab/ up):  python benchmarks/bench_launch.py [--repeat 3] [--nexp 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
STATE = Path(os.environ.get("ORCHESTRATOR_LAB", "/var/tmp/orchestrator-lab"))
IMAGE = "rocm/amd-mlperf:llama31_8b_training_6.0"
ENV = os.environ | {
    "PYTHONPATH": str(TOP),
    "SLURM_CONF": str(STATE / "slurm/slurm.conf"),
    "DOCKER_HOST": f"unix://{STATE / 'docker.sock'}",
}


def spans(logs: list[Path]) -> list[tuple[int, int]]:
    """(run_start, run_stop) of each log, in order, in milliseconds."""
    times = []
    for log in logs:
        text = log.read_text()
        times.append(
            tuple(
                int(re.search(rf'"time_ms": (\d+)[^\n]*"{key}"', text)[1])
                for key in ("run_start", "run_stop")
            )
        )
    return sorted(times)


def figures(wall_s: float, logs: list[Path]) -> dict[str, float]:
    times = spans(logs)
    runs_s = sum(stop - start for start, stop in times) / 1000
    gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(times)]
    return {
        "runs": len(times),
        "wall_s": wall_s,
        "runs_s": runs_s,
        "overhead_s": wall_s - runs_s,
        "gap_ms": statistics.median(gaps) if gaps else 0.0,
    }


def timed(argv: list[str | Path], cwd: Path, env: dict[str, str]) -> float:
    start = time.monotonic()
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.monotonic() - start
    if done.returncode not in (0, 1):
        sys.exit(f"{argv} ended with {done.returncode}:\n{done.stderr}")
    return wall


def render(site: Path, system: str, workload: str, nexp: int, bundle: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "orchestrator",
            "render",
            system,
            workload,
            "--site",
            site,
            "--nexp",
            str(nexp),
            "-o",
            bundle,
        ],
        env=ENV,
        check=True,
        capture_output=True,
    )


def ours_one_node(root: Path, site: Path, nexp: int) -> dict[str, float]:
    bundle, results = root / "one/bundle", root / "one/results"
    render(site, "MI355X_1x8x1", "llama31_8b", nexp, bundle)
    wall = timed(["bash", "run_with_docker.sh"], bundle, ENV | {"LOGDIR": str(results)})
    return figures(wall, list(results.glob("*/results/result_*.txt")))


def published_one_node(root: Path, nexp: int) -> dict[str, float]:
    (environment,) = (root / "one/results").glob("*/environment.sh")
    pairs = (
        subprocess.run(
            ["env", "-i", "bash", "-c", '. "$1"; env -0', "_", environment],
            capture_output=True,
            text=True,
            check=True,
        )
        .stdout.rstrip("\0")
        .split("\0")
    )
    logs = root / "published"
    wall = timed(
        ["bash", TOP / "benchmarks/published_flow.sh", IMAGE, logs, str(nexp), *pairs], root, ENV
    )
    return figures(wall, list(logs.glob("result_*.txt")))


def eight_nodes(root: Path, site: Path, nexp: int) -> dict[str, float]:
    wall = timed(
        [
            sys.executable,
            "-m",
            "orchestrator",
            "run",
            "MI325X_08x08x32",
            "flux1",
            "--site",
            site,
            "--nexp",
            str(nexp),
        ],
        root,
        ENV,
    )
    return figures(wall, list(root.glob("results/*/results/result_*.txt")))


def measure(nexp: int) -> dict[str, dict[str, float]]:
    root = Path(tempfile.mkdtemp(prefix="bench-launch-", dir=STATE / "shared"))
    try:
        site = root / "site.yaml"
        text = subprocess.run(
            [TOP / "lab/site"], env=ENV, check=True, capture_output=True, text=True
        ).stdout
        site.write_text(re.sub(r"(?m)^log_dir: .*$", f"log_dir: {root / 'results'}", text))
        (root / "results").mkdir()
        return {
            "one node, ours": ours_one_node(root, site, nexp),
            "one node, published flow": published_one_node(root, nexp),
            "8 nodes, orchestrator run": eight_nodes(root, site, nexp),
        }
    finally:
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--nexp", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rounds = [measure(args.nexp) for _ in range(args.repeat)]
    table = {
        name: {
            key: statistics.median(round_[name][key] for round_ in rounds)
            for key in rounds[0][name]
        }
        for name in rounds[0]
    }
    print(
        f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; medians of {args.repeat}"
    )
    print(f"{'':28}{'wall s':>8}{'runs s':>8}{'overhead s':>12}{'gap ms':>8}")
    for name, row in table.items():
        print(
            f"{name:28}{row['wall_s']:8.2f}{row['runs_s']:8.2f}{row['overhead_s']:12.2f}{row['gap_ms']:8.0f}"
        )
    ratio = statistics.median(
        round_["one node, ours"]["overhead_s"] / round_["one node, published flow"]["overhead_s"]
        for round_ in rounds
    )
    print(f"overhead, ours / published flow on one node: {ratio:.2f}")
    if args.json:
        args.json.write_text(
            json.dumps({"table": table, "rounds": rounds, "one_node_ratio": ratio}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
