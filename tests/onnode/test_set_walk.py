"""The walk of a set's folder: its lists have limits, it follows no link out of the set, and what it cannot read is noted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.source import find_source
from orchestrator.onnode.kernel import walk as walks
from orchestrator.onnode.kernel.files import HERE, raise_if_away
from orchestrator.onnode.kernel.walk import FilesInside, SetWalk, problem

LINK = "cannot be read: this is a link out of the set"


class Noted(SetWalk):
    def __init__(self, root: Path) -> None:
        self.notes: list[tuple[str, str]] = []
        super().__init__(root, FilesInside(root), self.take)

    def take(self, path: object, error: Exception) -> None:
        self.notes.append((str(path), problem(error)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "set"
    for attempt in ("1/attempt_1", "1/attempt_2", "10/attempt_1", "2", "x", "10000", "1/attempt_x"):
        (root / "runs" / attempt).mkdir(parents=True)
    for name in ("node_0.log", "node_10.log", "node_2.log", "node_2.json", ".node_3.log"):
        (root / "runs/1/attempt_2" / name).write_text("{}")
    return root


def test_it_lists_runs_attempts_and_ranks_in_order(root: Path) -> None:
    for walk in (Noted(root), SetWalk(root, HERE, raise_if_away)):
        assert walk.runs() == [1, 2, 10]
        assert [walk.attempts(run) for run in (1, 2, 3)] == [[1, 2], [], []]
        assert walk.ranks(1, 2, ".log") == [0, 2, 10]
        assert walk.submissions() == []
        assert walk.names(walk.attempt(1, 2))[:2] == ["node_0.log", "node_10.log"]


def test_no_attempt_is_lost(root: Path) -> None:
    """Each job may start 999 attempts of a run: the loop needs a new number, and views and `audit` see all."""
    for attempt in range(3, 1003):
        (root / f"runs/1/attempt_{attempt}").mkdir()
    assert SetWalk(root, HERE, raise_if_away).attempts(1)[-1] == 1002
    evidence = SetEvidence(root)
    assert evidence.attempts_of(1) == [*range(1, 1003)]
    assert evidence.tried == [*((1, attempt) for attempt in range(1, 1003)), (10, 1)]


def test_lists_and_files_have_limits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walks, "MOST_NAMES", 2)
    walk = Noted(root)
    assert len(walk.runs()) <= 2
    assert walk.notes == [(f"{root}/runs", "has more than 2 files; the rest is left out")]
    large = root / "set.json"
    large.write_bytes(b"{}")
    os.truncate(large, 1 << 40)
    assert (walk.json(large), walk.text(large, 2)) == ({}, "{}")
    assert "bytes, and at most" in walk.notes[1][1] and "longer than 2" in walk.notes[2][1]


@pytest.mark.parametrize("place", ["file", "run", "runs", "the set's own folder", "within the set"])
def test_links(place: str, root: Path, tmp_path: Path) -> None:
    state = root / "runs/1/state.json"
    state.write_text('{"a": 1}')
    link = {"file": state, "run": state.parent, "runs": state.parent.parent}.get(place)
    if link is not None:
        link.rename(tmp_path / "elsewhere")
        link.symlink_to(tmp_path / "elsewhere")
    elif place == "within the set":
        state.rename(root / "kept.json")
        state.symlink_to("../../kept.json")
    else:
        (tmp_path / "link").symlink_to("set")
        root = tmp_path / "link"
        state = root / "runs/1/state.json"
    walk = Noted(root)
    is_out = link is not None
    assert walk.json(state) == walk.json(state) == ({} if is_out else {"a": 1})
    assert walk.text(state) == ("" if is_out else '{"a": 1}')
    assert walk.has_file(state) != is_out
    assert set(walk.notes) == ({(str(link), LINK)} if is_out else set())
    if place in ("run", "runs"):
        assert walk.names(state.parent) == []
        assert walk.notes[-1] == (str(link), LINK)


def test_a_link_is_found_without_proc(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without /proc."""
    (root / "set.json").symlink_to("/etc/hostname")
    (root / "ok.json").write_text("{}")

    def refuse(path: object) -> str:
        raise FileNotFoundError

    real = os.readlink
    monkeypatch.setattr(
        os,
        "readlink",
        lambda path, **more: refuse(path) if "/proc/" in str(path) else real(path, **more),
    )
    walk = Noted(root)
    assert walk.has_file(root / "ok.json") and not walk.has_file(root / "set.json")


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"[1]", "is not a JSON object"), (b"{", "is no JSON: "), (b"\xff", "is no JSON: ")],
)
def test_an_unusable_file_is_noted(content: bytes, text: str, root: Path) -> None:
    (root / "set.json").write_bytes(content)
    walk = Noted(root)
    assert walk.json(root / "set.json") == {} and walk.json(root / "missing.json") == {}
    assert len(walk.notes) == 1 and walk.notes[0][1].startswith(text)


def test_a_folder_of_runs_that_is_a_link_is_noted_once(root: Path, tmp_path: Path) -> None:
    (root / "set.json").write_text('{"set_id": "s", "nexp": 2, "scheduler": "local"}')
    (root / "runs").rename(tmp_path / "elsewhere")
    (root / "runs").symlink_to(tmp_path / "elsewhere")
    source = find_source(str(root))
    assert (source.files, source.pending) == ([], [1, 2])
    assert (source.remarks, source.refused) == ([f"runs: {LINK}"], [])


def test_score_and_reports_walk_alike(root: Path, tmp_path: Path) -> None:
    (root / "set.json").write_text('{"set_id": "s", "nexp": 2, "scheduler": "local"}')
    (root / "runs/1/state.json").symlink_to(tmp_path / "state.json")
    (tmp_path / "state.json").write_text('{"run": 1, "state": "success", "outcome": "success"}')
    result = root / "runs/2/result_2.txt"
    (tmp_path / "result").write_text("")
    result.symlink_to(tmp_path / "result")
    source, evidence = find_source(str(root)), SetEvidence(root)
    assert evidence.tried == [(1, 1), (1, 2), (10, 1)]
    assert (source.files, source.pending) == ([], [1, 2, 10])
    assert source.remarks == [f"runs/1/state.json: {LINK}"]
    assert source.refused == [f"runs/2/result_2.txt: {LINK}"]
    assert evidence.run(1) is None
    assert [str(finding) for finding in evidence.findings] == [f"{root}/runs/1/state.json: {LINK}"]
