"""Sets that really run: bundles of the real renderer, the engine `none`, small programs in place of a training."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from processes import kill_all
from run_sets import Set
from sites import local_site, write_system
from until import LIMIT_S, until

from orchestrator.evidence.events import read_events
from orchestrator.evidence.replay import replay
from orchestrator.model import Site, load_entry
from orchestrator.render import render_bundle, write_bundle

# What every program can use. `ok` is a good end; `plan` is where each test says what goes wrong, and where.
PROGRAM = r"""
set -u
me=$ORCH_RUN.$ORCH_ATTEMPT.$SLURM_NODEID
mllog() {
  local now=${EPOCHREALTIME/[.,]/} head='"namespace": "", "event_type": "POINT_IN_TIME", "value": null'
  printf ':::MLLOG {%s, "time_ms": %s, "key": "%s", "metadata": {%s}}\n' "$head" "${now:0:13}" "$1" "${2:-}"
}
stop() { [[ $SLURM_NODEID != 0 ]] || mllog run_stop '"status": "'"$1"'"'; }
hang() { echo hanging; exec sleep 1000; }
[[ $SLURM_NODEID != 0 ]] || mllog run_start
"""


@dataclass
class Loop:
    """One start of run_with_docker.sh, in a session of its own."""

    process: subprocess.Popen[str]
    folder: Path
    out: str = ""

    def __post_init__(self) -> None:
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.out += line

    def end(self) -> int:
        """Wait until it and all that writes to its output have ended."""
        self._reader.join(LIMIT_S)
        assert not self._reader.is_alive(), self.out
        return self.process.wait(LIMIT_S)

    def hear(self, text: str) -> None:
        until(lambda: text in self.out, lambda: self.out)

    def signal(self, number: int) -> None:
        """To the loop alone, as scancel --batch and `orchestrator cancel` do."""
        self.process.send_signal(number)


class Bundles:
    """Makes and starts bundles below one folder; ends everything that is left at the end of the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log_dir = folder / "sets"
        self.bundle = folder / "bundle"
        self.code = folder / "code"
        self.loops: list[Loop] = []
        for one in (self.log_dir, self.code, folder / "tmp"):
            one.mkdir()
        write_system(folder / "systems")
        write_system(folder / "systems", "two_nodes", nodes=2)

    def make(
        self,
        plan: str = "",
        *,
        system: str = "one_node",
        env: Mapping[str, str] | None = None,
        nexp: int = 2,
        **site: Any,
    ) -> Bundles:
        """Render a bundle whose runs execute PROGRAM, `plan`, and a good end."""
        limits = {"attempts": 2, "container_start_seconds": 20, **site.pop("limits", {})}
        self.program(plan)
        document = Site(
            **local_site(
                self.log_dir, **{"limits": limits, "code": {"builtin": str(self.code)}, **site}
            )
        )
        self.entry = load_entry(
            system, "builtin", site=document, env=env, systems_dirs=[self.folder / "systems"]
        )
        write_bundle(render_bundle(self.entry, nexp=nexp), self.bundle, replace_edited=True)
        return self

    def program(self, plan: str) -> None:
        (self.code / "run_and_time.sh").write_text(f"{PROGRAM}\n{plan}\nstop success\n")

    def environment(self, **more: str) -> dict[str, str]:
        own = {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "ORCH_CHANNELS": str(self.folder / "tmp"),
        }
        return {"PATH": os.environ["PATH"], **own, **more}

    def start(self, script: str = "run_with_docker.sh", **env: str) -> Loop:
        process = subprocess.Popen(
            ["bash", self.bundle / script],
            env=self.environment(**env),
            cwd="/",
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.loops.append(Loop(process, self.folder))
        return self.loops[-1]

    def run(self, **env: str) -> tuple[int, str]:
        """Start, wait for the end; its exit code and what it said."""
        loop = self.start(**env)
        return loop.end(), loop.out

    def again(self, one: Set, **env: str) -> tuple[int, str]:
        """Go on with a set, as `orchestrator resume` does."""
        return self.run(ORCH_SET_DIR=str(one.root), **env)

    @property
    def set(self) -> Set:
        """The only set there is."""
        [root] = [path for path in self.log_dir.iterdir() if path.is_dir()]
        return Set(root)

    def running(self, run: int, attempt: int, word: str) -> Set:
        """Wait until the log of an attempt has `word`."""

        def seen() -> bool:
            return any(
                word.encode() in path.read_bytes()
                for path in self.log_dir.glob(f"*/runs/{run}/attempt_{attempt}/node_0.log")
            )

        until(seen)
        return self.set

    def close(self) -> None:
        for loop in self.loops:
            if loop.process.poll() is None:
                loop.process.kill()
        kill_all(self.folder)
        for loop in self.loops:
            loop.end()

    def decisions_again(self) -> list[str]:
        """Every decision on record that the same events do not give again."""
        return [
            f"{path.name}: {difference}"
            for path in self.folder.rglob("events-*.tsv")
            for again in [replay(read_events(path))]
            for difference in [
                *again.differences,
                *[f"{again.reworded} reworded"][: again.reworded],
            ]
        ]


def made(folder: Path) -> Iterator[Bundles]:
    bundles = Bundles(folder)
    try:
        yield bundles
    finally:
        bundles.close()
    assert bundles.decisions_again() == []
