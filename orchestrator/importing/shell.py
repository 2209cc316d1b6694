"""Read a config without running it: walk its assignments as `images inspect` walks scripts.

Accepted: `export NAME=value`, defaults (`${NAME:-value}`), arithmetic, `source` of a file next to
it, and the few commands by which configs parse their own name. Other configs are refused with the
line: they must be executed.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from orchestrator.errors import InputError
from orchestrator.inspection import expansion
from orchestrator.inspection.expansion import value_of
from orchestrator.inspection.flow import Exit
from orchestrator.inspection.run_container import RunContainer
from orchestrator.inspection.state import Frame, Function, ShellState
from orchestrator.inspection.syntax import SEMICOLON, first_error, line_of, parse, text_of
from orchestrator.inspection.trace import PathHow, Place, is_known
from orchestrator.inspection.tree import ImageConfig, ImageFile, ImageTree
from orchestrator.inspection.variables import Value, Variables
from orchestrator.inspection.walk import ScriptWalk
from orchestrator.model.values import OWNED_BY_BASH
from orchestrator.words import quoted

if TYPE_CHECKING:
    from tree_sitter import Node

MARK = "\ue003"
"""No config has it in its text."""
STAMP = f"{MARK}time{MARK}"
"""In a value: a time stamp."""
RANDOM = f"{MARK}random{MARK}"
"""In a value: a random number."""
FOLDER = f"/{MARK}" * 16
"""The config's folder: it differs wherever the config is executed."""

MOST_DEPTH = 200
"""Of the grammar's nodes."""
_STATEMENTS = {":", "echo", "true", "source", "."}
_OUTPUTS = {"basename", "dirname", "readlink", "echo", "date", "expr", "sed"}
_CUTS = {"%", "%%", "#", "##"}
_EXPANSIONS = {":-", "-", ":=", "=", ":?", *_CUTS}
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
_TIGHT = {"concatenation", "expansion", "simple_expansion", "subscript", "variable_assignment"}
"""Nodes without blanks between their parts: bash keeps some that the grammar skips."""
_WORDS = {"command", "declaration_command", "unset_command", "variable_assignments"}
"""Nodes that end with their line."""
_PATTERN = re.compile(r"[A-Za-z0-9_./:,=@+*-]*")
"""Bash and Python match it alike, and it matches no part of a mark."""
_EXPANDED = {"expansion": "\\(", "command": "*?[{", "declaration_command": "{"}
"""Node -> characters that change the words in it, if unquoted."""
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ITS_NAME = '"${BASH_SOURCE[0]##*/}"'
"""The quoted pattern of rendered configs."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ue000-\ue003\ufffd]")
"""Control characters, marks of the reader, and bytes that are no UTF-8."""
_SPLIT_OTHERWISE = re.compile(r"[^\S \t\n]|[*?\[\\]")
"""In an unquoted value: bash splits it otherwise than Python, or looks for files."""
_OF_BASH = {
    *("IFS", "GLOBIGNORE", "POSIXLY_CORRECT", "OPTIND", "OPTERR", "COMP_WORDBREAKS", "HOSTTYPE"),
    *(
        "MACHTYPE",
        "PS4",
        "PWD",
        "OLDPWD",
        "BASH",
        "BASH_EXECUTION_STRING",
        "BASH_LOADABLES_PATH",
        "BASH_ARGV0",
    ),
}
_OF_ANY_PROCESS = {"PATH", "SHELL", "TERM", "TMPDIR", "LC_ALL"}


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
        value = environment.get(assignment.name, "")
        if MARK in value.replace(STAMP, "").replace(RANDOM, ""):
            raise walk.refused(assignment.place.file, assignment.place.line)
    return environment


def line_end_problem(name: str, text: str) -> tuple[str, str] | None:
    """Return problem and hint for a file with CR LF."""
    if not re.search(r"\r(\n|\Z)", text):
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

    def refused(self, path: str, line: int) -> NotPlain:
        lines = (self.tree.text(path) or "").split("\n")
        return NotPlain(posixpath.basename(path), line, "".join(lines[line - 1 : line]))

    def source(self, path: str, shell: ShellState, how: str) -> None:
        if path in (shell.frame.source, *shell.frame.callers):
            raise InputError(f"{posixpath.basename(path)}: sources itself")
        text = self.tree.text(path) or ""
        if problem := line_end_problem(posixpath.basename(path), text):
            raise InputError(problem[0], hint=problem[1])
        if control := _CONTROL.search(text):
            raise self.refused(path, text.count("\n", 0, control.start()) + 1)
        root = parse(text)
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

    def either(self, shell: ShellState, *branches: Callable[[ShellState], None]) -> None:
        raise Exit(None)

    def statement(self, node: Node, shell: ShellState) -> None:
        known = len(self.trace.assignments)
        try:
            if node.type == "command" and not self._is_plain_call(node, shell):
                raise self.refused(shell.frame.source, line_of(node))
            super().statement(node, shell)
        except (Exit, RecursionError):
            raise self.refused(shell.frame.source, line_of(node)) from None
        values = [assignment.value for assignment in self.trace.assignments[known:]]
        if self.trace.undecided or not all(map(is_known, values)):
            raise self.refused(shell.frame.source, line_of(node))

    def _is_plain_call(self, node: Node, shell: ShellState) -> bool:
        """Return whether the command's arguments, expanded, have a known effect."""
        shell = shell.copy()  # for the assignments of ${NAME:=value}
        argv = [text_of(node.named_children[0])]
        for argument in node.named_children[1:]:
            if argument.type in ("string", "raw_string", "word", "number"):
                argv.append(expansion.text(self, shell, argument))
                continue
            value = expansion.text(self, shell, argument)
            is_split = argument.type == "concatenation" and len(value.split()) != 1
            if is_split or _SPLIT_OTHERWISE.search(value):
                return False
            argv += value.split()
        if not all(map(is_known, argv)):
            return False
        match argv:
            case [":" | "true", *_]:
                return True
            case ["echo", *texts]:
                return not any(re.fullmatch("-n*[eE][neE]*", text) for text in texts)
            case ["date", form]:
                return form.startswith("+") and "%" in form
            case ["readlink", "-f", path]:
                return self.tree.text(self.absolute(shell, path)) is not None
            case ["dirname" | "basename", path, *suffix]:
                base = path.rstrip("/").rpartition("/")[2]
                is_whole = path.startswith("-") or "//" in path or not base or base in suffix
                return not is_whole and len(suffix) <= (argv[0] == "basename")
            case ["expr", _, _, *_] | ["sed", _]:
                return True
            case ["source" | ".", path, *_]:
                return not path.startswith("-")
        return False


def _odd(root: Node) -> Node | None:
    """Return the first non-plain part."""
    pending: list[tuple[Node, frozenset[str], int]] = [(root, frozenset(), 0)]
    while pending:
        node, around, depth = pending.pop()
        if depth > MOST_DEPTH or not _is_plain(node, around) or not _are_apart(node):
            return node
        # The quotes around a substitution are not those of its words.
        inner = frozenset() if node.type == "command_substitution" else around
        inner |= {node.type}
        pending.extend((child, inner, depth + 1) for child in reversed(node.children))
    return None


def _are_apart(node: Node) -> bool:
    """Return whether the text between a node's parts separates them, or is empty."""
    source, at = node.text or b"", node.start_byte
    if not node.children or node.type == "string":
        return True
    blanks = b"" if node.type in _TIGHT else b" \t" if node.type in _WORDS else b" \t\n"
    for before, after in zip([None, *node.children], [*node.children, None], strict=True):
        begin = before.end_byte if before else node.start_byte
        gap = source[begin - at : (after.start_byte if after else node.end_byte) - at]
        rest = gap.replace(b"\\\n", b"")
        is_joined = before and after and node.type in _WORDS
        if rest.strip(blanks) or ((gap or is_joined) and not rest):
            return False
    return True


def _is_plain(node: Node, around: frozenset[str]) -> bool:
    """`around`: nodes around it, up to a command substitution."""
    kinds = [child.type for child in node.children]
    inside = "command_substitution" in around
    text = text_of(node)
    match node.type:
        case "command":
            is_plain = kinds[0] == "command_name" and "variable_assignment" not in kinds
            is_plain = is_plain and text_of(node.children[0]) in (
                _OUTPUTS if inside else _STATEMENTS
            )
        case "declaration_command":
            is_plain = kinds[0] == "export" and _are_independent(node)
        case "unset_command":
            is_plain = set(kinds) == {"unset", "variable_name"}
        case "variable_assignment":
            name = text_of(node.children[0])
            is_plain = _NAME.fullmatch(name) is not None and not _is_of_bash(name)
        case "simple_expansion" | "expansion":
            is_plain = _is_plain_expansion(node)
        case "variable_name" if node.parent is not None and node.parent.type in _COMPUTED:
            is_plain = _is_own(text)
        case "string" | "raw_string":
            is_split = inside and "expansion" in around
            is_default = getattr(node.prev_sibling, "type", "") in (":-", "-")
            is_simple = node.type == "string" and not re.search(r"['\\]", text)
            is_simple = is_simple and (is_default or text == _ITS_NAME)
            is_plain = not is_split and ("string" not in around or is_simple)
        case "word":
            signs = {"~", "`", "$", "\n", *"".join(_EXPANDED.get(kind, "") for kind in around)}
            bare = text if "expansion" in around else re.sub(r"\\.", "", text)
            is_plain = signs.isdisjoint(bare)
        case "number":
            is_plain = not node.children
        case "regex" | "extglob_pattern":
            is_plain = _PATTERN.fullmatch(text) is not None
        case "pipeline":
            is_plain = inside
        case "command_substitution":
            is_plain = SEMICOLON not in (node.text or b"").decode("utf-8", "replace")
        case "comment":
            is_plain = "variable_assignment" not in around
        case "$" | "${" | "$(" | "$((":  # the grammar counts what is before them to them
            is_apart = text != "$" or not around.isdisjoint(("simple_expansion", "string"))
            is_plain = text.strip() == node.type and is_apart
        case kind:
            is_plain = kind in _PLAIN
    return is_plain


def _is_plain_expansion(node: Node) -> bool:
    if not node.named_children:
        return False
    kinds = [child.type for child in node.children]
    name, _, index = text_of(node.named_children[0]).partition("[")
    is_plain = _is_own(name) and kinds[1] in ("variable_name", "subscript")
    if index:
        is_plain = is_plain and name == "BASH_SOURCE" and index in ("0]", "1]")
    if len(kinds) > 3 and kinds[2] in _CUTS:
        patterns = node.children[3:-1]
        # The reader's folder starts with a slash, bash's with a dot.
        is_plain = is_plain and not re.search(r"%%/", text_of(node))
        is_plain = is_plain and all(
            part.type in ("regex", "extglob_pattern") or text_of(part) == _ITS_NAME
            for part in patterns
        )
    return is_plain


def _are_independent(node: Node) -> bool:
    """Return whether an `export` has names and values alone, no value with a name before it: bash
    expands all values first."""
    before: set[str] = set()
    for child in node.named_children:
        if child.type == "variable_assignment":
            pending = list(child.named_children[1:])
            for part in pending:
                if part.type == "variable_name" and text_of(part) in before:
                    return False
                pending.extend(part.named_children)
            before.add(text_of(child.named_children[0]))
        elif child.type != "variable_name":
            return False
    return True


def _is_of_bash(name: str) -> bool:
    return name in _OF_BASH or OWNED_BY_BASH.fullmatch(name) is not None


def _is_own(name: str) -> bool:
    """Return whether the value comes from the config, not from the host."""
    if name in ("RANDOM", "BASH_SOURCE"):
        return True
    is_of_host = name in _OF_ANY_PROCESS or _is_of_bash(name)
    return (
        _NAME.fullmatch(name) is not None
        and not is_of_host
        and value_of(ShellState(Frame(""), ""), name) is None
    )
