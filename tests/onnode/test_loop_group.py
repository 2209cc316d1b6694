"""What the loop takes for the end of a node: its own words, those of its step, none, or far too many."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from policy_parts import settings

from orchestrator.evidence.events import read_events
from orchestrator.onnode.kernel.events import EventLog
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.loop.allocation import LocalAllocation
from orchestrator.onnode.loop.batch_job import BatchJob
from orchestrator.onnode.loop.group import Group
from orchestrator.onnode.loop.host import BatchHost, JobStep, NodeStep
from orchestrator.onnode.loop.step import (
    BEHIND_S,
    MAX_COMPLAINTS,
    MAX_GARBLED,
    MAX_SAID,
    SAID_AGAIN,
    WORD_BYTES,
)


class Host(BatchHost):
    """A batch host whose clock the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.time_s = 100.0
        self.now = lambda: self.time_s  # type: ignore[method-assign]


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def group(host: Host, tmp_path: Path) -> Iterator[Group]:
    """Two nodes without a step: their messages come from the test."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD)
    before, wakeup = (
        {number: signal.getsignal(number) for number in numbers},
        signal.set_wakeup_fd(-1),
    )
    job = BatchJob(Program({}), settings(), Layout(tmp_path), host)
    job.allocation, job.job_id = LocalAllocation({}, 2, host), "1"
    held = Group(job, ["n0", "n1"], EventLog(tmp_path / "events"))
    held.record.note("hold", detail={"generation": 1, "nodes": ["n0", "n1"]})
    yield held
    if held.step.process is not None and isinstance(held.step.process, NodeStep):
        held.step.process.kill()
    signal.set_wakeup_fd(wakeup)
    for number, handler in before.items():
        signal.signal(number, handler)


def after_a_while(group: Group, host: Host) -> dict[str, tuple[str, str]]:
    """Return the failed nodes once the step's messages count."""
    group.step.check_ended()
    assert group.state.silent == set(), "a node's own last words may be behind those of its step"
    host.time_s += BEHIND_S
    group.step.check_ended()
    assert group.state.silent == set(), "they may be unread: this process may have been busy"
    group.step.next_check(host.time_s + 60)
    group.step.check_ended()
    return group.state.failed


def test_a_node_that_its_step_names_has_ended(group: Group, host: Host) -> None:
    words = b"srun: error: n1: task 1: Killed"
    group.step.complaints.take("", words)
    assert group.step.next_check(host.time_s + 60) == host.time_s + BEHIND_S
    assert after_a_while(group, host) == {"n1": ("silent", f"its step ended: {words.decode()}")}
    assert group.record.is_gone("n1") and not group.record.is_gone("n0")


def test_a_node_that_has_left_in_order_has_not_died(group: Group, host: Host) -> None:
    group.step.complaints.take("", b"srun: error: n1: task 1: Exited with exit code 1")
    group.step.take("n1", b"failed\tn1\tstorage\x1fdisk full")
    group.step.take("n1", b"left\tn1\t")
    assert after_a_while(group, host) == {"n1": ("storage", "disk full")}
    assert group.state.silent == set() and group.record.is_gone("n1")


def test_a_name_that_is_no_node_is_nobody(group: Group, host: Host) -> None:
    group.step.complaints.take("", b"srun: error: elsewhere: task 9: Killed\xff\0")
    assert after_a_while(group, host) == {}


def test_a_node_that_says_too_much_is_lost_and_fills_no_disk(group: Group, tmp_path: Path) -> None:
    line = b"what\tn0\t" + b"e" * 400
    most, again = (limit // (len(line) + WORD_BYTES) for limit in (MAX_SAID, SAID_AGAIN))
    for _ in range(2 * most):
        group.step.take("n0", line)
        group.step.take("n1", b"\xff\0 no word")
    assert group.state.failed["n0"] == (
        "protocol",
        "it sends too much: more than 256 KB since the last run started",
    )
    assert group.record.is_gone("n0") and not group.record.is_gone("n1")
    said = [one.word for one in read_events(tmp_path / "events")]
    assert (said.count("what"), said.count("garbled")) == (most, MAX_GARBLED)
    # In another hold, for lack of other nodes: it is given up sooner, so a job's events stay small.
    group.record.note("hold", detail={"generation": 2, "nodes": ["n0", "n1"]})
    group.step.start(["n0", "n1"], ["true"], {})
    for _ in range(2 * most):
        group.step.take("n0", line)
    assert group.record.is_gone("n0") and "more than 64 KB" in group.state.failed["n0"][1]
    assert [one.word for one in read_events(tmp_path / "events")].count("what") == most + again


def test_a_node_that_speaks_for_another_one_is_not_believed_and_given_up(
    group: Group, host: Host, tmp_path: Path
) -> None:
    group.step.reset_silence(["n0"])
    host.time_s += 1
    for line in (b"left\tn0\t", b"left\tn0\t", b"pong\tn0\t1", b"failed\tn0\tstorage\x1fdisk full"):
        group.step.take("n1", line)
    assert group.state.failed == {"n1": ("protocol", "it sends lines in the name of node n0")}
    assert group.record.is_gone("n1") and not group.record.is_gone("n0")
    assert group.step.silent(["n0"], host.time_s) == ["n0"], "its pong is no sign of life of n0"
    group.step.take("n1", b"ready\tn1\tsha256:1")
    assert group.state.reports["n1"].image == "", "nothing more of it counts"
    assert [(one.word, one.node) for one in read_events(tmp_path / "events")][2:] == [
        ("forged", "n1"), ("silent", "n1"), ("fail", "n1"),
    ]  # fmt: skip


def test_a_line_that_comes_from_nobody_is_not_believed(group: Group, host: Host) -> None:
    group.step.reset_silence(["n0"])
    host.time_s += 1
    group.step.take("", b"left\tn0\t")
    group.step.take("", b"pong\tn0\t1")
    assert not group.record.is_gone("n0") and group.state.failed == {}
    assert group.step.silent(["n0"], host.time_s) == ["n0"]


def test_what_a_node_complains_of_is_believed_of_itself_alone(group: Group, host: Host) -> None:
    group.step.complaints.take("n1", b"srun: error: n0: task 0: Killed")
    group.step.complaints.take("n1", b"srun: error: Application launch failed: so it says")
    group.step.complaints.take(
        "n1", b"slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED, error on node n1"
    )
    assert set(after_a_while(group, host)) == {"n1"}


def test_complaints_of_nodes_are_kept_up_to_a_limit(group: Group, host: Host) -> None:
    group.job.layout.nodes.mkdir()
    for number in range(3 * MAX_COMPLAINTS // 500):
        group.step.complaints.take("n1", f"warning {number}: {'x' * 480}".encode())
    kept = (group.job.layout.nodes / "hold.log").read_text()
    assert MAX_COMPLAINTS < len(kept) < MAX_COMPLAINTS + 600
    assert kept.endswith(" (later lines of n1 are not kept)\n")
    group.step.complaints.take("n0", b"out of memory")
    group.step.complaints.take("", b"srun: error: n0: task 0: Killed")
    for _ in range(9):
        group.step.complaints.take("n1", b"noise")
    kept = (group.job.layout.nodes / "hold.log").read_text()
    assert kept.endswith("n0: out of memory\nsrun: error: n0: task 0: Killed\n")
    assert group.step.complaints.last_lines.endswith(
        "out of memory srun: error: n0: task 0: Killed"
    )
    assert "n0" in after_a_while(group, host), "one node's errors hide no other node's"


def test_a_node_that_floods_replies_is_given_up(group: Group, host: Host) -> None:
    for _ in range(2 * MAX_SAID // WORD_BYTES):
        group.step.send({"do": "ping", "n": 1})  # without a process nobody hears it
    group.step.process = cast(
        JobStep, SimpleNamespace(alive=True, ended_nodes=list, send=lambda _: None)
    )
    pongs = MAX_SAID // WORD_BYTES
    for _ in range(pongs):
        group.step.send({"do": "ping", "n": 1})
        group.step.take("n0", b"pong\tn0\t1")
    assert "n0" not in group.step.protocol_errors, "a reply to each ping, for however long"
    for _ in range(pongs):
        group.step.take("n1", b"pong\tn1\t1")
    assert group.step.protocol_errors == {}
    for _ in range(pongs):
        group.step.take("n1", b"pong\tn1\t1")
    assert (
        list(group.step.protocol_errors) == ["n1"]
        and "sends too much" in group.step.protocol_errors["n1"]
    )


def test_the_limit_of_the_hold_counts_from_the_end_of_the_last_pull(
    group: Group, host: Host
) -> None:
    group.job.settings = group.settings = replace(
        group.settings, container_start_s=-29, pull="missing", pull_minutes=1, pull_at_once=1
    )
    sent: list[object] = []
    group.step.process = cast(
        JobStep, SimpleNamespace(alive=True, ended_nodes=list, send=sent.append)
    )
    for node in ("n0", "n1"):
        group.step.take(node, f"lacks\t{node}\t".encode())
    waiting = group.wait_for("ready", ["n0", "n1"])
    group.job.shared.set_pulls(7, 1)  # of another group
    next(waiting)
    assert sent == []
    group.job.shared.set_pulls(7, 0)
    for _ in range(4):  # the limit is one second
        host.time_s += 0.5
        next(waiting)
    assert sent == [{"do": "pull", "nodes": ["n0"]}] and group.state.failed == {}
    group.step.take("n0", b"pulled\tn0\tsha256:1")
    next(waiting)
    assert sent[1:] == [{"do": "pull", "nodes": ["n1"]}]
    host.time_s += 1000
    group.step.take("n0", b"ready\tn0\tsha256:1")
    with pytest.raises(StopIteration) as ended:
        next(waiting)
    assert ended.value.value is True
    assert group.state.failed == {"n1": ("image", "its pull did not end within 1 minute")}


@pytest.mark.parametrize(
    ("master", "hosts", "meeting"),
    [
        ("name", 0, {"master": "127.0.0.1", "hosts": []}),
        ("address", 0, {"master": "10.0.0.2", "hosts": []}),
        ("address", 1, {"master": "10.0.0.2", "hosts": ["10.0.0.2 a.x n1", "10.0.0.1 n0"]}),
    ],
)
def test_where_the_nodes_meet_follows_the_order_of_their_names(
    group: Group, host: Host, master: str, hosts: int, meeting: dict[str, object]
) -> None:
    group.settings = replace(group.settings, launch_master=master, launch_hosts=hosts)
    group.record.note("placed", detail={"ranks": ["n0", "n1"], "waiting": []})
    group.step.take("n0", b"host\tn0\tn0\x1f10.0.0.1")
    group.step.take("n1", b"host\tn1\ta.x\x1f10.0.0.2")
    group.order_ranks()
    assert group.state.workers == ["n1", "n0"]
    assert group.meeting() == meeting


def test_nobody_elses_address_becomes_localhost(group: Group, host: Host) -> None:
    group.settings = replace(group.settings, launch_hosts=1)
    group.record.note("placed", detail={"ranks": ["n0", "n1"], "waiting": []})
    group.step.take("n0", b"host\tn0\tlocalhost.localdomain\x1f10.0.0.1")
    assert group.meeting()["hosts"] == ["10.0.0.1 n0"]


@pytest.mark.parametrize(
    ("host_and_address", "line"),
    [
        ("n1 n0 huggingface.co\x1f10.0.0.3", "10.0.0.3 n1"),
        ("n1\t#\x1f10.0.0.3", "10.0.0.3 n1"),
        ("n0.cluster\x1f10.0.0.3", "10.0.0.3 n1"),
        ("n1.cluster\x1f10.0.0.3 n0", ""),
        ("n1.cluster\x1f10.0.0.256", ""),
        ("n1.cluster\x1f10.0.0.3", "10.0.0.3 n1.cluster n1"),
    ],
)
def test_a_node_names_no_other_host(
    group: Group, host: Host, host_and_address: str, line: str
) -> None:
    group.settings = replace(group.settings, launch_master="address", launch_hosts=1)
    group.record.note("placed", detail={"ranks": ["n1", "n0"], "waiting": []})
    group.step.take("n1", f"host\tn1\t{host_and_address}".encode())
    master = line.partition(" ")[0] or "127.0.0.1"
    assert group.meeting() == {"master": master, "hosts": [line] if line else []}


def test_without_an_address_the_name_is_the_master(group: Group, host: Host) -> None:
    group.settings = replace(group.settings, launch_master="address", launch_hosts=1)
    group.record.note("placed", detail={"ranks": ["n0", "n1"], "waiting": []})
    group.step.take("n1", b"host\tn1\tz.x\x1f10.0.0.2")
    assert group.meeting() == {"master": "127.0.0.1", "hosts": ["10.0.0.2 z.x n1"]}


@pytest.mark.parametrize("image", ["", "sha256:1", "sha256:2"])
def test_nodes_that_come_later_need_the_image_of_the_job(group: Group, image: str) -> None:
    """Also while no other group is ready to compare with."""
    group.job.shared.take_image(image)
    for node in ("n0", "n1"):
        group.step.take(node, f"ready\t{node}\tsha256:1".encode())
    problem = group.comparison.of_ready(["n0", "n1"], replaceable=False)
    assert bool(problem) == (image == "sha256:2")
    assert group.job.shared.image == (image or "sha256:1")
    assert group.state.failed == {}, "without others to take their place, nodes are not failed"
