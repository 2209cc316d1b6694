"""Four ways in which one rank of a run on GPUs stops its peers, and how soon a set names that rank.

usage:  python tests/faults/gpu_hangs.py prepare FOLDER    needs the package; FOLDER then has all that `play` needs,
                                                           and py-spy if it is on PATH
        python3 tests/faults/gpu_hangs.py play FOLDER      on a machine with a GPU, torch and this checkout

Each set is one run of examples/tiny_gpt with two ranks over NCCL; on a machine with one GPU they share it. In
its first attempt rank 1 is stopped, is killed, loops before a collective, or opens a file that blocks. All
four sets are played at the same time. The table has seconds after the fault: until the evidence is there, until
`status` names the rank (or what it does), until the attempt has ended; then its reason and the next attempt.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
PLACE = Path("/tmp/gpu_hangs")
KINDS = {
    "stopped": ("os.kill(os.getpid(), 19)", "rank 1 does not run"),
    "killed": ("os.kill(os.getpid(), 9)", ""),
    "loops": ("spins_for_ever()", "rank 1 in (spins_for_ever|user code)"),
    "blocked": ("reads_a_pipe(marker)", "rank 1 in (reads_a_pipe|wait_for_partner)"),
}
"""Kind -> what rank 1 does, and how `status` names it: by Python's stack if py-spy is there, else
by the kernel."""
HOOK = """

def spins_for_ever():
    while True:
        pass


def reads_a_pipe(marker):
    os.mkfifo(marker + ".pipe")
    open(marker + ".pipe").read()


def fault(rank, seconds):
    marker = "{marker}"
    if rank == 1 and seconds > 15 and not os.path.exists(marker):
        with open(marker, "w") as file:
            file.write(str(time.time()))
        {action}  # planted


def train("""
LIMIT_S = 540.0


def prepare(folder: Path) -> None:
    """Write the bundles, codes and sites of all kinds to `folder`."""
    sys.path.insert(0, str(TOP))
    from orchestrator.model import load_entry
    from orchestrator.render import render_bundle, write_bundle

    tiny = TOP / "examples/tiny_gpt"
    if tool := shutil.which("py-spy"):
        (folder / "bin").mkdir(parents=True)
        shutil.copy(tool, folder / "bin")
    for kind, (action, _) in KINDS.items():
        place, there = folder / kind, PLACE / kind
        shutil.copytree(tiny / "code", place / "code")
        train = place / "code/train.py"
        text = train.read_text()
        for before, after in (
            ("\n\ndef train(", HOOK.format(marker=there / "fault", action=action)),
            (
                "        schedule.step()\n",
                "        schedule.step()\n        fault(rank, time.monotonic() - start)\n",
            ),
            ("    dist.barrier()\n", "    dist.barrier()\n    start = time.monotonic()\n"),
            ("torch.cuda.device_count() >= ranks:", "torch.cuda.device_count() >= 1:"),
            ("        torch.cuda.set_device(rank)\n", SHARED),
        ):
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        train.write_text(text)
        site = place / "site.yaml"
        site.write_text(
            f"kind: site\nname: gpu\nscheduler: local\nlog_dir: {there}/sets\n"
            f"systems_dirs: [{tiny}/systems]\ncode: {{tiny_gpt: {there}/code}}\ncontainer: {{engine: none}}\n"
            'tunables: "off"\nclear_caches: false\nlimits: {hang_seconds: 60, hang_multiple: 3}\n'
            "preflight: {run: false}\n"
        )
        entry = load_entry("two_gpus", "tiny_gpt", site=site, env={"TINY_PYTHON": "python3"})
        write_bundle(render_bundle(entry, nexp=1), place / "bundle")


SHARED = """        if torch.cuda.device_count() < ranks:
            os.environ["NCCL_HOSTID"] = f"rank{rank}"  # two ranks of one GPU count as two hosts
            rank = 0
        torch.cuda.set_device(rank)
"""


class Trial:
    """The set of one kind, and what was seen of it: seconds after the fault."""

    def __init__(self, kind: str) -> None:
        self.kind, self.place = kind, PLACE / kind
        (self.place / "sets").mkdir()
        self.output = (self.place / "output").open("wb")
        self.loop = subprocess.Popen(
            ["bash", str(self.place / "bundle/run_with_docker.sh")],
            env={**os.environ, "PATH": f"{PLACE}/bin:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
        )
        self.seen: dict[str, float] = {}
        self.sentence = ""

    @property
    def root(self) -> Path | None:
        return next((self.place / "sets").iterdir(), None)

    def look(self) -> None:
        """Note what there is by now."""
        marker, root = self.place / "fault", self.root
        if not marker.exists() or root is None:
            return
        since = time.time() - float(marker.read_text() or time.time())
        if any(root.glob("runs/1/attempt_1/hang/*.txt")):
            self.seen.setdefault("evidence", since)
        if self.state(1).get("state") != "running":
            self.seen.setdefault("ended", since)
        elif "named" not in self.seen:
            shown = subprocess.run(
                [sys.executable, "-m", "orchestrator", "status", str(root), "--json"],
                cwd=TOP,
                capture_output=True,
            )
            text = json.loads(shown.stdout or b"{}").get("reason", shown.stderr.decode()[-300:])
            self.sentence = text
            if KINDS[self.kind][1] and re.search(KINDS[self.kind][1], text):
                self.seen["named"] = since

    def state(self, attempt: int) -> dict[str, Any]:
        """Return the record of an attempt, {} without one."""
        try:
            path = f"{self.root}/runs/1/attempt_{attempt}/state.json"
            record: dict[str, Any] = json.loads(Path(path).read_bytes())
        except (OSError, ValueError):
            return {}
        return record


def play(folder: Path) -> int:
    """Play all sets, print the table; return 0 if every rank was named and every set is complete."""
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(folder, PLACE)
    trials, deadline = [Trial(kind) for kind in KINDS], time.monotonic() + LIMIT_S
    while any(trial.loop.poll() is None for trial in trials) and time.monotonic() < deadline:
        for trial in trials:
            trial.look()
        time.sleep(2)
    failed = 0
    print(f"{'rank 1':10}{'evidence':>10}{'named':>8}{'ended':>8}  exit")
    for trial in trials:
        trial.look()
        seen = [
            f"{trial.seen[name]:.0f} s" if name in trial.seen else "-"
            for name in ("evidence", "named", "ended")
        ]
        print(f"{trial.kind:10}{seen[0]:>10}{seen[1]:>8}{seen[2]:>8}  {trial.loop.poll()}")
        print(f"  status: {trial.sentence}")
        print(f"  reason: {trial.state(1).get('reason')}")
        print(f"  attempt 2: {trial.state(2).get('outcome')}")
        failed += trial.loop.poll() != 0 or ("named" not in trial.seen) == bool(
            KINDS[trial.kind][1]
        )
        if trial.loop.poll() != 0:
            trial.loop.kill()
            print((trial.place / "output").read_text(errors="replace")[-3000:])
    return int(failed > 0)


if __name__ == "__main__":
    verb, place = sys.argv[1], Path(sys.argv[2])
    sys.exit(play(place) if verb == "play" else prepare(place))
