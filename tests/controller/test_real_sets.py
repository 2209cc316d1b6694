"""Sets that really run: the bundle's own loop, the built-in workload, this machine as two nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from controller_parts import Commands
from sites import write_site
from until import until

from orchestrator.errors import ExitCode
from orchestrator.onnode.records import JobRecord, RunRecord, numbered, read
from orchestrator.scheduler.local import members

SYSTEM = ("local_2x2x8", "builtin")


def run_state(root: Path, run: int) -> RunRecord:
    found = read(RunRecord, root / f"runs/{run}/state.json")
    assert isinstance(found, RunRecord)
    return found


def submit(cli: Commands, site: Path, nexp: int, *words: str) -> tuple[Path, str]:
    said = cli.json("submit", *SYSTEM, "--site", site, "--nexp", str(nexp), *words)
    return Path(said["set"]), said["job_id"]


def test_submit_watch_status_logs_score(cli: Commands, site: Path) -> None:
    root, job_id = submit(cli, site, 3)
    assert cli("watch", "--site", site).code == ExitCode.OK
    assert cli.out.splitlines()[-1].split(None, 1)[1].startswith("complete  3/3 done  score so far ")
    one = cli.json("status", root.name, "--site", site)
    assert (one["state"], one["done"], one["attempts"], one["job_id"]) == ("complete", 3, 3, job_id)
    assert len({run["seed"] for run in one["runs"]}) == 3
    assert all(run["minutes"] > 0 for run in one["runs"])
    head = cli("status", "--site", site).out.splitlines()[0]
    assert head.split() == "SET STATE RUNS ATTEMPTS NOW LAST EVAL ELAPSED LEFT SCORE SO FAR JOB REASON".split()  # noqa: SIM905
    assert "3/3" in cli.out
    assert '"key": "run_stop"' in cli("logs", root).out
    assert cli("logs", root, "--run", "1", "-f").out == cli("logs", root, "--run", "1").out
    assert "complete" in cli("logs", root, "--job").out
    assert members(job_id) == []
    assert cli("resume", root).code == ExitCode.SET_STATE
    assert cli("cancel", root).code == ExitCode.SET_STATE
    published = (root / "results/result_1.txt").read_bytes()
    assert published == (root / "runs/1/attempt_1/node_0.log").read_bytes()


def test_cancel_in_a_run_and_resume(cli: Commands, site: Path) -> None:
    root, job_id = submit(cli, site, 3, "--env", "BUILTIN_FAULT=hang:run=2:attempt=1")
    until(lambda: (root / "runs/2/state.json").exists() and run_state(root, 2).state == "running")
    # The run says so itself before its job does.
    [one] = until(lambda: [one for one in cli.json("status", "--site", site)["sets"] if one["current_run"] == 2])
    assert (one["state"], one["job_state"], one["done"]) == ("running", "RUNNING", 1)
    assert cli("resume", root).code == ExitCode.SET_STATE
    assert f"job {job_id} (RUNNING) of {root.name} is alive" in cli.err
    assert cli("cancel", root).code == ExitCode.OK
    assert cli.out == (f"job {job_id} is gone; 1 of 3 runs are done\ngoes on with: orchestrator resume {root}\n")
    assert members(job_id) == []
    assert (run_state(root, 2).state, run_state(root, 2).outcome) == ("failed", "interrupted")
    first = (root / "runs/1/result_1.txt").read_bytes()
    assert cli.json("resume", root)["missing_runs"] == [2, 3]
    assert cli("watch", root).code == ExitCode.OK
    one = cli.json("status", root)
    assert (one["state"], one["done"], [run["attempt"] for run in one["runs"]]) == ("complete", 3, [1, 2, 1])
    assert numbered(root / "submissions") == [1, 2]
    assert (root / "runs/1/result_1.txt").read_bytes() == first


def test_a_killed_loop_is_lost_and_resumed(cli: Commands, site: Path) -> None:
    root, job_id = submit(cli, site, 2, "--env", "BUILTIN_FAULT=hang:run=1:attempt=1")
    until(lambda: (root / "runs/1/state.json").exists() and run_state(root, 1).state == "running")
    os.kill(int(job_id.split("-")[1]), signal.SIGKILL)
    until(lambda: cli.json("status", root)["state"] == "lost")
    assert cli("watch", root).code == ExitCode.SET_STATE
    cli("cancel", root)  # ends what the loop left behind; there may be nothing any more
    assert members(job_id) == []
    assert cli("resume", root).code == ExitCode.OK
    assert cli("watch", root).code == ExitCode.OK
    assert cli.json("status", root)["done"] == 2


def test_a_run_that_misses_its_target_is_a_result(cli: Commands, site: Path) -> None:
    root, _ = submit(cli, site, 2, "--env", "BUILTIN_FAULT=abort:run=1")
    assert cli("watch", root).code == ExitCode.OK
    one = cli.json("status", root)
    assert (one["state"], one["done"], one["failed"]) == ("complete", 2, 1)
    assert "not converged" in cli("status", root).out


def test_run_is_submit_watch_score(cli: Commands, site: Path) -> None:
    cli("run", *SYSTEM, "--site", site, "--nexp", "3", "--json")
    [one] = json.loads(
        subprocess.run(
            [sys.executable, "-m", "orchestrator", "status", "--site", site, "--json"], capture_output=True, check=True
        ).stdout
    )["sets"]
    assert one["state"] == "complete"
    ran, verdict = cli.out, cli.code
    cli("score", one["set"], "--json")
    assert (cli.out, cli.code) == (ran, verdict)


def test_interrupting_the_view_leaves_the_job(cli: Commands, site: Path) -> None:
    root, job_id = submit(cli, site, 1, "--env", "BUILTIN_FAULT=hang:run=1")
    until(lambda: (root / "runs/1/state.json").exists() and run_state(root, 1).state == "running")
    view = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "watch", root], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert view.stdout is not None
    assert "running" in view.stdout.readline()
    view.send_signal(signal.SIGINT)
    out, err = view.communicate(timeout=300)
    assert view.returncode == ExitCode.INTERRUPTED, out
    assert f"the job goes on; come back with: orchestrator watch {root}" in err
    assert members(job_id)
    assert cli("cancel", root, "--grace", "10").code == ExitCode.OK
    assert members(job_id) == []
    job = read(JobRecord, root / f"jobs/{job_id}.json")
    assert isinstance(job, JobRecord)
    assert job.state == "cancelled"


def test_demo(cli: Commands, tmp_path: Path) -> None:
    cli("demo", "--dir", tmp_path / "a demo")
    assert cli.code == ExitCode.OK, cli.err
    export, status, *_ = cli.out.partition("look around:\n")[2].splitlines()
    pasted = subprocess.run(["bash", "-ec", f"{export}\n{status}"], capture_output=True, text=True, check=True)
    assert "complete" in pasted.stdout
    [one] = cli.json("status", "--site", tmp_path / "a demo/site.yaml")["sets"]
    assert (one["state"], one["done"]) == ("complete", 10)


@pytest.mark.parametrize("name", ["R&D 100% %j a:b", 'it\'s "quoted", $(x) [1]*'])
def test_a_set_below_a_folder_of_any_name(cli: Commands, tmp_path: Path, name: str) -> None:
    log_dir = tmp_path / "above" / name
    root, job_id = submit(cli, write_site(tmp_path / "site.yaml", log_dir), 1)
    assert cli("watch", root).code == ExitCode.OK, cli.out + cli.err
    assert (
        root.parent == log_dir and (root / f"job_{job_id}.out").is_file() and (root / "runs/1/result_1.txt").is_file()
    )
    assert [path.name for path in log_dir.parent.iterdir()] == [name], "nothing beside it"
    assert cli("score", root).code in (ExitCode.OK, ExitCode.NO_SCORE) and cli("replay", root).code == ExitCode.OK
