"""Runs as real processes: what they print, write, leave behind and are given. What counts: tests/simulation/test_sets_runs.py."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from bundle_parts import Bundles
from sites import write_system

from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.starts import attempt_starts, differences


def test_three_runs(bundles: Bundles) -> None:
    code, out = bundles.make(system="local_2x2x8").run(NEXP="3")
    assert code == 0, out
    one = bundles.set
    assert one.results() == [1, 2, 3]
    for run in (1, 2, 3):
        state = one.run(run)
        assert (state["state"], state["outcome"], state["reason"], state["attempt"]) == ("success", "success", "", 1)
        assert state == one.attempt(run, 1)
        assert state["exit_codes"] == {"local0": 0, "local1": 0}
        assert state["start_ms"] <= state["end_ms"]
        # A result is a link that also holds when the set is moved or mounted elsewhere.
        assert os.readlink(one.root / f"results/result_{run}.txt") == f"../runs/{run}/result_{run}.txt"
    assert (one.job["state"], one.job["run"], one.job["nodes"], one.job["reason"]) == (
        "complete",
        3,
        ["local0", "local1"],
        "",
    )
    assert one.left_behind() == []
    assert list((bundles.folder / "tmp").iterdir()) == []


def test_what_the_set_says_of_itself(bundles: Bundles) -> None:
    bundles.make(nexp=1).run(ROOT_SEED="77", CONT="else:where")
    one = bundles.set
    about = one.json("set.json")
    assert re.fullmatch(r"one_node-builtin-\d{8}-\d{6}-[0-9a-f]{4}", about["set_id"])
    assert about["set_id"] == one.root.name
    assert {
        name: about[name]
        for name in (
            "schema",
            "system",
            "workload",
            "benchmark",
            "round",
            "nexp",
            "root_seed",
            "created_by",
            "job_name",
            "scheduler",
            "nodes",
            "gpus_per_node",
            "engine",
            "image",
            "max_attempts",
            "target",
            "target_is_upper_bound",
            "run_timeout_s",
        )
    } == {
        "schema": 1,
        "system": "one_node",
        "workload": "builtin",
        "benchmark": "builtin",
        "round": "1.0",
        "nexp": 1,
        "root_seed": 77,
        "created_by": "job",
        "job_name": f"orch-{one.root.name}",
        "scheduler": "local",
        "nodes": 1,
        "gpus_per_node": 1,
        "engine": "none",
        "image": "else:where",
        "max_attempts": 2,
        "target": bundles.entry.target,
        "target_is_upper_bound": True,
        "run_timeout_s": 120,
    }
    assert {path.name for path in one.root.iterdir()} == {
        f"events-{one.job['job_id']}.tsv",
        "set.json",
        "ledger.jsonl",
        "bundle",
        "jobs",
        "environment.sh",
        "nodes",
        "runs",
        "preflight",
        "results",
    }


def test_a_program_that_does_not_listen_is_killed(bundles: Bundles) -> None:
    deaf = "[[ $me != 1.1.0 ]] || { trap '' TERM; echo hanging; while :; do read -r -t 1 <> <(:); done; }"
    code, out = bundles.make(deaf, nexp=1).run(RUN_TIMEOUT_S="1")
    assert code == 0, out
    assert bundles.set.outcomes(1) == ["infrastructure", "success"]
    assert bundles.set.left_behind() == []


def test_a_node_that_does_not_answer_is_not_waited_for(bundles: Bundles) -> None:
    plan = "[[ $me != 1.1.1 ]] || kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat); [[ $me != 1.1.* ]] || hang"
    code, out = bundles.make(plan, system="local_2x2x8", nexp=1).run(NODE_SILENCE_S="3")
    assert code == 0, out
    one = bundles.set
    assert one.outcomes(1) == ["infrastructure", "success"]
    assert one.attempt(1, 1)["exit_codes"] == {"local0": 143, "local1": -1}
    assert one.left_behind() == []


def test_the_result_is_the_log_that_has_the_end_of_the_run(bundles: Bundles) -> None:
    """Which node logs is the program's affair (c10d sorts host names); words that only look like the end are none."""
    plan = """[[ $me != 1.1.0 ]] || { echo 'the key run_stop, status success'; exit 0; }
    [[ $me != 1.1.1 ]] || { SLURM_NODEID=0 stop success; exit 0; }
    [[ $me != 2.1.0 ]] || { echo '{"key": "run_stop", "metadata": {"status": "success"}}'; exit 0; }"""
    code, _ = bundles.make(plan, system="local_2x2x8", nexp=2).run()
    one = bundles.set
    assert (code, one.outcomes(1), one.outcomes(2)) == (0, ["success"], ["infrastructure", "success"])
    assert one.results() == [1, 2]
    assert (one.root / "results/result_1.txt").read_bytes() == one.log(1, 1, 1) != one.log(1, 1, 0)


def test_seeds_and_ports(bundles: Bundles) -> None:
    plan = """echo "seed=$SEED port=$MASTER_PORT address=$MASTER_ADDR nodes=$SLURM_NNODES rank=$NODE_RANK"
    [[ $me != 2.1.* ]] || hang"""
    bundles.make(plan, system="local_2x2x8", nexp=3).run(ROOT_SEED="2145483646", RUN_TIMEOUT_S="2")
    one, seen = bundles.set, {}
    for run in (1, 2, 3):
        for attempt in one.attempts(run):
            words = [
                dict(
                    word.split("=")
                    for word in one.log(run, attempt, rank).decode().splitlines()[0 if rank else 1].split()
                )
                for rank in (0, 1)
            ]
            assert [word.pop("rank") for word in words] == ["0", "1"]
            assert words[0] == words[1]
            assert (words[0]["address"], words[0]["nodes"]) == ("127.0.0.1", "2")
            state = one.attempt(run, attempt)
            assert (state["seed"], state["master_port"]) == (int(words[0]["seed"]), int(words[0]["port"]))
            assert state["seed"] == 2_145_483_646 + 1000 * (run - 1) + attempt < 2**31
            seen[run, attempt] = words[0]
    assert len(seen) == 4
    assert len({one["seed"] for one in seen.values()}) == len({one["port"] for one in seen.values()}) == 4
    assert all(10_000 <= int(one["port"]) < 32_768 for one in seen.values())


def test_a_time_stamp_of_the_environment_is_no_difference_between_jobs(bundles: Bundles) -> None:
    write_system(bundles.folder / "systems", env={"EXP_NAME": {"unique": "exp-"}, "LR": "0.1"})
    bundles.make('echo "experiment $EXP_NAME"; [[ $me != 1.1.* ]] || exit 3', nexp=1)
    assert bundles.run(MAX_ATTEMPTS="1")[0] == 1
    one = bundles.set
    assert bundles.again(one)[0] == 0
    names = {line for k in (1, 2) for line in one.log(1, k).decode().splitlines() if line.startswith("experiment exp-")}
    starts = attempt_starts(SetEvidence(one.root))
    assert (len(names), len(starts)) == (2, 2)
    assert differences(starts) == []


def test_two_sets_have_different_seeds(bundles: Bundles) -> None:
    bundles.make(nexp=1)
    roots = set()
    for _ in range(3):
        bundles.run()
        roots |= {json.loads(path.read_text())["root_seed"] for path in bundles.log_dir.glob("*/set.json")}
    assert len(roots) == 3


def test_files_of_a_run_go_to_its_attempt(bundles: Bundles) -> None:
    plan = rf"""cd {bundles.log_dir}/*/nodes/local$SLURM_NODEID/scratch || exit 1
    ls -A; mkdir -p "a folder"; echo $me >"a folder/of $me"; echo $me >file; echo $me >.hidden
    [[ $me != 2.1.* ]] || hang"""
    code, out = bundles.make(plan, system="local_2x2x8").run(RUN_TIMEOUT_S="2")
    assert code == 0, out
    one = bundles.set
    assert [one.outcomes(run) for run in (1, 2)] == [["success"], ["infrastructure", "success"]]
    for run, attempt in ((1, 1), (2, 1), (2, 2)):
        for rank in (0, 1):
            me, folder = f"{run}.{attempt}.{rank}", one.root / f"runs/{run}/attempt_{attempt}/files/local{rank}"
            assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == {
                "file",
                ".hidden",
                "a folder",
                f"a folder/of {me}",
            }
            assert (folder / "file").read_text() == f"{me}\n"
    assert b"file" not in one.log(2, 2)
    assert [list(path.iterdir()) for path in one.root.glob("nodes/*/scratch")] == [[], []]


def test_what_a_run_leaves_running_ends_with_it(bundles: Bundles) -> None:
    code, out = bundles.make("sleep 1000 & (trap '' TERM HUP; exec sleep 1001) & echo left", nexp=1).run()
    assert code == 0, out
    assert b"left" in bundles.set.log(1)
    assert bundles.set.left_behind() == []


def test_any_bytes_as_output(bundles: Bundles) -> None:
    plan = r"""head -c 3000000 /dev/zero; printf '\n\xff\xfe\0\x1b[2J no line end'; printf 'x%.0s' {1..100000}; echo
    printf ':::MLLOG {"key": "run_stop", "metadata": {"status": "suc\0'; echo"""
    code, out = bundles.make(plan, nexp=1).run()
    assert code == 0, out
    assert len(bundles.set.log(1)) > 3_100_000
    assert bundles.set.results() == [1]
    assert bundles.set.run(1)["state"] == "success"


def test_the_callers_environment_stays_outside(bundles: Bundles) -> None:
    mine = {
        "NCCL_DEBUG": "TRACE",
        "PYTHONPATH": "/mine",
        "LD_PRELOAD_X": "/mine.so",
        "BUILTIN_LR": "9",
        "SEED": "5",
        "MASTER_PORT": "1",
        "SLURM_NNODES": "7",
        "SLURM_NODEID": "3",
        "SLURM_JOB_ID": "99",
        "SECRET_KEY": "not this one",
        "HF_TOKEN": "hf_'x' $(y)",
        "ENGINE": "docker",
        "COMMAND": "false",
        "BASH_ENV": str(bundles.folder / "bashrc"),
    }
    (bundles.folder / "bashrc").write_text("export FROM_BASHRC=1\n")
    bundles.make("printf 'env:\\0'; env -0; echo", nexp=1, pass_env=["HF_TOKEN", "NOT_SET"]).run(**mine)
    one = bundles.set
    texts = one.log(1).split(b"env:\0")[1].split(b"\n:::MLLOG")[0]
    seen = dict(text.split("=", 1) for text in texts.decode().split("\0") if text)
    config = set(bundles.entry.whole_env)
    run = {
        "SEED",
        "MASTER_ADDR",
        "MASTER_PORT",
        "SLURM_NNODES",
        "SLURM_NODEID",
        "SLURM_JOB_ID",
        "ORCH_RUN",
        "ORCH_ATTEMPT",
    }
    assert set(seen) - {"PWD", "SHLVL", "_", "OLDPWD"} == config | run | {"HF_TOKEN", "PATH", "HOME", "TMPDIR"}
    assert (seen["HF_TOKEN"], seen["SLURM_NNODES"], seen["SLURM_NODEID"]) == ("hf_'x' $(y)", "1", "0")
    assert seen["BUILTIN_LR"] == str(bundles.entry.env["BUILTIN_LR"]) != "9"
    assert seen["SEED"] == str(one.run(1)["seed"])
    # The value of what is passed by name is written nowhere.
    elsewhere = [path for path in one.root.rglob("*") if path.is_file() and b"hf_" in path.read_bytes()]
    assert {path.name for path in elsewhere} == {"node_0.log", "result_1.txt"}


STATES = (
    "*/set.json",
    "*/jobs/[!.]*.json",
    "*/runs/*/state.json",
    "*/runs/*/attempt_*/state.json",
    "*/runs/*/attempt_*/node_*.json",
)


def test_readers_see_whole_files_only(bundles: Bundles) -> None:
    loop = bundles.make("[[ $me != 2.1.0 ]] || exit 1", nexp=6).start()
    seen: dict[str, set[str]] = {}
    while loop.process.poll() is None:
        for path in [path for pattern in STATES for path in bundles.log_dir.glob(pattern)]:
            text = path.read_text()  # a file that is renamed over is never missing
            record = json.loads(text)
            seen.setdefault(path.name, set()).add(record.get("state", ""))
    assert loop.end() == 0
    assert {"queued", "running", "success"} <= seen["state.json"]


def test_a_set_folder_with_blanks_in_its_path(bundles: Bundles) -> None:
    place = bundles.folder / "a 'log' dir $(x) *"
    place.mkdir()
    code, out = bundles.make(nexp=1).run(LOGDIR=str(place))
    assert code == 0, out
    [root] = place.iterdir()
    assert (root / "results/result_1.txt").is_file()


def test_the_bundle_can_be_elsewhere_and_read_only(bundles: Bundles, tmp_path: Path) -> None:
    bundles.make(nexp=1)
    bundles.bundle = bundles.bundle.rename(tmp_path / "moved bundle")
    for path in bundles.bundle.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    code, out = bundles.run()
    assert code == 0, out


@pytest.mark.parametrize("nodes", [1, 2])
def test_node_rank(bundles: Bundles, nodes: int) -> None:
    """Single-node configs export NODE_RANK=0; over several nodes every node gets its own."""
    bundles.make(
        'echo "rank=${NODE_RANK-none}"',
        system="local_2x2x8" if nodes == 2 else "one_node",
        nexp=1,
        env={"NODE_RANK": "0"},
    ).run()
    assert [b"rank=%d" % rank in bundles.set.log(1, 1, rank) for rank in range(nodes)] == [True] * nodes
