"""The rules of a round: data made by translation.py, evaluated here.

An expression is a constant or a list `[operation, operand, ...]`, turned once into a chain of
Python functions. Operands are evaluated with Python's own operators, because the referee's rules
are Python expressions and their corner cases (a substring test on a text metadata, true == 1)
decide submissions.

    ["value"] ["metadata"] ["record"] ["time"]     of the record at hand
    ["state", name] ["state.get", name]            variables of the running config
    ["cmp", a, "<=", b, ...]                       comparisons, also chained, in, not in, is, is not
    ["and", ...] ["or", ...] ["not", a] ["if", test, a, b] ["list", ...] ["item", a, b]
    ["+", a, b] ... ["|", a, b]                    arithmetic
    ["call", name, ...]                            is_integer, abs, int, max, min, math.ceil,
                                                   math.floor

Statements: ["set", name, expr] ["update", {name: expr}] ["when", expr, [statements]]
["config", "closed_{}"] ["aggregate_eval_accuracy"].
"""

from __future__ import annotations

import math
import operator

from orchestrator.mllog.shipped import ROUNDS, packaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from orchestrator.mllog.reader import Record

    Expression = Callable[["Context"], Any]
    # Arguments: the context, all records of the log, and the queue of unchecked configs.
    Statement = Callable[["Context", list[Record], list[str]], None]


class Context:
    """The names of an expression: a config's state in its pass over a log, and the record."""

    __slots__ = ("record", "state")

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.record: Any = None

    def enter(self, record: Record) -> None:
        """Make `record` current."""
        self.record = record


def is_integer(value: Any) -> bool:
    return bool(abs(round(value) - value) < 0.00001)


_CALLS: dict[str, Callable[..., Any]] = {
    "is_integer": is_integer,
    "abs": abs,
    "int": int,
    "max": max,
    "min": min,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
    "is": operator.is_,
    "is not": operator.is_not,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "**": operator.pow,
    "|": operator.or_,
}


def expression(node: Any) -> Expression:
    """Return the function that evaluates `node`. It raises as the referee's expression would."""
    if not isinstance(node, list):
        return lambda context: node
    operation, *operands = node
    if operation in _ARITHMETIC:
        function, left, right = (
            _ARITHMETIC[operation],
            expression(operands[0]),
            expression(operands[1]),
        )
        return lambda context: function(left(context), right(context))
    return _BUILDERS[operation](operands)


def _compare(operands: list[Any]) -> Expression:
    first = expression(operands[0])
    if operands[1:] == ["in", ["metadata"]] and isinstance(operands[0], str):
        name = operands[0]
        return lambda context: name in context.record.metadata
    if (
        operands[0] == ["value"]
        and operands[1] == "=="
        and len(operands) == 3
        and not isinstance(operands[2], list)
    ):
        wanted = operands[2]
        return lambda context: context.record.value == wanted
    if len(operands) == 3:
        function, second = _COMPARE[operands[1]], expression(operands[2])
        return lambda context: function(first(context), second(context))
    steps = [
        (_COMPARE[name], expression(node))
        for name, node in zip(operands[1::2], operands[2::2], strict=True)
    ]

    def chain(context: Context) -> Any:
        left, result = first(context), True
        for function, node in steps:
            right = node(context)
            result = function(left, right)
            if not result:
                return result
            left = right
        return result

    return chain


def _and(operands: list[Any]) -> Expression:
    *parts, last = map(expression, operands)

    def evaluate(context: Context) -> Any:
        for part in parts:
            if not (value := part(context)):
                return value
        return last(context)

    return evaluate


def _or(operands: list[Any]) -> Expression:
    *parts, last = map(expression, operands)

    def evaluate(context: Context) -> Any:
        for part in parts:
            if value := part(context):
                return value
        return last(context)

    return evaluate


def _if(operands: list[Any]) -> Expression:
    test, then, other = map(expression, operands)
    return lambda context: then(context) if test(context) else other(context)


def _not(operands: list[Any]) -> Expression:
    operand = expression(operands[0])
    return lambda context: not operand(context)


def _list(operands: list[Any]) -> Expression:
    parts = [expression(part) for part in operands]
    return lambda context: [part(context) for part in parts]


def _call(operands: list[Any]) -> Expression:
    function, parts = _CALLS[operands[0]], [expression(part) for part in operands[1:]]
    return lambda context: function(*[part(context) for part in parts])


def _item(operands: list[Any]) -> Expression:
    container, index = map(expression, operands)
    return lambda context: container(context)[index(context)]


def _state(operands: list[Any]) -> Expression:
    name = operands[0]
    return lambda context: context.state[name]


def _state_get(operands: list[Any]) -> Expression:
    name = operands[0]
    return lambda context: context.state.get(name)


def _record(context: Context) -> dict[str, Any]:
    return {"value": context.record.value, "metadata": context.record.metadata}


_BUILDERS: dict[str, Callable[[list[Any]], Expression]] = {
    "cmp": _compare,
    "and": _and,
    "or": _or,
    "if": _if,
    "not": _not,
    "list": _list,
    "call": _call,
    "item": _item,
    "state": _state,
    "state.get": _state_get,
    "value": lambda operands: lambda context: context.record.value,
    "metadata": lambda operands: lambda context: context.record.metadata,
    "time": lambda operands: lambda context: context.record.time,
    "record": lambda operands: _record,
}


def statement(node: list[Any]) -> Statement:
    """Return the function that runs a statement. It raises as the referee's code would."""
    match node:
        case ["set", name, value]:
            return _set(name, expression(value))
        case ["update", values]:
            return _update({name: expression(value) for name, value in values.items()})
        case ["config", pattern]:
            return lambda context, records, queue: queue.append(
                pattern.format(context.record.value)
            )
        case ["when", test, body]:
            return _when(expression(test), [statement(part) for part in body])
        case ["aggregate_eval_accuracy"]:
            return lambda context, records, queue: _aggregate_eval_accuracy(records)
    raise ValueError(f"no such statement: {node}")


def _set(name: str, value: Expression) -> Statement:
    def run(context: Context, records: list[Record], queue: list[str]) -> None:
        context.state[name] = value(context)

    return run


def _update(values: dict[str, Expression]) -> Statement:
    def run(context: Context, records: list[Record], queue: list[str]) -> None:
        context.state.update({name: value(context) for name, value in values.items()})

    return run


def _when(test: Expression, body: list[Statement]) -> Statement:
    def run(context: Context, records: list[Record], queue: list[str]) -> None:
        if test(context):
            for part in body:
                part(context, records, queue)

    return run


class Condition:
    """A rule: its text in the referee's words, its node (for the message), its function."""

    __slots__ = ("holds", "node", "text")

    def __init__(self, text: str, node: Any) -> None:
        self.text = text
        self.node = node
        self.holds = expression(node)


class KeyRule:
    """A config's demands on a key."""

    __slots__ = (
        "acts",
        "after",
        "any",
        "before",
        "checks",
        "first",
        "least",
        "name",
        "once",
        "others",
        "required",
    )

    def __init__(self, name: str, raw: dict[str, Any]) -> None:
        self.name = name
        self.required: str = raw.get("required", "")
        self.others: list[str] = []
        if self.required.startswith("AT_LEAST_ONE_OR("):
            self.others = [
                other.strip() for other in self.required[len("AT_LEAST_ONE_OR(") : -1].split(",")
            ]
        self.least = 1 if self.required == "AT_LEAST_ONE" else 0
        if self.required.startswith("AT_LEAST("):
            self.least = int(self.required[len("AT_LEAST(") : -1])
        self.before = [statement(part) for part in raw.get("before", [])]
        self.checks = [Condition(*check) for check in raw.get("checks", [])]
        self.after = [statement(part) for part in raw.get("after", [])]
        self.first = Condition(*raw["first"]) if "first" in raw else None
        self.any = Condition(*raw["any"]) if "any" in raw else None
        self.acts = bool(self.before or self.checks or self.after)
        # The referee checks the first of these records only.
        self.once = "submission_" in name


class Config:
    """The rules of one file of the referee: `common`, `closed_common`, `closed_<benchmark>`, ..."""

    __slots__ = ("begin", "keys", "name")

    def __init__(self, name: str, raw: dict[str, Any]) -> None:
        self.name = name
        self.begin = [statement(part) for part in raw["begin"]]
        self.keys = {key: KeyRule(key, rule) for key, rule in raw["keys"].items()}


class Rules:
    """All rules of one round. `benchmarks`: benchmark -> number of runs."""

    def __init__(self, ruleset: str) -> None:
        raw = data("rules", ruleset)
        self.ruleset = ruleset
        self.source: str = raw["source"]
        self.benchmarks: dict[str, int] = raw["benchmarks"]
        self._raw = raw["configs"]
        self._configs: dict[str, Config] = {}

    def config(self, name: str) -> Config | None:
        """Return the round's config, or None."""
        if name not in self._configs:
            if name not in self._raw:
                return None
            self._configs[name] = Config(name, self._raw[name])
        return self._configs[name]


def data(kind: str, ruleset: str) -> dict[str, Any]:
    """Return a round's data of `kind`: shipped, or made from the installed mlperf-logging. Raises
    InputError for a round without rules."""
    if ruleset in ROUNDS:
        return packaged(kind, ruleset)
    from orchestrator.mllog.installed import made

    return made(kind, ruleset)


_LOADED: dict[str, Rules] = {}


def rules(ruleset: str) -> Rules:
    """Return the rules of a round. Raises InputError for a round without rules."""
    if ruleset not in _LOADED:
        _LOADED[ruleset] = Rules(ruleset)
    return _LOADED[ruleset]


def _aggregate_eval_accuracy(records: list[Record]) -> None:
    """Add a record per samples_count with all metrics measured there (stable_diffusion, 5.0.0)."""
    from orchestrator.mllog.reader import Record

    first: dict[Any, Record] = {}
    times: dict[Any, float] = {}
    values: dict[Any, dict[Any, Any]] = {}
    for record in records:
        if record.key == "eval_accuracy" and "metric" in record.metadata:
            samples = record.metadata["samples_count"]
            first.setdefault(samples, record)
            times[samples] = max(record.time, times.get(samples, record.time))
            metrics = values.setdefault(samples, {"samples_count": samples})
            metrics[record.metadata["metric"]] = record.value
    key = "aggregated_eval_accuracy"
    records += [
        Record(times[samples], key, values[samples], {}, 0, record.offset, record.lines)
        for samples, record in first.items()
    ]
