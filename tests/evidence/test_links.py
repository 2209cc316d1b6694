"""A set is read below a log directory that is a link, too; none of its files through a link out of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from damaged_sets import UNIT, events, full_set
from sites import write_site

from orchestrator.cli import main
from orchestrator.errors import ExitCode, InputError, UsageError
from orchestrator.evidence.elastic import first_error
from orchestrator.evidence.events import read_events, read_job_notes, unreleased
from orchestrator.evidence.ledger import head_of, verify
from orchestrator.evidence.logs import content, empty_lines, rank_of
from orchestrator.evidence.own_causes import last_line
from orchestrator.evidence.progress import KeptLogs, minutes, read_end, read_ends, stand_in
from orchestrator.evidence.quotes import Quotes
from orchestrator.evidence.sets import SetEvidence, open_set
from orchestrator.evidence.silence import read_silences
from orchestrator.mllog.score import read_logs
from orchestrator.mllog.source import find_source
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.log_ends import read_log_ends
from orchestrator.onnode.kernel.records import RunRecord, write
from orchestrator.onnode.kernel.walk import FilesInside
from orchestrator.onnode.set import ledger

LINK = "cannot be read: this is a link out of the set"


def move_out(path: Path, outside: Path) -> None:
    """Leave a link to the file's new place."""
    outside.mkdir(exist_ok=True)
    os.rename(path, outside / path.name)
    path.symlink_to(outside / path.name)


EVENTS = events(
    ("node", "hello", "node-a", ""),
    ("loop", "aside", "node-a", UNIT.join(("check", "no GPU", "0", "0"))),
    ("loop", "go", "node-a", "1.1"),
    ("loop", "pulse", "", UNIT.join(("1.1", "600000", "0", "1000", "1", "0", "0"))),
)


@pytest.fixture(params=["real", "linked"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A set; `linked`: below a log directory that is a link."""
    root = full_set(tmp_path / "storage/logs")
    (tmp_path / "shared").symlink_to("storage")
    if request.param == "linked":
        return tmp_path / "shared/logs" / root.name
    return root


def test_events(root: Path, tmp_path: Path) -> None:
    path = root / "events-7.tsv"
    path.write_text(EVENTS)
    evidence = SetEvidence(root)
    assert read_silences(evidence) and unreleased(evidence, "7") == ["node-a"]
    assert [aside.node for aside in read_job_notes(evidence).aside] == ["node-a"]
    move_out(path, tmp_path / "outside")
    evidence = SetEvidence(root)
    assert not read_silences(evidence) and not unreleased(evidence, "7")
    assert not read_job_notes(evidence).aside
    assert [(finding.path, finding.problem) for finding in evidence.findings] == [(path, LINK)]
    with pytest.raises(OSError, match="link out of the set"):
        next(read_events(path, FilesInside(root)))


def test_the_folder_with_the_link_is_named(root: Path, tmp_path: Path) -> None:
    os.rename(root, tmp_path / "elsewhere")
    (tmp_path / "elsewhere/runs").rename(tmp_path / "outside")
    (tmp_path / "elsewhere/runs").symlink_to(tmp_path / "outside")
    os.rename(tmp_path / "elsewhere", root)
    evidence = SetEvidence(root)
    assert evidence.run(1) is None
    assert [str(finding) for finding in evidence.findings] == [f"{root}/runs: {LINK}"]


def test_names_of_a_folder_that_was_changed_meanwhile(root: Path, tmp_path: Path) -> None:
    """A file outside, opened by a name that is no link any more, or never was."""
    for folder in (root, tmp_path / "none"):
        place = tmp_path / "elsewhere.json"
        place.write_text("{}")
        with pytest.raises(OSError, match="link out of the set") as caught:
            FilesInside(folder).open(place)
        assert caught.value.filename == str(place)


def test_names_relative_to_the_current_folder(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    (root / "link.tsv").symlink_to("events-7.tsv")
    for name in ("events-7.tsv", "./link.tsv", "runs/../events-7.tsv"):
        assert [event.word for event in read_events(name, FilesInside("."))] == ["aside"]
    move_out(root / "events-7.tsv", tmp_path / "outside")
    with pytest.raises(OSError, match="link out of the set"):
        next(read_events("events-7.tsv", FilesInside(".")))


def test_every_folder_is_inside_the_root_folder(root: Path) -> None:
    (root / "link").symlink_to(root / "set.json")
    assert FilesInside("/").read_bytes(root / "link")


def test_commands_by_id(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The events of a set that is addressed by its id."""
    (root / "events-7.tsv").write_text(EVENTS)
    site = write_site(tmp_path / "site.yaml", root.parent)
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(site))
    for argv, text in (
        (["status", root.name], "no GPU"),
        (["nodes", root.name], "no GPU"),
        (["audit", root.name, "--only", "replay"], "replay of job 7"),
        (["score", root.name], "valid"),
        (["logs", root.name, "--run", "1"], ":::MLLOG"),
        (["explain", root.name], "10"),
    ):
        main(argv)
        out, err = capsys.readouterr()
        assert text in out and "link out" not in out + err, (argv, out, err)


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


def test_logs_and_results(root: Path, tmp_path: Path) -> None:
    """A report, a view or a score of a set shows nothing of a file elsewhere."""
    log, result = root / "runs/1/attempt_1/node_0.log", root / "runs/1/result_1.txt"
    output = root / "job_7.out"
    output.write_text("srun: error: node-a: something\n")
    files = FilesInside(root)
    reads: dict[Path, list[Callable[[], object]]] = {
        log: [
            lambda: read_end(log, files),
            lambda: KeptLogs().tail(log, files).status,
            lambda: read_log_ends(log, files),
            lambda: Quotes(Layout(root)).last_key(RunRecord(run=1, attempt=1)),
        ],
        result: [
            lambda: read_ends(result, files),
            lambda: minutes(result, files),
            lambda: stand_in(result, files) is not None,
        ],
        output: [lambda: last_line(output, files)],
    }
    for path, calls in reads.items():
        assert all(read() for read in calls)
        move_out(path, tmp_path / "outside")
        assert not any(read() for read in calls)
    for path in (log, result):
        with pytest.raises(OSError, match="link out of the set"):
            list(content(path, files))


def test_a_followed_log(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    move_out(root / "runs/1/attempt_1/node_0.log", tmp_path / "outside")
    assert main(["logs", str(root), "--run", "1", "-f"]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out == "" and LINK in err


def test_a_result_that_becomes_a_link_before_it_is_read(root: Path, tmp_path: Path) -> None:
    source = find_source(str(root))
    move_out(root / "runs/1/result_1.txt", tmp_path / "outside")
    with pytest.raises(InputError, match="result_1.txt: cannot be read: .*link out of the set"):
        read_logs(source)


def test_a_folder_of_links_is_scored(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "links"
    folder.mkdir()
    for run in range(1, 11):
        (folder / f"result_{run}.txt").symlink_to(root / f"runs/{run}/result_{run}.txt")
    assert len(read_logs(find_source(str(folder)))) == 10


def test_a_ledger(root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.append(root, ("declare", {}))
    assert head_of(root)
    move_out(root / ledger.NAME, tmp_path / "outside")
    assert head_of(root) == ""
    assert find_source(str(root)).remarks == [f"{ledger.NAME}: {LINK}"]
    capsys.readouterr()
    assert main(["audit", str(root), "--only", "ledger", "--head", "1 abc"]) == ExitCode.NO_SCORE
    problem, counted = capsys.readouterr().out.splitlines()
    assert problem == f"{ledger.NAME}: {LINK}" and ", 1 problem;" in counted
    assert [str(problem) for problem in verify(root).problems] == [f"{ledger.NAME}: {LINK}"]
    (root / "set.json").unlink()
    assert SetEvidence(root).record is None
