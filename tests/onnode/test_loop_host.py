"""The batch host as a world: what is raised while a flow waits reaches the flow, and what cannot be reached is not missing."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.onnode.kernel.files import Files
from orchestrator.onnode.kernel.waiting import UNTIL_WOKEN, Flow, Lines
from orchestrator.onnode.loop import host
from orchestrator.onnode.loop.host import BatchHost, StepProcesses


@pytest.fixture
def world() -> Iterator[BatchHost]:
    numbers = (
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGCHLD,
    )
    before, wakeup = (
        {number: signal.getsignal(number) for number in numbers},
        signal.set_wakeup_fd(-1),
    )
    yield BatchHost()
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def closing(world: BatchHost, steps: list[str]) -> Flow:
    """A flow that has something to close, and waits once more for that."""
    try:
        yield world.now() + 60
    finally:
        steps.append("closing")
        yield world.now()
        steps.append("closed")


def test_a_defect_in_taking_in_a_line_still_closes_the_set(world: BatchHost) -> None:
    read, write = os.pipe()

    def take(line: bytes) -> None:
        raise LookupError(line)

    lines, steps = Lines(world.reactor(lambda: None), read, take), list[str]()
    os.write(write, b"any\n")
    with pytest.raises(LookupError):
        world.run(closing(world, steps))
    assert steps == ["closing", "closed"]
    lines.close()
    os.close(read)
    os.close(write)


def test_an_interrupt_before_there_is_a_reactor_still_lets_go(world: BatchHost) -> None:
    steps: list[str] = []

    def interrupted(seconds: float) -> None:
        if not steps:
            raise KeyboardInterrupt

    world.pause = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        world.run(closing(world, steps))
    assert steps == ["closing", "closed"]


def test_what_cannot_be_reached_is_not_taken_for_missing(tmp_path: Path) -> None:
    """A stale handle or an I/O error of the storage must not make a published result one that was lost."""
    files, path = Files(), tmp_path / "loop"
    path.symlink_to(path)
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "file").write_text("12")
    for missing in (path, tmp_path / "broken", tmp_path / "none", tmp_path / "file/below"):
        assert not files.exists(missing) and files.state(missing) is None
    assert files.exists(tmp_path) and files.state(tmp_path / "file")[0] == 2  # type: ignore[index]
    with pytest.raises(OSError, match="too long"):
        files.exists(tmp_path / ("x" * 300))


def test_of_a_folder_that_cannot_be_copied_the_first_reason_is_given(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "gone").symlink_to("nowhere")
    with pytest.raises(OSError, match="No such file or directory") as told:
        Files().copy_tree(source, tmp_path / "target")
    assert isinstance(told.value.strerror, str) and type(told.value) is OSError


def test_a_step_gives_its_nodes_a_beat_whatever_a_flow_waits_for(
    world: BatchHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "BEAT_S", 0.05)
    heard: list[bytes] = []

    def take(sender: str, line: bytes) -> None:
        heard.append(line)

    reactor = world.reactor(lambda: None)
    processes = StepProcesses(["n0"], [(["cat"], {})], os.environ, take, take)
    step = world.start(reactor, processes)

    def waits() -> Flow:
        while len(heard) < 3:
            yield UNTIL_WOKEN
        step.end_input()
        while step.alive:
            yield UNTIL_WOKEN

    world.run(waits())
    step.kill()
    assert {*heard} == {b'{"do":"beat"}'}


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, "127.0.0.1"),
        *([(socket.AF_INET6, "::1")] if socket.has_dualstack_ipv6() else []),
    ],
)
def test_a_port_is_free_unless_a_process_listens_there(
    world: BatchHost, family: int, address: str
) -> None:
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        assert not world.is_free(port)
        with socket.create_connection((address, port)):
            server.accept()[0].close()  # what remains of it occupies no port
    assert world.is_free(port)
