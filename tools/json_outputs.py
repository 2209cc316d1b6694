"""JSON Schema and page (docs/reference/json.md) of `--json`, from tools/json_outputs.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).with_suffix(".yaml")
DRAFT = "https://json-schema.org/draft/2020-12/schema"
PLAIN = {"text": "string", "int": "integer", "number": "number", "bool": "boolean"}
ABOUT = ("from", "about", "like", "like?")
VERSION = 1
"""As orchestrator/cli/output.py prints it; a test compares."""


@cache
def described() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts and the outputs, by name."""
    document = yaml.safe_load(SOURCE.read_text())
    return document["parts"], document["outputs"]


def members(shape: dict[str, Any]) -> Iterator[tuple[str, bool, str, str]]:
    """Yield name, whether it is always there, type and text of every member of a part or an output."""
    parts, _ = described()
    for name, text in shape.items():
        if name in ("like", "like?"):
            names = {member.rstrip("?") for member in shape}
            liked = (member for member in members(parts[text]) if member[0] not in names)
            yield from (
                (member, need and name == "like", kind, about)
                for member, need, kind, about in liked
            )
        elif name not in ABOUT:
            kind, _, about = text.partition(" | ")
            yield name.rstrip("?"), not name.endswith("?"), kind, about


def type_schema(kind: str) -> dict[str, Any]:
    if kind.endswith("?"):
        inner = type_schema(kind[:-1])
        simple = isinstance(inner.get("type"), str)
        return (
            inner | {"type": [inner["type"], "null"]}
            if simple
            else {"anyOf": [inner, {"type": "null"}]}
        )
    if kind.endswith("[]"):
        return {"type": "array", "items": type_schema(kind[:-2])}
    if kind.endswith("{}"):
        return {"type": "object", "additionalProperties": type_schema(kind[:-2])}
    if kind == "any":
        return {}
    return {"type": PLAIN[kind]} if kind in PLAIN else {"$ref": f"#/$defs/{kind}"}


def shape_schema(shape: dict[str, Any], first: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of a part or an output; `first` are properties that stand before its own."""
    described = list(members(shape))
    properties = {
        name: type_schema(kind) | {"description": text} for name, _, kind, text in described
    }
    required = [*(first or {}), *(name for name, need, *_ in described if need)]
    return {"type": "object", "properties": {**(first or {}), **properties}, "required": required}


def outputs_schema() -> dict[str, Any]:
    """Return the schema of all outputs: what is printed fits `$defs/output:KIND`, and so one of them."""
    parts, outputs = described()
    kinds = {}
    for kind, shape in outputs.items():
        first = {
            "schema": {"const": VERSION, "description": "version of all outputs"},
            "kind": {"const": kind, "description": "which of them this is"},
        }
        title = f"orchestrator {shape['from']}"
        kinds[f"output:{kind}"] = {
            "title": title,
            "description": shape["about"],
            **shape_schema(shape, first),
        }
    return {
        "$schema": DRAFT,
        "title": "orchestrator --json",
        "description": "What commands print with --json: one object that says its kind.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in kinds],
        "$defs": {name: shape_schema(shape) for name, shape in parts.items()} | kinds,
    }


# ---- the page ----


def type_words(kind: str) -> str:
    """Return a type as TypeScript writes it: `string?` may be null, `[]` is a list, `{}` a map."""
    plain = {"text": "string", "int": "integer", "bool": "boolean"}
    name = kind.rstrip("?[]{}")
    return plain.get(name, name) + kind.removeprefix(name)


def _block(shape: dict[str, Any]) -> list[str]:
    """Return the members of a part or an output as a block of text: name, type, meaning."""
    rows = []
    for name, text in shape.items():
        if name in ("like", "like?"):
            rows.append((f"...{text}{'?' if name == 'like?' else ''}", "", ""))
        elif name not in ABOUT:
            kind, _, about = text.partition(" | ")
            rows.append((name, type_words(kind), "" if _repeats(about, name) else about))
    wide = [max(len(row[n]) for row in rows) for n in (0, 1)]
    lines = [f"{name:{wide[0]}}  {kind:{wide[1]}}  {about}".rstrip() for name, kind, about in rows]
    return ["```text", *lines, "```", ""]


def _repeats(about: str, name: str) -> bool:
    """Return whether a description has no word that the member's name lacks."""
    plain = set(re.findall(r"\w+", about.lower())) - {"the", "a", "its", "of"}
    return plain <= set(name.rstrip("?").split("_"))


def outputs_page(made: str) -> str:
    parts, outputs = described()
    lines = [
        "# JSON output",
        "",
        made,
        "With `--json` every command prints one JSON object; `watch` prints one per line. `kind` names its members below.",
        "`schema` is the version of all outputs, 1; it rises if a member goes or changes its type. New members may come:",
        "ignore the unknown ones. An error is an object of kind `error` on one line; the exit code is the same without `--json`.",
        "",
        "```json",
        '{"schema": 1, "kind": "error", "error": {"code": 2, "message": "there is no system \'x\'", "hint": "...", "fix": "..."}}',
        "```",
        "",
        "`orchestrator systems schema outputs` prints the JSON Schema: an output of the kind K fits `$defs/output:K`.",
        "",
        "The member `name?` may be missing, a value of type `integer?` null. `score[]` is a list, `score{}` a map by name, of the",
        "[part](#parts) `score`; `...set` stands for all members of the part `set`. Names end in their unit: `_s` seconds,",
        "`_minutes`, `_ms` milliseconds since 1970.",
        "",
    ]
    for kind, shape in outputs.items():
        lines += [
            f"## {kind}",
            "",
            f"`{shape['from']}`: {linked(shape['about'])}",
            "",
            *_block(shape),
        ]
    lines += ["## Parts", ""]
    for name, shape in sorted(parts.items()):
        lines += [f"### part {name}", "", *_block(shape)]
    return "\n".join(lines).rstrip() + "\n"


def linked(text: str) -> str:
    return re.sub(r"\b([\w-]+\.md)\b", r"[\1](../\1)", text)
