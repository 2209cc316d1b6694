"""The measuring processes: nodes that end or hang in the middle of it, and what is left of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deep_parts import TABLE, Bundle
from processes import processes_of, see_them_go
from until import LIMIT_S, until

FOUR = ["n1", "n2", "n3", "n4"]
SMALL = str(64 << 20)
"""Bytes, on which the stand-in takes no time worth mentioning."""


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    see_them_go(tmp_path)
    assert not list(tmp_path.glob("orch-*")), "the nodes remove their folders"


@pytest.fixture(autouse=True)
def _with_torch(bundle: Bundle) -> None:
    bundle.settings(GPUS_PER_NODE="1")
    bundle.give_torch()


def test_the_order_of_the_nodes_is_the_order_of_the_ranks(bundle: Bundle) -> None:
    found = bundle.step("b", "c", "a", ORCH_DEEP_BYTES=SMALL)

    assert [line["nodes"] for line in found.table if line["round"] == "all"] == ["b,c,a"]
    assert list(found.rows) == ["b", "c", "a"]
    assert found.verdict.data is not None
    assert found.verdict.data["way"] == "torch"
    assert found.verdict.data["busbw_mbps"] > 0
    assert found.verdict.ms > 0


ENTRY = "measure/__main__.py", 'if __name__ == "__main__":\n'
# Each replaces the measuring process on one node; the others keep the real one.
DEAD = (*ENTRY, 'print("it broke", file=sys.stderr)\nsys.exit(3)\n' + ENTRY[1])
SILENT = (*ENTRY, "__import__('time').sleep(10000)\n" + ENTRY[1])
DEAF = (
    *ENTRY,
    'print(\'["deep-ready", 1, 0, "127.0.0.1", 9, ""]\', flush=True)\nsys.exit(sys.stdin.read())\n'
    + ENTRY[1],
)
BABBLER = (
    *ENTRY,
    "print('Welcome\\n[1, 2]\\n' + '[' * 10**5 + '\\n[\"deep\"]', flush=True)\n" + ENTRY[1],
)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        pytest.param(DEAD, "the measurement ended (status 3): it broke", marks=pytest.mark.long),
        (DEAF, "no answer to a measurement within 18 s"),
    ],
    ids=["dead", "deaf"],
)
def test_a_bad_node_is_named_and_the_others_are_measured(
    bundle: Bundle, program: tuple[str, str, str], text: str
) -> None:
    bundle.spoil("n2", *program)

    found = bundle.step(*FOUR, ORCH_DEEP_BYTES=SMALL, ORCH_DEEP_LIMIT_S="10", ORCH_DEEP_GRACE_S="8")

    assert found.slow == ["n2"], found
    assert found.rows["n2"][0] == "fail"
    assert found.rows["n2"][1].startswith(text)
    assert {row[0] for node, row in found.rows.items() if node != "n2"} == {"pass"}
    assert "over 3 nodes" in found.summary


def test_an_image_may_print_what_it_likes(bundle: Bundle) -> None:
    bundle.spoil("n2", *BABBLER)

    assert bundle.step("n1", "n2", ORCH_DEEP_BYTES=SMALL).verdicts() == {"n1": "pass", "n2": "pass"}


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
bundle = Bundle(folder)
bundle.settings(GPUS_PER_NODE="1")
bundle.give_torch()
bundle.step("n1", "n2", "n3", "n4", ORCH_DEEP_BYTES=str(4 << 30))
"""


def test_a_silent_measurement_ends_with_the_input(bundle: Bundle) -> None:
    bundle.spoil("n1", *SILENT)
    step = bundle.start(["n1"])
    try:
        until(lambda: processes_of(bundle.folder / f"orch-{os.getuid()}-test-n1-deep/measure"))
        step.end_input()
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
