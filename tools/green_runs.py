"""Run `make docs test` N times in fresh clones, each in another random order, and print a table.

usage:  python tools/green_runs.py [--quiet N] [--busy N] [--load COMMAND] [--user NAME]
                                   [--target TARGET] [--keep DIR] [--most N]

Every run has a clone of its own with an empty HOME, made from the commit that is checked out here.
A busy run and a quiet one take turns. During a busy run four processes compute without a pause, or
--load runs: it is ended with the run, and started again whenever it ends before. With --user the
runs are those of an ordinary user (the script itself needs root for that), so tests that need a lab
are skipped. Runs are on record in --keep, with their output: started again, it goes on with the
runs of this commit that are missing. --most ends it after so many. A run that leaves a process is
not green. Exits with 1 if a run was not green. `cpu` is the processor time of the tests in seconds,
without the lab's daemons: a busy host of a virtual machine can raise it by half.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
BUSY = 4
PATH = "/usr/local/bin:/usr/bin:/bin"
"""Of an ordinary user: that of root may lead to folders that others cannot read."""
SPIN = [sys.executable, "-c", "while True: pass"]
COUNTS = re.compile(rb"([0-9]+) (passed|failed|errors?|skipped)\b")
LAST = re.compile(rb"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """One run of the tests. `seconds` are those of the whole command, with the installation."""

    number: int
    busy: bool
    seed: int
    status: int
    seconds: float
    counts: dict[str, int]
    bad: tuple[str, ...]
    cpu_s: float = 0.0
    """User and system time of its processes (seconds)."""

    @property
    def row(self) -> str:
        shown = [str(self.counts.get(name, 0)) for name in ("passed", "failed", "error", "skipped")]
        cells = [
            f"{self.number}",
            "busy" if self.busy else "quiet",
            f"{self.seed}",
            *shown,
            f"{self.seconds:.0f}",
            f"{self.cpu_s:.0f}" if self.cpu_s else "-",
        ]
        return (
            "".join(word.rjust(width) for word, width in zip(cells, WIDTHS, strict=True))
            + f"  {self.verdict}"
        )

    @property
    def verdict(self) -> str:
        return "green" if self.is_green else f"exit {self.status}  {' '.join(self.bad[:3])}"

    @property
    def is_green(self) -> bool:
        return self.status == 0 and not self.bad


HEADS = ("run", "machine", "order", "passed", "failed", "errors", "skipped", "seconds", "cpu")
WIDTHS = (4, 9, 12, 8, 8, 8, 9, 9, 6)


@contextmanager
def busy_with(command: list[str], processes: int) -> Iterator[None]:
    """Run `command` in so many processes meanwhile, again and again."""
    argv = ["bash", "-c", 'while :; do "$@"; done', "_", *command]
    running = [
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, start_new_session=True)
        for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in running:
            end(process)


def cpu_s() -> float:
    """Return the processor time of all ended child processes (seconds)."""
    used = os.times()
    return used.children_user + used.children_system


def run_to_its_end(command: list[str], **options: Any) -> int:
    """Return the exit status. If this program is ended meanwhile, so is all that the command
    started: a lab, too."""
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            end(process)


def end(process: subprocess.Popen[Any]) -> None:
    """End all processes of a session by TERM, and wait for them."""
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()
    with suppress(ProcessLookupError):
        while True:  # the first one is over before what it started
            os.killpg(process.pid, 0)
            time.sleep(0.2)


def run(number: int, *, busy: bool, load: list[str], target: str, user: str, keep: Path) -> Run:
    """Run the tests in a fresh clone with an empty HOME."""
    seed = random.SystemRandom().randrange(2**32)
    place = Path(tempfile.mkdtemp(prefix="green-run-"))
    clone, home, log = place / "clone", place / "home", keep / f"run_{number}.log"
    try:
        subprocess.run(["git", "clone", "--quiet", str(TOP), str(clone)], check=True)
        home.mkdir()
        env = {"PATH": PATH if user else os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8"}
        command = [
            "make",
            "--no-print-directory",
            target,
            f"ARGS=-p randomly --randomly-seed={seed}",
        ]
        if user:
            place.chmod(0o755)
            subprocess.run(["chown", "-R", user, str(clone), str(home)], check=True)
            as_user = [
                shutil.which("runuser") or "runuser",
                f"--user={user}",
                "--",
                "env",
                f"HOME={home}",
            ]
            command = as_user + command
        else:
            env["CI"] = "true"  # a lab test that is skipped is a failure, and one of the site
            command.insert(command.index(target), "docs")
        before, began = cpu_s(), time.monotonic()
        with busy_with(load or SPIN, (1 if load else BUSY) if busy else 0), log.open("wb") as out:
            status = run_to_its_end(
                command, cwd=clone, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
            spent = cpu_s() - before
        seconds, text = time.monotonic() - began, log.read_bytes()
    finally:
        stayed = end_what_stayed(place)
        shutil.rmtree(place, ignore_errors=True)
    tail = text[-2000:]
    counts = {
        word.decode().removesuffix("s") if word.startswith(b"error") else word.decode(): int(many)
        for many, word in COUNTS.findall(tail)
    }
    bad = (*stayed, *(name.decode(errors="replace") for name in LAST.findall(text)))
    return Run(number, busy, seed, status, seconds, counts, bad, round(spent, 1))


def end_what_stayed(place: Path) -> list[str]:
    """End the processes that a run has left; return their command lines. They have its folder in
    these, or stand in it."""
    stayed = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(place) in command or str((entry / "cwd").readlink()).startswith(str(place)):
                os.kill(int(entry.name), signal.SIGKILL)
                stayed.append(f"left: {command[:200]}")
    return stayed


def in_turns(left: dict[bool, int]) -> list[bool]:
    """Return which runs are busy ones: a run of each kind after the other, what is left of one kind
    at the end."""
    kinds = [[busy] * many for busy, many in left.items()]
    return [kind for turn in itertools.zip_longest(*kinds) for kind in turn if kind is not None]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quiet", type=int, default=10, metavar="N", help="runs on a quiet machine (10)"
    )
    parser.add_argument(
        "--busy",
        type=int,
        default=10,
        metavar="N",
        help=f"runs under load: {BUSY} busy processes, or --load (10)",
    )
    parser.add_argument("--load", default="", metavar="COMMAND", help="keeps the machine busy")
    parser.add_argument("--user", default="", metavar="NAME", help="run as this user, not as root")
    parser.add_argument("--target", default="test", help="of make: test, unit")
    parser.add_argument(
        "--keep",
        type=Path,
        default=TOP / "build/green-runs",
        metavar="DIR",
        help="for the output of each",
    )
    parser.add_argument(
        "--most", type=int, default=0, metavar="N", help="end after so many runs; 0: all"
    )
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: sys.exit(128 + given))
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=TOP, check=True, capture_output=True, text=True
    ).stdout
    keep = args.keep.resolve() / f"{commit[:12]}{'-' if args.user else ''}{args.user}-{args.target}"
    keep.mkdir(parents=True, exist_ok=True)
    record = keep / "runs.jsonl"
    lines = record.read_text().splitlines() if record.exists() else []
    runs = [Run(**{**kept, "bad": tuple(kept["bad"])}) for kept in map(json.loads, lines)]
    print("".join(head.rjust(width) for head, width in zip(HEADS, WIDTHS, strict=True)), flush=True)
    for past in runs:
        print(past.row, flush=True)
    left = {
        busy: many - sum(past.busy is busy for past in runs)
        for busy, many in ((True, args.busy), (False, args.quiet))
    }
    for busy in in_turns(left)[: args.most or None]:
        past = run(
            len(runs) + 1,
            busy=busy,
            load=shlex.split(args.load),
            target=args.target,
            user=args.user,
            keep=keep,
        )
        print(past.row, flush=True)
        runs.append(past)
        with record.open("a") as file:
            file.write(json.dumps(asdict(past)) + "\n")
    green = sum(past.is_green for past in runs)
    print(f"{green} of {len(runs)} green")
    return 0 if green == len(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
