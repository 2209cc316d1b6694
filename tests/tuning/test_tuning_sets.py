"""Facts, drift and the gate in sets of the local scheduler, and the reader of what they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tuning_parts import TOP, fill, snapshot, wait_for, watchdogs

from orchestrator.evidence.attempts import drifts
from orchestrator.evidence.events import read_events
from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.starts import Cache, attempt_starts, differences

SITE = """
kind: site
scheduler: local
log_dir: {sets}
container: {{engine: none}}
tuning: {{profile: {profile}, lease_seconds: 1, allow_differences: {allow}}}
"""


def environment(folder: Path) -> dict[str, str]:
    """The environment of commands that use the site and the hosts in `folder`; programs in its `bin` come first."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")} | {
        "PYTHONPATH": str(TOP),
        "ORCHESTRATOR_SITE": str(folder / "site.yaml"),
        "ORCH_TUNABLES_ROOT": str(folder / "host/%n"),
        "ORCH_TUNABLES_STATE": str(folder / "state/%n"),
        "PATH": f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def run_set(
    folder: Path, *, allow: bool = False, nexp: int = 1, profile: str | Path = "published"
) -> tuple[dict[str, Any], Path, str]:
    """Run the built-in workload on two local nodes with a root folder each; the job's record, the set and its output."""
    folder.mkdir(exist_ok=True)
    (folder / "site.yaml").write_text(SITE.format(sets=folder / "sets", allow=str(allow).lower(), profile=profile))
    env = environment(folder)
    rendered = subprocess.run(
        [
            sys.executable,
            "-m",
            "orchestrator",
            "render",
            "local_2x2x8",
            "builtin",
            "--nexp",
            str(nexp),
            "-o",
            folder / "bundle",
        ],
        env=env,
        text=True,
        capture_output=True,
        check=False,
    )
    assert rendered.returncode == 0, rendered.stderr
    done = subprocess.run(
        ["bash", folder / "bundle/run_with_docker.sh"],
        env=env,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    [set_dir] = (folder / "sets").iterdir()
    [record] = (set_dir / "jobs").glob("*.json")
    return json.loads(record.read_text()), set_dir, done.stderr


def hosts(folder: Path) -> tuple[Path, Path]:
    return fill(folder / "host/local0", cpus=2), fill(folder / "host/local1", cpus=2)


def test_a_set_leaves_its_hosts_as_they_were(tmp_path: Path) -> None:
    roots = hosts(tmp_path)
    before = [snapshot(root) for root in roots]
    record, set_dir, said = run_set(tmp_path)
    assert record["state"] == "complete", said
    [start] = attempt_starts(SetEvidence(set_dir))
    assert set(start.caches) == {"local0", "local1"}
    # A folder's meminfo does not change: 10 + 500 + 40 - 100.
    assert {(one.before_kib, one.after_kib) for one in start.caches.values()} == {(450, 450)}
    assert start.value("gpu.count", "local1") == "2" and start.value("gpu.max_sclk", "local0") == "2100Mhz"
    assert (
        start.value("knob.cpu_governor", "local0") == "performance" and len(start.value("environment", "local0")) == 64
    )
    assert not differences([start]) and not drifts(SetEvidence(set_dir))
    for root, then in zip(roots, before, strict=True):
        assert (root / "proc/sys/vm/drop_caches").read_text() == "3\n"
        (root / "proc/sys/vm/drop_caches").write_text("0\n")
        assert snapshot(root) == then
    assert not list((tmp_path / "state").iterdir())


MODULE = """kind: tuning
name: module
title: one kernel module
source: this test
knobs:
  - {name: some_module, kind: module, module: some_module, need: required, purpose: for a test}
"""
MODPROBE = """#!/bin/bash
module=$ORCH_TUNABLES_ROOT/sys/module/some_module
case $* in
  *--dry-run*) ;;
  *--remove*) [[ ! -e {stuck} ]] && rmdir "$module" ;;
  *) mkdir "$module" ;;
esac
"""


def test_a_revert_that_fails_is_a_warning_of_the_job(tmp_path: Path) -> None:
    """A module that cannot be unloaded. The run is good, and the watchdog unloads it when that is possible."""
    roots, stuck, profile = hosts(tmp_path), tmp_path / "stuck", tmp_path / "module.yaml"
    stuck.touch()
    profile.write_text(MODULE)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/modprobe").write_text(MODPROBE.format(stuck=stuck))
    (tmp_path / "bin/modprobe").chmod(0o755)
    record, set_dir, output = run_set(tmp_path, profile=profile)
    assert record["state"] == "complete", output
    [warning] = [text for text in record["warnings"] if "reverted" in text]
    assert warning == (
        "node local0, local1: host settings were not reverted: some_module wanted absent, found loaded; "
        "to revert them: orchestrator tune revert --nodes local0,local1 --sudo"
    )
    status = [sys.executable, "-m", "orchestrator", "status", str(set_dir)]
    shown = subprocess.run(status, env=environment(tmp_path), text=True, capture_output=True, check=False).stdout
    assert warning in " ".join(shown.split())
    [events] = set_dir.glob("events-*.tsv")
    failed = [one.node for one in read_events(events) if one.word == "revert-failed"]
    assert sorted(failed) == ["local0", "local1"]
    assert all((root / "sys/module/some_module").is_dir() for root in roots)
    stuck.unlink()
    wait_for(lambda: not list((tmp_path / "state").iterdir()) and not watchdogs(tmp_path / "state"))
    assert not any((root / "sys/module/some_module").exists() for root in roots)


@pytest.mark.parametrize("allow", [False, True])
def test_nodes_that_differ(tmp_path: Path, allow: bool) -> None:
    _, other = hosts(tmp_path)
    (other / "sys/class/dmi/id/bios_version").write_text("1.5\n")
    record, set_dir, said = run_set(tmp_path, allow=allow)
    text = "the nodes differ: node local1 (rank 1): bios is 1.5, elsewhere 1.4"
    if not allow:
        assert record["state"] == "failed" and record["reason"].startswith(text)
        return
    assert record["state"] == "complete" and text in said
    [one] = differences(attempt_starts(SetEvidence(set_dir)))
    assert (one.field, one.node, one.run, one.value, one.usual) == ("bios", "local1", 1, "1.5", "1.4")


def write_start(set_dir: Path, run: int, rows: str, attempt: int = 1) -> Path:
    folder = set_dir / f"runs/{run}/attempt_{attempt}"
    folder.mkdir(parents=True)
    (folder / "start.tsv").write_text("node\tfield\tvalue\n" + rows)
    return folder


def test_differences_across_runs(tmp_path: Path) -> None:
    for run in range(1, 12):
        write_start(
            tmp_path,
            run,
            "*\tdriver\t6.10\n" if run == 10 else "*\tdriver\t6.12\n" + ("n2\tdriver\t6.11\n" if run == 3 else ""),
        )
    found = [
        (one.field, one.node, one.run, one.value, one.usual)
        for one in differences(attempt_starts(SetEvidence(tmp_path)))
    ]
    assert found == [("driver", "n2", 3, "6.11", "6.12"), ("driver", "*", 10, "6.10", "6.12")]


def test_a_fact_that_one_run_did_not_tell(tmp_path: Path) -> None:
    write_start(tmp_path, 1, "*\trocm\t7.0\n")
    write_start(tmp_path, 2, "*\trocm\t7.0\n")
    write_start(tmp_path, 3, "*\tkernel\t6\n")
    assert [(one.field, one.run, one.value) for one in differences(attempt_starts(SetEvidence(tmp_path)))] == [
        ("kernel", 3, "6"),
        ("rocm", 3, "-"),
    ]


def test_damaged_records(tmp_path: Path) -> None:
    folder = write_start(tmp_path, 1, "n1\tready_ms\t12\nn1\tcache_before_kib\tx\nhalf a li")
    (folder / "node_0.json").write_text(
        '{"node": "n1", "exit": 0, "drift": [{"knob": "a", "wanted": "0", "found": "1", "need": "required"}, 7]}'
    )
    (folder / "node_1.json").write_text('{"node": "n2", "dri')
    [start] = attempt_starts(SetEvidence(tmp_path))
    assert start.caches == {"n1": Cache(12, 0, None)}
    assert [(one.node, one.knob, one.found) for one in drifts(SetEvidence(tmp_path))] == [("n1", "a", "1")]
