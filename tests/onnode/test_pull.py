"""Who pulls the image next, when the limits of the hold count, what of a pull is tried again, and what is told of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from until import LIMIT_S

from orchestrator.onnode.agent.node import Node
from orchestrator.onnode.agent.pull import Progress, pause_s, pull
from orchestrator.onnode.kernel.events import Event
from orchestrator.onnode.kernel.layout import Layout
from orchestrator.onnode.kernel.program import Program
from orchestrator.onnode.kernel.waiting import Failed, Waiting
from orchestrator.onnode.policy.place import GroupState, apply, lacking, next_to_pull

NODES = tuple(f"n{k}" for k in range(6))


def after(*events: tuple[str, str]) -> GroupState:
    """Six nodes that are held, after `events`: (word, node), each of its usual source."""
    made = GroupState(allocated=NODES, need=4, ranks=["n2", "n0", "n1", "n3"])
    apply(made, Event(1, "loop", "hold", "", '{"nodes": ["n0", "n1", "n2", "n3", "n4", "n5"]}'))
    for word, node in events:
        apply(
            made, Event(1, "loop" if word in ("pull", "fail", "silent") else "node", word, node, "")
        )
    return made


def test_nodes_with_a_rank_pull_first_and_so_many_as_the_site_allows() -> None:
    events = [("lacks", node) for node in ("n5", "n0", "n2")]
    assert lacking(after(*events)) == ["n2", "n0", "n5"]
    assert next_to_pull(after(*events), 1) == ["n2"]
    assert next_to_pull(after(*events), 2) == ["n2", "n0"]
    assert next_to_pull(after(*events, ("pull", "n2")), 1) == []
    assert next_to_pull(after(*events, ("pull", "n2")), 9) == ["n0", "n5"]
    assert next_to_pull(after(*events, ("pull", "n2"), ("pulled", "n2")), 1) == ["n0"]


@pytest.mark.parametrize("end", ["failed", "left", "fail", "silent"])
def test_a_node_that_is_out_makes_room_for_the_next(end: str) -> None:
    made = after(("lacks", "n0"), ("lacks", "n1"), ("pull", "n0"), (end, "n0"))
    assert lacking(made) == next_to_pull(made, 1) == ["n1"]


def test_a_new_hold_forgets_who_pulled() -> None:
    made = after(("lacks", "n0"), ("pull", "n0"))
    apply(made, Event(1, "loop", "hold", "", '{"nodes": ["n0"]}'))
    assert lacking(made) == [] and made.orders.pulling == set()


WORDS = st.sampled_from(["lacks", "pulled", "failed", "left", "silent"])


@given(st.lists(st.tuples(WORDS, st.sampled_from(NODES)), max_size=30), st.integers(1, 4))
def test_never_more_than_allowed_and_nobody_is_forgotten(
    words: list[tuple[str, str]], at_once: int
) -> None:
    made = after()
    for word, node in words:
        apply(made, Event(1, "loop" if word == "silent" else "node", word, node, ""))
        for one in next_to_pull(made, at_once):
            apply(made, Event(1, "loop", "pull", one, ""))
        assert next_to_pull(made, at_once) == []
    left = lacking(made)
    for node in left:
        apply(made, Event(1, "node", "pulled", node, ""))
        for one in next_to_pull(made, at_once):
            apply(made, Event(1, "loop", "pull", one, ""))
    assert lacking(made) == []


@pytest.mark.parametrize(
    "words",
    [
        "Error response from daemon: toomanyrequests: You have reached your pull rate limit.",
        "Error response from daemon: received unexpected HTTP status: 429 Too Many Requests",
        'Get "https://registry-1.docker.io/v2/": net/http: request canceled (Client.Timeout exceeded while awaiting headers)',
        "failed to copy: httpReadSeeker: failed open: unexpected EOF",
        "read tcp 10.0.0.1:40112->10.0.0.2:443: read: connection reset by peer",
        "net/http: TLS handshake timeout",
        "received unexpected HTTP status: 503 Service Unavailable",
        "dial tcp: lookup registry.example on 10.0.0.53:53: read udp: i/o timeout",
    ],
)
def test_what_passes_by_is_tried_again(words: str) -> None:
    assert [pause_s(words, tries, 3600) for tries in (1, 2, 3, 4, 9, 999)] == [
        5,
        10,
        20,
        40,
        300,
        300,
    ]
    assert pause_s(words, 3, 20) is None, "not when the time would be over"


@pytest.mark.parametrize(
    "words",
    [
        "Error response from daemon: manifest for rocm/training:7 not found: manifest unknown: manifest unknown",
        "pull access denied for rocm/none, repository does not exist or may require 'docker login': denied: requested access",
        "unauthorized: authentication required",
        "dial tcp: lookup no.such on 10.0.0.53:53: no such host",
        "failed to register layer: write /opt/rocm/lib: no space left on device",
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
        "invalid reference format",
        "without a word",
        "manifest for x@sha256:0429429aa not found",
    ],
)
def test_what_asking_again_does_not_mend_is_not(words: str) -> None:
    assert pause_s(words, 1, 3600) is None


def test_layers_are_counted_and_an_engine_without_them_is_quoted() -> None:
    told = Progress()
    assert told.text == ""
    for line in (
        "6.0: Pulling from rocm/training",
        "0123456789ab: Pulling fs layer",
        "ba9876543210: Already exists",
    ):
        told.take(line)
    assert told.text == "1 of 2 layers"
    told.take("0123456789ab: Download complete")
    told.take("0123456789ab: Pull complete")
    assert told.text == "2 of 2 layers"
    other = Progress()
    other.take("Copying blob sha256:01")
    other.take("")
    assert other.text == "Copying blob sha256:01"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # not awaited
def test_nothing_more_is_heard_of_a_pull_that_took_too_long(tmp_path: Path) -> None:
    """Its last lines, or those of an engine of root (sudo) that cannot be ended, come after its log is closed."""
    engine = tmp_path / "engine"
    engine.write_text('#!/bin/sh\n[ "$1" != pull ] || exec yes downloading\n[ "$1" = version ]\n')
    engine.chmod(0o755)
    about = {"engine": "docker", "engine_command": [str(engine)], "cont": "image:1", "built": ""}
    settings = SimpleNamespace(**about, proxy=[], preflight_check_s=LIMIT_S, pull_minutes=0.005)
    node = Node("n1", settings, Program({}), Layout(tmp_path / "set"), "7", *["/"] * 6)  # type: ignore[arg-type]
    waiting = Waiting()
    with pytest.raises(Failed, match="it takes too long .downloading."):
        pull(node, waiting)
    assert not waiting.wait(lambda: False, 0.1)
