"""What `--json` printed, held against generated/schemas/outputs.json: nothing is missing, and nothing is there that it does not describe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).resolve().parent.parent / "orchestrator/generated/schemas/outputs.json"
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


@cache
def parts() -> dict[str, Any]:
    return dict(json.loads(SCHEMA.read_text())["$defs"])


def _fits(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and not (
        isinstance(value, bool) and name in ("integer", "number")
    )


def wrong(value: Any, schema: dict[str, Any], place: str = "") -> Iterator[str]:
    """Yield what of a value is not as its schema says: the words that tools/json_outputs.py uses of JSON Schema, and no more members."""
    if "$ref" in schema:
        yield from wrong(value, parts()[schema["$ref"].removeprefix("#/$defs/")], place)
        return
    if "anyOf" in schema:
        if all(list(wrong(value, choice, place)) for choice in schema["anyOf"]):
            yield f"{place}: {str(value)[:100]} is none of {schema['anyOf']}"
            problems = [list(wrong(value, choice, place)) for choice in schema["anyOf"]]
            yield from min(problems, key=len)
        return
    if "const" in schema and value != schema["const"]:
        yield f"{place}: {value!r}, not {schema['const']!r}"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(_fits(value, choice) for choice in kinds):
        yield f"{place}: {str(value)[:100]!r} is not {' or '.join(kinds)}"
    elif isinstance(value, list):
        for index, choice in enumerate(value):
            yield from wrong(choice, schema.get("items", {}), f"{place}[{index}]")
    elif isinstance(value, dict) and kinds:
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (
            f"{place}: there is no {name}"
            for name in schema.get("required", ())
            if name not in value
        )
        for name, choice in value.items():
            if name in known or others is not None:
                yield from wrong(choice, known.get(name, others), f"{place}.{name}")
            else:
                yield f"{place}.{name} is not described"


def _no_number(text: str) -> float:
    raise AssertionError(f"{text} is not JSON")


def checked(text: str) -> dict[str, Any]:
    """Return the one object that a command printed; it is of a kind that is described, and as described."""
    output = json.loads(text, parse_constant=_no_number)
    assert list(output)[:2] == ["schema", "kind"], list(output)
    assert not list(wrong(output, parts()[f"output:{output['kind']}"], output["kind"]))
    return dict(output)
