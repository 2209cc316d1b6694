"""How `orchestrator explain` does: the deciding line and the cause, apart, on the labelled failures or on a file of real logs
(`--cases FILE`, described in tests/evidence/real_logs.py); time and memory on large logs."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TOP), str(TOP / "tests/evidence")]

import failures  # noqa: E402
import real_logs  # noqa: E402

from orchestrator.evidence.explain import explain  # noqa: E402
from orchestrator.evidence.explanation import UNKNOWN  # noqa: E402
from orchestrator.evidence.picture import picture  # noqa: E402
from orchestrator.evidence.progress import Logs  # noqa: E402
from orchestrator.evidence.sets import SetEvidence  # noqa: E402

RUNS, NODES = 10, 8


def scores(folder: Path) -> None:
    """Print how many causes are right in each part of the corpus, and how many labelled lines are quoted."""
    print(f"{'cases':<12} {'number':>6} {'right':>6} {'not known':>10} {'wrong':>6} {'line':>9}")
    old, new = [0, 0], [0, 0]
    for name in sorted(path.stem for path in failures.FOLDER.glob("*.txt")):
        said = [
            (case, failures.explained(folder / name / case.name, case))
            for case in failures.cases(name)
        ]
        missed = [
            (case, explained) for case, explained in said if explained.cause not in case.labels
        ]
        unknown = sum(explained.cause == UNKNOWN for _, explained in missed)
        lines = [real_logs.hits(explained, case.line)[0] for case, explained in said if case.line]
        quoted = f"{sum(lines)}/{len(lines)}" if lines else ""
        right = len(said) - len(missed)
        part = new if name.startswith("unseen") else old
        part[0], part[1] = part[0] + len(said), part[1] + right
        print(
            f"{name:<12} {len(said):>6} {right:>6} {unknown:>10} {len(missed) - unknown:>6} {quoted:>9}"
        )
        for case, explained in missed:
            print(f"  {case.name}: {explained.cause}, not {case.label}")
    for name, (number, right) in (("older parts", old), ("newer parts", new)):
        print(f"{name}: {right} of {number} right ({100 * right / number:.1f} %)")


def two_figures(folder: Path, file: Path) -> None:
    """Print for a file of real logs how often the deciding line is quoted, and how often the cause is right."""
    rows = list(real_logs.judged(folder, file))
    verdicts = {
        name: sum(row.verdict == name for row in rows)
        for name in ("right", "half", "none", "wrong")
    }
    share = {
        name: f"{number} ({100 * number / len(rows):.1f} %)" for name, number in verdicts.items()
    }
    print(f"{file.name}: {len(rows)} logs")
    print(
        f"  deciding line quoted: {sum(row.line_hit for row in rows)}, as the first line: {sum(row.first_hit for row in rows)}"
    )
    print("  cause: " + ", ".join(f"{name} {text}" for name, text in share.items()))
    for row in rows:
        if row.verdict != "right" or not row.line_hit:
            print(
                f"  {row.name}: {row.verdict}, {row.said.cause}, line {'quoted' if row.line_hit else 'missing'}"
            )


def sizes(folder: Path) -> None:
    """Print time and memory for a log of 100 MB, a line of 100 MB, and 64 logs."""
    oom = b"[rank9]: torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n"
    step = b" iteration 100/ 5000 | lm loss: 6.811 | grad norm: 1.2 |\n"
    line = b"step 7 of a loader: shard missing in cache, not found, retry of read at offset 812 of node 4\n"
    block = b"x" * (1 << 20)
    for name, nodes, parts in (
        ("a log of 100 MB", 1, [step * 1000] * 1700),
        ("a log of 100 MB that speaks of failures", 1, [line * 1000] * 1100),
        ("a line of 100 MB", 1, [block] * 100),
        ("64 logs of 20 MB", 64, [step * 1000] * 340),
    ):
        root = folder / name.replace(" ", "_")
        case = failures.Case(
            "x", "", {rank: ({"exit": 1, "s": 60 + rank}, "") for rank in range(nodes)}
        )
        files = failures.make_set(root, case)
        for rank in range(nodes):
            with open(root / f"runs/1/attempt_1/node_{rank}.log", "wb") as file:
                file.writelines(parts)
                file.write(b"\n" + oom)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.perf_counter()
        explained = explain(files, picture(files, {}, Logs()))
        took = time.perf_counter() - began
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(
            f"{name}: {explained.cause}, {took:.3f} s, {most / 1024:.0f} MB in all, {(most - before) / 1024:.0f} MB more"
        )
        for path in (root / "runs/1/attempt_1").glob("*.log"):
            path.unlink()


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
    parser.add_argument("--cases", type=Path, help="only the two figures of this file of real logs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if args.cases:
            two_figures(Path(folder) / "cases", args.cases)
            return
        sizes(Path(folder) / "sizes")
        scores(Path(folder) / "cases")
        root = Path(folder) / "large"
        large_set(root, args.megabytes)
        times, busy = [], []
        for _ in range(5):
            began, work = time.perf_counter(), time.process_time()
            files = SetEvidence(root)
            explained = explain(files, picture(files, {}, Logs()))
            times.append(time.perf_counter() - began)
            busy.append(time.process_time() - work)
        print(f"{RUNS} runs x {NODES} nodes, {args.megabytes} MB each: {explained.cause}")
        print(
            f"  {min(times):.3f} to {max(times):.3f} s, of processor {min(busy):.3f} to {max(busy):.3f} s"
        )
        print(f"  {explained.evidence[0]}")


if __name__ == "__main__":
    main()
