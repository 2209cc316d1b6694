"""Which line of a log is the cause: prefixes, tracebacks and chains, advice, ends made by Slurm."""

from __future__ import annotations

import json
import re
from pathlib import Path

import failures
import pytest

from orchestrator.causes.cause import GRADES, PROGRAM, WRAPPER
from orchestrator.causes.fields import _SPEAKERS, ERRORS
from orchestrator.causes.lines import _sign
from orchestrator.causes.prefixes import without_prefixes
from orchestrator.causes.reading import symptoms
from orchestrator.causes.tables import CAUSES, FILE

OOM = "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 9.00 GiB."
FRAME = '  File "/app/train.py", line 7, in main'
DIRECT = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"


def logged(prefix: str, *lines: str) -> bytes:
    return "".join(f"{prefix}{text}\n" for text in lines).encode()


def traceback(*last: str) -> list[str]:
    return ["Traceback (most recent call last):", FRAME, "    step(batch)", *last]


def causes_of(log: bytes) -> list[str]:
    return [symptom.cause for symptom in symptoms(log)]


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ",
        " 12: ",
        "[default5]:",
        "[1,4]<stderr>:",
        "2026-11-24 02:03:04 | ERROR | stderr | ",
        "2026-11-24T02:03:04.123456789Z ",
        "[2026-11-24 02:03:04 TP1 PP0] ",
        "(Worker rank=2 pid=4711) ERROR 11-24 02:03:04 [executor.py:52] ",
        "(TrainActor pid=88, ip=10.1.1.4) ",
        "ERROR 11-24 02:03:04 engine.py:448] ",
        "[2026-11-24 02:03:04,120] [ERROR] [MainThread] [a.worker.base] >>> ",
        "trainer_0  | ",
        "gpu-07: ",
        "10.1.1.4: [rank3]: ",
        "[learner5|1]:",
        "(train_part pid=88, ip=10.1.1.4) ",
    ],
)
def test_the_prefix_of_a_logger_hides_no_traceback(prefix: str) -> None:
    assert re.fullmatch(" {3,4}step", without_prefixes(prefix + "    step"))
    log = logged(prefix, *traceback(OOM), "shutting down")
    first = symptoms(log)[0]
    assert (first.cause, first.raised) == ("gpu_out_of_memory", True)
    assert OOM in first.text


@pytest.mark.parametrize("chain", [DIRECT, DURING])
def test_the_first_exception_of_a_chain_is_the_cause(chain: str) -> None:
    first, second = "ValueError: 3 heads, 2 ranks", "KeyError: 'plan'"
    log = logged("", *traceback(first), chain, *traceback(second))
    assert [symptom.text for symptom in symptoms(log)] == [first]


def test_a_later_exception_of_a_chain_counts_if_only_its_cause_is_known() -> None:
    log = logged("", *traceback("KeyError: 'plan'"), DURING, *traceback(OOM))
    assert "gpu_out_of_memory" in causes_of(log)


def test_chains_of_two_ranks_are_read_apart() -> None:
    ranks = [logged(f"[rank{rank}]: ", *traceback(OOM)).splitlines(True) for rank in (0, 1)]
    mixed = b"".join(text for pair in zip(*ranks, strict=True) for text in pair)
    assert causes_of(mixed) == ["gpu_out_of_memory"] * 2


def test_an_exception_without_a_message_is_quoted_with_its_source() -> None:
    [symptom] = symptoms(logged("", *traceback()[:2], "    assert rows > 0", "AssertionError"))
    assert symptom.text == "assert rows > 0 (AssertionError)"
    assert symptom.cause == "input_refused"


@pytest.mark.parametrize(
    "line",
    [
        "[Rank 3] Some NCCL operations have failed or timed out. Data may be corrupted.",
        "There are some potential root causes: the process was killed by the OOM killer.",
        "Compile with `TORCH_USE_HIP_DSA` to enable device-side assertions.",
        "ptrace: Operation not permitted.",
        "[2026-11-24 02:03:04] Skipping import of cpp extensions: x.so: undefined symbol: _Z3abc",
    ],
)
def test_advice_and_lists_of_hints_are_no_cause(line: str) -> None:
    assert causes_of(logged("", line)) == []


def test_a_wrapper_is_no_cause() -> None:
    wrapper = "ray.exceptions.RayTaskError(ModuleNotFoundError): ray::Worker.load()"
    log = logged("", wrapper, "ModuleNotFoundError: No module named 'zstd'")
    assert [symptom.grade for symptom in symptoms(log)] == [WRAPPER, PROGRAM]


def test_a_program_that_went_on_has_outlived_a_complaint() -> None:
    complaint = "plugin.so: undefined symbol: _Z3abc"
    going_on = [f"loading shard {number}" for number in range(60)]
    assert causes_of(logged("", complaint, *traceback(OOM))) == [
        "missing_library",
        "gpu_out_of_memory",
    ]
    assert causes_of(logged("", complaint, *going_on, *traceback(OOM))) == ["gpu_out_of_memory"]


@pytest.mark.parametrize(
    ("words", "cause"), [("", "cancelled"), (" DUE TO TIME LIMIT", "time_limit")]
)
def test_an_end_made_by_slurm_is_the_cause_only_if_nothing_failed_before(
    words: str, cause: str
) -> None:
    end = f"slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-24T02:03:04{words} ***"
    assert causes_of(logged("", "step 4", end)) == [cause]
    assert causes_of(logged("", *traceback(OOM), end)) == ["gpu_out_of_memory"]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 5] Input/output error: '/data/a'", "storage_error"),
        ("[1700:0:1700] ib_mlx5.c:44 UCX ERROR send: Input/output error", "rdma_failed"),
        ("RuntimeError: HIP error: unspecified launch failure", "gpu_failed"),
        ("RuntimeError: HIP error: an illegal memory access was encountered", "illegal_access"),
        ("MPICH ERROR [Rank 3] Abort(-1): GPU support asked for, not linked", "mpi_failed"),
        ("ValueError: micro batch 3 with 5 stages", "input_refused"),
        ("FileExistsError: [Errno 17] File exists: '/home/a/.cache'", "cache_race"),
        ("alloc_buffer: device 0: hipMalloc failed: out of memory", "gpu_out_of_memory"),
        ("Error while creating shared memory segment /dev/shm/nccl-a1 (size 9)", "shm_too_small"),
        ("RuntimeError: Connection closed by peer [10.0.0.1]:4", "peer_lost"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", "program_failed"),
        ("RuntimeError: the ring of rank tables is empty", ""),
        ("mmap of /data/a: Cannot allocate memory", "host_out_of_memory"),
        ('IoError(Os { code: 28, message: "No space left on device" })', "disk_full"),
        ("torch.X: failed to listen. code: -98, name: EADDRINUSE", "port_in_use"),
        ("E1 api.py:869] failed (exitcode: -11) local_rank: 1 (pid: 71)", "crash"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'rocminfo'", "command_missing"),
        (
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x2 and 3x3)",
            "tensor_mismatch",
        ),
    ],
)
def test_the_speaker_and_the_type_decide_and_an_answer_degrades(line: str, cause: str) -> None:
    assert causes_of(logged("", line)) == [cause]


def test_a_generic_answer_quotes_its_line_with_the_lines_around_it(tmp_path: Path) -> None:
    refused = "ValueError: micro batch 3 with 5 stages"
    log = "\n".join(["loading", *traceback(f"[rank0]: {refused}"), "bye", "bye"]) + "\n"
    explained = failures.explained(tmp_path, failures.Case("x", "", {0: ({"exit": 1}, log)}))
    assert explained.cause == "input_refused"
    assert explained.sentence == f"the program refused its settings or data: {refused}"
    shown = [(proof.line, proof.text.strip()) for proof in explained.evidence]
    assert shown == [(5, f"[rank0]: {refused}"), (3, FRAME.strip()), (4, "step(batch)"), (6, "bye")]


def test_an_unknown_cause_is_shown_with_the_last_lines(tmp_path: Path) -> None:
    log = "loading\nhalf done\nhm\nbye\n"
    explained = failures.explained(tmp_path, failures.Case("x", "", {0: ({"exit": 1}, log)}))
    assert explained.cause == "unknown" and explained.sentence.startswith("cause unknown: ")
    assert [proof.text for proof in explained.evidence] == ["half done", "hm", "bye"]


def test_a_step_that_slurm_cancelled_hides_no_exception_and_no_time_out(tmp_path: Path) -> None:
    output = "slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-24T02:03:04 ***\n"
    log = "RuntimeError: the ring of rank tables is empty\n"
    case = failures.Case("x", "", {0: ({"exit": 1}, log)}, job=output)
    assert failures.explained(tmp_path / "a", case).cause == "unknown"
    case = failures.Case("x", "", {0: ({"exit": 143}, "step 4\n")}, job=output)
    assert failures.explained(tmp_path / "b", case).cause == "cancelled"


def test_the_data_file_has_its_form() -> None:
    data = json.loads(FILE.read_text("utf-8"))
    lists = {"generic", "parents", "outer"}
    assert set(data) == {"format", "causes", "exacter"} | lists and data["format"] == 3
    texts = {"name", "grade", "sentence", "remedy", "next"}
    names = [row["name"] for row in data["causes"]]
    assert len(set(names)) == len(names) == len(CAUSES)
    for row in data["causes"]:
        assert set(row) - {"not_by"} == texts | {"signs"}, row["name"]
        assert row["grade"] in GRADES and row["signs"], row["name"]
        assert all(row[member] for member in texts), row["name"]
        signs = ["".join(sign) for sign in row["signs"]]
        assert all(sign == sign.lower() and " | " not in sign for sign in signs)
        assert all(sign.count("{") == sign.count("}") for sign in signs)
    named = {name for key, others in data["exacter"].items() for name in (key, *others)}
    assert named | {name for member in lists for name in data[member]} <= set(names)
    fields = {mark for cause in CAUSES for sign in cause.signs for mark in _fields(sign)}
    assert {mark for mark in fields if not re.fullmatch("![a-z]+;", mark)} <= {
        *("#" + name for name in ERRORS),
        *("@" + name for name in ("kernel", *dict(_SPEAKERS))),
    }


def _fields(sign: str) -> list[str]:
    parts = [part for piece in _sign(CAUSES[0], sign).pieces for part in piece]
    return [part for part in parts if part[:1] in ("#", "!", "@")]
