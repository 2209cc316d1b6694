"""While a run goes on: it hangs, it goes over sockets, the storage is full or away for a while, the time limit comes."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_parts import Bundles, Set
from processes import processes_of
from until import LIMIT_S, until

from orchestrator.evidence.events import read_events
from orchestrator.onnode.policy.during import Silence, recorded

HANG_LIMITS = {"HANG_MULTIPLE": "2", "HANG_S": "1", "HANG_START_S": "3"}


def words(one: Set, word: str) -> list[dict[str, object]]:
    """The details of the events with `word` in the first job."""
    [path] = one.root.glob("events-*.tsv")
    return [event.data() for event in read_events(path) if event.word == word]


def last_silence(one: Set, attempt: str) -> Silence:
    """What the loop recorded last of how long an attempt was silent."""
    [path] = one.root.glob("events-*.tsv")
    found = [recorded(event) for event in read_events(path) if event.word == "pulse"]
    return [pulse for pulse in found if pulse is not None and pulse[0] == attempt][-1][1]


def hashes(one: Set) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in one.root.glob("runs/*/result_*.txt")}


# ---- hangs


def test_a_run_that_hangs_is_ended_with_evidence_and_the_set_goes_on(bundles: Bundles) -> None:
    code, out = bundles.make("[[ $me != 1.1.* ]] || hang", system="local_2x2x8", nexp=2).run(**HANG_LIMITS)
    assert code == 0, out
    one = bundles.set
    assert [one.outcomes(run) for run in (1, 2)] == [["infrastructure", "success"], ["success"]]
    reason = one.attempt(1, 1)["reason"]
    assert reason.startswith("hung: no output of any node for ")
    assert "(limit 2 s: no evaluation interval is known yet); evidence in runs/1/attempt_1/hang/NODE.txt" in reason
    assert "asking the nodes what they do" in out
    for node in ("local0", "local1"):
        told = (one.root / f"runs/1/attempt_1/hang/{node}.txt").read_text()
        assert told.index("==== processes\n") < told.index("==== kernel log\n") < told.index("==== GPUs\n")
        assert "sleep sleep" in told
        assert "State:\tS (sleeping)" in told
    assert [detail["reason"] for detail in words(one, "hung")] == [reason.partition("; evidence")[0]]
    assert reason.startswith(last_silence(one, "1.1").verdict)
    assert one.left_behind() == []


def test_before_run_start_another_limit_counts(bundles: Bundles) -> None:
    bundles.make("", nexp=1)
    compiling = "[[ $ORCH_ATTEMPT != 1 ]] || { echo compiling; sleep 1000; }\n"
    script = bundles.code / "run_and_time.sh"
    script.write_text(compiling + script.read_text())
    code, out = bundles.run(**HANG_LIMITS)
    assert code == 0, out
    assert "(limit 3 s: before run_start)" in bundles.set.attempt(1, 1)["reason"]


def test_a_run_that_evaluates_slowly_goes_on(bundles: Bundles) -> None:
    """Its own rhythm counts: pauses longer than what counts without it, and shorter than the multiple of its interval."""
    plan = "sleep 1.7; mllog eval_accuracy; sleep 2.5; mllog eval_accuracy; sleep 2.5; mllog eval_accuracy"
    code, out = bundles.make(plan, nexp=1).run(**HANG_LIMITS)
    assert code == 0, out
    assert bundles.set.outcomes(1) == ["success"]


def test_a_line_of_one_node_is_a_sign_of_life(bundles: Bundles) -> None:
    plan = "if [[ $SLURM_NODEID == 1 ]]; then for one in {1..10}; do sleep 0.4; echo step; done; else sleep 4; fi"
    code, out = bundles.make(plan, system="local_2x2x8", nexp=1).run(**HANG_LIMITS)
    assert code == 0, out
    assert bundles.set.outcomes(1) == ["success"]


def test_a_hang_after_run_stop_costs_no_result(bundles: Bundles) -> None:
    code, out = bundles.make("stop success; hang", system="local_2x2x8", nexp=1).run(**HANG_LIMITS)
    assert code == 0, out
    one = bundles.set
    assert one.outcomes(1) == ["success"]
    assert "hung: no output of any node" in one.attempt(1, 1)["reason"]
    assert "after run_stop" in one.attempt(1, 1)["reason"]


def test_the_watchdog_can_be_switched_off(bundles: Bundles) -> None:
    plan = "[[ $me != 1.1.* ]] || hang"
    code, out = bundles.make(plan, nexp=1, limits={"hang_multiple": 0}).run(RUN_TIMEOUT_S="5", HANG_S="1")
    assert code == 0, out
    assert "no run_stop within 5 s (run time-out)" in bundles.set.attempt(1, 1)["reason"]
    assert words(bundles.set, "hung") == []


def test_a_node_whose_processes_are_stopped_stands_out(bundles: Bundles) -> None:
    plan = "[[ $me != 1.1.* ]] || { [[ $SLURM_NODEID != 1 ]] || kill -STOP $$; hang; }"
    code, out = bundles.make(plan, system="local_2x2x8", nexp=1).run(**HANG_LIMITS)
    assert code == 0, out
    reason = bundles.set.attempt(1, 1)["reason"]
    assert "node local1 (rank 1) stands out: stopped: a process does not run (state T)" in reason, reason
    assert processes_of(bundles.folder) == {}


def test_a_suspended_job_has_not_hung(bundles: Bundles) -> None:
    """The time in which nobody could run is not the run's silence."""
    go = bundles.folder / "go"
    plan = f"[[ $me != 1.1.* ]] || {{ echo waiting; until [[ -e {go} ]]; do sleep 0.2; done; }}"
    bundles.make(plan, nexp=1)
    script = bundles.bundle / "lib/agent/listening.py"
    script.write_text(script.read_text().replace("MOST_STEP_S = 120.0", "MOST_STEP_S = 0.5"))
    loop = bundles.start(**{**HANG_LIMITS, "HANG_S": "2"})
    one = bundles.running(1, 1, "waiting")
    everybody = [*processes_of(bundles.folder)]
    for pid in everybody:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(5)
    for pid in reversed(everybody):
        os.kill(pid, signal.SIGCONT)
    time.sleep(0.5)
    go.touch()
    assert loop.end() == 0, loop.out
    assert one.outcomes(1) == ["success"]


# ---- storage


def test_the_loop_waits_for_a_disk_that_is_full(bundles: Bundles, mount: Callable[..., Path]) -> None:
    mount(bundles.log_dir, "size=2m")
    fill = f'head -c 4000000 /dev/zero >"$(echo {bundles.log_dir}/*)/fill" 2>/dev/null'
    plan = f"[[ $me != 3.1.0 ]] || {{ {fill}; stop success; exit 0; }}"
    loop = bundles.make(plan, nexp=4, preflight={"skip": ["free_space"]}).start()
    bundles.running(3, 1, "run_start")
    one = bundles.set
    until(lambda: (one.root / "fill").exists() and os.statvfs(one.root).f_bavail == 0)
    before = hashes(one)
    loop.hear("waiting for storage")
    (one.root / "fill").unlink()
    assert loop.end() == 0, loop.out
    assert f"waiting for storage: {one.root}" in loop.out and "No space left on device: gone after" in loop.out
    assert one.results() == [1, 2, 3, 4]
    assert {name: hashes(one)[name] for name in before} == before
    assert [one.outcomes(run)[-1] for run in (1, 2, 3, 4)] == ["success"] * 4
    assert (one.job["state"], one.job["reason"]) == ("complete", "")
    assert any("No space left on device" in text for text in one.job["warnings"])
    assert one.left_behind() == []


def test_the_wait_for_storage_is_bounded(bundles: Bundles, mount: Callable[..., Path]) -> None:
    mount(bundles.log_dir, "size=2m")
    fill = f'head -c 4000000 /dev/zero >"$(echo {bundles.log_dir}/*)/fill" 2>/dev/null'
    loop = bundles.make(f"[[ $me != 2.1.0 ]] || {{ {fill}; }}", nexp=2, preflight={"skip": ["free_space"]})
    code, out = loop.run(STORAGE_WAIT_S="2")
    assert code == 1
    assert "disk full" in out.splitlines()[-1]
    assert processes_of(bundles.folder) == {}


def test_the_loop_waits_for_a_log_folder_that_is_away(bundles: Bundles) -> None:
    go = bundles.folder / "go"
    loop = bundles.make(f"[[ $me != 2.1.* ]] || {{ echo waiting; until [[ -e {go} ]]; do sleep 0.1; done; }}", nexp=3)
    started = loop.start()
    one = bundles.running(2, 1, "waiting")
    before = hashes(one)
    away = bundles.folder / "away"
    bundles.log_dir.rename(away)
    go.touch()
    started.hear("waiting for storage")
    away.rename(bundles.log_dir)
    assert started.end() == 0, started.out
    assert f"waiting for storage: {one.root}" in started.out
    assert one.results() == [1, 2, 3]
    assert {name: hashes(one)[name] for name in before} == before
    assert one.outcomes(2) == ["success"]
    assert one.left_behind() == []


def test_the_loop_waits_for_a_log_folder_that_is_read_only(bundles: Bundles) -> None:
    """What is open can be written, nothing else: a second mount of the folder, over it, that is read-only."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    go = bundles.folder / "go"
    loop = bundles.make(f"[[ $me != 2.1.* ]] || {{ until [[ -e {go} ]]; do sleep 0.1; done; }}", nexp=3).start()
    one = bundles.running(2, 1, "run_start")
    before = hashes(one)
    subprocess.run(["mount", "--bind", bundles.log_dir, bundles.log_dir], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", bundles.log_dir], check=True)
        go.touch()
        loop.hear("waiting for storage")
    finally:
        subprocess.run(["umount", "--lazy", bundles.log_dir], check=True)
    assert loop.end() == 0, loop.out
    assert "Read-only file system: gone after" in loop.out
    assert one.outcomes(2) == ["success"]
    assert {name: hashes(one)[name] for name in before} == before
    assert one.left_behind() == []


def test_a_signal_ends_the_wait_for_storage(bundles: Bundles) -> None:
    go = bundles.folder / "go"
    loop = bundles.make(f"echo waiting; until [[ -e {go} ]]; do sleep 0.1; done", nexp=2).start()
    bundles.running(1, 1, "waiting")
    away = bundles.folder / "away"
    bundles.log_dir.rename(away)
    go.touch()
    loop.hear("waiting for storage")
    loop.signal(signal.SIGTERM)
    assert loop.end() == 1
    assert processes_of(bundles.folder) == {}
    away.rename(bundles.log_dir)
    code, out = bundles.again(bundles.set)
    assert code == 0, out
    # It was a finished run: it is published, not repeated.
    assert [bundles.set.outcomes(run) for run in (1, 2)] == [["success"], ["success"]]


# ---- deaths that nobody announces


def agent_of(bundles: Bundles, node: str) -> int:
    """The process that holds a node."""
    [pid] = [
        pid
        for pid, words in processes_of(bundles.folder).items()
        if words.rstrip().endswith("lib node hold")
        and f"ORCH_NODE={node}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(bundles.loops[-1].process.pid)
    ]
    return pid


def test_a_holder_that_is_killed_in_the_gate_is_noticed_at_once(bundles: Bundles) -> None:
    """There a node may take five minutes to answer."""
    slow = bundles.folder / "slow"
    slow.write_text(f"#!/bin/bash\necho $ORCH_NODE >>{bundles.folder}/asked\nexec sleep 1000\n")
    slow.chmod(0o755)
    bundles.make(system="local_2x2x8", nexp=1, clear_caches=True, sudo=[str(slow)])
    loop = bundles.start(MAX_ATTEMPTS="1")
    until(lambda: list(bundles.log_dir.glob("*/runs/1/attempt_1/state.json")) and (bundles.folder / "asked").exists())
    os.kill(agent_of(bundles, "local1"), signal.SIGKILL)
    assert loop.end() == 1
    assert bundles.set.outcomes(1) == ["infrastructure"]
    assert bundles.set.attempt(1, 1)["reason"].startswith("node local1 (rank 1): its step ended")
    # What stands for sudo here was the killed holder's own child.
    assert [left for left in bundles.set.left_behind() if not left.startswith("sleep 1000")] == []


def test_a_holder_that_is_killed_before_it_is_ready_is_noticed_at_once(bundles: Bundles) -> None:
    """There a node may take as long as a container may."""
    bundles.make(system="local_2x2x8", nexp=1, limits={"container_start_seconds": 600})
    script, line = bundles.bundle / "lib/agent/hold.py", "        node, container = self.node, None\n"
    assert line in script.read_text()
    script.write_text(
        script.read_text().replace(
            line, f"{line}        node.say('note', 'starting')\n        time.sleep(1000 * (node.name == 'local1'))\n"
        )
    )
    loop = bundles.start()
    until(lambda: any(path.read_bytes().count(b"starting") == 2 for path in bundles.log_dir.glob("*/events-*.tsv")))
    os.kill(agent_of(bundles, "local1"), signal.SIGKILL)
    until(lambda: any(b"silent\tlocal1" in path.read_bytes() for path in bundles.log_dir.glob("*/events-*.tsv")))
    assert loop.end() == 1
    assert (bundles.set.job["state"], bundles.set.attempts(1)) == ("failed", [])
    assert "local1" in bundles.set.job["reason"]


# ---- the time limit

SRUN = 'while [[ $1 == --* ]]; do shift; done; SLURMD_NODENAME=n1 exec "$@"'


def test_no_run_begins_that_cannot_end_before_the_time_limit(bundles: Bundles) -> None:
    """Slurm's programs are stand-ins here; what squeue says is read from a file."""
    left = bundles.folder / "left"
    programs = {"srun": SRUN, "scontrol": "echo n1", "squeue": f"cat {left}", "sinfo": "echo 'n1 idle'"}
    for name, text in programs.items():
        path = bundles.folder / "tmp" / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    bundles.make("sleep 1", nexp=3)
    left.write_text("2:00:00\n")

    def start() -> tuple[int, str]:
        more = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n1", "SLURM_NNODES": "1"}
        environment = bundles.environment(**more)
        environment["PATH"] = f"{bundles.folder / 'tmp'}:{environment['PATH']}"
        if list(bundles.log_dir.iterdir()):
            environment.update(ORCH_SET_DIR=str(bundles.set.root), SLURM_JOB_ID="78")
        argv = ["bash", bundles.bundle / "run_with_docker_slurm.sh"]
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT_S
        )
        return done.returncode, done.stdout + done.stderr

    bundles.program(f"[[ $me != 1.1.* ]] || echo 2:00 >{left}; sleep 1.2")
    code, out = start()
    one = bundles.set
    assert code == 1, out
    assert one.results() == [1]
    assert one.job["state"] == "time_limit"
    assert one.job["reason"] == (
        "2 of 3 runs are left; a run takes 0 min at least, and the job's time limit leaves 2; "
        f"`orchestrator resume {one.root.name}` does them in another job"
    )
    assert one.attempts(2) == []
    assert len(words(one, "late")) == 1
    left.write_text("1-02:00:00\n")
    code, out = start()
    assert code == 0, out
    assert one.results() == [1, 2, 3]
