"""Runs as real processes: what they print, write, leave behind and are given. What counts: tests/simulation/test_sets_runs.py."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bundle_parts import Bundles, Set, made

from orchestrator.cli import main
from orchestrator.evidence.copies import original
from orchestrator.evidence.ledger import verify
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.set import ledger

ROOT = 2_145_483_646
PLAN = r"""echo "seed=$SEED port=$MASTER_PORT address=$MASTER_ADDR nodes=$SLURM_NNODES rank=$NODE_RANK"
cd %s/*/nodes/local$SLURM_NODEID/scratch || exit 1
ls -A; mkdir -p "a folder"; echo $me >"a folder/of $me"; echo $me >file; echo $me >.hidden
[[ $me != 2.1.1 ]] || { : >$TMPDIR/../arrived; hang; }
[[ $me != 2.1.0 ]] || { until [[ -e $TMPDIR/../arrived ]]; do read -r -t 0.05 <> <(:); done; exit 3; }
sleep 1000 & (trap '' TERM HUP; exec sleep 1001) &
[[ $me != 1.1.0 ]] || { printf 'env:\0'; env -0; echo; }"""
CALLERS = {
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
}
"""What the environment of whoever starts the bundle may hold."""
ATTEMPTS = ((1, 1), (2, 1), (2, 2))


@dataclass(frozen=True)
class Ran:
    """A set that really ran. `left`: what was left of it when its loop had ended."""

    bundles: Bundles
    set: Set
    left: list[str]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """Two runs on two nodes; the first attempt of the second one dies."""
    making = made(tmp_path_factory.mktemp("loop"))
    bundles = next(making)
    (bundles.folder / "bashrc").write_text("export FROM_BASHRC=1\n")
    bundles.make(
        PLAN % bundles.log_dir,
        system="two_nodes",
        env={"NODE_RANK": "0"},
        pass_env=["HF_TOKEN", "NOT_SET"],
    )
    own = {"ROOT_SEED": str(ROOT), "CONT": "else:where", "BASH_ENV": str(bundles.folder / "bashrc")}
    code, out = bundles.run(**CALLERS, **own)
    assert code == 0, out
    left = [one for one in bundles.set.left_behind() if not one.endswith("/.hidden")]
    yield Ran(bundles, bundles.set, left)
    next(making, None)


def test_a_set_with_an_attempt_that_died(ran: Ran) -> None:
    one = ran.set
    assert [one.outcomes(run) for run in (1, 2)] == [["success"], ["infrastructure", "success"]]
    assert one.results() == [1, 2]
    state = one.run(1)
    assert (state["state"], state["outcome"], state["reason"], state["attempt"]) == (
        "success",
        "success",
        "",
        1,
    )
    assert state == one.attempt(1, 1) and state["start_ms"] <= state["end_ms"]
    assert one.attempt(2, 1)["exit_codes"] == {"local0": 3, "local1": 143}
    assert (one.job["state"], one.job["nodes"], one.job["reason"]) == (
        "complete",
        ["local0", "local1"],
        "",
    )
    # Its runs leave processes behind, one of them deaf to TERM and HUP.
    assert ran.left == [] and list((ran.bundles.folder / "tmp").iterdir()) == []


def test_what_the_set_says_of_itself(ran: Ran) -> None:
    one = ran.set
    about = one.json("set.json")
    assert re.fullmatch(r"two_nodes-builtin-\d{8}-\d{6}-[0-9a-f]{4}", about["set_id"])
    assert about["set_id"] == one.root.name
    expected = {
        "schema": 1,
        "system": "two_nodes",
        "workload": "builtin",
        "benchmark": "builtin",
        "round": "1.0",
        "nexp": 2,
        "root_seed": ROOT,
        "created_by": "job",
        "job_name": f"orch-{one.root.name}",
        "scheduler": "local",
        "nodes": 2,
        "gpus_per_node": 1,
        "gpu_model": "none",
        "engine": "none",
        "image": "else:where",
        "max_attempts": 2,
        "target": ran.bundles.entry.target,
        "target_is_upper_bound": True,
        "run_timeout_s": 120,
    }
    assert {name: about[name] for name in expected} == expected
    files = "set.json ledger.jsonl bundle jobs environment.sh nodes program runs inside preflight results"
    assert {path.name for path in one.root.iterdir()} == {
        f"events-{one.job['job_id']}.tsv",
        *files.split(),
    }


def test_seeds_and_ports(ran: Ran) -> None:
    seeds, ports = set(), set()
    for run, attempt in ATTEMPTS:
        lines = [
            ran.set.log(run, attempt, rank).decode().splitlines()[0 if rank else 1]
            for rank in (0, 1)
        ]
        words = [dict(word.split("=") for word in line.split()) for line in lines]
        # Configs of one node export NODE_RANK=0; over several nodes every node gets its own.
        assert [word.pop("rank") for word in words] == ["0", "1"]
        assert words[0] == words[1]
        assert (words[0]["address"], words[0]["nodes"]) == ("127.0.0.1", "2")
        state = ran.set.attempt(run, attempt)
        assert (state["seed"], state["master_port"]) == (
            int(words[0]["seed"]),
            int(words[0]["port"]),
        )
        assert state["seed"] == ROOT + 1000 * (run - 1) + attempt < 2**31
        assert 10_000 <= state["master_port"] < 32_768
        seeds.add(state["seed"])
        ports.add(state["master_port"])
    assert len(seeds) == len(ports) == 3


def test_files_of_a_run_go_to_its_attempt(ran: Ran) -> None:
    one = ran.set
    for run, attempt in ATTEMPTS:
        for rank in (0, 1):
            me, folder = (
                f"{run}.{attempt}.{rank}",
                one.root / f"runs/{run}/attempt_{attempt}/files/local{rank}",
            )
            names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
            assert names == {"file", ".hidden", "a folder", f"a folder/of {me}"}
            assert (folder / "file").read_text() == f"{me}\n"
    assert b"file" not in one.log(2, 2), "the next run finds an empty folder"
    assert [list(path.iterdir()) for path in one.root.glob("nodes/*/scratch")] == [[], []]


def test_the_callers_environment_stays_outside(ran: Ran) -> None:
    one, entry = ran.set, ran.bundles.entry
    texts = one.log(1).split(b"env:\0")[1].split(b"\n:::MLLOG")[0]
    seen = dict(text.split("=", 1) for text in texts.decode().split("\0") if text.strip())
    run = {
        "SEED",
        "MASTER_ADDR",
        "MASTER_PORT",
        "SLURM_NNODES",
        "SLURM_NODEID",
        "SLURM_JOB_ID",
        "ORCH_RUN",
    }
    more = {"ORCH_ATTEMPT", "HF_TOKEN", "PATH", "HOME", "TMPDIR", "TORCHELASTIC_ERROR_FILE"}
    assert set(seen) - {"PWD", "SHLVL", "_", "OLDPWD"} == {*entry.whole_env, *run, *more}
    assert (seen["HF_TOKEN"], seen["SLURM_NNODES"], seen["SLURM_NODEID"]) == (
        "hf_'x' $(y)",
        "2",
        "0",
    )
    assert seen["BUILTIN_LR"] == str(entry.env["BUILTIN_LR"]) != "9"
    assert seen["SEED"] == str(one.run(1)["seed"])
    # The value of what is passed by name is written nowhere.
    elsewhere = [
        path for path in one.root.rglob("*") if path.is_file() and b"hf_" in path.read_bytes()
    ]
    assert {path.name for path in elsewhere} == {"node_0.log", "result_1.txt"}


@pytest.fixture
def copied(ran: Ran, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ran.set.root, tmp_path / ran.set.root.name, symlinks=True))


def test_a_copy_is_another_set(ran: Ran, copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its jobs are those of the original: nothing is ended, nothing is submitted under its name."""
    assert verify(ran.set.root).problems == () and verify(copied).copy_of == str(ran.set.root)
    for path in (copied / "jobs").glob("*.json"):
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "state": "running", "ended_ms": 0})
        )
    for command in ("cancel", "resume"):
        assert main([command, str(copied)]) == 5
        assert f"is a copy of {ran.set.root}" in capsys.readouterr().err
    assert main(["status", str(copied)]) == 0
    assert f"a copy of {ran.set.root}" in capsys.readouterr().out


def test_a_set_that_was_moved_is_the_same(copied: Path, tmp_path: Path) -> None:
    entries = ledger.read(copied)[0]
    gone, here = (
        {"path": str(tmp_path / "gone"), "inode": 1},
        {"path": "/elsewhere", "inode": copied.stat().st_ino},
    )
    for place in (gone, here):
        declared = replace(entries[0], data={**entries[0].data, "place": place})
        assert original(copied, [declared]) == ""


def test_a_bundle_that_was_edited_and_is_read_only_on_a_host_with_few_programs(
    bundles: Bundles, tmp_path: Path
) -> None:
    """The published way of working: edit the config, start it. The set keeps what ran.

    It needs bash, Python and dirname: what a host lacks can be taken neither for a full disk nor for a bad run.
    """
    programs = bundles.folder / "programs"
    programs.mkdir()
    for name in ("bash", "python3", "dirname"):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(os.path.realpath(found))
    bundles.make('echo "mine=$MINE rank=$NODE_RANK"', nexp=1, env={"NODE_RANK": "0"})
    with (bundles.bundle / "config_one_node.sh").open("a") as config:
        config.write("export MINE='it is'\n")
    bundles.bundle = bundles.bundle.rename(tmp_path / "moved bundle")
    for path in bundles.bundle.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    place = bundles.folder / "not there yet/a 'log' dir $(x) *"
    code, out = bundles.run(LOGDIR=str(place), NEXP="", PATH=str(programs))
    assert code == 0, out
    [root] = place.iterdir()
    one = Set(root)
    assert one.results() == [1] and one.json("set.json")["nexp"] == 1
    assert b"mine=it is rank=0\n" in one.log(1)
    assert "MINE" in (root / "bundle/config_one_node.sh").read_text()


def test_a_second_copy_of_a_job_leaves_quietly(bundles: Bundles) -> None:
    """Some schedulers start the batch script on every node; another job is an error."""
    bundles.make("hang", nexp=1)
    first = bundles.start(ORCH_JOB_ID="77")
    one = bundles.running(1, 1, "hanging")
    code, out = bundles.again(one, ORCH_JOB_ID="77")
    assert (code, out.count("\n")) == (0, 1) and "error" not in out, out
    assert f"job 77 started on several nodes; the copy on {THIS.host} works on the set" in out
    code, out = bundles.again(one, ORCH_JOB_ID="78")
    assert code == 1 and "error: job 77 on" in out and "is already working on" in out
    assert [job["job_id"] for job in one.jobs()] == ["77"]
    first.signal(signal.SIGTERM)
    first.end()


def test_a_set_started_by_hand_notes_what_it_lacks_of_the_published_configuration(
    bundles: Bundles,
) -> None:
    bundles.make(nexp=1)
    settings = bundles.bundle / "settings.sh"
    text = settings.read_text()
    assert text.count("UNMET=()\n") == 1
    settings.write_text(text.replace("UNMET=()\n", "UNMET=('the code of its submitter')\n"))
    code, out = bundles.run()
    assert code == 0, out
    assert bundles.set.json("set.json")["unmet"] == ["the code of its submitter"]
