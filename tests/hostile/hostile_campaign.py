"""Bad command lines and damaged sets before every command, many of them, as a table.

python tests/hostile/hostile_campaign.py [--lines 500] [--sets 100] [--first 0] [--processes N]

Nothing may end with a traceback or a signal, compute for more than ten seconds, or write outside of its place. The same
seeds give the same lines and damage (bad_lines.py, random_damage.py); `make long` goes through many more.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(TOP / "tests"), str(TOP)]

from bad_lines import LINES, bad_lines, make_places
from damaged_sets import full_set
from hostile_parts import Answer, alone
from test_hostile_lines import answer_of
from test_hostile_sets import answers

from orchestrator.cli import COMMANDS

PART = 25
"""Seeds in one place."""


@dataclass
class Row:
    calls: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    problems: int = 0

    def add(self, other: Row) -> None:
        self.calls += other.calls
        self.codes += other.codes
        self.longest_s = max(self.longest_s, other.longest_s)
        self.problems += other.problems


def lines(seeds: range, place: Path, whole: Path) -> Iterator[tuple[Answer, str]]:
    places = make_places(place.parent / "places", whole)
    for seed, line in bad_lines(seeds, places):
        answer, what = answer_of(line, place, places)
        yield answer, f"seed {seed}: {line.why[:200]}: {what}: {answer}" if what else ""


def sets(seeds: range, place: Path, whole: Path) -> Iterator[tuple[Answer, str]]:
    for seed in seeds:
        for answer, what in answers(place, whole, seed):
            yield answer, f"seed {seed}: {what}: {answer}" if what else ""


NAMES = frozenset(line.split()[0] for line in LINES) | COMMANDS.keys()
KINDS = {"bad lines": lines, "damaged sets": sets}
Rows = dict[tuple[str, str], Row]


def part(kind: str, seeds: range) -> tuple[Rows, list[str]]:
    """Have the answers of some seeds, in a place of their own."""
    rows, problems = Rows(), list[str]()
    with tempfile.TemporaryDirectory() as top, alone(Path(top)) as place:
        whole = full_set(place.parent / "whole")
        for answer, problem in KINDS[kind](seeds, place, whole):
            name = answer.words[0] if answer.words and answer.words[0] in NAMES else "(unknown)"
            code = "none" if answer.code is None else str(int(answer.code))
            row = Row(1, Counter([code]), answer.processor_s, bool(problem))
            rows.setdefault((kind, name), Row()).add(row)
            problems += [problem] if problem else []
    return rows, problems


def print_table(rows: Rows) -> None:
    print(f"{'':<14}{'command':<12}{'calls':>7}{'longest s':>11}{'problems':>10}  exit codes")
    for kind in KINDS:
        whole = Row()
        for (_, name), row in sorted(at for at in rows.items() if at[0][0] == kind):
            print_row(kind, name, row)
            whole.add(row)
        print_row(kind, "all", whole)


def print_row(kind: str, name: str, row: Row) -> None:
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(row.codes.items()))
    print(
        f"{kind:<14}{name[:11]:<12}{row.calls:>7}{row.longest_s:>11.2f}{row.problems:>10}  {codes}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    rows, problems = Rows(), list[str]()
    for kind, count in (("bad lines", args.lines), ("damaged sets", args.sets)):
        end = args.first + count
        parts = [range(at, min(at + PART, end)) for at in range(args.first, end, PART)]
        with ProcessPoolExecutor(args.processes) as pool:
            for found, told in pool.map(part, repeat(kind), parts):
                for key, row in found.items():
                    rows.setdefault(key, Row()).add(row)
                problems += told
    print("".join(f"{problem[:2000]}\n" for problem in problems), end="", file=sys.stderr)
    print_table(rows)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
