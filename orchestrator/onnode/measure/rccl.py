"""The all-reduce on GPUs with RCCL: by torch.distributed, a process per GPU, or within a node by
all_reduce_perf of rccl-tests.

Tables of rccl-tests (or nccl-tests) since 2019 differ in columns and units, but all name their
columns:

    #  bytes  N  type  op  time  algbw  busbw  res ...
    #  size  count  type  redop  time  algbw  busbw  error ...
    #  size  count  type  redop  root  time  algbw  busbw  #wrong ...

The first has times in ms, `error` is a deviation, `#wrong` a count or N/A. Lines may begin with
mpirun's `[1,0]<stdout>:`.
"""

from __future__ import annotations

import importlib
import math
import os
import re
import shutil
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

WARM_UP = 2
REPEATS = 10
PLACES = (
    "/opt/rccl-tests/build:/opt/rccl-tests:/opt/rocm/bin:/opt/rocm/rccl-tests:/workspace/rccl-tests/build:/rccl-tests/build:"
    "/root/rccl-tests/build:/usr/local/bin:/opt/nccl-tests/build:/workspace/nccl-tests/build"
)
_TAG = re.compile(r"^\[[0-9, ]+\](<\w+>:?)? ?")
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")


def load_torch() -> tuple[Any, dict[str, Any]]:
    """Return torch or None, and {"gpus": usable GPUs} or {"error": why}."""
    try:
        torch, distributed = (
            importlib.import_module("torch"),
            importlib.import_module("torch.distributed"),
        )
        able = distributed.is_available() and distributed.is_nccl_available()
        return torch, {"gpus": torch.cuda.device_count() if able else 0}
    except Exception as error:  # a broken torch raises anything at its import
        return None, {"error": f"torch: {type(error).__name__}: {str(error)[:300]}"}


def measure(torch: Any, index: int, request: Any) -> dict[str, int]:
    """Join the other processes, check a sum, time ten more, and leave."""
    distributed = torch.distributed
    members, gpus = request["members"], request["gpus"]
    world, rank = len(members) * gpus, request["rank"] * gpus + index
    _, address, port = members[0]
    place = f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"
    torch.cuda.set_device(index)
    limit = timedelta(seconds=request["limit"])
    distributed.init_process_group(
        "nccl", init_method=place, world_size=world, rank=rank, timeout=limit
    )
    try:
        data = torch.full(
            (request["bytes"] // 4,), float(rank + 1), dtype=torch.float32, device="cuda"
        )
        distributed.all_reduce(data)
        # Exact in 32-bit floating point: the sum of 4096 GPUs' ranks is below 2^24.
        wrong = (data != world * (world + 1) / 2).sum().to(torch.float64).reshape(1)
        # Ones stay finite: 1024 GPUs to the power of twelve.
        data.fill_(1.0)
        for _ in range(WARM_UP):
            distributed.all_reduce(data)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(REPEATS):
            distributed.all_reduce(data)
        torch.cuda.synchronize()
        seconds = torch.tensor(
            [(time.perf_counter() - start) / REPEATS], dtype=torch.float64, device="cuda"
        )
        distributed.all_reduce(seconds, op=distributed.ReduceOp.MAX)
        distributed.all_reduce(wrong)
        slowest, bad, size = float(seconds.item()), int(wrong.item()), 4 * (request["bytes"] // 4)
    finally:
        distributed.destroy_process_group()
    busbw = 2 * (world - 1) / world * size / slowest
    return {
        "bytes": size,
        "microseconds": round(slowest * 1e6),
        "mbps": round(busbw / 1e6),
        "wrong": bad,
    }


def find() -> str | None:
    """Return the path of all_reduce_perf (ORCH_DEEP_RCCL_TESTS names it), None if missing."""
    named = os.environ.get("ORCH_DEEP_RCCL_TESTS", "")
    return named or shutil.which("all_reduce_perf") or shutil.which("all_reduce_perf", path=PLACES)


def argv(gpus: int, size: int) -> list[str]:
    """A single process drives all GPUs of the node."""
    return f"{find() or 'all_reduce_perf'} -b {size} -e {size} -g {gpus} -w 5 -n 20 -c 1".split(" ")


def measure_alone(request: Any) -> dict[str, Any]:
    """The caller's limit applies: the process group ends together."""
    null, command = subprocess.DEVNULL, argv(request["gpus"], request["bytes"])
    done = subprocess.run(command, stdin=null, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode("utf-8", "replace")
    sys.stderr.write(text)
    return result(text, done.returncode)


def parse(text: str) -> dict[str, Any]:
    """Return {"rows": [...], "out_of_bounds": count or None} of a printed table.

    A row has `bytes`, and for `out` and `in` (out of place, in place) a dict with algbw, busbw
    (GB/s), seconds and wrong (None: not counted). A table of one half has no `in`.
    """
    output: dict[str, Any] = {"rows": [], "out_of_bounds": None}
    columns: list[str] = []
    for raw in text.splitlines():
        line = _TAG.sub("", raw).strip()
        cells = line.lstrip("#").split()
        bounds = _BOUNDS.match(line)
        if "busbw" in cells and "algbw" in cells:
            columns = cells
        elif bounds:
            output["out_of_bounds"] = int(bounds.group(1))
        elif cells[:1] and cells[0].isdecimal() and len(cells) == len(columns):
            output["rows"] += _row(columns, cells)
    return output


def _row(columns: list[str], cells: list[str]) -> list[dict[str, Any]]:
    row: dict[str, Any] = {}
    size, starts = int(cells[0]), (index for index, name in enumerate(columns) if name == "time")
    for place, start in zip(("out", "in"), starts):
        half = dict(zip(columns[start : start + 4], cells[start : start + 4]))
        algbw, busbw, wrong = (_number(half.get(name, "")) for name in ("algbw", "busbw", "#wrong"))
        if algbw is None or busbw is None:
            return []
        row[place] = {
            "algbw": algbw,
            "busbw": busbw,
            "wrong": None if wrong is None else int(wrong),
        }
        row[place]["seconds"] = size / (algbw * 1e9) if algbw > 0 else None
    return [{"bytes": size, **row}] if row else []


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def result(text: str, status: int) -> dict[str, Any]:
    """Return the answer for a whole output: the largest size's better half (out of place, in
    place)."""
    output = parse(text)
    if not output["rows"]:
        lines = [
            line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")
        ]
        last = lines[-1] if lines else "it printed nothing"
        return {"error": f"all_reduce_perf ended with status {status}: {last}"}
    halves = [
        (row["bytes"], row[place])
        for row in output["rows"]
        for place in ("out", "in")
        if place in row
    ]
    wrong = max([output["out_of_bounds"] or 0] + [half["wrong"] or 0 for _, half in halves])
    if status != 0 and wrong == 0:
        return {"error": f"all_reduce_perf ended with status {status}"}
    size, best = max(halves, key=lambda half: (half[0], half[1]["busbw"]))
    microseconds, mbps = round((best["seconds"] or 0) * 1e6), round(best["busbw"] * 1000)
    return {"bytes": size, "microseconds": microseconds, "mbps": mbps, "wrong": wrong}
