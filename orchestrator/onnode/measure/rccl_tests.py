"""all_reduce_perf of rccl-tests (or nccl-tests): where it is, how it is called, and what its table says.

Layouts seen since 2019, which differ in columns and units, but all name their columns:

    #  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res                       (times in ms)
    #  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error             (a deviation, no count)
    #  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong     (a count, or N/A)

The time follows from size and algorithm bandwidth, so its unit does not matter. Lines may begin with mpirun's `[1,0]<stdout>:`.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
from typing import Any

from .worker import Answer, Request, serve

PLACES = (
    "/opt/rccl-tests/build:/opt/rccl-tests:/opt/rocm/bin:/opt/rocm/rccl-tests:/workspace/rccl-tests/build:/rccl-tests/build:"
    "/root/rccl-tests/build:/usr/local/bin:/opt/nccl-tests/build:/workspace/nccl-tests/build"
)
_TAG = re.compile(r"^\[[0-9, ]+\](<\w+>:?)? ?")
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")


def find() -> str | None:
    """Return the path of all_reduce_perf, None where the image has none. ORCH_DEEP_RCCL_TESTS names it."""
    named = os.environ.get("ORCH_DEEP_RCCL_TESTS", "")
    return named or shutil.which("all_reduce_perf") or shutil.which("all_reduce_perf", path=PLACES)


def argv(gpus: int, size: int) -> list[str]:
    """Return the command for one process that drives all GPUs of the node."""
    return f"{find() or 'all_reduce_perf'} -b {size} -e {size} -g {gpus} -w 5 -n 20 -c 1".split(" ")


def measure(request: Request) -> Answer:
    """Measure this node by itself. Its limit is that of whoever asks: all of our group ends with us."""
    null, words = subprocess.DEVNULL, argv(request["gpus"], request["bytes"])
    done = subprocess.run(words, stdin=null, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    text = done.stdout.decode("utf-8", "replace")
    sys.stderr.write(text)
    return result(text, done.returncode)


def main() -> None:
    serve(measure)


def parse(text: str) -> dict[str, Any]:
    """Return {"rows": [...], "out_of_bounds": count or None} of a printed table.

    A row has `bytes`, and for `out` and `in` (out of place, in place) a dict with algbw, busbw (GB/s), seconds and wrong (None:
    not counted or not checked). A table with one half only has no `in`.
    """
    found: dict[str, Any] = {"rows": [], "out_of_bounds": None}
    columns: list[str] = []
    for raw in text.splitlines():
        line = _TAG.sub("", raw).strip()
        names = line.lstrip("#").split()
        bounds = _BOUNDS.match(line)
        if "busbw" in names and "algbw" in names:
            columns = names
        elif bounds:
            found["out_of_bounds"] = int(bounds.group(1))
        elif columns and line[:1].isdigit() and len(line.split()) == len(columns):
            found["rows"] += _row(columns, line.split())
    return found


def _row(columns: list[str], cells: list[str]) -> list[dict[str, Any]]:
    """Return the row of a line, [] where it is none."""
    row: dict[str, Any] = {}
    starts = [index for index, name in enumerate(columns) if name == "time"]
    for place, start in zip(("out", "in"), starts):
        half = dict(zip(columns[start : start + 4], cells[start : start + 4]))
        algbw, busbw, wrong = (_number(half.get(name, "")) for name in ("algbw", "busbw", "#wrong"))
        if not cells[0].isdigit() or algbw is None or busbw is None:
            return []
        seconds = int(cells[0]) / (algbw * 1e9) if algbw > 0 else None
        count = None if wrong is None else int(wrong)
        row[place] = {"algbw": algbw, "busbw": busbw, "seconds": seconds, "wrong": count}
    return [{"bytes": int(cells[0]), **row}] if row else []


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def result(text: str, status: int) -> Answer:
    """Return the answer for a whole output: the largest size, the better of out of place and in place."""
    found = parse(text)
    if not found["rows"]:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        last = lines[-1] if lines else "it printed nothing"
        return {"error": f"all_reduce_perf ended with status {status}: {last}"}
    for row in found["rows"]:
        row["halves"] = [row[place] for place in ("out", "in") if place in row]
    wrong = max([found["out_of_bounds"] or 0] + [half["wrong"] or 0 for row in found["rows"] for half in row["halves"]])
    if status != 0 and wrong == 0:
        return {"error": f"all_reduce_perf ended with status {status}"}
    largest = max(found["rows"], key=lambda row: int(row["bytes"]))
    best = max(largest["halves"], key=lambda half: float(half["busbw"]))
    microseconds, mbps = round((best["seconds"] or 0) * 1e6), round(best["busbw"] * 1000)
    return {"bytes": largest["bytes"], "microseconds": microseconds, "mbps": mbps, "wrong": wrong}
