"""Whatever stands in a set's folder: it is read in bounded time, without an exception, and what cannot be used is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import outputs
import pytest
from damaged_sets import DAMAGE, FOUND_ALWAYS, SMALL_FILES, full_set
from until import bounded

from orchestrator.cli import main
from orchestrator.evidence.attempts import drifts, read_attempts
from orchestrator.evidence.bandwidth import measurements
from orchestrator.evidence.bundle import edited, evaluated, files, origins, places
from orchestrator.evidence.hardware import captured
from orchestrator.evidence.nodes import read_history, suspicions
from orchestrator.evidence.picture import as_json, look
from orchestrator.evidence.sets import SetEvidence, surely_settled
from orchestrator.evidence.starts import attempt_starts, differences
from orchestrator.evidence.tunables import read_tunables

MEMBERS = ("host_processor_model_name",)


RUNS = 3
GOOD = ("A-good", "good")
DAMAGED = (*SMALL_FILES, "runs/1/attempt_1/node_0.log", "runs/2/result_2.txt")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return full_set(tmp_path_factory.mktemp("sets"), RUNS)


@pytest.fixture(scope="module")
def log_dir(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two good sets, and a third between them by name."""
    place = tmp_path_factory.mktemp("damaged")
    for name in (*GOOD, whole.name):
        shutil.copytree(whole, place / name, symlinks=True)
    return place


@pytest.fixture
def a_set(whole: Path, log_dir: Path) -> Iterator[Path]:
    """A set whose files of DAMAGED are put back after the test."""
    root = log_dir / whole.name
    yield root
    for name in DAMAGED:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        shutil.copy2(whole / name, path, follow_symlinks=False)


@pytest.fixture
def own_set(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / whole.name, symlinks=True))


def everything(root: Path) -> SetEvidence:
    """Read all there is of a set, as the commands do, and turn it into JSON that anybody can read."""
    evidence = SetEvidence(root)
    attempts = read_attempts(evidence)
    history = read_history(evidence, attempts)
    starts = attempt_starts(evidence)
    [picture] = look([root], [])
    told = [
        as_json(picture),
        [node.to_json() for node in history],
        suspicions(history),
        [one.to_json() for one in (*differences(starts), *drifts(evidence))],
        [one.gbps for one in measurements(evidence)],
        [one.knob for one in read_tunables(evidence)],
        [
            evaluated(evidence),
            places(evidence),
            origins(evidence),
            edited(evidence),
            captured(evidence, MEMBERS),
        ],
        list(files(evidence)),
        surely_settled(root),
        evidence.settled,
        list(map(str, evidence.findings)),
    ]
    json.dumps(told, allow_nan=False).encode()
    return evidence


def test_a_whole_set_has_no_findings(whole: Path) -> None:
    evidence = everything(whole)
    assert evidence.findings == []
    assert len(read_attempts(evidence)) == RUNS + 1 and len(attempt_starts(evidence)) == 1
    assert captured(evidence, MEMBERS) == {"host_processor_model_name": "EPYC"}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", SMALL_FILES)
def test_any_file_can_be_damaged(a_set: Path, name: str, damage: str) -> None:
    DAMAGE[damage](a_set / name)
    with bounded():
        evidence = everything(a_set)
    found = {finding.path.relative_to(a_set).as_posix() for finding in evidence.findings}
    assert found <= {name}
    if damage in FOUND_ALWAYS or (
        name.endswith(".json") and damage in ("junk", "empty", "another type", "nested")
    ):
        assert found == {name}


COMMANDS = (
    ("status",),
    ("nodes",),
    ("tune", "facts"),
    ("logs",),
    ("report", "-o", "-"),
    ("replay",),
)


@pytest.mark.parametrize(
    "damage", ["junk", "a folder", "a pipe", "NaN", "a large number", "half a surrogate"]
)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_no_command_breaks(
    a_set: Path, words: tuple[str, ...], damage: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """All small files at once but set.json, without which there is no set."""
    for name in SMALL_FILES[1:]:
        DAMAGE[damage](a_set / name)
    DAMAGE[damage](a_set / "runs/1/attempt_1/node_0.log")
    with bounded():
        code = main([*words, str(a_set)])
    said = capfdbinary.readouterr()
    assert code in (0, 1, 2) and b"Traceback" not in said.err, said.err.decode("utf-8", "replace")
    assert said.out or said.err


@pytest.mark.parametrize("damage", DAMAGE)
def test_status_shows_the_good_sets_beside_a_damaged_one(
    a_set: Path, tmp_path: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = a_set.parent
    site = tmp_path / "site.yaml"
    site.write_text(f"kind: site\nscheduler: slurm\nlog_dir: {log_dir}\n")
    for name in ("set.json", "jobs/7.json", "runs/1/state.json", "runs/2/result_2.txt"):
        DAMAGE[damage](a_set / name)
    assert main(["status", "--site", str(site), "--json"]) == 0
    told = {Path(one["set"]).name: one for one in outputs.checked(capsys.readouterr().out)["sets"]}
    assert {told[name]["state"] for name in GOOD} == {"complete"}
    assert {told[name]["done"] for name in GOOD} == {RUNS}
    assert told[a_set.name]["state"] == "damaged" and told[a_set.name]["findings"]
    assert main(["status", "--site", str(site)]) == 0


def test_names_that_no_node_has(own_set: Path) -> None:
    odd = "a\nb\x1b[31m"
    (own_set / "nodes" / odd).mkdir()
    (own_set / "nodes" / odd / "tunables.tsv").write_text("x\n")
    for name in (
        "runs/1\n",
        "runs/1/attempt_x\n",
        "runs/1/attempt_٣",
        "jobs/a\nb.json",
        "submissions/9\n.json",
    ):
        (own_set / name).mkdir()
    job = json.loads((own_set / "jobs/7.json").read_bytes())
    (own_set / "jobs/7.json").write_text(
        json.dumps({**job, "nodes": ["node-a", odd, ""], "spares": [odd]})
    )
    with open(own_set / "events-7.tsv", "a") as file:
        file.write(f"1\tloop\taside\t{odd}\tcheck\x1fwhy\x1f1\x1f1\n")
    evidence = everything(own_set)
    assert "no name of a node" in "\n".join(map(str, evidence.findings))
    assert all(node.node.isprintable() and node.node for node in read_history(evidence))


def test_more_runs_than_a_set_can_have(own_set: Path) -> None:
    described = json.loads((own_set / "set.json").read_bytes())
    (own_set / "set.json").write_text(json.dumps({**described, "nexp": 10**9}))
    [picture] = look([own_set], [])
    assert picture.state == "damaged" and "at most 9999 runs" in picture.reason
