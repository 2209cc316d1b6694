"""Nodes with made-up networks: what the agent makes of trees that stand for /sys and /proc."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_sys import Port, build_proc, build_sys
from sites import write_site, write_system

from orchestrator.model import load_entry
from orchestrator.model.source import read
from orchestrator.onnode.agent.network import Network, look, rdma_verdict
from orchestrator.onnode.agent.node import Node, this_node
from orchestrator.onnode.kernel import program as programs
from orchestrator.onnode.kernel import settings_file as settings
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.render import render_bundle, write_bundle

# In place of a training: shows its environment, says what RCCL would say, and ends well.
CODE = """#!/usr/bin/env bash
env | grep -E '^(NCCL|GLOO)_' | sort
{words}
[ "$NODE_RANK" != 0 ] || echo ':::MLLOG {{"namespace": "", "time_ms": 1, "event_type": "INTERVAL_END", "key": "run_stop",' \
  '"value": null, "metadata": {{"status": "success"}}}}'
"""


@dataclass(frozen=True)
class Seen:
    """What a node said and wrote."""

    network: Network
    record: dict[str, object]
    variables: dict[str, tuple[str, str]]
    """Variable -> (value, origin), from network.tsv."""

    def said(self, word: str) -> list[str]:
        return {"trouble": self.network.troubles, "note": self.network.notes}[word]

    @property
    def summary(self) -> str:
        return self.network.summary

    @property
    def exports(self) -> dict[str, str | None]:
        """What is put into a run's environment; None: taken out of it."""
        return dict(self.network.exports())

    def use(self) -> dict[str, str]:
        devices = self.record["devices"]
        assert isinstance(devices, list)
        return {device["port"]: device["use"] for device in devices}


@dataclass(frozen=True)
class SetRun:
    """A set that has ended."""

    root: Path
    code: int
    output: str

    @property
    def job(self) -> dict[str, object]:
        [path] = (self.root / "jobs").glob("*.json")
        found = json.loads(path.read_bytes())
        assert isinstance(found, dict)
        return found

    def run(self) -> dict[str, object]:
        found = json.loads((self.root / "runs/1/state.json").read_bytes())
        assert isinstance(found, dict)
        return found

    def log(self, rank: int) -> str:
        return (self.root / f"runs/1/attempt_1/node_{rank}.log").read_text()


@dataclass
class Place:
    """A folder with a bundle and nodes."""

    folder: Path

    def render(
        self,
        fabric: str,
        *,
        network: str = "{}",
        nodes: int = 2,
        gpus: int = 8,
        env: str = "",
        site: Mapping[str, Any] | None = None,
        accelerator: str = "cpu",
        given: Mapping[str, str] | None = None,
    ) -> Path:
        """Write descriptor, site and bundle; return the bundle."""
        systems = self.folder / "systems"
        self.folder.joinpath("given.yaml").write_text(
            f"env: {{{env}}}\nfabric: {fabric}\nnetwork: {network}\n"
        )
        texts = read(self.folder / "given.yaml").data
        variables = {"BUILTIN_STEP_MS": "1", **texts["env"]}
        about = {"accelerator": accelerator, "gpus_per_node": gpus, "fabric": texts["fabric"]}
        write_system(systems, "two_nodes", nodes=nodes, env=variables, **about)
        more = {"systems_dirs": [str(systems)], "network": texts["network"], **(site or {})}
        write_site(self.folder / "site.yaml", self.folder / "sets", **more)
        return self.render_again(given)

    def render_again(self, given: Mapping[str, str] | None = None) -> Path:
        """Make the bundle of the documents as they are now."""
        bundle = self.folder / "bundle"
        entry = load_entry("two_nodes", "builtin", site=self.folder / "site.yaml", env=given)
        write_bundle(render_bundle(entry, nexp=1), bundle, replace_edited=True)
        return bundle

    def code(self, *words: str) -> dict[str, Any]:
        """Write the code of the runs, which print `words`; return the site's keys for it."""
        folder = self.folder / "code"
        folder.mkdir(exist_ok=True)
        (folder / "run_and_time.sh").write_text(
            CODE.format(words="\n".join(f"echo '{one}'" for one in words))
        )
        return {"code": {"builtin": str(folder)}}

    def run_set(self, bundle: Path) -> SetRun:
        """Run the set of `bundle` on two made-up nodes, local0 and local1, of this machine."""
        done = subprocess.run(
            ["bash", bundle / "run_with_docker.sh"],
            env=self.env(TMPDIR=str(self.folder)),
            text=True,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            stdout=subprocess.PIPE,
            timeout=300,
        )
        [root] = (self.folder / "sets").iterdir()
        return SetRun(root, done.returncode, done.stdout)

    def tree(
        self,
        node: str,
        ports: list[Port],
        routes: tuple[tuple[str, str, str], ...] | None = None,
        interfaces: tuple[str, ...] = ("lo", "eno0"),
    ) -> None:
        """Make the network of one node."""
        build_sys(self.folder / node / "sys", ports, interfaces)
        if routes is None:
            build_proc(self.folder / node / "proc")
        else:
            build_proc(self.folder / node / "proc", routes)

    def env(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ORCH_SYS_ROOT": f"{self.folder}/%n/sys",
            "ORCH_PROC_ROOT": f"{self.folder}/%n/proc",
            **more,
        }

    def node(self, bundle: Path, name: str = "n1") -> Node:
        """Return a node of the bundle, and evaluate the environment of its runs. Call it within `given`."""
        program = programs.read(bundle)
        values = settings.load(program.files)
        layout = Layout(Path(os.environ["ORCH_SET_DIR"]))
        layout.node(name).mkdir(parents=True, exist_ok=True)
        layout.environment.write_bytes(settings.evaluate_config(program.files, values, 1))
        return this_node(program, values)

    @contextmanager
    def given(self, node: str = "n1", **more: str) -> Iterator[None]:
        """The environment of a node's agent; "" leaves a variable out."""
        setting = self.env(
            ORCH_SET_DIR=str(self.folder / "set"),
            ORCH_JOB_ID="1",
            ORCH_NODE=node,
            NEXP="1",
            NODE_SILENCE_S="60",
            MASTER_ADDR="10.0.0.1",
            ORCH_PEER="10.0.0.2",
        )
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update({name: value for name, value in (setting | more).items() if value})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)

    def look(self, bundle: Path, node: str = "n1", **more: str) -> Seen:
        """Have the agent of a node look at its network and record what it finds."""
        with self.given(node, **more):
            found = look(self.node(bundle, node))
            found.record()
        home = found.node.folder
        rows = [line.split("\t") for line in (home / "network.tsv").read_text().splitlines()[1:]]
        record = json.loads((home / "network.json").read_bytes())
        return Seen(found, record, {name: (value, origin) for name, value, origin in rows})

    def verdict(self, bundle: Path, node: str = "n1", **more: str) -> tuple[str, str, str]:
        """Return what the check `rdma` says of a node."""
        with self.given(node, **more):
            return rdma_verdict(self.node(bundle, node))
