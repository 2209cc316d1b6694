"""The settings of the host in the hands of an agent: set, looked at before and after each run, put back whole."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from agent_parts import STOP, Agent, Bench, bench
from until import until

from orchestrator.onnode.agent.node import Node
from orchestrator.onnode.agent.tuning import SCRIPT, Tuning
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.waiting import Failed, Waiting

PROFILE = """kind: tuning
name: ours
title: two files and one service
source: this test
knobs:
  - {name: watchdog, kind: sysctl, key: kernel.nmi_watchdog, value: "0", need: required, purpose: noise}
  - {name: idle, kind: cpu_idle, state: 2, value: "1", need: optional, purpose: noise}
  - {name: iommu, kind: cmdline, any_of: [iommu=pt], need: optional, purpose: bandwidth}
"""
CPUS = 16


@pytest.fixture
def tuned(tmp_path: Path) -> Iterator[Bench]:
    profile = tmp_path / "ours.yaml"
    profile.write_text(PROFILE)
    with bench(tmp_path / "bench", tunables="apply", tuning={"profile": str(profile)}) as made:
        yield made


def host(made: Bench, name: str = "n1") -> Path:
    """Make the host of a node below a folder of its own."""
    root = made.folder / "hosts" / name
    files = {
        "proc/cmdline": "quiet iommu=pt\n",
        "proc/meminfo": "Buffers: 10 kB\nCached: 500 kB\nShmem: 100 kB\nSReclaimable: 40 kB\n",
        "proc/sys/kernel/nmi_watchdog": "1\n",
        "proc/sys/vm/drop_caches": "0\n",
        **{f"sys/devices/system/cpu/cpu{k}/cpuidle/state2/disable": "0\n" for k in range(CPUS)},
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def start(made: Bench, name: str = "n1", **more: str) -> Agent:
    folder = made.folder / "hosts" / "%n"
    state = made.folder / "states" / "%n"
    state.parent.mkdir(exist_ok=True)
    return made.agent(
        name=name, ORCH_TUNABLES_ROOT=str(folder), ORCH_TUNABLES_STATE=str(state), **more
    )


def settings(root: Path) -> set[str]:
    """The values of the knobs that are set."""
    idle = {
        path.read_text() for path in root.glob("sys/devices/system/cpu/cpu*/cpuidle/state2/disable")
    }
    return idle | {f"watchdog {(root / 'proc/sys/kernel/nmi_watchdog').read_text()}"}


SET, AS_FOUND = {"1\n", "watchdog 0\n"}, {"0\n", "watchdog 1\n"}


def test_set_looked_at_and_put_back(tuned: Bench) -> None:
    root, agent = host(tuned), start(tuned)
    agent.hear("ready")
    assert settings(root) == SET
    facts = [one for word, fields in agent.words if word.startswith("facts") for one in fields]
    assert {"knob.watchdog=0", "knob.idle=1", "knob.iommu=iommu=pt"} <= set(facts)
    tuned.plan(f"echo '{STOP}'")
    tuned.layout.attempt(1, 1).mkdir(parents=True)
    agent.prepare(1, clear=True)
    assert agent.hear("prepared")[2:] == ["450", "450"]
    assert (root / "proc/sys/vm/drop_caches").read_text() == "3\n"
    agent.say("go", id="1.1")
    agent.hear("exit")
    assert agent.record(1)["drift"] == []
    agent.input.close()
    assert agent.end() == 0
    assert settings(root) == AS_FOUND and not (tuned.folder / "states/n1").exists()
    rows = (tuned.layout.node("n1") / "tunables.tsv").read_text().splitlines()
    assert rows[0].startswith("knob\twanted\t") and {row.split("\t")[6] for row in rows[1:]} == {
        "apply",
        "revert",
    }
    # Facts are told again only where they have changed.
    assert [word for word, _ in agent.words].count("facts") == 1


def test_drift_is_in_the_record_and_the_next_gate_refuses_and_caches_that_stay(
    tuned: Bench,
) -> None:
    root, agent = host(tuned), start(tuned)
    agent.hear("ready")
    tuned.plan(f"echo 1 >{root}/proc/sys/kernel/nmi_watchdog; echo '{STOP}'")
    agent.begin(1)
    assert agent.hear("exit")[4] == "success"
    assert agent.record(1)["drift"] == [
        {"knob": "watchdog", "wanted": "0", "found": "1", "need": "required"}
    ]
    tuned.layout.attempt(2, 1).mkdir(parents=True)
    agent.prepare(2)
    assert agent.hear("refused") == ["2.1", "watchdog wanted 0, found 1"]
    (root / "proc/sys/kernel/nmi_watchdog").write_text("0\n")
    agent.begin(3)
    assert agent.hear("exit")[0] == "3.1"
    assert agent.log(2) == b"" and not tuned.layout.node_state(2, 1, 0).exists()
    (root / "proc/sys/kernel/nmi_watchdog").write_text("0\n")
    (root / "proc/sys/vm/drop_caches").unlink()
    (root / "proc/sys/vm/drop_caches").mkdir()
    tuned.plan(f"echo '{STOP}'")
    tuned.layout.attempt(4, 1).mkdir(parents=True)
    agent.prepare(4, clear=True)
    ident, text = agent.hear("kept")
    assert ident == "4.1" and text.startswith("cannot drop caches: ") and "drop_caches" in text
    agent.begin(5)
    assert agent.hear("exit")[0] == "5.1"


def test_a_required_knob_that_does_not_hold_fails_the_node(tuned: Bench) -> None:
    root = host(tuned)
    (root / "proc/sys/kernel/nmi_watchdog").unlink()
    # A real file of the kernel that nobody can write.
    (root / "proc/sys/kernel/nmi_watchdog").symlink_to("/proc/sys/kernel/ngroups_max")
    agent = start(tuned)
    kind, text = agent.hear("failed")
    assert kind == "tunables" and text.startswith("tunables: watchdog wanted 0, found ")
    assert agent.end() == 1 and agent.words[-1][0] == "left"
    assert {
        path.read_text() for path in root.glob("sys/devices/system/cpu/cpu*/cpuidle/state2/disable")
    } == {"0\n"}


def test_nobody_looks_any_more(tuned: Bench) -> None:
    host(tuned)
    agent = start(tuned)
    agent.hear("ready")
    [watcher] = [int(pid) for pid in watchers(tuned.layout.bundle)]
    os.kill(watcher, signal.SIGKILL)
    tuned.layout.attempt(1, 1).mkdir(parents=True)
    agent.prepare(1)
    assert agent.hear("refused")[0] == "1.1"


def watchers(bundle: Path) -> list[str]:
    done = subprocess.run(
        ["pgrep", "-f", f"{bundle}/runtime_tunables.sh watch"], capture_output=True, text=True
    )
    return done.stdout.split()


def test_put_back_whole_though_term_comes_twice(tuned: Bench) -> None:
    """To the whole group, and again, as an impatient person does. Any moment: tools/revert_trials.py.

    Root reads nothing from the storage, where root_squash forbids it: the script comes over standard input.
    """
    names = [f"n{k}" for k in range(4)]
    roots = [host(tuned, name) for name in names]
    agents = [start(tuned, name) for name in names]
    for agent in agents:
        agent.hear("ready")
    (tuned.bundle / "runtime_tunables.sh").unlink()
    for agent in agents:
        os.killpg(agent.process.pid, signal.SIGTERM)
    until(lambda: any(settings(root) != SET for root in roots))
    for root, agent in zip(roots, agents, strict=True):
        with suppress(ProcessLookupError):
            os.killpg(agent.process.pid, signal.SIGTERM)
        assert agent.end() == 143 and agent.words[-1][0] == "left"
        assert settings(root) == AS_FOUND
        assert not (tuned.folder / "states" / agent.name).exists()
    assert list(tuned.channels.iterdir()) == []


def test_put_back_when_it_ends_while_they_are_set(tuned: Bench) -> None:
    """The first files are changed, the rest is not yet."""
    root, agent = host(tuned), start(tuned)
    until(lambda: settings(root) != AS_FOUND)
    os.killpg(agent.process.pid, signal.SIGTERM)
    assert agent.end() == 143
    assert settings(root) == AS_FOUND and not (tuned.folder / "states/n1").exists()


def programs(made: Bench, fault: str, *names: str) -> str:
    """Make programs that have a fault (NAME: their own) while the file of their name is there; return a PATH with them."""
    folder = made.folder / "bin"
    folder.mkdir(exist_ok=True)
    for name in names:
        own = fault.replace("NAME", f"{made.folder}/{name}")
        text = f'#!/bin/bash\n[[ ! -e {made.folder}/{name} ]] || {{ {own}; }}\nexec {shutil.which(name)} "$@"\n'
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_put_back_though_term_reaches_every_process_of_the_revert(tuned: Bench) -> None:
    names = ("cat", "env", "flock", "mv", "rm")
    path = programs(tuned, ": >NAME.met; kill -TERM $$; kill -INT $$; kill -HUP $$", *names)
    root, agent = host(tuned), start(tuned, PATH=path)
    agent.hear("ready")
    for name in names:
        (tuned.folder / name).touch()
    agent.input.close()
    assert agent.end() == 0 and "revert-failed" not in dict(agent.words)
    assert settings(root) == AS_FOUND and not (tuned.folder / "states/n1").exists()
    assert [name for name in names if not (tuned.folder / f"{name}.met").exists()] == []


def test_a_revert_that_was_cut_off_is_tried_again(tuned: Bench) -> None:
    """The first such program is killed: without cat the shell has no script, and ends with 0; without mv it is half done."""
    names = ("cat", "mv")
    roots = [host(tuned, f"of-{name}") for name in names]
    path = programs(tuned, "rm NAME; kill -KILL $$", *names)
    agents = [start(tuned, f"of-{name}", PATH=path) for name in names]
    for agent in agents:  # the programs are those of all
        agent.hear("ready")
    for name, root, agent in zip(names, roots, agents, strict=True):
        (tuned.folder / name).touch()
        agent.input.close()
        assert agent.end() == 0 and "revert-failed" not in dict(agent.words)
        assert not (tuned.folder / name).exists(), "it was met"
        assert settings(root) == AS_FOUND and not (tuned.folder / "states" / agent.name).exists()
        rows = (tuned.layout.node(agent.name) / "tunables.tsv").read_text().splitlines()
        assert [row.split("\t")[6] for row in rows if row.split("\t")[4] == "complete"] == [
            "apply",
            "revert",
        ]


def test_a_revert_goes_on_though_the_log_of_a_run_fails_meanwhile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls, failed = tmp_path / "calls", tmp_path / "failed"
    script = f"""echo called >>{calls}
        until [[ -e {failed} ]]; do sleep 0.01; done
        echo ended >>{calls}
        printf '\\t\\t\\t\\tcomplete\\t\\n'"""
    settings = SimpleNamespace(runtime_tunables=1, sudo=(), orch_lease_s=15)
    program = Program({SCRIPT: script.encode()})
    node = Node("n1", settings, program, Layout(tmp_path / "set"), "7", *["/"] * 6)  # type: ignore[arg-type]
    node.folder.mkdir(parents=True)

    waiting = Waiting()

    def fail() -> None:
        if calls.exists():
            failed.touch()
            raise Failed("storage", "cannot write to node_0.log")
        waiting.after("log", 0.01, fail)

    fail()
    assert Tuning(node, waiting).revert() == ""
    assert calls.read_text() == "called\nended\n" * 2, "the first call ran to its end"
    assert "failed\tn1\tstorage" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cat", "its script ended with 0 before it was complete"),
        ("env", "its script was ended by signal 9"),
        ("flock", "runtime_tunables.sh: flock was ended by signal 9"),
    ],
)
def test_a_revert_that_fails_is_reported(tuned: Bench, name: str, reason: str) -> None:
    with open(tuned.bundle / "settings.sh", "a") as file:
        file.write("ORCH_LEASE_S=3600\n")  # the watchdog would put them back
    root, agent = host(tuned), start(tuned, PATH=programs(tuned, "kill -KILL $$", name))
    agent.hear("ready")
    (tuned.folder / name).touch()
    agent.input.close()
    assert agent.end() == 0
    assert agent.words[-2:] == [("revert-failed", [reason]), ("left", [""])]
    assert settings(root) == SET


def test_an_apply_that_was_cut_off_fails_the_node(tuned: Bench) -> None:
    root, path = host(tuned), programs(tuned, "kill -KILL $$", "cat")
    (tuned.folder / "cat").touch()
    agent = start(tuned, PATH=path)
    assert agent.hear("failed") == [
        "tunables",
        "tunables: its script ended with 0 before it was complete",
    ]
    assert agent.end() == 1 and settings(root) == AS_FOUND
    assert "revert-failed" not in dict(agent.words), "it has changed nothing"


def test_root_runs_only_what_the_agent_started_with(tuned: Bench) -> None:
    """The script is changed on the shared storage while the agent runs."""
    root = host(tuned)
    agent = start(tuned)
    agent.hear("ready")
    for script in (
        tuned.bundle / "runtime_tunables.sh",
        tuned.layout.bundle / "runtime_tunables.sh",
    ):
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"touch {tuned.folder}/run_as_root\n")
    agent.input.close()
    assert agent.end() == 0 and settings(root) == AS_FOUND
    assert not (tuned.folder / "run_as_root").exists()
