"""The score of `orchestrator explain` on the corpus of labelled failures, and its time on a set of 10 runs x 8 nodes with large logs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP), str(TOP / "tests/evidence")]

import failures  # noqa: E402

from orchestrator.evidence.explain import UNKNOWN  # noqa: E402

RUNS, NODES = 10, 8


def scores(folder: Path) -> None:
    print(f"{'cases':<12} {'number':>6} {'right':>6} {'not known':>10} {'wrong':>6}")
    for name in sorted(path.stem for path in failures.FOLDER.glob("*.txt")):
        count, missed = failures.score(folder, name)
        unknown = sum(found.cause == UNKNOWN for _, found in missed)
        print(
            f"{name:<12} {count:>6} {count - len(missed):>6} {unknown:>10} {len(missed) - unknown:>6}"
        )
        for case, found in missed:
            print(f"  {case.name}: {found.cause}, not {case.label}")


def large_set(root: Path, megabytes: int) -> None:
    """A paused set whose every node of every run has a log of that size; the holes in it take no room."""
    echo = "[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
    oom = "[rank9]: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n"
    nodes = {
        rank: ({"exit": 1, "s": 60 + rank}, oom if rank == 5 else echo) for rank in range(NODES)
    }
    failures.make_set(root, failures.Case("large", "gpu_out_of_memory", nodes))
    state = json.loads((root / "runs/1/attempt_1/state.json").read_text())
    step = (
        " iteration 100/ 5000 | consumed samples: 1760 | lm loss: 6.811 | grad norm: 1.2 |\n" * 6000
    )
    for run in range(1, RUNS + 1):
        folder = root / f"runs/{run}/attempt_1"
        folder.mkdir(parents=True, exist_ok=True)
        for path in (folder / "state.json", folder.parent / "state.json"):
            path.write_text(json.dumps(state | {"run": run}))
        for rank, (_, last) in nodes.items():
            with open(folder / f"node_{rank}.log", "w") as file:
                file.write(step)
                file.seek(megabytes << 20)
                file.write("\n" + step + last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200, help="size of each log (200)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scores(Path(folder) / "cases")
        root = Path(folder) / "large"
        large_set(root, args.megabytes)
        from orchestrator.evidence.explain import explain
        from orchestrator.evidence.picture import picture
        from orchestrator.evidence.progress import Logs
        from orchestrator.evidence.sets import SetEvidence

        times, busy = [], []
        for _ in range(5):
            began, work = time.perf_counter(), time.process_time()
            files = SetEvidence(root)
            found = explain(files, picture(files, {}, Logs()))
            times.append(time.perf_counter() - began)
            busy.append(time.process_time() - work)
        print(f"{RUNS} runs x {NODES} nodes, {args.megabytes} MB each: {found.cause}")
        print(
            f"  {min(times):.3f} to {max(times):.3f} s, of processor {min(busy):.3f} to {max(busy):.3f} s"
        )
        print(f"  {found.evidence[0]}")


if __name__ == "__main__":
    main()
