"""One run through a real agent: its environment, its output, its end, its record."""

from __future__ import annotations

import pytest
from agent_parts import STOP, Agent, Bench, bench
from processes import processes_of
from until import until

from orchestrator.onnode.agent.launch import RunRequest
from orchestrator.onnode.kernel.mllog_tail import MAX_LINE, StopFinder


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """One agent that is ready, for all tests of this module."""
    with bench(tmp_path_factory.mktemp("agent"), pass_env=["HF_TOKEN"]) as made:
        # A run that waits for one of its limits does not end here.
        made.change("agent/run.py", "CLEAR_S = 5, 10, 5", "CLEAR_S = 1e6, 1e6, 1e6")
        made.change("agent/observers.py", "DRIFT_S = 10", "DRIFT_S = 1e6")
        agent = made.agent(HF_TOKEN="it's $ecret\nnew line", ORCH_SET_SECRET="other")
        agent.hear("ready")
        yield made, agent


def run(
    made: tuple[Bench, Agent], plan: str, number: int, **more: object
) -> tuple[list[str], Agent]:
    """Run `plan` as run `number`; the fields of `exit`, and the agent."""
    bench, agent = made
    bench.plan(plan)
    agent.begin(number, **more)
    fields = agent.hear("exit")
    assert agent.record(number)["exit"] == int(fields[1])
    files = {path.name for path in bench.layout.attempt(number, 1).iterdir()} - {"files"}
    assert files == {"node_0.log", "node_0.json"}
    assert [
        path.name
        for path in agent.channel.iterdir()
        if path.name not in ("hold_pid", "environment.sh", "contents.py", "contents.sh")
    ] == []
    return fields, agent


def test_a_run_has_its_environment_and_nothing_else(one) -> None:
    fields, agent = run(one, f"env -0; pwd; ls -l /proc/self/fd; echo '{STOP}'", 1, seed=99)
    assert fields[0] == "1.1" and fields[1] == "0" and fields[4] == "success"
    assert (
        agent.record(1)["start_ms"] == int(fields[2]) <= int(fields[3]) == agent.record(1)["end_ms"]
    )
    *pairs, rest = agent.log(1).decode().split("\0")
    found = dict(pair.split("=", 1) for pair in pairs)
    assert found["HF_TOKEN"] == "it's $ecret\nnew line"
    assert found["FROM_CONFIG"] == 'a "b" $c' and found["EMPTY"] == ""
    assert (found["SEED"], found["MASTER_ADDR"], found["MASTER_PORT"]) == ("99", "n1", "23456")
    assert (found["SLURM_NNODES"], found["SLURM_NODEID"], found["SLURM_JOB_ID"]) == ("1", "0", "7")
    assert (found["ORCH_RUN"], found["ORCH_ATTEMPT"]) == ("1", "1")
    assert not {"NODE_RANK", "ORCH_SET_DIR", "ORCH_SET_SECRET", "NEXP"} & found.keys()
    assert str(one[0].code) in rest
    # 0, 1, 2, and the folder that ls reads.
    assert rest.count(" -> ") == 4
    secret = b"it's $ecret"
    files = [
        path for path in one[0].folder.rglob("*") if path.is_file() and path.name != "node_0.log"
    ]
    assert files and not any(secret in path.read_bytes() for path in files)


def test_rank_is_the_place_among_the_nodes(one) -> None:
    bench, agent = one
    bench.plan("echo $SLURM_NODEID $SLURM_NNODES $NODE_RANK $MASTER_ADDR")
    bench.layout.attempt(2, 1).mkdir(parents=True)
    agent.prepare(2, nodes=["other", "third"])
    agent.begin(2, nodes=["other", "n1", "third"], master="other")
    assert agent.hear("exit")[1] == "0"
    assert agent.log(2, rank=1) == b"1 3 1 other\n"
    said = [word for word, _ in agent.words]
    assert said.count("prepared") == said.count("exit")


@pytest.mark.parametrize(
    ("number", "plan", "code"),
    [(5, "exec /nonexistent", 127), (6, "exec /etc/passwd", 126)],
)
def test_exit_status(one, number: int, plan: str, code: int) -> None:
    fields, _ = run(one, plan, number)
    assert fields[1] == str(code) and fields[4] == ""


def test_stop_ends_it_with_term(one) -> None:
    bench, agent = one
    bench.plan("trap 'echo tidy; exit 0' TERM; echo up; while :; do read -r -t 0.05 <> <(:); done")
    agent.begin(8)
    until(lambda: b"up" in agent.log(8))
    agent.say("stop", id="8.1")
    fields = agent.hear("exit")
    assert fields[:2] == ["8.1", "143"] and agent.record(8)["exit"] == 143
    assert agent.log(8) == b"up\ntidy\n"


def test_leaked_processes_end_with_the_run(one) -> None:
    """A child of its own session that lets go of the output, and one that the main process leaves behind."""
    mark = "/leaked-by-this-test"
    plan = f"(setsid sh -c 'sleep 10000; : {mark}' >/dev/null 2>&1 </dev/null &) ; echo '{STOP}'"
    fields, _ = run(one, plan, 10)
    assert fields[1] == "0" and fields[4] == "success"
    assert processes_of(mark) == {}


def test_output_after_the_end_of_the_main_process_counts(one) -> None:
    fields, agent = run(one, f"(sleep 0.3; echo '{STOP}') & exit 0", 11)
    assert fields[4] == "success" and b"run_stop" in agent.log(11)


def test_fifty_megabytes_and_no_line_end(one) -> None:
    plan = f"head -c 50000000 /dev/zero | tr '\\0' x; echo; echo '{STOP}'; printf 'no line end'"
    fields, agent = run(one, plan, 12)
    assert fields[4] == "success" and len(agent.log(12)) == 50000000 + 1 + len(STOP) + 1 + len(
        "no line end"
    )
    with open(f"/proc/{agent.process.pid}/status") as status:
        [peak] = [int(line.split()[1]) for line in status if line.startswith("VmHWM")]
    assert peak < 64 * 1024


def test_the_last_run_stop_counts_also_in_pieces_and_without_line_end(one) -> None:
    first, last = STOP.replace("success", "aborted"), STOP
    plan = f"echo '{first}'; printf '%s' '{last[:40]}'; sleep 0.1; printf '%s' '{last[40:]}'"
    assert run(one, plan, 13)[0][4] == "success"
    assert run(one, f"echo '{last}'; echo '{first}'", 14)[0][4] == "aborted"


def test_a_request_that_cannot_be_read_changes_nothing(one) -> None:
    _, agent = one
    agent.input.write(
        b'no json\n[1]\n{"do": "prepare", "nodes": ["n1"], "run": "x"}\n' + b"{" * 100000 + b"\n"
    )
    agent.say("go", id=["what"])
    agent.say("ping", n=6)
    assert agent.hear("pong") == ["6"]


def test_stop_finder_at_every_cut() -> None:
    text = f'noise run_stop\n{STOP}\n\xff:::MLLOG {{"key": "run_stop", "metadata": {{}}}}'.encode(
        "latin-1"
    )
    for cut in range(len(text)):
        finder = StopFinder()
        finder.feed(text[:cut])
        finder.feed(text[cut:])
        assert finder.status == "success"
        # The last one has no status; it counts all the same.
        finder.finish()
        assert finder.status == ""


@pytest.mark.parametrize(("size", "status"), [(MAX_LINE, "success"), (MAX_LINE + 1, "")])
def test_stop_finder_long_lines(size: int, status: str) -> None:
    finder = StopFinder()
    line = STOP.encode() + b" " * (size - len(STOP))
    for at in range(0, size, 65536):
        finder.feed(line[at : at + 65536])
    finder.feed(b"\n")
    assert finder.status == status


def test_stop_finder_on_hostile_output() -> None:
    finder = StopFinder()
    finder.feed(b":::MLLOG " * 100000 + b'"key":' * 50000 + b"\n")
    finder.feed(b"run_stop\n" * 100000)
    finder.feed(
        b"the key run_stop, status success\n" + STOP.removeprefix(":::MLLOG ").encode() + b"\n"
    )
    assert finder.status == ""


def test_order_is_checked() -> None:
    good = {
        "id": "1.1",
        "nodes": ["a"],
        "run": 1,
        "attempt": 1,
        "seed": 1,
        "port": 1,
        "master": "a",
    }
    assert RunRequest.of(good) == RunRequest("1.1", ["a"], 1, 1, 1, 1, "a", True)
    assert RunRequest.of({**good, "clear": False}) == RunRequest(
        "1.1", ["a"], 1, 1, 1, 1, "a", False
    )
    for name in good:
        assert RunRequest.of({key: value for key, value in good.items() if key != name}) is None
        assert RunRequest.of({**good, name: {"x": 1}}) is None
