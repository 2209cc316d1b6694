"""Show the site file in use, its source, and its values with their lines; with --all also every
default.

The site file is that of --site, else of $ORCHESTRATOR_SITE, else ./site.yaml (not another user's),
else ~/.config/orchestrator/site.yaml. Values in options of other programs
are not shown (`--export=...`): they can be secrets.

example:
  orchestrator config
  orchestrator config --all
  orchestrator config --site /shared/mlperf/site.yaml --json
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.cli.arguments import add_flag, add_json, add_site
from orchestrator.cli.command import Command
from orchestrator.cli.debug import without_values
from orchestrator.cli.finding import find_site_and_source, need_site
from orchestrator.cli.output import print_facts, print_json, print_table
from orchestrator.errors import ExitCode
from orchestrator.words import TextTable

if TYPE_CHECKING:
    from orchestrator.model.part import DocumentPart
    from orchestrator.model.source import Document, Key

VALUES = TextTable("KEY", "VALUE", "FROM", states=())
DEFAULT = "default"


class Value(NamedTuple):
    """`line` in the site file; 0 for a default."""

    key: str
    value: Any
    line: int


def add_arguments(parser: ArgumentParser) -> None:
    add_flag(parser, "--all", "also keys that the site file leaves at their default")
    add_site(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.model.sites import site_of
    from orchestrator.model.source import read

    path, source = find_site_and_source(args.site)
    path = (path or need_site(args.site)).absolute()
    document = read(path)
    site = site_of(document, [])
    found = [one for one in _values(site, document, ()) if args.all or one.line]
    if args.json:
        values = [
            {**one._asdict(), "origin": "site file" if one.line else DEFAULT} for one in found
        ]
        print_json("config", {"site": str(path), "source": source, "values": values})
        return ExitCode.OK
    print_facts([("site file", str(path)), ("from", source)])
    print()
    print_table(VALUES, [_row(one, path) for one in found])
    return ExitCode.OK


def _values(part: DocumentPart, document: Document, above: Key) -> Iterator[Value]:
    from orchestrator.model.part import DocumentPart

    for name in type(part).model_fields:
        value, key = getattr(part, name), (*above, name)
        if isinstance(value, DocumentPart):
            yield from _values(value, document, key)
        elif isinstance(value, dict) and value:
            yield from _entries(value, document, key)
        else:
            yield _value(document, key, value)


def _entries(mapping: dict[str, Any], document: Document, above: Key) -> Iterator[Value]:
    for name, value in mapping.items():
        key = (*above, name)
        if isinstance(value, dict) and value:
            yield from _entries(value, document, key)
        else:
            yield _value(document, key, value)


def _value(document: Document, key: Key, value: Any) -> Value:
    from orchestrator.model.part import DocumentPart
    from orchestrator.model.source import key_text

    def plain(one: Any) -> Any:
        if isinstance(one, DocumentPart):
            return one.model_dump(mode="json", exclude_defaults=True)
        if isinstance(one, list | tuple):
            return [plain(inner) for inner in one]
        if one is not None and not isinstance(one, str | int | float | dict):
            return str(one)  # a value of `env`
        # Documents take no secrets; options of other programs can hold some.
        return without_values(one) if isinstance(one, str) and one.startswith("-") else one

    return Value(key_text(key), plain(value), document.line(key) if _is_given(document, key) else 0)


def _is_given(document: Document, key: Key) -> bool:
    data: Any = document.data
    for name in key:
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


def _row(one: Value, path: Path) -> tuple[str, str, str]:
    empty = one.value is None or one.value in ("", [], {})
    text = "-" if empty else one.value if isinstance(one.value, str) else json.dumps(one.value)
    return one.key, text, f"{path.name}:{one.line}" if one.line else DEFAULT


COMMAND = Command(
    "config",
    __doc__,
    add_arguments,
    run,
)
