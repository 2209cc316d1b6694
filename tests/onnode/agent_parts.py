"""A real agent over pipes: a bundle of the real renderer with this package as its lib/, no container, and no loop."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from processes import kill_all
from sites import local_site, write_system
from until import LIMIT_S

from orchestrator.model import Site, load_entry
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.render import render_bundle, write_bundle

TOP = Path(__file__).resolve().parents[2]
STOP = ':::MLLOG {"namespace": "", "time_ms": 1, "key": "run_stop", "metadata": {"status": "success", "lineno": 1}}'


class Bench:
    """Everything that agents of one test need, below one folder. `site` goes into the site file; `plan` is the training."""

    def __init__(self, folder: Path, **site: Any) -> None:
        self.folder, self.agents = folder, list[Agent]()
        self.layout = Layout(folder / "sets" / "one")
        self.code, self.bundle, self.channels = (
            folder / "code",
            folder / "bundle",
            folder / "channels",
        )
        for one in (self.layout.root, self.code, self.channels):
            one.mkdir(parents=True)
        write_system(folder / "systems")
        usual = {"preflight": {"run": False}, "code": {"builtin": str(self.code)}}
        document = local_site(folder / "sets", **{**usual, **site})
        entry = load_entry(
            "one_node", "builtin", site=Site(**document), systems_dirs=[folder / "systems"]
        )
        write_bundle(render_bundle(entry, nexp=2), self.bundle)
        shutil.rmtree(self.bundle / "lib", ignore_errors=True)
        shutil.copytree(TOP / "orchestrator/onnode", self.bundle / "lib")
        self.layout.environment.write_text(
            'declare -x FROM_CONFIG="a \\"b\\" \\$c"\ndeclare -x EMPTY=""\n'
        )
        self.plan("echo hello")

    def plan(self, text: str) -> None:
        (self.code / "run_and_time.sh").write_text(text + "\n")

    def change(self, program: str, old: str, new: str) -> None:
        """Replace `old` in a file of the package, for agents that start from now on."""
        path = self.bundle / "lib" / program
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def agent(self, *, name: str = "n1", action: str = "hold", **environment: str) -> Agent:
        self.agents.append(Agent(self, name, action, environment))
        return self.agents[-1]

    def close(self) -> None:
        for agent in self.agents:
            agent.process.stdin and agent.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.process.wait(LIMIT_S)
            agent.process.kill()
            agent.process.wait()
            os.close(agent.output)
        kill_all(self.folder)


class Agent:
    """One agent that runs. `words` are all its messages: (word, fields); `writes` the words of each write."""

    def __init__(self, bench: Bench, name: str, action: str, environment: dict[str, str]) -> None:
        self.bench, self.name, self.words = bench, name, list[tuple[str, list[str]]]()
        self.channel = bench.channels / f"orch-{os.getuid()}-7-{name}"
        self.output, its_output = os.pipe2(os.O_CLOEXEC | os.O_DIRECT)  # keeps writes apart
        self.process = subprocess.Popen(
            ["python3", "-I", "-S", "-B", str(bench.bundle / "lib"), "node", action],
            stdin=subprocess.PIPE,
            stdout=its_output,
            bufsize=0,
            start_new_session=True,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(bench.folder),
                "ORCH_SET_DIR": str(bench.layout.root),
                "ORCH_JOB_ID": "7",
                "ORCH_NODE": name,
                "ORCH_GENERATION": "1",
                "NEXP": "2",
                "NODE_SILENCE_S": "60",
                "ORCH_CHANNELS": str(bench.channels),
                **environment,
            },
        )
        os.close(its_output)
        assert self.process.stdin is not None
        self.input = self.process.stdin
        self.writes = list[list[str]]()
        self._rest, self._heard = b"", 0

    def say(self, do: str, **members: Any) -> None:
        self.input.write(json.dumps({"do": do, **members}).encode() + b"\n")

    def prepare(self, run: int, attempt: int = 1, **more: Any) -> str:
        order = {
            "nodes": [self.name],
            "seed": 11,
            "port": 23456,
            "master": self.name,
            "clear": False,
            **more,
        }
        self.say("prepare", id=f"{run}.{attempt}", run=run, attempt=attempt, **order)
        return f"{run}.{attempt}"

    def begin(self, run: int, attempt: int = 1, **more: Any) -> str:
        """Have a run prepared and let it go."""
        self.bench.layout.attempt(run, attempt).mkdir(parents=True, exist_ok=True)
        self.prepare(run, attempt, **more)
        self.hear("prepared")
        self.say("go", id=f"{run}.{attempt}")
        return f"{run}.{attempt}"

    def hear(self, word: str) -> list[str]:
        """Return the fields of the next `word`; those before it are passed over. Fails when it ends without."""
        while True:
            while self._heard < len(self.words):
                self._heard += 1
                if self.words[self._heard - 1][0] == word:
                    return self.words[self._heard - 1][1]
            self.hear_more(word)

    def hear_more(self, word: str = "another word") -> None:
        """Read what it says next. Fails when it ends, without `word`."""
        piece = self._read()
        assert piece, f"it ended without {word}: {self.words}"
        *lines, self._rest = (self._rest + piece).split(b"\n")
        assert all(len(line) < 1000 for line in lines)
        for line in lines:
            said, node, detail = line.decode().split("\t")
            assert node == self.name
            self.words.append((said, detail.split("\x1f")))
        self.writes.append([line.partition(b"\t")[0].decode() for line in lines])

    def _read(self) -> bytes:
        assert select.select([self.output], [], [], LIMIT_S)[0], f"silent after {self.words}"
        return os.read(self.output, 65536)

    def end(self) -> int:
        """Read all that it still says, wait for its end, and return its exit status."""
        while piece := self._read():
            self._rest += piece
        for line in self._rest.decode().splitlines():
            said, _, detail = line.split("\t")
            self.words.append((said, detail.split("\x1f")))
        return self.process.wait(LIMIT_S)

    def log(self, run: int, attempt: int = 1, rank: int = 0) -> bytes:
        return self.bench.layout.node_log(run, attempt, rank).read_bytes()

    def record(self, run: int, attempt: int = 1, rank: int = 0) -> dict[str, Any]:
        return dict(json.loads(self.bench.layout.node_state(run, attempt, rank).read_bytes()))


@contextlib.contextmanager
def bench(folder: Path, **site: Any) -> Iterator[Bench]:
    made = Bench(folder, **site)
    try:
        yield made
    finally:
        made.close()
