"""Causes that nodes report before a run: each is named, once, with the fix that fits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli.closing import closing_lines, explained
from orchestrator.evidence.picture import SetPicture, look
from orchestrator.evidence.sets import SubmissionRecord
from orchestrator.onnode.kernel.records import JobRecord, SetRecord, write
from orchestrator.scheduler.job import Job

SET_ID = "MI325X_08x08x32-flux1-20261124-100000-abcd"
LOOK_UP = "https://r.example/v2/: dial tcp: lookup r.example on 192.0.2.53:53: no such host"
SILENT = "the container engine (docker) does not answer on this node"


STEPS = ("build", "pull", "distribute")


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
            "orchestrator config --set data.flux1.DATADIR && orchestrator submit MI325X_08x08x32 flux1",
        ),
        (
            "DATADIR: /nowhere/x does not exist on this node",
            "data_missing",
            "orchestrator prepare flux1 --check --override data.flux1.DATADIR=/nowhere/x",
        ),
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
            "orchestrator submit MI325X_08x08x32 flux1 --round 6.0 --nexp 1 --override",
        ),
        (
            SILENT.replace("docker", "sudo -n docker") + ": sudo: No such file or directory",
            "sudo_missing",
            "orchestrator submit MI325X_08x08x32 flux1 --round 6.0 --nexp 1 --override 'container.",
        ),
        (
            "tunables: sudo: No such file or directory",
            "sudo_missing",
            "orchestrator submit MI325X_08x08x32 flux1 --round 6.0 --nexp 1 --override tunables=off",
        ),
        (
            f"cannot pull rocm/x:1: Error: pinging container registry r.example: Get {LOOK_UP}",
            "registry_away",
            "orchestrator resume ",
        ),
        (SILENT, "engine_silent", "orchestrator doctor --nodes 'n[1-8]'"),
        (
            "tunables: runtime_tunables.sh: cannot make /run/x; root is needed",
            "no_root",
            "orchestrator submit MI325X_08x08x32 flux1 --round 6.0 --nexp 1 --override tunables=off",
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


def test_an_image_that_no_registry_has_is_built_before_it_is_loaded(tmp_path: Path) -> None:
    picture = failed(tmp_path, "all 8 nodes: image rocm/x:1 is not on this node; load it there")
    names = {"system": "MI355X_1x8x1_Oracle", "workload": "gpt_oss_20b"}
    image = "rocm/amd-mlperf:gpt_oss_20b_training_6.0"
    assert picture.record is not None
    built = replace(picture, record=replace(picture.record, image=image, **names))
    steps = explained(built).next.split(" && ")
    what = f"{' '.join(names.values())} --round 6.0"
    assert steps[:3] == [f"orchestrator images {step} {what}" for step in STEPS]
    # Another image of the site is pulled.
    pulled = replace(picture, record=replace(picture.record, **names))
    assert explained(pulled).next.startswith(f"orchestrator images pull {what} && ")


@pytest.mark.parametrize("typed", ["{0}/share/flux1/data", "{0}/shared/flux2/data"])
def test_a_folder_below_a_mistyped_one_is_found(tmp_path: Path, typed: str) -> None:
    (tmp_path / "shared/flux1/data").mkdir(parents=True)
    folder = typed.format(tmp_path)
    found = explained(failed(tmp_path / "x", f"DATADIR: {folder} does not exist on this node"))
    near = f"--override data.flux1.DATADIR={tmp_path}/shared/flux1/data"
    assert found.next.startswith("orchestrator submit ") and found.next.endswith(near)


def test_nodes_that_an_administrator_drained_are_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [f"n{number}" for number in range(2, 9)]
    monkeypatch.setattr("orchestrator.scheduler.slurm_nodes.unavailable_nodes", lambda: away)
    picture = failed(tmp_path, "")
    (picture.root / "jobs/7.json").unlink()
    job = Job("7", picture.record.job_name if picture.record else "", "PENDING", "ReqNodeNotAvail")
    waiting = replace(
        picture, state="pending", job_state=job.state, job_reason=job.reason, reason=job.reason
    )
    found = explained(waiting)
    assert found.cause == "nodes_unavailable" and "who drained them returns them" in found.remedy
    assert found.next == "sinfo --list-reasons --nodes='n[2-8]'"
    # `sinfo -R` is empty if the nodes are only busy.
    away.clear()
    site = tmp_path / "site.yaml"
    site.write_text(f"kind: site\nlog_dir: {tmp_path}\npartition: gpu\n")
    found = explained(waiting, str(site))
    assert found.next == "squeue -p gpu" and found.remedy.startswith("no node is down or drained")


@pytest.mark.parametrize("who", ["both nodes", "all 2 nodes", "all 8 nodes"])
def test_all_nodes_are_named_as_in_the_record(tmp_path: Path, who: str) -> None:
    """Earlier versions wrote `all 2 nodes`."""
    picture = failed(tmp_path, f"{who}: image rocm/x:1 is not on this node; load it there")
    assert explained(picture).sentence.startswith(f"{who}: ")


def test_a_set_without_trouble_has_no_such_lines(tmp_path: Path) -> None:
    picture = failed(tmp_path, "")
    assert closing_lines(replace(picture, state="running")) == []
    assert closing_lines(replace(picture, state="complete")) == []
