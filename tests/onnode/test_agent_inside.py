"""What reads the content of a container: one process for all runs of an agent, which reads again what has changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from agent_parts import STOP, Agent, Bench, bench
from processes import see_them_go
from until import until

from orchestrator.onnode.agent.contents import ContentReader
from orchestrator.onnode.agent.executor import Conversation
from orchestrator.onnode.agent.inside import Inside
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.waiting import Waiting


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Bench]:
    with bench(tmp_path / "bench") as one:
        # No limit on reading.
        one.change("agent/contents.py", "LIMIT_S = 8.0", "LIMIT_S = 1e6")
        one.change("agent/inside.py", "LIMIT_S = 12.0", "LIMIT_S = 1e6")
        yield one


def readers(agent: Agent) -> list[int]:
    """The processes that read for an agent: its own children, without theirs."""
    found = []
    for one in (
        Path(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children").read_text().split()
    ):
        with suppress(OSError):  # it has ended meanwhile
            if "contents.sh" in Path(f"/proc/{one}/cmdline").read_text():
                found.append(int(one))
    return found


def test_one_process_reads_after_each_run_and_ends_with_the_agent(made: Bench) -> None:
    made.plan(f"echo '{STOP}'")
    agent = made.agent()
    agent.hear("ready")
    [reader] = readers(agent)
    hashes = []
    for run in (1, 2, 3):
        if run == 3:
            (made.code / "model.py").write_text("layers = 2\n")
        agent.begin(run)
        agent.hear("exit")
        hashes.append(agent.record(run)["inside"]["code"])
        assert readers(agent) == [reader]
    assert hashes[0] == hashes[1] != hashes[2]
    agent.input.close()
    assert agent.end() == 0
    see_them_go(made.folder)


def test_the_words_of_an_end_go_in_one_write(made: Bench) -> None:
    """A second small packet of TCP waits 40 ms for the receipt of the first."""
    made.plan(f"echo 'host:1:2 [0] NCCL INFO Using network IB'; echo '{STOP}'")
    agent = made.agent()
    agent.hear("ready")
    agent.begin(1)
    agent.hear("exit")
    assert agent.writes[-1] == ["transport", "inside", "exit"]
    assert [words[-2:] for words in agent.writes if "ready" in words] == [["facts", "ready"]]


def test_a_reader_that_was_killed_is_started_again(made: Bench) -> None:
    made.plan(f"echo '{STOP}'")
    agent = made.agent()
    agent.hear("ready")
    [reader] = readers(agent)
    os.killpg(reader, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{reader}").exists())  # the agent has noticed
    agent.begin(1)
    agent.hear("exit")
    assert agent.record(1)["inside"]["code"] and readers(agent) != [reader]


def test_an_image_without_python_is_asked_once(tmp_path: Path) -> None:
    asked = []

    def converse(
        waiting: Waiting, script: str, hear: Callable[[str], object], at_end: Callable[[], object]
    ) -> Conversation:
        asked.append(script)
        at_end()
        return Conversation()

    node = SimpleNamespace(
        channel=str(tmp_path),
        program=Program({"lib/agent/contents.py": b""}),
        settings=SimpleNamespace(mounts=()),
    )
    executor = SimpleNamespace(inside="/orch", code="/code", converse=converse)
    inside = Inside(node, Waiting(), executor)  # type: ignore[arg-type]
    assert inside.contents() == {}
    found: list[dict[str, str]] = []
    inside.collect(found.append)
    assert found == [{}] and len(asked) == 1


def test_a_file_whose_time_was_set_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("layers = 1\n")
    known: dict[tuple[int, ...], str] = {}
    before, status = ContentReader(known).digest(str(path)), path.stat()
    assert ContentReader(known).digest(str(path)) == before and len(known) == 1

    def is_later() -> bool:
        path.write_text("layers = 2\n")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        return path.stat().st_ctime_ns > status.st_ctime_ns

    until(is_later)  # the clock of a file system has ticks
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert ContentReader(known).digest(str(path)) != before
