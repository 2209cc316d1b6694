"""The storage of a set goes away while a job of it begins: nobody makes the set's folder anew, where files would be lost."""

from __future__ import annotations

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_parts import Bench
from until import until

from orchestrator.onnode.kernel.files import HERE, Files, make_below
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.loop.storage import retry, write_last


@pytest.fixture
def away(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, preflight={"run": True})
    bench.layout.root.rename(tmp_path / "away")
    yield bench
    bench.close()


def test_an_agent_that_takes_the_node(away: Bench) -> None:
    agent = away.agent()
    kind, text = agent.hear("failed")
    assert (kind, text) == (
        "storage",
        f"cannot write to {away.layout.node('n1')}: No such file or directory",
    )
    assert not away.layout.root.exists()


@pytest.mark.parametrize("action", ["check", "deep"])
def test_an_agent_that_looks_at_the_node(away: Bench, action: str) -> None:
    agent = away.agent(action=action)
    agent.input.close()
    assert agent.end() != 0 or action == "check"
    assert not away.layout.root.exists()


def test_a_folder_is_made_with_those_above_it_up_to_the_set(tmp_path: Path) -> None:
    root = tmp_path / "set"
    with pytest.raises(FileNotFoundError):
        make_below(root, root / "a/b/c")
    assert not root.exists()
    root.mkdir()
    make_below(root, root / "a/b/c")
    make_below(os.fspath(root), f"{root}/a/b/d", HERE)
    assert sorted(path.name for path in (root / "a/b").iterdir()) == ["c", "d"]


def job_with_storage(root: Path, replies: list[bool]) -> Any:
    """Each reply of the storage takes an hour."""
    clock = [0.0]

    def answers(*_: object, **__: object) -> bool:
        clock[0] += 3600.0
        return replies.pop(0)

    def try_out(path: Path) -> None:
        if not answers():
            raise OSError(errno.EIO, os.strerror(errno.EIO), os.fspath(path))

    return SimpleNamespace(
        world=SimpleNamespace(
            now=lambda: clock[0], files=SimpleNamespace(try_out=try_out), host="n1", pid=1
        ),
        settings=SimpleNamespace(storage_wait_s=1800),
        layout=Layout(root),
        ending=SimpleNamespace(has_come=lambda: False),
        reactor=SimpleNamespace(signals=set()),
        status=SimpleNamespace(clear_reason=lambda: None),
        **dict.fromkeys(("warn", "log"), lambda _: None),
        write=answers,
    )


def test_storage_is_tried_once_more_after_a_call_that_hung_for_the_whole_limit(
    tmp_path: Path,
) -> None:
    replies = [False, True]
    assert len(list(write_last(job_with_storage(tmp_path, replies), "complete", ""))) == 1
    assert replies == []
    replies = [False, True, True, True]  # the second call of `write` is that without the reason
    assert len(list(retry(job_with_storage(tmp_path, replies), lambda: None))) == 1
    assert replies == []
    with pytest.raises(OSError, match="Input/output error"):
        list(retry(job_with_storage(tmp_path, [False, True, False]), lambda: None))


def test_a_set_that_goes_away_meanwhile(tmp_path: Path) -> None:
    root = tmp_path / "set"

    class Leaving(Files):
        def make_folder(
            self, path: object, *, parents: bool = False, exist_ok: bool = False
        ) -> None:
            if str(path).endswith("/c") and root.exists():
                root.rmdir()
            super().make_folder(str(path), parents=parents, exist_ok=exist_ok)

    root.mkdir()
    with pytest.raises(FileNotFoundError):
        make_below(root, root / "a/b/c", Leaving())
    assert not root.exists()


def test_files_of_a_run_that_ends_meanwhile_fall_to_no_other_run(tmp_path: Path) -> None:
    """They lie on the node (`results: local`), and are kept when the storage is back: before the next run, or at the end."""
    bench = Bench(tmp_path, container={"engine": "none", "results": "local"})
    place, aside = bench.layout.root, tmp_path / "away"
    bench.plan(
        f'echo $SEED >"${{TORCHELASTIC_ERROR_FILE%/*}}/metrics"; [ $SEED != 2 ] && mv {place} {aside}; true'
    )
    try:
        agent = bench.agent()
        agent.hear("ready")
        for run in (1, 2, 3):
            agent.begin(run, seed=run)
            assert agent.hear("exit")
            if aside.exists():
                aside.rename(place)
        agent.input.close()
        assert agent.end() == 0
    finally:
        bench.close()
    kept = {
        path.relative_to(place).as_posix(): path.read_text().strip()
        for path in place.rglob("metrics")
    }
    assert kept == {
        "nodes/n1/unclaimed-7-n1-1-2.1/files/n1/metrics": "1",
        "runs/2/attempt_1/files/n1/metrics": "2",
        "nodes/n1/unclaimed-7-n1-1/files/n1/metrics": "3",
    }


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Bench]:
    """Nodes whose /results is on another file system than the set."""
    here = os.stat(tmp_path).st_dev
    places = [place for place in ("/dev/shm", "/var/tmp") if os.stat(place).st_dev != here]
    if not places:
        pytest.skip("there is one file system")
    with tempfile.TemporaryDirectory(dir=places[0]) as channels:
        bench = Bench(tmp_path, container={"engine": "none", "results": "local"})
        bench.channels = Path(channels)
        yield bench
        bench.close()


def test_a_deep_tree_is_kept_on_another_file_system(other: Bench) -> None:
    """Python's own removal and copy end at a depth of about 1000."""
    make = 'import os; [(os.mkdir("d"), os.chdir("d")) for _ in range(1500)]; os.mkdir("end")'
    other.plan(f"cd ${{TORCHELASTIC_ERROR_FILE%/*}}; python3 -ISc '{make}'")
    agent = other.agent()
    agent.begin(1)
    assert agent.hear("exit")[1] == "0" and agent.record(1)["exit"] == 0
    kept = other.layout.node_files(1, 1, "n1")
    assert (kept / ("d/" * 1500) / "end").exists() and os.listdir(kept) == ["d"]
    agent.input.close()
    assert agent.end() == 0
    subprocess.run(["rm", "-rf", kept], check=True)  # so does pytest


def test_pings_are_answered_while_files_are_copied_and_a_release_resumes_it_later(
    other: Bench,
) -> None:
    hangs, copying, kept = (
        other.folder / "bin/cp",
        other.folder / "copying",
        other.layout.node_files(1, 1, "n1"),
    )
    hangs.parent.mkdir()
    hangs.write_text(f'#!/bin/bash\n/bin/cp "$@"; : >{copying}; exec sleep 1000\n')
    hangs.chmod(0o755)
    other.plan("cd ${TORCHELASTIC_ERROR_FILE%/*}; mkdir one; echo 1 >one/file; echo 2 >two")
    agent = other.agent(PATH=f"{hangs.parent}:{os.environ['PATH']}")
    agent.begin(1)
    until(copying.exists)
    agent.say("ping", n=5)
    assert agent.hear("pong") == ["5"] and "exit" not in dict(agent.words)
    assert os.listdir(kept) == ["one.incomplete"]
    hangs.unlink()
    agent.input.close()
    assert agent.hear("exit")[1] == "0" and agent.record(1)["exit"] == 0
    assert agent.end() == 0
    files = {str(path.relative_to(kept)) for path in kept.rglob("*")}
    assert files == {"one", "one/file", "two"}
