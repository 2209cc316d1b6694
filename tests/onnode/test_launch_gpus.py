"""One process per GPU: how a node ends when its processes do, and entries of /etc/hosts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_parts import STOP, Agent, Bench
from policy_parts import settings
from processes import processes_of
from until import until

from orchestrator.causes.lines import meaning
from orchestrator.onnode.agent.launch import RunRequest, host_entries, look_up_master, start
from orchestrator.onnode.policy.trouble import telling_line


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    with open(made.bundle / "settings.sh", "a") as file:
        file.write("LAUNCH_RANKS=gpu\nGPUS_PER_NODE=4\n")
    # Holders of the output are not waited for. No other limit strikes.
    made.change("agent/run.py", "CLEAR_S = 5, 10, 5", "CLEAR_S = 0.1, 1e6, 1e6")
    yield made
    made.close()


def ended(agent: Agent) -> tuple[str, str]:
    """The exit code of a run, and the status of its run_stop."""
    _, code, _, _, status = agent.hear("exit")
    return code, status


def test_all_processes_run_and_the_lines_of_the_log_are_whole(bench: Bench) -> None:
    bench.plan(
        f"[ $LOCAL_RANK != 0 ] || echo '{STOP}'\nfor k in 1 2 3; do echo \"process $LOCAL_RANK $RANK\"; done"
    )
    agent = bench.agent()
    agent.begin(1)
    assert ended(agent) == ("0", "success")
    lines = agent.log(1).decode().splitlines()
    assert sorted(lines) == sorted(
        [STOP, *(f"process {one} {one}" for one in range(4) for _ in range(3))]
    )


@pytest.mark.parametrize(
    ("end", "code"), [("exit 7", "7"), ("kill -SEGV $$", "139"), ("no-such-program", "127")]
)
def test_the_code_of_the_process_that_fails_counts(bench: Bench, end: str, code: str) -> None:
    bench.plan(f"[ $LOCAL_RANK != 2 ] || {{ {end}; exit; }}")
    agent = bench.agent()
    agent.begin(1)
    assert ended(agent) == (code, "")
    assert f"orchestrator: local rank 2 (rank 2) exited {code}\n" in agent.log(1).decode()


def test_when_one_fails_the_others_are_ended(bench: Bench) -> None:
    # TERM after a second, no KILL.
    bench.change(
        "agent/launch.py", "$status end=$((SECONDS + %(limit)d))", "$status end=$((SECONDS + 1))"
    )
    bench.change("agent/launch.py", "END_S = 10", "END_S = 1000000")
    bench.plan(
        f"""if [ $LOCAL_RANK = 2 ]; then
  until [ -e {bench.folder}/trap0 -a -e {bench.folder}/trap1 -a -e {bench.folder}/trap3 ]; do sleep 0.05; done
  exit 7
fi
trap 'echo ended $LOCAL_RANK; exit 3' TERM
: >{bench.folder}/trap$LOCAL_RANK
sleep 100 & wait"""
    )
    agent = bench.agent()
    agent.begin(1)
    assert ended(agent) == ("7", "")
    log = agent.log(1).decode()
    assert sorted(line for line in log.splitlines() if line.startswith("ended")) == [
        "ended 0",
        "ended 1",
        "ended 3",
    ]


def test_one_that_does_not_end_is_not_waited_for(bench: Bench) -> None:
    bench.change("agent/launch.py", "END_S = 10", "END_S = 1")
    bench.plan("[ $LOCAL_RANK != 1 ] || exit 9\ntrap '' TERM\nsleep 10000")
    agent = bench.agent()
    agent.begin(1)
    assert ended(agent) == ("9", "")
    assert not [words for words in processes_of(bench.folder).values() if "run_and_time" in words]


ENDS_APART = """
trap() { :; }
kill() { echo "TERM after $SECONDS s"; }
read() {  # 0 fails at once, then a process ends every 6 s
  local rest=6
  [[ $2 != -t ]] || rest=$3
  i=$((ends++)) status=$((i == 0))
  ((i)) || return 0
  ((SECONDS += rest < 6 ? rest : 6, rest >= 6))
}
SECONDS=0 ends=0
"""
"""The shell's clock and pipe for a test."""


def test_processes_that_end_apart_have_one_limit_together() -> None:
    request = RunRequest("1.1", ["n"], run=1, attempt=1, seed=1, port=1, master="n")
    script = start(request, 0, settings(launch_ranks="gpu", gpus_per_node=8, command=("true",)))
    done = subprocess.run(
        ["bash", "-c", ENDS_APART + script], text=True, capture_output=True, check=False
    )
    first, *others = done.stdout.splitlines()
    assert (done.returncode, first) == (1, "orchestrator: local rank 0 (rank 0) exited 1")
    assert len(others) == 1 and others[0].startswith("TERM after 1"), done.stderr


def test_the_loops_word_ends_them_all(bench: Bench) -> None:
    bench.plan("trap 'echo ended $LOCAL_RANK; exit 3' TERM; echo begun; sleep 100 & wait")
    agent = bench.agent()
    run = agent.begin(1)
    until(lambda: agent.log(1).count(b"begun") == 4)
    agent.say("stop", id=run)
    assert ended(agent)[0] == "143"
    assert agent.log(1).count(b"ended ") == 4


def test_nodes_are_added_to_the_hosts_once(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    lines = ("10.0.0.1 n1.x n1", "10.0.0.2 n2", "10.0.0.3 it's")
    for _ in range(2):
        text = host_entries(lines).replace("/etc/hosts", str(hosts))
        subprocess.run(["sh", "-euc", text], check=True)
    assert hosts.read_text().splitlines() == ["127.0.0.1 localhost", *lines]
    assert host_entries(()) == ""


def test_a_master_that_the_container_does_not_know_is_said(tmp_path: Path) -> None:
    def look(
        master: str, nodes: int = 2, path: str = os.environ["PATH"]
    ) -> subprocess.CompletedProcess[str]:
        request = RunRequest("1", ["n"] * nodes, run=1, attempt=1, seed=1, port=1, master=master)
        text = look_up_master(request) + "\necho on"
        return subprocess.run(
            ["/bin/bash", "-c", text], env={"PATH": path}, text=True, capture_output=True
        )

    lost = look("no-such.invalid")
    assert (lost.returncode, lost.stderr) == (1, "")
    assert "does not know MASTER_ADDR=no-such.invalid" in lost.stdout and lost.stdout[-1] == "\n"
    assert "`network: {master: address}` or `network: {hosts: true}`" in lost.stdout
    assert meaning(lost.stdout, ())[0] == "master_unknown"
    assert telling_line(lost.stdout.encode()).startswith("error: the container does not know")
    assert look("localhost").stdout == "on\n"
    assert look("no-such.invalid", nodes=1).stdout == look("10.0.0.1").stdout == "on\n"
    assert look("no-such.invalid", path=str(tmp_path)).stdout == "on\n", "an image without getent"
