"""torch's error files: read first, bounded, and never in the place of a deeper cause."""

from __future__ import annotations

import json
from pathlib import Path

import failures
import pytest

from orchestrator.evidence.elastic import first_error

LOST = "[rank1]: RuntimeError: Connection closed by peer [10.0.0.7]:4411\n"


def error(folder: Path, name: str, message: str, stamp: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    extra = {"py_callstack": "Traceback (most recent call last):\n", "timestamp": stamp}
    value = {
        "message": {"message": message, "extraInfo": extra},
        "errorCode": 1,
    }  # as of torch 2.13
    (folder / name).write_text(json.dumps(value))


def test_the_first_error_of_a_node_counts(tmp_path: Path) -> None:
    error(tmp_path, "elastic_error_0.json", "RuntimeError: later", "1790000007")
    error(tmp_path, "elastic_error_1.json", "KeyError: 'first'\nmore", "1790000001")
    found = first_error(tmp_path)
    assert found is not None and (found.text, found.raised_s) == ("KeyError: 'first'", 1790000001)


def test_a_time_that_no_float_holds_is_unknown(tmp_path: Path) -> None:
    error(tmp_path, "elastic_error_0.json", "RuntimeError: when", 10**400)
    found = first_error(tmp_path)
    assert found is not None and (found.text, found.raised_s) == ("RuntimeError: when", 0.0)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"message": 3}', '{"message": {"message": []}}'])
def test_a_file_that_is_none_counts_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "elastic_error.json").write_text(text)
    assert first_error(tmp_path) is None
    assert first_error(tmp_path / "none") is None


def test_an_error_file_is_read_before_the_log(tmp_path: Path) -> None:
    case = failures.Case("x", "", {0: ({"exit": 1}, LOST), 1: ({"exit": 1}, "step 4\n")})
    failures.make_set(tmp_path, case)
    folder = tmp_path / "runs/1/attempt_1/files/n1"
    error(folder, "elastic_error.json", "OutOfMemoryError: HIP out of memory.", "1790000001")
    said = failures.of_set(tmp_path, case)
    assert (said.cause, said.sentence) == (
        "gpu_out_of_memory",
        "n1: the memory of a GPU is used up",
    )
    assert said.evidence[0].file == "runs/1/attempt_1/files/n1/elastic_error.json"


def test_the_line_of_the_log_is_quoted_if_it_has_the_error(tmp_path: Path) -> None:
    log = "ValueError: something else\nloading\nRuntimeError: the mesh has a hole\n"
    case = failures.Case("x", "", {0: ({"exit": 1}, log)})
    failures.make_set(tmp_path, case)
    folder = tmp_path / "runs/1/attempt_1/files/n0"
    error(folder, "elastic_error.json", "RuntimeError: the mesh has a hole", "1790000001")
    said = failures.of_set(tmp_path, case)
    assert (said.evidence[0].line, said.evidence[0].text) == (
        3,
        "RuntimeError: the mesh has a hole",
    )


def test_a_lost_peer_in_an_error_file_hides_nothing(tmp_path: Path) -> None:
    log = "OSError: [Errno 28] No space left on device\n"
    case = failures.Case("x", "", {0: ({"exit": 1}, log)})
    failures.make_set(tmp_path, case)
    folder = tmp_path / "runs/1/attempt_1/files/n0"
    error(folder, "elastic_error.json", "RuntimeError: Connection closed by peer", "1790000001")
    assert failures.of_set(tmp_path, case).cause == "disk_full"
