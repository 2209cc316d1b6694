"""What a node's agent leaves at the end of its input, at a signal, when it is killed. What it says then: test_agent_contract.py."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree

import pytest
from agent_parts import Agent, Bench, bench
from processes import processes_of, see_them_go
from until import until

from orchestrator.onnode.agent import leftovers
from orchestrator.onnode.agent.leftovers import remove_folder
from orchestrator.onnode.kernel.beat import BEAT, LOOK_S, LoopWatch, listen
from orchestrator.onnode.kernel.waiting import Waiting

# The training, a worker of it, and one that has left its session and its parent.
TRAINING = "sleep 1000 & setsid sh -c 'sleep 1000 & exit' & echo up; wait; sleep 1000"


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


def training(made: Bench, agent: Agent, number: int = 1) -> None:
    """Have a run of TRAINING begun, with all its processes."""
    made.plan(TRAINING)
    agent.begin(number)
    until(lambda: list(trained(made).values()).count("sleep 1000 ") == 2)


def trained(made: Bench) -> dict[int, str]:
    """The processes of runs: they have the code's folder in their environment."""
    return processes_of(made.code)


def gone(made: Bench, agent: Agent) -> None:
    """Nothing of it is left: no process, no folder; hold.log has no trace of an error."""
    see_them_go(made.folder)
    assert list(made.channels.iterdir()) == []
    log = made.layout.node(agent.name) / "hold.log"
    assert not log.exists() or b"Traceback" not in log.read_bytes()


def test_a_loop_that_is_not_heard_any_more_is_gone(one: Bench) -> None:
    """Its input stays open, as that of a node does whose srun is stopped."""
    silent = one.folder / "silent"  # checks count from when it is there
    one.change("kernel/beat.py", "LOOK_S = 300.0", "LOOK_S = 0.5")
    one.change("kernel/beat.py", "SILENCE_S = 1800.0", "SILENCE_S = 3.0")
    one.change(
        "kernel/beat.py", "_checks += 1", f"_checks += __import__('os').path.exists('{silent}')"
    )
    agent = one.agent(STORAGE_WAIT_S="1")
    training(one, agent)
    silent.touch()
    assert agent.end() == 1
    assert agent.hear("exit")[:2] == ["1.1", "143"]
    reason = agent.hear("left")[0]
    assert reason == "no word from the loop for 3 s"
    assert agent.record(1)["exit"] == 143
    assert reason in (one.layout.node("n1") / "hold.log").read_text()
    gone(one, agent)


class Checks(Waiting):
    """Runs the timers of `listen` and passes it lines, both on request."""

    def __init__(self) -> None:
        self.timers = dict[str, Callable[[], object]]()
        self.line: Callable[[str], object]
        self.at_end: Callable[[], object]

    def after(self, name: str, seconds: float, then: Callable[[], object]) -> None:
        assert seconds == LOOK_S
        self.timers[name] = then

    def cancel(self, name: str) -> None:
        self.timers.pop(name, None)

    def watch_lines(
        self, fd: int, then: Callable[[str], object], at_end: Callable[[], object] = lambda: None
    ) -> None:
        self.line, self.at_end = then, at_end

    def check(self, times: int) -> None:
        for _ in range(times):
            self.timers.pop("loop")()


def test_beats_keep_a_node_and_mean_nothing_else() -> None:
    waiting, heard, ends, limit = Checks(), list[str](), list[str](), int(3600 / LOOK_S)
    listen(waiting, 3600, heard.append, ends.append)
    for line in (json.dumps(BEAT, separators=(",", ":")), "an order"):
        for _ in range(3):
            waiting.check(limit - 1)
            waiting.line(line)
    assert (heard, ends) == (["an order"] * 3, [])
    waiting.check(limit)
    assert ends == ["no word from the loop for 3600 s"] and not waiting.timers


def test_after_the_end_of_its_input_a_node_does_not_miss_the_loop() -> None:
    waiting, ends = Checks(), list[str]()
    listen(waiting, 3600, ends.append, ends.append)
    waiting.at_end()
    assert ends == [""] and not waiting.timers


def test_a_node_that_was_stopped_has_not_missed_the_loop() -> None:
    """It counts its own checks: none is made while it is stopped, whatever the clock says then."""
    watch, limit = LoopWatch(storage_wait_s=3600), int(3600 / LOOK_S)
    assert [watch.check() for _ in range(limit - 1)] == [""] * (limit - 1)
    watch.reset()
    assert [watch.check() for _ in range(limit - 1)] == [""] * (limit - 1)
    assert watch.check() == "no word from the loop for 3600 s"


@pytest.mark.parametrize(
    "numbers", [(), (signal.SIGTERM, signal.SIGTERM), (signal.SIGHUP, signal.SIGINT)]
)
def test_the_end_of_its_input_and_signals_during_a_run(
    one: Bench, numbers: tuple[signal.Signals, ...]
) -> None:
    agent = one.agent()
    training(one, agent)
    for number in numbers:  # to the whole group, and again, as Slurm does
        os.killpg(agent.process.pid, number)
    if not numbers:
        agent.input.close()
    assert agent.end() == (143 if numbers else 0)
    assert [word for word, _ in agent.words][-2:] == ["exit", "left"] and agent.record(1)[
        "exit"
    ] == 143
    gone(one, agent)


@pytest.mark.parametrize("group", [False, True])
def test_kill_9_of_the_agent_leaves_no_training(one: Bench, group: bool) -> None:
    agent = one.agent()
    training(one, agent)
    (os.killpg if group else os.kill)(agent.process.pid, signal.SIGKILL)
    see_them_go(one.folder)
    # Its folder stays for the next holder on this host.
    assert [path.name for path in one.channels.iterdir()] == [f"orch-{os.getuid()}-7-n1"]
    other = one.agent(name="n2", ORCH_JOB_ID="8")
    other.hear("ready")
    assert [path.name for path in one.channels.iterdir()] == [f"orch-{os.getuid()}-8-n2"]


def test_kill_9_before_the_run_begins(one: Bench) -> None:
    agent = one.agent()
    one.layout.attempt(1, 1).mkdir(parents=True)
    agent.hear("ready")
    agent.prepare(1)
    agent.hear("prepared")
    agent.process.kill()
    see_them_go(one.folder)


def test_kill_9_of_what_starts_the_runs(one: Bench) -> None:
    agent = one.agent()
    training(one, agent)
    [warden] = [one for one in children(agent.process.pid) if "contents.sh" not in command_of(one)]
    os.kill(warden, signal.SIGKILL)
    assert agent.hear("gone") and agent.end() == 1
    assert agent.record(1)["exit"] == 125
    # The first process of the run dies with it; what it had forked is out of reach.
    until(lambda: not any("run_and_time" in words for words in trained(one).values()))


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_folders_of_living_holders_stay(one: Bench) -> None:
    names = {
        "other-job": f"{os.getpid()} {start_of(os.getpid())}\n",
        "old-form": f"{os.getpid()}\n",
        "no-pid": "",
        "recycled": f"{os.getpid()} 1\n",
        "7-another-node-of-this-job": "999999999 1\n",
        "dead": "999999999 1\n",
    }
    for name, text in names.items():
        folder = one.channels / f"orch-{os.getuid()}-{name}"
        folder.mkdir()
        (folder / "hold_pid").write_text(text)
    elsewhere = one.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "hold_pid").write_text(names["dead"])
    (one.channels / f"orch-{os.getuid()}-link").symlink_to(elsewhere)
    one.agent().hear("ready")
    found = {path.name.removeprefix(f"orch-{os.getuid()}-") for path in one.channels.iterdir()}
    assert found == {*names, "link", "7-n1"} - {"dead", "recycled"}
    assert (elsewhere / "hold_pid").exists()


def start_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def test_settings_that_cannot_be_read_are_said(one: Bench) -> None:
    agent = one.agent(NEXP="many")
    assert agent.hear("failed") == ["internal", "NEXP=many must be a number from 1 to 9999"]
    assert agent.end() == 1


def test_unclaimed_files_are_kept(one: Bench) -> None:
    scratch = one.layout.node("n1") / "scratch"
    scratch.mkdir(parents=True)
    (scratch / "left").write_text("1")
    one.agent().hear("ready")
    assert (one.layout.node("n1") / "unclaimed-7-n1-1/files/n1/left").read_text() == "1"


def test_a_late_agent_leaves_what_its_successor_has(one: Bench) -> None:
    agent = one.agent()
    agent.hear("ready")
    (agent.channel / "hold_pid").write_text(f"{os.getpid()}\n")
    file = one.layout.node("n1") / "scratch/log"
    file.write_text("of the successor")
    agent.input.close()
    assert agent.end() == 0
    assert file.exists() and agent.channel.exists()
    rmtree(agent.channel)


def test_check_says_and_ends_without_input(one: Bench) -> None:
    agent = one.agent(action="check")
    assert agent.end() == 0
    words = [word for word, _ in agent.words]
    assert (
        words[-1] == "waits"
        and words.count("check") == 18
        and "checked" in words
        and "network" in words
    )
    gone(one, agent)


def test_a_folder_is_removed_although_a_process_still_writes_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "channel"
    (folder / "results").mkdir(parents=True)
    rmdir, late = os.rmdir, iter(range(3))

    def write_first(path: str, **at: int) -> None:
        if next(late, None) is not None:
            (folder / "late").touch()
        rmdir(path, **at)

    monkeypatch.setattr(leftovers.os, "rmdir", write_first)
    monkeypatch.setattr(leftovers.time, "sleep", lambda _: None)
    remove_folder(str(folder))
    assert not folder.exists()


def test_a_removal_that_is_killed_leaves_a_folder_with_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the folder of a killed process removes it at once, and one of nobody after a day."""
    folder = tmp_path / "channel"
    (folder / "results").mkdir(parents=True)
    (folder / "hold_pid").touch()
    rmdir = os.rmdir

    def write_first(path: str, **at: int) -> None:
        (folder / "late").touch()
        rmdir(path, **at)

    def killed(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(leftovers.os, "rmdir", write_first)
        patched.setattr(leftovers.time, "sleep", killed)
        with pytest.raises(KeyboardInterrupt):
            remove_folder(str(folder))
    assert {path.name for path in folder.iterdir()} == {"hold_pid", "late"}
    remove_folder(str(folder))
    assert not folder.exists()


def test_two_that_remove_the_same_folder_do_not_disturb_each_other(tmp_path: Path) -> None:
    for number in range(20):
        folder = tmp_path / str(number)
        for name in range(60):
            (folder / f"{name % 5}").mkdir(parents=True, exist_ok=True)
            (folder / f"{name % 5}/{name}").touch()
        with ThreadPoolExecutor() as pool:
            for done in [pool.submit(remove_folder, str(folder)) for _ in range(3)]:
                with contextlib.suppress(FileNotFoundError):  # it was gone before it was opened
                    done.result()
        assert not folder.exists()
