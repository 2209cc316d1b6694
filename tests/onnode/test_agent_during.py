"""What a node notes and tells of a run that goes on: its rhythm, what RCCL says of the network, evidence of a hang."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from agent_parts import Bench, bench
from until import until

from orchestrator.onnode.agent.node import Node
from orchestrator.onnode.agent.observers import RunOutput, debug_files
from orchestrator.onnode.kernel.events import NetworkUse, Pulse
from orchestrator.onnode.kernel.layout import Layout

RECORD = ':::MLLOG {"namespace": "", "time_ms": 1, "key": "%s", "metadata": {"lineno": 1}}\n'
AT = "node-3:4711:4712 [0] NCCL INFO "


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path) as made:
        yield made


def heard(*texts: str) -> RunOutput:
    listener = RunOutput()
    for text in texts:
        listener.feed(text.encode())
    return listener


@pytest.mark.parametrize("evaluation", ["eval_accuracy", "eval_error"])
def test_the_rhythm_is_the_longest_time_between_evaluations(evaluation: str) -> None:
    now_s = 1000.0
    listener = RunOutput(lambda: now_s)
    listener.feed(f"noise\n{RECORD % 'init_start'}".encode())
    assert listener.pulse()[1:] == (0, 0, 0)
    now_s += 64
    listener.feed((RECORD % "run_start").encode())
    for pause_s in (1, 8, 2):
        now_s += pause_s
        listener.feed((RECORD % "train_loss").encode())
        listener.feed((RECORD % evaluation).encode())
    now_s += 4
    assert listener.pulse() == Pulse(4000, 1, 8000, 0)
    listener.feed(b":::MLLOG {" + b"x" * 3000)  # any byte is a sign of life
    assert listener.pulse().quiet_ms == 0


def test_the_rhythm_of_keys_that_alternate_is_that_of_the_rarest() -> None:
    """A hang is judged by it: an evaluation of each key comes every 600 s."""
    now_s = 1000.0
    listener = RunOutput(lambda: now_s)
    listener.feed((RECORD % "run_start").encode())
    for evaluation in ("eval_accuracy", "eval_error") * 3:
        now_s += 300
        listener.feed((RECORD % evaluation).encode())
    assert listener.pulse().interval_ms == 600_000


def test_the_rhythm_begins_anew_with_a_start() -> None:
    now_s = 0.0
    listener = RunOutput(lambda: now_s)
    for key, pause_s in (("eval_accuracy", 50), ("run_start", 900), ("eval_accuracy", 7)):
        now_s += pause_s
        listener.feed((RECORD % key).encode())
    assert listener.pulse() == Pulse(0, 1, 7000, 0)


# The texts of NCCL 2.19 to 2.31 and of RCCL, plug-ins included.
@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ([AT + "Using network IB"], (1, 0)),
        ([AT + "Using network IBext_v8", AT + "NET/Socket : Using [0]eno0:10.0.0.1<0>"], (1, 0)),
        ([AT + "Using network AWS Libfabric"], (1, 0)),
        ([AT + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0/GDRDMA"], (1, 0)),
        ([AT + "NET/IB : No device found.", AT + "Using network Socket"], (0, 1)),
        (
            [AT + "NET/IB : No device found.", AT.replace("4711", "4713") + "Using network IB"],
            (1, 1),
        ),
        ([AT + "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0"], (0, 1)),
        ([AT + "Using network FastSocket"], (0, 1)),
        (["[default0]:" + AT + "Using network Socket"], (0, 1)),
        (
            [
                AT + "Bootstrap : Using eno0:10.0.0.1<0>",
                "RCCL version 2.26.6",
                "Using network Socket",
            ],
            None,
        ),
    ],
)
def test_what_rccl_says_of_the_network(lines: list[str], found: tuple[int, int] | None) -> None:
    text = "\n".join([*lines, ""])
    for cut in (0, 20, len(text) // 2):
        listener = heard(text[:cut], text[cut:])
        assert bool(listener.transports) is (found is not None)
        assert listener.transports.use[:2] == (found or (0, 0))


def test_hostile_output_is_bounded() -> None:
    lines = [
        f"x:{at}:1 [0] NCCL INFO Using network Socket {'y' * 500}\n" * 20 for at in range(5000)
    ]
    listener = heard(*lines, "NCCL INFO " * 100_000 + "\n")
    assert listener.transports.use.other <= 4096 and len(listener.transports.use.line) <= 160


def test_a_node_tells_its_pulse_and_the_network(one: Bench) -> None:
    one.plan(
        f"echo '{(RECORD % 'run_start').strip()}'; echo '{AT}Using network Socket'; sleep 1000"
    )
    agent = one.agent()
    agent.hear("ready")
    agent.say("ping", n=1)
    assert agent.hear("pong") == ["1"]
    name = agent.begin(1)
    until(lambda: b"Socket" in agent.log(1))

    def began() -> bool:
        agent.say("ping", n=2)
        fields = agent.hear("pong")
        assert fields[:2] == ["2", name]
        return Pulse(*map(int, fields[2:])).began == 1

    until(began)
    agent.say("stop", id=name)
    assert NetworkUse(*agent.hear("transport")[1:]) == ("0", "1", "Using network Socket")
    agent.hear("exit")


def test_rccl_s_files_prove_the_network_and_the_log_stays_clean(one: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "rccl[1]"  # its name is no pattern
    folder.mkdir()
    (folder / "nccl_h_1.log").write_text(f"{AT}Using network Socket\n")  # of an earlier run
    one.layout.environment.write_text(
        f'declare -x NCCL_DEBUG_FILE="{folder}/nccl_%h_%p.log"\n'.replace("[1]", "[[]1]")
    )
    one.plan(
        f"echo '{AT}NET/IB : Using [0]rdma0:1/RoCE' >'{folder}/nccl_h_2.log'\n"
        f"echo '{AT}Using network IB' >>'{folder}/nccl_h_2.log'\n"
        f"{{ echo '{AT.replace('4711', '4713')}Using network Socket'; head -c 3000000 /dev/zero; }} "
        f">'{folder}/nccl_h_3.log'\n"
        f"ln -s nccl_h_1.log '{folder}/nccl_h_4.log'\nmkfifo '{folder}/nccl_h_5.log'"
    )
    agent = one.agent()
    agent.hear("ready")
    name = agent.begin(1)
    assert agent.hear("transport") == [name, "1", "1", "Using network Socket"]
    agent.hear("exit")
    assert agent.record(1)["transport"] == {"rdma": 1, "other": 1, "line": "Using network Socket"}
    assert agent.log(1) == b""


def test_rccl_s_files_are_read_while_the_run_goes_on(one: Bench, tmp_path: Path) -> None:
    one.change("agent/observers.py", "FILES_S = 30", "FILES_S = 0.05")
    one.change("agent/observers.py", "TRANSPORT_S = 60", "TRANSPORT_S = 0.05")
    one.layout.environment.write_text(f'declare -x NCCL_DEBUG_FILE="{tmp_path}/nccl_%h_%p.log"\n')
    one.plan(f"echo '{AT}Using network Socket' >'{tmp_path}/nccl_h_1.log'; exec sleep 1000")
    agent = one.agent()
    agent.hear("ready")
    name = agent.begin(1)
    assert agent.hear("transport") == [name, "0", "1", "Using network Socket"]
    agent.say("stop", id=name)
    agent.hear("exit")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("/results/nccl_%h_%p.log", "{results}/nccl_*_*.log"),
        ("/results/deep/%h", "{results}/deep/*"),
        ("/tmp/nccl.%p", ""),
        ("/results/../../etc/passwd", ""),
        ("", ""),
    ],
)
def test_rccl_s_files_in_a_container_are_those_of_its_results(
    tmp_path: Path, given: str, found: str
) -> None:
    layout = Layout(tmp_path)
    layout.environment.write_text(f'declare -x NCCL_DEBUG_FILE="{given}"\n')
    settings = SimpleNamespace(engine="docker", results="shared")
    node = Node("n1", settings, tmp_path, layout, "7", *["/"] * 6)  # type: ignore[arg-type]
    assert debug_files(node) == found.format(results=tmp_path / "nodes/n1/scratch")


PY_SPY = r"""#!/bin/bash
cat <<'END'
Process 1: python3 train.py --password-of-this-test=secret-of-this-test
Python v3.11.2 (/usr/bin/python3.11)

Thread 1 (idle): "MainThread"
    wait (threading.py:320)
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    step (train.py:120)
    <module> (train.py:300)
Thread 2 (active): "pin_memory"
    read (loader.py:1)
END
"""


def test_evidence_of_a_hang(one: Bench, tmp_path: Path) -> None:
    """py-spy and amd-smi are stand-ins; the processes, the kernel's files and the files of torch and RCCL are real ones."""
    tools = {
        "py-spy": PY_SPY,
        "amd-smi": "#!/bin/bash\necho GPU 0 busy: $1\nyes | head -c 3000000\n",
    }
    for name, text in tools.items():
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    records = tmp_path / "records"
    one.layout.environment.write_text(
        f'declare -x NCCL_DEBUG_FILE="{tmp_path}/rccl.%h.%p"\ndeclare -x TORCH_NCCL_TRACE_BUFFER_SIZE="200"\n'
        f'declare -x TORCH_NCCL_DEBUG_INFO_TEMP_FILE="{records}_"\ndeclare -x TORCH_NCCL_DEBUG_INFO_PIPE_FILE="{records}.p"\n'
    )
    program = tmp_path / "train.py"
    # What torch does: a line in the pipe makes it write its record.
    program.write_text(
        "import os, sys\n"
        f"open({str(tmp_path / 'rccl.node.77')!r}, 'w').write('old ' * 20000 + 'the last line of RCCL')\n"
        f"os.mkfifo({str(records) + '.p0.pipe'!r})\n"
        "print('hanging', flush=True)\n"
        f"open({str(records) + '.p0.pipe'!r}).read()\n"
        f"open({str(records) + '_0'!r}, 'wb').write(b'\\x80\\x02]q.')\n"
        "import time; time.sleep(1000)\n"
    )
    one.plan(f"python3 {program} --password-of-this-test=$FROM_CONFIG & wait")
    # No limit on the record.
    one.change("agent/evidence.py", "MOST_S, _PART_S = 45.0, 10.0", "MOST_S = _PART_S = 1e6")
    one.change("agent/evidence.py", "timeout 2 sh", "sh")
    one.change(
        "agent/evidence.py", "|| sleep 3", f"|| until [ -s '{records}_0' ]; do sleep 0.05; done"
    )
    agent = one.agent(PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    agent.hear("ready")
    name = agent.begin(1)
    until(lambda: b"hanging" in agent.log(1))
    agent.say("evidence", id=name)
    assert agent.hear("evidence") == [name, "in all_reduce (distributed_c10d.py) < step (train.py)"]
    told = one.layout.hang(1, 1, "n1").read_text()
    for part in ("processes", "kernel log", "GPUs", "RCCL", "flight records (files/)"):
        assert told.count(f"==== {part}\n") == 1
    assert f"python3 {program}" in told
    assert "all_reduce (torch/distributed/distributed_c10d.py:2501)" in told
    assert "password-of-this-test" not in told and "secret-of-this-test" not in told
    assert "the last line of RCCL" in told and told.count("old ") < 6000
    assert "files: 1\n" in told
    assert len(told) < 1 << 20
    agent.say("stop", id=name)
    agent.hear("exit")
    assert (
        one.layout.node_files(1, 1, "n1") / "flight_recorder/records_0"
    ).read_bytes() == b"\x80\x02]q."


RANKS = """
import os, sys
rank = os.fork() and 1
if rank == 0:
    os.execve(sys.executable, ["python3", "-c", "import os, time; print('rank 0', os.getpid(), flush=True); time.sleep(1000)"], {"RANK": "0"})
end = f"open({sys.argv[1]!r}).read()" if sys.argv[2] == "blocked" else "while True: pass"
os.mkfifo(sys.argv[1])
os.execve(sys.executable, ["python3", "-c", "import os; print('rank 1', os.getpid(), flush=True)\\n" + end], {"RANK": "1"})
"""


def path_without(program: str) -> str:
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not Path(folder, program).exists())


IN_A_PIPE = "(?:partner|fifo|pipe)"


def wchan_of(pid: int) -> str:
    """Where a process waits in the kernel."""
    return Path(f"/proc/{pid}/wchan").read_text()


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("blocked", rf"\S*{IN_A_PIPE}\S* \(kernel\)"),
        ("loops", r"user code \(on a processor\)"),
    ],
)
def test_evidence_without_tools_names_the_rank_by_the_kernel(
    one: Bench, tmp_path: Path, kind: str, place: str
) -> None:
    """Rank 0 sleeps. Nobody has py-spy, as on most nodes and in most images."""
    program = tmp_path / "ranks.py"
    program.write_text(RANKS)
    one.plan(f"python3 {program} {tmp_path}/pipe {kind}")
    agent = one.agent(PATH=path_without("py-spy"))
    agent.hear("ready")
    name = agent.begin(1)
    until(lambda: agent.log(1).count(b"rank ") == 2)
    pids = {int(rank): int(pid) for rank, pid in re.findall(rb"rank (\d) (\d+)\n", agent.log(1))}
    until(lambda: re.search("nanosleep", wchan_of(pids[0])))
    if kind == "blocked":
        until(lambda: re.search(IN_A_PIPE, wchan_of(pids[1])))
    agent.say("evidence", id=name)
    about, activity = agent.hear("evidence")
    told = one.layout.hang(1, 1, "n1").read_text()
    assert "(no py-spy: of the kernel)" in told and "State:\t" in told
    assert about == name and re.search(rf"rank 1 in {place}", activity), (activity, told)
    assert re.search(r"rank 0 in \S*nanosleep\S* \(kernel\)", activity), (activity, told)
    agent.say("stop", id=name)
    agent.hear("exit")


SPINNING = """
import os, sys
for rank in range(4):
    if os.fork() == 0:
        code = f"import os; print('rank', {rank}, os.getpid(), flush=True)\\nwhile True: pass"
        os.execve(sys.executable, ["python3", "-c", code], {"RANK": str(rank)})
os.wait()
"""


def test_of_ranks_that_all_spin_that_with_an_idle_gpu_is_named(one: Bench, tmp_path: Path) -> None:
    """The others wait on their processors while their GPUs are in a collective."""
    program = tmp_path / "ranks.py"
    program.write_text(SPINNING)
    one.plan(f"python3 {program}")
    agent = one.agent(PATH=path_without("py-spy"), ORCH_SYS_ROOT=str(tmp_path / "sys"))
    agent.hear("ready")
    name = agent.begin(1)
    until(lambda: agent.log(1).count(b"rank ") == 4)
    for rank, pid in re.findall(rb"rank (\d) (\d+)", agent.log(1)):
        for gpu, units in (("stats_51", "0"), ("stats_88", "0" if rank == b"2" else "16")):
            stats = tmp_path / f"sys/class/kfd/kfd/proc/{pid.decode()}/{gpu}"
            stats.mkdir(parents=True)
            (stats / "cu_occupancy").write_text(f"{units}\n")
    agent.say("evidence", id=name)
    _, activity = agent.hear("evidence")
    assert activity == (
        "rank 2 in user code (on a processor, GPU idle); "
        "3 ranks in user code (on a processor, GPU busy)"
    )
    agent.say("stop", id=name)
    agent.hear("exit")


def test_the_end_of_the_job_does_not_wait_for_evidence(one: Bench, tmp_path: Path) -> None:
    one.change("agent/evidence.py", "MOST_S, _PART_S = 45.0, 10.0", "MOST_S = _PART_S = 1e6")
    slow = tmp_path / "bin/py-spy"
    slow.parent.mkdir()
    slow.write_text(f"#!/bin/bash\n: >{tmp_path}/asked\nexec sleep 10000\n")
    slow.chmod(slow.stat().st_mode | stat.S_IXUSR)
    one.plan("sleep 1000 & echo hanging; wait")
    agent = one.agent(PATH=f"{slow.parent}:{os.environ['PATH']}")
    agent.hear("ready")
    name = agent.begin(1)
    until(lambda: b"hanging" in agent.log(1))  # a run that has no process yet has no stack either
    agent.say("evidence", id=name)
    until((tmp_path / "asked").exists)
    agent.input.close()
    agent.end()
    assert agent.words[-1][0] == "left"
