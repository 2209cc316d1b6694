"""Causes that nodes report before a run: each is named, once, with the fix that fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.closing import closing_lines, explained
from orchestrator.evidence.picture import SetPicture, look
from orchestrator.evidence.sets import SubmissionRecord
from orchestrator.onnode.kernel.records import JobRecord, SetRecord, write

SET_ID = "MI325X_08x08x32-flux1-20261124-100000-abcd"
SILENT = "the container engine (docker) does not answer on this node"


def failed(folder: Path, reason: str) -> SetPicture:
    """A set whose job could not start a run."""
    root = folder / "results" / SET_ID
    for name in ("jobs", "submissions", "runs/1"):
        (root / name).mkdir(parents=True)
    record = SetRecord(
        set_id=SET_ID,
        system="MI325X_08x08x32",
        workload="flux1",
        round="6.0",
        nexp=1,
        job_name=f"orch-{SET_ID}",
        scheduler="slurm",
        image="rocm/x:1",
        nodes=8,
    )
    write(record, root / "set.json")
    nodes = [f"n{number}" for number in range(1, 9)]
    job = JobRecord(job_id="7", state="failed", reason=reason, nodes=nodes, ended_ms=2)
    write(replace(job, started_ms=1), root / "jobs/7.json")
    asked = SubmissionRecord(number=1, state="submitted", job_id="7", requested_ms=1)
    write(asked, root / "submissions/1.json")
    [picture] = look([root], [])
    return picture


@pytest.mark.parametrize(
    ("reason", "cause", "command"),
    [
        (
            "DATADIR is not set: give the site file data.flux1.DATADIR, or export DATADIR",
            "data_unset",
            "orchestrator prepare flux1 --override data.flux1.DATADIR=",
        ),
        ("DATADIR: /nowhere/x does not exist on this node", "data_missing", "orchestrator prepare"),
        (
            "image rocm/x:1 is not on this node; pull or load it there",
            "image_absent",
            "orchestrator images pull MI325X_08x08x32 flux1 --round 6.0 && orchestrator images distribute",
        ),
        (
            f"{SILENT}: permission denied while trying to connect",
            "engine_no_access",
            "sudo usermod",
        ),
        (
            SILENT.replace("docker", "sudo -n docker") + ": sudo: a password is required",
            "engine_no_sudo",
            "orchestrator submit MI325X_08x08x32 flux1 --nexp 1 --round 6.0 --override",
        ),
        (
            SILENT.replace("docker", "sudo -n docker") + ": sudo: No such file or directory",
            "sudo_missing",
            "orchestrator submit MI325X_08x08x32 flux1 --nexp 1 --round 6.0 --override "
            "'container.command=[docker]'",
        ),
        (
            "tunables: sudo: No such file or directory",
            "sudo_missing",
            "orchestrator submit MI325X_08x08x32 flux1 --nexp 1 --round 6.0 --override tunables=off",
        ),
        (
            "cannot pull rocm/x:1: Error: initializing source docker://rocm/x:1: pinging container "
            'registry r.example: Get "https://r.example/v2/": dial tcp: lookup r.example on '
            "10.255.255.53:53: no such host",
            "registry_away",
            "orchestrator resume ",
        ),
        (SILENT, "engine_silent", "orchestrator doctor --nodes 'n[1-8]'"),
        (
            "tunables: runtime_tunables.sh: cannot make /run/x; root is needed",
            "no_root",
            "orchestrator submit MI325X_08x08x32 flux1 --nexp 1 --round 6.0 --override tunables=off",
        ),
        ("check free_space: /x: 0.1 GB free, at least 1 needed", "no_space", "df -h "),
        (
            "check gpu_count: 7 GPUs (amd-smi), the system has 8; reboot the node",
            "node_unfit",
            "orchestrator doctor --nodes 'n[1-8]'",
        ),
    ],
)
def test_what_all_nodes_report_is_explained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, cause: str, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DATADIR", "ORCHESTRATOR_SITE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    picture = failed(tmp_path, f"all 8 nodes: {reason}")
    found = explained(picture)
    assert (found.state, found.cause) == ("failed", cause)
    assert found.sentence.startswith("all 8 nodes: ") and "unknown" not in found.sentence
    assert found.next.startswith(command), found.next
    lines = closing_lines(picture)
    assert len(lines) == 3 and lines[0] == f"why: {found.sentence}"
    assert lines[1] == f"fix: {found.remedy}" and lines[2] == f"  {found.next}"


def test_a_set_without_trouble_has_no_such_lines(tmp_path: Path) -> None:
    picture = failed(tmp_path, "")
    assert closing_lines(replace(picture, state="running")) == []
    assert closing_lines(replace(picture, state="complete")) == []
