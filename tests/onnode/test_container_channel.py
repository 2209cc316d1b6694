"""The shell of a container: it ends with a word if it does not see the folder of its job, and talks with scripts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from policy_parts import settings
from processes import kill_all, processes_of
from until import LIMIT_S, until

from orchestrator.onnode.agent import container
from orchestrator.onnode.agent.container import (
    _NOT_SEEN,
    _SHELL,
    ContainerExecutor,
    ShellReport,
    look_for_image,
)
from orchestrator.onnode.agent.node import Node
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.waiting import NOT_DONE, Failed, Waiting


def end_with_its_jobs(process: subprocess.Popen[Any]) -> None:
    """End a container's shell and what it has started: here no PID namespace ends with it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, SIGKILL)
    process.wait()


def shell(text: str) -> subprocess.CompletedProcess[str]:
    argv, pipe = ["bash", "-c", text, "container"], subprocess.PIPE
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as process:
        out, err = process.communicate(timeout=LIMIT_S)
        end_with_its_jobs(process)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def test_an_engine_with_another_tmp(tmp_path: Path) -> None:
    text = (_SHELL % ("", "")).replace("/orch/", f"{tmp_path}/")
    done = shell(text)
    assert (done.returncode, done.stdout) == (1, "") and "container.channel_dir" in done.stderr
    assert (
        list(tmp_path.iterdir()) == []
    )  # opened for reading and writing it would be a file, and every run would hang
    assert _NOT_SEEN in done.stderr


@pytest.mark.parametrize(
    ("users", "lines"),
    [("0 0 4294967295", ["up"]), ("0 1000 1\n1 100000 65536", ["mapped", "up"])],
)
def test_the_shell_says_whose_root_it_has(tmp_path: Path, users: str, lines: list[str]) -> None:
    for pipe in ("request", "status"):
        os.mkfifo(tmp_path / pipe)
    (tmp_path / "uid_map").write_text(f"         {users}\n")
    text = (_SHELL % ("", "")).replace("/orch/", f"{tmp_path}/")
    done = shell(text.replace("/proc/self/uid_map", f"{tmp_path}/uid_map"))
    assert (done.returncode, done.stdout.splitlines()) == (0, lines)


def test_the_report_of_the_shell_before_the_first_run() -> None:
    report = ShellReport()
    said = ("host n1.cluster", "mapped", "unwritable /data", "rdma device mlx5_0", "what", "up")
    assert [report.take(line) for line in said] == [False] * 5 + [True]
    assert report.is_up and report.is_mapped
    assert (report.host, report.unwritable) == ("n1.cluster", ["/data"])
    assert report.network_lines == ["device mlx5_0"]


@pytest.mark.parametrize(("status", "kind"), [(1, "image"), (NOT_DONE, "engine")])
def test_an_engine_that_does_not_look_in_time_lacks_no_image(
    tmp_path: Path, status: int, kind: str
) -> None:
    engine = tmp_path / "docker"
    engine.write_text(f"#!/bin/sh\n[ $1 = version ] || exit {status}\n")
    engine.chmod(0o755)
    changed = settings(engine_command=(str(engine),), preflight_check_s=LIMIT_S)
    node: Any = SimpleNamespace(settings=changed)
    state = look_for_image(node, Waiting())
    assert (state.kind, state.image_id) == (kind, "") and state.problem


ENGINE = r"""#!/bin/bash
case $1 in
  info) echo "[$(cat FOLDER/options)]" ;;
  inspect) cat FOLDER/pid ;;
  rm) echo removed ;;
  run)
    while [ "$1" != -c ]; do shift; done
    [ ! -e FOLDER/problem ] || { cat FOLDER/problem >&2; exit 1; }
    text=${2//\/orch\//CHANNEL/}
    text=${text//\/results\//FOLDER\/results\/}
    echo $$ >FOLDER/pid
    exec bash -c "${text//\/proc\/self\/uid_map/FOLDER/uid_map}" "${@:3}" ;;
esac
"""
"""An engine whose container is a process of this host."""


class StandIn:
    """In the place of the process that removes a container: what the executor says to it."""

    said: ClassVar[list[str]] = []

    def __init__(self, node: Node, container: str) -> None:
        self.said.clear()
        self.held = os.open(os.devnull, os.O_RDONLY)

    def made(self) -> None:
        self.said.append("made")

    def end(self) -> None:
        self.said.append("end")
        os.close(self.held)

    leave = end


@pytest.fixture(autouse=True)
def no_remover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "Remover", StandIn)


def executor_of(
    folder: Path,
    waiting: Waiting,
    *,
    options: str = "",
    users: str = "0 0 1",
    mounts: tuple[str, ...] = (),
) -> ContainerExecutor:
    """`options`: of the engine; `users`: the container's uid_map; `mounts`: of the site."""
    engine = folder / "docker"
    node = Node(
        "n1",
        settings(
            engine="docker",
            engine_command=(str(engine),),
            results="local",
            nnodes=1,
            container_start_s=LIMIT_S,
            preflight_check_s=LIMIT_S,
            site_mounts=mounts,
        ),
        Program({}),
        Layout(folder),
        "1",
        *("", "/sys", "/proc", "/dev", "/run", str(folder)),
    )
    node.folder.mkdir(parents=True)
    os.makedirs(node.channel)
    (folder / "options").write_text(options)
    (folder / "uid_map").write_text(f"{users}\n")
    engine.write_text(ENGINE.replace("FOLDER", str(folder)).replace("CHANNEL", node.channel))
    engine.chmod(0o755)
    return ContainerExecutor(node, waiting, (), "container", "image")


@pytest.mark.parametrize(
    ("options", "problem", "reason"),
    [
        (
            "name=userns",
            _NOT_SEEN,
            "(docker: userns-remap): give the site container.options: [--userns=host]",
        ),
        (
            "name=rootless",
            "mount %s: permission denied",
            "(docker: rootless): use the engine of the",
        ),
        ("name=seccomp", "mount %s: permission denied", "is private to the job"),
        ("name=userns", "no space left on device", "the container ended at once: no space left"),
    ],
)
def test_engines_that_map_users_are_the_reason(
    tmp_path: Path, options: str, problem: str, reason: str
) -> None:
    """Their containers cannot reach a folder of the job either, and its /tmp is not the cause."""
    channel = f"{tmp_path}/orch-{os.getuid()}-1-n1"
    (tmp_path / "problem").write_text(problem.replace("%s", channel) + "\n")
    executor = executor_of(tmp_path, Waiting(), options=options)
    with pytest.raises(Failed) as failed:
        executor.await_up()
    assert reason in str(failed.value.args)
    executor.release()
    executor.close()
    assert StandIn.said == ["end"]


def end(executor: ContainerExecutor) -> None:
    """End a container that was up, and its other processes: no PID namespace ends with it."""
    executor.release()
    executor.close()
    with suppress(ProcessLookupError):
        os.killpg(executor.root(), SIGKILL)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[tuple[Path, ContainerExecutor, Waiting]]:
    """A channel, and the executor whose container's shell is a process of this host."""
    waiting = Waiting()
    executor = executor_of(tmp_path, waiting)
    assert executor.await_up() == []
    yield tmp_path / f"orch-{os.getuid()}-1-n1", executor, waiting
    end(executor)
    kill_all(tmp_path)


@pytest.mark.parametrize("options", ["name=userns", "name=rootless", "name=seccomp"])
@pytest.mark.parametrize("users", ["0 0 4294967295", "0 1000 1"])
def test_a_running_container_whose_root_is_another_user(
    tmp_path: Path, options: str, users: str
) -> None:
    executor = executor_of(tmp_path, Waiting(), options=options, users=users)
    executor.await_up()
    is_mapped = users == "0 1000 1" and options != "name=seccomp"
    assert ("another user" in executor.unlike_root()) == is_mapped
    end(executor)
    assert StandIn.said == ["made", "end"]


def run(folder: Path, executor: ContainerExecutor, waiting: Waiting, script: str) -> list[str]:
    """Run a script in the container; return the fields of the message of its end."""
    heard = list[list[str]]()
    executor.expect(heard.append)
    (folder / "script.1.1").write_text(script)
    executor.start("1.1")
    waiting.wait(lambda: heard and heard[-1][1] == "ended")
    return heard[-1]


def test_files_of_a_run_are_for_every_user_but_neither_mounts_nor_what_a_link_names(
    tmp_path: Path,
) -> None:
    results, foreign, waiting = tmp_path / "results", tmp_path / "foreign", Waiting()
    for folder in (results / "a mount/of", results / ".hidden", results / "its own", foreign):
        folder.mkdir(parents=True)
        (folder / "file").touch(0o600)
        folder.chmod(0o700)
    (results / "latest").symlink_to(foreign)
    mount = f"{foreign}\t/results/a mount/of\trw"
    executor = executor_of(tmp_path, waiting, mounts=(mount,))
    executor.await_up()
    channel = tmp_path / f"orch-{os.getuid()}-1-n1"
    assert run(channel, executor, waiting, "exit 3") == ["1.1", "ended", "3", "0"]
    end(executor)
    mode = {path: path.stat().st_mode & 0o777 for path in tmp_path.glob("**/file")}
    assert [mode[results / name / "file"] for name in (".hidden", "its own")] == [0o666] * 2
    assert [mode[path / "file"] for path in (results / "a mount/of", foreign)] == [0o600] * 2
    assert (results / "its own").stat().st_mode & 0o777 == 0o777
    assert foreign.stat().st_mode & 0o777 == 0o700


def test_processes_of_a_run_with_sessions_of_their_own_end_with_it(
    tmp_path: Path, channel: tuple[Path, ContainerExecutor, Waiting]
) -> None:
    """Those of an earlier run stay: what looks for them may hang, and must not find the next run. So do
    those of another container, which are seen with --pid=host."""
    folder, executor, waiting = channel
    start = "cd %s; setsid bash -c 'echo $$ >%s; while :; do sleep 0.01; done' &\n"
    start += "until [ -s %s ]; do :; done\n"
    session, other = tmp_path / "session", tmp_path / "other"
    run(folder, executor, waiting, f'echo -n "$ORCH_MARK" >{tmp_path}/mark')
    marked = {**os.environ, "ORCH_MARK": (tmp_path / "mark").read_text(), "ORCH_RUN": "1"}
    assert marked["ORCH_MARK"]
    with subprocess.Popen(["bash", "-c", start % (tmp_path, other, other)], env=marked):
        pass
    assert run(folder, executor, waiting, start % (tmp_path, session, session)) == [
        *("1.1", "ended", "0", "0")
    ]
    alive = processes_of(tmp_path)
    assert int(other.read_text()) in alive and int(session.read_text()) not in alive


ECHO = 'echo $$\nwhile read -r line; do echo "heard $line"; done\n'


def test_lines_to_and_from_a_script_beside_the_runs(
    channel: tuple[Path, ContainerExecutor, Waiting],
) -> None:
    folder, executor, waiting = channel
    (folder / "echo.sh").write_text(ECHO)
    heard, ended = list[str](), list[bool]()
    talk = executor.converse(waiting, "echo.sh", heard.append, lambda: ended.append(True))
    for line in ("one", "two"):
        assert talk.send(line)
    waiting.wait(lambda: len(heard) == 3)
    assert heard[1:] == ["heard one", "heard two"] and not ended
    talk.close()  # it ends with its input
    until(lambda: not Path(f"/proc/{heard[0]}").exists())
    assert not talk.send("three") and {one.name for one in folder.iterdir()} == {
        "request",
        "status",
        "echo.sh",
    }


@pytest.mark.parametrize("what", ["the script", "the container"])
def test_a_conversation_that_is_cut_off(
    channel: tuple[Path, ContainerExecutor, Waiting], what: str
) -> None:
    folder, executor, waiting = channel
    (folder / "echo.sh").write_text(ECHO)
    heard, ended = list[str](), list[bool]()
    talk = executor.converse(waiting, "echo.sh", heard.append, lambda: ended.append(True))
    waiting.wait(lambda: heard)
    os.kill(int(heard[0]) if what == "the script" else executor.root(), SIGKILL)
    waiting.wait(lambda: ended)
    assert ended == [True] and not talk.send("more")
    talk.close()


def test_a_conversation_that_was_given_up_says_nothing_in_the_next(
    channel: tuple[Path, ContainerExecutor, Waiting],
) -> None:
    folder, executor, waiting = channel
    (folder / "slow.sh").write_text(f"read -r line <{folder}/go\necho late\n")
    (folder / "echo.sh").write_text(ECHO)
    os.mkfifo(folder / "go")
    first, second = list[str](), list[str]()
    executor.converse(waiting, "slow.sh", first.append, lambda: None).close()
    talk = executor.converse(waiting, "echo.sh", second.append, lambda: None)
    waiting.wait(lambda: second)
    with open(os.open(folder / "go", os.O_RDWR), "w") as go:
        go.write("go\n")
        go.flush()
        talk.send("now")
        waiting.wait(lambda: len(second) == 2)
    assert first == [] and second[1] == "heard now"
    talk.close()


def test_a_conversation_without_its_second_pipe_leaves_nothing(
    channel: tuple[Path, ContainerExecutor, Waiting],
) -> None:
    folder, executor, waiting = channel
    (folder / "answer.1").write_text("")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(FileExistsError):
        executor.converse(waiting, "echo.sh", print, print)
    assert os.listdir("/proc/self/fd") == before and not (folder / "ask.1").exists()
