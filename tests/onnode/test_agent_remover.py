"""A container does not outlive its makers: the engine's client is killed between `create` and `start`, alone or with the agent."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_parts import Agent, Bench
from processes import programs_of
from until import until

from orchestrator.onnode.agent.engine import MADE_S

Engine = Callable[[dict[str, str]], Bench]

# Its containers are files of a folder. `run` makes one and kills what $KILLS names, then itself.
ENGINE = """#!/bin/bash
cd {store} || exit 1
case $1 in
  image) echo sha256:1 ;;
  run)
    while [[ $1 != --name ]]; do shift; done
    {made}
    [[ $KILLS != agent ]] || kill -KILL "$PPID"
    kill -KILL $$
    ;;
  ps) echo "$*" >>asked; ls | grep ^orch- ;;
  rm) echo "$3" >>removed; {removed} ;;
esac
"""
AT_ONCE = {"made": 'touch "$2"', "removed": 'rm "$3" && echo "$3"'}
# The engine is still making it when it is first asked to remove it.
LATER = {
    "made": 'echo "$2" >late',
    "removed": 'if [[ -e late ]]; then mv late "$3"; exit 1; fi; rm "$3" && echo "$3"',
}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    benches: list[Bench] = []

    def make(how: dict[str, str]) -> Bench:
        bench = Bench(tmp_path / "bench", container={"engine": "docker", "pull": "never"})
        benches.append(bench)
        # The container never answers a question, and the engine is quick.
        bench.change("agent/inside.py", "LIMIT_S = 12.0", "LIMIT_S = 0.1")
        bench.change("agent/engine.py", "MADE_S = (0, 1, 2, 4)", "MADE_S = (0, 0.1, 0.1, 0.1)")
        store, program = tmp_path / "store", tmp_path / "bin/docker"
        for folder in (store, program.parent):
            folder.mkdir()
        program.write_text(ENGINE.format(store=shlex.quote(str(store)), **how))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def start(bench: Bench, kills: str) -> Agent:
    return bench.agent(
        PATH=f"{bench.folder.parent / 'bin'}{os.pathsep}{os.environ['PATH']}", KILLS=kills
    )


def containers(bench: Bench) -> list[str]:
    return [path.name for path in (bench.folder.parent / "store").glob("orch-*")]


def removed(bench: Bench) -> list[str]:
    """Return what the engine was asked to remove, in order."""
    path = bench.folder.parent / "store/removed"
    return path.read_text().split() if path.exists() else []


def removers(bench: Bench) -> list[int]:
    found = programs_of(bench.folder.parent / "bin")
    return [pid for pid, words in found.items() if "orchestrator-remover" in words]


def ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return bool(mask >> (number - 1) & 1)


@pytest.mark.parametrize("how", [AT_ONCE, LATER], ids=["made", "still made"])
def test_killed_with_the_agent(engine: Engine, how: dict[str, str]) -> None:
    bench = engine(how)
    assert start(bench, "agent").end() == -signal.SIGKILL
    until(lambda: not removers(bench))
    assert (len(removed(bench)), containers(bench)) == (1 if how is AT_ONCE else 2, [])


@pytest.mark.parametrize("how", [AT_ONCE, LATER], ids=["made", "still made"])
def test_killed_alone(engine: Engine, how: dict[str, str]) -> None:
    bench = engine(how)
    assert start(bench, "client").end() == 1
    assert containers(bench) == [] and list(bench.channels.iterdir()) == []


def test_a_container_that_ends_by_itself_is_not_asked_for(engine: Engine) -> None:
    bench = engine({"made": "echo up; cat; exit", "removed": ""})
    bench.change("agent/container.py", "_END_S = 5", "_END_S = 1e6")
    agent = start(bench, "")
    agent.hear("ready")
    agent.input.close()
    assert agent.end() == 0
    until(lambda: not removers(bench))
    assert removed(bench) == []


def test_a_container_that_outlives_both_is_removed(engine: Engine) -> None:
    """One that is paused does not see the end of its input. A TERM that reaches the whole job is for the agent."""
    bench = engine({"made": 'touch "$2"; echo up; cat; exit', "removed": AT_ONCE["removed"]})
    agent = start(bench, "")
    agent.hear("ready")
    [remover] = removers(bench)
    until(lambda: ignores(remover, signal.SIGTERM))  # a shell that has begun
    os.kill(remover, signal.SIGTERM)
    clients = [
        pid
        for pid, words in programs_of(bench.folder.parent / "bin").items()
        if "docker run" in words
    ]
    assert len(clients) == 1 and containers(bench)
    for pid in (agent.process.pid, *clients):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not removers(bench))
    assert removed(bench) and not containers(bench)


def test_a_container_that_its_engine_removes_is_not_asked_for_long(engine: Engine) -> None:
    bench = engine(
        {"made": 'touch "$2"; echo up; cat; rm "$2"; exit', "removed": AT_ONCE["removed"]}
    )
    agent = start(bench, "")
    agent.hear("ready")
    os.kill(agent.process.pid, signal.SIGKILL)
    until(lambda: not removers(bench))
    assert len(removed(bench)) == len(MADE_S) and not containers(bench)


def test_the_next_agent_of_the_job_removes_what_nobody_did(engine: Engine) -> None:
    """All of a step was killed at once, as a cgroup is: the folder of the node says so, and its name is needed again."""
    bench = engine(AT_ONCE)
    channel = bench.channels / f"orch-{os.getuid()}-7-n1"
    channel.mkdir()
    (channel / "hold_pid").write_text("999999999 1\n")
    store = bench.folder.parent / "store"
    (store / "orch-7-n1-1").touch()
    start(bench, "client").end()
    assert removed(bench)[0] == "orch-7-n1-1"
    [asked] = (store / "asked").read_text().splitlines()
    assert "--filter label=orchestrator.job=7 --filter label=orchestrator.node=n1" in asked


@pytest.mark.lab
def test_a_real_engine_keeps_no_container_that_was_only_made(lab: Any, tmp_path: Path) -> None:
    real = shutil.which("docker", path=lab.env["PATH"])
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/docker"
    program.write_text(
        f"""#!/bin/bash
        [[ $1 == run ]] || exec {real} "$@"
        shift
        {real} create "$@" >>{tmp_path}/made
        kill -KILL "$PPID" $$"""
    )
    program.chmod(0o755)
    bench = Bench(tmp_path / "bench", container={"engine": "docker", "pull": "never"})
    job = f"remover-{os.getpid()}"
    path = f"{program.parent}{os.pathsep}{lab.env['PATH']}"
    listing = ("docker", "ps", "--all", "--quiet", f"--filter=label=orchestrator.job={job}")
    try:
        agent = bench.agent(PATH=path, DOCKER_HOST=lab.env["DOCKER_HOST"], ORCH_JOB_ID=job)
        assert agent.end() == -signal.SIGKILL
        assert (tmp_path / "made").read_text()
        until(lambda: not lab.run(*listing).stdout)
    finally:
        bench.close()
