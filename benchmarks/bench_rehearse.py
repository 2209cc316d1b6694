"""How long rehearsals take: 10 runs on 8, 64 and 1,000 nodes with a dead node, and many trials with nodes that fail at random.

    python benchmarks/bench_rehearse.py [--nodes 8,64,1000] [--trials 100]

Aims: 2 s on 64 nodes, 60 s on 1,000. The entry is that of MI325X_08x08x32 flux1 with another number of nodes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.model import Entry, Site, load_entry
from orchestrator.simulation.faults import parse
from orchestrator.simulation.rehearsal import make_plan, rehearse
from orchestrator.simulation.rendered import Rendered
from orchestrator.simulation.trials import Failures, run_trials

RUNS = 10
MTBF_S, REPAIR_S = 2000 * 3600.0, 4 * 3600.0


def entry(nodes: int, spares: int = 1) -> Entry:
    site = Site(partition="gpu", log_dir="/shared/results", spares=spares)
    return load_entry("MI325X_08x08x32", "flux1", site=site).with_document("system", nodes=nodes)


def one(nodes: int, folder: Path) -> None:
    """Play one set, and print how long that takes."""
    plan = make_plan(entry(nodes), RUNS, faults=[parse("node 3 dies in run 4")], run_s=92.36 * 60)
    began = time.perf_counter()
    rendered = Rendered(plan.entry, RUNS)
    made = time.perf_counter()
    played = rehearse(plan, folder, rendered)
    ended = time.perf_counter()
    pace = played.ended_s / (ended - made)
    print(
        f"{nodes:5} nodes: {ended - made:6.2f} s (and {made - began:.2f} s to render), {pace:8.0f} virtual seconds a second; {played.summary}"
    )


def many(trials: int, folder: Path) -> None:
    """Play trials with 0 to 3 spares, and print how long that takes."""
    plans = [make_plan(entry(8, spares), RUNS) for spares in range(4)]
    began = time.perf_counter()
    results = run_trials(plans, Failures(MTBF_S, REPAIR_S), trials, folder)
    took = time.perf_counter() - began
    played = sum(result.played for result in results)
    print(
        f"{trials} trials x {len(plans)} numbers of spares on 8 nodes: {took:.1f} s on {os.cpu_count()} cores, {played} of them played"
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", default="8,64,1000")
    parser.add_argument("--trials", type=int, default=100, help="0: none")
    args = parser.parse_args()
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        for nodes in map(int, args.nodes.split(",")):
            one(nodes, Path(folder) / "one")
        if args.trials:
            many(args.trials, Path(folder) / "many")
    return 0


if __name__ == "__main__":
    sys.exit(main())
