"""The controller on a real Slurm: the one-machine cluster of the lab."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from controller_parts import Commands, write_set
from until import LIMIT_S, until

from orchestrator.errors import ExitCode, SchedulerError, SchedulerUnknown
from orchestrator.evidence.ledger import verify
from orchestrator.evidence.sets import SubmissionRecord, open_set
from orchestrator.onnode.kernel.records import RunRecord, read, write
from orchestrator.onnode.set import ledger
from orchestrator.runset.submit import settle, submissions
from orchestrator.scheduler.command import Answer, ask
from orchestrator.scheduler.job import JobRequest
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


def test_jobs_are_submitted_found_and_cancelled(shared: Path) -> None:
    """One closes by itself, one is deaf, one has an odd name and waits, and one is refused."""
    name, odd = f"orch-{shared.name}", f"orch-{shared.name}\n| a=b UserId=x"
    body = 'trap "echo closed; exit" TERM; env -0 >env; touch up\nwhile :; do sleep 0.1; done'
    job_id = Slurm().submit(request_for(shared, body, name))
    body = 'trap "" TERM; touch deaf\nwhile :; do sleep 0.1; done'
    deaf = Slurm().submit(request_for(shared, body, f"{name}-deaf"))
    held = Slurm().submit(request_for(shared, "sleep 60", odd, "--hold"))
    with pytest.raises(SchedulerError, match="nvalid partition") as caught:
        Slurm().submit(request_for(shared, "true", "orch-x", "--partition=nosuch"))
    assert caught.value.exit_code == ExitCode.SCHEDULER
    until((shared / "deaf").exists)
    with ThreadPoolExecutor(1) as beside:
        ended_by_force = beside.submit(Slurm().cancel, deaf, 0.5)  # Slurm gives it KillWait

        [job] = Slurm().jobs(names=[name, "orch-nobody"]).values()
        assert (job.id, job.alive) == (job_id, True)
        until((shared / "up").exists)
        job = Slurm().jobs(ids=[job_id])[job_id]
        assert (job.state, job.name) == ("RUNNING", name) and job.start_ms > 1_600_000_000_000
        inside = dict(
            pair.split("=", 1) for pair in (shared / "env").read_text().split("\0") if pair
        )
        assert inside["MARK"] == "a,b 'c'" and "PYTEST_CURRENT_TEST" not in inside
        assert Slurm().cancel(job_id, 20)
        assert (shared / f"job_{job_id}.out").read_text().endswith("closed\n")
        assert not Slurm().jobs(ids=[job_id])[job_id].alive

        seen = Slurm().jobs(ids=[held])[held]
        assert (seen.state, seen.reason) == ("PENDING", "JobHeldUser") and seen.name.startswith(
            f"{name}\n"
        )
        show = ["scontrol", "--oneliner", "--all", "show", "job"]
        [shown] = parse_show(ask([*show, deaf], timeout_s=LIMIT_S))
        assert (shown.id, shown.name) == (deaf, f"{name}-deaf")
        # scontrol has no marks between its fields: nothing is believed where a name looks like one.
        with pytest.raises(SchedulerUnknown, match="cannot be read"):
            parse_show(ask(show, timeout_s=LIMIT_S))
        assert Slurm().cancel(held, 1)
        assert ended_by_force.result()


def test_a_job_without_a_recorded_answer_is_found(shared: Path) -> None:
    """The controller died after Slurm took the job: the intent is all there is, and the name finds the job."""
    run_set = open_set(write_set(shared, f"s-{shared.name}"))
    name = run_set.record.job_name
    run_set.layout.bundle.mkdir()
    write(
        SubmissionRecord(number=1, job_name=name, state="intended", requested_ms=1),
        run_set.layout.submission(1),
    )
    job_id = Slurm().submit(request_for(run_set.layout.root, "sleep 60", name))
    live = settle(run_set, Slurm())
    assert live is not None
    assert live.id == job_id
    assert [(record.state, record.job_id) for record in submissions(run_set.layout)] == [
        ("submitted", job_id)
    ]


def test_cancel_and_resume_off_excluded_nodes(cli: Commands, lab: Lab, lab_site: Path) -> None:
    first, *others = lab.nodes
    arguments = (
        "--nexp",
        "3",
        "--spares",
        "1",
        "--exclude",
        first,
        "--env",
        "BUILTIN_FAULT=hang:run=2:attempt=1",
    )
    submitted = cli.json("submit", *SYSTEM, "--site", lab_site, *arguments)
    root = Path(submitted["set"])

    def hangs() -> bool:
        run = read(RunRecord, root / "runs/2/state.json")
        return isinstance(run, RunRecord) and run.state == "running"

    until(hangs)
    [one] = cli.json("status", "--site", lab_site)["sets"]
    assert (one["state"], one["job_state"], one["current_run"]) == ("running", "RUNNING", 2)
    assert '"key": "run_stop"' in cli("logs", root, "--run", "1").out
    assert cli("resume", root).code == ExitCode.SET_STATE
    assert cli("cancel", root).code == ExitCode.OK, cli.err
    assert "after 1 of 3 runs\nto continue: " in cli.out
    assert not Slurm().jobs(ids=[submitted["job_id"]])[submitted["job_id"]].alive
    assert cli.json("status", root)["state"] == "cancelled"
    document = {one["node"]: one for one in cli.json("nodes", root)["nodes"]}
    assert list(document) == others[:3] and [one["spare"] for one in document.values()] == [
        False,
        False,
        True,
    ]
    assert document[others[0]]["ranks"] == [0] and document[others[0]]["good"] == 1

    assert cli("resume", root, "--spares", "0", "--exclude", others[0]).code == ExitCode.OK, cli.err
    assert cli("watch", root).code == ExitCode.OK, cli.err
    last = cli.json("status", root)
    assert (last["state"], [run["attempt"] for run in last["runs"]]) == ("complete", [1, 2, 1])
    job = json.loads((root / f"jobs/{last['job_id']}.json").read_text())
    assert job["nodes"] == others[1:3] and job["spares"] == []
    assert cli("resume", root).code == ExitCode.SET_STATE


def test_what_slurm_keeps_of_a_job(cli: Commands, lab: Lab, lab_site: Path) -> None:
    """The verified script, as its standard input, and the ledger's head, which shows that all files were made anew."""
    asked = ("--nexp", "1", "--sbatch=--comment=for:alice")
    submitted = cli.json("submit", *SYSTEM, "--site", lab_site, *asked)
    root, job_id = Path(submitted["set"]), submitted["job_id"]
    kept = lab.run("scontrol", "write", "batch_script", job_id, "-").stdout
    assert kept.strip() == (root / "bundle/job.sh").read_text().strip()
    assert cli("watch", root).code == ExitCode.OK, cli.err
    until(lambda: not Slurm().jobs(ids=[job_id])[job_id].alive)
    name = f"orch-{root.name}"
    head = verify(root).head
    assert Slurm().comments(name, [job_id])[job_id].split() == ["for:alice", ledger.mark(head)]
    if (lab.state / "pids/slurmdbd").exists():

        def of_accounting() -> str:
            return Slurm(ask=without_scontrol).comments(name, [job_id]).get(job_id, "")

        until(lambda: ledger.mark(head) in of_accounting().split(), of_accounting)
    sound = cli.json("audit", root, "--only", "ledger")
    assert {one["source"] for one in sound["compared"]} == {"job comment", "job output"}

    made_anew = rewrite(root, job_id)
    assert cli("audit", root, "--only", "ledger", "--json").code == ExitCode.NO_SCORE
    told = json.loads(cli.out)
    assert told["head"] == made_anew != head
    assert [one["text"] for one in told["problems"]] == [
        f"is not the one that the comment of job {job_id} in Slurm knows: it, or one before it, was changed"
    ]


def without_scontrol(argv: list[str], **more: Any) -> Answer:
    """As after the controller has forgotten the job."""
    return ask(["false"] if argv[0] == "scontrol" else argv, **more)


def rewrite(root: Path, job_id: str) -> str:
    """Change the last record, and everything in the set that knows it; return the new head."""
    path, output = root / ledger.NAME, root / f"job_{job_id}.out"
    before = verify(root).head
    *lines, last = path.read_bytes().splitlines()
    record = json.loads(last)
    record["time_ms"] += 1
    path.write_bytes(b"\n".join([*lines, json.dumps(record, separators=(",", ":")).encode(), b""]))
    head = ledger.head(ledger.read(root)[0])
    job = root / f"jobs/{job_id}.json"
    assert before in job.read_text() and ledger.mark(before) in output.read_text()
    job.write_text(job.read_text().replace(before, head))
    output.write_text(output.read_text().replace(ledger.mark(before), ledger.mark(head)))
    return head


def test_a_pending_job_says_why_and_leaves_a_trace_when_cancelled(
    cli: Commands, lab_site: Path
) -> None:
    lab_site.write_text(lab_site.read_text() + "sbatch:\n  - --hold\n")
    submitted = cli.json("submit", *SYSTEM, "--site", lab_site, "--nexp", "3")
    [status] = cli.json("status", "--site", lab_site)["sets"]
    release = f"it starts after: scontrol release {submitted['job_id']} (or `orchestrator cancel`, then `resume`)"
    assert (status["state"], status["reason"]) == (
        "held",
        f"it is held by its user (JobHeldUser); {release}",
    )
    assert cli("cancel", submitted["set"]).code == ExitCode.OK, cli.err
    assert cli.json("status", submitted["set"])["state"] == "cancelled"


# ---- nodes ----


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
    cli("doctor", "--all-nodes", "--site", lab_site, "--json", "--exclude-file", excluded)
    assert cli.code == ExitCode.NO_SCORE, cli.err
    document = json.loads(cli.out)
    nodes = {row["node"]: row for row in document["nodes"]}
    assert set(nodes) == set(lab.nodes) and document["tested"] == len(lab.nodes) - 1
    assert (nodes[drained]["verdict"], nodes[drained]["reason"]) == ("untested", "drained: bad fan")
    assert {row["verdict"] for name, row in nodes.items() if name != drained} <= {"pass", "warn"}
    assert excluded.read_text() == "" and list(shared.iterdir()) == []
    two = ",".join(lab.nodes[:2])
    states = ("sinfo", "--noheader", "--Node", f"--nodes={two}", "--format=%T")
    until(lambda: set(lab.run(*states).stdout.split()) == {"idle"})
    cli("doctor", *SYSTEM, "--site", lab_site, "--nodes", two)
    assert cli.code == ExitCode.OK and "tested 2 of 2 nodes" in cli.out


@pytest.mark.long
def test_a_set_gets_more_runs_and_their_time(lab: Lab, lab_site: Path, cli: Commands) -> None:
    """Without a limit of the site the job of two more runs asks Slurm for more than the job of one."""
    lines = lab_site.read_text().splitlines(keepends=True)
    lab_site.write_text("".join(one for one in lines if not one.startswith("time_limit")))
    what = (*SYSTEM, "--nexp", 1, "--site", lab_site)
    assert cli("submit", *what, "--name", "first", "--wait").code == ExitCode.OK, cli.err
    root = Path(cli.json("ls", "--site", lab_site)["sets"][0]["set"])
    assert cli("rm", root, "--site", lab_site).code == ExitCode.SET_STATE, "complete"
    name = f"orch-{root.name}"
    until(lambda: not any(job.alive for job in Slurm().jobs(names=[name]).values()))
    resumed = cli.json("resume", root, "--nexp", 3, "--sbatch=--hold")
    assert cli("rm", root, "--force").code == ExitCode.SET_STATE and "is alive" in cli.err
    lab.run("scontrol", "release", resumed["job_id"])
    assert cli("watch", root).code == ExitCode.OK
    picture = cli.json("status", root)
    assert (picture["done"], picture["nexp"], picture["name"]) == (3, 3, "first")
    assert cli.json("audit", root)["valid"]
    [_, argv] = [one.argv for one in submissions(open_set(root).layout)]
    [limit] = [word for word in argv if word.startswith("--time=")]
    script = (root / "bundle/job.sh").read_text()
    first = int(script.partition("#SBATCH --time=")[2].split()[0])
    assert int(limit.removeprefix("--time=")) == first // 2 * 3, "(runs + 1) x minutes"
    # Slurm ends a job some time after it has closed its set; until then `rm` refuses.
    until(lambda: cli("rm", root, "--force").code == ExitCode.OK)
    assert not root.exists()


def test_what_the_partition_does_not_allow_is_told_before_a_set_is_made(
    lab_site: Path, shared: Path, cli: Commands
) -> None:
    """The lab's partition `debug` allows an hour."""
    text = lab_site.read_text()
    lab_site.write_text(text.replace("00:10:00", "01:00:01") + "partition: debug\n")
    done = cli("submit", *SYSTEM, "--site", lab_site)
    assert done.code == 2 and "partition debug allows a job 1h at most" in done.err, done.err
    assert list(shared.iterdir()) == []
