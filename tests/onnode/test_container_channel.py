"""A container that does not see the folder of its job ends with a word, and never says that it is up."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from until import LIMIT_S

from orchestrator.onnode.agent.container import _NOT_SEEN, _SHELL, ContainerExecutor
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.waiting import Failed, Waiting


def shell(text: str) -> subprocess.CompletedProcess[str]:
    argv = ["bash", "-c", text, "container"]
    return subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S
    )


def test_an_engine_with_another_tmp(tmp_path: Path) -> None:
    text = (_SHELL % ("", "")).replace("/orch/", f"{tmp_path}/")
    done = shell(text)
    assert (done.returncode, done.stdout) == (1, "") and "container.channel_dir" in done.stderr
    assert (
        list(tmp_path.iterdir()) == []
    )  # opened for reading and writing it would be a file, and every run would hang
    assert _NOT_SEEN in done.stderr


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
    executor._waiting, executor._up = Waiting(), False
    executor._client = SimpleNamespace(process=subprocess.Popen(["false"]))  # type: ignore[assignment]
    executor._client.process.wait()
    with pytest.raises(Failed) as failed:
        executor.await_up()
    assert reason in str(failed.value.args)
