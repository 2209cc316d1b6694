"""The storage of a set goes away while a job of it begins: nobody makes the set's folder anew, where files would be lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_parts import Bench

from orchestrator.onnode.kernel.files import HERE, Files, make_below


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
