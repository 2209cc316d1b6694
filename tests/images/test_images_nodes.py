"""Node names, and running one command on many nodes: here, over a real SSH, through a real srun."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ports import free_port
from until import LIMIT_S, bounded

from orchestrator.errors import UsageError
from orchestrator.nodes.fanout import run_on_nodes
from orchestrator.nodes.names import NamedNode, expand, parse_nodes
from orchestrator.nodes.ssh import Ssh
from orchestrator.nodes.transport import NodeCommand, ThisHost

# ---- a host without an SSH server ----


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (1, "connection refused: no SSH server listens on that port"),
        (2, "connection refused, or no route to this host"),
    ],
)
def test_a_refused_port_is_named(
    addresses: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a name that the resolver gives the same address twice."""
    port = free_port()
    known = socket.getaddrinfo("127.0.0.1", port, socket.AF_INET, socket.SOCK_STREAM)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: known * addresses)
    (tmp_path / "config").write_text("")
    node = NamedNode("n1", f"ssh://root@127.0.0.1:{port}")
    answer = Ssh(str(tmp_path / "config")).run(node, NodeCommand(["true"]), Event())
    assert (answer.returncode, answer.problem) == (-1, f"SSH to 127.0.0.1:{port}: {reason}")


# ---- names ----


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b", ["a", "b"]),
        ("node[1-3]", ["node1", "node2", "node3"]),
        ("n[08-10,12]x", ["n08x", "n09x", "n10x", "n12x"]),
        ("r[1-2]n[1-2],b", ["r1n1", "r1n2", "r2n1", "r2n2", "b"]),
        ("", []),
    ],
)
def test_names_are_expanded_as_slurm_writes_them(text: str, names: list[str]) -> None:
    assert expand(text) == names


def test_a_node_may_have_an_address() -> None:
    assert parse_nodes("n1=unix:///run/a.sock,n[2-3],n4=ssh://me@host:2222") == [
        NamedNode("n1", "unix:///run/a.sock"),
        NamedNode("n2"),
        NamedNode("n3"),
        NamedNode("n4", "ssh://me@host:2222"),
    ]


@pytest.mark.parametrize(
    "text",
    ["-x", "n[3-1]", "n[a]", "n[1-999999]", "n1=http://x", "n1,n1", "", "a;b", "n[1", "a b/c"],
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_nodes(text)


@given(st.text(max_size=40))
def test_no_text_makes_a_name_that_is_an_option_or_shell_syntax(text: str) -> None:
    try:
        names = [node.name for node in parse_nodes(text)]
    except UsageError:
        return
    assert all(name[0].isalnum() and not set(name) & set(" ;|&$`'\"/\\\n") for name in names)


# ---- fan-out ----


def test_answers_carry_code_and_both_outputs() -> None:
    script = ["sh", "-c", "cat; echo no >&2; exit 3"]
    stdin = b"\x00\xffin"
    answers = {
        answer.node: answer
        for answer in run_on_nodes(["a", "b"], script, transport=ThisHost(), stdin=stdin)
    }
    assert set(answers) == {"a", "b"}
    answer = answers["a"]
    assert (answer.returncode, answer.stdout, answer.message) == (3, stdin, "no")
    assert answer.answered and not answer.ok


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's own answer counts, however late."""
    monkeypatch.setattr("orchestrator.nodes.transport.GRACE_S", LIMIT_S)


@pytest.mark.usefixtures("long_grace")
def test_a_command_that_does_not_end_is_ended_and_named() -> None:
    (answer,) = run_on_nodes(["a"], ["sleep", "10000"], transport=ThisHost(), timeout_s=0.3)
    assert answer.problem == "the command did not end within 0.3 s"


def test_no_more_than_limit_at_a_time(tmp_path: Path) -> None:
    # Each command counts who is there while it holds a place; the lock makes the count exact.
    script = f"""import fcntl, os, time
def change(by):
    with open({str(tmp_path / "n")!r}, 'a+') as f:
        fcntl.flock(f, 2); f.seek(0); n = int(f.read() or 0) + by
        f.truncate(0); f.write(str(n)); return n
print(change(1)); time.sleep(0.05); change(-1)"""
    nodes = [f"n{k}" for k in range(9)]
    argv = [sys.executable, "-c", script]
    answers = run_on_nodes(nodes, argv, transport=ThisHost(), limit=3, timeout_s=LIMIT_S)
    counts = [int(answer.text) for answer in answers]
    assert len(counts) == 9 and max(counts) <= 3


def test_who_stops_reading_ends_the_rest(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/first && exit; sleep 10000"
    answers = run_on_nodes(["quick", "slow"], ["sh", "-c", script], transport=ThisHost())
    assert next(answers).returncode == 0
    with bounded():
        answers.close()  # type: ignore[attr-defined]


@pytest.mark.lab
def test_ssh_carries_every_word_much_in_both_directions_and_the_exit_code(
    start_ssh: Callable[..., object],
) -> None:
    hosts = start_ssh({"h1": "", "h2": ""})
    odd = ["$HOME", "a b", "'; touch /x; '", "*", "\n", ""]
    much = bytes(range(256)) * 20_000  # 5 MB: more than any window or pipe holds
    script = ["sh", "-c", 'tee /dev/stderr; printf "<%s>" "$@"; exit 7', "-", *odd]
    ssh = Ssh(str(hosts.config))
    answers = list(run_on_nodes(hosts.names, script, stdin=much, transport=ssh))
    assert sorted(answer.node for answer in answers) == ["h1", "h2"]
    printed = "".join(f"<{word}>" for word in odd).encode()
    for answer in answers:
        assert (answer.returncode, answer.problem) == (7, "")
        for text, wanted in ((answer.stdout, much + printed), (answer.stderr, much)):
            # Compared here: pytest needs minutes to show how two such texts differ.
            if text != wanted:
                pytest.fail(f"{len(wanted)} bytes came as {len(text)}: {text[:300]!r}")


@pytest.mark.lab
@pytest.mark.usefixtures("long_grace")
def test_ssh_nodes_that_hang_are_away_or_have_another_key_do_not_stop_the_others(
    start_ssh: Callable[..., object],
) -> None:
    hosts = start_ssh({"h1": "", "h2": "", "h3": "", "h4": "HANG=yes"})
    assert "StrictHostKeyChecking no" in hosts.config.read_text()
    first, second, third, fourth = hosts.known_hosts.read_text().splitlines()
    other_key = third.split(" ", 1)[1]
    # h1 changed, h2 is unknown.
    hosts.known_hosts.write_text(f"{first.split()[0]} {other_key}\n{third}\n{fourth}\n")
    before = hosts.known_hosts.read_bytes()
    nodes = [*hosts.names, NamedNode("away", "ssh://root@127.0.0.9:9")]
    script = ["sh", "-c", '[ -z "$HANG" ] || sleep 100; echo here']
    ssh = Ssh(str(hosts.config))
    work = run_on_nodes(nodes, script, transport=ssh, timeout_s=LIMIT_S)
    answers = {answer.node: answer for answer in islice(work, 4)}
    work.close()  # type: ignore[attr-defined]
    assert answers.keys() == {"h1", "h2", "h3", "away"}
    [hung] = run_on_nodes([hosts.names[3]], script, transport=ssh, timeout_s=3)
    assert "differs from known_hosts" in answers["h1"].problem
    assert "is not in known_hosts" in answers["h2"].problem
    assert answers["h3"].text == "here\n", answers["h3"].problem
    assert "did not end within 3 s" in hung.problem
    assert "127.0.0.9:9" in answers["away"].problem
    assert hosts.known_hosts.read_bytes() == before
    assert second.split()[0] not in hosts.known_hosts.read_text()


@pytest.mark.lab
def test_srun_reaches_the_nodes_of_the_allocation(lab: object) -> None:
    script = (
        "from orchestrator.nodes.fanout import *\n"
        "import os\nfrom orchestrator.nodes.names import expand\n"
        "nodes = [*expand(os.environ['SLURM_JOB_NODELIST']), 'nowhere']\n"
        "argv = ['sh', '-c', 'cat; echo $SLURMD_NODENAME; exit 5']\n"
        "srun = choose_transport()\n"
        "for answer in run_on_nodes(nodes, argv, transport=srun, stdin=b'in ', timeout_s=300):\n"
        "    text = answer.text.strip()\n"
        "    print(answer.node, answer.returncode, answer.answered, text, sep='|')\n"
        "import orchestrator.nodes.transport\n"
        "orchestrator.nodes.transport.GRACE_S = 200\n"
        "answer, = run_on_nodes(nodes[:1], ['sleep', '100'], transport=srun, timeout_s=1)\n"
        "print(answer.problem)\n"
    )
    done = lab.run("salloc", "--nodes=2", "--ntasks=2", sys.executable, "-c", script, timeout=300)
    lines = [line.split("|") for line in done.stdout.splitlines() if "|5|" in line]
    assert len(lines) == 2
    assert all(text == f"in {node}" for node, _, _, text in lines)
    assert "nowhere|-1|False|" in done.stdout
    assert "the command did not end within 1 s" in done.stdout
