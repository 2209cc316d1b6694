"""Cold commands as multiples of `orchestrator --help`, all in turns in the same run, so that the machine's mood is in both.

Each is a process of its own with warm files; what counts is the smallest of the rounds, of wall time and of processor time.
`status` is asked about a log directory of a thousand finished sets, which are written first, and about one in which every tenth set is another user's or damaged.

usage:  python benchmarks/bench_commands.py [--rounds 15] [--sets 1000] [--limit-ms 400] [--json FILE]

With --limit-ms it exits with 1 if `status` of all the sets took longer, in wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "tests/controller"), str(TOP / "tests/hostile"), str(TOP / "tests")]

LIMITS = {
    "completion": 1.5,
    "systems": 4,
    "render": 6,
    "status": 4,
    "status of many": 0,
    "status of odd": 0,
    "report": 4,
    "score": 0,
}
"""Multiples of --help that are asked for; 0 for none."""


def cold(argv: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Wall and processor milliseconds of one process."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *argv], env=env, capture_output=True, check=False
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(f"{argv}: {done.returncode}: {done.stderr.decode()}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * wall, 1000 * spent


def make_sets(folder: Path, count: int) -> None:
    from controller_parts import write_set

    from orchestrator.onnode.kernel.records import JobRecord

    for number in range(count):
        name = f"S-w-20261121-{number:06}-{number:04x}"
        job = JobRecord(job_id=str(number), state="complete", started_ms=1_000, ended_ms=900_000)
        write_set(folder, name, nexp=1, done=1, scheduler="local", job=job)


def make_odd(folder: Path, every: int) -> None:
    """Have some sets belong to another user, and some damaged, in turns."""
    import random

    from random_damage import damage

    for number, root in enumerate(sorted(folder.iterdir())[::every]):
        if number % 2 and os.getuid() == 0:
            for path in (root, *root.rglob("*")):
                os.chown(path, 4242, 4242)
        else:
            damage(root, random.Random(number))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--limit-ms", type=float, help="of wall time, for `status of many`")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name, count in (("few", 3), ("many", args.sets), ("odd", args.sets)):
            (place / name).mkdir()
            make_sets(place / name, count)
            (place / f"{name}.yaml").write_text(
                f"kind: site\nscheduler: local\nlog_dir: {place / name}\n"
            )
        make_odd(place / "odd", 10)
        folder = str(next((place / "few").iterdir()))
        commands = {
            "help": ["--help"],
            "completion": ["completion", "bash"],
            "systems": ["systems"],
            "render": [
                "render",
                "MI325X_08x08x32",
                "flux1",
                "--site",
                str(place / "few.yaml"),
                "-o",
                "-",
            ],
            "status": ["status", "--site", str(place / "few.yaml")],
            "status of many": ["status", "--site", str(place / "many.yaml")],
            "status of odd": ["status", "--site", str(place / "odd.yaml")],
            "report": ["report", folder, "-o", str(place / "report.html")],
            "score": ["score", folder],
        }
        env = os.environ | {
            "PYTHONPATH": str(TOP),
            "XDG_CONFIG_HOME": scratch,
            "XDG_CACHE_HOME": scratch,
        }
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
        measured: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(args.rounds):
            for name, argv in commands.items():
                measured[name].append(cold(argv, env))
    best = {
        name: [min(column) for column in zip(*rows, strict=True)] for name, rows in measured.items()
    }
    print(f"{'command':<16}{'wall ms':>9}{'cpu ms':>9}{'x wall':>8}{'x cpu':>8}{'asked':>7}")
    for name, (wall, spent) in best.items():
        times = f"{wall / best['help'][0]:>8.1f}{spent / best['help'][1]:>8.1f}"
        print(f"{name:<16}{wall:>9.0f}{spent:>9.0f}{times}{LIMITS.get(name) or '-':>7}")
    odd, many = best["status of odd"][1], best["status of many"][1]
    print(
        f"status with every tenth set of another user, or damaged: {odd / many:.2f} x the processor time"
    )
    if args.json:
        args.json.write_text(json.dumps(best, indent=1))
    wall = best["status of many"][0]
    if args.limit_ms is not None and wall > args.limit_ms:
        what = f"status of {args.sets:,} sets took {wall:.0f} ms"
        print(f"{what}, more than --limit-ms {args.limit_ms:g}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
