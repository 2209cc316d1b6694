"""Sets that really run: the bundle's own loop, the built-in workload, this machine as two nodes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from controller_parts import Commands
from sites import write_site
from until import LIMIT_S, until

from orchestrator.cli.frame import one_set
from orchestrator.errors import ExitCode
from orchestrator.evidence.picture import picture
from orchestrator.evidence.progress import Logs
from orchestrator.evidence.sets import SetEvidence
from orchestrator.onnode.kernel.records import JobRecord, RunRecord, read
from orchestrator.scheduler.local import members
from orchestrator.words import PIPE

SYSTEM = ("local_2x2x8", "builtin")


def run_state(root: Path, run: int) -> RunRecord:
    result = read(RunRecord, root / f"runs/{run}/state.json")
    assert isinstance(result, RunRecord)
    return result


def submit(cli: Commands, site: Path, nexp: int, *arguments: str) -> tuple[Path, str]:
    submitted = cli.json("submit", *SYSTEM, "--site", site, "--nexp", str(nexp), *arguments)
    return Path(submitted["set"]), submitted["job_id"]


def hanging(root: Path, run: int) -> None:
    """Wait until a run is at work."""
    until(
        lambda: (
            (root / f"runs/{run}/state.json").exists() and run_state(root, run).state == "running"
        )
    )


def test_run_status_logs_score(cli: Commands, site: Path) -> None:
    """`run` is submit, watch and score in one. The first run misses its target: it is a result."""
    cli(
        "run",
        *SYSTEM,
        "--site",
        site,
        "--nexp",
        "2",
        "--json",
        "--env",
        "BUILTIN_FAULT=abort:run=1",
    )
    scored, verdict = cli.out, cli.code
    [status] = cli.json("status", "--site", site)["sets"]
    root, job_id = Path(status["set"]), status["job_id"]
    cli("score", root, "--json")
    assert (cli.out, cli.code) == (scored, verdict)
    status = cli.json("status", root.name, "--site", site)
    counts = [status[name] for name in ("done", "not_converged", "failed", "attempts")]
    assert (status["state"], counts) == ("complete", [2, 1, 0, 2])
    assert len({run["seed"] for run in status["runs"]}) == 2 and status["runs"][1]["minutes"] > 0
    assert "not converged" in cli("status", root).out
    assert " x 2 processes, engine none" in cli.out, "the system has no GPU"
    text = "\n".join(one_set(picture(SetEvidence(root), {}, Logs()), PIPE, 24))
    assert " x 2 processes; job " in text
    head = cli("status", "--site", site).out.splitlines()[0]
    heads = "SET STATE RUNS ATTEMPTS NOW LAST EVAL ELAPSED LEFT OLYMPIC MEAN JOB REASON"
    assert head.split() == heads.split()
    assert "2/2" in cli.out
    assert cli("watch", "--site", site).code == ExitCode.OK
    assert re.search(r"^\S+ +complete  2/2 done", cli.out, re.MULTILINE), cli.out
    assert cli.out.splitlines()[-1].endswith(" --nexp 3"), "a score needs three runs"
    assert '"key": "run_stop"' in cli("logs", root).out
    assert cli("logs", root, "--run", "1", "-f").out == cli("logs", root, "--run", "1").out
    until(lambda: not members(job_id))
    assert "complete" in cli("logs", root, "--job").out
    assert cli("resume", root).code == ExitCode.SET_STATE
    assert cli("cancel", root).code == ExitCode.SET_STATE
    published = (root / "results/result_1.txt").read_bytes()
    assert published == (root / "runs/1/attempt_1/node_0.log").read_bytes()


def test_a_view_that_is_interrupted_cancel_and_resume(cli: Commands, tmp_path: Path) -> None:
    """Below a folder of any name."""
    log_dir = tmp_path / "above" / 'R&D 100% %j a:b it\'s "quoted", $(x) [1]*'
    site = write_site(tmp_path / "site.yaml", log_dir)
    root, job_id = submit(cli, site, 2, "--env", "BUILTIN_FAULT=hang:run=2:attempt=1")
    hanging(root, 2)
    # The run says so itself before its job does.
    [status] = until(
        lambda: [
            status
            for status in cli.json("status", "--site", site)["sets"]
            if status["current_run"] == 2
        ]
    )
    assert (status["state"], status["job_state"], status["done"]) == ("running", "RUNNING", 1)
    argv = [sys.executable, "-m", "orchestrator", "watch", root]
    view = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert view.stdout is not None
    assert "running" in view.stdout.readline()
    view.send_signal(signal.SIGINT)
    out, err = view.communicate(timeout=LIMIT_S)
    assert view.returncode == ExitCode.INTERRUPTED, out
    assert "detached; the job keeps running\n  reattach: orchestrator watch " in err
    assert members(job_id)
    assert cli("resume", root).code == ExitCode.SET_STATE
    assert f"job {job_id} (RUNNING) of {root.name} is alive" in cli.err
    assert cli("cancel", root, "--grace", "120").code == ExitCode.OK
    assert cli.out.startswith(
        f"cancelled job {job_id} after 1 of 2 runs\nto continue: orchestrator resume "
    )
    assert members(job_id) == []
    assert (run_state(root, 2).state, run_state(root, 2).outcome) == ("failed", "interrupted")
    job = read(JobRecord, root / f"jobs/{job_id}.json")
    assert isinstance(job, JobRecord) and job.state == "cancelled"

    first = (root / "runs/1/result_1.txt").read_bytes()
    assert cli.json("resume", root)["missing_runs"] == [2]
    assert cli("watch", root).code == ExitCode.OK
    status = cli.json("status", root)
    assert (status["state"], status["done"], [run["attempt"] for run in status["runs"]]) == (
        "complete",
        2,
        [1, 2],
    )
    assert SetEvidence(root).findings.walk.submissions() == [1, 2]
    assert (root / "runs/1/result_1.txt").read_bytes() == first
    assert root.parent == log_dir and (root / f"job_{job_id}.out").is_file()
    assert [path.name for path in log_dir.parent.iterdir()] == [log_dir.name], "nothing beside it"
    assert (
        cli("score", root).code in (ExitCode.OK, ExitCode.NO_SCORE)
        and cli("replay", root).code == ExitCode.OK
    )


def test_a_killed_loop_is_lost_and_can_be_submitted_again(cli: Commands, site: Path) -> None:
    root, job_id = submit(cli, site, 1, "--env", "BUILTIN_FAULT=hang:run=1:attempt=1")
    hanging(root, 1)
    os.kill(int(job_id.split("-")[1]), signal.SIGKILL)
    until(lambda: cli.json("status", root)["state"] == "lost")
    assert cli("watch", root).code == ExitCode.SET_STATE
    cli("cancel", root)  # ends what the loop left behind; there may be nothing any more
    assert members(job_id) == []
    assert cli("resume", root).code == ExitCode.OK
    assert cli("watch", root).code == ExitCode.OK
    assert cli.json("status", root)["done"] == 1


def test_demo(cli: Commands, tmp_path: Path) -> None:
    cli("demo", "--dir", tmp_path / "a demo", "--nexp", "1")
    assert cli.code in (ExitCode.OK, ExitCode.NO_SCORE), cli.err
    export, status, *_ = cli.out.partition("look around:\n")[2].splitlines()
    pasted = subprocess.run(
        ["bash", "-ec", f"{export}\n{status}"], capture_output=True, text=True, check=True
    )
    assert "complete" in pasted.stdout
    [status] = cli.json("status", "--site", tmp_path / "a demo/site.yaml")["sets"]
    assert (status["state"], status["done"]) == ("complete", 1)
