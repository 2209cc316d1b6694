"""Sets made by an earlier version are scored, resumed and verified."""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from run_sets import Set
from until import until

SETS = Path(__file__).resolve().parents[1] / "data/sets"


def unpacked(name: str, folder: Path) -> Path:
    with tarfile.open(SETS / f"{name}.tar.xz") as archive:
        # Debian 12's Python has no filters; newer ones want a choice.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return next(path.parent for path in folder.glob("**/set.json"))


def orchestrator(*words: str | Path, site: Path | None = None) -> Any:
    """Return what a command prints with --json. It must succeed."""
    options = ("--site", site) if site else ()
    done = call([*words, "--json", *options], {})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def differences(replay: dict[str, Any]) -> list[Any]:
    """Return the decisions that come out otherwise today."""
    assert sum(job["decisions"] for job in replay["jobs"].values()) > 10
    return [row for job in replay["jobs"].values() for row in job["differences"]]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def move(root: Path, log_dir: Path) -> None:
    """Rewrite the places in a set as if it had been made here: a copy is never resumed."""
    settings, manifest = root / "bundle/settings.sh", root / "bundle/manifest.json"
    settings.write_text(settings.read_text().replace("/srv/mlperf", str(log_dir)))
    made = json.loads(manifest.read_bytes())
    made["outputs"]["settings.sh"] = sha256(settings)
    manifest.write_text(json.dumps(made))
    record = json.loads((root / "set.json").read_bytes()) | {"bundle_sha256": sha256(manifest)}
    (root / "set.json").write_text(json.dumps(record))
    records = [json.loads(line) for line in (root / "ledger.jsonl").read_text().splitlines()]
    place = {"path": str(root), "inode": root.stat().st_ino}
    records[0]["data"] = {"set": record, "place": place}
    lines = list[bytes]()
    for line in records:
        line["prev"] = hashlib.sha256(lines[-1]).hexdigest() if lines else ""
        lines.append(json.dumps(line, separators=(",", ":")).encode())
    (root / "ledger.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    # Their heads are those of the records before they were rewritten.
    for path in (*root.glob("submissions/*.json"), *root.glob("jobs/*.json")):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"ledger": ""}))
    # Whether another user's job is alive could not be seen.
    for path in root.glob("*.lock"):
        path.write_text(json.dumps(json.loads(path.read_bytes()) | {"uid": os.getuid()}))
        os.utime(path, (1, 1))


def test_an_unfinished_set_is_resumed(tmp_path: Path) -> None:
    root = unpacked("unfinished", tmp_path)
    site = tmp_path / "site.yaml"
    site.write_text(site.read_text().replace("/srv/mlperf", str(tmp_path)))
    move(root, tmp_path)
    before = {path.name: sha256(path) for path in (root / "results").iterdir()}
    assert sorted(before) == ["result_1.txt", "result_2.txt"]
    assert orchestrator("status", root, site=site)["state"] == "lost"
    orchestrator("resume", root, site=site)
    until(lambda: orchestrator("status", root, site=site)["state"] == "complete")
    finished = Set(root)
    assert finished.results() == [1, 2, 3, 4, 5]
    assert finished.attempts(3) == [1, 2] and finished.attempt(3, 1)["outcome"] != "success"
    assert all(sha256(root / "results" / name) == text for name, text in before.items())
    assert orchestrator("score", root, site=site)["valid"]
    assert orchestrator("ledger", "verify", root, site=site)["problems"] == []
    assert differences(orchestrator("replay", root, site=site)) == []


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("rehearsed", tmp_path_factory.mktemp("rehearsed"))


def test_a_finished_set_is_scored(rehearsed: Path) -> None:
    score = orchestrator("score", rehearsed)
    assert score["valid"] and score["score_minutes"] == 160.3319666666667
    assert score["verdict"].startswith("rehearsal")


def test_a_finished_set_is_verified(rehearsed: Path) -> None:
    assert orchestrator("ledger", "verify", rehearsed)["problems"] == []
    assert differences(orchestrator("replay", rehearsed)) == []


@pytest.mark.parametrize("command", ["status", "nodes", "explain", "check"])
def test_a_finished_set_is_read_by_every_command(rehearsed: Path, command: str) -> None:
    orchestrator(command, rehearsed)
