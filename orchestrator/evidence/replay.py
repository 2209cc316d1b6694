"""Repeat the decisions of a job from its event file, and compare them with its records.

The same events give the same decisions; `_DECISIONS` has them, by the words of their events.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any

from orchestrator.evidence.silence import recorded
from orchestrator.onnode.kernel.events import Event, NetworkUse, Pulse, number
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.loop.slurm import job_end
from orchestrator.onnode.policy import place, queue
from orchestrator.onnode.policy.experiment import judge_start
from orchestrator.onnode.policy.hang import silence, stands_out, unwanted_sockets
from orchestrator.onnode.policy.job_state import SetCounts, due, fits, last_state
from orchestrator.onnode.policy.judge import judge_checks
from orchestrator.onnode.policy.outcome import AttemptFacts, decide
from orchestrator.onnode.policy.queue import Queue


@dataclass(frozen=True)
class Difference:
    """A decision that differs now."""

    event: Event
    decided: object
    now: object

    def __str__(self) -> str:
        return (
            f"{self.event.word} at {self.event.ms}: recorded {self.decided}, from the same "
            f"events now {self.now}"
        )


@dataclass
class Replay:
    """Counts repeated decisions, and keeps the differences."""

    decisions: int = 0
    differences: list[Difference] = field(default_factory=list)
    reworded: int = 0
    """Decisions that differ in their words alone: those of another version."""

    def compare(self, event: Event, decided: object, now: object) -> None:
        self.decisions += 1
        if decided == now:
            return
        if _wordless(decided) == _wordless(now):
            self.reworded += 1
        else:
            self.differences.append(Difference(event, decided, now))

    def forget(self, event: Event | None) -> None:
        """Drop the difference of an event that may be half a line."""
        if self.differences and self.differences[-1].event is event:
            self.differences.pop()
            self.decisions -= 1


@dataclass
class _State:
    """The state after the events so far."""

    group: place.GroupState = field(default_factory=place.GroupState)
    runs: Queue = field(default_factory=Queue)
    settings: Settings | None = None

    def apply(self, event: Event) -> None:
        place.apply(self.group, event)
        queue.apply(self.runs, event)


def replay(events: Iterable[Event]) -> Replay:
    """Fold `events` and repeat the decisions among them.

    The last event before a `begin` may be half a line, of a killed job.
    """
    state, repeated, last = _State(), Replay(), None
    for event in events:
        if event.source == "loop" and event.word == "begin":
            state = replace(state, settings=_settings(event))
            repeated.forget(last)
        if event.source == "loop" and event.word in _DECISIONS:
            try:
                decided, now = _DECISIONS[event.word](state, event)
            except (
                KeyError,
                IndexError,
                TypeError,
                ValueError,
                AttributeError,
            ):  # a damaged line, or another version's
                decided, now = "unreadable", None
            repeated.compare(event, decided, now)
        state.apply(event)
        last = event
    return repeated


def _settings(event: Event) -> Settings | None:
    """Return the job's settings, None without any; a setting that it lacks has its default."""
    values = event.data().get("settings")
    if not isinstance(values, dict):
        return None
    given: dict[str, Any] = {}
    for item in fields(Settings):
        missing = _NOTHING.get(str(item.type), {}) if item.default is MISSING else item.default
        value = values.get(item.name, missing)
        given[item.name] = tuple(value) if isinstance(value, list) else value
    return Settings(**given)


_NOTHING: dict[str, Any] = {"int": 0, "str": "", "tuple[str, ...]": ()}


def _hold(state: _State, event: Event) -> tuple[Any, Any]:
    now = place.candidates(state.group)
    return event.data()["nodes"], now if isinstance(now, list) else now.reason


def _placed(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    now = place.choose(state.group, about["from"], first=about["first"])
    return {name: about[name] for name in ("ranks", "waiting")}, now and place.as_json(now)


def _ordered(state: _State, event: Event) -> tuple[Any, Any]:
    return event.data()["ranks"], place.in_order(state.group)


_RENAMED = {"ended": "cut_short", "broken": "protocol_errors"}
"""Facts of an attempt under their names in older sets."""


def _outcome(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    recorded = about["facts"]
    facts = {_RENAMED.get(name, name): value for name, value in recorded.items()}
    facts["ranks"] = tuple(facts["ranks"])
    now = vars(decide(AttemptFacts(**facts)))
    # Outcomes of older sets have no `refused`, and no decision by it.
    return {"refused": now["refused"], **about["outcome"]}, {
        **now,
        "blamed": [list(blame) for blame in now["blamed"]],
        "silent": list(now["silent"]),
    }


def _wordless(outcome: Any) -> Any:
    """Return an outcome without its words for people; another decision as it is."""
    if not isinstance(outcome, dict) or "blamed" not in outcome:
        return outcome
    blamed = [list(blame)[:2] for blame in outcome["blamed"]]
    return {**outcome, "reason": "", "blamed": blamed}


def _judged(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    if state.settings is None:
        return about["failed"], None
    now = judge_checks(
        {node: state.group.reports[node] for node in about["nodes"]}, state.settings, rdma=False
    )
    return about["failed"], now.failed


def _free(state: _State, event: Event) -> tuple[Any, Any]:
    return True, place.costs_no_attempt(state.group, event.node)


def _repeated(state: _State, event: Event) -> tuple[Any, Any]:
    return True, state.settings is not None and place.repeats_itself(
        state.group, state.settings.max_attempts
    )


def _refuses(state: _State, event: Event) -> tuple[Any, Any]:
    return True, place.refuses_settings(state.group)


def _pull(state: _State, event: Event) -> tuple[Any, Any]:
    return event.node, next(iter(place.next_to_pull(state.group, number(event.detail) or 0)), "")


def _pulse(state: _State, event: Event) -> tuple[Any, Any]:
    record = recorded(event)
    if record is None or state.settings is None:
        return "unreadable", None
    _, on_record = record
    return on_record, silence({"": on_record.pulse}, state.settings, on_record.unheard)


def _hung(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    pulses = {node: Pulse(*pulse) for node, pulse in about["pulses"].items()}
    return about["reason"], state.settings and silence(pulses, state.settings).verdict


def _sockets(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    uses = {node: NetworkUse(*use) for node, use in about["told"].items()}
    return about["reason"], state.settings and unwanted_sockets(uses, state.settings)


def _late(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    return False, fits(about["left_s"], about["needs_s"])


def _notify(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    counts: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in about["counts"].items()
    }
    return about["due"], due(SetCounts(**counts))


def _ending(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    return (about["state"], about["reason"]), last_state(about["signals"], job_end(about["told"]))


def _take(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    return about["run"], queue.next_run(state.runs, about["group"])


def _stops(state: _State, event: Event) -> tuple[Any, Any]:
    return True, queue.is_to_stop(state.runs, event.data()["group"])


def _look(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    now = stands_out(about["ranks"], about["quiet"], about["doing"])
    return (event.node, about["activity"]), now


def _experiment(state: _State, event: Event) -> tuple[Any, Any]:
    about = event.data()
    facts = {node: state.group.reports[node].facts for node in about["nodes"]}
    now = judge_start(facts, about["known"], about["changes"])
    return {name: about[name] for name in ("problem", "warnings")}, now._asdict()


_DECISIONS = {
    "experiment": _experiment,
    "look": _look,
    "hold": _hold,
    "placed": _placed,
    "ordered": _ordered,
    "outcome": _outcome,
    "judged": _judged,
    "free": _free,
    "repeated": _repeated,
    "refuses": _refuses,
    "pull": _pull,
    "pulse": _pulse,
    "hung": _hung,
    "sockets": _sockets,
    "late": _late,
    "take": _take,
    "stops": _stops,
    "notify": _notify,
    "ending": _ending,
}
