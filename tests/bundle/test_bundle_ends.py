"""Ends of real processes that nobody planned, disks, and bad input. Outcomes of ends: tests/simulation/test_sets_ends.py."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from bundle_parts import Bundles
from processes import processes_of, see_them_go
from sites import write_system
from until import LIMIT_S

from orchestrator.evidence.sets import SetEvidence
from orchestrator.evidence.starts import attempt_starts, differences


def test_a_signal_in_a_run_and_another_job_that_goes_on(bundles: Bundles) -> None:
    """With the set's own copy of its bundle: an edit does not reach a set that began."""
    write_system(
        bundles.folder / "systems",
        "two_nodes",
        nodes=2,
        env={"EXP_NAME": {"unique": "exp-"}, "LR": "0.1"},
    )
    loop = bundles.make(
        'echo "experiment $EXP_NAME"; [[ $me != 1.1.* ]] || hang', system="two_nodes", nexp=1
    ).start()
    one = bundles.running(1, 1, "hanging")
    for path in bundles.bundle.rglob("*.sh"):
        path.write_text("exit 77\n")
    loop.signal(signal.SIGTERM)
    assert loop.end() == 1
    assert f"`orchestrator resume {one.root.name}` continues" in loop.out
    assert (one.job["state"], one.outcomes(1)) == ("cancelled", ["interrupted"])
    assert one.left_behind() == []

    bundles.bundle = one.root / "bundle"
    code, out = bundles.again(one)
    assert code == 0, out
    assert (one.outcomes(1), one.results(), one.job["state"]) == (
        ["interrupted", "success"],
        [1],
        "complete",
    )
    # A time stamp in the environment is no difference between jobs.
    names = {
        line
        for k in (1, 2)
        for line in one.log(1, k).decode().splitlines()
        if line.startswith("experiment exp-")
    }
    starts = attempt_starts(SetEvidence(one.root))
    assert (len(names), len(starts), differences(starts)) == (2, 2, [])

    before = one.run(1)
    code, out = bundles.again(one, NEXP="5")  # the number of runs is the set's, not the caller's
    assert code == 0, out
    assert one.run(1) == before and not (one.root / "runs/2").exists() and one.left_behind() == []


SIGNALLING = """

import os
import signal

_SENT = os.path.join(os.environ["HOME"], "signal_sent")


def _signalling(real):
    def watched(source, target):
        if str(target).endswith("/result_1.txt") and not os.path.exists(_SENT):
            os.close(os.open(_SENT, os.O_CREAT))
            os.kill(0, signal.SIGTERM)
        return real(source, target)

    return watched


os.link = _signalling(os.link)
"""


def test_a_signal_to_the_whole_group_while_the_loop_publishes(bundles: Bundles) -> None:
    """It must not cost the finished run."""
    bundles.make(nexp=2)
    with (bundles.bundle / "lib/set/folder.py").open("a") as file:
        file.write(SIGNALLING)
    loop = bundles.start()
    assert loop.end() == 1
    one = bundles.set
    assert (bundles.folder / "signal_sent").exists()
    assert (
        one.outcomes(1) == ["success"] and one.run(1) == one.attempt(1, 1) and one.results() == [1]
    )
    assert (one.job["state"], one.job["ended_ms"] > 0, one.run(2)["state"]) == (
        "cancelled",
        True,
        "queued",
    )
    assert one.left_behind() == []


def test_the_loop_alone_is_killed(bundles: Bundles) -> None:
    """What it had started ends by itself: containers and tunables hang on its pipe, the run on its time limit."""
    loop = bundles.make("hang", nexp=1).start(RUN_TIMEOUT_S="5")
    bundles.running(1, 1, "hanging")
    loop.signal(signal.SIGKILL)
    loop.end()
    see_them_go(bundles.folder)


# ---- disks ----


def test_a_log_directory_that_cannot_be_written(
    bundles: Bundles, mount: Callable[..., Path]
) -> None:
    place = bundles.folder / "small"
    mount(place, "size=64k")
    bundles.make(nexp=1)

    def start(remount: str = "", **more: str) -> tuple[int, str]:
        if remount:
            subprocess.run(["mount", "-o", f"remount,{remount}", place], check=True)
        code, out = bundles.run(LOGDIR=str(place), **more)
        assert (
            code == 1 and "error:" in out.splitlines()[-1] and processes_of(bundles.folder) == {}
        ), out
        return code, out

    assert "No space left on device" in start()[1]
    out = start("ro")[1]
    assert "Read-only file system" in out and f"cannot write to {place}" in out.splitlines()[-1]
    subprocess.run(["mount", "-o", "remount,rw,size=2m", place], check=True)
    before = set(place.iterdir())
    bundles.run(LOGDIR=str(place))  # too little room for a run, and enough for a set
    [root] = set(place.iterdir()) - before
    out = start("ro", ORCH_SET_DIR=str(root))[1]
    assert "loop.lock (disk full, quota, or a read-only file system)" in out.splitlines()[-1]


def test_a_log_directory_of_somebody_else(open_bundles: Bundles) -> None:
    bundles = open_bundles
    bundles.make(nexp=1)
    bundles.log_dir.chmod(0o555)
    argv = ["bash", str(bundles.bundle / "run_with_docker.sh")]
    if os.geteuid() == 0:
        argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *argv]
    done = subprocess.run(
        argv, env=bundles.environment(TMPDIR="/tmp"), cwd="/", capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "Permission denied" in done.stderr
    assert f"cannot write to {bundles.log_dir}/" in done.stderr.splitlines()[-1]


def test_neither_a_job_output_that_cannot_be_written_nor_a_missing_program_stops_the_loop(
    bundles: Bundles,
) -> None:
    """The output is in the set's folder, and so on the same disk as everything else."""
    bundles.make(nexp=1)
    (bundles.code / "run_and_time.sh").unlink()
    argv, env = (
        ["bash", bundles.bundle / "run_with_docker.sh"],
        bundles.environment(MAX_ATTEMPTS="1"),
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, env=env, stdout=full, stderr=full, timeout=LIMIT_S, check=False)
    one = bundles.set
    assert (done.returncode, one.outcomes(1), one.job["state"]) == (
        1,
        ["infrastructure"],
        "complete",
    )
    assert "exited 127" in one.run(1)["reason"]
    assert b"run_and_time.sh: No such file or directory" in one.log(1)
    assert one.left_behind() == []


# ---- bad input ----


def test_bad_input_is_refused(bundles: Bundles) -> None:
    """Each value: tests/onnode/test_settings.py."""
    bundles.make()
    file = bundles.folder / "file"
    file.write_text("")
    for given, words in (
        ({"NEXP": "$(reboot)"}, "error: NEXP=$(reboot) must be a number from 1 to 9999"),
        ({"LOGDIR": str(file)}, "cannot write to"),
        ({"ORCH_SET_DIR": "/not/there"}, "ORCH_SET_DIR=/not/there does not exist"),
    ):
        code, out = bundles.run(**given)
        assert code == 1 and words in out.splitlines()[-1], out
    assert list(bundles.log_dir.iterdir()) == []

    with (bundles.bundle / "config_one_node.sh").open("a") as config:
        config.write("no_such_command\n")
    code, out = bundles.run()
    assert code == 1
    assert "error: config_one_node.sh cannot be evaluated: " in out
    assert "no_such_command: command not found" in out.splitlines()[-1]
    assert (bundles.set.job["state"], bundles.set.run(1)["state"]) == ("failed", "queued")
    assert "config_one_node.sh" in bundles.set.job["reason"]
    assert bundles.set.left_behind() == []
