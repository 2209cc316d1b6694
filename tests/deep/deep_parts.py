"""The deep step as the loop has it: real agents and measuring processes on this host, a stand-in for torch."""

from __future__ import annotations

import csv
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import orchestrator.onnode
from orchestrator.onnode.kernel import settings_file as bundle_settings
from orchestrator.onnode.kernel.events import parse_word
from orchestrator.onnode.kernel.program import read
from orchestrator.onnode.loop.deep import deep_step
from orchestrator.onnode.policy.bandwidth import DeepVerdict, Search

PACKAGE = Path(orchestrator.onnode.__file__).parent
TABLE = "preflight/deep-test.tsv"
STAND_IN = Path(__file__).parent / "stand_in"


def settings_text(**values: str) -> str:
    """A settings.sh: nothing or 0 for what is not given, which is enough for the deep step."""
    limits = dict.fromkeys(bundle_settings.MOST, "20")
    words = {"ENGINE": "none", "FABRIC": "none", "NNODES": "2", "GPUS_PER_NODE": "8"}
    words |= {name.upper(): value for name, value in limits.items()}
    words["ORCH_CHANNELS"] = "${ORCH_CHANNELS:-/tmp}"  # as a bundle has it: the caller's wins
    lines = []
    for item in bundle_settings.rows():
        name = item.name.upper()
        empty = {"int": "0", "tuple[str, ...]": "()"}.get(str(item.type), "''")
        lines.append(f"{name}={values.get(name, words.get(name, empty))}\n")
    return "".join(line for line in lines if not line.startswith("DATA="))


class LocalStep:
    """`node deep` of every node, as a step of the loop."""

    def __init__(self, commands: dict[str, list[str]], log: Path, env: dict[str, str]) -> None:
        self.messages: deque[tuple[str, str, str]] = deque()
        self.log = log
        self._known, self._left = frozenset(commands), dict.fromkeys(commands, b"")
        self.selector = selectors.DefaultSelector()
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        with open(log, "wb") as errors:
            for node, command in commands.items():
                agent = subprocess.Popen(
                    command,
                    bufsize=0,
                    env=env | {"ORCH_NODE": node},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                )
                assert agent.stdout
                self.agents[node] = agent
                self.selector.register(agent.stdout, selectors.EVENT_READ, node)

    @property
    def alive(self) -> bool:
        return bool(self.selector.get_map())

    @property
    def last_text(self) -> str:
        return " ".join(self.log.read_text(errors="replace").splitlines()[-2:])

    def send(self, request: dict[str, Any]) -> None:
        for agent in self.agents.values():
            assert agent.stdin
            try:
                agent.stdin.write(json.dumps(request).encode() + b"\n")
            except (OSError, ValueError):
                pass

    def end_input(self) -> None:
        for agent in self.agents.values():
            assert agent.stdin
            agent.stdin.close()

    def wait(self, seconds: float) -> None:
        """Hear the nodes, until one has said something or ended, for so long at most."""
        for key, _ in self.selector.select(max(0.0, seconds)):
            piece = os.read(key.fd, 65536)
            *lines, self._left[key.data] = (self._left[key.data] + piece).split(b"\n")
            self.messages.extend(word for line in lines if (word := parse_word(line, self._known)))
            if not piece:
                self.selector.unregister(key.fileobj)
                self.agents[key.data].wait()

    def kill(self) -> None:
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
            for stream in (agent.stdin, agent.stdout):
                assert stream
                stream.close()
        self.selector.close()


@dataclass
class Outcome:
    """What the deep step left behind."""

    verdict: DeepVerdict
    table: list[dict[str, str]]
    """The lines of deep-<job>.tsv."""

    @property
    def rows(self) -> dict[str, tuple[str, str, str]]:
        return self.verdict.rows

    @property
    def slow(self) -> list[str]:
        return self.verdict.slow

    @property
    def summary(self) -> str:
        return self.verdict.summary

    def verdicts(self) -> dict[str, str]:
        return {node: row[0] for node, row in self.rows.items()}


class Bundle:
    """A folder that stands for a bundle, and one that stands for its set."""

    def __init__(self, folder: Path) -> None:
        self.path, self.set_dir, self.folder = folder / "bundle", folder / "set", folder
        shutil.copytree(PACKAGE, self.path / "lib", ignore=shutil.ignore_patterns("__pycache__"))
        self.set_dir.mkdir()
        self.settings()
        self.spoiled: dict[str, Path] = {}

    def settings(self, **values: str) -> None:
        (self.path / "settings.sh").write_text(settings_text(**values))

    def give_torch(self, gpus: int = 1, **stand_in: str) -> None:
        """Let the nodes find a torch that sees `gpus` GPUs; `stand_in`: see stand_in/torch."""
        names = {"PYTHONPATH": str(STAND_IN), "STAND_IN_GPUS": str(gpus)}
        names |= {f"STAND_IN_{name.upper()}": value for name, value in stand_in.items()}
        lines = (f'declare -x {name}="{value}"\n' for name, value in names.items())
        (self.set_dir / "environment.sh").write_text("".join(lines))

    def spoil(self, node: str, name: str, old: str, new: str) -> None:
        """Let a node have another text in a file of lib/."""
        self.spoiled[node] = self.folder / f"bundle-{node}"
        shutil.copytree(self.path, self.spoiled[node])
        file = self.spoiled[node] / "lib" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    def start(
        self, nodes: Sequence[str], prefix: Callable[[str], list[str]] = lambda _: [], **env: str
    ) -> LocalStep:
        """Start the agents of the nodes; `prefix` gives the words before a node's command."""
        commands = {
            node: [
                *prefix(node),
                sys.executable,
                "-I",
                "-S",
                "-B",
                str(self.spoiled.get(node, self.path) / "lib"),
                "node",
                "deep",
            ]
            for node in nodes
        }
        told = {
            "ORCH_SET_DIR": str(self.set_dir),
            "ORCH_JOB_ID": "test",
            "ORCH_CHANNELS": str(self.folder),
        }
        return LocalStep(commands, self.set_dir / "step.log", {**os.environ, **told, **env})

    def step(
        self, *nodes: str, prefix: Callable[[str], list[str]] = lambda _: [], **env: str
    ) -> Outcome:
        """Run the deep step over the nodes."""
        step = self.start(nodes, prefix, **env)
        search = Search(list(nodes), bundle_settings.load(read(self.path).files))
        try:
            with pytest.MonkeyPatch.context() as patch:
                for name in env:
                    patch.setenv(name, env[name])
                verdict = run(step, search, self.set_dir / TABLE)
            assert not step.alive, "the nodes end with their input"
        finally:
            step.kill()
        with (self.set_dir / TABLE).open() as stream:
            table = list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
        return Outcome(verdict, table)


def run(step: LocalStep, search: Search, table: Path) -> DeepVerdict:
    """Drive deep_step as the loop does."""
    found: list[DeepVerdict] = []

    def driver() -> Iterator[float]:
        found.append((yield from deep_step(step, search, table)))

    for deadline in driver():
        step.wait(deadline - time.monotonic())
    return found[0]
