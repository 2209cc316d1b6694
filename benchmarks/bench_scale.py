"""Processor time of what grows: decisions for a thousand nodes, and output that is made to be slow to read.

Tests compare counts (lines of Python, bytes read), which say how effort grows; this says how long it takes here.

usage:  python benchmarks/bench_scale.py [--nodes 1000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP), str(TOP / "tests"), str(TOP / "tests/onnode")]

from effort import unlike_lines  # noqa: E402
from policy_parts import settings  # noqa: E402
from test_policy_bandwidth import nodes, search  # noqa: E402
from test_policy_judge import many_reports  # noqa: E402

from orchestrator.causes.reading import symptoms  # noqa: E402
from orchestrator.onnode.agent.observers import RunOutput  # noqa: E402
from orchestrator.onnode.kernel.mllog_tail import StopFinder  # noqa: E402
from orchestrator.onnode.policy.judge import agree_on_facts, agree_on_network, judge_checks  # noqa: E402
from orchestrator.onnode.policy.place import GroupState, candidates, choose  # noqa: E402


def judge(count: int) -> None:
    reports, on = many_reports(count), settings(nnodes=count)
    judge_checks(reports, on, rdma=False)
    agree_on_network(reports, list(reports), on)
    agree_on_facts(reports, list(reports), on)


def place(count: int) -> None:
    group = GroupState(allocated=tuple(f"n{number}" for number in range(count)), need=count - 10)
    picked = candidates(group)
    assert isinstance(picked, list)
    choose(group, picked, first=True)


def find_slow(count: int) -> None:
    search(nodes(count, 12_000) | {"n7": 900})


def listen() -> None:
    listener = RunOutput()
    for at in range(5000):
        listener.feed((f"x:{at}:1 [0] NCCL INFO Using network Socket {'y' * 500}\n" * 20).encode())


def find_stop() -> None:
    finder = StopFinder()
    finder.feed(b":::MLLOG " * 100_000 + b'"key":' * 50_000 + b"\n")
    finder.feed(b"run_stop\n" * 100_000)


def read_unlike_lines() -> None:
    symptoms(unlike_lines())


def processor_ms(work: Callable[[], object], rounds: int) -> float:
    """Return the smallest of the rounds."""

    def once() -> float:
        begin = time.process_time()
        work()
        return 1000 * (time.process_time() - begin)

    return min(once() for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    work: dict[str, Callable[[], object]] = {
        f"judge the checks of {args.nodes} nodes": lambda: judge(args.nodes),
        f"place {args.nodes} nodes": lambda: place(args.nodes),
        f"find a slow one of {args.nodes} nodes": lambda: find_slow(args.nodes),
        "listen to 55 MB of RCCL's lines": listen,
        "find run_stop in 2 MB that only look like MLLOG": find_stop,
        "read 800 lines that are all unlike": read_unlike_lines,
    }
    for name, function in work.items():
        print(f"{processor_ms(function, args.rounds):8.0f} ms  {name}")


if __name__ == "__main__":
    main()
