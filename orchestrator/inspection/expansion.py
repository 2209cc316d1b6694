"""Expansion of a script's words: $NAME, ${NAME:-x}, quotes and patterns."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.inspection.flow import Exit
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.syntax import decoded, text_of
from orchestrator.inspection.trace import (
    MOST_VALUE,
    UNKNOWN,
    Assignment,
    Read,
    Use,
    bounded,
    is_known,
    whole_number,
)
from orchestrator.inspection.variables import Value

if TYPE_CHECKING:
    from tree_sitter import Node

HOST = "node1"
"""Any other node would do."""

_UNDECIDED_NAMES = {
    "RANDOM",
    "SECONDS",
    "EPOCHSECONDS",
    "EPOCHREALTIME",
    "BASHPID",
    "PPID",
    "SRANDOM",
}
_DEFAULTS = {":-", "-", ":=", "=", ":+", "+"}
_REQUIRED = {":?", "?"}
_LIST = re.compile(rb"\$@|\$\{(@|\w+\[@\])\}")
MOST_NAMES = 2000
"""Of one pattern."""
MOST_CUT = 4096
"""Characters: each end of a value is compared."""
_GLOB = re.compile(r"[*?\[]")


def value_of(shell: ShellState, name: str) -> Value | None:
    """Return a variable or special parameter, or None."""
    if name in shell.variables:
        return shell.variables.get(name)
    if (number := whole_number(name)) is not None:
        if number == 0:
            return shell.frame.script
        index = number - 1
        return shell.frame.positional[index] if index < len(shell.frame.positional) else None
    if name in _UNDECIDED_NAMES:
        return UNKNOWN
    special: dict[str, Value] = {
        "?": UNKNOWN if shell.status is None else str(shell.status),
        "#": str(len(shell.frame.positional)),
        "@": shell.frame.positional,
        "*": shell.frame.positional,
        "$": UNKNOWN,
        "!": f"{UNKNOWN}{len(shell.jobs) - 1}",
        "-": "",
        "_": UNKNOWN,
        "PWD": shell.cwd,
        "HOSTNAME": HOST,
        "BASH_SOURCE": [shell.frame.source, *shell.frame.callers],
        "UID": "0",
        "EUID": "0",
        "HOME": "/root",
        "IFS": " \t\n",
        "LINENO": UNKNOWN,
        "FUNCNAME": [UNKNOWN],
        "BASH_VERSION": UNKNOWN,
        "BASH_REMATCH": [UNKNOWN] * 10,
        "OSTYPE": "linux-gnu",
    }
    return special.get(name)


def fields(walk: Walk, shell: ShellState, node: Node) -> list[str]:
    """Return the words that an argument becomes."""
    expanded = _fields(walk, shell, node)
    if node.type in ("word", "concatenation") and _GLOB.search(_literal(node)):
        return [name for word in expanded for name in _matches(walk, shell, word)]
    return expanded


def text(walk: Walk, shell: ShellState, node: Node) -> str:
    """Return a value, pattern or file name as a single word."""
    return bounded(" ".join(_fields(walk, shell, node, split=False)))


def _literal(node: Node) -> str:
    parts = node.children if node.type == "concatenation" else [node]
    text = "".join(text_of(part) for part in parts if part.type == "word")
    return re.sub(r"\\.", "", text)


def _matches(walk: Walk, shell: ShellState, word: str) -> list[str]:
    """Return the files that match a pattern, or the pattern itself."""
    if not _GLOB.search(word) or not is_known(word):
        return [word]
    paths = ["/" if word.startswith("/") else ""]
    for part in word.strip("/").split("/"):
        paths = [path for folder in paths for path in _names(walk, shell, folder, part)][
            :MOST_NAMES
        ]
    return paths or [word]


def _names(walk: Walk, shell: ShellState, folder: str, pattern: str) -> list[str]:
    place = posixpath.join(shell.cwd, folder)
    if not _GLOB.search(pattern):
        path = posixpath.join(folder, pattern)
        return [path] if walk.tree.exists(posixpath.join(place, pattern)) else []
    return [
        posixpath.join(folder, name)
        for name in walk.tree.names(place)
        if fnmatch.fnmatchcase(name, pattern) and (name[0] != "." or pattern[0] == ".")
    ]


def _fields(walk: Walk, shell: ShellState, node: Node, *, split: bool = True) -> list[str]:
    kind = node.type
    if kind in ("word", "extglob_pattern", "number", "regex", "test_operator", "file_descriptor"):
        if node.named_children and kind == "number":
            return _joined(
                [_fields(walk, shell, child, split=split) for child in node.named_children]
            )
        return [re.sub(r"\\(.)", r"\1", text_of(node))]
    if kind == "raw_string":
        return [text_of(node)[1:-1]]
    if kind == "ansi_c_string":
        return [_ansi(text_of(node)[2:-1])]
    if kind in ("string", "translated_string"):
        return _quoted(walk, shell, node)
    if kind == "concatenation":
        return _joined([_fields(walk, shell, child, split=split) for child in node.children])
    if kind in ("simple_expansion", "expansion"):
        return _split(_expanded(walk, shell, node), split)
    if kind == "command_substitution":
        return _split([walk.capture(node, shell)], split)
    if kind == "arithmetic_expansion":
        number = walk.arithmetic(node, shell)
        return [UNKNOWN if number is None else str(number)]
    if kind == "process_substitution":
        return [_descriptor(walk, shell, node)]
    if kind in ("command_name", "variable_name", "special_variable_name") and not node.children:
        return [text_of(node)]
    if node.children:
        return _joined([_fields(walk, shell, child, split=split) for child in node.children])
    return [text_of(node)]


def _descriptor(walk: Walk, shell: ShellState, node: Node) -> str:
    """Return the path of a file with the output of `<(...)`."""
    output = walk.capture(node, shell)
    if text_of(node).startswith(">("):
        return UNKNOWN
    path = f"/dev/fd/{node.start_byte}"
    walk.tree.write(path, output + "\n")
    return path


def _ansi(body: str) -> str:
    plain = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "e": "\x1b"}
    return re.sub(r"\\(.)", lambda match: plain.get(match[1], match[0]), body)


def _split(values: Sequence[str], split: bool) -> list[str]:
    return [word for value in values for word in value.split()] if split else list(values)


def _joined(parts: Sequence[list[str]]) -> list[str]:
    joined: list[str] = []
    for part in parts:
        if part and joined:
            joined[-1] = bounded(joined[-1] + part[0])
            joined.extend(part[1:])
        else:
            joined.extend(part)
    return joined


def _quoted(walk: Walk, shell: ShellState, node: Node) -> list[str]:
    """Return the words of quoted text: several if it holds "$@" or "${NAME[@]}".

    Blanks between the tree's children count.
    """
    source = node.text or b""
    return _mixed(walk, shell, node, source.index(b'"') + 1, len(source) - 1)


def heredoc(walk: Walk, shell: ShellState, body: Node) -> str:
    """Return a here-document with an unquoted delimiter."""
    text = "".join(_mixed(walk, shell, body, 0, len(body.text or b"")))
    return re.sub(r"(?<!\\)`[^`]*`", UNKNOWN, text)


def _mixed(walk: Walk, shell: ShellState, node: Node, begin: int, end: int) -> list[str]:
    source = node.text or b""
    parts = [""]
    for child in node.named_children:
        if child.type in ("string_content", "heredoc_content"):
            continue
        first, last = child.start_byte - node.start_byte, child.end_byte - node.start_byte
        raw = source[first:last]  # the grammar counts blanks before ${ to the expansion
        parts[-1] += _unescaped(source[begin:first] + raw[: len(raw) - len(raw.lstrip())])
        begin = last
        if child.type in ("simple_expansion", "expansion"):
            values = _expanded(walk, shell, child, quoted=True)
        else:
            values = _fields(walk, shell, child, split=False)
        if values:
            parts[-1] = bounded(parts[-1] + values[0])
            parts.extend(values[1:])
        elif parts == [""] and begin >= end and _LIST.fullmatch(source[1:-1]):
            return []  # "$@" without arguments is no word
    parts[-1] += _unescaped(source[begin:end])
    return parts


def _unescaped(raw: bytes) -> str:
    return re.sub(r'\\([$`"\\\n])', lambda match: match[1].strip("\n"), decoded(raw))


# ---- parameters ----


def _expanded(walk: Walk, shell: ShellState, node: Node, *, quoted: bool = False) -> list[str]:
    """Return the values of $NAME or ${NAME...}; [] if empty or not set."""
    children = [child for child in node.children if child.type not in ("$", "${", "}")]
    operators = [text_of(child) for child in children]
    prefix = operators[0] if operators and operators[0] in ("#", "!") and len(children) > 1 else ""
    if prefix:
        children, operators = children[1:], operators[1:]
    if not children:
        return []
    name_node, rest = children[0], children[1:]
    operator = operators[1] if len(operators) > 1 else ""
    use = _use(walk, shell, operator, has_value=bool(rest[1:]))
    values = _values(walk, shell, name_node, use, _base_name(name_node))
    if not values and use == "required" and not _is_all(name_node) and _ends(shell, operator):
        raise Exit(1, "expansion")
    if prefix == "#":
        return [_length(values, name_node)]
    if prefix == "!":
        values = _indirect(walk, shell, name_node, values, use)
    if operator in _DEFAULTS | _REQUIRED:
        return _with_default(walk, shell, name_node, values, operator, rest[1:])
    if operator:
        argument = "".join(text(walk, shell, node) for node in rest[1:])
        if operator == ":" and _is_all(name_node):
            return _part(values, argument, of_arguments=text_of(name_node) in ("@", "*"))
        return [_changed(value, operator, argument) for value in values]
    if quoted and text_of(name_node).endswith(("*", "[*]")):
        return [" ".join(values)]
    if quoted or _is_all(name_node):
        return values
    return [" ".join(values)] if values else []


def _use(walk: Walk, shell: ShellState, operator: str, *, has_value: bool) -> Use:
    if operator in _DEFAULTS and (has_value or not walk.in_test):
        return "default"
    if operator in _REQUIRED or ("nounset" in shell.options and operator not in _DEFAULTS):
        return "required"
    return "test" if walk.in_test else "plain"


def _ends(shell: ShellState, operator: str) -> bool:
    """Return whether an unset variable ends the script: `set -u`."""
    return operator not in _REQUIRED and "nounset" in shell.options


def _base_name(node: Node) -> str:
    return text_of(node).partition("[")[0]


def _is_all(node: Node) -> bool:
    return text_of(node) in ("@", "*") or text_of(node).endswith(("[@]", "[*]"))


def _values(walk: Walk, shell: ShellState, node: Node, use: Use, name: str) -> list[str]:
    value = value_of(shell, name)
    if re.fullmatch(r"[A-Za-z_]\w*", name):
        read = Read(name, use, value is not None, walk.place(node, shell))
        walk.trace.reads.append(read)
    if value is None:
        return []
    index = node.child_by_field_name("index") if node.type == "subscript" else None
    if index is not None:
        return _element(value, text(walk, shell, index))
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [value["0"]] if "0" in value else []
    return list(value) if name in ("@", "*") else list(value[:1])


def _element(value: Value, index: str) -> list[str]:
    if index in ("@", "*"):
        return (
            [value]
            if isinstance(value, str)
            else list(value if isinstance(value, list) else value.values())
        )
    if isinstance(value, dict):
        return [value[index]] if index in value else ([UNKNOWN] if not is_known(index) else [])
    items = [value] if isinstance(value, str) else value
    if (number := whole_number(index)) is None:
        return [UNKNOWN] if items else []
    return [items[number]] if -len(items) <= number < len(items) else []


def _length(values: list[str], node: Node) -> str:
    if _is_all(node):
        return UNKNOWN if any(not is_known(value) for value in values) else str(len(values))
    joined = "".join(values)
    return str(len(joined)) if is_known(joined) else UNKNOWN


def _indirect(walk: Walk, shell: ShellState, node: Node, values: list[str], use: Use) -> list[str]:
    if _is_all(node):  # the keys
        value = shell.variables.get(_base_name(node))
        if isinstance(value, dict):
            return list(value)
        return [str(index) for index in range(len(value or ()))]
    if not values or not is_known(values[0]):
        return [UNKNOWN]
    return _values(walk, shell, node, use, values[0])


def _with_default(
    walk: Walk, shell: ShellState, node: Node, values: list[str], operator: str, rest: list[Node]
) -> list[str]:
    joined = " ".join(values)
    is_set = bool(joined) if operator.startswith(":") else bool(values)
    if operator.endswith("+"):
        return [_argument(walk, shell, rest)] if is_set else []
    if is_set:
        return values
    if operator in _REQUIRED:
        raise Exit(127, "expansion")
    default = _argument(walk, shell, rest)
    if operator.endswith("="):
        shell.variables.set(_base_name(node), default)
        place = walk.place(node, shell)
        walk.trace.assignments.append(Assignment(_base_name(node), default, False, place))
    return [default] if default else []


def _argument(walk: Walk, shell: ShellState, nodes: list[Node]) -> str:
    return "".join(text(walk, shell, node) for node in nodes)


def _changed(value: str, operator: str, argument: str) -> str:
    """Return a value after ${NAME%pattern} and the like."""
    if operator in ("%", "%%", "#", "##"):
        if not is_known(argument):
            return UNKNOWN
        return _cut(value, operator, argument)
    if not is_known(value + argument):
        return UNKNOWN
    if operator in ("^^", "^"):
        return value.upper() if operator == "^^" else value[:1].upper() + value[1:]
    if operator in (",,", ","):
        return value.lower() if operator == ",," else value[:1].lower() + value[1:]
    if operator == ":":
        return _slice(value, argument)
    if operator in ("/", "//"):
        old, _, new = argument.partition("/")
        if value.count(old) * len(new) > MOST_VALUE:
            return UNKNOWN
        return value.replace(old, new, -1 if operator == "//" else 1) if old else value
    return UNKNOWN


def _part(values: list[str], argument: str, *, of_arguments: bool) -> list[str]:
    """Return the elements of ${@:begin:count} or ${NAME[@]:begin:count}; arguments count from 1."""
    numbers = _numbers(argument)
    if not numbers or min(numbers) < 0:
        return [UNKNOWN]
    begin = max(numbers[0] - of_arguments, 0)
    return values[begin : begin + numbers[1] if len(numbers) == 2 else None]


def _numbers(argument: str) -> list[int]:
    """Return the one or two numbers of begin:count; [] if unknown."""
    numbers = [whole_number(part.strip()) for part in argument.split(":")]
    known = [number for number in numbers if number is not None]
    return known if len(known) == len(numbers) <= 2 else []


def _slice(value: str, argument: str) -> str:
    numbers = _numbers(argument)
    if not numbers:
        return UNKNOWN
    begin = numbers[0]
    return value[begin : begin + numbers[1] if len(numbers) == 2 else None]


def _cut(value: str, operator: str, pattern: str) -> str:
    """Return a value after ${NAME%pattern}, %%, # or ##."""
    if len(value) > MOST_CUT:
        return UNKNOWN
    lengths = range(len(value) + 1)
    longest = len(operator) == 2
    if operator.startswith("%"):
        ends = [at for at in lengths if fnmatch.fnmatchcase(value[at:], pattern)]
        return value[: min(ends) if longest else max(ends)] if ends else value
    begins = [at for at in lengths if fnmatch.fnmatchcase(value[:at], pattern)]
    return value[max(begins) if longest else min(begins) :] if begins else value
