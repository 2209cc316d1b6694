"""The way with torch and rccl-tests, through every process of ours; torch and all_reduce_perf are stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest
from deep_parts import Bundle, Outcome
from processes import see_them_go

HERE = Path(__file__).parent
FOUR = ("n1", "n2", "n3", "n4")


def measure(
    bundle: Bundle, *nodes: str, gpus: int = 2, tests: str = "", limit: int = 20, **stand_in: str
) -> Outcome:
    bundle.give_torch(gpus, **stand_in)
    found = bundle.step(
        *nodes,
        ORCH_DEEP_RCCL_TESTS=tests,
        ORCH_DEEP_LIMIT_S=str(limit),
        ORCH_DEEP_BYTES=str(256 << 20),
    )
    see_them_go(bundle.folder)
    return found


@pytest.fixture
def perf(tmp_path: Path) -> str:
    """An all_reduce_perf that prints a table of MI300X."""
    program = tmp_path / "all_reduce_perf"
    program.write_text(f"#!/bin/sh\nexec cat {HERE}/outputs/rccl_tests_mi300x_2025.txt\n")
    program.chmod(0o755)
    return str(program)


def test_nodes_with_gpus(bundle: Bundle) -> None:
    bundle.settings(GPUS_PER_NODE="2", FABRIC_GBPS="40", FABRIC_DEVICES="1")

    found = measure(bundle, *FOUR)

    assert found.slow == []
    assert set(found.verdicts().values()) == {"pass"}
    assert {line["way"] for line in found.table} == {"torch"}
    assert {line["bytes"] for line in found.table} == {"268435456"}
    assert {line["wrong"] for line in found.table} == {"0"}
    assert found.table[0]["round"] == "alone1"
    assert "over 4 nodes (256 MiB, torch)" in found.summary
    assert found.verdict.data is not None
    assert found.verdict.data["reference_mbps"] == 5_000


@pytest.mark.long
def test_a_slow_node_with_gpus(bundle: Bundle) -> None:
    bundle.settings(GPUS_PER_NODE="1")

    found = measure(bundle, *FOUR, gpus=1, rates="n3=2500")

    assert found.slow == ["n3"]
    assert "over 3 nodes" in found.summary


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "reason"), [("lies", "wrong values in the sum"), ("crashes", "exit status 7")]
)
def test_a_bad_node_with_gpus(bundle: Bundle, fault: str, reason: str) -> None:
    bundle.settings(GPUS_PER_NODE="2")

    found = measure(bundle, *FOUR, **{fault: "n2=1"})

    assert found.slow == ["n2"]
    assert reason in found.rows["n2"][1]
    assert {row[0] for node, row in found.rows.items() if node != "n2"} == {"pass"}


@pytest.mark.long
def test_a_hang_ends_at_the_limit(bundle: Bundle) -> None:
    bundle.settings(GPUS_PER_NODE="1")

    found = measure(
        bundle, *FOUR, gpus=1, limit=4, hangs="n4=1", rates="n1=10000 n2=10000 n3=10000"
    )

    assert found.slow == ["n4"]
    assert "no answer within 2 s" in found.rows["n4"][1]


def test_rccl_tests_of_one_node(bundle: Bundle, perf: str) -> None:
    found = measure(bundle, "n1", gpus=8, tests=perf)

    assert found.summary == "bus bandwidth 293.1 GB/s over 1 node (128 MiB, rccl-tests)"
    assert found.verdicts() == {"n1": "pass"}
    [line] = found.table
    assert (line["way"], line["busbw_gbps"], line["seconds"]) == (
        "rccl-tests",
        "293.070",
        "0.000801",
    )


def test_rccl_tests_that_fail(bundle: Bundle, tmp_path: Path) -> None:
    program = tmp_path / "all_reduce_perf"
    program.write_text("#!/bin/sh\necho 'n1: Test NCCL failure common.cu:1030'\nexit 3\n")
    program.chmod(0o755)

    found = measure(bundle, "n1", gpus=8, tests=str(program))

    assert found.slow == ["n1"]
    assert (
        found.rows["n1"][1]
        == "its own GPUs: n1: all_reduce_perf ended with status 3: n1: Test NCCL failure common.cu:1030"
    )


def test_without_gpus_nothing_is_measured_and_nobody_blamed(bundle: Bundle) -> None:
    found = measure(bundle, "n1", "n2", gpus=0)

    assert found.table == [] and found.slow == []
    assert set(found.rows.values()) == {("skip", "n1: torch sees no GPU", "")}
