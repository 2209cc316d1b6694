"""What happens between nodes when something is wrong: everybody ends, soon, and says why."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from until import LIMIT_S

CODE = Path(__file__).parents[2] / "workloads" / "builtin"

RANKS = {"BUILTIN_RANKS_PER_NODE": "2", "ORCH_RUN": "1", "ORCH_ATTEMPT": "1"}
ENDLESS = {"BUILTIN_EXCHANGE_TIMEOUT_S": "1000000", "BUILTIN_CONNECT_TIMEOUT_S": "1000000"}
"""A node that waits for a time-out hangs the test."""


@pytest.mark.parametrize(
    ("victim", "kind", "code"), [(2, "kill", -9), (1, "die", 9), (0, "kill", -9)]
)
def test_a_lost_node_ends_all_the_others(run: Callable, victim: int, kind: str, code: int) -> None:
    ended = run(4, BUILTIN_FAULT=f"{kind}:node={victim}:at=0.3", **RANKS, **ENDLESS)
    assert ended.codes == [code if node == victim else 3 for node in range(4)]
    for node in set(range(4)) - {victim}:
        assert (
            f"node {victim} (" in ended.errors[node]
            and "was lost at exchange" in ended.errors[node]
        )
    assert not ended.of("run_stop")


def test_a_node_lost_while_another_hangs_is_noticed(launcher) -> None:
    port = launcher.port()
    faults = {1: "hang:at=0.2", 2: "die:at=0.2", 0: "", 3: ""}
    nodes = [
        launcher.start(k, 4, port, BUILTIN_FAULT=faults[k], **RANKS, **ENDLESS) for k in range(4)
    ]
    assert [nodes[k].wait(LIMIT_S) for k in (2, 0, 3)] == [9, 3, 3]
    assert nodes[1].poll() is None


def test_a_node_that_greets_and_dies_before_the_others_have_come(launcher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as fake:  # takes down what a real node 1 says first
        node = launcher.start(1, 3, fake.getsockname()[1], **RANKS)
        with fake.accept()[0] as connection:
            greeting = connection.recv(1 << 16)
    assert node.wait(LIMIT_S) == 3
    port = launcher.port()
    root = launcher.start(0, 3, port, **RANKS)
    with launcher.connect(port) as connection:
        connection.sendall(greeting)
    assert root.wait(LIMIT_S) == 3
    assert "node 1 (" in root.stderr.read()


def test_a_busy_port_is_a_clear_error(launcher) -> None:
    with socket.socket() as owner:
        owner.bind(("0.0.0.0", 0))
        owner.listen()
        port = owner.getsockname()[1]
        ended = launcher.finish([launcher.start(0, 2, port, **RANKS)])
    assert ended.codes == [4]
    assert (
        f"cannot listen at MASTER_ADDR=127.0.0.1 MASTER_PORT={port}: Address already in use"
        in ended.errors[0]
    )


def test_nodes_that_do_not_come_are_named(launcher) -> None:
    port = launcher.port()
    comes = launcher.start(2, 4, port, **RANKS, **ENDLESS)  # first: it waits for node 0
    waits = launcher.start(0, 4, port, BUILTIN_CONNECT_TIMEOUT_S="10", **RANKS)
    ended = launcher.finish([waits, comes])
    assert ended.codes == [4, 3]
    assert "node 1, 3 did not connect within 10 s" in ended.errors[0]
    assert "node 1, 3 did not connect within 10 s" in ended.errors[1]


def test_without_node_0_the_others_give_up_in_time(launcher) -> None:
    port = launcher.port()
    ended = launcher.finish([launcher.start(1, 2, port, BUILTIN_CONNECT_TIMEOUT_S="0.3", **RANKS)])
    assert ended.codes == [4]
    assert (
        f"no connection to node 0 at MASTER_ADDR=127.0.0.1 MASTER_PORT={port} within 0.3 s"
        in ended.errors[0]
    )


def test_an_unknown_master_is_a_clear_error(launcher) -> None:
    variables = {"MASTER_ADDR": "no-such-host.invalid", "BUILTIN_CONNECT_TIMEOUT_S": "0.2", **RANKS}
    ended = launcher.finish([launcher.start(node, 2, 29501, **variables) for node in (0, 1)])
    assert ended.codes == [4, 4]
    assert all("MASTER_ADDR=no-such-host.invalid" in error for error in ended.errors)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"SEED": "8"}, "SEED is 8 on node 1 and 7 on node 0"),
        ({"BUILTIN_RANKS_PER_NODE": "3"}, "ranks per node is 3 on node 1 and 2 on node 0"),
        ({"ORCH_RUN": "2"}, "ORCH_RUN is 2 on node 1 and 1 on node 0"),
        ({"ORCH_ATTEMPT": "2"}, "ORCH_ATTEMPT is 2 on node 1 and 1 on node 0"),
        ({"BUILTIN_TARGET": "0.1"}, "target is 0.1 on node 1 and 0.045 on node 0"),
        ({"SLURM_NODEID": "2"}, "says that it is node 2, which is taken"),
    ],
)
def test_nodes_that_disagree_are_refused(
    launcher, tmp_path: Path, odd: dict[str, str], message: str
) -> None:
    code = shutil.copytree(CODE, tmp_path / "code")
    exchange = code / "training/exchange.py"
    text, limit = exchange.read_text(), "REFUSE_GRACE_S = 1.0"
    assert limit in text  # for nodes that come after the one that is refused
    exchange.write_text(text.replace(limit, "REFUSE_GRACE_S = 1e6"))
    port, same = launcher.port(), RANKS | ENDLESS
    variables = {0: same, 2: same, 1: same | odd}
    ended = launcher.finish(
        [launcher.start(node, 3, port, code=code, **own) for node, own in variables.items()]
    )
    assert ended.codes == [5, 5, 5]
    assert all(message in error for error in ended.errors)


def test_strangers_at_the_port_do_not_disturb(launcher) -> None:
    port = launcher.port()
    first = launcher.start(0, 2, port, **RANKS)
    with launcher.connect(port) as stranger:
        stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    launcher.connect(port).close()
    with launcher.connect(port):  # stays and says nothing
        ended = launcher.finish([first, launcher.start(1, 2, port, **RANKS)])
    assert (ended.codes, ended.status) == ([0, 0], "success")
    assert ended.errors[0].count("ignored a connection") == 2


def test_a_silent_node_is_given_up(run: Callable) -> None:
    ended = run(
        2,
        per_node={0: {"BUILTIN_EXCHANGE_TIMEOUT_S": "0.3"}},
        BUILTIN_FAULT="slow:node=1:ms=1500:at=0.1",
        **RANKS,
    )
    assert ended.codes == [3, 3]
    assert "node 1" in ended.errors[0] and "silent for 0.3 s" in ended.errors[0]


def test_words_that_came_with_the_last_sum_are_heard() -> None:
    """A root that loses a node while it answers says so right behind the answer, and closes."""
    script = """
import _socket, sys
sys.path.insert(0, sys.argv[1])
from training.wire import ABORT, SUM, Peer, frame
ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
Peer.__init__ = lambda self, socket: vars(self).update(socket=socket, address="root", node=0, buffer=b"")
theirs.sendall(frame(SUM, 7, b"sum") + frame(ABORT, 7, b"node 2 was lost"))
theirs.close()
peer = Peer(ours)
assert peer.receive() == (SUM, 7, b"sum")
assert peer.receive() == (ABORT, 7, b"node 2 was lost")
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(CODE)], capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
