"""The one-machine cluster itself: what the other tests rely on, shown on the real thing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from processes import processes_of
from until import until

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

TOP = Path(__file__).resolve().parents[2]
IMAGE = "rocm/amd-mlperf:flux1_training_6.0"
# What a round 6.0 descriptor asks of the engine.
ENGINE_OPTIONS = [
    "--device=/dev/kfd",
    "--device=/dev/dri",
    "--device=/dev/infiniband",
    "--network=host",
    "--ipc=host",
    "--uts=host",
    "--ulimit=memlock=-1:-1",
    "--ulimit=nofile=1048576:1048576",
    "--cap-add=SYS_PTRACE",
    "--cap-add=IPC_LOCK",
    "--security-opt=seccomp=unconfined",
]


def sbatch(lab: Lab, folder: Path, script: str, *options: str) -> Path:
    """Run a batch script to its end and return the file with its output."""
    (folder / "job.sh").write_text(f"#!/bin/bash\n{script}\n")
    output = folder / "job.out"
    assert lab.batch(f"--output={output}", *options, folder / "job.sh") == 0
    return output


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="cluster-", dir=lab.shared))
    yield path
    shutil.rmtree(path)


def test_one_step_runs_on_every_node(lab: Lab) -> None:
    step = lab.run(
        "srun",
        f"--nodes={len(lab.nodes)}",
        "--ntasks-per-node=1",
        "--gres=gpu:8",
        "sh",
        "-c",
        "echo $SLURM_NODEID $SLURMD_NODENAME $ROCR_VISIBLE_DEVICES",
    )
    assert sorted(step.stdout.splitlines()) == [f"{k} {name} 0,1,2,3,4,5,6,7" for k, name in enumerate(lab.nodes)]


def test_a_node_has_eight_gpus_and_no_more(lab: Lab) -> None:
    refused = lab.run("srun", "--nodes=1", "--gres=gpu:9", "true", check=False)
    assert refused.returncode != 0
    assert "not available" in refused.stderr


def test_node_names_resolve_on_the_host(lab: Lab) -> None:
    for name in lab.nodes:
        assert lab.run("getent", "hosts", name).stdout.split()[0] == "127.0.0.1"


def test_steps_overlap_a_long_one(lab: Lab, folder: Path) -> None:
    everywhere = f"srun --overlap --nodes={len(lab.nodes)} --ntasks-per-node=1"
    output = sbatch(
        lab,
        folder,
        f"""
        {everywhere} sh -c 'echo up; exec sleep 600' >held.out & held=$!
        until [ "$(grep -c up held.out)" = {len(lab.nodes)} ]; do sleep 0.05; done
        for i in 1 2 3; do {everywhere} echo beside; done
        kill -0 $held && echo still held
        kill $held
    """,
        f"--nodes={len(lab.nodes)}",
        "--ntasks-per-node=1",
        "--gres=gpu:8",
        f"--chdir={folder}",
        "--error=/dev/null",
    )
    lines = output.read_text().splitlines()
    assert lines.count("beside") == 3 * len(lab.nodes)
    assert "still held" in lines


def test_a_job_with_an_emptied_environment_reaches_the_engine(lab: Lab, folder: Path) -> None:
    output = sbatch(
        lab,
        folder,
        "docker info --format '{{.DockerRootDir}}'; srun --export=ALL docker version --format ok",
        "--export=NONE",
    )
    assert output.read_text().split() == [str(lab.state / "docker/data"), "ok"]


def test_an_ended_job_leaves_a_line(lab: Lab) -> None:
    assert lab.batch("--output=/dev/null", "--job-name=leaves-a-line", "--wrap=exit 3") == 3
    line = (lab.state / "slurm/jobcomp.log").read_text().split("Name=leaves-a-line ")[-1]
    assert "JobState=FAILED" in line
    assert "ExitCode=3:0" in line


def test_a_container_gets_the_devices_of_a_descriptor(lab: Lab) -> None:
    seen = lab.run(
        "docker",
        "run",
        "--rm",
        *ENGINE_OPTIONS,
        IMAGE,
        "bash",
        "-c",
        "ls -U /dev/kfd /dev/dri/renderD128 /dev/infiniband/uverbs0 /workspace/code/run_and_time.sh; pwd",
    )
    assert seen.stdout.split() == [
        "/dev/kfd",
        "/dev/dri/renderD128",
        "/dev/infiniband/uverbs0",
        "/workspace/code/run_and_time.sh",
        "/workspace/code",
    ]


def test_a_limit_that_the_machine_allows_is_kept(lab: Lab) -> None:
    seen = lab.run(
        "docker",
        "run",
        "--rm",
        "--network=host",
        "--ulimit=nofile=512:1024",
        IMAGE,
        "bash",
        "-c",
        "ulimit -Sn; ulimit -Hn",
    )
    assert seen.stdout.split() == ["512", "1024"]


def test_a_container_of_a_node_sees_the_nodes_name(lab: Lab) -> None:
    """As on a cluster, where every host has its own; the label is what a bundle gives to each of its containers."""
    told = "import socket, os; print(socket.gethostname(), socket.getfqdn(), os.environ['HOSTNAME'])"
    command = ["docker", "run", "--rm", "--network=host", "--uts=host"]
    for node in lab.nodes[:2]:
        seen = lab.run(*command, f"--label=orchestrator.node={node}", IMAGE, "python3", "-c", told).stdout.split()
        assert seen == [node] * 3
        others = lab.run(
            *command, f"--label=orchestrator.node={node}", IMAGE, "getent", "ahostsv4", lab.nodes[-1]
        ).stdout
        assert {line.split()[0] for line in others.splitlines()} == {"127.0.0.1"}
    assert lab.run(*command, IMAGE, "hostname").stdout.strip() == os.uname().nodename


def test_a_container_ends_with_its_client(lab: Lab) -> None:
    name = f"ends-with-its-client-{os.getpid()}"

    def containers() -> str:
        return lab.run("docker", "ps", "--all", "--quiet", f"--filter=name={name}").stdout

    client = subprocess.Popen(
        ["docker", "run", "--rm", "--interactive", "--init", "--network=host", f"--name={name}", IMAGE, "cat"],
        env=lab.env,
        stdin=subprocess.PIPE,
    )
    try:
        until(lambda: lab.run("docker", "exec", name, "true", check=False).returncode == 0)
    finally:
        client.kill()
        client.communicate()
    until(lambda: not containers())


def traces(state: Path) -> list[str]:
    """Every process, mount and host name that belongs to the lab at `state`."""
    found = [f"hosts: {line}" for line in Path("/etc/hosts").read_text().splitlines() if str(state) in line]
    found += [f"mount: {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(state) in line]
    found += [
        f"cgroup: {path}" for path in Path("/sys/fs/cgroup").glob("*/orchestrator-lab*") if state.name in path.name
    ]
    return found + [f"process {pid}: {words[:200]}" for pid, words in processes_of(state).items()]


@pytest.fixture
def second_lab(lab: Lab) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """A lab of two nodes beside the first one: a function that runs one of its commands."""
    state = Path(tempfile.mkdtemp(prefix="lab-", dir="/var/tmp"))
    env = {**lab.env, "ORCHESTRATOR_LAB": str(state), "LAB_NODES": "2", "LAB_PREFIX": "second"}

    def command(name: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [TOP / "lab" / name],
            env=env | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )

    yield command
    if state.exists():
        command("down")


def lab_pid(state: Path, name: str) -> int:
    return int((state / "pids" / name).read_text().split()[0])


def small_image(env: dict[str, str]) -> str:
    """An image with three programs of this machine; importing the stand-in's base takes a hundred times as long."""
    programs = ["/bin/sh", "/bin/touch", "/bin/sleep"]
    told = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True).stdout
    libraries = {word for word in told.split() if word.startswith("/") and not word.endswith(":")}
    tar = subprocess.run(
        ["tar", "--create", "--dereference", "--absolute-names", *programs, *libraries], check=True, capture_output=True
    ).stdout
    words = ["docker", "import", "--change", "ENV PATH=/bin", "-", "small:1"]
    subprocess.run(words, env=env, input=tar, check=True, stdout=subprocess.DEVNULL)
    return "small:1"


def test_down_leaves_nothing_even_of_a_broken_lab(
    lab: Lab, second_lab: Callable[..., subprocess.CompletedProcess[str]], folder: Path
) -> None:
    """A job and a container are at work, a node and the engine were killed: `lab/down` ends and removes all of it."""
    second_lab("up", LAB_IMAGE="no")
    exports = dict(line.removeprefix("export ").split("=", 1) for line in second_lab("env").stdout.splitlines())
    state, env = Path(exports["ORCHESTRATOR_LAB"]), {**lab.env, **exports}
    (folder / "job.sh").write_text(
        "#!/bin/bash\nsrun --ntasks-per-node=1 sh -c 'exec docker run --rm --network=host "
        f'--volume={folder}:/mnt {small_image(env)} sh -c "touch /mnt/up-$SLURMD_NODENAME; exec sleep 600"\'\n'
    )
    subprocess.run(
        ["sbatch", "--nodes=2", "--no-kill", "--output=/dev/null", folder / "job.sh"],
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    until(lambda: len(list(folder.glob("up-second*"))) == 2)
    for name in ("slurmd-second2", "dockerd"):
        os.kill(lab_pid(state, name), signal.SIGKILL)
    assert any("process" in trace for trace in traces(state))

    second_lab("down")
    assert traces(state) == []
    assert not state.exists()
    # The first lab's are untouched.
    assert Path("/dev/kfd").exists()
    assert lab.run("docker", "version", "--format", "{{.Server.Os}}").stdout.strip() == "linux"
    assert (
        len(
            lab.run("sinfo", "--noheader", "--Node", "--partition=batch", "--states=idle,mixed,alloc").stdout.split(
                "\n"
            )
        )
        > 1
    )


def test_up_again_restarts_what_was_lost(lab: Lab, second_lab: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    second_lab("up", LAB_IMAGE="no")
    exports = dict(line.removeprefix("export ").split("=", 1) for line in second_lab("env").stdout.splitlines())
    state = Path(exports["ORCHESTRATOR_LAB"])
    lost, kept = lab_pid(state, "slurmd-second1"), lab_pid(state, "slurmctld")
    os.kill(lost, signal.SIGKILL)
    second_lab("up", LAB_IMAGE="no")
    assert lab_pid(state, "slurmd-second1") != lost
    assert lab_pid(state, "slurmctld") == kept
    named = subprocess.run(
        ["srun", "--nodes=2", "printenv", "SLURMD_NODENAME"],
        env={**lab.env, **exports},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert sorted(named.stdout.split()) == ["second1", "second2"]
