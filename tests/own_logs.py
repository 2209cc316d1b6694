"""Logs and set folders of a workload that is no MLPerf benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORKLOAD = """
kind: workload
name: tiny_gpt
benchmark: tiny_gpt
metric: validation loss
target: 1.5
runs_required: 4
code_dir: /workspace/code
command: [bash, ./run_and_time.sh]
logged:
  global_batch_size: {ref: global_batch, env: BATCH}
  opt_base_learning_rate: {env: LR}
  seed: {env: SEED}
  submission_platform: {env: PLATFORM, form: "{nodes}x{}"}
rounds:
  "1.0":
    ruleset: own
    image: registry/tiny:1
    minutes_per_run: 2
    env: {BATCH: {ref: global_batch}, LR: "1e-3", PLATFORM: box}
"""


def own_log(
    index: int = 0, minutes: float = 0.5, *, status: str = "success", loss: float = 1.4, **said: Any
) -> bytes:
    """A log of the workload above; `said` are values of keys, None for a key that is not logged."""
    start = 1_790_000_000_000 + index * 100_000
    stop = start + int(minutes * 60000)
    keys = {
        "submission_benchmark": "tiny_gpt",
        "submission_platform": "1xbox",
        "seed": 1001 + 1000 * index,
        "global_batch_size": 64,
        "opt_base_learning_rate": 0.001,
        **said,
    }
    rows: list[tuple[int, str, Any, dict[str, Any]]] = [
        *((start - 50, key, value, {}) for key, value in keys.items() if value is not None),
        (start, "run_start", None, {}),
        (stop - 20, "eval_accuracy", loss + 1, {"samples_count": 320}),
        (stop - 10, "eval_accuracy", loss, {"samples_count": 640}),
        (stop, "run_stop", None, {"status": status}),
    ]
    return b"".join(
        b":::MLLOG %s\n"
        % json.dumps(
            {
                "namespace": "",
                "time_ms": time,
                "event_type": "",
                "key": key,
                "value": value,
                "metadata": data,
            }
        ).encode()
        for time, key, value, data in rows
    )


def own_set(
    folder: Path,
    logs: list[bytes],
    nexp: int = 0,
    *,
    entries: list[dict[str, str]] | None = None,
    **described: Any,
) -> Path:
    """A set folder with these results; `entries` are the `logged` of its bundle's workload.json."""
    nexp = nexp or len(logs)
    (folder / "bundle").mkdir(parents=True)
    document = {
        "schema": 1,
        "set_id": folder.name,
        "system": "box",
        "workload": "tiny_gpt",
        "benchmark": "tiny_gpt",
        "round": "1.0",
        "ruleset": "own",
        "nexp": nexp,
        "scheduler": "local",
        "target": 1.5,
        "metric": "validation loss",
        "target_is_upper_bound": True,
        **described,
    }
    (folder / "set.json").write_text(json.dumps(document))
    workload = {"schema": 1, "workload": "tiny_gpt", "runs_required": 4, "logged": entries or []}
    (folder / "bundle/workload.json").write_text(json.dumps(workload))
    (folder / "environment.sh").write_text(
        'declare -x BATCH="64"\ndeclare -x LR="1e-3"\ndeclare -x PLATFORM="box"\n'
    )
    for number in range(1, nexp + 1):
        run = folder / f"runs/{number}"
        run.mkdir(parents=True)
        done = number <= len(logs)
        state = {
            "schema": 1,
            "run": number,
            "attempt": int(done),
            "state": "success" if done else "queued",
            "outcome": "success" if done else "",
            "seed": 1001 + 1000 * (number - 1),
        }
        (run / "state.json").write_text(json.dumps(state))
        if done:
            (run / f"result_{number}.txt").write_bytes(logs[number - 1])
    return folder
