"""The table of all_reduce_perf, in the layouts of several years (outputs/README.md says where they are from)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from orchestrator.onnode.measure import rccl as rccl_tests

OUTPUTS = Path(__file__).parent / "outputs"


def text(name: str) -> str:
    return (OUTPUTS / f"{name}.txt").read_text()


def parse(output: str) -> dict[str, Any]:
    return rccl_tests.parse(output)


def result(output: str, status: int = 0) -> dict[str, Any]:
    found = rccl_tests.result(output, status)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("name", "rows", "size", "out", "into", "seconds", "bounds"),
    [
        ("rccl_tests_mi300x_2025", 4, 134217728, 293.07, 289.60, 801.4e-6, 0),
        ("rccl_tests_mi300x_hpe", 1, 8388608, 161.14, 154.63, 91.10e-6, None),
        ("rccl_tests_mi250x_2023", 3, 1024, 0.06, 0.11, 31.25e-6, None),
        ("nccl_tests_v100_2019", 3, 16777216, 0.95, 0.98, 17.616e-3, None),
        ("nccl_tests_rtx5090_2025", 1, 33554432, 0.00, 0.00, 19.56e-6, 0),
        ("nccl_tests_mpirun_2024", 2, 32, 0.00, 0.00, None, None),
        ("nccl_tests_gb10_2026", 2, 65536, 0.96, 1.01, 67.93e-6, None),
    ],
)
def test_layouts(
    name: str,
    rows: int,
    size: int,
    out: float,
    into: float,
    seconds: float | None,
    bounds: int | None,
) -> None:
    found = parse(text(name))

    assert len(found["rows"]) == rows
    last = found["rows"][-1]
    assert last["bytes"] == size
    assert (last["out"]["busbw"], last["in"]["busbw"]) == (out, into)
    # algbw is printed with two decimals, which is little for small sizes.
    if seconds is not None:
        assert last["out"]["seconds"] == pytest.approx(seconds, rel=0.15)
    else:
        assert last["out"]["seconds"] is None
    assert found["out_of_bounds"] == bounds


def test_what_is_counted_as_wrong() -> None:
    assert parse(text("rccl_tests_mi300x_2025"))["rows"][0]["out"]["wrong"] == 0
    assert parse(text("rccl_tests_mi250x_2023"))["rows"][0]["out"]["wrong"] is None, (
        "a deviation is no count"
    )
    assert parse(text("nccl_tests_rtx5090_2025"))["rows"][0]["in"]["wrong"] is None, (
        "N/A is no count"
    )


def test_rows_without_a_header_are_not_guessed() -> None:
    found = parse(text("rccl_tests_mi355x_2025"))

    assert found == {"rows": [], "out_of_bounds": 0}
    header = text("rccl_tests_mi300x_hpe").splitlines()[-3]
    assert (
        parse(header + "\n" + text("rccl_tests_mi355x_2025"))["rows"][-1]["in"]["busbw"] == 361.17
    )


def test_the_largest_size_and_its_better_half_count() -> None:
    assert result(text("rccl_tests_mi300x_2025")) == {
        "bytes": 134217728,
        "microseconds": 801,
        "mbps": 293070,
        "wrong": 0,
    }
    assert result(text("nccl_tests_gb10_2026"))["mbps"] == 1010


def test_wrong_sums_are_told() -> None:
    # As a run with a defective link prints it: the rows' counts, and their sum at the end.
    output = (
        text("rccl_tests_mi300x_2025")
        .replace("293.07      0", "293.07   4096")
        .replace(": 0 OK", ": 1 FAILED")
    )

    assert result(output, status=1)["wrong"] == 4096


def test_counts_above_a_million_are_printed_short() -> None:
    assert (
        result(text("rccl_tests_mi300x_2025").replace("293.07      0", "293.07  3e+07"))["wrong"]
        == 30_000_000
    )


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "all_reduce_perf ended with status 1: it printed nothing"),
        (
            "# nThread 1\nnode1: Test NCCL failure common.cu:1030 'unhandled system error'\n",
            "all_reduce_perf ended with status 1: node1: Test NCCL failure common.cu:1030 'unhandled system error'",
        ),
    ],
)
def test_no_table(output: str, reason: str) -> None:
    assert result(output, status=1) == {"error": reason}


def test_a_bad_end_is_an_error() -> None:
    assert result(text("rccl_tests_mi300x_hpe"), status=139) == {
        "error": "all_reduce_perf ended with status 139"
    }


def test_it_is_looked_for_where_images_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "all_reduce_perf"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rccl_tests.argv(8, 1 << 29)[:7] == [
        str(program),
        "-b",
        "536870912",
        "-e",
        "536870912",
        "-g",
        "8",
    ]

    monkeypatch.setenv("ORCH_DEEP_RCCL_TESTS", "/elsewhere/all_reduce_perf")
    assert rccl_tests.find() == "/elsewhere/all_reduce_perf"


def test_the_files_of_the_container_are_old_enough_python() -> None:
    # Images of others have Python 3.8 and older; grammar of 3.7 is what ast can check.
    files = sorted(Path(rccl_tests.__file__).parent.glob("*.py"))

    assert files
    for file in files:
        ast.parse(file.read_text(), str(file), feature_version=(3, 7))
