"""The shell of a container: it ends with a word if it does not see the folder of its job, and talks with scripts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGKILL
from types import SimpleNamespace
from typing import Any

import pytest
from until import LIMIT_S, until

from orchestrator.onnode.agent.container import _NOT_SEEN, _SHELL, ContainerExecutor, ShellReport
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.waiting import Failed, Partner, Waiting


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


@pytest.mark.parametrize(
    ("options", "words", "reason"),
    [
        (
            "name=userns",
            _NOT_SEEN,
            "(docker: userns-remap): give the site container.options: [--userns=host]",
        ),
        (
            "name=rootless",
            "mount /tmp/channel: permission denied",
            "(docker: rootless): use the engine of the",
        ),
        ("name=seccomp", "mount /tmp/channel: permission denied", "is private to the job"),
        ("name=userns", "no space left on device", "the container ended at once: no space left"),
    ],
)
def test_engines_that_map_users_are_the_reason(
    tmp_path: Path, options: str, words: str, reason: str
) -> None:
    """Their containers cannot reach a folder of the job either, and its /tmp is not the cause."""
    engine = tmp_path / "docker"
    engine.write_text(f"#!/bin/sh\n[ $1 = info ] && echo '[{options}]'\n")
    engine.chmod(0o755)
    settings = SimpleNamespace(
        engine="docker",
        engine_command=(str(engine),),
        container_options=(),
        preflight_check_s=LIMIT_S,
        container_start_s=LIMIT_S,
        results="local",
        launch_shared=(),
        site_mounts=(),
    )
    executor = ContainerExecutor.__new__(ContainerExecutor)
    executor._node = SimpleNamespace(  # type: ignore[assignment]
        settings=settings,
        results="/results",
        channel="/tmp/channel",
        channels="/tmp",
        layout=Layout(tmp_path),
        last_words=lambda lines: words,
    )
    executor._waiting, executor._report = Waiting(), ShellReport()
    executor._client = SimpleNamespace(process=subprocess.Popen(["false"]))  # type: ignore[assignment]
    executor._client.process.wait()
    executor._report.is_mapped = "name=" in options
    assert ("another user" in executor.unlike_root()) == (options != "name=seccomp")
    with pytest.raises(Failed) as failed:
        executor.await_up()
    assert reason in str(failed.value.args)


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[tuple[Path, ContainerExecutor, Waiting]]:
    """A channel, and an executor whose client is the container's shell, as a process of this host."""
    for pipe in ("request", "status"):
        os.mkfifo(tmp_path / pipe)
    text = (_SHELL % ("", "")).replace("/orch/", f"{tmp_path}/").replace("/results/", "/nowhere/")
    waiting, said = Waiting(), list[str]()
    executor = ContainerExecutor.__new__(ContainerExecutor)
    executor._node = SimpleNamespace(channel=str(tmp_path))  # type: ignore[assignment]
    executor._conversation, executor._conversations = None, 0
    executor._client = Partner(
        waiting, ["bash", "-c", text, "container"], said.append, executor._lose, errors=2
    )
    waiting.wait(lambda: "up" in said)
    yield tmp_path, executor, waiting
    end_with_its_jobs(executor._client.process)
    executor._client.input.close()
    executor._client.leave(waiting)


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
    os.kill(int(heard[0]) if what == "the script" else executor._client.process.pid, SIGKILL)
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
