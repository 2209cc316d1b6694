"""`explain` of sets that ended: the sentence, and a next command that does not lead in a circle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from controller_parts import Commands, mllog, one_node, write_set

from orchestrator.onnode.kernel.records import JobRecord, NodeRunRecord, RunRecord, write
from orchestrator.onnode.policy.job_state import TIME_LIMIT

NODES = ["lab1", "lab2"]
Ends = dict[str, int]


def job(state: str, reason: str = "", minutes: int = 9) -> JobRecord:
    return JobRecord(
        job_id="7",
        state=state,
        reason=reason,
        nodes=NODES,
        started_ms=1000,
        ended_ms=1000 + 60_000 * minutes,
    )


def died(root: Path, run: int, attempt: int, ends: Ends, *logs: str, **about: Any) -> None:
    """An attempt; its nodes end in the order of `ends`, each a second after the one before."""
    record = RunRecord(
        run=run,
        attempt=attempt,
        state="failed",
        outcome="infrastructure",
        job_id="7",
        nodes=NODES,
        exit_codes=ends,
        start_ms=1000,
        end_ms=9000,
    )
    folder = root / f"runs/{run}/attempt_{attempt}"
    folder.mkdir(parents=True)
    record = replace(record, **about)
    write(record, folder / "state.json")
    write(record, folder.parent / "state.json")
    for rank, node in enumerate(record.nodes):
        end_ms = 2000 + 1000 * [*ends].index(node)
        end = NodeRunRecord(node=node, rank=rank, exit=ends[node], start_ms=1000, end_ms=end_ms)
        write(end, folder / f"node_{rank}.json")
        (folder / f"node_{rank}.log").write_text(logs[rank] if logs else "step\n")


def explained(cli: Commands, root: Path) -> dict[str, Any]:
    return dict(cli.json("explain", root))


@pytest.fixture(autouse=True)
def _no_slurm(fake: Any) -> None:
    fake("sinfo", "exit 1")


@pytest.mark.parametrize(
    ("exits", "next_"),
    [
        ([{"lab2": 137, "lab1": 143}] * 3, "resume {root} --exclude lab2"),
        ([{"lab2": 137, "lab1": 1}] * 3, "resume {root} --exclude lab2"),
        ([{"lab1": 1, "lab2": 137}, {"lab2": 137, "lab1": 1}], "resume {root} --exclude lab2"),
        ([{"lab2": 9, "lab1": 143}] * 2, "resume {root} --exclude lab2"),
        ([{"lab2": 137, "lab1": 143}, {"lab1": 137, "lab2": 143}], "resume {root}"),
        ([{"lab2": 137, "lab1": 137}] * 3, "resume {root}"),
        ([{"lab2": 137, "lab1": 143}], "resume {root}"),
    ],
)
def test_a_node_that_failed_in_every_attempt_is_left_out(
    cli: Commands, tmp_path: Path, exits: list[Ends], next_: str
) -> None:
    root = write_set(tmp_path, "s", done=2, job=job("complete"))
    for attempt, ends in enumerate(exits, 1):
        died(root, 3, attempt, ends)
    found = explained(cli, root)
    assert found["next"] == f"orchestrator {next_.format(root=root)}"
    assert found["sentence"].startswith("run 3 of 3 failed: ")
    assert cli("explain", root).out.startswith("s is complete; run 3 of 3 failed: ")


KILLED, ENDED = 137, 143
LOG = "logs {root} --run 3 --attempt 4 --node lab4"


@pytest.mark.parametrize(
    ("earlier", "later", "next_", "why"),
    [
        # Another node failed alike: no node is the cause, and leaving out one more repeats it.
        ({"lab2": KILLED, "lab1": ENDED}, {"lab4": KILLED, "lab1": ENDED}, LOG, "lab2 and lab4"),
        ({"lab2": 9, "lab1": 9}, {"lab4": 9, "lab1": 9}, LOG, "failed alike before"),
        # The same node, still among them: leaving it out was the command of the job before.
        ({"lab4": 9, "lab1": ENDED}, {"lab4": 9, "lab1": ENDED}, LOG, "or repair it"),
        # Another failure: the node that was left out stays out.
        ({"lab2": 1, "lab1": ENDED}, {"lab4": 9, "lab1": ENDED}, "--exclude lab2,lab4", "last job"),
    ],
)
def test_what_failed_alike_in_an_earlier_job_is_not_repeated(
    cli: Commands, tmp_path: Path, earlier: Ends, later: Ends, next_: str, why: str
) -> None:
    root = write_set(tmp_path, "s", done=2, job=job("complete"))
    for attempt in (1, 2):
        died(root, 3, attempt, earlier, job_id="6", nodes=[*sorted(earlier)])
    for attempt in (3, 4):
        died(root, 3, attempt, later, nodes=[*sorted(later)])
    found = explained(cli, root)
    assert found["next"].endswith(next_.format(root=root)) and why in found["remedy"]


def test_a_node_that_failed_once_in_each_of_two_jobs_is_left_out(
    cli: Commands, tmp_path: Path
) -> None:
    root = write_set(tmp_path, "s", done=2, job=job("complete"))
    died(root, 3, 1, {"lab2": 9, "lab1": ENDED}, job_id="6")
    died(root, 3, 2, {"lab2": 9, "lab1": ENDED})
    found = explained(cli, root)
    assert found["next"] == f"orchestrator resume {root} --exclude lab2"
    assert found["remedy"].startswith("lab2 failed in every attempt of the run")


KILL = "./run_and_time.sh: line 8:    36 Killed                  python3 train.py\n"


def test_a_crash_that_ends_with_0_is_told_by_its_log(cli: Commands, tmp_path: Path) -> None:
    """As many images do: the order of the ends is left, and the cause."""
    root = write_set(tmp_path, "s", done=2, job=job("complete"))
    ends = {"lab2": 0, "lab1": 0}
    for attempt in (1, 2):
        died(root, 3, attempt, ends, "healthy\n", KILL, job_id="6")
    (root / "jobs/7.json").unlink()
    write(replace(job("complete"), job_id="6"), root / "jobs/6.json")
    assert explained(cli, root)["next"] == f"orchestrator resume {root} --exclude lab2"
    write(job("complete"), root / "jobs/7.json")
    (root / "jobs/6.json").unlink()
    for attempt in (3, 4):
        died(root, 3, attempt, ends, "healthy\n", KILL)
    found = explained(cli, root)
    assert found["next"] == f"orchestrator logs {root} --run 3 --attempt 4 --node lab2"
    assert found["remedy"].startswith("lab2 failed alike in an earlier job: ")
    for attempt in (5, 6):
        nodes = ["lab1", "lab4"]
        died(root, 3, attempt, {"lab4": 0, "lab1": 0}, "healthy\n", KILL, job_id="8", nodes=nodes)
    (root / "jobs/7.json").unlink()
    write(replace(job("complete"), job_id="8", started_ms=2000), root / "jobs/8.json")
    found = explained(cli, root)
    assert found["next"] == f"orchestrator logs {root} --run 3 --attempt 6 --node lab4"
    assert found["remedy"].startswith("lab2 and lab4 failed alike before: ")
    # A node that died without a word has nothing to show: what the others said about it counts.
    (root / "runs/3/attempt_6/node_1.log").write_text("\n")
    assert explained(cli, root)["next"] == f"orchestrator logs {root} --run 3 --attempt 6"


def test_a_paused_set_that_failed_alike_before_ends_in_its_log(
    cli: Commands, tmp_path: Path
) -> None:
    root = write_set(tmp_path, "s", job=job("paused", "3 attempts died alike"))
    killed = "bash: line 1: 1234 Killed   python train.py\n"
    for attempt, job_id in enumerate("667", 1):
        died(root, 1, attempt, {"lab1": KILLED, "lab2": KILLED}, killed, killed, job_id=job_id)
    found = explained(cli, root)
    assert found["next"].startswith(f"orchestrator logs {root} --run 1 --attempt 3")
    assert found["remedy"].startswith("it failed alike before: ")


def test_a_run_that_ends_without_a_cause_ends_in_its_log(cli: Commands, tmp_path: Path) -> None:
    """All nodes fail alike, so that none stands out."""
    root = write_set(tmp_path, "s", done=2, job=job("complete"))
    for attempt in (1, 2):
        died(root, 3, attempt, {"lab2": 9, "lab1": 9})
    found = explained(cli, root)
    assert found["next"] == f"orchestrator logs {root} --run 3 --attempt 2 --node lab2"
    assert found["remedy"] == "look at its log, then resume"


def test_a_set_here_has_no_nodes_to_leave_out(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", done=2, job=job("complete"), scheduler="local")
    for attempt in (1, 2):
        died(root, 3, attempt, {"lab2": 137, "lab1": 143})
    assert explained(cli, root)["next"] == f"orchestrator resume {root}"


def test_the_log_of_the_node_that_failed_is_shown(cli: Commands, tmp_path: Path) -> None:
    """The node that was stopped for it has rank 0, whose log is shown by default."""
    reason = "node lab2 (rank 1) exited 9, the other was stopped"
    root = write_set(tmp_path, "s", job=job("paused", reason))
    died(root, 1, 3, {"lab2": 9, "lab1": 143}, "healthy\n", "its last word\n", reason=reason)
    found = explained(cli, root)
    assert found["next"] == f"orchestrator logs {root} --run 1 --attempt 3 --node lab2"
    assert "its last word" in found["sentence"] and "healthy" not in found["sentence"]
    assert cli(*found["next"].split()[1:]).out == "its last word\n"


def test_an_engine_that_lacks_a_device_says_which(cli: Commands, tmp_path: Path) -> None:
    said = 'docker: Error response from daemon: error gathering device information while adding custom device "/dev/kfd": no such file or directory'
    root = write_set(
        tmp_path, "s", job=job("paused", f"all 8 nodes: the container ended at once: {said}")
    )
    found = explained(cli, root)
    assert found["cause"] == "device_missing" and "/dev/kfd" in found["evidence"][0]["text"]


# ---- the time limit ----


def test_a_limit_shorter_than_a_run_is_raised(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", job=job(*TIME_LIMIT))
    died(root, 1, 1, {"lab1": 143, "lab2": 143}, outcome="interrupted", reason=TIME_LIMIT[1])
    found = explained(cli, root)
    # A run takes longer than 9 minutes: 18 for each of three, and one in reserve.
    assert found["next"] == f"orchestrator resume {root} --time 72"
    text = cli("explain", root).out
    assert text.startswith("s ended at its time limit: no run of the last job ended in time\n")
    assert "the job reached its time limit" in text and "near" not in text
    assert f"orchestrator resume {root} --time 72" in cli("status", root).out


def test_the_new_limit_is_that_of_submit(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", job=job(*TIME_LIMIT))
    record = json.loads((root / "set.json").read_text())
    record.update(system="MI325X_08x08x32", workload="flux1", round="6.0", ruleset="6.0.0")
    (root / "set.json").write_text(json.dumps(record))
    # 127 minutes a run, as in test_time_limit.py.
    assert explained(cli, root)["next"] == f"orchestrator resume {root} --time {4 * 127}"


def test_a_job_that_finished_a_run_is_continued(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", done=2, job=job(*TIME_LIMIT))
    for run in (1, 2):
        path = root / f"runs/{run}/state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"job_id": "7"}))
    found = explained(cli, root)
    assert found["next"] == f"orchestrator resume {root}"
    assert found["sentence"] == "2 of 3 runs done"


# ---- NaN ----


def test_nan_in_a_run_that_counts_is_named(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", done=2, job=job("complete"))
    stop = mllog("run_stop", 9000, None, status="aborted")
    log = mllog("eval_accuracy", 8000, 0.4) + mllog("eval_accuracy", 8500, float("nan")) + stop
    died(root, 3, 1, {"lab1": 0, "lab2": 0}, log, "", outcome="not_converged")
    found = explained(cli, root)
    assert (found["state"], found["cause"]) == ("complete", "nan_loss")
    assert found["sentence"] == "run 3 of 3 did not reach the target: the loss became NaN"
    assert (found["evidence"][0]["file"], found["evidence"][0]["line"]) == (
        "runs/3/attempt_1/node_0.log",
        2,
    )


def test_a_run_that_missed_the_target_otherwise_is_a_result(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", done=2, job=job("complete"))
    log = mllog("eval_accuracy", 8000, 0.4) + mllog("run_stop", 9000, None, status="aborted")
    died(root, 3, 1, {"lab1": 0, "lab2": 0}, log, "", outcome="not_converged")
    found = explained(cli, root)
    assert (found["cause"], found["next"]) == ("complete", f"orchestrator score {root}")


# ---- a wrong value, a missing interface, a damaged bundle ----


def given(root: Path, config: str, network: str, *names: str) -> None:
    """Write a bundle whose variables `names` are of --env."""
    (root / "bundle").mkdir()
    (root / "bundle/config_S.sh").write_text(config)
    (root / "bundle/rccl_env.sh").write_text(network)
    rows = [f"{name}\tcommand line\t\t\t\n" for name in names]
    text = "variable\tlayer\tfile\tline\tsource\nB\tworkload\tw.yaml\t3\t\n"
    (root / "bundle/origins.tsv").write_text(text + "".join(rows))


def test_a_wrong_value_of_env_is_left_out_of_a_new_set(cli: Commands, tmp_path: Path) -> None:
    root = write_set(tmp_path, "s", job=job("paused", "3 attempts died alike"))
    config = "export BUILTIN_FAULT=kil:run=2\nexport A='b c'\nexport B=1\n"
    given(root, config, "", "A", "BUILTIN_FAULT")
    wrong = "builtin: node 0: BUILTIN_FAULT: 'kil:run=2': expected KIND, one of kill\n"
    died(root, 1, 1, {"lab1": 2, "lab2": 2}, wrong, wrong)
    found = explained(cli, root)
    assert found["cause"] == "input_refused" and "BUILTIN_FAULT" in found["sentence"]
    assert "BUILTIN_FAULT" in found["remedy"]
    assert found["next"] == "orchestrator submit S w --nexp 3 --env 'A=b c'"


def test_a_refused_value_of_env_is_not_tried_again(
    cli: Commands, site: Path, tmp_path: Path
) -> None:
    words = one_node(tmp_path, site)
    wrong = "builtin: BUILTIN_SHIFT='abc': expected a whole number"
    (tmp_path / "code/run_and_time.sh").write_text(f'echo "{wrong}" >&2; exit 2\n')
    assert cli("submit", *words, "--env", "BUILTIN_SHIFT=abc", "--wait").code != 0
    root = Path(cli.out.split()[1])
    assert [path.name for path in root.glob("runs/1/attempt_*")] == ["attempt_1"]
    assert "settings refused at the start" in cli.out + cli.err
    found = explained(cli, root)
    assert (found["state"], found["cause"]) == ("paused", "input_refused")
    assert found["next"].startswith("orchestrator submit one_node builtin --round 1.0 --nexp 1")
    assert "BUILTIN_SHIFT" not in found["next"] and "BUILTIN_SHIFT" in found["remedy"]
    assert cli("audit", root, "--only", "replay").code == 0, cli.out


INTERFACE = (
    "network: all 8 nodes: NCCL_SOCKET_IFNAME=eth9 ({}): this node has no such interface; it has "
    "eth0,lo (network.allow_differences: true in the site file starts the set all the same)"
)


@pytest.mark.parametrize(
    ("origin", "site", "option", "place"),
    [
        (
            "site",
            "network: {socket_ifname: eth9}",
            " --override network.socket_ifname=null",
            "site",
        ),
        ("site", "network: {socket_ifname: eth0}", "", "site"),
        ("user", "", "", "--env NCCL_SOCKET_IFNAME"),
    ],
)
def test_a_missing_interface_is_left_to_the_nodes(
    cli: Commands, tmp_path: Path, origin: str, site: str, option: str, place: str
) -> None:
    (tmp_path / "site.yaml").write_text(f"kind: site\nlog_dir: {tmp_path}\n{site}\n")
    root = write_set(tmp_path, "s", job=job("failed", INTERFACE.format(origin)))
    words = ("--site", tmp_path / "site.yaml")
    found = dict(cli.json("explain", root, *words))
    assert found["cause"] == "no_interface"
    site_option = f" --site {tmp_path}/site.yaml"
    assert found["next"] == f"orchestrator submit S w --nexp 3{site_option}{option}"
    assert place in found["remedy"] and "eth0,lo" in found["remedy"]
    assert cli("explain", root).out.startswith("s failed: the named network interface is missing")


@pytest.mark.parametrize(
    ("reason", "option"),
    [
        (INTERFACE.format("user"), ""),
        (
            "node lab1: run as root, or set clear_caches: false",
            " --env NCCL_SOCKET_IFNAME=eth9 --override clear_caches=false",
        ),
    ],
)
def test_a_new_set_keeps_its_name_and_variables(
    cli: Commands, tmp_path: Path, reason: str, option: str
) -> None:
    root = write_set(tmp_path, "s", job=job("failed", reason))
    record = json.loads((root / "set.json").read_text())
    (root / "set.json").write_text(json.dumps(record | {"label": "new bios"}))
    network = "export NCCL_DEBUG=INFO\nexport NCCL_SOCKET_IFNAME=eth9\n"
    names = ("A", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME")
    given(root, "export A='b c'\nexport B=1\n", network, *names)
    kept = "--env 'A=b c' --env NCCL_DEBUG=INFO"
    found = explained(cli, root)["next"]
    assert found == f"orchestrator submit S w --nexp 3 --name 'new bios' {kept}{option}"


@pytest.mark.parametrize(
    "reason",
    [
        "config_S.sh is missing from this bundle",
        "config_S.sh of the bundle is missing; to put back what was declared: x",
        "config_S.sh, job.sh of the bundle are missing; to put back what was declared: x",
    ],
)
def test_resume_puts_a_missing_file_of_the_bundle_back(
    cli: Commands, tmp_path: Path, reason: str
) -> None:
    root = write_set(tmp_path, "s", job=job("failed", reason))
    found = explained(cli, root)
    assert (found["cause"], found["next"]) == ("bundle_incomplete", f"orchestrator resume {root}")


def test_an_edited_bundle_can_be_meant(cli: Commands, tmp_path: Path) -> None:
    text = "the bundle was edited since it was declared: config_S.sh; if that is meant: x"
    root = write_set(tmp_path, "s", job=job("failed", text))
    (root / "bundle").mkdir()
    (root / "bundle/config_S.sh").write_text("export A=2\n")
    assert explained(cli, root)["next"] == f"orchestrator resume {root} --edited"
