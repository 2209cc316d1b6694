"""The measurement itself over TCP: nodes with limited links, and nodes that end, hang or lie in the middle of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deep_networks import HOOK, networks, processes_of, require_namespaces
from deep_parts import Bundle

EIGHT = [f"n{number}" for number in range(1, 9)]


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    deadline = time.monotonic() + 5
    while (left := processes_of(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left
    assert not list(tmp_path.glob("orch-*")), "the nodes remove their folders"


@pytest.mark.parametrize(
    "slow", [["n6"], ["n1", "n2"], ["n3", "n7"], []], ids=["one", "neighbours", "opposite", "none"]
)
def test_slow_links_are_found(bundle: Bundle, slow: list[str]) -> None:
    require_namespaces()
    with networks(EIGHT, dict.fromkeys(slow, "40mbit"), "400mbit") as prefix:
        found = bundle.step(*EIGHT, hook=HOOK, PREFIX=prefix)

    assert sorted(found.slow) == slow
    assert found.status == (1 if slow else 0)
    [whole] = [line for line in found.table if line["round"] == "all"]
    assert float(whole["busbw_gbps"]) == pytest.approx(0.005 if slow else 0.05, rel=0.35)
    assert {line["way"] for line in found.table} == {"tcp"}
    assert all(line["wrong"] == "0" for line in found.table)
    if slow:
        [rest] = [line for line in found.table if line["round"] == "rest"]
        assert float(rest["busbw_gbps"]) > 4 * float(whole["busbw_gbps"])
        assert "slow: pairs with it reach 0.00" in found.rows[slow[0]][2]


def test_the_order_of_the_nodes_is_the_order_of_the_ranks(bundle: Bundle) -> None:
    found = bundle.step("b", "c", "a")

    assert [line["nodes"] for line in found.table if line["round"] == "all"] == ["b,c,a"]
    assert list(found.rows) == ["b", "c", "a"]
    assert found.json is not None
    assert found.json["way"] == "tcp"
    assert found.json["busbw_mbps"] > 0


# Each replaces the agent on one node; the others keep the real one.
DEAD = "echo it broke >&2; exit 3"
SILENT = "exec sleep 100"
DEAF = r"""printf 'deep-ready\t0\t%s\t0\x1f0\x1f127.0.0.1\x1f9\x1f9\x1f\n' n2; exec cat >/dev/null"""
LIAR = """sed -i 's/return 1 + 7919/return 2 + 7919/' "$0/all_reduce_tcp.py"; . "$0/environment.sh"; exec python3 "$0/all_reduce.py" """


def spoil(bundle: Bundle, program: str) -> None:
    """Let n2 run the program instead of the start of all_reduce.py."""
    script = bundle.path / "lib/deep_node.sh"
    start = "deep_on_node() {\n"
    assert start in script.read_text()
    script.write_text(script.read_text().replace(start, f"{start}[[ $node != n2 ]] || DEEP_START={_quoted(program)}\n"))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@pytest.mark.parametrize(
    ("program", "text"),
    [
        (DEAD, "the measurement ended (status 3): it broke"),
        (SILENT, "no word from its measuring container within 6 s"),
        (DEAF, "no answer to a measurement within 18 s"),
        (LIAR, "no all-reduce with it succeeds: "),
    ],
    ids=["dead", "silent", "deaf", "liar"],
)
def test_a_bad_node_is_named_and_the_others_are_measured(bundle: Bundle, program: str, text: str) -> None:
    bundle.settings(CONTAINER_START_S="3")
    spoil(bundle, program)

    found = bundle.step("n1", "n2", "n3", "n4", ORCH_DEEP_START_S="3", ORCH_DEEP_LIMIT_S="3")

    assert found.slow == ["n2"]
    assert found.rows["n2"][0] == "fail"
    assert found.rows["n2"][2].startswith(text)
    assert {row[0] for node, row in found.rows.items() if node != "n2"} == {"pass"}
    assert "over 3 nodes" in found.summary


def test_without_python_nothing_is_measured_and_nobody_blamed(bundle: Bundle, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in (
        "bash",
        "cp",
        "mkdir",
        "rm",
        "mkfifo",
        "mktemp",
        "tail",
        "tr",
        "env",
        "setsid",
        "cat",
        "date",
        "mv",
        "sed",
    ):
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)

    outcome = bundle.step("n1", "n2", PATH=str(programs))

    assert outcome.status == 2
    assert set(outcome.verdicts().values()) == {"skip"}
    assert "no Python 3.7 or newer" in outcome.rows["n1"][2]


def test_nothing_survives_a_killed_loop(bundle: Bundle, tmp_path: Path) -> None:
    """The loop is killed in the middle of a measurement: its nodes let go by themselves."""
    from deep_parts import DRIVER

    loop = subprocess.Popen(
        ["bash", "-c", DRIVER, "driver", bundle.path, bundle.set_dir, "n1", "n2", "n3", "n4"],
        env={**os.environ, "ORCH_CHANNELS": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    table = bundle.set_dir / "preflight/deep-test.tsv"
    deadline = time.monotonic() + 30
    while not (table.exists() and "pairs1" in table.read_text()) and time.monotonic() < deadline:
        time.sleep(0.02)
    loop.send_signal(signal.SIGKILL)
    loop.wait()

    while processes_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes_of(tmp_path)
