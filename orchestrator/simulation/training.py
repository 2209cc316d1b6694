"""The output of a simulated training: its workload's MLLOG log, drawn from published results.

    facts = facts_of(load_entry("MI325X_08x08x32", "flux1", site=site))
    script = Trainings(facts).script(seed=7, start_ms=1_790_000_000_000, chance=random.Random(1))
    script.output       # its log

Every log starts with MARK, and its records name the file `rehearsal`: nobody may take it for a
result. The launcher, not a script, logs `cache_clear`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from orchestrator.mllog.source import REHEARSAL
from orchestrator.simulation.pace import Samples, Seconds, samples_of, seconds_of
from orchestrator.simulation.training_facts import Behaviour, TrainingFacts, Value, facts_of

__all__ = ["FILE", "MARK", "Script", "TrainingFacts", "Trainings", "facts_of", "is_rehearsal"]

MARK = b"orchestrator: rehearsal"
"""Starts every script."""
FILE = REHEARSAL
"""`metadata.file` of a script's records."""
_STARTUP_SPREAD = 0.03
"""Assumed: a set's start-ups lie 1 to 15 % around their median (startup.json, warm_range_s)."""

Line = tuple[float, bytes]


@dataclass(frozen=True)
class Script:
    """Output of the logging rank: (seconds after the program's start, whole lines) in order."""

    lines: tuple[Line, ...]
    seconds: float
    """Until its exit, or infinite."""
    status: str
    """Of run_stop: `success` or `aborted`; or ""."""

    @property
    def output(self) -> bytes:
        return b"".join(text for _, text in self.lines)

    def with_lines(self, more: Iterable[Line]) -> Script:
        """Add output; at equal times it comes last."""
        return replace(self, lines=tuple(sorted([*self.lines, *more], key=lambda line: line[0])))


class Trainings:
    """A workload's trainings on a system. `run_seconds` replaces the published length of a usual
    run; `missed_share` of the runs miss their target.
    """

    def __init__(
        self, facts: TrainingFacts, *, run_seconds: float | None = None, missed_share: float = 0.0
    ) -> None:
        behaviour = Behaviour(facts)
        self.facts, self.missed_share = facts, missed_share
        self.samples: Samples = samples_of(facts, behaviour)
        self.seconds: Seconds = seconds_of(facts, behaviour, self.samples, run_seconds)
        self._curve = behaviour.curve
        self._rate_spread = behaviour.number("rate_spread")
        self._cost = behaviour.number("eval_cost")
        # Seconds per sample, evaluations counted as samples: their mean takes `seconds.run`.
        self._pace = self.seconds.run / (self.samples.mean + self.samples.usual * self._cost)
        self._target = behaviour.number("target", 1.0 if facts.target is None else facts.target)
        keys = logged_keys(facts, behaviour, self._target)
        self._mark = MARK + f": no training ran; times are {self.seconds.source}\n".encode()
        self._records = _Records(facts.benchmark, keys)

    @property
    def source(self) -> str:
        """Of the run length: published, estimated from a named result, or assumed."""
        return self.seconds.source

    def script(
        self,
        *,
        seed: int,
        start_ms: int,
        chance: random.Random,
        cold: bool = False,
        misses: bool = False,
        pace: float = 1.0,
        chatter_lines: int = 0,
    ) -> Script:
        """Return the output of a training; `chance` decides the rest.

        `cold`: the first in a new container. `misses`: its target. `pace`: 2.0 takes twice the
        time. `chatter_lines`: further lines, spread over the training.
        """
        at = self.samples
        startup = (self.seconds.cold if cold else self.seconds.startup) * _near_one(
            chance, _STARTUP_SPREAD
        )
        crossing = chance.normalvariate(at.mean - at.every / 2, at.deviation)
        rate = pace * self._pace * _near_one(chance, self._rate_spread)
        missed = chance.random() < self.missed_share or misses or at.stop(crossing) < crossing
        crossing = 1.3 * at.last if missed else max(crossing, at.first / 2)
        status = "aborted" if missed else "success"
        init = startup - min(self.seconds.init, startup)
        lines = [
            (0.0, self._mark),
            (init, _filled(self._records.init, start_ms, init, b"%d" % seed)),
        ]
        lines += self._run(
            start_ms, startup, rate, crossing, at.last if missed else at.stop(crossing), status
        )
        script = Script(tuple(lines), lines[-1][0] + self.seconds.shutdown, status)
        return (
            script.with_lines(_chatter(chance, chatter_lines, lines[-1][0]))
            if chatter_lines
            else script
        )

    def _run(
        self, start_ms: int, now: float, rate: float, crossing: float, last: int, status: str
    ) -> Iterator[Line]:
        """Yield the lines from init_stop on. `rate`: seconds per sample; `last`: the samples."""
        records, done, evaluation_s = self._records, 0, self._cost * rate
        throughput = b"%.4f" % (1 / max(rate, 1e-9))
        yield now, _filled(records.start, start_ms, now)
        for count in range(self.samples.first, last + 1, self.samples.every):
            at = records.at(count)
            now += (count - done) * rate
            yield now, _filled(at.block, start_ms, now, throughput)
            now += evaluation_s
            done = count
            value = b"%.10f" % self._evaluation(count, crossing)
            yield (
                now,
                _filled(at.stop[status] if count == last else at.evaluation, start_ms, now, value),
            )

    def _evaluation(self, count: int, crossing: float) -> float:
        height, power = self._curve
        above: float = height * ((crossing / count) ** power - 1)
        return self._target + (above if self.facts.target_is_upper_bound else -above)


def logged_keys(facts: TrainingFacts, behaviour: Behaviour, target: float) -> dict[str, Value]:
    """Return the keys between init_start and init_stop, without the seed."""
    keys: dict[str, Value] = {
        "submission_benchmark": facts.benchmark,
        "submission_org": facts.submitter or "local",
        "submission_division": "open" if facts.own else "closed",
        "submission_status": "onprem",
        "submission_platform": f"{facts.nodes}x{facts.accelerator or facts.system}",
        "target_accuracy": target,
        "global_batch_size": facts.global_batch,
        "gradient_accumulation_steps": facts.accumulation,
        **behaviour.keys(),
        **facts.logged,
    }
    _derive(keys)
    return {key: value for key, value in keys.items() if value is not None}


def _derive(keys: dict[str, Value]) -> None:
    base, warmup, steps = (
        keys.get(name)
        for name in ("opt_base_learning_rate", "opt_learning_rate_warmup_steps", "max_steps")
    )
    if keys.get("opt_end_learning_rate", 0) is None and isinstance(base, (int, float)):
        keys["opt_end_learning_rate"] = base / 10
    if isinstance(warmup, int) and isinstance(steps, int):
        keys["opt_learning_rate_decay_steps"] = steps - warmup


def is_rehearsal(log: bytes) -> bool:
    """Return whether a log, or its start, is simulated."""
    return log.startswith(MARK) or b"\n" + MARK in log


_TIME, _VALUE = b"\0", b"\1"
"""Placeholders; JSON has no such bytes."""


class _Evaluation(NamedTuple):
    block: bytes
    """The previous block's end, and the evaluation's start."""
    evaluation: bytes
    """Its value, and the next block's start."""
    stop: dict[str, bytes]
    """Status -> its value, and the run's end."""


class _Records:
    """A workload's records without times and values."""

    def __init__(self, benchmark: str, keys: dict[str, Value]) -> None:
        # BERT's logs, and the referee, count samples as epochs.
        self._names = ("samples_count", "epoch_num") if benchmark == "bert" else ("samples_count",)
        self._counts_at_end = "train_samples" not in keys
        self._at: dict[int, _Evaluation] = {}
        points = [_point(key, value) for key, value in keys.items()]
        self.init = _start("init_start") + b"".join(points) + _point("seed", _VALUE)
        self.start = (
            _end("init_stop") + _start("run_start") + _start("block_start", samples_count=0)
        )

    def at(self, count: int) -> _Evaluation:
        if count not in self._at:
            self._at[count] = self._made(count)
        return self._at[count]

    def _made(self, count: int) -> _Evaluation:
        counted = dict.fromkeys(self._names, count)
        block = _point("tracked_stats", b'{"throughput": ' + _VALUE + b"}", step=count) + _end(
            "block_stop", **counted
        )
        value = _point("eval_accuracy", _VALUE, **counted) + _end("eval_stop", **counted)
        after = _point("train_samples", count) if self._counts_at_end else b""
        stop = {
            status: value + _end("run_stop", **counted, status=status) + after
            for status in ("success", "aborted")
        }
        return _Evaluation(
            block + _start("eval_start", **counted), value + _start("block_start", **counted), stop
        )


def _filled(records: bytes, start_ms: int, seconds: float, value: bytes = b"") -> bytes:
    return records.replace(_TIME, b"%d" % (start_ms + int(seconds * 1000))).replace(_VALUE, value)


def _point(key: str, value: Value | bytes, **metadata: Value) -> bytes:
    return _record(
        "POINT_IN_TIME",
        key,
        value if isinstance(value, bytes) else json.dumps(value).encode(),
        metadata,
    )


def _start(key: str, **metadata: Value) -> bytes:
    return _record("INTERVAL_START", key, b"null", metadata)


def _end(key: str, **metadata: Value) -> bytes:
    return _record("INTERVAL_END", key, b"null", metadata)


def _record(event: str, key: str, value: bytes, metadata: dict[str, Value]) -> bytes:
    place = json.dumps({"file": FILE, "lineno": 1, **metadata}).encode()
    head = (
        b':::MLLOG {"namespace": "", "time_ms": '
        + _TIME
        + f', "event_type": "{event}", "key": {json.dumps(key)}'.encode()
    )
    return head + b', "value": ' + value + b', "metadata": ' + place + b"}\n"


def _near_one(chance: random.Random, spread: float) -> float:
    """Return a factor at most three `spread`s from 1."""
    return 1 + max(-3 * spread, min(3 * spread, chance.normalvariate(0.0, spread)))


def _chatter(chance: random.Random, count: int, last: float) -> Iterator[Line]:
    for number in range(count):
        yield chance.uniform(0.0, last), b"rank 0: step %d of a rehearsal\n" % number
