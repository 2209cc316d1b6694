"""Whole sets on the real thing: 8 Slurm nodes, one container per node, the descriptor of a published system unmodified."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import set_of_logs as sets
from machine import knobs
from processes import processes_of
from replayed import differences
from run_sets import Set
from until import until

from orchestrator.cli import main
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

    def orchestrator(self, *arguments: str | Path, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        env = self.lab.env | {"PYTHONPATH": str(TOP), "ORCHESTRATOR_SITE": str(self.site)}
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *map(str, arguments)],
            env=env,
            cwd=self.root,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def sets(self) -> list[Path]:
        return sorted(self.log_dir.glob("*/set.json"))

    def only_set(self) -> Path:
        (record,) = self.sets()
        return record.parent

    def containers(self) -> str:
        return self.lab.run("docker", "ps", "--all", "--quiet", "--filter", "label=orchestrator.job").stdout

    def queue(self) -> str:
        return self.lab.run("squeue", "--noheader", "--format=%i").stdout


@pytest.fixture
def bench(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Bench]:
    yield from bench_at(lab, request.node.name)


@pytest.fixture(scope="module")
def ten_runs(lab: Lab) -> Iterator[Bench]:
    """A bench with a set of ten runs that nobody changes."""
    for made in bench_at(lab, "ten-runs"):
        answer = made.orchestrator("run", SYSTEM, WORKLOAD, "--nexp", "10", "--json")
        assert answer.returncode == 0, answer.stderr
        yield made


def bench_at(lab: Lab, name: str, make: Callable[[Lab, Path], Bench] = Bench) -> Iterator[Bench]:
    """A bench; in the end nothing of its sets is left, and the host is as it was."""
    before = knobs()
    root = lab.shared / f"test-{os.getpid()}-{name}"
    made = make(lab, root)
    yield made
    for job in made.queue().split():
        lab.run("scancel", job)
    until(lambda: not made.queue())
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
    found = bench.containers().split()
    found += sorted(channels() - bench.channels_before)
    found += [words for words in processes_of(bench.root).values() if str(bench.root) in words]
    found += [str(path) for path in bench.log_dir.rglob(".*tmp*")]
    return found


def most_at_once(states: list[dict[str, Any]]) -> int:
    """Return how many runs went on together at some moment, by their records."""
    changes = sorted(change for state in states for change in ((state["start_ms"], 1), (state["end_ms"], -1)))
    return max(itertools.accumulate(by for _, by in changes))


def minutes_by_hand(log: Path) -> float:
    """run_stop - run_start, read with nothing but a regular expression."""
    times = {
        key: int(re.search(rf'"time_ms": (\d+), "event_type": "[A-Z_]+", "key": "{key}"', log.read_text())[1])  # type: ignore[index]
        for key in ("run_start", "run_stop")
    }
    return (times["run_stop"] - times["run_start"]) / 60_000


@pytest.mark.parametrize(
    ("image", "without_seed", "without_settings", "is_quiet"),
    [("flux1", 1, 0, False), ("llama2_70b", 1, 1, True), ("llama31_8b", 1, 2, True)],
)
def test_the_quick_stand_ins_are_as_unkind_as_their_images(
    lab: Lab, image: str, without_seed: int, without_settings: int, is_quiet: bool
) -> None:
    """flux1 hides every failure, llama2 has its own code where nothing was printed, and the two throw standard error away."""
    words = ("docker", "run", "--rm", "--network=host", "--tmpfs=/results")
    script = (f"rocm/amd-mlperf:{image}_training_6.0", "bash", "./run_and_time.sh")
    assert lab.run(*words, *script, check=False).returncode == without_seed
    done = lab.run(*words, "--env=SEED=1", *script, check=False)
    assert (done.returncode, done.stderr == "") == (without_settings, is_quiet), done.stderr


def test_ten_runs_over_eight_nodes(ten_runs: Bench) -> None:
    bench, run_set = ten_runs, ten_runs.only_set()
    logs = Set(run_set).result_files()
    assert [log.name for log in logs] == [f"result_{i}.txt" for i in range(1, 11)]
    times = sorted(minutes_by_hand(log) for log in logs)
    score = json.loads(bench.orchestrator("score", run_set, "--json").stdout)
    assert score["olympic_mean_minutes"] == pytest.approx(sum(times[1:-1]) / 8, abs=1e-9)
    seeds = set()
    for i in range(1, 11):
        state = Set(run_set).run(i)
        assert (state["state"], state["attempt"], len(state["nodes"])) == ("success", 1, 8)
        assert set(state["exit_codes"].values()) == {0}
        assert state["image_digest"].startswith("sha256:")
        seeds.add(state["seed"])
        assert len(list((run_set / f"runs/{i}/attempt_1").glob("node_*.log"))) == 8
        assert logs[i - 1].read_text().count('"key": "cache_clear"') == 1
    assert len(seeds) == 10
    # Lockstep: a run starts on all nodes before it ends on any, and after the one before it has ended on all.
    ended = 0
    for i in range(1, 11):
        nodes = [Set(run_set).json(f"runs/{i}/attempt_1/node_{rank}.json") for rank in range(8)]
        assert ended <= min(node["start_ms"] for node in nodes)
        assert max(node["start_ms"] for node in nodes) < min(node["end_ms"] for node in nodes)
        ended = max(node["end_ms"] for node in nodes)
    assert Set(run_set).job["state"] == "complete"
    [events] = run_set.glob("events-*.tsv")
    again = replay(read_events(events))
    # Who holds, who gets which rank, what the checks mean, and ten outcomes.
    assert again.decisions >= 13 and again.differences == []
    environment = subprocess.run(
        ["env", "-i", "bash", "-c", '. "$1"; env -0', "_", run_set / "environment.sh"], capture_output=True, check=True
    ).stdout.split(b"\0")
    assert b"BATCHSIZE=2048" in environment and b"WALLTIME=2055" in environment


def test_the_set_is_reported_and_packaged(ten_runs: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, report, out = tmp_path / "set", tmp_path / "report.html", tmp_path / "AMD"
    shutil.copytree(ten_runs.only_set(), root, symlinks=True)
    assert main(["report", str(root), "-o", str(report)]) == 0
    text = report.read_text()
    assert all(f">{node}<" in text for node in ten_runs.lab.nodes[:8]) and "sha256:" in text and "stand-in" in text
    capsys.readouterr()
    # A real set's logs copied in: what a real image would have left here.
    for run, content in enumerate(sets.logs(sets.NVIDIA), 1):
        (root / f"runs/{run}/result_{run}.txt").write_bytes(content)
    words = ["package", str(root), "--submitter", "AMD", "--framework", "PyTorch 2.10.0 + ROCm 7.2.2"]
    assert main([*words, "-o", str(out)]) == 1
    told = capsys.readouterr()
    for said in ("submission_org 'NVIDIA'", "BATCHSIZE=2048", "global_batch 2048", "the run was given the seed"):
        assert said in told.err, "these logs are not what was described"
    words.append("--allow-differences")
    assert main([*words, "-o", str(out), "--verify"]) == 0
    told = capsys.readouterr()
    assert "round 6.0.0: no errors" in told.out and "stand-in" not in told.err
    assert len(list((out / "results/MI325X_08x08x32/flux1").iterdir())) == 10
    assert json.loads((out / "systems/MI325X_08x08x32.json").read_text())["number_of_nodes"] == "8"
    (root / "runs/9/result_9.txt").unlink()
    assert main([*words, "-o", str(tmp_path / "nine")]) == 1
    assert "9 result files" in capsys.readouterr().err


def test_the_bundle_alone(bench: Bench) -> None:
    """`sbatch job.sh` with no package and no Python of ours gives the same; the controller understands it afterwards."""
    bundle = bench.root / "bundle"
    assert bench.orchestrator("render", SYSTEM, WORKLOAD, "--nexp", "2", "-o", bundle).returncode == 0
    env = {name: bench.lab.env[name] for name in ("SLURM_CONF", "DOCKER_HOST")} | {"PATH": "/usr/bin:/bin", "NEXP": "3"}
    job = subprocess.run(
        ["sbatch", "--parsable", "job.sh"], cwd=bundle, env=env, text=True, capture_output=True, check=True
    )
    until(lambda: not bench.queue())
    run_set = bench.only_set()
    assert len(Set(run_set).results()) == 3, (bundle / f"job_{job.stdout.strip()}.out").read_text()
    assert Set(run_set).json("set.json")["created_by"] == "job"
    status = json.loads(bench.orchestrator("status", run_set, "--json").stdout)
    assert "complete" in json.dumps(status)
    score = bench.orchestrator("score", run_set, "--json")
    assert [run["status"] for run in json.loads(score.stdout)["runs"]] == ["success"] * 3
    assert bench.orchestrator("render", SYSTEM, WORKLOAD, "--nexp", "2", "--diff", run_set).returncode == 0


def test_one_node_without_slurm(bench: Bench) -> None:
    bundle = bench.root / "bundle"
    assert bench.orchestrator("render", "MI355X_1x8x1", "llama31_8b", "-o", bundle).returncode == 0
    env = {"DOCKER_HOST": bench.lab.env["DOCKER_HOST"], "PATH": "/usr/bin:/bin", "NEXP": "3"}
    answer = subprocess.run(
        ["bash", "run_with_docker.sh"], cwd=bundle, env=env, text=True, capture_output=True, timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr
    run_set = bench.only_set()
    assert len(Set(run_set).results()) == 3
    for log in Set(run_set).result_files():
        assert minutes_by_hand(log) > 0


def test_a_bad_day(bench: Bench) -> None:
    """Run 3 loses a node's process, run 6 hangs, run 8 meets scancel; `resume` still ends with ten good runs."""
    bench.add_to_site("limits: {run_timeout_minutes: 0.4}\n")
    fault = "kill:run=3:attempt=1:node=1,hang:run=6:attempt=1,slow:run=8:attempt=1:ms=100"
    answer = bench.orchestrator("submit", SYSTEM, WORKLOAD, "--nexp", "10", "--env", f"BUILTIN_FAULT={fault}", "--json")
    assert answer.returncode == 0, answer.stderr
    job, run_set = json.loads(answer.stdout)["job_id"], bench.only_set()
    until(
        lambda: (
            (run_set / "runs/8/attempt_1/node_0.log").exists()
            and "run_start" in (run_set / "runs/8/attempt_1/node_0.log").read_text()
        )
    )
    bench.lab.run("scancel", job)
    until(lambda: not bench.containers())
    until(lambda: not bench.queue())
    assert Set(run_set).json(f"jobs/{job}.json")["state"] == "cancelled"
    interrupted = Set(run_set).attempt(8, 1)
    assert (interrupted["state"], interrupted["outcome"]) == ("failed", "interrupted")
    good = {i: (run_set / f"runs/{i}/result_{i}.txt").read_bytes() for i in range(1, 8)}

    assert bench.orchestrator("resume", run_set).returncode == 0
    watched = bench.orchestrator("watch", run_set)
    assert watched.returncode == 0, watched.stderr
    assert len(Set(run_set).results()) == 10
    assert {i: (run_set / f"runs/{i}/result_{i}.txt").read_bytes() for i in good} == good
    attempts = {i: Set(run_set).outcomes(i) for i in range(1, 11)}
    expected = {i: ["success"] for i in range(1, 11)}
    expected |= {3: ["infrastructure", "success"], 6: ["infrastructure", "success"], 8: ["interrupted", "success"]}
    assert attempts == expected
    lost = Set(run_set).attempt(3, 1)
    assert f"{bench.lab.nodes[1]}: ./run_and_time.sh: line" in lost["reason"] and "Killed" in lost["reason"], lost
    assert set(lost["exit_codes"].values()) == {0}, "the image hides it"
    assert "time-out" in Set(run_set).attempt(6, 1)["reason"]
    for i in (3, 6, 8):
        assert (run_set / f"runs/{i}/attempt_1/node_0.log").stat().st_size > 0
    assert bench.orchestrator("score", run_set).returncode == 0


def test_a_dead_container_is_renewed(bench: Bench) -> None:
    answer = bench.orchestrator(
        "submit", SYSTEM, WORKLOAD, "--nexp", "3", "--env", "BUILTIN_FAULT=slow:run=2:attempt=1:ms=100", "--json"
    )
    run_set = bench.only_set()
    log = run_set / "runs/2/attempt_1/node_0.log"
    until(lambda: log.exists() and "run_start" in log.read_text())
    names = bench.lab.run(
        "docker", "ps", "--format", "{{.Names}}", "--filter", f"label=orchestrator.node={bench.lab.nodes[2]}"
    ).stdout.split()
    bench.lab.run("docker", "kill", names[0])
    watched = bench.orchestrator("watch", run_set)
    assert watched.returncode == 0, answer.stderr + watched.stderr
    first = Set(run_set).attempt(2, 1)
    assert first["outcome"] == "infrastructure" and bench.lab.nodes[2] in first["reason"]
    assert len(Set(run_set).results()) == 3


def test_a_node_that_speaks_for_another_one_is_named(bench: Bench) -> None:
    """Its interpreter is a script that writes to the agent's output first."""
    other, liar = bench.lab.nodes[:2]
    python = bench.root / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$SLURMD_NODENAME" != {liar} ] || printf \'left\\t{other}\\t\\n\'\nexec python3 "$@"\n'
    )
    python.chmod(0o755)
    bench.add_to_site(f"python: {python}\n")
    bench.orchestrator("submit", SYSTEM, WORKLOAD, "--nexp", "1")
    run_set = bench.only_set()
    assert bench.orchestrator("watch", run_set).returncode != 0
    one = Set(run_set)
    assert f"node {liar} (rank 1): it sends lines in the name of node {other}" in one.job["reason"]
    assert [(event.node, event.detail) for event in one.events("forged")] == [(liar, f"left {other} ")]
    assert [event.node for event in one.events("fail")] == [liar]


def test_a_foreign_container_is_left_alone(bench: Bench) -> None:
    other = bench.lab.run(
        "docker", "run", "--detach", "--rm", "--network=host", "orchestrator/builtin:1", "sleep", "600"
    ).stdout.strip()
    try:
        assert bench.orchestrator("run", SYSTEM, WORKLOAD, "--nexp", "1", "--json").returncode in (0, 1)
        assert bench.lab.run("docker", "inspect", "--format", "{{.State.Running}}", other).stdout.strip() == "true"
    finally:
        bench.lab.run("docker", "kill", other)


def test_a_missing_image_is_named(bench: Bench) -> None:
    # 5.1 has another image, which the lab does not have.
    site = bench.site.read_text()
    bench.site.write_text(site + 'tunables: "off"\n')
    bundle = bench.root / "bundle"
    bench.orchestrator("render", SYSTEM, WORKLOAD, "-o", bundle)
    settings = bundle / "settings.sh"
    settings.write_text(settings.read_text().replace("rocm/amd-mlperf:flux1_training_6.0", "no/such:image"))
    subprocess.run(["sbatch", "job.sh"], cwd=bundle, env=bench.lab.env, check=True, capture_output=True)
    until(lambda: bench.sets() and not bench.queue())
    record = Set(bench.only_set()).job
    assert record["state"] == "failed"
    for node in bench.lab.nodes:
        assert f"node {node}" in record["reason"]
    assert "no/such:image is not on this node" in record["reason"]


def test_ten_runs_of_one_node_each_go_on_side_by_side(bench: Bench) -> None:
    """Three at a time and a spare node; the container of one ends under its run."""
    submitted = bench.orchestrator(
        *("submit", "MI355X_1x8x1", "llama31_8b", "--nexp", "10", "--side-by-side", "3", "--spares", "1"),
        *("--env", "BUILTIN_FAULT=slow:run=5:attempt=1:ms=30"),  # it is still going on when its container is killed
    )
    assert submitted.returncode == 0, submitted.stderr
    run_set = bench.only_set()
    assert "#SBATCH --nodes=4\n" in (run_set / "bundle/job.sh").read_text()
    log = run_set / "runs/5/attempt_1/node_0.log"
    until(lambda: log.exists() and "run_start" in log.read_text())
    [lost] = Set(run_set).run(5)["nodes"]
    told = json.loads(bench.orchestrator("status", run_set, "--json").stdout)
    assert 5 in told["current_runs"] and 2 <= len(told["current_runs"]) <= 3, told
    label = f"label=orchestrator.node={lost}"
    [container] = bench.lab.run("docker", "ps", "--quiet", "--filter", label).stdout.split()
    bench.lab.run("docker", "kill", container)
    until(lambda: not bench.queue())
    job = Set(run_set).job
    assert job["state"] == "complete", job
    assert [(one["node"], one["run"], one["kind"]) for one in job["set_aside"]] == [(lost, 5, "container")]
    states = [Set(run_set).run(run) for run in range(1, 11)]
    assert [state["state"] for state in states] == ["success"] * 10
    assert [state["attempt"] for state in states] == [1, 1, 1, 1, 2, 1, 1, 1, 1, 1]
    assert len({state["seed"] for state in states}) == len({state["master_port"] for state in states}) == 10
    on = {node: [state for state in states if state["nodes"] == [node]] for node in bench.lab.nodes}
    used = {node: runs for node, runs in on.items() if runs}
    assert len(used) == 4 and sum(map(len, used.values())) == 10
    for runs in used.values():
        runs.sort(key=lambda state: state["start_ms"])
        assert all(before["end_ms"] <= after["start_ms"] for before, after in itertools.pairwise(runs))
    assert most_at_once(states) == 3
    assert len(Set(run_set).results()) == 10 and len(list(run_set.glob("events-*.tsv"))) == 3
    groups = json.loads(bench.orchestrator("nodes", run_set, "--json").stdout)["groups"]
    assert {tuple(one["nodes"]): len(one["runs"]) for one in groups} == {
        (node,): len(runs) for node, runs in used.items()
    }
    assert bench.orchestrator("score", run_set).returncode == 0
