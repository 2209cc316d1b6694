"""Explanations of findings: messages only, never a verdict."""

from __future__ import annotations

from orchestrator.mllog.rules import Condition, Context, KeyRule, Rules, expression
from orchestrator.words import count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orchestrator.mllog.reader import Log, Record

_ORDER = {
    "init_stopped": "init_stop",
    "init_started": "init_start",
    "run_started": "run_start",
    "run_stopped": "run_stop",
}
_COMPARED = {
    "==": "must be",
    "!=": "must not be",
    "<": "must be below",
    "<=": "must be at most",
    ">": "must be above",
    ">=": "must be at least",
    "in": "must be one of",
}


def shown(value: Any) -> str:
    """Return a value as JSON-like text, short enough for a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def broken(node: Any, context: Context) -> str:
    """Return why the condition `node` does not hold for the record in `context`."""
    try:
        return _broken(node, context)
    except Exception as error:  # a message about arbitrary log content must never fail itself
        return f"the rule does not hold for {shown(context.record.value)} ({error})"


def _broken(node: Any, context: Context) -> str:
    match node:
        case ["not", ["state", name]]:
            return f"it stands after `{_ORDER.get(name, name)}`, and must stand before it"
        case ["state", name] | ["cmp", ["state", name], "==", True]:
            return f"there is no `{_ORDER.get(name, name)}` before it"
        case ["cmp", ["value"], "!=", ""]:
            return "the value is empty"
        case ["cmp", ["value"], operator, wanted]:
            return (
                f"the value is {shown(context.record.value)} and "
                f"{_wanted(operator, wanted, context)}"
            )
        case ["cmp", str(name), "in", ["metadata"]]:
            return f"its metadata has no `{name}`"
        case ["|", ["cmp", str(name), "in", ["metadata"]], ["cmp", str(other), "in", ["metadata"]]]:
            return f"its metadata has neither `{name}` nor `{other}`"
        case ["cmp", ["-", ["time"], ["state", "first_init_start"]], "<", limit]:
            minutes = (context.record.time - context.state["first_init_start"]) / 60000
            return (
                f"initialisation took {minutes:.1f} minutes from the first `init_start`; "
                f"less than {expression(limit)(context) / 60000:.0f} are allowed"
            )
        case ["if", ["cmp", _, "in", ["metadata"]], inner, True]:
            return _broken(inner, context)
        case ["cmp", ["item", ["metadata"], name], operator, wanted]:
            return (
                f"its {name} is {shown(context.record.metadata[name])} and "
                f"{_wanted(operator, wanted, context)}"
            )
        case ["and", *parts]:
            return _broken(next(part for part in parts if not expression(part)(context)), context)
        case ["call", "is_integer", ["value"]]:
            return f"the value is {shown(context.record.value)} and must be a whole number"
    return f"the value {shown(context.record.value)} does not fit: {formula(node, context)}"


def _wanted(operator: str, node: Any, context: Context) -> str:
    if operator == "in":
        return f"must be one of {', '.join(str(item) for item in expression(node)(context))}"
    value = expression(node)(context)
    source = "" if not isinstance(node, list) else f" ({formula(node, context)})"
    return f"{_COMPARED.get(operator, operator)} {shown(value)}{source}"


def formula(node: Any, context: Context | None = None) -> str:
    """Return an expression for people, with the names of the rules' variables."""
    match node:
        case ["value"]:
            return "value"
        case ["metadata"]:
            return "metadata"
        case ["state", name] | ["state.get", name]:
            known = context.state.get(name) if context else None
            return name if known is None else f"{name} {shown(known)}"
        case ["cmp", first, *rest]:
            parts = [
                formula(part, context) if index % 2 else part for index, part in enumerate(rest)
            ]
            return " ".join([formula(first, context), *parts])
        case ["call", name, *arguments]:
            listed = ", ".join(formula(argument, context) for argument in arguments)
            return f"{name.removeprefix('math.')}({listed})"
        case ["item", container, index]:
            return f"{formula(container, context)}.{index}"
        case ["and" | "or" as word, *parts]:
            return f" {word} ".join(formula(part, context) for part in parts)
        case ["+" | "-" | "*" | "/" | "%" | "**" as sign, left, right]:
            return f"{_operand(left, context)} {sign} {_operand(right, context)}"
    return str(node)


def _operand(node: Any, context: Context | None) -> str:
    text = formula(node, context)
    return (
        f"({text})"
        if isinstance(node, list) and node[0] in ("+", "-", "*", "/", "%", "**")
        else text
    )


def not_applicable(condition: Condition, context: Context, error: Exception) -> str:
    """Return that a rule's expression failed, usually for a wrong type, or a variable of an earlier
    record."""
    if isinstance(error, KeyError) and error.args and error.args[0] not in context.state:
        return (
            f"the rule `{formula(condition.node)}` needs `{error.args[0]}`, which is not logged "
            "before this record"
        )
    return (
        f"the rule `{formula(condition.node)}` cannot be applied to "
        f"{shown(context.record.value)}: {error}"
    )


def target_missed(rule: KeyRule, records: list[Record]) -> str:
    last = records[-1]
    return (
        f"none of {count(len(records), 'evaluation')} meets the target "
        f"({formula(rule.any.node) if rule.any else ''}); "
        f"the last value is {shown(last.value)}"
    )


def none_of(keys: list[str]) -> str:
    return f"at least one of {' or '.join(f'`{key}`' for key in keys)} must be logged, and none is"


def different_values(log: Log, records: list[Record]) -> str:
    lines = log.lines(list(records[:4]))
    places = [
        f"{shown(record.value)} in line {line}"
        for record, line in zip(records, lines, strict=False)
    ]
    more = f" and {len(records) - 4} more" if len(records) > 4 else ""
    return (
        f"it must be logged exactly once, and is {len(records)} times with different values: "
        f"{', '.join(places)}{more}"
    )


def no_rules(config: str, rules: Rules) -> str:
    """Return that the round has no such division or benchmark."""
    division, _, benchmark = config.partition("_")
    if benchmark == "common":
        return (
            f"the division is `{division}`; it must be `closed` or `open` (mlperf-logging stops "
            "here)"
        )
    return (
        f"the benchmark is `{benchmark}`; round {rules.ruleset} has "
        f"{', '.join(sorted(rules.benchmarks))} "
        "(mlperf-logging has no rules for it and stops)"
    )


def endless(config: str) -> str:
    benchmark = config.partition("_")[2]
    return f"the benchmark is `{benchmark}`, with which mlperf-logging never ends"
