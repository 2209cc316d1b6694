"""Read YAML with the file and line of every value, for messages.

Anchors, aliases, merge keys, tags and repeated keys are refused (shared values belong in the
workload's rounds and in systems/shared/). Scalars follow YAML 1.2: `off`, `no` and `60:00:00` are
text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.errors import DescriptorError, Fix, did_you_mean
from orchestrator.onnode.kernel.regular import read_bytes
from orchestrator.resources import data_dir
from orchestrator.words import quoted

MAX_BYTES = 1_000_000
MAX_DEPTH = 20

Key = tuple[str | int, ...]

_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}


class Problem(NamedTuple):
    """A problem in a document, or an option (line 0). `key`: as by `key_text`; "" is the document,
    or the option's whole value."""

    path: str
    line: int
    key: str
    text: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.key}: {self.text}" if self.key else f"{place}: {self.text}"


@dataclass
class Document:
    """A YAML file's data, and the line (from 1) of every key and list item."""

    path: Path
    data: Any = None
    lines: dict[Key, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    homes: dict[Key, tuple[Document, Key]] = field(default_factory=dict)
    """If the document extends another: key -> document, and the key there."""
    typed: list[Key] = field(default_factory=list)
    """Keys with values from the command line."""
    option: str = "--override"
    """The option that gave them."""

    def origin(self, key: Key) -> tuple[Document, Key]:
        """Return the document and key where `key`, or its nearest existing parent, was written."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.homes.get(key, (self, key))

    def line(self, key: Key) -> int:
        home, there = self.origin(key)
        return home.lines.get(there, 1)

    @cached_property
    def shown_path(self) -> str:
        """The path for people, resolved once."""
        return shown(self.path)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the file, and those that it extends."""
        return tuple(dict.fromkeys([self.path, *(home.path for home, _ in self.homes.values())]))

    def add(self, key: Key, text: str) -> None:
        """Report a problem where `key` was written."""
        typed = next((given for given in self.typed if key[: len(given)] == given), ())
        if typed:
            below = key_text(key) if key != typed else ""
            self.problems.append(
                Problem(f"{self.option} {'.'.join(map(str, typed))}", 0, below, text)
            )
            return
        home, _ = self.origin(key)
        if home.path != self.path:
            text = f"{text} (inherited by {self.shown_path})"
        self.problems.append(Problem(home.shown_path, self.line(key), key_text(key), text))

    def put(self, key: Key, value: Any, option: str) -> None:
        """Replace a value by that of a command line's `option`."""
        below = self.data
        for part in key[:-1]:
            if not isinstance(below.get(part), dict):
                below[part] = {}
            below = below[part]
        below[key[-1]] = value
        self.typed.append(key)
        self.option = option

    def check(self, hint: str = "") -> None:
        """Raise DescriptorError with every problem so far, by line."""
        if self.problems:
            problems = sorted(set(self.problems))
            if any(problem.path.startswith(self.option) for problem in problems):
                raise DescriptorError(problems, hint=hint, fix=Fix("orchestrator docs keys"))
            raise problems_with_place(problems, hint)


def problems_with_place(problems: Sequence[Problem], hint: str) -> DescriptorError:
    """Return the error with the command that opens its first problem. Problems of missing,
    unreadable or shipped files come last."""
    problems = sorted(problems, key=lambda problem: not _is_editable(problem))
    first, fix = problems[0], None
    if _is_editable(first):
        fix = Fix(f"${{EDITOR:-vi}} +{first.line} {quoted(first.path)}")
    return DescriptorError(problems, hint=hint, fix=fix)


def _is_editable(problem: Problem) -> bool:
    path = Path(os.path.realpath(problem.path))  # never raises, even for circles of links
    shipped = (data_dir(kind).resolve() for kind in ("systems", "workloads"))
    inside = any(path.is_relative_to(folder) for folder in shipped)
    return path.is_file() and os.access(path, os.R_OK) and not inside


def shown(path: Path) -> str:
    """Return `path` for people: relative if below the current folder."""
    try:
        return str(Path(os.path.realpath(path)).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def key_text(key: Key) -> str:
    """Format ("data", "flux1", 0) as `data.flux1[0]`."""
    text = ""
    for part in key:
        text += (
            f"[{part}]"
            if isinstance(part, int)
            else f".{_printable(part)}"
            if text
            else _printable(part)
        )
    return text


def _printable(part: str) -> str:
    return part if part.isprintable() and part else repr(part)


def read(path: Path) -> Document:
    """Read a mapping. Raises DescriptorError for anything else."""
    document = Document(path)
    return _parsed(document, _text(document))


def parsed(path: Path, text: str) -> Document:
    """Parse `text` as the content of `path`."""
    return _parsed(Document(path), text)


def _parsed(document: Document, text: str) -> Document:
    _build(document, text)
    if not document.problems and not isinstance(document.data, dict):
        document.add((), _not_a_mapping(document.data))
    document.check()
    return document


def override(
    document: Document, given: Iterable[tuple[str, str]], option: str = "--override"
) -> None:
    """Replace values: `a.b` and YAML, such as `[x, y]`. Raises DescriptorError."""
    for name, text in given:
        value = Document(Path(f"{option} {name}"))
        _build(value, text)
        value.check()
        document.put(tuple(name.split(".")), value.data, option)


def folders_in(document: Document) -> list[Path]:
    """Return the paths in `systems_dirs` of an unchecked site document."""
    given = document.data.get("systems_dirs")
    return (
        [Path(folder) for folder in given if isinstance(folder, str)]
        if isinstance(given, list)
        else []
    )


def _not_a_mapping(data: object) -> str:
    if data is None:
        return "the file is empty; a descriptor is a mapping that starts with `kind:`"
    return (
        f"the file holds {kind_of(data)}, not a mapping of keys; a descriptor starts with `kind:`"
    )


def kind_of(data: object) -> str:
    """Name the type of `data` for people."""
    if data is None:
        return "nothing"
    names = {
        bool: "true/false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a mapping",
    }
    return names.get(type(data), "something else")


def _text(document: Document) -> str:
    try:
        raw = read_bytes(document.path, MAX_BYTES)
    except OSError as error:
        document.add((), _cannot_read(document.path, error))
        document.check()
        raise
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        document.lines[()] = line
        document.add((), f"byte 0x{raw[error.start]:02x} is not UTF-8; save the file as UTF-8")
        return ""


def _cannot_read(path: Path, error: OSError) -> str:
    if path.is_dir():
        return "this is a folder, not a YAML file"
    if not isinstance(error, FileNotFoundError):
        return f"cannot be read: {error.strerror}"
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    meant = did_you_mean(path.name, beside, before=f'"{path.parent}/')
    return f"there is no such file{meant}"


def _build(document: Document, text: str) -> None:
    import yaml

    if document.problems:
        return
    loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    try:
        events = yaml.parse(text, Loader=loader)
        _Builder(document, events).run()
    except yaml.reader.ReaderError as error:
        document.lines[()] = text.count("\n", 0, max(int(error.position), 0)) + 1
        document.add((), f"character {_code(error.character)} is not allowed in YAML")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, reason = _syntax(error, text, mark.line if mark else 0)
        document.lines[()] = line + 1
        document.add((), reason)


def _code(character: object) -> str:
    """Format a character, or yaml's number for it, as `U+0007`."""
    is_character = isinstance(character, str) and len(character) == 1
    return f"U+{ord(str(character)) if is_character else int(str(character)):04X}"


_UNCLOSED = {
    "while parsing a flow sequence": "the list that starts here with `[` lacks a `,` or its `]`",
    "while parsing a flow mapping": "the mapping that starts here with `{` lacks a `,` or its `}`",
    "while scanning a quoted scalar": "the text that starts here lacks its closing quote",
    "while scanning a simple key": "this line is no `key: value`; the `:` is missing",
}
"""The parser's context -> problem of its first line; the parser notices it later."""


def _syntax(error: Any, text: str, line: int) -> tuple[int, str]:
    """Return line (from 0) and problem."""
    lines = text.splitlines()
    near = lines[max(line - 1, 0) : line + 1]
    if any("\t" in line[: len(line) - len(line.lstrip())] for line in near):
        return line, "a tab stands in the indentation; YAML needs blanks there"
    plain = _UNCLOSED.get(error.context or "")
    if plain and error.context_mark:
        return error.context_mark.line, f"this is not valid YAML: {plain}"
    reason = " ".join(part for part in (error.context, error.problem) if part)
    return line, f"this is not valid YAML: {reason}"


class _Refused(Exception):
    """The document uses refused YAML; the problem is reported."""


class _Builder:
    """Builds data and lines from the YAML parser's events."""

    def __init__(self, document: Document, events: Iterator[Any]) -> None:
        self.document = document
        self.events = events

    def run(self) -> None:
        """Build the first document; report a second as a problem."""
        from yaml.events import DocumentStartEvent

        documents = 0
        try:
            for event in self.events:
                if isinstance(event, DocumentStartEvent):
                    documents += 1
                    if documents > 1:
                        self.refuse(
                            (),
                            event,
                            "a second document starts here; one file holds one descriptor",
                        )
                    self.document.data = self.value((), next(self.events))
        except _Refused:
            return

    def refuse(self, key: Key, event: Any, what: str) -> None:
        self.document.lines[key] = event.start_mark.line + 1
        self.document.add(key, what)
        raise _Refused

    def value(self, key: Key, event: Any) -> Any:
        from yaml.events import AliasEvent, MappingStartEvent, SequenceStartEvent

        self.document.lines.setdefault(key, event.start_mark.line + 1)
        if isinstance(event, AliasEvent) or event.anchor:
            self.refuse(
                key,
                event,
                "anchors (&name) and aliases (*name) are not accepted; "
                "shared values belong into a workload round or systems/shared/",
            )
        if len(key) > MAX_DEPTH:
            self.refuse(key[:3], event, f"nested deeper than {MAX_DEPTH} levels")
        if event.tag and event.tag != "!":
            self.refuse(key, event, f"the tag {event.tag} is not accepted; write a plain value")
        if isinstance(event, MappingStartEvent):
            return self.mapping(key)
        if isinstance(event, SequenceStartEvent):
            return self.sequence(key)
        return event.value if event.style else scalar(event.value)

    def sequence(self, key: Key) -> list[Any]:
        from yaml.events import SequenceEndEvent

        items: list[Any] = []
        while not isinstance(event := next(self.events), SequenceEndEvent):
            items.append(self.value((*key, len(items)), event))
        return items

    def mapping(self, key: Key) -> dict[str, Any]:
        from yaml.events import MappingEndEvent

        data: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            name = self.name(key, event)
            here = (*key, name)
            if name in data:
                self.document.add(
                    here,
                    f"stands twice, again in line {event.start_mark.line + 1}; only one of them "
                    "can hold",
                )
            self.document.lines.setdefault(here, event.start_mark.line + 1)
            data[name] = self.value(here, next(self.events))
        return data

    def name(self, key: Key, event: Any) -> str:
        from yaml.events import ScalarEvent

        if not isinstance(event, ScalarEvent) or event.anchor or event.tag:
            self.refuse(key, event, "a key must be plain text")
        if event.value == "<<" and not event.style:
            self.refuse(
                (*key, "<<"),
                event,
                "merge keys are not accepted; write the values where they apply",
            )
        return str(event.value)


def scalar(text: str) -> Any:
    """Return the value of a plain (unquoted) scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE.fullmatch(text) and len(text) < 30:
        return int(text)
    if _NUMBER.fullmatch(text) and len(text) < 30:
        return float(text)
    return text
