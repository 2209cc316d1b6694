"""Expansion of a script's words: $NAME, ${NAME:-x}, quotes and patterns."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.inspection.braces import spread
from orchestrator.inspection.flow import Exit
from orchestrator.inspection.interface import Walk
from orchestrator.inspection.patterns import cut, fits, replaced
from orchestrator.inspection.state import ShellState
from orchestrator.inspection.syntax import arguments_of, decoded, line_of, text_of
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
"""Characters of a value that a pattern changes."""
STEP, WORDS = 4096, 64
"""Comparisons of signs, and words of a value, that count as a step of a walk."""
BREAK = "\ue002"
"""In an unquoted value: the end of a word."""
_GLOB = re.compile(r"[*?\[]")
_PARTS = re.compile(r"""\\.|"(?:\\.|[^"\\])*"|'[^']*'|\$\{[^{}]*\}|\$\([^()]*\)|\$\w+|`[^`]*`""")
"""Of a pattern: with a backslash, quoted, or expanded."""


def value_of(shell: ShellState, name: str) -> Value | None:
    """Return a variable or special parameter, or None."""
    if name in shell.variables:
        return shell.variables.get(name)
    if name.isdecimal() and (number := whole_number(name)) is not None:
        arguments = [shell.frame.script, *shell.frame.positional]
        return arguments[number] if number < len(arguments) else None
    if name in _UNDECIDED_NAMES:
        return UNKNOWN
    special: dict[str, Value] = {
        "?": UNKNOWN if shell.status is None else str(shell.status),
        "#": str(len(shell.frame.positional)),
        "@": shell.frame.positional,
        "*": shell.frame.positional,
        "$": UNKNOWN,
        "!": f"{UNKNOWN}{len(shell.jobs) - 1}",
        "-": UNKNOWN,
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
    """Return the texts that an argument becomes."""
    if node.type in ("word", "concatenation", "brace_expression") and b"{" in (node.text or b""):
        source = text_of(node)
        if (texts := spread(source)) != [source]:
            with walk.at_line(line_of(node)):
                return [
                    field
                    for word in texts
                    for argument in arguments_of(word)
                    for field in fields(walk, shell, argument)
                ]
    expanded = [
        word
        for joined in _fields(walk, shell, node)
        for word in (filter(None, joined.split(BREAK)) if BREAK in joined else [joined])
    ]
    if node.type in ("simple_expansion", "expansion", "command_substitution") or (
        node.type in ("word", "concatenation") and _GLOB.search(_literal(node))
    ):
        return [name for word in expanded for name in _matches(walk, shell, word)]
    return expanded


def text(walk: Walk, shell: ShellState, node: Node) -> str:
    """Return a value, pattern or file name as a single word."""
    return bounded(" ".join(_fields(walk, shell, node, split=False)))


def pattern(walk: Walk, shell: ShellState, node: Node) -> str:
    """Return a pattern or regular expression: plain signs have a backslash."""
    if node.type in ("string", "translated_string", "raw_string", "ansi_c_string"):
        return plain(text(walk, shell, node))
    if node.type == "concatenation":
        return "".join(pattern(walk, shell, child) for child in node.children)
    if node.type not in ("word", "extglob_pattern", "number", "regex"):
        return text(walk, shell, node)

    def expanded(match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return match[0].removeprefix("\\") if match[0][1:].isalnum() else match[0]
        arguments = arguments_of(match[0])
        return pattern(walk, shell, arguments[0]) if len(arguments) == 1 else UNKNOWN

    return _PARTS.sub(expanded, text_of(node))


def plain(text: str) -> str:
    """Return a pattern that fits the text alone."""
    return re.sub(rf"[^\w{UNKNOWN}]", r"\\\g<0>", text)


def _literal(node: Node) -> str:
    parts = node.children if node.type == "concatenation" else [node]
    text = "".join(text_of(part) for part in parts if part.type == "word")
    return re.sub(r"\\.", "", text)


def _matches(walk: Walk, shell: ShellState, word: str) -> list[str]:
    """Return the files that match a pattern, or the pattern itself."""
    if not _GLOB.search(word) or not is_known(word) or "noglob" in shell.options:
        return [word]
    if walk.around.mount_of(walk.absolute(shell, posixpath.dirname(word))) is not None:
        return [UNKNOWN]
    paths = ["/" if word.startswith("/") else ""]
    for part in word.strip("/").split("/"):
        paths = [path for folder in paths for path in _names(walk, shell, folder, part)][
            :MOST_NAMES
        ]
    return paths or ([] if "nullglob" in shell.options else [word])


def _names(walk: Walk, shell: ShellState, folder: str, pattern: str) -> list[str]:
    place = posixpath.join(shell.cwd, folder)
    if not _GLOB.search(pattern):
        path = posixpath.join(folder, pattern)
        return [path] if walk.tree.exists(posixpath.join(place, pattern)) else []
    return [
        posixpath.join(folder, name)
        for name in walk.tree.names(place)
        if fits(name, pattern) and (name[0] != "." or pattern[0] == ".")
    ]


def _fields(walk: Walk, shell: ShellState, node: Node, *, split: bool = True) -> list[str]:
    kind = node.type
    if kind in ("word", "extglob_pattern", "number", "regex", "test_operator", "file_descriptor"):
        if node.named_children and kind == "number":
            return _joined(
                [_fields(walk, shell, child, split=split) for child in node.named_children]
            )
        source = text_of(node)
        if kind == "word" and re.match("~(/|$)", source) and _is_home(node, source):
            home = value_of(shell, "HOME")
            source = source.replace("~", home if isinstance(home, str) else UNKNOWN, 1)
        return [re.sub(r"\\(.)", r"\1", source)]
    if kind == "raw_string":
        return [text_of(node)[1:-1]]
    if kind == "ansi_c_string":
        return [ansi(text_of(node)[2:-1])]
    if kind in ("string", "translated_string"):
        return _quoted(walk, shell, node)
    if kind == "concatenation":
        return _joined([_fields(walk, shell, child, split=split) for child in node.children])
    if kind in ("simple_expansion", "expansion"):
        return _split(walk, shell, _expanded(walk, shell, node), split)
    if kind == "command_substitution":
        return _split(walk, shell, [walk.capture(node, shell)], split)
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


def _is_home(node: Node, source: str) -> bool:
    """Return whether a word with `~` starts an argument, and a slash or nothing follows."""
    parent = node.parent
    if parent is None or parent.type != "concatenation":
        return True
    first, second, *_ = parent.children
    return first == node and (source != "~" or text_of(second).startswith("/"))


def _descriptor(walk: Walk, shell: ShellState, node: Node) -> str:
    """Return the path of a file with the output of `<(...)`."""
    output = walk.capture(node, shell)
    if text_of(node).startswith(">("):
        return UNKNOWN
    path = f"/dev/fd/{node.start_byte}"
    walk.tree.write(path, output + "\n")
    return path


def ansi(body: str) -> str:
    """Return a text with the escapes of $'...' and `echo -e`."""
    plain = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "e": "\x1b", "r": "\r"}
    escape = r"\\(x[0-9A-Fa-f]{1,2}|[uU][0-9A-Fa-f]{1,8}|[0-7]{1,4}|c.|.)"
    return re.sub(escape, lambda match: plain.get(match[1], UNKNOWN), body)


def separators(shell: ShellState) -> str:
    """Return $IFS as it splits words."""
    value = shell.variables.scalar("IFS")
    return " \t\n" if value is None else value


def _split(walk: Walk, shell: ShellState, values: Sequence[str], split: bool) -> list[str]:
    if not split:
        return list(values)
    texts = [word for value in values for word in _words(value, separators(shell))]
    walk.spend(sum(map(len, values)) // STEP + len(texts) // WORDS)
    return texts


def _words(value: str, signs: str) -> list[str]:
    """Split a value; BREAK marks an end that is joined with nothing."""
    if not is_known(signs):
        return [UNKNOWN]
    if not signs:
        return [value] if value else []
    blanks = "".join(sign for sign in signs if sign in " \t\n")
    others = re.escape("".join(sign for sign in signs if sign not in blanks))
    inner = value.strip(blanks) if blanks else value
    blank = f"[{blanks}]" if blanks else "(?!)"
    separator = f"{blank}*[{others}]{blank}*|{blank}+" if others else f"{blank}+"
    parts = re.split(separator, inner) if inner else []
    if parts and not parts[-1]:
        parts.pop()  # behind the last separator
    if not parts:
        return [BREAK] if value else []
    parts[0] = BREAK * (value[0] in blanks) + parts[0]
    parts[-1] += BREAK * (value[-1] in signs)
    return parts


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
    if node.has_error:
        return [UNKNOWN]
    name_node, rest = children[0], children[1:]
    operator = operators[1] if len(operators) > 1 else ""
    use = _use(walk, shell, operator, has_value=bool(rest[1:]))
    values = _values(walk, shell, name_node, use, _base_name(name_node))
    if not values and use == "required" and not _is_all(name_node):
        if walk.unread_source:
            values = [UNKNOWN]
        elif _ends(shell, operator):
            raise Exit(1, "expansion")
    if prefix == "#":
        return [_length(values, name_node)]
    if prefix == "!" and operator in ("*", "@"):
        return [UNKNOWN]  # names of variables
    if prefix == "!":
        values = _indirect(walk, shell, name_node, values, use)
    if operator in _DEFAULTS | _REQUIRED:
        return _with_default(walk, shell, name_node, values, operator, rest[1:])
    if operator == ":":
        argument = "".join(text(walk, shell, node) for node in rest[1:])
        numbers = _numbers(walk, shell, argument)
        if not _is_all(name_node):
            return [_part(value, numbers) for value in values]
        if text_of(name_node) not in ("@", "*"):
            return _elements(values, numbers)
        return _elements([shell.frame.script, *values], numbers)
    if operator:
        values = _changed(walk, shell, values, operator, rest[1:])
    if quoted and text_of(name_node).endswith(("*", "[*]")):
        signs = separators(shell)
        return [signs[:1].join(values) if is_known(signs) else UNKNOWN]
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
        given = value is not None or (use == "required" and walk.unread_source)
        read = Read(name, use, given, walk.place(node, shell))
        walk.trace.reads.append(read)
    if value is None:
        return []
    index = node.child_by_field_name("index") if node.type == "subscript" else None
    if index is not None:
        key = text(walk, shell, index)
        if not isinstance(value, dict) and key not in ("@", "*"):
            number = walk.evaluate(key, shell)
            key = UNKNOWN if number is None else str(number)
        return _element(value, key)
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
        is_sure = is_known(index) and not index.startswith("-")
        return [value[index]] if index in value else [] if is_sure else [UNKNOWN]
    items = [value] if isinstance(value, str) else value
    if items == [UNKNOWN]:
        return items
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
        raise Exit(1, "expansion")
    default = _argument(walk, shell, rest)
    if operator.endswith("="):
        shell.variables.set(_base_name(node), default)
        place = walk.place(node, shell)
        walk.trace.assignments.append(Assignment(_base_name(node), default, False, place))
    return [default] if default else []


def _argument(walk: Walk, shell: ShellState, nodes: list[Node]) -> str:
    return "".join(text(walk, shell, node) for node in nodes)


def _changed(
    walk: Walk, shell: ShellState, values: list[str], operator: str, operands: list[Node]
) -> list[str]:
    """Return values after ${NAME%pattern} and the like."""
    middle = [at for at, node in enumerate(operands) if node.type == "/"][:1]
    old = operands[: middle[0]] if middle else operands
    new = operands[middle[0] + 1 :] if middle else []
    pattern_ = "".join(pattern(walk, shell, node) for node in old)
    replacement = "".join(text(walk, shell, node) for node in new)
    if operator[0] == "/" and pattern_.endswith("\\") and not pattern_.endswith("\\\\"):
        # The grammar takes the slash of `\/` for the end of the pattern.
        rest, _, replacement = "".join(map(text_of, new)).partition("/")
        pattern_ += f"/{rest}"
        if not re.fullmatch(r"[\w/.:=+-]*", rest + replacement):
            return [UNKNOWN]
    walk.spend(sum(map(len, values)) * (len(pattern_) + 1) // STEP)
    return [_changed_value(value, operator, pattern_, replacement) for value in values]


def _changed_value(value: str, operator: str, pattern: str, new: str) -> str:
    changed = None
    if not is_known(pattern) or len(value) > MOST_CUT:
        return UNKNOWN
    if operator in ("%", "%%", "#", "##"):
        changed = cut(value, operator, pattern)
    elif not is_known(value):
        return UNKNOWN
    elif operator in ("^^", "^", ",,", ",") and not pattern:
        end = len(value) if len(operator) == 2 else 1
        begin = value[:end].upper() if operator[0] == "^" else value[:end].lower()
        changed = begin + value[end:]
    elif operator[0] == "/" and not set("&\\") & set(new):
        fits_in = len(value) * len(new) <= MOST_VALUE
        changed = replaced(value, operator, pattern, new) if fits_in else None
    return UNKNOWN if changed is None else changed


def _elements(values: list[str], numbers: list[int]) -> list[str]:
    """Return the elements of ${NAME[@]:begin:count}."""
    if not numbers or min(numbers[1:], default=0) < 0:
        return [UNKNOWN]
    begin = numbers[0] if numbers[0] >= 0 else len(values) + numbers[0]
    if begin < 0:
        return []
    return values[begin : begin + numbers[1] if len(numbers) == 2 else None]


def _numbers(walk: Walk, shell: ShellState, argument: str) -> list[int]:
    """Return the one or two numbers of begin:count; [] if unknown."""
    numbers = [walk.evaluate(part.strip() or "0", shell) for part in argument.split(":")]
    known = [number for number in numbers if number is not None]
    return known if len(known) == len(numbers) <= 2 else []


def _part(value: str, numbers: list[int]) -> str:
    """Return ${NAME:begin:count}; both may count from the end."""
    if not numbers or not is_known(value):
        return UNKNOWN
    begin = numbers[0] if numbers[0] >= 0 else len(value) + numbers[0]
    if not 0 <= begin <= len(value):
        return ""
    end = len(value)
    if len(numbers) == 2:
        end = begin + numbers[1] if numbers[1] >= 0 else end + numbers[1]
    return value[begin:end] if end >= begin else UNKNOWN
