"""The referee's RCP test reads one log differently from its compliance checker.

Source: rcp_checker.read_submission_file. In file order, a record with `eval_accuracy` anywhere in
it is an evaluation, and the benchmark must come before these. `refused` has the reason if the test
would end with a traceback.
"""

from __future__ import annotations

from orchestrator.mllog.rcp import FAILED
from orchestrator.mllog.reader import (
    BATCH_SIZE,
    BENCHMARK,
    EVALUATION,
    RUN_STOP,
    Damage,
    Log,
    Record,
)
from orchestrator.onnode.kernel.mllog_keys import STOP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COUNTS_SAMPLES = frozenset(
    {
        "llama2_70b_lora",
        "flux1",
        "llama31_405b",
        "llama31_8b",
        "gpt_oss_20b",
        "deepseekv3_671b",
        "qwen35_397b_grpo",
        "dlrmv4",
    }
)
"""Benchmarks whose convergence is counted in samples; the others count epochs."""

_UNSET = object()


class Convergence:
    """`samples` to converge (epochs for the older benchmarks); FAILED without convergence."""

    __slots__ = ("_last", "_metrics", "batch_size", "benchmark", "converged", "refused", "samples")

    def __init__(self) -> None:
        self.converged = False
        self.samples: Any = FAILED
        self.batch_size: Any = -1
        self.benchmark: Any = None
        self.refused = ""
        self._last: Any = _UNSET
        self._metrics: dict[Any, dict[Any, Any]] = {}


def convergence(log: Log) -> Convergence:
    """Read a log as the RCP test does. Never raises."""
    state = Convergence()
    for entry in log.entries:
        if not entry.words:
            continue
        try:
            _take(state, entry)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            state.refused = _reason(entry, error)
            break
    return state


def _reason(entry: Record | Damage, error: Exception) -> str:
    if isinstance(entry, Damage):
        return "a damaged record that the RCP test needs"
    missing = (
        f"no `{error.args[0]}` in the metadata"
        if isinstance(error, KeyError) and error.args
        else str(error)
    )
    return f"the `{entry.key}` record cannot be used by the RCP test: {missing}"


def _take(state: Convergence, entry: Record | Damage) -> None:
    if isinstance(entry, Damage) and not isinstance(entry.json, dict):
        raise ValueError(entry.message)
    if entry.words & BATCH_SIZE:
        state.batch_size = _member(entry, "value")
    if entry.words & BENCHMARK:
        state.benchmark = _member(entry, "value")
        hash(state.benchmark)
    if entry.words & EVALUATION:
        _evaluation(state, entry)
    if entry.words & RUN_STOP and _member(entry, "key") == STOP:
        _stop(state, _member(entry, "metadata"))


def _member(entry: Record | Damage, name: str) -> Any:
    """Return a record's member; a damaged record (its time is no number) may lack the others."""
    return getattr(entry, name) if isinstance(entry, Record) else entry.json[name]


def _evaluation(state: Convergence, entry: Record | Damage) -> None:
    metadata = _member(entry, "metadata")
    if state.benchmark == "stable_diffusion":
        step, metric = metadata["samples_count"], metadata["metric"]
        state._metrics.setdefault(step, {})[metric] = _member(entry, "value")
    elif state.benchmark in COUNTS_SAMPLES:
        state._last = metadata["samples_count"]
        _member(entry, "value")
    else:
        state._last = round(metadata["epoch_num"], 3)


def _stop(state: Convergence, metadata: Any) -> None:
    state.converged = metadata["status"] == "success"
    state.samples = FAILED
    if not state.converged:
        return
    if state.benchmark == "stable_diffusion":
        # The first evaluation that meets both targets counts, not the last.
        state._last = min(
            step
            for step, value in state._metrics.items()
            if value["FID"] <= 90.0 and value["CLIP"] >= 0.15
        )
    if state._last is _UNSET:
        raise ValueError("`run_stop` says success, and there is no evaluation before it")
    state.samples = state._last
