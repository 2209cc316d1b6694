"""A training that only waits, for a time that its seed sets, and logs the lines that the loop reads.

STEADY_FAULTS is a list in JSON: {"run", "after" (seconds), "how" (crash, exit, hang, deaf), "rank"} of faults in first attempts.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time

SHORTEST_S, LONGEST_S = 3.0, 9.0
EVALUATIONS = 4
LAST_WORDS = "RuntimeError: HIP error: an illegal memory access was encountered"


def length_s(seed: int) -> float:
    """Return how long the training of a seed lasts, in seconds."""
    return random.Random(seed).uniform(SHORTEST_S, LONGEST_S)


def lines(seed: int, rank: int, start_ms: int) -> list[tuple[float, str]]:
    """Return the output of a node: (seconds after its start, line)."""
    whole = length_s(seed)
    output = [(0.0, f"rank {rank} is up")]
    if rank == 0:
        keys = ["run_start", *["eval_accuracy"] * EVALUATIONS, "run_stop"]
        times = [whole * k / (len(keys) - 1) for k in range(len(keys))]
        output += [
            (at, _record(key, start_ms + int(1000 * at)))
            for at, key in zip(times, keys, strict=True)
        ]
    return output


def _record(key: str, time_ms: int) -> str:
    metadata = {"file": "steady.py", "lineno": 1}
    if key == "run_stop":
        metadata["status"] = "success"
    kind = {"run_start": "INTERVAL_START", "run_stop": "INTERVAL_END"}.get(key, "POINT_IN_TIME")
    value = 0.03 if key == "eval_accuracy" else None
    record = {"namespace": "", "time_ms": time_ms, "event_type": kind, "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**record, "metadata": metadata})


def strike(fault: dict[str, object], rank: int) -> None:
    """Carry out a fault. The other nodes wait for the missing one, as in a collective."""
    if rank == fault["rank"] and fault["how"] in ("crash", "exit"):
        print(LAST_WORDS if fault["how"] == "crash" else "Training finished.", flush=True)
        os._exit(1 if fault["how"] == "crash" else 0)
    if fault["how"] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


def main() -> int:
    began, rank = time.monotonic(), int(os.environ["SLURM_NODEID"])
    attempt = int(os.environ["ORCH_RUN"]), int(os.environ["ORCH_ATTEMPT"])
    faults = [
        fault
        for fault in json.loads(os.environ.get("STEADY_FAULTS", "[]"))
        if attempt == (fault["run"], 1)
    ]
    due = [(fault["after"], fault) for fault in faults]
    seed = int(os.environ["SEED"])
    plan = [*lines(seed, rank, int(time.time() * 1000)), *due, (length_s(seed), "")]
    for at, event in sorted(plan, key=lambda entry: entry[0]):
        time.sleep(max(0.0, began + at - time.monotonic()))
        if isinstance(event, dict):
            strike(event, rank)
        elif event:
            print(event, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
