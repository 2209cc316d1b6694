"""Put back old defects, one at a time, and see whether the campaign finds each: `make mutations`.

Each defect of `old_defects.py` is put into a copy of the package, and sets with random faults are played with the copy
(`seeded_sets.py`) until a set breaks an invariant. A seed without an end counts as found, too.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from old_defects import DEFECTS, Defect

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEEDED = ("orchestrator", "systems", "templates", "workloads")
"""The package and its data."""
PROGRAMS = "tests/simulation"
MEMORY_BYTES = 4 << 30
SEED_S = 60.0
"""A seed takes a tenth of a second; after this time it has no end."""
MOST_WORDS = 150
CONTROL = 20
"""Seeds played first without a defect: a seed that fails the copy proves nothing."""


NOTHING = Defect("nothing", "the tree as it is", "", ())


@dataclass(frozen=True)
class Hunt:
    """The result for a defect: the `seed` that found it (0: none), and `why`."""

    defect: Defect
    seed: int
    why: str
    seconds: float


def problems(defect: Defect, root: Path = ROOT) -> list[str]:
    """Return why a defect does not fit the tree in `root`: each text must occur exactly once."""
    counts = ((edit, (root / edit.file).read_text().count(edit.now)) for edit in defect.edits)
    return [
        f"{defect.name}: {edit.file} has its text {count} times"
        for edit, count in counts
        if count != 1
    ]


def copy_tree(place: Path) -> None:
    """Copy the programs that play sets into `place`."""
    for name in NEEDED:
        shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
    (place / PROGRAMS).mkdir(parents=True)
    for path in (ROOT / PROGRAMS).glob("*.py"):
        shutil.copy(path, place / PROGRAMS)


def put_back(defect: Defect, place: Path) -> None:
    """Give the tree in `place` the defect; restore files changed by another."""
    for file in {edit.file for one in DEFECTS for edit in one.edits}:
        text = (ROOT / file).read_text()
        for edit in defect.edits:
            text = text.replace(edit.now, edit.before) if edit.file == file else text
        if (place / file).read_text() != text:
            (place / file).write_text(text)


def hunt(defect: Defect, seeds: range, place: Path, most: int | None = None) -> Hunt:
    """Play at most `most` sets with a defect in the copy in `place`, until a set fails that is good without it.

    Raises RuntimeError if they cannot be played.
    """
    if found := problems(defect):
        return Hunt(defect, 0, "; ".join(found), 0.0)
    began, bad = time.perf_counter(), list[int]()
    while True:
        put_back(defect, place)
        seed, why = _first_failure(defect, seeds, place, most, bad)
        if seed and defect.edits:
            put_back(NOTHING, place)
            if _first_failure(NOTHING, range(seed, seed + 1), place, None, [])[0]:
                bad.append(seed)
                continue
        return Hunt(defect, seed, why, time.perf_counter() - began)


def _first_failure(
    defect: Defect, seeds: range, place: Path, most: int | None, bad: Sequence[int]
) -> tuple[int, str]:
    """Return the first failing seed, except those in `bad`, and why; else (0, "")."""
    import seeded_sets  # late: a player limits its memory before

    environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, str(place / PROGRAMS / "mutations.py"), "--play", str(place)]
    argv += [
        "--first",
        str(seeds.start),
        "--seeds",
        str(len(seeds)),
        *(f"--but={seed}" for seed in bad),
    ]
    argv += ["--only", defect.name] if defect.edits else []
    argv += ["--most", str(most)] if most else []
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as player:
        stdout, stderr = player.communicate()
    seeded_sets.remove(seeded_sets.place_of(player.pid))  # a seed without an end kills its player
    lines = stdout.splitlines()
    seed, _, why = (lines[-1] if lines else "").partition("\t")
    if seed.isdecimal() and not why:
        why = f"no end within {SEED_S:.0f} s" * ("Timeout" in stderr) or "out of memory" * (
            "MemoryError" in stderr
        )
    if not why:
        raise RuntimeError(f"{defect.name}: {stderr[-2000:]}")
    return (0, "") if why == "none" else (int(seed), why)


def play(
    place: Path, seeds: range, likely: Sequence[str], most: int | None, bad: Sequence[int]
) -> None:
    """Play seeds with the package in `place`; print each number before it begins, and in the end the violation.

    Seeds that match most expressions in `likely`, with few other events, come first.
    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    import orchestrator

    if place not in Path(orchestrator.__file__).resolve().parents:
        raise SystemExit(f"{orchestrator.__file__} is played, not {place}")
    import seeded_sets

    def unlike(seed: int) -> tuple[int, int]:
        shape, events = seeded_sets.planned(seed)
        texts = [str(shape), *map(str, events)]
        return sum(not any(re.search(one, text) for text in texts) for one in likely), len(
            events
        ) if likely else 0

    sets = seeded_sets.own_place()
    try:
        for seed in sorted(set(seeds).difference(bad), key=lambda seed: (unlike(seed), seed))[
            :most
        ]:
            print(seed, flush=True)
            faulthandler.dump_traceback_later(SEED_S, exit=True)
            trial = seeded_sets.play(seed, place=sets)
            if trial.found:
                print(seed, " ".join(_told(trial.found).split()), sep="\t")
                return
        print(seeds.stop - 1, "none", sep="\t")
    finally:
        faulthandler.cancel_dump_traceback_later()
        seeded_sets.remove(sets)


def _told(found: list[str]) -> str:
    """Return the first violation in a line; of an exception its end."""
    text = found[0]
    return (
        text
        if len(text) < MOST_WORDS or "Traceback" not in text
        else f"exception: {text.strip().splitlines()[-1]}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Hunt defects, and print a table; the exit status is 1 if one cannot be put back."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=1000, metavar="N", help="at most so many for each defect"
    )
    parser.add_argument("--most", type=int, metavar="N", help="play only the N likeliest of them")
    parser.add_argument("--first", type=int, default=1, metavar="SEED")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="this defect; may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--but",
        type=int,
        action="append",
        default=[],
        metavar="SEED",
        help="not this one; may be repeated",
    )
    parser.add_argument("--play", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    seeds = range(args.first, args.first + args.seeds)
    if args.play:
        play(
            args.play.resolve(),
            seeds,
            [text for one in DEFECTS if one.name in (args.only or ()) for text in one.likely],
            args.most,
            args.but,
        )
        return 0
    chosen = [one for one in DEFECTS if not args.only or one.name in args.only]
    if unknown := set(args.only or ()) - {one.name for one in chosen}:
        parser.error(f"no such defect: {', '.join(sorted(unknown))}")
    print(f"{'DEFECT':30} {'FOUND':6} {'SEED':>5} {'SECONDS':>7}  BY")
    hunts = []
    with tempfile.TemporaryDirectory(prefix="orchestrator-mutations-") as folder:
        parts = [chosen[k :: args.jobs] for k in range(args.jobs)]
        places = [Path(folder) / str(k) for k in range(args.jobs)]
        for place in places:
            copy_tree(place)
        control = hunt(NOTHING, seeds[:CONTROL], places[0])
        if control.seed:
            print(f"without a defect, seed {control.seed} fails: {control.why}", file=sys.stderr)
            return 1
        with ThreadPoolExecutor(args.jobs) as pool:
            for found in pool.map(
                lambda part, place: [_told_hunt(one, seeds, place, args.most) for one in part],
                parts,
                places,
            ):
                hunts += found
    impossible = [text for one in chosen for text in problems(one)]
    found_ones = sum(one.seed > 0 for one in hunts)
    print(
        f"{found_ones} of {len(chosen)} defects were found within {args.seeds} seeds each",
        *impossible,
        sep="\n",
    )
    return 1 if impossible else 0


def _told_hunt(defect: Defect, seeds: range, place: Path, most: int | None) -> Hunt:
    one = hunt(defect, seeds, place, most)
    said = "yes" if one.seed else "no"
    print(
        f"{defect.name:30} {said:6} {one.seed or '-':>5} {one.seconds:7.1f}  {(one.why or defect.why_not)[:MOST_WORDS]}",
        flush=True,
    )
    return one


if __name__ == "__main__":
    sys.exit(main())
