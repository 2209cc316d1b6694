"""The same with podman, which has no daemon: whole sets, what dies with what, and images, code and data of a site whose engine it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import docker
import pytest
from processes import parent_of
from run_sets import Set
from test_set import SYSTEM, TOP, WORKLOAD, Bench, bench_at, minutes_by_hand
from until import LIMIT_S, until

from orchestrator.container.local import reachable

if TYPE_CHECKING:
    from labs import Lab

sys.path.insert(0, str(TOP / "tests/prepare"))
from prepare_parts import TOKEN, WAITING, Data, gate, stand_in

pytestmark = [pytest.mark.lab, pytest.mark.long]

IMAGE = "rocm/amd-mlperf:flux1_training_6.0"
ID = re.compile("sha256:[0-9a-f]{64}")


class PodmanBench(Bench):
    """A bench whose site has podman."""

    def __init__(self, lab: Lab, root: Path, podman: str) -> None:
        super().__init__(lab, root)
        self.podman = podman
        text = lab.run(TOP / "lab/site", "podman").stdout
        self.site.write_text(re.sub(r"(?m)^log_dir: .*$", f"log_dir: {self.log_dir}", text))

    def containers(self) -> str:
        return self.lab.run(self.podman, "ps", "--all", "--quiet").stdout

    def submit(self, nexp: int, *hanging: int) -> tuple[str, Path]:
        """Submit a set in which the first attempts of these runs do not end; return its job and folder."""
        fault = ",".join(f"hang:run={run}:attempt=1" for run in hanging)
        answer = self.orchestrator(
            "submit",
            SYSTEM,
            WORKLOAD,
            "--nexp",
            str(nexp),
            "--env",
            f"BUILTIN_FAULT={fault}",
            "--json",
        )
        assert answer.returncode == 0, answer.stderr
        return json.loads(answer.stdout)["job_id"], self.only_set()

    def await_run(self, run: int) -> None:
        log = self.only_set() / f"runs/{run}/attempt_1/node_0.log"
        until(lambda: log.exists() and "run_start" in log.read_text())

    def container_of(self, node: str) -> str:
        """The name of the container of a node."""
        command = (
            self.podman,
            "ps",
            "--format",
            "{{.Names}}",
            "--filter",
            f"label=orchestrator.node={node}",
        )
        return self.lab.run(*command).stdout.strip()

    def client_of(self, node: str) -> int:
        """The process that podman's command line is for the container of a node."""
        name = self.container_of(node)
        return only(pid for pid, argv in processes() if argv[1:2] == ["run"] and name in argv)


def processes() -> Iterator[tuple[int, list[str]]]:
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield int(cmdline.parent.name), cmdline.read_text(errors="replace").split("\0")
        except OSError:  # it has ended
            continue


def only(pids: Iterable[int]) -> int:
    """The only one of `pids`, but for what it has just forked: that has its command line until it starts its own program."""
    different = set(pids)
    [pid] = [pid for pid in different if parent_of(pid) not in different]
    return pid


@pytest.fixture
def bench(lab: Lab, podman: str, request: pytest.FixtureRequest) -> Iterator[PodmanBench]:
    yield from bench_at(lab, request.node.name, lambda lab, root: PodmanBench(lab, root, podman))  # type: ignore[misc]


# ---- sets ------------------------------------------------------------------------------------------------------------


def test_ten_runs_over_eight_nodes(bench: PodmanBench) -> None:
    answer = bench.orchestrator("run", SYSTEM, WORKLOAD, "--nexp", "10", "--json")
    assert answer.returncode == 0, answer.stderr
    run_set = bench.only_set()
    logs = Set(run_set).result_files()
    assert [log.name for log in logs] == [f"result_{i}.txt" for i in range(1, 11)]
    times = sorted(map(minutes_by_hand, logs))
    score = json.loads(bench.orchestrator("score", run_set, "--json").stdout)
    assert score["olympic_mean_minutes"] == pytest.approx(sum(times[1:-1]) / 8, abs=1e-9)
    for i in range(1, 11):
        state = Set(run_set).run(i)
        assert (state["state"], state["attempt"], len(state["nodes"])) == ("success", 1, 8)
        assert ID.fullmatch(state["image_digest"])
    [events] = run_set.glob("events-*.tsv")
    assert (
        "\tleftovers\x1fpass\x1f" in events.read_text() and "podman answers" in events.read_text()
    )


def test_whoever_is_killed_takes_the_container_along(bench: PodmanBench) -> None:
    """Run 2 loses a container, run 3 podman's client, run 4 the node's process: each has a new one, and ends well at last."""
    _, run_set = bench.submit(4, 2, 3, 4)
    node = bench.lab.nodes[2]
    bench.await_run(2)
    bench.lab.run(bench.podman, "kill", bench.container_of(node))
    for run in (3, 4):
        bench.await_run(run)
        client, name = bench.client_of(node), bench.container_of(node)
        os.kill(client if run == 3 else parent_of(client), signal.SIGKILL)
        until(
            lambda name=name: (
                name not in bench.lab.run(bench.podman, "ps", "--format", "{{.Names}}").stdout
            )
        )  # type: ignore[misc]
    watched = bench.orchestrator("watch", run_set)
    assert watched.returncode == 0, watched.stderr
    assert len(Set(run_set).results()) == 4
    states = {run: Set(run_set).attempt(run, 1) for run in (2, 3, 4)}
    assert [state["outcome"] for state in states.values()] == ["infrastructure"] * 3
    assert all(node in state["reason"] for state in states.values())


@pytest.mark.parametrize("end", ["scancel", "kill"])
def test_no_container_outlives_its_job(bench: PodmanBench, end: str) -> None:
    """Its end is a word to all, or the SIGKILL of the loop, which can tell nobody."""
    job, _ = bench.submit(1, 1)
    bench.await_run(1)
    assert len(bench.containers().split()) == 8
    if end == "scancel":
        bench.lab.run("scancel", job)
    else:
        os.kill(loop_of(parent_of(bench.client_of(bench.lab.nodes[0]))), signal.SIGKILL)
    until(lambda: not bench.containers())
    until(lambda: not bench.lab.queue())


def loop_of(agent: int) -> int:
    """The loop of the job that `agent` belongs to."""
    job = job_of(agent)
    return only(pid for pid, argv in processes() if "loop" in argv[-3:] and job_of(pid) == job)


def job_of(pid: int) -> list[str | None]:
    """Its Slurm and its job there, from the environment of a process."""
    entries = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    variables = dict(word.split("=", 1) for word in entries if "=" in word)
    return [variables.get(name) for name in ("SLURM_CONF", "SLURM_JOB_ID")]


# ---- images, code, data ----------------------------------------------------------------------------------------------


@pytest.fixture
def stores(bench: PodmanBench) -> Iterator[str]:
    """A command that calls a podman with a store of the node's own. The lab's store is the first node's."""
    top = bench.lab.state / "stores"  # podman takes a --runroot of 50 characters at most
    program = top / "podman"
    top.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$SLURMD_NODENAME" != {bench.lab.nodes[0]} ] || exec {bench.podman} "$@"\n'
        f"node={top}/$SLURMD_NODENAME\n"
        f'exec {bench.podman} --root "$node/storage" --runroot "$node/run" --tmpdir "$node/tmp" "$@"\n'
    )
    program.chmod(0o755)
    yield str(program)
    for mounted in top.glob("*/storage/overlay"):
        bench.lab.run("umount", mounted, check=False)
    shutil.rmtree(top)


def on_three_nodes(bench: PodmanBench, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run a command of `orchestrator images` in an allocation; return its exit code and what it says."""
    allocation = ["salloc", "--quiet", f"--nodelist={','.join(bench.lab.nodes[:3])}", "--nodes=3"]
    done = subprocess.run(
        [
            *allocation,
            sys.executable,
            "-m",
            "orchestrator",
            "images",
            *arguments,
            "--site",
            bench.site,
            "--json",
        ],
        env=bench.lab.env | {"PYTHONPATH": str(TOP)},
        cwd=bench.root,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else {"error": done.stderr}


def test_one_image_comes_onto_every_node(bench: PodmanBench, stores: str) -> None:
    local = bench.root / "local.yaml"
    local.write_text(bench.site.read_text())
    bench.site.write_text(bench.site.read_text().replace(f"[{bench.podman}]", f"[{stores}]"))
    others = list(bench.lab.nodes[1:3])
    code, checked = on_three_nodes(bench, "check", "--image", IMAGE)
    assert (code, checked["odd_nodes"]) == (1, others), [
        node["problem"] for node in checked["nodes"]
    ]
    assert ID.fullmatch(checked["wanted"]["id"])
    docker_id = bench.lab.run(
        "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE
    ).stdout.strip()
    assert checked["wanted"]["id"] == docker_id, "one content, one id, whatever the engine"
    pulled = bench.orchestrator("images", "pull", "--image", IMAGE, "--json", "--site", local)
    assert pulled.returncode == 0, pulled.stderr
    assert json.loads(pulled.stdout)["image"]["id"] == docker_id
    code, made = on_three_nodes(bench, "distribute", "--image", IMAGE)
    assert (code, made["equal"]) == (0, True), made
    assert [node["image"]["id"] for node in made["nodes"]] == [docker_id] * 3
    code, checked = on_three_nodes(bench, "check", "--image", IMAGE)
    assert (code, checked["odd_nodes"]) == (0, [])


def test_the_code_comes_out_of_the_sites_podman(bench: PodmanBench) -> None:
    copied = bench.orchestrator("code", SYSTEM, WORKLOAD, "-o", "code", "--json")
    assert copied.returncode == 0, copied.stderr
    assert (bench.root / "code/run_and_time.sh").read_bytes() == (
        TOP / "lab/standins/quick/flux1/run_and_time.sh"
    ).read_bytes()


def services() -> set[str]:
    """The folders of podman's services that are there or are named by one that runs."""
    running = [argv[4] for _, argv in processes() if argv[1:3] == ["system", "service"]]
    folders = Path(tempfile.gettempdir()).glob("orch-podman.*")
    return {
        *map(str, folders),
        *(str(Path(address.removeprefix("unix://")).parent) for address in running),
    }


def test_a_preparation_ends_with_its_podman_container(podman: str, tmp_path: Path) -> None:
    data = Data(tmp_path, "", {"HF_TOKEN": TOKEN})
    data.site.write_text(
        f"{data.site.read_text()}container: {{engine: podman, command: [{podman}]}}\n"
    )
    folder = data.folder("llama2")
    with reachable("", "podman", [podman]) as address, stand_in(address):
        process = data.start("llama2_70b_lora", "--force-space", *WAITING)
        with closing(docker.DockerClient(base_url=address)) as client, gate(folder, process):
            [running] = data.containers(client)
            assert len(services()) == 2  # of this test, and of the command
            process.kill()
            process.communicate(timeout=300)
            until(lambda: len(services()) == 1)
            assert client.api.wait(running, timeout=LIMIT_S)["StatusCode"] == 137
        again = data.prepare("llama2_70b_lora", "--force-space")
        assert again.returncode == 0, again.stderr
        assert "it died or was interrupted" in again.stderr
        logs = [log.read_text() for log in folder.rglob("data-and-model.log")]
        assert logs and not any(TOKEN in log for log in logs)
    assert services() == set()
    shown = data.prepare("llama2_70b_lora", "--dry-run").stdout
    assert f"{podman} run --rm" in shown


def test_a_podman_that_cannot_be_called_is_named(bench: PodmanBench) -> None:
    bench.site.write_text(bench.site.read_text().replace(f"[{bench.podman}]", "[/no/such/podman]"))
    answer = bench.orchestrator("code", SYSTEM, WORKLOAD)
    assert answer.returncode == 3
    assert (
        "(/no/such/podman) cannot be started: there is no" in answer.stderr
        and "--engine unix:" in answer.stderr
    )
