"""The measurement itself over TCP: nodes with limited links, and nodes that end, hang or lie in the middle of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deep_networks import networks, require_namespaces
from deep_parts import TABLE, Bundle
from processes import processes_of, see_them_go
from until import LIMIT_S, until

EIGHT = [f"n{number}" for number in range(1, 9)]


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    see_them_go(tmp_path)
    assert not list(tmp_path.glob("orch-*")), "the nodes remove their folders"


@pytest.mark.parametrize(
    "slow", [[], pytest.param(["n3", "n7"], marks=pytest.mark.long)], ids=["none", "opposite"]
)
def test_slow_links_are_found(bundle: Bundle, slow: list[str]) -> None:
    require_namespaces()
    (bundle.set_dir / "environment.sh").write_text('declare -x NCCL_SOCKET_IFNAME="eth"\n')
    with networks(EIGHT, dict.fromkeys(slow, "25mbit"), "200mbit") as prefix:
        found = bundle.step(
            *EIGHT,
            prefix=lambda node: ["ip", "netns", "exec", prefix + node],
            ORCH_DEEP_PASS_S="0.1",
        )

    assert sorted(found.slow) == slow
    [whole] = [line for line in found.table if line["round"] == "all"]
    limit = 0.0031 if slow else 0.025
    assert 0 < float(whole["busbw_gbps"]) < 1.35 * limit, "never faster than the link"
    assert {line["way"] for line in found.table} == {"tcp"}
    assert all(line["wrong"] == "0" for line in found.table)
    if slow:
        [rest] = [line for line in found.table if line["round"] == "rest"]
        assert set(rest["nodes"].split(",")) == set(EIGHT) - set(slow)
        assert "slow: pairs with it reach 0.00" in found.rows[slow[0]][1]


def test_the_order_of_the_nodes_is_the_order_of_the_ranks(bundle: Bundle) -> None:
    found = bundle.step("b", "c", "a")

    assert [line["nodes"] for line in found.table if line["round"] == "all"] == ["b,c,a"]
    assert list(found.rows) == ["b", "c", "a"]
    assert found.verdict.data is not None
    assert found.verdict.data["way"] == "tcp"
    assert found.verdict.data["busbw_mbps"] > 0
    assert found.verdict.ms > 0


ENTRY = "measure/__main__.py", 'if __name__ == "__main__":\n'
# Each replaces the measuring process on one node; the others keep the real one.
DEAD = (*ENTRY, 'print("it broke", file=sys.stderr)\nsys.exit(3)\n' + ENTRY[1])
SILENT = (*ENTRY, "__import__('time').sleep(10000)\n" + ENTRY[1])
DEAF = (
    *ENTRY,
    'print(\'["deep-ready", 0, 0, "127.0.0.1", 9, 9, ""]\', flush=True)\nsys.exit(sys.stdin.read())\n'
    + ENTRY[1],
)
LIAR = ("measure/ring.py", "return 1 + 7919", "return 2 + 7919")
BABBLER = (
    *ENTRY,
    "print('Welcome\\n[1, 2]\\n' + '[' * 10**5 + '\\n[\"deep\"]', flush=True)\n" + ENTRY[1],
)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        pytest.param(DEAD, "the measurement ended (status 3): it broke", marks=pytest.mark.long),
        (DEAF, "no answer to a measurement within 6 s"),
        pytest.param(LIAR, "no all-reduce with it succeeds: ", marks=pytest.mark.long),
    ],
    ids=["dead", "deaf", "liar"],
)
def test_a_bad_node_is_named_and_the_others_are_measured(
    bundle: Bundle, program: tuple[str, str, str], text: str
) -> None:
    require_namespaces()
    bundle.spoil("n2", *program)

    # Links that are the bottleneck: without them the speed is that of a busy processor, and any node can be the slow one.
    (bundle.set_dir / "environment.sh").write_text('declare -x NCCL_SOCKET_IFNAME="eth"\n')
    with networks(EIGHT[:4], {}, "200mbit") as prefix:
        found = bundle.step(
            *EIGHT[:4],
            prefix=lambda node: ["ip", "netns", "exec", prefix + node],
            ORCH_DEEP_PASS_S="0.1",
            ORCH_DEEP_LIMIT_S="5",
            ORCH_DEEP_GRACE_S="1",
        )

    assert found.slow == ["n2"], found
    assert found.rows["n2"][0] == "fail"
    assert found.rows["n2"][1].startswith(text)
    assert {row[0] for node, row in found.rows.items() if node != "n2"} == {"pass"}
    assert "over 3 nodes" in found.summary


def test_an_image_may_print_what_it_likes(bundle: Bundle) -> None:
    bundle.spoil("n2", *BABBLER)

    assert bundle.step("n1", "n2").verdicts() == {"n1": "pass", "n2": "pass"}


def test_without_python_nothing_is_measured_and_nobody_blamed(
    bundle: Bundle, tmp_path: Path
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    bash = shutil.which("bash")
    assert bash
    (programs / "bash").symlink_to(bash)

    outcome = bundle.step("n1", "n2", PATH=str(programs))

    assert set(outcome.verdicts().values()) == {"skip"}
    assert "no Python 3.7 or newer" in outcome.rows["n1"][1]
    assert outcome.verdict.data is None


def test_nothing_survives_a_killed_loop(bundle: Bundle, tmp_path: Path) -> None:
    """The loop is killed in the middle of a measurement: its nodes let go by themselves."""
    loop = subprocess.Popen(
        [sys.executable, "-c", LOOP, tmp_path],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
    )
    table = tmp_path / "loop/set" / TABLE
    until(lambda: table.exists() and "pairs1" in table.read_text())
    assert loop.poll() is None
    loop.send_signal(signal.SIGKILL)
    loop.wait()

    see_them_go(tmp_path)
    assert not list((tmp_path / "loop").glob("orch-*"))


LOOP = """
import sys
from pathlib import Path
from deep_parts import Bundle
folder = Path(sys.argv[1]) / "loop"
folder.mkdir()
Bundle(folder).step("n1", "n2", "n3", "n4")
"""


def test_a_silent_measurement_ends_with_the_input(bundle: Bundle) -> None:
    bundle.spoil("n1", *SILENT)
    step = bundle.start(["n1"])
    try:
        until(lambda: processes_of(bundle.folder / f"orch-{os.getuid()}-test-n1-deep/measure"))
        step.close()
        step.wait(LIMIT_S)
        assert not step.alive
    finally:
        step.kill()


def test_a_signal_ends_a_node(bundle: Bundle, tmp_path: Path) -> None:
    step = bundle.start(["n1"])
    try:
        step.wait(LIMIT_S)
        assert [word for word, _, _ in step.messages] == ["deep-ready"]
        step.agents["n1"].terminate()
        step.wait(LIMIT_S)
        assert not step.alive
        assert [word for word, _, _ in step.messages] == ["deep-ready"], "nobody has to be told"
    finally:
        step.kill()
