"""all_reduce_perf of rccl-tests (or nccl-tests): where it is, how it is called, and what its table says.

Layouts seen since 2019, which differ in columns and units, but all name their columns:

    #  bytes  N  type  op  time  algbw  busbw  res  time  algbw  busbw  res                       (times in ms)
    #  size  count  type  redop  time  algbw  busbw  error  time  algbw  busbw  error             (a deviation, no count)
    #  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong     (a count, or N/A)

The time follows from size and algorithm bandwidth, so its unit does not matter. Lines may begin with mpirun's `[1,0]<stdout>:`.
"""

from __future__ import annotations

import os
import re
import shutil

PLACES = (
    "/opt/rccl-tests/build",
    "/opt/rccl-tests",
    "/opt/rocm/bin",
    "/opt/rocm/rccl-tests",
    "/workspace/rccl-tests/build",
    "/rccl-tests/build",
    "/root/rccl-tests/build",
    "/usr/local/bin",
    "/opt/nccl-tests/build",
    "/workspace/nccl-tests/build",
)
_TAG = re.compile(r"^\[[0-9, ]+\](<\w+>:?)? ?")
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*:\s*([0-9.eE+-]+|-?nan|inf)")


def find():
    """Return the path of all_reduce_perf, None where the image has none. ORCH_DEEP_RCCL_TESTS names it."""
    named = os.environ.get("ORCH_DEEP_RCCL_TESTS", "")
    if named:
        return named
    return shutil.which("all_reduce_perf") or shutil.which("all_reduce_perf", path=os.pathsep.join(PLACES))


def argv(gpus, size):
    """Return the command for one process that drives all GPUs of the node."""
    return [
        find() or "all_reduce_perf",
        "-b",
        str(size),
        "-e",
        str(size),
        "-g",
        str(gpus),
        "-w",
        "5",
        "-n",
        "20",
        "-c",
        "1",
    ]


def parse(text):
    """Return {"rows": [...], "average": GB/s or None, "out_of_bounds": count or None} of a printed table.

    A row has `bytes`, and for `out` and `in` (out of place, in place) a dict with algbw, busbw (GB/s), seconds and wrong (None:
    not counted or not checked). A table with one half only has no `in`.
    """
    found = {"rows": [], "average": None, "out_of_bounds": None}
    columns = []
    for raw in text.splitlines():
        line = _TAG.sub("", raw).strip()
        names = line.lstrip("#").split()
        bounds, average = _BOUNDS.match(line), _AVERAGE.match(line)
        if "busbw" in names and "algbw" in names:
            columns = names
        elif bounds:
            found["out_of_bounds"] = int(bounds.group(1))
        elif average:
            found["average"] = _number(average.group(1))
        elif columns and line[:1].isdigit() and len(line.split()) == len(columns):
            row = _row(columns, line.split())
            if row:
                found["rows"].append(row)
    return found


def _row(columns, cells):
    if not cells[0].isdigit():
        return None
    row = {"bytes": int(cells[0])}
    starts = [index for index, name in enumerate(columns) if name == "time"]
    for place, start in zip(("out", "in"), starts):
        half = dict(zip(columns[start : start + 4], cells[start : start + 4]))
        algbw, busbw = _number(half.get("algbw")), _number(half.get("busbw"))
        if algbw is None or busbw is None:
            return None
        wrong = _number(half.get("#wrong"))
        row[place] = {
            "algbw": algbw,
            "busbw": busbw,
            "seconds": row["bytes"] / (algbw * 1e9) if algbw > 0 else None,
            "wrong": None if wrong is None else int(wrong),
        }
    return row if "out" in row else None


def _number(text):
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if value == value and abs(value) != float("inf") else None


def result(text, status):
    """Return the answer for a whole output: the largest size, the better of out of place and in place."""
    found = parse(text)
    if not found["rows"]:
        lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        return {
            "error": "all_reduce_perf ended with status %d: %s" % (status, lines[-1] if lines else "it printed nothing")
        }
    row = max(found["rows"], key=lambda one: one["bytes"])
    halves = [row[place] for place in ("out", "in") if place in row]
    best = max(halves, key=lambda half: half["busbw"])
    counts = [
        half["wrong"]
        for one in found["rows"]
        for half in (one["out"], one.get("in", one["out"]))
        if half["wrong"] is not None
    ]
    wrong = max([found["out_of_bounds"] or 0] + counts)
    if status != 0 and wrong == 0:
        return {"error": "all_reduce_perf ended with status %d" % status}
    return {
        "bytes": row["bytes"],
        "microseconds": round((best["seconds"] or 0) * 1e6),
        "mbps": round(best["busbw"] * 1000),
        "wrong": wrong,
    }
