"""Read a config without running it: assignments and their expansions, by a shell parser.

`export NAME=value`, defaults (`${NAME:-value}`), arithmetic, `source` of a file next to it, and the
few commands by which configs take apart their own name. Everything else is refused with its line:
such a config has to be executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from orchestrator.errors import InputError
from orchestrator.inspection.patterns import cut

STAMP = "\0time\0"
"""Stands for a time stamp in a value."""
RANDOM = "\0random\0"
"""Stands for a random number in a value."""
DEEPEST = 10

Sources = Callable[[str], bytes | None]
"""Name of a file next to the config -> its bytes; None if it is missing."""


class NotPlain(Exception):
    """A line whose effect is not known without execution."""

    def __init__(self, file: str, line: int, text: str) -> None:
        short = " ".join(text.split())
        super().__init__(f"{file}:{line}: {short if len(short) <= 80 else short[:77] + '...'}")


class NoParser(Exception):
    """The shell parser is not installed."""


@dataclass
class PlainShell:
    """The variables after a config, read with an empty environment and `NEXP` set."""

    sources: Sources
    nexp: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    exported: set[str] = field(default_factory=set)

    def read(self, name: str, callers: tuple[str, ...] = ()) -> None:
        """Read the file `name`, which the last of `callers` sources. Raises NotPlain, NoParser, or
        InputError for a missing file."""
        content = self.sources(name)
        if content is None:
            raise InputError(
                f"there is no {name} next to the config, which sources it",
                hint="copy it from the same folder as the config",
            )
        if len(callers) > DEEPEST:
            raise InputError(f"{name}: sources itself, or is nested deeper than {DEEPEST} files")
        _File(self, name, content, callers).run()

    @property
    def environment(self) -> dict[str, str]:
        return {name: self.variables[name] for name in self.variables if name in self.exported}

    def set(self, name: str, value: str, *, export: bool) -> None:
        if export:
            self.exported.add(name)
        if name == "NEXP" and self.nexp:
            value = self.nexp
        self.variables[name] = value


def _parser() -> Any:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError as error:
        raise NoParser from error
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


class _File:
    """One file, statement by statement."""

    def __init__(
        self, shell: PlainShell, name: str, content: bytes, callers: tuple[str, ...]
    ) -> None:
        self.shell = shell
        self.name = name
        self.callers = callers
        self.root = _parser().parse(content).root_node

    def run(self) -> None:
        if self.root.has_error:
            bad = next((node for node in _walk(self.root) if node.is_error), self.root)
            raise self.refused(bad)
        self.statements(self.root)

    def refused(self, node: Any) -> NotPlain:
        return NotPlain(self.name, node.start_point[0] + 1, _text(node))

    def statements(self, parent: Any) -> None:
        for node in parent.children:
            match node.type:
                case "comment" | ";" | "\n" | "&&":
                    continue
                case "list" if "||" not in [child.type for child in node.children]:
                    self.statements(node)
                case "declaration_command":
                    self.declaration(node)
                case "variable_assignment":
                    self.assignment(node, export=False)
                case "variable_assignments":
                    for child in node.named_children:
                        self.assignment(child, export=False)
                case "command":
                    self.command(node)
                case "unset_command" if all(
                    child.type in ("unset", "variable_name") for child in node.children
                ):
                    for child in node.named_children:
                        self.shell.variables.pop(_text(child), None)
                        self.shell.exported.discard(_text(child))
                case _:
                    raise self.refused(node)

    def declaration(self, node: Any) -> None:
        if _text(node.children[0]) != "export":
            raise self.refused(node)
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self.assignment(child, export=True)
            elif child.type == "variable_name":
                self.shell.exported.add(_text(child))
            else:
                raise self.refused(node)

    def assignment(self, node: Any, *, export: bool) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name.type != "variable_name" or "+=" in [child.type for child in node.children]:
            raise self.refused(node)
        text = "" if value is None else self.value(value)
        self.shell.set(_text(name), text, export=export or _text(name) in self.shell.exported)

    def command(self, node: Any) -> None:
        if any(child.type == "variable_assignment" for child in node.children):
            raise self.refused(node)
        name, words = self.words(node)
        if name in (":", "echo", "true"):
            return
        if name not in ("source", ".") or len(words) != 1:
            raise self.refused(node)
        path = PurePosixPath(words[0])
        if str(path.parent) != "." and path.is_absolute():
            raise self.refused(node)
        self.shell.read(path.name, (*self.callers, self.name))

    def words(self, node: Any) -> tuple[str, list[str]]:
        name, *arguments = node.children
        return _text(name), [self.value(argument) for argument in arguments]

    def value(self, node: Any) -> str:
        match node.type:
            case "word" | "number":
                return (
                    re.sub(r"\\(.)", r"\1", _text(node)) if not node.children else self.refuse(node)
                )
            case "variable_name":  # what the grammar calls the first word of a default
                return _text(node)
            case "raw_string":
                return _text(node)[1:-1]
            case "string":
                return self.string(node)
            case "concatenation":
                return "".join(self.value(child) for child in node.children)
            case "simple_expansion":
                return self.variable(node, _text(node).strip()[1:])
            case "expansion":
                return self.expansion(node)
            case "arithmetic_expansion":
                return str(self.number(self.only_part(node)))
            case "command_substitution":
                return self.output(node)
        return self.refuse(node)

    def refuse(self, node: Any) -> str:
        raise self.refused(node)

    def only_part(self, node: Any) -> Any:
        if len(node.named_children) != 1:
            raise self.refused(node)
        return node.named_children[0]

    def string(self, node: Any) -> str:
        # Blanks between expansions belong to no node of the tree: the bytes between them count.
        start, end = node.start_byte + 1, node.end_byte - 1
        content = node.text
        parts, place = [], start
        for child in node.named_children:
            if child.type == "string_content":
                continue
            # The grammar takes blanks before an expansion for a part of it.
            first = child.end_byte - len(child.text.lstrip())
            parts.append(_unescaped(content[place - start + 1 : first - start + 1]))
            parts.append(self.value(child))
            place = child.end_byte
        parts.append(_unescaped(content[place - start + 1 : end - start + 1]))
        return "".join(parts)

    def variable(self, node: Any, name: str) -> str:
        if name == "RANDOM":
            return RANDOM
        if name == "BASH_SOURCE":
            return f"./{self.name}"
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise self.refused(node)
        if name == "NEXP" and self.shell.nexp:
            return self.shell.nexp
        return self.shell.variables.get(name, "")

    def expansion(self, node: Any) -> str:
        text = _text(node).strip()
        if text in ("${BASH_SOURCE[0]}", "${BASH_SOURCE}"):
            return f"./{self.name}"
        if text == "${BASH_SOURCE[1]}" and self.callers:
            return f"./{self.callers[-1]}"
        if shorter := re.fullmatch(
            r"\$\{(BASH_SOURCE(?:\[0\])?|[A-Za-z_]\w*)(%%?|##?)(.+)\}", text
        ):
            name, operator, pattern = shorter.groups()
            if not re.fullmatch(r"[\w./*?-]+", pattern):
                raise self.refused(node)
            return cut(self.variable(node, name.removesuffix("[0]")), operator, pattern)
        match = re.match(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-|-|:=|=|:\?|\})", text)
        if match is None:
            raise self.refused(node)
        name, operator = match.groups()
        current = self.variable(node, name)
        if operator == "}":
            return current
        is_set = bool(current) or (":" not in operator and name in self.shell.variables)
        if is_set:
            return current
        if operator == ":?":
            raise self.refused(node)
        default = "".join(self.value(child) for child in node.named_children[1:])
        if "=" in operator:
            self.shell.set(name, default, export=name in self.shell.exported)
        return default

    def number(self, node: Any) -> int:
        match node.type:
            case "number":
                return int(_text(node), 10)
            case "variable_name":
                return self.whole(node, self.variable(node, _text(node)))
            case "simple_expansion" | "expansion" | "command_substitution":
                return self.whole(node, self.value(node))
            case "parenthesized_expression":
                return self.number(self.only_part(node))
            case "unary_expression" if node.named_children[0].type != "binary_expression":
                sign = {"-": -1, "+": 1}.get(_text(node.children[0]))
                if sign is not None:
                    return sign * self.number(node.named_children[0])
            case "binary_expression":
                if len(node.children) != 3:
                    raise self.refused(node)
                left, operator, right = node.children
                return self.calculated(node, self.number(left), _text(operator), self.number(right))
        raise self.refused(node)

    def whole(self, node: Any, text: str) -> int:
        if not re.fullmatch(r"-?(0|[1-9][0-9]{0,17})?", text):
            raise self.refused(node)
        return int(text or "0")

    def calculated(self, node: Any, left: int, operator: str, right: int) -> int:
        if operator in ("/", "%") and right:
            size = abs(left) // abs(right)
            quotient = size if (left < 0) == (right < 0) else -size
            return quotient if operator == "/" else left - quotient * right
        known = {"+": left + right, "-": left - right, "*": left * right}
        if operator not in known:
            raise self.refused(node)
        return known[operator]

    def output(self, node: Any) -> str:
        """Return the output of the few commands whose output is known."""
        inside = self.only_part(node)
        text = ""
        for number, command in enumerate(
            inside.named_children if inside.type == "pipeline" else [inside]
        ):
            if command.type != "command":
                raise self.refused(node)
            name, words = self.words(command)
            text = self.known(node, name, words, text if number else None)
        return text.rstrip("\n")

    def known(self, node: Any, name: str, words: list[str], before: str | None) -> str:
        match (name, words):
            case ("basename", [path]) if before is None:
                return PurePosixPath(path).name
            case ("basename", [path, ending]) if before is None:
                return PurePosixPath(path).name.removesuffix(ending)
            case ("dirname", [path]) if before is None:
                return str(PurePosixPath(path).parent)
            case ("readlink", ["-f", path]) if before is None:
                return path
            case ("echo", _) if before is None:
                return " ".join(words)
            case ("date", [form]) if before is None and form.startswith("+"):
                return STAMP
            case ("expr", _) if before is None:
                return str(self.expr(node, words))
            case ("sed", [program]) if before is not None:
                return self.edited(node, program, before)
        raise self.refused(node)

    def edited(self, node: Any, program: str, text: str) -> str:
        match = re.fullmatch(r"s/(\^?)((?:\\\.|[A-Za-z0-9_])+)(\$?)//", program)
        if match is None:
            raise self.refused(node)
        start, literal, end = match[1], match[2].replace("\\.", "."), match[3]
        if start and end:
            return "" if text == literal else text
        if start:
            return text.removeprefix(literal)
        return text.removesuffix(literal) if end else text.replace(literal, "", 1)

    def expr(self, node: Any, words: list[str]) -> int:
        numbers = [self.whole(node, word) for word in words[0::2]]
        if len(words) % 2 == 0:
            raise self.refused(node)
        terms, signs = [numbers[0]], [1]
        for operator, number in zip(words[1::2], numbers[1:], strict=True):
            if operator in ("*", "/", "%"):
                terms[-1] = self.calculated(node, terms[-1], operator, number)
            elif operator in ("+", "-"):
                terms.append(number)
                signs.append(1 if operator == "+" else -1)
            else:
                raise self.refused(node)
        return sum(sign * term for sign, term in zip(signs, terms, strict=True))


def _text(node: Any) -> str:
    return bytes(node.text).decode("utf-8", "replace")


def _unescaped(raw: bytes) -> str:
    return re.sub(r'\\([$`"\\])', r"\1", raw.decode("utf-8", "replace").replace("\\\n", ""))


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _walk(child)
