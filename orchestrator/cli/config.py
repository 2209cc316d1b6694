"""Show the site file in use, its source, and its values with their lines; with --all also every
default. With --set write a value into the file, where it holds for all commands (`--override` of
other commands: for one); its comments stay.

The site file is that of --site, else of $ORCHESTRATOR_SITE, else ./site.yaml (not another user's),
else ~/.config/orchestrator/site.yaml. Values in options of other programs
are not shown (`--export=...`): they can be secrets.

example:
  orchestrator config
  orchestrator config --all
  orchestrator config --set data.flux1.DATADIR               # asks for the folder
  orchestrator config --set partition=batch --set spares=2
  orchestrator config --site /shared/mlperf/site.yaml --json
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.cli.arguments import add_flag, add_json, add_option, add_site, site_value
from orchestrator.cli.command import Command
from orchestrator.cli.debug import without_values
from orchestrator.cli.finding import find_site_and_source, need_site
from orchestrator.cli.output import ask, note, print_json, print_parts
from orchestrator.errors import ExitCode, UsageError
from orchestrator.views.parts import FactList, Table
from orchestrator.words import quoted

if TYPE_CHECKING:
    from orchestrator.model.part import DocumentPart
    from orchestrator.model.source import Document, Key

DEFAULT = "default"


class Value(NamedTuple):
    """`line` in the site file; 0 for a default."""

    key: str
    value: Any
    line: int


def add_arguments(parser: ArgumentParser) -> None:
    add_flag(parser, "--all", "also keys that the site file leaves at their default")
    add_option(
        parser,
        "--set",
        "KEY[=VALUE]",
        "write a value into the site file; without =VALUE ask for it; may be repeated",
        dest="wanted",
        action="append",
        type=_key_and_value,
        default=[],
    )
    add_site(parser)
    add_json(parser)


def run(args: Namespace) -> int:
    from orchestrator.model.sites import site_of
    from orchestrator.model.source import read

    path, source = find_site_and_source(args.site)
    path = (path or need_site(args.site)).absolute()
    if args.wanted:
        _set(path, args.wanted)
    document = read(path)
    site = site_of(document, [])
    values = [value for value in _values(site, document, ()) if args.all or value.line]
    if args.wanted:
        keys = [key for key, _ in args.wanted]
        values = [
            value for value in values if any(f"{value.key}.".startswith(f"{key}.") for key in keys)
        ]
    if args.json:
        members = [
            {**value._asdict(), "origin": "site file" if value.line else DEFAULT}
            for value in values
        ]
        print_json("config", {"site": str(path), "source": source, "values": members})
        return ExitCode.OK
    rows = [_row(value, path) for value in values]
    print_parts(
        [
            FactList([("site file", str(path)), ("from", source)]),
            Table("Values", ("key", "value", "from"), rows),
        ]
    )
    return ExitCode.OK


def _key_and_value(text: str) -> tuple[str, str | None]:
    return site_value(text) if "=" in text else (site_value(f"{text}=")[0], None)


def _set(path: Path, wanted: Sequence[tuple[str, str | None]]) -> None:
    from orchestrator.site.edit import set_values

    given = [(key, _asked(path, key) if value is None else value) for key, value in wanted]
    set_values(path, given)


def _asked(path: Path, key: str) -> str:
    """Return a key's value as YAML, from the user."""
    from orchestrator.model import load_site
    from orchestrator.model.prerequisites import likely_folder
    from orchestrator.resources import user_path
    from orchestrator.site.data_folders import question
    from orchestrator.site.site_file import yaml_value

    section, workload, variable = [*key.split("."), "", ""][:3]
    is_folder = section == "data" and key.count(".") == 2
    if is_folder:
        likely = likely_folder(load_site(path), workload, variable, os.environ)
        answer = ask(question(workload, variable), likely)
    else:
        answer = ask(f"value of {key}")
    if not answer:
        raise UsageError(f"no value was given for {key}", hint=f"--set {quoted(f'{key}=')}VALUE")
    if not is_folder:
        return answer
    folder = str(user_path(answer))
    if not os.path.isdir(folder):
        note(f"note: {folder} does not exist here")
    return yaml_value(folder)


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

    def plain(item: Any) -> Any:
        if isinstance(item, DocumentPart):
            return item.model_dump(mode="json", exclude_defaults=True)
        if isinstance(item, list | tuple):
            return [plain(inner) for inner in item]
        if item is not None and not isinstance(item, str | int | float | dict):
            return str(item)  # a value of `env`
        # Documents take no secrets; options of other programs can hold some.
        return without_values(item) if isinstance(item, str) and item.startswith("-") else item

    return Value(key_text(key), plain(value), document.line(key) if _is_given(document, key) else 0)


def _is_given(document: Document, key: Key) -> bool:
    data: Any = document.data
    for name in key:
        if not isinstance(data, dict) or name not in data:
            return False
        data = data[name]
    return True


def _row(value: Value, path: Path) -> tuple[str, str, str]:
    content = value.value
    empty = content is None or content in ("", [], {})
    text = "-" if empty else content if isinstance(content, str) else json.dumps(content)
    return value.key, text, f"{path.name}:{value.line}" if value.line else DEFAULT


COMMAND = Command(
    "config",
    __doc__,
    add_arguments,
    run,
)
