"""Launcher cost: time from one run's run_stop to the next one's run_start, against a bare `srun ... true` step of as many nodes.

Both in one job on a one-machine cluster of that size, engine `none`, a run that does nothing; so the ratio holds whatever the
machine's mood. Each size gets a cluster of its own beside the one of `make lab`, and takes it away again.

usage (as root on Debian):  python benchmarks/bench_gap.py [--nodes 8 64 128] [--nexp 10] [--caches] [--json FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.model import load_entry, load_site
from orchestrator.render import render_bundle, write_bundle

TOP = Path(__file__).resolve().parent.parent

RUN = r"""
[ "$SLURM_NODEID" = 0 ] || exit 0
for key in run_start run_stop; do
  now=${EPOCHREALTIME/[.,]/}
  printf ':::MLLOG {"namespace": "", "time_ms": %s, "event_type": "INTERVAL_START", "key": "%s", "value": null, ' "${now:0:13}" $key
  printf '"metadata": {"status": "success"}}\n'
done
"""

SYSTEM = """kind: system
name: gap_{nodes}
accelerator: cpu
nodes: {nodes}
gpus_per_node: 1
workloads:
  builtin: {{"1.0": {{micro_batch: 8, global_batch: {batch}}}}}
"""

SITE = """kind: site
name: gap
scheduler: slurm
partition: batch
log_dir: {root}/sets
container: {{engine: none}}
code: {{builtin: {root}/code}}
tunables: "{tunables}"
clear_caches: {caches}
sbatch: ["--exclusive"]
"""

JOB = r"""#!/usr/bin/env bash
bare() {{
  for k in 1 2 3 4 5; do
    begin=${{EPOCHREALTIME/./}}
    srun --overlap -N {nodes} -n {nodes} true
    echo "bare $((${{EPOCHREALTIME/./}} - begin))"
  done
}}
bare
NEXP={nexp} bash {root}/bundle/run_with_docker_slurm.sh
echo "ended $?"
bare
"""


def command(*argv: str | Path, env: dict[str, str], limit_s: float = 900) -> str:
    done = subprocess.run(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode:
        sys.exit(
            f"{' '.join(map(str, argv))} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def measure(nodes: int, nexp: int, caches: bool) -> dict[str, float]:
    """Milliseconds: median bare step, median gap."""
    state = Path(f"/var/tmp/orch-gap-{nodes}")
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "LAB_"))
    }
    env |= {
        "ORCHESTRATOR_LAB": str(state),
        "LAB_NODES": str(nodes),
        "LAB_PREFIX": "gap",
        "LAB_IMAGE": "no",
        "PYTHONPATH": str(TOP),
    }
    command(TOP / "lab/up", env=env)
    try:
        env["SLURM_CONF"] = str(state / "slurm/slurm.conf")
        root = Path(tempfile.mkdtemp(dir=state / "shared"))
        (root / "systems").mkdir()
        (root / "code").mkdir()
        (root / "sets").mkdir()
        (root / "code/run_and_time.sh").write_text(RUN)
        (root / f"systems/gap_{nodes}.yaml").write_text(SYSTEM.format(nodes=nodes, batch=8 * nodes))
        values = {"tunables": "apply" if caches else "off", "caches": "true" if caches else "false"}
        (root / "site.yaml").write_text(SITE.format(root=root, **values))
        entry = load_entry(
            f"gap_{nodes}",
            "builtin",
            site=load_site(root / "site.yaml"),
            systems_dirs=[root / "systems"],
        )
        write_bundle(render_bundle(entry, nexp=nexp), root / "bundle")
        (root / "job.sh").write_text(JOB.format(nodes=nodes, nexp=nexp, root=root))
        command(
            "sbatch",
            "--wait",
            f"-N{nodes}",
            "--exclusive",
            f"--output={root}/out",
            root / "job.sh",
            env=env,
        )
        text = (root / "out").read_text()
        bare = [int(value) / 1000 for value in re.findall(r"^bare (\d+)$", text, re.M)]
        spans = sorted(span(log) for log in root.glob("sets/*/results/result_*.txt"))
        if len(spans) != nexp:
            sys.exit(f"{len(spans)} of {nexp} runs:\n{text}")
        gaps = [later[0] - earlier[1] for earlier, later in itertools.pairwise(spans)]
        return {
            "nodes": nodes,
            "bare_ms": statistics.median(bare),
            "gap_ms": statistics.median(gaps),
        }
    finally:
        command(TOP / "lab/down", env=env)


def span(log: Path) -> tuple[int, int]:
    text = log.read_text()
    start, stop = (
        int(re.search(rf'"time_ms": (\d+)[^\n]*"{key}"', text)[1])
        for key in ("run_start", "run_stop")
    )  # type: ignore[index]
    return start, stop


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 64, 128])
    parser.add_argument("--nexp", type=int, default=10)
    parser.add_argument(
        "--caches", action="store_true", help="with settings of the host and dropped caches"
    )
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    print(f"{time.strftime('%F')} {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    print(f"{'nodes':>5}{'srun true ms':>14}{'run_stop..run_start ms':>24}{'ratio':>7}", flush=True)
    for nodes in args.nodes:
        row = measure(nodes, args.nexp, args.caches)
        rows.append(row)
        print(
            f"{nodes:5}{row['bare_ms']:14.0f}{row['gap_ms']:24.0f}{row['gap_ms'] / row['bare_ms']:7.2f}",
            flush=True,
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
