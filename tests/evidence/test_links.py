"""Events, records and error files of a set are not read through a link out of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from damaged_sets import UNIT, events, full_set

from orchestrator.cli import main
from orchestrator.errors import ExitCode, UsageError
from orchestrator.evidence.elastic import first_error
from orchestrator.evidence.events import read_events, read_job_notes, unreleased
from orchestrator.evidence.logs import empty_lines, rank_of
from orchestrator.evidence.sets import SetEvidence, open_set
from orchestrator.evidence.silence import read_silences
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.records import RunRecord, write

LINK = "cannot be read: this is a link out of the set"


def move_out(path: Path, outside: Path) -> None:
    """Leave a link to the file's new place."""
    outside.mkdir(exist_ok=True)
    os.rename(path, outside / path.name)
    path.symlink_to(outside / path.name)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return full_set(tmp_path / "logs")


def test_events(root: Path, tmp_path: Path) -> None:
    path = root / "events-7.tsv"
    path.write_text(
        events(
            ("node", "hello", "node-a", ""),
            ("loop", "aside", "node-a", UNIT.join(("check", "no GPU", "0", "0"))),
            ("loop", "go", "node-a", "1.1"),
            ("loop", "pulse", "", UNIT.join(("1.1", "600000", "0", "1000", "1", "0", "0"))),
        )
    )
    evidence = SetEvidence(root)
    assert read_silences(evidence) and unreleased(evidence, "7") == ["node-a"]
    assert [aside.node for aside in read_job_notes(evidence).aside] == ["node-a"]
    move_out(path, tmp_path / "outside")
    evidence = SetEvidence(root)
    assert not read_silences(evidence) and not unreleased(evidence, "7")
    assert not read_job_notes(evidence).aside
    assert [(finding.path, finding.problem) for finding in evidence.findings] == [(path, LINK)]
    with pytest.raises(OSError, match="link out of the set"):
        next(read_events(path, root))


def test_a_replay(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    move_out(root / "events-7.tsv", tmp_path / "outside")
    assert main(["audit", str(root), "--only", "replay"]) == ExitCode.BAD_INPUT
    assert "events-7.tsv cannot be read: this is a link out" in capsys.readouterr().err


def test_the_nodes_of_a_log(root: Path, tmp_path: Path) -> None:
    layout = Layout(root)
    state = layout.attempt_state(1, 1)
    write(RunRecord(run=1, attempt=1, nodes=["node-a", "node-b"]), state)
    log = layout.node_log(1, 1, 1)
    assert rank_of(layout, 1, 1, "node-b") == 1
    assert "log of node-b" in empty_lines(open_set(root), log)[0]
    move_out(state, tmp_path / "outside")
    with pytest.raises(UsageError):
        rank_of(layout, 1, 1, "node-b")
    assert "log of rank 1" in empty_lines(open_set(root), log)[0]


@pytest.mark.parametrize("is_folder", [False, True])
def test_an_error_file(is_folder: bool, tmp_path: Path) -> None:
    folder = tmp_path / "set/runs/1/attempt_1/files/n1"
    folder.mkdir(parents=True)
    path = folder / "elastic_error.json"
    path.write_text(json.dumps({"message": {"message": "KeyError: 'a'"}}))
    assert first_error(folder, tmp_path / "set") is not None
    move_out(folder if is_folder else path, tmp_path / "outside")
    assert first_error(folder, tmp_path / "set") is None
