"""How long a bundle takes, for one node and for 64. Prints a ratio, which must stay below 1.2.

    pip install -e . && python benchmarks/bench_render.py

Both are rendered in turns in one process, best of several; the same entry, with another number of nodes.
Ends with 1 when the ratio or the size of job.sh says that something grows with the nodes.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

TURNS = 30
LIMIT = 1.2


def main() -> int:
    from orchestrator.model import Entry, Site, load_entry
    from orchestrator.render import render_bundle

    def once(entry: Entry) -> float:
        start = time.perf_counter()
        render_bundle(entry, nexp=10)
        return time.perf_counter() - start

    loaded = load_entry("MI325X_1x8x1", "llama2_70b_lora", site=Site(log_dir="/shared/results"))
    many = dataclasses.replace(loaded, nodes=64)
    once(loaded)  # compiles the templates
    times = [(once(loaded), once(many)) for _ in range(TURNS)]
    best_one, best_many = min(a for a, _ in times), min(b for _, b in times)
    sizes = [len(render_bundle(entry, nexp=10)["job.sh"]) for entry in (loaded, many)]
    print(f"one node  {1000 * best_one:6.1f} ms   job.sh {sizes[0]} bytes")
    print(f"64 nodes  {1000 * best_many:6.1f} ms   job.sh {sizes[1]} bytes")
    print(f"ratio     {best_many / best_one:6.2f}      at most {LIMIT}")
    return int(best_many / best_one > LIMIT or sizes[1] - sizes[0] > 1)


if __name__ == "__main__":
    sys.exit(main())
