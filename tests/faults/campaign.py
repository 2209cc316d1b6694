"""The fault campaign: sets that meet faults at random moments, and what must hold of each of them afterwards.

    python tests/faults/campaign.py --injections 600 --out faults.jsonl [--flavours local,docker,podman]
    python tests/faults/campaign.py --replay 4711:docker          one trial again, as far as time allows
    python tests/faults/campaign.py --table faults.jsonl          what a campaign found, by kind

A trial is one set; its flavour, its faults and their moments come from its number and --runs. What is on record in --out is
not done again, so a campaign that was ended goes on; TERM ends it after the trial that goes on. Flavours with Slurm need the lab (lab/up). The exit code is 1 when there
were violations.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(HERE), str(TESTS), str(TESTS / "simulation"), str(TESTS.parent)]

import kinds_site  # noqa: E402, F401
import kinds_slurm  # noqa: E402, F401
from invariants import violations  # noqa: E402
from kinds import KINDS  # noqa: E402
from labs import lab_at, lab_state  # noqa: E402
from machine import knobs, settings_owners  # noqa: E402
from trial import FLAVOURS, NothingToHit, Trial  # noqa: E402

TRIES = 3
"""How often a fault is tried that finds nothing to hit."""
LONG_MS = 15
"""Pause before each step of the trainings of a long set, so that every fault finds it at work."""


def chosen(number: int, flavour: str, runs: int, dice: random.Random) -> list[str]:
    """The kinds of a trial, one to four for each run: so that each comes as often as the others, by its turn."""
    fitting = [one.name for one in KINDS.values() if flavour in one.flavours]
    first = fitting[number % len(fitting)]
    fitting.remove(first)
    return [first, *dice.sample(fitting, min(dice.randint(runs, 4 * runs), len(fitting)) - 1)]


def one_trial(
    number: int,
    flavour: str,
    kinds: list[str] | None = None,
    *,
    runs: int = 3,
    keep: Path | None = None,
) -> dict[str, Any]:
    """Make a set, let faults happen to it, bring it to its end; what was injected, what is violated, how long it took.

    A fault that finds nothing to hit has its turn again after the set's next result. A set that is
    complete too early gets one more run for each fault that is left.
    """
    dice = random.Random(f"{number}:{flavour}")
    names = kinds or chosen(number, flavour, runs, dice)
    env, podman, base = dict[str, str](), "", "/var/tmp"  # not /tmp, which may be private
    before = knobs() if settings_owners() is None else {}
    if FLAVOURS[flavour].slurm:
        lab = lab_at(lab_state())
        env, base = lab.env, str(lab.shared)
        if FLAVOURS[flavour].engine == "podman":
            podman = lab.run(HERE.parents[1] / "lab/podman", timeout=600).stdout.strip()
    trial = Trial(
        FLAVOURS[flavour],
        Path(tempfile.mkdtemp(prefix="faults-", dir=base)) / "t",
        dice,
        runs,
        podman=podman,
        **({"env": env} if env else {}),
    )
    started, injected = time.monotonic(), list[tuple[float, str, object]]()

    def inject(name: str) -> bool:
        moment = time.monotonic()
        try:
            injected.append((moment, name, KINDS[name].act(trial)))
        except NothingToHit:
            return False
        return True

    for name in [one for one in names if KINDS[one].when == "before"]:
        inject(name)
    if len(names) > 4 * runs:
        trial.faults.append(f"slow:ms={LONG_MS}")
    trial.submit()
    left = [one for one in names if KINDS[one].when != "before"]
    for again in range(TRIES):
        if again and left:
            trial.come_further(more=len(left))
        for name in left.copy():
            work = KINDS[name].when == "work"
            if (work or trial.complete) and not trial.go_on(more=len(left)):
                continue
            if work:
                time.sleep(dice.uniform(0, 3 / (again + 1)))
            elif trial.alive():
                trial.command("cancel", str(trial.set), codes=(0, 5))
                trial.wait(lambda: not trial.alive(), 60)
            if inject(name):
                left.remove(name)
    trial.recover()
    recovery = [(name, told, trial.waited_s(moment)) for moment, name, told in injected]
    found = violations(trial, before)
    trial.close(keep=bool(found and keep))
    if found and keep:
        keep.mkdir(parents=True, exist_ok=True)
        archive = keep / f"trial-{number}-{flavour}.tgz"
        subprocess.run(["tar", "-czf", archive, "-C", trial.root.parent, "t"], check=False)
        trial.close()
    trial.root.parent.rmdir() if not any(trial.root.parent.iterdir()) else None
    return {
        "trial": number,
        "flavour": flavour,
        "runs": trial.runs,
        "injected": [
            {"fault": name, "told": told or "", "recovery_s": round(s, 2)}
            for name, told, s in recovery
        ],
        "nothing_to_hit": left,
        "violations": found,
        "seconds": round(time.monotonic() - started, 1),
    }


def table(records: list[dict[str, Any]]) -> str:
    """By kind: injections, those in trials with violations, seconds from each to the next result (median, worst)."""
    rows: dict[str, list[tuple[float, bool]]] = {}
    for record in records:
        for one in record["injected"]:
            rows.setdefault(one["fault"], []).append(
                (one["recovery_s"], bool(record["violations"]))
            )
    lines = [
        f"{'fault':26} {'injections':>10} {'violations':>10} {'next result: median s':>22} {'worst':>7}"
    ]
    for name, found in sorted(rows.items()):
        seconds = [one for one, _ in found]
        bad = sum(one for _, one in found)
        lines.append(
            f"{name:26} {len(found):10} {bad:10} {statistics.median(seconds):22.1f} {max(seconds):7.1f}"
        )
    total = sum(len(one["injected"]) for one in records)
    bad = sum(bool(one["violations"]) for one in records)
    lines.append(
        f"{len(records)} trials, {total} injections of {len(rows)} kinds, {bad} trials with violations"
    )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--injections", type=int, default=600)
    parser.add_argument("--out", type=Path, default=Path("faults.jsonl"))
    parser.add_argument("--flavours", default="local,docker,podman")
    parser.add_argument("--first", type=int, default=1, help="number of the first trial")
    parser.add_argument("--runs", type=int, default=3, help="runs of each set")
    parser.add_argument("--replay", metavar="NUMBER:FLAVOUR[:KIND,...]")
    parser.add_argument("--table", type=Path)
    args = parser.parse_args()
    if args.table:
        print(table([json.loads(line) for line in args.table.read_text().splitlines()]))
        return 0
    keep = args.out.with_suffix(".kept")
    if args.replay:
        number, flavour, *kinds = args.replay.split(":")
        found = one_trial(
            int(number), flavour, kinds[0].split(",") if kinds else None, runs=args.runs, keep=keep
        )
        print(json.dumps(found, indent=1))
        return bool(found["violations"])
    records = (
        [json.loads(line) for line in args.out.read_text().splitlines()]
        if args.out.exists()
        else []
    )
    done = {(one["trial"], one["flavour"]) for one in records}
    flavours, number = args.flavours.split(","), args.first
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    while sum(len(one["injected"]) for one in records) < args.injections and not ending.is_set():
        for flavour in flavours:
            if (number, flavour) in done or ending.is_set():
                continue
            record = one_trial(number, flavour, runs=args.runs, keep=keep)
            records.append(record)
            with args.out.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(
                number,
                flavour,
                *(f"{one['fault']}: {one['told']}" for one in record["injected"]),
                record["violations"] or "fine",
                f"{record['seconds']} s",
                flush=True,
            )
        number += 1
    print(table(records))
    return int(any(one["violations"] for one in records))


if __name__ == "__main__":
    sys.exit(main())
