"""Ends of real processes that nobody planned, disks, and bad input. Outcomes of ends: tests/simulation/test_sets_ends.py."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_parts import Bundles, Set
from processes import kill_all, processes_of, see_them_go
from until import LIMIT_S

HANG_IN_RUN_2 = "[[ $me != 2.1.* ]] || hang"


def complete_after(bundles: Bundles, one: Set, outcomes: list[list[str]]) -> None:
    """Going on gives a complete set with every attempt on record."""
    code, out = bundles.again(one)
    assert code == 0, out
    assert [one.outcomes(run) for run in range(1, len(outcomes) + 1)] == outcomes
    assert one.results() == list(range(1, len(outcomes) + 1))
    assert one.job["state"] == "complete"
    seeds = [one.attempt(run, attempt)["seed"] for run in range(1, len(outcomes) + 1) for attempt in one.attempts(run)]
    assert len(seeds) == len(set(seeds))
    assert one.left_behind() == []


def test_a_signal_in_a_run(bundles: Bundles) -> None:
    loop = bundles.make(HANG_IN_RUN_2, system="local_2x2x8", nexp=3).start()
    one = bundles.running(2, 1, "hanging")
    before = (one.root / "runs/1/result_1.txt").read_bytes()
    loop.signal(signal.SIGTERM)
    assert loop.end() == 1
    assert f"`orchestrator resume {one.root.name}` goes on" in loop.out
    assert (one.job["state"], one.job["ended_ms"] > 0, one.job["run"], one.job["attempt"]) == ("cancelled", True, 2, 1)
    stopped = one.run(2)
    assert (stopped["state"], stopped["outcome"], stopped["end_ms"] > 0) == ("failed", "interrupted", True)
    assert stopped == one.attempt(2, 1)
    assert stopped["reason"] == one.job["reason"] != ""
    assert one.run(3)["state"] == "queued"
    assert one.left_behind() == []
    complete_after(bundles, one, [["success"], ["interrupted", "success"], ["success"]])
    assert (one.root / "runs/1/result_1.txt").read_bytes() == before
    assert len(one.jobs()) == 2


# Where the loop is when the signal comes: the call of `os`, words of its path, which call with them.
PLACES = [
    ("replace", "attempt_1/state.json", 1),
    ("link", "/result_1.txt", 1),
]
SIGNALLING = """

import os
import signal

_SENT = os.path.join(os.environ["HOME"], "signal_sent")


def _signalling(real, words, call, number):
    calls = []

    def watched(*arguments, **more):
        paths = [f"/proc/self/fd/{one}" if type(one) is int else str(one) for one in arguments]
        if any(words in (os.readlink(path) if path.startswith("/proc/self/fd/") else path) for path in paths):
            calls.append(1)
            if len(calls) == call and not os.path.exists(_SENT):
                os.close(os.open(_SENT, os.O_CREAT))
                os.kill(0, number)
        return real(*arguments, **more)

    return watched


"""


def signalling(bundles: Bundles, program: str, words: str, call: int, signal_name: str) -> None:
    """Have the bundle's loop send a signal to its own process group just before one call of the system."""
    with (bundles.bundle / "lib/loop/folder.py").open("a") as file:
        file.write(SIGNALLING)
        file.write(f"os.{program} = _signalling(os.{program}, {words!r}, {call}, signal.SIG{signal_name})\n")


@pytest.mark.parametrize("place", PLACES, ids=[f"{program} {words} {call}" for program, words, call in PLACES])
def test_a_signal_to_the_whole_group_while_the_loop_writes(bundles: Bundles, place: tuple[str, str, int]) -> None:
    """It must not cost a finished run."""
    signalling(bundles.make(nexp=2), *place, "TERM")
    loop = bundles.start()
    assert loop.end() == 1
    one = bundles.set
    at_the_start = place == PLACES[0]
    assert one.outcomes(1) == (["interrupted"] if at_the_start else ["success"])
    assert one.run(1) == one.attempt(1, 1)
    assert one.results() == ([] if at_the_start else [1])
    assert (one.job["state"], one.job["ended_ms"] > 0, one.run(2)["state"]) == ("cancelled", True, "queued")
    assert one.left_behind() == []
    complete_after(bundles, one, [["interrupted", "success"] if at_the_start else ["success"], ["success"]])


@pytest.mark.parametrize("place", PLACES, ids=[f"{program} {words} {call}" for program, words, call in PLACES])
def test_everything_is_killed_while_the_loop_writes(bundles: Bundles, place: tuple[str, str, int]) -> None:
    signalling(bundles.make(nexp=2), *place, "KILL")
    loop = bundles.start()
    loop.end()
    kill_all(bundles.folder)
    one = bundles.set
    assert one.job["ended_ms"] == 0
    # Before its first state nothing of an attempt has begun: it is none.
    complete_after(bundles, one, [["success"], ["success"]])
    assert one.run(1) == one.attempt(1, one.attempts(1)[-1])
    if place != PLACES[0]:
        assert one.attempt(1, 1)["state"] == "success"
        assert one.attempt(1, 1)["end_ms"] >= one.attempt(1, 1)["start_ms"] > 0


def test_the_loop_alone_is_killed(bundles: Bundles) -> None:
    """What it had started ends by itself: containers and tunables hang on its pipe, the run on its time limit."""
    loop = bundles.make(HANG_IN_RUN_2, nexp=2).start(RUN_TIMEOUT_S="5")
    one = bundles.running(2, 1, "hanging")
    loop.signal(signal.SIGKILL)
    loop.end()
    see_them_go(bundles.folder)
    complete_after(bundles, one, [["success"], ["interrupted", "success"]])


def test_a_loop_that_was_given_up_changes_nothing_any_more(bundles: Bundles) -> None:
    """Slurm lost its batch host, another job went on, and then the host came back."""
    loop = bundles.make(HANG_IN_RUN_2, nexp=2).start()
    one = bundles.running(2, 1, "hanging")
    loop.signal(signal.SIGSTOP)
    (one.root / "loop.lock").unlink()  # what its successor does, when Slurm says that its job is gone
    code, out = bundles.again(one)
    assert (code, one.outcomes(2)) == (0, ["interrupted", "success"]), out
    before = {
        path: path.read_bytes() for path in one.root.rglob("*") if path.is_file() and path.suffix in (".json", ".txt")
    }
    (one.root / "loop.lock").write_text("next\n")  # of somebody, and it cannot be read
    loop.signal(signal.SIGTERM)
    loop.signal(signal.SIGCONT)
    assert loop.end() == 1
    assert "loop.lock is not this job's any more" in loop.out
    assert (one.root / "loop.lock").read_text() == "next\n"
    assert {path: path.read_bytes() for path in before} == before
    (one.root / "loop.lock").unlink()
    assert one.left_behind() == []


def test_a_set_that_cannot_be_written_any_more(bundles: Bundles, mount: Callable[..., Path]) -> None:
    mount(bundles.log_dir, "size=2m")
    bundles.make(nexp=1).run()
    one = bundles.set
    subprocess.run(["mount", "-o", "remount,ro", bundles.log_dir], check=True)
    code, out = bundles.again(one)
    assert code == 1
    assert "loop.lock (disk full, quota, or a read-only file system)" in out.splitlines()[-1]


def test_going_on_with_a_complete_set(bundles: Bundles) -> None:
    bundles.make(nexp=2).run()
    one = bundles.set
    before = [one.run(run) for run in (1, 2)]
    code, out = bundles.again(one, NEXP="5")
    assert code == 0, out
    # The number of runs is the set's, not the caller's.
    assert [one.run(run) for run in (1, 2)] == before
    assert not (one.root / "runs/3").exists()


# ---- disks ----


def test_a_job_output_that_cannot_be_written_stops_nothing(bundles: Bundles) -> None:
    """It is in the set's folder, and so on the same disk as everything else."""
    bundles.make("[[ $me != 1.1.0 ]] || exit 3", nexp=1)
    argv = ["bash", bundles.bundle / "run_with_docker.sh"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, env=bundles.environment(), stdout=full, stderr=full, timeout=LIMIT_S, check=False)
    one = bundles.set
    assert (done.returncode, one.outcomes(1), one.job["state"]) == (0, ["infrastructure", "success"], "complete")
    assert one.left_behind() == []


def test_the_disk_was_full_before(bundles: Bundles, mount: Callable[..., Path]) -> None:
    mount(bundles.log_dir, "size=64k")
    code, out = bundles.make(nexp=1).run()
    assert code == 1
    assert "No space left on device" in out
    assert "error:" in out.splitlines()[-1]
    assert processes_of(bundles.folder) == {}


def test_a_read_only_log_directory(bundles: Bundles, mount: Callable[..., Path]) -> None:
    mount(bundles.log_dir, "size=1m")
    subprocess.run(["mount", "-o", "remount,ro", bundles.log_dir], check=True)
    code, out = bundles.make(nexp=1).run()
    assert code == 1
    assert "Read-only file system" in out
    assert "cannot write to" in out.splitlines()[-1] and str(bundles.log_dir) in out.splitlines()[-1]


def test_a_log_directory_of_somebody_else(bundles: Bundles) -> None:
    bundles.make(nexp=1)
    bundles.log_dir.chmod(0o555)
    argv = ["bash", str(bundles.bundle / "run_with_docker.sh")]
    if os.geteuid() == 0:
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
        for folder in (bundles.folder, *bundles.folder.parents):
            if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
                folder.chmod(folder.stat().st_mode | 0o055)
    done = subprocess.run(argv, env=bundles.environment(TMPDIR="/tmp"), cwd="/", capture_output=True, text=True)
    assert done.returncode == 1
    assert "Permission denied" in done.stderr
    assert f"cannot write to {bundles.log_dir}/" in done.stderr.splitlines()[-1]


# ---- bad input ----


@pytest.mark.parametrize("nexp", ["0", "abc", "-1", "1.5", "10000", "1 2", "$(reboot)", "08"])
def test_a_number_of_runs_that_is_none(bundles: Bundles, nexp: str) -> None:
    code, out = bundles.make().run(NEXP=nexp)
    assert code == 1
    assert out.endswith(f"error: NEXP={nexp} must be a number from 1 to 9999\n")
    assert list(bundles.log_dir.iterdir()) == []


def test_an_empty_number_of_runs_is_the_bundles_own(bundles: Bundles) -> None:
    assert bundles.make(nexp=1).run(NEXP="")[0] == 0
    assert bundles.set.json("set.json")["nexp"] == 1


@pytest.mark.parametrize("seed", ["0", "-5", "x", "2137484649", "99999999999999999999", "1+1", "a[$(touch pwned)]"])
def test_a_root_seed_that_is_none(bundles: Bundles, seed: str) -> None:
    code, out = bundles.make().run(ROOT_SEED=seed, NEXP="9999")
    assert code == 1
    words = "must be a number from 1 to 2137484648: seeds of 9999 runs stay below 2^31"
    assert out.endswith(f"error: ROOT_SEED={seed} {words}\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_ATTEMPTS", "abc"),
        ("MAX_ATTEMPTS", "0"),
        ("MAX_ATTEMPTS", "1000"),
        ("RUN_TIMEOUT_S", "soon"),
        ("RUN_TIMEOUT_S", "0"),
        ("CONTAINER_START_S", "x[$(touch pwned)]"),
        ("CONTAINER_START_S", "-1"),
    ],
)
def test_a_limit_that_is_none(bundles: Bundles, name: str, value: str) -> None:
    code, out = bundles.make().run(**{name: value})
    assert code == 1
    assert f"error: {name}={value} must be" in out.splitlines()[-1]
    assert list(bundles.log_dir.iterdir()) == []


def test_a_log_directory_that_is_not_there_is_made(bundles: Bundles) -> None:
    place = bundles.folder / "not/there/yet"
    assert bundles.make(nexp=1).run(LOGDIR=str(place))[0] == 0
    assert len(list(place.iterdir())) == 1


def test_a_log_directory_that_is_a_file(bundles: Bundles) -> None:
    (bundles.folder / "file").write_text("")
    code, out = bundles.make().run(LOGDIR=str(bundles.folder / "file"))
    assert code == 1
    assert "Not a directory" in out
    assert "cannot write to" in out.splitlines()[-1]


def test_a_set_that_is_not_there(bundles: Bundles) -> None:
    code, out = bundles.make().run(ORCH_SET_DIR="/not/there")
    assert code == 1
    assert "ORCH_SET_DIR=/not/there does not exist" in out


@pytest.mark.parametrize("content", ["", "{", '{"schema": 1, "nexp": 3}', '{"root_seed": 5}'])
def test_a_damaged_set(bundles: Bundles, content: str) -> None:
    """It is restored from its declaration; without that it is refused."""
    bundles.make(nexp=1).run()
    one = bundles.set
    before = (one.root / "set.json").read_bytes()
    (one.root / "set.json").write_text(content)
    code, out = bundles.again(one)
    assert code == 0, out
    assert (one.root / "set.json").read_bytes() == before
    (one.root / "set.json").write_text(content)
    (one.root / "ledger.jsonl").unlink()
    code, out = bundles.again(one)
    assert code == 1
    assert "it is damaged" in out.splitlines()[-1]
    assert one.results() == [1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("export (", "syntax error"),
        ("unset_variable=$nothing", "nothing: unbound variable"),
        ("false", "bash ended with 1"),
        ("exit 3", "bash ended with 3"),
        ("no_such_command", "no_such_command: command not found"),
    ],
)
def test_a_config_that_cannot_be_evaluated(bundles: Bundles, line: str, words: str) -> None:
    bundles.make(nexp=1)
    with (bundles.bundle / "config_one_node.sh").open("a") as config:
        config.write(f"{line}\n")
    code, out = bundles.run()
    assert code == 1
    assert "error: config_one_node.sh cannot be evaluated: " in out
    assert words in out.splitlines()[-1]
    assert (bundles.set.job["state"], bundles.set.run(1)["state"]) == ("failed", "queued")
    assert "config_one_node.sh" in bundles.set.job["reason"]
    assert bundles.set.left_behind() == []


def test_a_bundle_edited_by_hand_runs_as_edited(bundles: Bundles) -> None:
    """The published way of working: edit the config, start again. The set keeps what ran."""
    bundles.make('echo "mine=$MINE"', nexp=1)
    with (bundles.bundle / "config_one_node.sh").open("a") as config:
        config.write("export MINE='it is'\n")
    code, out = bundles.run()
    assert code == 0, out
    assert b"mine=it is\n" in bundles.set.log(1)
    assert "MINE" in (bundles.set.root / "bundle/config_one_node.sh").read_text()


def test_an_edit_does_not_reach_a_set_that_began(bundles: Bundles) -> None:
    loop = bundles.make(HANG_IN_RUN_2, nexp=2).start()
    one = bundles.running(2, 1, "hanging")
    for path in bundles.bundle.rglob("*.sh"):
        path.write_text("exit 77\n")
    loop.signal(signal.SIGTERM)
    assert loop.end() == 1
    done = subprocess.run(
        ["bash", one.root / "bundle/run_with_docker.sh"],
        env=bundles.environment(ORCH_SET_DIR=str(one.root)),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert one.results() == [1, 2]


def test_a_program_that_is_not_there(bundles: Bundles) -> None:
    bundles.make(nexp=1)
    (bundles.code / "run_and_time.sh").unlink()
    code, _out = bundles.run()
    assert code == 1
    assert bundles.set.outcomes(1) == ["infrastructure", "infrastructure"]
    assert "exited 127" in bundles.set.run(1)["reason"]
    assert b"run_and_time.sh: No such file or directory" in bundles.set.log(1)
