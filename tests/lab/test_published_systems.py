"""Unmodified descriptors of published systems, over several nodes, on images that behave like the published ones.

The nodes are node6 to node15: Slurm counts them by number, torchrun's rendezvous sorts them by name (node10 before node6), and
the spare ones sort first in the one and in the middle of the other.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from replayed import differences

from orchestrator.onnode.kernel.settings_file import declared

if TYPE_CHECKING:
    from labs import Lab

pytestmark = [pytest.mark.lab, pytest.mark.long]

TOP = Path(__file__).resolve().parents[2]
# What the loop and the launchers give each process; configs of one node hold some of it, too.
OF_A_RUN = {
    "SEED",
    "MASTER_ADDR",
    "MASTER_PORT",
    "NODE_RANK",
    "NNODES",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
}
LIMITS = (
    "limits: {end_grace_seconds: 3, run_timeout_minutes: %s}\n"
    "acknowledged: [prerequisites]\n"  # the stand-ins are what the submitters had
)


class Sets:
    """Sets on the nodes of the lab, as a user starts them."""

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root, self.log_dir = lab, root, root / "results"
        self.log_dir.mkdir()

    def run(
        self, system: str, workload: str, *arguments: str, minutes: float = 2.0, **env: str
    ) -> PublishedSet:
        site = self.lab.run(TOP / "lab/site").stdout
        site = re.sub(r"(?m)^log_dir: .*$", f"log_dir: {self.log_dir}", site) + LIMITS % minutes
        (self.root / "site.yaml").write_text(site)
        given = {"STANDIN_RANKS": "1", "STANDIN_ENVIRONMENT": "-", **env}
        options = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
        arguments = ("run", system, workload, *arguments, *options)
        answer = self.lab.orchestrator(self.root, *arguments)
        [record] = self.log_dir.glob("*/set.json")
        return PublishedSet(record.parent, answer.stdout + answer.stderr)


class PublishedSet:
    """A set that is over. `told` is what the command printed."""

    def __init__(self, root: Path, printed: str) -> None:
        self.root, self.printed = root, printed

    def state(self, run: int, attempt: int = 0) -> dict[str, Any]:
        place = self.root / f"runs/{run}" / (f"attempt_{attempt}" if attempt else "")
        return dict(json.loads((place / "state.json").read_text()))

    def log(self, run: int, attempt: int = 1, rank: int = 0) -> str:
        return (self.root / f"runs/{run}/attempt_{attempt}/node_{rank}.log").read_text()

    def reached(self, run: int, rank: int = 0, attempt: int = 1) -> list[dict[str, Any]]:
        """What the processes of the training on a node told of themselves."""
        lines = self.log(run, attempt, rank).splitlines()
        return [
            json.loads(line.partition(":::STANDIN ")[2]) for line in lines if ":::STANDIN " in line
        ]

    def differing(self, run: int, attempt: int) -> dict[str, tuple[str, str | None]]:
        """Variables of the config that reached a process of the training with another value: (described, there)."""
        described = declared((self.root / "environment.sh").read_bytes())
        reached = [
            training
            for rank in range(len(self.state(run)["nodes"]))
            for training in self.reached(run, rank, attempt)
        ]
        assert reached
        return {
            name: (value, training["environment"].get(name))
            for training in reached
            for name, value in described.items()
            if name not in OF_A_RUN and training["environment"].get(name) != value
        }

    def good(self, runs: int) -> None:
        states = [self.state(run) for run in range(1, runs + 1)]
        assert [state["state"] for state in states] == ["success"] * runs, self.printed
        for run, state in enumerate(states, 1):
            assert self.differing(run, state["attempt"]) == {}
        assert len({state["seed"] for state in states}) == runs
        assert len(list((self.root / "results").glob("result_*.txt"))) == runs


@pytest.fixture
def sets(standins: Lab) -> Iterator[Sets]:
    root = Path(tempfile.mkdtemp(prefix="published-", dir=standins.shared))
    yield Sets(standins, root)
    assert (
        standins.run(
            "docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job"
        ).stdout
        == ""
    )
    assert differences(root) == []
    shutil.rmtree(root)


def test_flux1_on_eight_nodes_of_ten(sets: Sets) -> None:
    """One node crashes in run 2 and its script exits with 0, another one hangs in run 4; all others wait in their collectives."""
    runs = 10
    done = sets.run(
        *("MI325X_08x08x32", "flux1", "--nexp", str(runs), "--spares", "2"),
        minutes=1.5,
        STANDIN_FAULT="die:run=2:attempt=1:node=node9,hang:run=4:attempt=1:node=node12",
        STANDIN_COLLECTIVE_S="30",
    )
    done.good(runs)
    for run in range(1, runs + 1):
        attempt = 2 if run in (2, 4) else 1
        nodes = done.state(run, attempt)["nodes"]
        assert len(nodes) == 8 and nodes == sorted(nodes), "rank 0 is where c10d has it"
        # Also where the engine refuses `exec` in a container with unlimited locked memory.
        assert done.state(run, attempt)["inside"]["*"]["code"]
        assert "run_stop" in done.log(run, attempt) and "run_stop" not in done.log(run, attempt, 1)
    crashed = done.state(2, 1)
    assert (crashed["outcome"], crashed["exit_codes"]["node9"]) == ("infrastructure", 0)
    assert "node9" not in done.state(2, 2)["nodes"], "a spare took its place"
    assert "run time-out" in done.state(4, 1)["reason"]


def test_mangoboost_on_four_nodes(sets: Sets) -> None:
    done = sets.run("MI300X_4x8x1", "llama2_70b_lora", "--nexp", "1", "--round", "5.0")
    done.good(1)
    nodes = done.state(1)["nodes"]
    for rank in range(4):
        [training] = done.reached(1, rank)
        assert (training["host"], training["cwd"].startswith("/workspace/mlperf_training")) == (
            nodes[rank],
            True,
        )
        assert training["environment"]["GROUP_RANK"] == str(rank)


def test_cisco_on_two_nodes_with_a_process_for_every_gpu(sets: Sets) -> None:
    done = sets.run("MI350X_2x8x1", "llama2_70b_lora", "--nexp", "1", STANDIN_RANKS="8")
    done.good(1)
    trainings = [training for rank in (0, 1) for training in done.reached(1, rank)]
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")
    ranks = {tuple(training["environment"][name] for name in names) for training in trainings}
    assert ranks == {(str(k), str(k % 8), "16", str(k), str(k % 8), "16") for k in range(16)}
    assert not any((done.root / "shared").iterdir()), (
        "the index is gone with the containers that had it in common"
    )


@pytest.mark.parametrize("nodes", [1, 2])
def test_llama31_8b_through_primus(sets: Sets, nodes: int) -> None:
    system = {1: "MI355X_1x8x1", 2: "MI350X_2x8x1"}[nodes]
    done = sets.run(system, "llama31_8b", "--nexp", "1", "--round", "6.0")
    done.good(1)
    assert len(done.state(1)["nodes"]) == nodes
    [training] = done.reached(1)
    assert (training["rank"], training["environment"]["WORLD_SIZE"]) == (0, str(nodes))
