"""Finds what asks the machine directly, in code that may ask only its world (docs/architecture.md, "The world")."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES = _words(
    "asyncio datetime fcntl glob io multiprocessing random secrets select selectors shutil socket subprocess tempfile"
    " threading time urllib uuid"
)
"""Their whole purpose is the machine, or chance."""
PURE = {
    "os": _words("PathLike fsdecode fsencode fspath path pathsep sep strerror"),
    "os.path": _words("basename commonpath dirname isabs join normpath split splitext"),
    "signal": _words("SIGHUP SIGINT SIGKILL SIGTERM SIGUSR1 SIGUSR2 Signals"),
}
READS = _words(
    "exists glob group is_dir is_file is_symlink iterdir lstat owner read_bytes read_text readlink resolve rglob samefile"
    " stat walk"
)
WRITES = _words(
    "chmod hardlink_to lchmod mkdir open rename rmdir symlink_to touch unlink write_bytes write_text"
)
"""Methods of pathlib.Path; `replace` is told from that of text by its arguments."""
REAL = _words("THIS HERE")
DIRECT = {
    f"orchestrator.onnode.kernel.{name}"
    for name in _words(
        "files.open_new records.write_bytes regular.open_regular regular.read_bytes settings.evaluate_config settings.load"
        " system.amd_gpus system.ask system.entries system.first_line system.lines system.names system.process_start"
        " walk.FilesInside world.log"
    )
}
"""Functions that cannot be given a world."""


@dataclass(frozen=True)
class Rule:
    """`reads`: evidence may be read directly. `os`: more names of that module that are allowed."""

    reads: bool = False
    os: frozenset[str] = frozenset()
    direct: frozenset[str] = frozenset()
    """Allowed in spite of DIRECT."""


@dataclass
class Parameter:
    """Where a function takes its world, or a part of one; `place` is None if only by name."""

    name: str
    place: int | None


@cache
def with_a_world(package: Path) -> dict[str, list[Parameter]]:
    """Return full name of a function or class -> parameters that are the real world unless they are given."""
    worlds: dict[str, list[Parameter]] = {}
    for path in sorted(package.rglob("*.py")):
        module = ".".join(
            (package.name, *path.relative_to(package).with_suffix("").parts)
        ).removesuffix(".__init__")
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.FunctionDef):
                parameters = list(_parameters(node.args, 0))
            elif isinstance(node, ast.ClassDef):
                parameters = list(_fields(node))
                for method in node.body:
                    if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                        parameters = list(_parameters(method.args, 1))
            else:
                continue
            if parameters:
                worlds[f"{module}.{node.name}"] = parameters
    return worlds


def _parameters(args: ast.arguments, skip: int) -> Iterator[Parameter]:
    names = [*args.posonlyargs, *args.args]
    for place, default in enumerate(args.defaults, len(names) - len(args.defaults)):
        if _is_real(default):
            yield Parameter(names[place].arg, place - skip)
    for name, given in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        if given is not None and _is_real(given):
            yield Parameter(name.arg, None)


def _fields(node: ast.ClassDef) -> Iterator[Parameter]:
    fields = [node_ for node_ in node.body if isinstance(node_, ast.AnnAssign)]
    for place, node_ in enumerate(fields):
        if node_.value is not None and _is_real(node_.value) and isinstance(node_.target, ast.Name):
            yield Parameter(node_.target.id, place)


def _is_real(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in REAL | {"ask"}


@dataclass
class Finder(ast.NodeVisitor):
    """Collects `line: what` from one module."""

    module: str
    worlds: dict[str, list[Parameter]]
    rule: Rule
    wrong: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Name in this module -> full name of what was imported, or is defined at its top."""

    def look(self, source: str | bytes) -> list[str]:
        tree = ast.parse(source)
        self.names = {
            node.name: f"{self.module}.{node.name}"
            for node in tree.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        self.visit(tree)
        return self.wrong

    def _tell(self, node: ast.AST, text: str) -> None:
        self.wrong.append(f"{getattr(node, 'lineno', 0)}: {text}")

    def _full(self, node: ast.expr) -> str:
        """Return the full name of an imported thing; "" of everything else."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts, node = [node.attr, *parts], node.value
        return (
            ".".join((self.names[node.id], *parts))
            if isinstance(node, ast.Name) and node.id in self.names
            else ""
        )

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.names[alias.asname or alias.name.split(".")[0]] = alias.name
            if alias.name.split(".")[0] in MODULES:
                self._tell(node, f"import {alias.name}")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        above = self.module.split(".")[: -node.level] if node.level else []
        module = ".".join((*above, *filter(None, (node.module,))))
        if module.split(".")[0] in MODULES:
            self._tell(node, f"from {module} import")
        for alias in node.names:
            full = self.names[alias.asname or alias.name] = f"{module}.{alias.name}"
            self._pure(node, full)

    def _pure(self, node: ast.AST, full: str) -> None:
        module, _, name = full.rpartition(".")
        if module in PURE and name not in PURE[module] | (
            self.rule.os if module == "os" else frozenset()
        ):
            self._tell(node, full)

    def visit_arguments(self, node: ast.arguments) -> None:
        for default in (*node.defaults, *node.kw_defaults):
            if default is not None and not _is_real(default):
                self.visit(default)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not _is_real(node.value):
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in REAL:
            self._tell(node, f"{node.id} in place of the world that was given")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._pure(node, self._full(node))
        if node.attr in REAL:
            self._tell(node, f"{node.attr} in place of the world that was given")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        full = self._full(node.func)
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            self._tell(node, "open()")
        if full in DIRECT - self.rule.direct:
            self._tell(node, full)
        for parameter in self.worlds.get(full, ()):
            given = {word.arg for word in node.keywords}
            by_place = parameter.place is not None and len(node.args) > parameter.place
            if parameter.name not in given and not by_place and None not in given:
                self._tell(node, f"{full}() without {parameter.name}=")
        if isinstance(node.func, ast.Attribute) and not full:
            self._method(node, node.func)
        self.generic_visit(node)

    def _method(self, node: ast.Call, method: ast.Attribute) -> None:
        if ast.unparse(method.value).rpartition(".")[2] in ("files", "world"):
            return
        replaces = method.attr == "replace" and len(node.args) == 1 and not node.keywords
        if method.attr in WRITES or replaces or (method.attr in READS and not self.rule.reads):
            self._tell(node, f"{ast.unparse(method)}()")


def direct_calls(
    source: str | bytes, module: str, worlds: dict[str, list[Parameter]], rule: Rule
) -> list[str]:
    """Return `line: what` for all in a module that asks the machine and not a world."""
    return Finder(module, worlds, rule).look(source)
