"""Which line of a log tells why a program died, and how that is said of several nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.onnode.policy.reports import MOST_QUOTED
from orchestrator.onnode.policy.trouble import (
    TAIL_BYTES,
    in_one,
    telling_line,
    way_of,
)

TORCHRUN = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/workspace/code/src/train.py", line 7, in <module>
[rank3]:     import nemo_x
[rank3]: ModuleNotFoundError: No module named 'nemo_x'
E1122 05:01:02.1 140 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 3 (pid: 71)
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
src/train.py FAILED
Root Cause (first observed failure):
  exitcode  : 1 (pid: 71)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (TORCHRUN, "ModuleNotFoundError: No module named 'nemo_x'"),
        ("", ""),
        ("loading\nstep 1 loss 0.3\n", ""),
        ('env {"HYDRA_FULL_ERROR": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}\n', ""),
        ("RCCL: ncclRemoteError: see above\n", "RCCL: ncclRemoteError: see above"),
        (
            " 3: RuntimeError: HIP error: out of memory\r\n 4: bye\n",
            "RuntimeError: HIP error: out of memory",
        ),
        (
            "hydra.errors.ConfigCompositionException: no such key\n",
            "hydra.errors.ConfigCompositionException: no such key",
        ),
        ("AssertionError\n", "AssertionError"),
        (
            "Memory access fault by GPU node-3 on address 0x7f. Reason: Unknown.\nAborted (core dumped)\n",
            None,
        ),
        (
            "terminate called after throwing\n  what():  HIP error: no device\nAborted (core dumped)\n",
            "what():  HIP error: no device",
        ),
        (
            "bash: ./run_and_time.sh: No such file or directory\n",
            "bash: ./run_and_time.sh: No such file or directory",
        ),
        (
            "./x.sh: line 3: llmboost: command not found\n",
            "./x.sh: line 3: llmboost: command not found",
        ),
        ("Error: cannot open /data\n", "Error: cannot open /data"),
        (
            "ValueError: bad\nConnectionResetError: [Errno 104] Connection reset by peer\n",
            "ValueError: bad",
        ),
        ("BrokenPipeError: [Errno 32] Broken pipe\n", "BrokenPipeError: [Errno 32] Broken pipe"),
        ("Killed\n", "Killed"),
        (
            "./run_and_time.sh: line 8:    38 Killed   python3 t.py\n",
            "./run_and_time.sh: line 8:    38 Killed   python3 t.py",
        ),
        ("KeyError: 'a'\n./r.sh: line 8: 38 Aborted (core dumped) python3 t.py\n", "KeyError: 'a'"),
        (
            "orchestrator: local rank 2 (rank 10) exited 7\n",
            "orchestrator: local rank 2 (rank 10) exited 7",
        ),
        (
            "[rank0]: watchdog: the collective timed out\nE1 api.py:9] failed (exitcode: -9) local_rank: 1 (pid: 7)\nexitcode  : -15\n",
            "E1 api.py:9] failed (exitcode: -9) local_rank: 1 (pid: 7)",
        ),
        (
            "TimeoutError: the store\nE1 api.py:9] failed (exitcode: -15) local_rank: 1 (pid: 7)\n",
            "TimeoutError: the store",
        ),
        (':::MLLOG {"key": "x", "value": "RuntimeError: no"}\n', ""),
        ("I say that an Error: is no error\nUserWarning: old\n", ""),
        ("KeyError: 'a'\nValueError: the last one\nbye\n", "ValueError: the last one"),
        ("OSError: \x1b[31mred\x1b[0m\n", "OSError:  [31mred [0m"),
    ],
)
def test_the_telling_line(log: str, line: str | None) -> None:
    expected = log.splitlines()[0] if line is None else line
    assert telling_line(log.encode()) == expected


def test_only_the_end_of_a_log_is_looked_at() -> None:
    assert telling_line(b"ValueError: old\n" + b"x\n" * TAIL_BYTES) == ""
    assert len(telling_line(b"ValueError: " + b"x" * 5000)) == MOST_QUOTED


@given(st.binary(max_size=300))
def test_any_bytes_give_one_printable_line(log: bytes) -> None:
    found = telling_line(log + b"\nValueError: " + log)
    assert "\n" not in found and len(found) <= MOST_QUOTED
    found.encode()


def test_what_all_nodes_say_is_said_once() -> None:
    nodes = [f"n{number}" for number in range(8)]
    assert in_one(nodes, dict.fromkeys(nodes, "ModuleNotFoundError: No module named 'x'")) == (
        "all 8 nodes: ModuleNotFoundError: No module named 'x'"
    )
    assert in_one(["n0"], {"n0": "KeyError: 1"}) == "KeyError: 1"
    assert in_one(nodes, {}) == ""
    assert in_one(nodes, {"n5": "B", "n1": "A", "n2": "A"}) == "n1, n2: A; n5: B"
    assert in_one(nodes, dict.fromkeys(nodes[:6], "A")) == "n0, n1, n2 and 3 more: A"
    assert (
        in_one(nodes, {node: node for node in nodes})
        == "n0: n0; n1: n1; n2: n2; and 5 other last words"
    )


def test_numbers_are_not_what_tells_two_attempts_apart() -> None:
    assert (
        way_of("OSError: port 12345 of 0x7fa1")
        == way_of("OSError: port 23 of 0x1")
        != way_of("OSError: file 23 of 0x1")
    )
