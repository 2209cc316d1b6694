"""Read a config without running it: walk its assignments as `images inspect` walks scripts.

Accepted: `export NAME=value`, defaults (`${NAME:-value}`), arithmetic, `source` of a file next to
it, and the few commands by which configs parse their own name. Other configs are refused with the
line: they must be executed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from orchestrator.errors import InputError
from orchestrator.inspection.expansion import value_of
from orchestrator.inspection.flow import Exit
from orchestrator.inspection.run_container import RunContainer
from orchestrator.inspection.state import Frame, Function, ShellState
from orchestrator.inspection.syntax import first_error, line_of, parse, text_of
from orchestrator.inspection.trace import PathHow, Place, is_known
from orchestrator.inspection.tree import ImageConfig, ImageFile, ImageTree
from orchestrator.inspection.variables import Value, Variables
from orchestrator.inspection.walk import ScriptWalk
from orchestrator.words import quoted

if TYPE_CHECKING:
    from tree_sitter import Node

MARK = "\ue002"
"""No config has it in its text."""
STAMP = f"{MARK}time{MARK}"
"""In a value: a time stamp."""
RANDOM = f"{MARK}random{MARK}"
"""In a value: a random number."""
FOLDER = f"/{MARK}config"
"""The config's folder: it differs wherever the config is executed."""

_STATEMENTS = {":", "echo", "true", "source", "."}
_OUTPUTS = {"basename", "dirname", "readlink", "echo", "date", "expr", "sed"}
_EXPANSIONS = {":-", "-", ":=", "=", ":?", "%", "%%", "#", "##"}
_COMPUTED = {"arithmetic_expansion", "binary_expression", "unary_expression"}
_PLAIN = {
    *("program", "comment", ";", "\n", "&&", "list", "variable_assignment", "variable_assignments"),
    *("declaration_command", "export", "=", "unset_command", "unset", "variable_name", "word"),
    *("number", "raw_string", "string", "string_content", '"', "concatenation", "regex"),
    *("extglob_pattern", "simple_expansion", "$", "expansion", "${", "}", "subscript", "[", "]"),
    *("parenthesized_expression", "$((", "))", "(", ")", "+", "*", "/", *_EXPANSIONS, *_COMPUTED),
    *("command_substitution", "$(", "pipeline", "|", "command", "command_name"),
}
"""Grammar nodes and signs with known effects."""


class NotPlain(Exception):
    """A line with an effect unknown without execution."""

    def __init__(self, file: str, line: int, text: str) -> None:
        short = " ".join(text.split())
        super().__init__(f"{file}:{line}: {short if len(short) <= 80 else short[:77] + '...'}")


class NoParser(Exception):
    """The shell parser is not installed."""


def read_config(
    name: str, files: Mapping[str, bytes], given: Mapping[str, str], nexp: str
) -> dict[str, str]:
    """Read `name` with `given` and `NEXP` set; return exported variables. Raises NotPlain,
    NoParser, or InputError for a missing file."""
    walk = _ConfigWalk(files)
    variables = _Variables({**given, "RANDOM": RANDOM, "NEXP": nexp})
    shell = ShellState(Frame("bash"), FOLDER, variables)
    try:
        shell.functions["date"] = Function(parse(f"echo {STAMP}"), "")
    except ImportError as error:
        raise NoParser from error
    walk.source(f"{FOLDER}/{name}", shell, "")
    environment = {
        name: value
        for name, value in shell.variables.by_name.items()
        if name in shell.variables.exported and isinstance(value, str)
    }
    for assignment in walk.trace.assignments:
        if FOLDER in environment.get(assignment.name, ""):
            raise walk.refused(assignment.place.file, assignment.place.line)
    return environment


def line_end_problem(name: str, files: Mapping[str, bytes]) -> tuple[str, str] | None:
    """Return problem and hint for a file with CR LF."""
    if not re.search(rb"\r(\n|\Z)", files.get(name, b"")):
        return None
    return (
        f"{name}: its lines end with CR LF: bash takes the CR for a part of their last word",
        f"in its folder: sed -i 's/\\r$//' {quoted(name)}",
    )


class _Variables(Variables):
    """Shell variables with a constant NEXP."""

    def set(self, name: str, value: Value) -> None:
        if name != "NEXP":
            super().set(name, value)


class _ConfigWalk(ScriptWalk):
    """Ends at the first line with an unknown effect."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        kept = (
            ImageFile(f"{FOLDER}/{name}", "file", size=len(content), content=content)
            for name, content in files.items()
        )
        super().__init__(ImageTree(kept, ImageConfig()), RunContainer())
        self.files = files

    def refused(self, path: str, line: int) -> NotPlain:
        lines = (self.tree.text(path) or "").splitlines()
        return NotPlain(posixpath.basename(path), line, "".join(lines[line - 1 : line]))

    def source(self, path: str, shell: ShellState, how: str) -> None:
        if path in (shell.frame.source, *shell.frame.callers):
            raise InputError(f"{posixpath.basename(path)}: sources itself")
        if problem := line_end_problem(posixpath.basename(path), self.files):
            raise InputError(problem[0], hint=problem[1])
        root = parse(self.tree.text(path) or "")
        odd = first_error(root) or _odd(root)
        if odd is not None:
            raise self.refused(path, line_of(odd))
        super().source(path, shell, how)

    def use_path(self, how: PathHow, path: str, place: Place) -> None:
        if not path.startswith(FOLDER):
            raise self.refused(place.file, place.line)
        if self.tree.text(path) is None:
            raise InputError(
                f"there is no {posixpath.basename(path)} next to the config, which sources it",
                hint="copy it from the same folder as the config",
            )

    def statement(self, node: Node, shell: ShellState) -> None:
        known = len(self.trace.assignments)
        try:
            super().statement(node, shell)
        except (Exit, RecursionError):
            raise self.refused(shell.frame.source, line_of(node)) from None
        values = [assignment.value for assignment in self.trace.assignments[known:]]
        if self.trace.undecided or not all(map(is_known, values)):
            raise self.refused(shell.frame.source, line_of(node))


def _odd(root: Node) -> Node | None:
    """Return the first non-plain part."""
    pending = [(root, False)]
    while pending:
        node, inside = pending.pop()
        if not _is_plain(node, inside=inside):
            return node
        inside = inside or node.type == "command_substitution"
        pending.extend((child, inside) for child in reversed(node.children))
    return None


def _is_plain(node: Node, *, inside: bool) -> bool:
    """`inside`: in a command substitution."""
    kinds = [child.type for child in node.children]
    match node.type:
        case "command":
            name, *arguments = map(text_of, node.named_children)
            is_plain = name in (_OUTPUTS if inside else _STATEMENTS)
            is_plain = is_plain and "variable_assignment" not in kinds
            if name == "date":
                is_plain = is_plain and len(arguments) == 1 and arguments[0].lstrip('"')[:1] == "+"
        case "declaration_command":
            is_plain = kinds[0] == "export" and "word" not in kinds
        case "variable_assignment":
            is_plain = kinds[0] == "variable_name"
        case "simple_expansion" | "expansion":
            name = text_of(node.named_children[0]).partition("[")[0] if node.named_children else ""
            is_plain = _is_own(name) and "/" not in kinds
        case "variable_name" if node.parent is not None and node.parent.type in _COMPUTED:
            is_plain = _is_own(text_of(node))
        case "pipeline":
            is_plain = inside
        case kind:
            is_plain = kind in _PLAIN
    return is_plain


def _is_own(name: str) -> bool:
    """Return whether the value comes from the config, not from the host."""
    is_name = re.fullmatch(r"[A-Za-z_]\w*", name) is not None
    is_marked = name in ("RANDOM", "BASH_SOURCE")
    return is_name and (is_marked or value_of(ShellState(Frame(""), ""), name) is None)
