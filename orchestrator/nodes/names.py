"""Node names as people and Slurm write them: `a,b`, `node[01-08,12]`, and names with an address, `n1=ssh://me@host:2222`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.errors import UsageError
from orchestrator.onnode.kernel.regular import read_bytes
from orchestrator.resources import user_path

MAX_NODES = 10_000

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_ADDRESS = re.compile(r"(unix:///[^\s,]+|(ssh|tcp)://[^\s,/]+)")
_NUMBERED = re.compile(r"(.*?)(\d{1,15})(\D*)", re.DOTALL)
"""What is before the last number of a name, that number, and what is behind it."""
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


@dataclass(frozen=True, slots=True)
class NamedNode:
    """A node by name. `address` says how to reach it, where that is not its name: `ssh://[user@]host[:port]` for a
    command, `unix:///socket` or `tcp://host:port` for its container engine; "" otherwise."""

    name: str
    address: str = ""

    def __str__(self) -> str:
        return self.name


def parse_nodes(text: str) -> list[NamedNode]:
    """Return the nodes that `text` names, in its order. Raises UsageError for a wrong, an empty or a repeated name."""
    nodes = [node for word in _words(text) for node in _nodes_of(word)]
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
    """Return nodes on which commands are run. Raises UsageError for one whose address is that of a container engine."""
    for node in nodes:
        if node.address and not node.address.startswith("ssh://"):
            raise UsageError(
                f"node {node}: {node.address} is not an SSH address",
                hint="accepted: NAME=ssh://[user@]host[:port]",
            )
    return nodes


def expand(text: str) -> list[str]:
    """Return the names in Slurm's short form: `n[1-3],m` gives n1 n2 n3 m. Raises UsageError when it is none."""
    return [name for word in _words(text) for name in _names_of(word)]


def expand_all(texts: Iterable[str]) -> list[str]:
    """Return the names of several such texts, each name once."""
    return list(dict.fromkeys(name for text in texts for name in expand(text)))


def fold(names: Collection[str]) -> str:
    """Return names in Slurm's short form, which expand() takes: n1 n2 n3 m gives `n[1-3],m`. Sorted where numbers are."""
    parts = {name: found.groups() for name in names if (found := _NUMBERED.fullmatch(name))}
    # `n08` says that numbers have two digits, n12 beside it then is one of them; n8, n9, n10 are one range as they are.
    padded = {
        (head, tail, len(number)) for head, number, tail in parts.values() if number[0] == "0"
    }
    groups: dict[tuple[str, str, int], list[int]] = {}
    for name in dict.fromkeys(names):
        head, number, tail = parts.get(name, (name, "", ""))
        digits = len(number) if (head, tail, len(number)) in padded else 0
        groups.setdefault((head, tail, digits), []).extend([int(number)] if number else [])
    return ",".join(_folded(*key, sorted(numbers)) for key, numbers in groups.items())


def _folded(head: str, tail: str, digits: int, numbers: list[int]) -> str:
    if not numbers:
        return head
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = ["-".join(str(end).zfill(digits) for end in dict.fromkeys(one)) for one in ranges]
    return f"{head}{texts[0]}{tail}" if len(numbers) == 1 else f"{head}[{','.join(texts)}]{tail}"


def names_given(text: str, option: str) -> list[str]:
    """Return the names that `text` gives an option: a list as for expand(), or @FILE with such lists on its lines.

    In a file `#` begins a comment, and a file may name no node at all. Raises UsageError for everything else.
    """
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
        why = error.strerror if isinstance(error, OSError) else "is not text"
        raise UsageError(
            f"{option}: {path}: {why}", hint="@FILE names a file with one node a line"
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
        return [NamedNode(one) for one in _names_of(word)]
    if not _ADDRESS.fullmatch(address) or not _has_port(address):
        raise UsageError(
            f"{word!r}: {address!r} is not an address",
            hint="accepted: NAME=ssh://[user@]host[:port], NAME=unix:///path/of/the/engine.sock",
        )
    return [NamedNode(_checked(name, word), address)]


def _has_port(address: str) -> bool:
    """Whether what stands behind the host's colon, if anything does, is a port."""
    try:
        parts = urlsplit(address)
        return address.startswith("unix:") or (bool(parts.hostname) and parts.port != 0)
    except ValueError:
        return False


def _words(text: str) -> list[str]:
    """Split at commas and blanks that are not inside brackets."""
    words, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character in ", \t\n" and depth <= 0:
            words.append("")
        else:
            words[-1] += character
    return [word for word in words if word]


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
        found = _RANGE.fullmatch(piece.strip())
        if not found:
            raise UsageError(
                f"{word!r}: [{inside}] is not a range", hint="write it as Slurm does: node[1-4,7]"
            )
        first, last = found[1], found[2] or found[1]
        if not int(first) <= int(last) < int(first) + MAX_NODES:
            raise UsageError(
                f"{word!r}: {piece} runs backwards or names more than {MAX_NODES} nodes"
            )
        choices += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return choices


def _checked(name: str, word: str) -> str:
    # A name that begins with "-" would be an option to srun.
    if not _NAME.fullmatch(name) or len(name) > 253:
        raise UsageError(f"{word!r}: {name!r} is not a node's name")
    return name
