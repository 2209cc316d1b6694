"""The controller on a real Slurm: the one-machine cluster of the lab."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from controller_parts import Commands, write_set
from until import until

from orchestrator.errors import ExitCode, SchedulerError
from orchestrator.evidence.sets import SubmissionRecord, open_set
from orchestrator.onnode.records import RunRecord, read, write
from orchestrator.runset.submit import settle, submissions
from orchestrator.scheduler import JobRequest
from orchestrator.scheduler.command import ask
from orchestrator.scheduler.slurm import Slurm, parse_show

if TYPE_CHECKING:
    from labs import Lab

pytestmark = pytest.mark.lab

SYSTEM = ("local_2x2x8", "builtin")


def script(shared: Path, body: str) -> Path:
    path = shared / "job.sh"
    path.write_text(f"#!/bin/bash\n{body}\n")
    return path


def request_for(shared: Path, body: str, name: str, *options: str) -> JobRequest:
    env = {"PATH": os.environ["PATH"], "HOME": "/tmp", "MARK": "a,b 'c'"}
    return JobRequest(script(shared, body), name, shared, env, str(shared / "job_%j.out"), options)


def test_submit_query_cancel(shared: Path) -> None:
    name = f"orch-{shared.name}"
    body = 'trap "echo closed; exit" TERM; env -0 >env; touch up\nwhile :; do sleep 0.1; done'
    job_id = Slurm().submit(request_for(shared, body, name))
    [job] = Slurm().jobs(names=[name, "orch-nobody"]).values()
    assert (job.id, job.alive) == (job_id, True)
    until((shared / "up").exists)
    job = Slurm().jobs(ids=[job_id])[job_id]
    assert (job.state, job.name) == ("RUNNING", name)
    assert job.start_ms > 1_600_000_000_000
    inside = dict(pair.split("=", 1) for pair in (shared / "env").read_text().split("\0") if pair)
    assert inside["MARK"] == "a,b 'c'"
    assert "PYTEST_CURRENT_TEST" not in inside
    assert Slurm().cancel(job_id, 20)
    assert (shared / f"job_{job_id}.out").read_text().endswith("closed\n")
    assert not Slurm().jobs(ids=[job_id])[job_id].alive


def test_a_deaf_job_is_ended_by_force(shared: Path) -> None:
    body = 'trap "" TERM; touch up\nwhile :; do sleep 0.1; done'
    job_id = Slurm().submit(request_for(shared, body, f"orch-{shared.name}"))
    until((shared / "up").exists)
    assert Slurm().cancel(job_id, 0.5)


def test_odd_job_names_and_both_commands_agree(shared: Path) -> None:
    name = f"orch-{shared.name}\n| a=b UserId=x"
    job_id = Slurm().submit(request_for(shared, "sleep 60", name, "--hold"))
    try:
        seen = Slurm().jobs(ids=[job_id])[job_id]
        assert seen.state == "PENDING"
        assert seen.reason == "JobHeldUser"
        answer = ask(["scontrol", "--oneliner", "--all", "show", "job"], timeout_s=20)
        shown = {job.id: job for job in parse_show(answer)}
        assert shown[job_id].state == seen.state
        assert seen.name.startswith(f"orch-{shared.name}\n")
    finally:
        assert Slurm().cancel(job_id, 1)


def test_refusal(shared: Path) -> None:
    with pytest.raises(SchedulerError, match="nvalid partition") as caught:
        Slurm().submit(request_for(shared, "true", "orch-x", "--partition=nosuch"))
    assert caught.value.exit_code == ExitCode.SCHEDULER


def test_a_job_without_a_recorded_answer_is_found(shared: Path) -> None:
    """The controller died after Slurm took the job: the intent is all there is, and the name finds the job."""
    run_set = open_set(write_set(shared, f"s-{shared.name}"))
    name = run_set.record.job_name
    run_set.layout.bundle.mkdir()
    write(SubmissionRecord(number=1, job_name=name, state="intended", requested_ms=1), run_set.layout.submission(1))
    job_id = Slurm().submit(request_for(run_set.layout.root, "sleep 60", name))
    live = settle(run_set, Slurm())
    assert live is not None
    assert live.id == job_id
    assert [(record.state, record.job_id) for record in submissions(run_set.layout)] == [("submitted", job_id)]


def test_a_set_on_two_nodes(cli: Commands, lab_site: Path) -> None:
    assert cli("run", *SYSTEM, "--site", lab_site, "--nexp", "3").code in (ExitCode.OK, ExitCode.NO_SCORE), cli.err
    [one] = cli.json("status", "--site", lab_site)["sets"]
    assert (one["state"], one["done"]) == ("complete", 3), one
    assert '"key": "run_stop"' in cli("logs", one["set"]).out
    assert cli("resume", one["set"]).code == ExitCode.SET_STATE


def test_cancel_and_resume(cli: Commands, lab_site: Path) -> None:
    said = cli.json("submit", *SYSTEM, "--site", lab_site, "--nexp", "3", "--env", "BUILTIN_FAULT=hang:run=2:attempt=1")
    root = Path(said["set"])

    def hangs() -> bool:
        run = read(RunRecord, root / "runs/2/state.json")
        return isinstance(run, RunRecord) and run.state == "running"

    until(hangs)
    [one] = cli.json("status", "--site", lab_site)["sets"]
    assert (one["state"], one["job_state"], one["current_run"]) == ("running", "RUNNING", 2)
    assert cli("resume", root).code == ExitCode.SET_STATE
    assert cli("cancel", root).code == ExitCode.OK, cli.err
    assert "is gone; 1 of 3 runs are done" in cli.out
    assert not Slurm().jobs(ids=[said["job_id"]])[said["job_id"]].alive
    assert cli.json("status", root)["state"] == "cancelled"
    assert cli("resume", root).code == ExitCode.OK, cli.err
    assert cli("watch", root).code == ExitCode.OK, cli.err
    assert [run["attempt"] for run in cli.json("status", root)["runs"]] == [1, 2, 1]


def test_a_pending_job_says_why_and_leaves_a_trace_when_cancelled(cli: Commands, lab_site: Path) -> None:
    lab_site.write_text(lab_site.read_text() + "sbatch:\n  - --hold\n")
    said = cli.json("submit", *SYSTEM, "--site", lab_site, "--nexp", "3")
    [one] = cli.json("status", "--site", lab_site)["sets"]
    release = f"it starts after: scontrol release {said['job_id']} (or `orchestrator cancel`, then `resume`)"
    assert (one["state"], one["reason"]) == ("held", f"it is held by its user (JobHeldUser); {release}")
    assert cli("cancel", said["set"]).code == ExitCode.OK, cli.err
    assert cli.json("status", said["set"])["state"] == "cancelled"


# ---- nodes: preflight, spares, excluded ones ----


@pytest.fixture
def drained(lab: Lab) -> Iterator[str]:
    """The last node, drained."""
    name = lab.nodes[-1]
    lab.run("scontrol", "update", f"nodename={name}", "state=drain", "reason=bad fan")
    yield name
    lab.run("scontrol", "update", f"nodename={name}", "state=resume")


def test_preflight_checks_the_idle_nodes(
    cli: Commands, lab: Lab, lab_site: Path, shared: Path, drained: str, tmp_path: Path
) -> None:
    excluded = tmp_path / "bad.txt"
    cli("preflight", "--site", lab_site, "--json", "--exclude-file", excluded)
    assert cli.code == ExitCode.NO_SCORE, cli.err
    told = json.loads(cli.out)
    nodes = {one["node"]: one for one in told["nodes"]}
    assert set(nodes) == set(lab.nodes) and told["tested"] == len(lab.nodes) - 1
    assert (nodes[drained]["verdict"], nodes[drained]["reason"]) == ("untested", "drained: bad fan")
    assert {one["verdict"] for name, one in nodes.items() if name != drained} <= {"pass", "warn"}
    assert excluded.read_text() == "" and list(shared.iterdir()) == []
    cli("preflight", *SYSTEM, "--site", lab_site, "--nodes", ",".join(lab.nodes[:2]))
    assert cli.code == ExitCode.OK and "tested 2 of 2 nodes" in cli.out


def test_a_set_with_spares_keeps_off_excluded_nodes(cli: Commands, lab: Lab, lab_site: Path) -> None:
    first, *others = lab.nodes
    cli("run", *SYSTEM, "--site", lab_site, "--nexp", "1", "--spares", "1", "--exclude", first)
    [root] = [
        path
        for path in Path(lab_site.read_text().split("log_dir: ")[1].split("\n")[0]).iterdir()
        if path.name.startswith("local")
    ]
    told = {one["node"]: one for one in cli.json("nodes", root)["nodes"]}
    assert list(told) == others[:3] and [one["spare"] for one in told.values()] == [False, False, True]
    assert told[others[0]]["ranks"] == [0] and told[others[0]]["good"] == 1
    # a later job: the run is taken away, so that there is something to do again
    (root / "runs/1/state.json").unlink()
    cli("resume", root, "--spares", "0", "--exclude", others[0])
    assert cli.code == 0, cli.err
    cli("watch", root)
    [last] = [
        one
        for one in map(json.loads, (path.read_text() for path in (root / "jobs").glob("*.json")))
        if one["job_id"] == cli.json("status", root)["job_id"]
    ]
    assert last["nodes"] == others[1:3] and last["spares"] == []


def test_what_the_partition_does_not_allow_is_told_before_a_set_is_made(
    lab_site: Path, shared: Path, cli: Commands
) -> None:
    """The lab's partition `debug` allows an hour."""
    text = lab_site.read_text()
    lab_site.write_text(text.replace("00:10:00", "01:00:01") + "partition: debug\n")
    done = cli("submit", *SYSTEM, "--site", lab_site)
    assert done.code == 2 and "partition debug allows a job 1h at most" in done.err, done.err
    assert list(shared.iterdir()) == []
