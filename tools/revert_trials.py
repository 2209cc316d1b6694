"""Revert host settings N times while every process of the revert gets TERM; count incomplete
reverts.

usage:  python tools/revert_trials.py [N] [--seed SEED] [--within MS]

Slurm signals every process of a pre-empted job two or three times within 50 ms, the leaves of the
process tree first. Here the code of the agent applies the recommended profile to a folder that
stands for a host, and reverts it. At a random moment of the revert's first 20 ms every process of
it gets TERM, leaves first, 0 or 1 ms apart, and then the agent. The agent repeats an incomplete
revert as it does in a job. A revert is complete if every value is as before and no state is left.

Needs no lab, no root and no GPU. Prints a table; exits with 1 if a revert stayed incomplete.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP), *(str(TOP / "tests" / name) for name in ("", "tuning", "onnode"))]

from agent_parts import Bench, bench  # noqa: E402  (the checkout's own)
from tuning_parts import fill, snapshot, watchdogs  # noqa: E402

REVERTS, SEED, WITHIN_MS = 200, 1, 20.0
BIN_MS = 5.0
AGENT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from orchestrator.onnode.agent.node import this_node
from orchestrator.onnode.agent.tuning import Tuning
from orchestrator.onnode.kernel.program import read
from orchestrator.onnode.kernel.settings_file import load
from orchestrator.onnode.kernel.waiting import Waiting

bundle = Path(sys.argv[2])
program = read(bundle)
node = this_node(program, load(program.files))
node.folder.mkdir(parents=True)
tuning = Tuning(node, Waiting())
for order in sys.stdin:
    reply = tuning.apply() if order == "apply\\n" else tuning.revert()
    print(reply.replace("\\n", " "), flush=True)
"""
"""Applies and reverts with the code that nodes run, once for each line of its input."""


@dataclass(frozen=True)
class Trial:
    """A revert and the TERMs into it. `gap_ms`: time between two TERMs."""

    moment_ms: float
    gap_ms: int
    signalled: int
    """Processes of the revert that got TERM."""
    problem: str
    """The agent's reason for an incomplete revert, "" if it counts as complete."""
    is_complete: bool


def trials(count: int, seed: int = SEED, within_ms: float = WITHIN_MS) -> Iterator[Trial]:
    """Yield `count` trials. The moments and gaps are those of the seed."""
    rng = random.Random(seed)
    # The lease is too long for a watchdog to complete a revert.
    site = {"tunables": "apply", "tuning": {"profile": "recommended", "lease_seconds": 3600}}
    with tempfile.TemporaryDirectory() as folder, bench(Path(folder) / "bench", **site) as made:
        host = TrialHost(made)
        with host.agent() as agent:
            for _ in range(count):
                yield host.trial(agent, rng.uniform(0, within_ms), rng.choice((0, 1)))


class TrialHost:
    """A folder that stands for a host, and the agent that tunes it."""

    def __init__(self, made: Bench) -> None:
        self.bench, self.root, self.state = (
            made,
            fill(made.folder / "root"),
            made.folder / "states/host",
        )
        self.state.parent.mkdir()
        self.before = snapshot(self.root)

    @contextmanager
    def agent(self) -> Iterator[subprocess.Popen[str]]:
        env = {
            "PATH": os.environ["PATH"],
            "ORCH_SET_DIR": str(self.bench.layout.root),
            "ORCH_JOB_ID": "7",
            "ORCH_NODE": "n1",
            "ORCH_CHANNELS": str(self.bench.channels),
            "ORCH_TUNABLES_ROOT": str(self.root),
            "ORCH_TUNABLES_STATE": str(self.state),
        }
        argv = [sys.executable, "-c", AGENT, str(TOP), str(self.bench.bundle)]
        pipe = subprocess.PIPE
        with subprocess.Popen(
            argv, env=env, text=True, bufsize=1, stdin=pipe, stdout=pipe
        ) as process:
            yield process
            assert process.stdin is not None
            process.stdin.close()

    def trial(self, agent: subprocess.Popen[str], moment_ms: float, gap_ms: int) -> Trial:
        """Have the settings reverted, with TERM to every process of the revert at `moment_ms` of
        it."""
        assert agent.stdin is not None and agent.stdout is not None
        agent.stdin.write("apply\n")
        assert agent.stdout.readline() and snapshot(self.root) != self.before
        agent.stdin.write("revert\n")
        while not leaves_first(agent.pid) and not select.select([agent.stdout], [], [], 0)[0]:
            pass  # a revert takes some 40 ms, and its start is wanted to the millisecond
        time.sleep(moment_ms / 1000)
        signalled = leaves_first(agent.pid)
        for pid in (*signalled, agent.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            time.sleep(gap_ms / 1000)
        problem = agent.stdout.readline().strip()
        is_complete = snapshot(self.root) == self.before and not list(self.state.parent.iterdir())
        self.restore()
        return Trial(moment_ms, gap_ms, len(signalled), problem, is_complete)

    def restore(self) -> None:
        """Make the host what it was, for the next trial."""
        for pid in watchdogs(self.state):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for path in sorted(self.state.parent.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        for name, content in self.before.items():
            (self.root / name).write_bytes(content)


def leaves_first(pid: int) -> list[int]:
    """Return the descendants of a process, the youngest generation first."""
    generations = [[pid]]
    while children := [child for parent in generations[-1] for child in children_of(parent)]:
        generations.append(children)
    return [process for generation in reversed(generations[1:]) for process in generation]


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def table(results: list[Trial], within_ms: float) -> str:
    """Return the trials by the moment of the first TERM, a line per 5 ms, and their sum."""
    columns = "{:>12}  {:>7}  {:>19}  {:>10}  {:>8}"
    lines = [columns.format("moment", "reverts", "processes signalled", "incomplete", "reported")]

    def line(name: str, some: list[Trial]) -> str:
        signalled = sum(trial.signalled for trial in some)
        incomplete = [trial for trial in some if not trial.is_complete]
        reported = sum(bool(trial.problem) for trial in incomplete)
        return columns.format(name, len(some), signalled, len(incomplete), reported)

    start = 0.0
    while start < within_ms:
        some = [trial for trial in results if start <= trial.moment_ms < start + BIN_MS]
        lines.append(line(f"{start:.0f} to {start + BIN_MS:.0f} ms", some))
        start += BIN_MS
    return "\n".join([*lines, line("all", results)])


def main() -> int:
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(description=about, epilog=rest.partition("\n\n")[2])
    parser.add_argument(
        "count",
        metavar="N",
        nargs="?",
        type=int,
        default=REVERTS,
        help="reverts (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help="of the moments and gaps (default: %(default)s)"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=WITHIN_MS,
        metavar="MS",
        help="latest moment (default: %(default)s)",
    )
    asked = parser.parse_args()
    results = list(trials(asked.count, asked.seed, asked.within))
    print(table(results, asked.within))
    return int(not all(trial.is_complete for trial in results))


if __name__ == "__main__":
    sys.exit(main())
