"""Node names in Slurm's notation, `a,b` or `node[01-08]`, and with an address.

An address follows the name: `n1=ssh://me@host:2222`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.errors import UsageError
from orchestrator.onnode.kernel.node_names import fold as fold
from orchestrator.onnode.kernel.regular import read_bytes
from orchestrator.resources import user_path

MAX_NODES = 10_000

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_ADDRESS = re.compile(r"(unix:///[^\s,]+|(ssh|tcp)://[^\s,/]+)")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node, with an `address` if its name does not reach it.

    `ssh://[user@]host[:port]`, or `unix:///socket` or `tcp://host:port` of its container engine.
    """

    name: str
    address: str = ""

    def __str__(self) -> str:
        return self.name


def parse_nodes(text: str) -> list[NamedNode]:
    """Return the nodes in `text`. Raises UsageError for wrong, missing or repeated names."""
    nodes = [node for item in _items(text) for node in _nodes_of(item)]
    if not nodes:
        raise UsageError(
            f"{text!r} names no node", hint="write names such as node1,node2 or node[1-8]"
        )
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise UsageError(f"node {node.name} stands twice in {text!r}")
        seen.add(node.name)
    return nodes


def for_commands(nodes: list[NamedNode]) -> list[NamedNode]:
    """Raise UsageError for an address other than SSH."""
    for node in nodes:
        if node.address and not node.address.startswith("ssh://"):
            raise UsageError(
                f"node {node}: {node.address} is not an SSH address",
                hint="accepted: NAME=ssh://[user@]host[:port]",
            )
    return nodes


def expand(text: str) -> list[str]:
    """Expand `n[1-3],m` to n1 n2 n3 m. Raises UsageError."""
    return [name for item in _items(text) for name in _names_of(item)]


def expand_all(texts: Iterable[str]) -> list[str]:
    """Expand texts, without repeated names."""
    return list(dict.fromkeys(name for text in texts for name in expand(text)))


def names_given(text: str, option: str) -> list[str]:
    """Return the names in an option's value: a list for expand(), or @FILE with such lines, `#` for
    comments. Raises UsageError."""
    if not text.startswith("@"):
        names = expand_all([text])
        if not names:
            raise UsageError(
                f"{option}: {text!r} names no node",
                hint="write names such as node1,node2 or node[1-4,7]",
            )
        return names
    path = user_path(text[1:])
    try:
        lines = read_bytes(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise UsageError(
            f"{option}: {path}: {reason}", hint="@FILE names a file with one node a line"
        ) from error
    names = []
    for number, line in enumerate(lines, 1):
        try:
            names += expand(line.partition("#")[0])
        except UsageError as error:
            raise UsageError(
                f"{option}: {path}:{number}: {error.message}", hint=error.hint
            ) from error
    return list(dict.fromkeys(names))


def _nodes_of(word: str) -> list[NamedNode]:
    name, equals, address = word.partition("=")
    if not equals:
        return [NamedNode(expanded) for expanded in _names_of(word)]
    if not _ADDRESS.fullmatch(address) or not _has_port(address):
        raise UsageError(
            f"{word!r}: {address!r} is not an address",
            hint="accepted: NAME=ssh://[user@]host[:port], NAME=unix:///path/of/the/engine.sock",
        )
    return [NamedNode(_checked(name, word), address)]


def _has_port(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return address.startswith("unix:") or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        return False


def _items(text: str) -> list[str]:
    """Split at commas and blanks outside brackets."""
    items = [""]
    depth = 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character in ", \t\n" and depth <= 0:
            items.append("")
        else:
            items[-1] += character
    return [item for item in items if item]


def _names_of(word: str) -> list[str]:
    names = [""]
    for position, part in enumerate(re.split(r"\[([^\[\]]*)\]", word)):
        choices = _choices(part, word) if position % 2 else [part]
        if len(names) * len(choices) > MAX_NODES:
            raise UsageError(f"{word!r} names more than {MAX_NODES} nodes")
        names = [name + choice for name in names for choice in choices]
    return [_checked(name, word) for name in names]


def _choices(inside: str, word: str) -> list[str]:
    choices: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece.strip())
        if not match:
            raise UsageError(
                f"{word!r}: [{inside}] is not a range", hint="write it as Slurm does: node[1-4,7]"
            )
        first = match[1]
        last = match[2] or first
        if not int(first) <= int(last) < int(first) + MAX_NODES:
            raise UsageError(
                f"{word!r}: {piece} runs backwards or names more than {MAX_NODES} nodes"
            )
        choices += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return choices


def _checked(name: str, word: str) -> str:
    # A step would read a name that starts with "-" as an option.
    if not _NAME.fullmatch(name) or len(name) > 253:
        raise UsageError(f"{word!r}: {name!r} is not a node's name")
    return name
