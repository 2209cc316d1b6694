"""Whole sets on the real thing: 8 Slurm nodes, one container per node, the descriptor of a published system unmodified."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from machine import knobs
from processes import processes_of
from replayed import differences
from run_sets import Set
from until import until

from orchestrator.errors import ExitCode
from orchestrator.evidence.events import read_events
from orchestrator.evidence.replay import replay

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
SYSTEM, WORKLOAD = "MI325X_08x08x32", "flux1"


class Bench:
    """A folder on the lab's shared storage with a site file, and the command line as a user has it."""

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root, self.log_dir = lab, root, root / "results"
        self.channels_before = channels()
        site = lab.run(TOP / "lab/site").stdout
        site = re.sub(r"(?m)^log_dir: .*$", f"log_dir: {self.log_dir}", site)
        self.log_dir.mkdir(parents=True)
        self.site = root / "site.yaml"
        self.site.write_text(site)

    def add_to_site(self, text: str) -> None:
        self.site.write_text(self.site.read_text() + text)

    def orchestrator(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.lab.orchestrator(self.root, *arguments)

    def sets(self) -> list[Path]:
        return sorted(self.log_dir.glob("*/set.json"))

    def only_set(self) -> Path:
        (record,) = self.sets()
        return record.parent

    def containers(self) -> str:
        return self.lab.run(
            "docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job"
        ).stdout

    def kill_container(self, node: str) -> None:
        label = f"--filter=label=orchestrator.node={node}"
        [container] = self.lab.run("docker", "ps", "--quiet", label).stdout.split()
        self.lab.run("docker", "kill", container)


@pytest.fixture
def bench(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from bench_at(lab, request.node.name)


def bench_at(lab: Lab, name: str, make: Callable[[Lab, Path], Bench] = Bench) -> Iterator[Bench]:
    """A bench; in the end nothing of its sets is left, and the host is as it was."""
    before = knobs()
    root = lab.shared / f"test-{os.getpid()}-{name}"
    made = make(lab, root)
    yield made
    for job in made.lab.queue():
        lab.run("scancel", job)
    until(lambda: not made.lab.queue())
    until(
        lambda: left_over(made) == [], lambda: left_over(made)
    )  # of other sets on this machine too, which end by themselves
    assert knobs() == before
    assert differences(root) == []
    shutil.rmtree(root)


def channels() -> set[str]:
    """The folders in which the holders of nodes and the runs meet."""
    return {str(path) for path in Path("/tmp").glob(f"orch-{os.getuid()}-*")}


def left_over(bench: Bench) -> list[str]:
    """Containers, processes and temporary files of ours that a set should not leave."""
    left = bench.containers().split()
    left += sorted(channels() - bench.channels_before)
    left += [command for command in processes_of(bench.root).values() if str(bench.root) in command]
    left += [str(path) for path in bench.log_dir.rglob(".*tmp*")]
    return left


def most_at_once(states: list[dict[str, Any]]) -> int:
    """Return how many runs went on together at some moment, by their records."""
    changes = sorted(
        change for state in states for change in ((state["start_ms"], 1), (state["end_ms"], -1))
    )
    return max(itertools.accumulate(by for _, by in changes))


def trains(run_set: Path, run: int, attempt: int = 1) -> bool:
    """Return whether an attempt has begun its training."""
    log = run_set / f"runs/{run}/attempt_{attempt}/node_0.log"
    return log.exists() and "run_start" in log.read_text()


def minutes_by_hand(log: Path) -> float:
    """run_stop - run_start, read with nothing but a regular expression."""
    times = {
        key: int(
            re.search(
                rf'"time_ms": (\d+), "event_type": "[A-Z_]+", "key": "{key}"', log.read_text()
            )[1]
        )  # type: ignore[index]
        for key in ("run_start", "run_stop")
    }
    return (times["run_stop"] - times["run_start"]) / 60_000


def test_the_quick_stand_ins_are_as_unkind_as_their_images(lab: Lab) -> None:
    """flux1 hides every failure, llama2 has its own code where nothing was printed, and the two throw standard error away."""
    command = ("docker", "run", "--rm", "--network=host", "--tmpfs=/results")
    for image, without_seed, without_settings, is_quiet in (
        ("flux1", 1, 0, False),
        ("llama2_70b", 1, 1, True),
        ("llama31_8b", 1, 2, True),
    ):
        script = (f"rocm/amd-mlperf:{image}_training_6.0", "bash", "./run_and_time.sh")
        assert lab.run(*command, *script, check=False).returncode == without_seed, image
        done = lab.run(*command, "--env=SEED=1", *script, check=False)
        assert (done.returncode, done.stderr == "") == (without_settings, is_quiet), (
            image,
            done.stderr,
        )


def test_runs_over_eight_nodes(bench: Bench) -> None:
    answer = bench.orchestrator("run", SYSTEM, WORKLOAD, "--nexp", "3", "--json")
    assert answer.returncode == ExitCode.NO_SCORE, answer.stderr  # flux1 needs ten runs
    run_set = bench.only_set()
    made = Set(run_set)
    assert made.job["state"] == "complete" and made.results() == [1, 2, 3]
    ended, seeds = 0, set()
    for i, log in enumerate(made.result_files(), 1):
        state = made.run(i)
        assert (state["state"], state["attempt"], len(state["nodes"])) == ("success", 1, 8)
        assert set(state["exit_codes"].values()) == {0} and state["image_digest"].startswith(
            "sha256:"
        )
        assert log.read_text().count('"key": "cache_clear"') == 1
        seeds.add(state["seed"])
        # Lockstep: a run starts on all nodes before it ends on any, and after the one before it has ended on all.
        nodes = [made.json(f"runs/{i}/attempt_1/node_{rank}.json") for rank in range(8)]
        assert ended <= min(node["start_ms"] for node in nodes)
        assert max(node["start_ms"] for node in nodes) < min(node["end_ms"] for node in nodes)
        ended = max(node["end_ms"] for node in nodes)
    assert len(seeds) == 3
    times = sorted(minutes_by_hand(log) for log in made.result_files())
    score = json.loads(bench.orchestrator("score", run_set, "--json").stdout)
    assert score["olympic_mean_minutes"] == pytest.approx(times[1], abs=1e-9)
    [events] = run_set.glob("events-*.tsv")
    again = replay(read_events(events))
    # Who holds, who gets which rank, what the checks mean, and three outcomes.
    assert again.decisions >= 6 and again.differences == []
    environment = subprocess.run(
        ["env", "-i", "bash", "-c", '. "$1"; env -0', "_", run_set / "environment.sh"],
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    assert b"BATCHSIZE=2048" in environment and b"LEARNING_RATE=0.00025" in environment


def test_a_bad_day_of_the_bundle_alone(bench: Bench) -> None:
    """`sbatch job.sh` with no package and no Python of ours; the controller goes on with the set afterwards.

    Run 1 loses a node's process, then a container, run 2 meets scancel. Somebody else's container is on the nodes, and stays.
    """
    command = (
        "docker",
        "run",
        "--detach",
        "--rm",
        "--network=host",
        "orchestrator/builtin:1",
        "sleep",
        "600",
    )
    other = bench.lab.run(*command).stdout.strip()
    faults = (
        "kill:run=1:attempt=1:node=1",
        "hang:run=1:attempt=2",
        "hang:run=2:attempt=1",
    )
    what = (
        "MI300X_02x08x32",
        WORKLOAD,
        "--nexp",
        "1",
        "--env",
        f"BUILTIN_FAULT={','.join(faults)}",
    )
    try:
        bundle = bench.root / "bundle"
        assert bench.orchestrator("render", *what, "-o", bundle).returncode == 0
        env = {name: bench.lab.env[name] for name in ("SLURM_CONF", "DOCKER_HOST")} | {
            "PATH": "/usr/bin:/bin",
            "NEXP": "2",
        }
        job = subprocess.run(
            ["sbatch", "--parsable", "job.sh"],
            cwd=bundle,
            env=env,
            text=True,
            capture_output=True,
            check=True,
        ).stdout.strip()
        until(lambda: bench.sets() and trains(bench.only_set(), 1, 2))
        run_set = bench.only_set()
        made = Set(run_set)
        second = made.attempt(1, 2)["nodes"][1]
        bench.kill_container(second)
        until(lambda: trains(run_set, 2))
        bench.lab.run("scancel", job)
        until(lambda: not bench.lab.queue())
        until(lambda: bench.containers() == "")
        assert (
            bench.lab.run(
                "docker", "inspect", "--format", "{{.State.Running}}", other
            ).stdout.strip()
            == "true"
        )
    finally:
        bench.lab.run("docker", "kill", other)
    assert (
        made.json(f"jobs/{job}.json")["state"] == "cancelled"
        and made.json("set.json")["created_by"] == "job"
    )
    good = [path.read_bytes() for path in made.result_files()]

    assert bench.orchestrator("resume", run_set).returncode == 0
    watched = bench.orchestrator("watch", run_set)
    assert watched.returncode == 0, watched.stderr
    assert made.job["state"] == "complete" and made.results() == [1, 2]
    assert [path.read_bytes() for path in made.result_files()[:1]] == good
    assert made.outcomes(1) == ["infrastructure", "infrastructure", "success"]
    assert made.outcomes(2) == ["interrupted", "success"]
    killed = made.attempt(1, 1)
    assert (
        f"{second}: ./run_and_time.sh: line" in killed["reason"] and "Killed" in killed["reason"]
    ), killed
    assert set(killed["exit_codes"].values()) == {0}, "the image hides it"
    assert second in made.attempt(1, 2)["reason"]
    status = json.loads(bench.orchestrator("status", run_set, "--json").stdout)
    assert (status["state"], [run["attempt"] for run in status["runs"]]) == ("complete", [3, 2])
    assert bench.orchestrator("render", *what, "--diff", run_set).returncode == 0


@pytest.mark.long
def test_runs_of_one_node_each_go_on_side_by_side(bench: Bench) -> None:
    """Two at a time and a spare node; the container of one ends under its run."""
    submitted = bench.orchestrator(
        *(
            "submit",
            "MI355X_1x8x1",
            "llama31_8b",
            "--nexp",
            "5",
            "--side-by-side",
            "2",
            "--spares",
            "1",
        ),
        *(
            "--env",
            "BUILTIN_FAULT=hang:run=3:attempt=1",
        ),  # until its container is killed
    )
    assert submitted.returncode == 0, submitted.stderr
    run_set = bench.only_set()
    assert "#SBATCH --nodes=3\n" in (run_set / "bundle/job.sh").read_text()
    until(lambda: trains(run_set, 3))
    [lost] = Set(run_set).run(3)["nodes"]
    bench.kill_container(lost)
    until(lambda: not bench.lab.queue())
    job = Set(run_set).job
    assert job["state"] == "complete", job
    assert [(entry["node"], entry["run"], entry["kind"]) for entry in job["set_aside"]] == [
        (lost, 3, "container")
    ]
    assert Set(run_set).results() == [1, 2, 3, 4, 5]
    states = [Set(run_set).run(run) for run in range(1, 6)]
    assert [state["attempt"] for state in states] == [1, 1, 2, 1, 1]
    assert (
        len({state["seed"] for state in states})
        == len({state["master_port"] for state in states})
        == 5
    )
    used = {
        node: [state for state in states if state["nodes"] == [node]]
        for state in states
        for node in state["nodes"]
    }
    assert sum(map(len, used.values())) == 5
    for runs in used.values():
        runs.sort(key=lambda state: state["start_ms"])
        assert all(
            before["end_ms"] <= after["start_ms"] for before, after in itertools.pairwise(runs)
        )
    assert most_at_once(states) == 2 and len(list(run_set.glob("events-*.tsv"))) == 2
    groups = json.loads(bench.orchestrator("nodes", run_set, "--json").stdout)["groups"]
    assert {tuple(entry["nodes"]): len(entry["runs"]) for entry in groups if entry["runs"]} == {
        (node,): len(runs) for node, runs in used.items()
    }
