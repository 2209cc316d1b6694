"""The one-machine cluster itself: what the other tests rely on, shown on the real thing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
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


@pytest.fixture
def folder(lab: Lab) -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="cluster-", dir=lab.shared))
    yield path
    shutil.rmtree(path)


def test_the_next_test_has_idle_nodes(lab: Lab) -> None:
    """Slurm keeps a node for a job that waits, and forgets that only later than the job."""

    def states() -> dict[str, str]:
        shown = lab.run("sinfo", "--noheader", "--Node", "--partition=batch", "--format=%N %T")
        return dict(line.split() for line in shown.stdout.splitlines())

    busy, kept = lab.nodes[:2]
    wait = ("sbatch", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
    lab.run(*wait, f"--nodelist={busy}")
    lab.run(*wait, f"--nodelist={busy},{kept}", "--nodes=2")
    until(lambda: states()[kept] == "planned", states)
    lab.run("scancel", "--user=root")
    lab.free()
    assert set(states().values()) == {"idle"}


def test_a_step_has_a_task_on_every_node(lab: Lab) -> None:
    """A node has eight GPUs and no more, and a name that resolves (in one line per lab of this machine)."""
    address = "$(getent hosts $SLURMD_NODENAME | sort -u)"
    shown = f"echo $SLURM_NODEID $SLURMD_NODENAME $ROCR_VISIBLE_DEVICES {address}"
    step = (
        "srun",
        f"--nodes={len(lab.nodes)}",
        "--ntasks-per-node=1",
        "--gres=gpu:8",
        "sh",
        "-c",
        shown,
    )
    assert sorted(lab.run(*step).stdout.splitlines()) == [
        f"{k} {name} 0,1,2,3,4,5,6,7 127.0.0.1 {name}" for k, name in enumerate(lab.nodes)
    ]
    refused = lab.run("srun", "--nodes=1", "--gres=gpu:9", "true", check=False)
    assert refused.returncode != 0 and "not available" in refused.stderr


def test_a_job(lab: Lab, folder: Path) -> None:
    """With an emptied environment it reaches the engine; its steps overlap a long one; when it has ended there is a line of it."""
    everywhere = "srun --export=ALL --overlap --nodes=2 --ntasks-per-node=1"
    (folder / "job.sh").write_text(f"""#!/bin/bash
        docker info --format '{{{{.DockerRootDir}}}}'
        {everywhere} sh -c 'echo up; exec sleep 600' >held.out & held=$!
        until [ "$(grep -c up held.out)" = 2 ]; do sleep 0.05; done
        for i in 1 2 3; do {everywhere} docker version --format beside; done
        kill -0 $held && echo still held
        kill $held
        exit 3
    """)
    options = (
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gres=gpu:8",
        "--export=NONE",
        "--job-name=leaves-a-line",
    )
    output = (f"--chdir={folder}", f"--output={folder}/job.out", "--error=/dev/null")
    assert lab.batch(*options, *output, folder / "job.sh") == 3
    lines = (folder / "job.out").read_text().splitlines()
    assert lines == [str(lab.state / "docker/data"), *["beside"] * 6, "still held"]
    line = (lab.state / "slurm/jobcomp.log").read_text().split("Name=leaves-a-line ")[-1]
    assert "JobState=FAILED" in line and "ExitCode=3:0" in line


def test_a_container_has_the_devices_the_limits_and_the_name_of_its_node(lab: Lab) -> None:
    """As on a cluster, where every host has its own name; the label is what a bundle gives to each of its containers."""
    node, other = lab.nodes[0], lab.nodes[-1]
    files = [
        "/dev/kfd",
        "/dev/dri/renderD128",
        "/dev/infiniband/uverbs0",
        "/workspace/code/run_and_time.sh",
    ]
    shown = (
        "import socket, os; print(socket.gethostname(), socket.getfqdn(), os.environ['HOSTNAME'])"
    )
    script = f'ls -U {" ".join(files)}; pwd; ulimit -Sc; ulimit -Hc; python3 -c "{shown}"; getent ahostsv4 {other}'
    label = (f"--label=orchestrator.node={node}", "--ulimit=core=1024:2048")
    seen = lab.run(
        "docker", "run", "--rm", *ENGINE_OPTIONS, *label, IMAGE, "bash", "-c", script
    ).stdout.split()
    assert seen[: len(files) + 6] == [*files, "/workspace/code", "1", "2", *[node] * 3]
    assert seen[len(files) + 6] == "127.0.0.1"
    command = ("docker", "run", "--rm", "--network=host", "--uts=host", IMAGE, "hostname")
    assert lab.run(*command).stdout.strip() == os.uname().nodename


def test_a_container_ends_with_its_client(lab: Lab) -> None:
    name = f"ends-with-its-client-{os.getpid()}"

    def containers() -> str:
        return lab.run("docker", "ps", "--all", "--quiet", f"--filter=name={name}").stdout

    client = subprocess.Popen(
        [
            "docker",
            "run",
            "--rm",
            "--interactive",
            "--init",
            "--network=host",
            f"--name={name}",
            IMAGE,
            "cat",
        ],
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
    left = [
        f"hosts: {line}"
        for line in Path("/etc/hosts").read_text().splitlines()
        if str(state) in line
    ]
    left += [
        f"mount: {line}"
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
        if str(state) in line
    ]
    left += [
        f"cgroup: {path}"
        for path in Path("/sys/fs/cgroup").glob("*/orchestrator-lab*")
        if state.name in path.name
    ]
    return left + [
        f"process {pid}: {command[:200]}" for pid, command in processes_of(state).items()
    ]


class SecondLab:
    """A lab of two nodes beside the first one."""

    def __init__(self, first: Lab, state: Path) -> None:
        self.state = state
        self.env = {
            **first.env,
            "ORCHESTRATOR_LAB": str(state),
            "LAB_NODES": "2",
            "LAB_PREFIX": "second",
            "LAB_IMAGE": "no",
        }

    def __call__(
        self, program: str, *arguments: str, status: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the lab's programs."""
        ended = subprocess.run(
            [TOP / "lab" / program, *arguments],
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ended.returncode == status, ended.stdout + ended.stderr
        return ended


@pytest.fixture
def second_lab(lab: Lab) -> Iterator[SecondLab]:
    second = SecondLab(lab, Path(tempfile.mkdtemp(prefix="lab-", dir="/var/tmp")))
    yield second
    if second.state.exists():
        second("down")


def lab_pid(state: Path, name: str) -> int:
    return int((state / "pids" / name).read_text().split()[0])


def small_image(env: dict[str, str]) -> str:
    """An image with three programs of this machine; importing the stand-in's base takes a hundred times as long."""
    programs = ["/bin/sh", "/bin/touch", "/bin/sleep"]
    linked = subprocess.run(["ldd", *programs], check=True, capture_output=True, text=True).stdout
    libraries = {word for word in linked.split() if word.startswith("/") and not word.endswith(":")}
    tar = subprocess.run(
        ["tar", "--create", "--dereference", "--absolute-names", *programs, *libraries],
        check=True,
        capture_output=True,
    ).stdout
    command = ["docker", "import", "--change", "ENV PATH=/bin", "-", "small:1"]
    subprocess.run(command, env=env, input=tar, check=True, stdout=subprocess.DEVNULL)
    return "small:1"


@pytest.mark.long
def test_up_again_restarts_what_was_lost_and_down_leaves_nothing_even_of_a_broken_lab(
    lab: Lab, second_lab: SecondLab, folder: Path
) -> None:
    """A job and a container are at work, a node and the engine were killed: `lab/down` ends and removes all of it."""
    second_lab("up")
    exports = dict(
        line.removeprefix("export ").split("=", 1) for line in second_lab("env").stdout.splitlines()
    )
    state, env = Path(exports["ORCHESTRATOR_LAB"]), {**lab.env, **exports}
    lost, kept = lab_pid(state, "slurmd-second1"), lab_pid(state, "slurmctld")
    os.kill(lost, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{lost}").exists())
    second_lab("up")
    assert lab_pid(state, "slurmd-second1") != lost and lab_pid(state, "slurmctld") == kept

    (folder / "job.sh").write_text(
        "#!/bin/bash\nsrun --ntasks-per-node=1 sh -c 'exec docker run --rm --network=host "
        f'--volume={folder}:/mnt {small_image(env)} sh -c "touch /mnt/up-$SLURMD_NODENAME; exec sleep 600"\'\n'
    )
    command = ("sbatch", "--nodes=2", "--no-kill", "--output=/dev/null", folder / "job.sh")
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    until(lambda: sorted(path.name for path in folder.glob("up-*")) == ["up-second1", "up-second2"])
    for name in ("slurmd-second2", "dockerd"):
        os.kill(lab_pid(state, name), signal.SIGKILL)
    assert any("process" in trace for trace in traces(state))

    second_lab("down")
    assert traces(state) == []
    assert not state.exists()
    # The first lab's are untouched.
    assert Path("/dev/kfd").exists()
    assert lab.run("docker", "version", "--format", "{{.Server.Os}}").stdout.strip() == "linux"
    command = ("sinfo", "--noheader", "--Node", "--partition=batch", "--states=idle,mixed,alloc")
    assert lab.run(*command).stdout.strip()


@pytest.mark.long
def test_a_lab_that_a_killed_command_left_is_not_used_again(second_lab: SecondLab) -> None:
    """A container or a job of the killed one would be counted with those of the next. A person's own lab stays."""
    leaves = 'echo "$1" >"$ORCHESTRATOR_LAB/$1"; kill -KILL $PPID'
    has = 'cd "$ORCHESTRATOR_LAB"; ls first second 2>/dev/null || true'
    second_lab("with", "sh", "-c", leaves, "_", "first", status=-signal.SIGKILL)
    started_again = second_lab(
        "with", "sh", "-c", f"{has}; {leaves}", "_", "second", status=-signal.SIGKILL
    )
    assert (
        "was left by a killed command" in started_again.stderr
        and "first" not in started_again.stdout.splitlines()
    )
    second_lab("up")
    kept = second_lab("with", "sh", "-c", has)
    assert "killed" not in kept.stderr and "second" in kept.stdout.splitlines()
    assert second_lab.state.exists()
