"""`orchestrator export --format prometheus`: read by Prometheus' own parser, with what the sets' files say."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from controller_parts import Commands, write_set
from prometheus_client.parser import text_string_to_metric_families
from sites import write_site

from orchestrator.errors import ExitCode
from orchestrator.evidence.metrics import Family, exposition
from orchestrator.evidence.sets import SubmissionRecord
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, read, write

ASIDE = {"node": "n2", "kind": "exit", "reason": "it died", "run": 1, "attempt": 1, "time_ms": 5}


def samples(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Metric -> its labels but system and workload -> value."""
    return {
        family.name: {
            tuple(
                sorted(
                    (name, value)
                    for name, value in sample.labels.items()
                    if name not in ("system", "workload")
                )
            ): sample.value
            for sample in family.samples
        }
        for family in text_string_to_metric_families(text)
    }


@pytest.fixture
def log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete set that waited 40 s and lost a node, one that was refused, and a damaged one."""
    folder = tmp_path / "sets"
    job = JobRecord(
        job_id="7",
        state="complete",
        started_ms=50_000,
        ended_ms=90_000,
        nodes=["n1"],
        set_aside=[ASIDE],
    )
    asked = SubmissionRecord(number=1, state="submitted", job_id="7", requested_ms=10_000)
    root = write_set(folder, "S-w-20261121-101500-0001", done=3, job=job, submission=asked)
    good = read(RunRecord, root / "runs/2/state.json")
    assert isinstance(good, RunRecord)
    (root / "runs/2/attempt_2").mkdir()
    write(
        replace(good, attempt=2, state="failed", outcome="infrastructure"),
        root / "runs/2/attempt_2/state.json",
    )
    write_set(
        folder, "S-w-20261121-111500-0002", submission=SubmissionRecord(number=1, state="refused")
    )
    (folder / "S-w-20261121-121500-0003").mkdir()
    (folder / "S-w-20261121-121500-0003/set.json").write_text("{")
    monkeypatch.setenv("ORCHESTRATOR_SITE", str(write_site(tmp_path / "site.yaml", folder)))
    return folder


def test_what_the_sets_say(log_dir: Path, cli: Commands) -> None:
    blame = "\x1f".join(("silent", "it went silent", "1", "1"))
    events = log_dir / "S-w-20261121-101500-0001/events-7.tsv"
    events.write_text(f"5\tloop\tblamed\tn1\t{blame}\n")
    assert cli("metrics").code == ExitCode.OK, cli.err
    result = samples(cli.out)
    assert result["orchestrator_sets"] == {
        (("state", "complete"),): 1,
        (("state", "refused"),): 1,
        (("state", "damaged"),): 1,
    }
    assert result["orchestrator_runs"] == {
        (("outcome", "success"), ("state", "success")): 3,
        (("outcome", ""), ("state", "queued")): 3,
    }
    assert result["orchestrator_failures"] == {(("kind", "infrastructure"),): 1}
    assert result["orchestrator_nodes_set_aside"] == {(("kind", "exit"),): 1}
    assert result["orchestrator_nodes_blamed"] == {(("kind", "silent"),): 1}
    assert (result["orchestrator_queue_seconds"], result["orchestrator_queued_jobs"]) == (
        {(): 40},
        {(): 1},
    )
    # Runs of 61, 62 and 63 s: the mean of the middle one.
    assert result["orchestrator_train_seconds"][()] == pytest.approx(186) and result[
        "orchestrator_trained_runs"
    ] == {(): 3}
    assert result["orchestrator_last_score_seconds"][()] == pytest.approx(62)
    assert result["orchestrator_scrape_time_seconds"][()] > 1.7e9
    assert "orchestrator_live_set_done_runs" not in result


def test_a_set_that_goes_on(log_dir: Path, cli: Commands) -> None:
    job = JobRecord(job_id="9", state="running", host="elsewhere", started_ms=50_000, run=3)
    write_set(log_dir, "S-w-20261122-101500-0004", scheduler="local", done=2, job=job)
    result = samples(cli("metrics").out)
    labels = (("set", "S-w-20261122-101500-0004"),)
    assert result["orchestrator_live_set_done_runs"] == {labels: 2} and result[
        "orchestrator_live_set_wanted_runs"
    ] == {labels: 3}
    assert result["orchestrator_live_set_started_seconds"] == {labels: 50}


def test_the_file_is_replaced_as_a_whole(log_dir: Path, cli: Commands, tmp_path: Path) -> None:
    path = tmp_path / "collector/orchestrator.prom"
    path.parent.mkdir()
    assert cli("metrics", "-o", path).code == ExitCode.OK and cli.out == ""
    before = path.stat()
    assert cli("metrics", "--output", path).code == ExitCode.OK
    assert path.stat().st_ino != before.st_ino and os.listdir(path.parent) == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert samples(path.read_text())["orchestrator_queued_jobs"] == {(): 1}
    assert cli("metrics", "-o", tmp_path / "missing/x.prom").code == ExitCode.BAD_INPUT
    assert "cannot be written" in cli.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_device_keeps_its_mode(cli: Commands, tmp_path: Path, through_a_link: bool) -> None:
    device = tmp_path / "null"
    os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    device.chmod(0o666)
    named = tmp_path / "link" if through_a_link else device
    if through_a_link:
        named.symlink_to(device)
    (tmp_path / "none").mkdir()
    site = tmp_path / "empty.yaml"
    site.write_text(f"log_dir: {tmp_path}/none\n")
    assert cli("metrics", "--site", site, "-o", named).code == ExitCode.OK, cli.err
    assert stat.S_IMODE(device.stat().st_mode) == 0o666


def test_json_has_the_same_samples(log_dir: Path, cli: Commands) -> None:
    answer = {family["name"]: family for family in cli.json("metrics")["metrics"]}
    assert answer["orchestrator_queue_seconds"]["samples"] == [
        {"labels": {"system": "S", "workload": "w"}, "value": 40.0}
    ]


def test_odd_labels_are_bounded_and_escaped() -> None:
    odd = 'a "b" \\ c\nd'
    family = Family("x", "gauge", "help")
    family.add(1.5, name=odd)
    family.add(1, name=odd)
    [parsed] = text_string_to_metric_families(exposition([family]))
    assert [(sample.labels, sample.value) for sample in parsed.samples] == [
        ({"name": 'a "b" \\ c d'}, 2.5)
    ]
    family.add(1, name="x" * 5000)
    assert max(map(len, family.lines())) < 100


@pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool (Debian: apt-get install prometheus) is not here"
)
def test_promtool_has_nothing_to_say(log_dir: Path, cli: Commands) -> None:
    text = cli("metrics").out
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, "")
