"""Rules for names, classes and assignments in the package, held by tests/lint/test_names.py and tests/lint/test_objects.py.

usage:  python tools/rules.py

Prints what breaks them, a line each.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "orchestrator"
MOST_ATTRIBUTES = 15
RECORDS = frozenset({"Frozen", "DocumentPart", "StateFile"})
"""Bases of records, which are written once and may have any number of fields, as frozen dataclasses may."""
OTHERS = {
    "process.returncode": "subprocess.Popen",
}
"""Assignment to an object of the standard library whose attribute has the name of one of ours -> its class."""
COMPUTED = {
    "sys": "streams and caught signals",
    "sys.modules[package]": "a public name that was imported on its first use",
    "options": "flags of a program, in the module of their class",
}
"""Object whose attributes are set by computed names (setattr) -> what they are."""
FORBIDDEN = frozenset({"one", "found", "told", "words", "own"})
FIELDS = frozenset(
    {
        "Counts.words",
        "Drift.found",
        "Score.own",
        "SetCounts.told",
        "Start.words",
    }
)
"""Fields of records, and members of JSON, that may have a forbidden name."""

Modules = dict[Path, ast.Module]
Place = tuple[int, str]
"""A line and a text about it."""


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


def modules(folder: Path = PACKAGE, read: Callable[[Path], ast.Module] = parse) -> Modules:
    paths = (path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    return {path: read(path) for path in sorted(paths)}


# ---- classes ----


@cache
def nodes(module: ast.AST) -> list[ast.AST]:
    return list(ast.walk(module))


@cache
def classes(module: ast.AST) -> list[ast.ClassDef]:
    return [node for node in nodes(module) if isinstance(node, ast.ClassDef)]


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Yield everything below a class, except what belongs to a class in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef):
            yield child
            yield from inside(child)


def fields(class_: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    for node in class_.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node


def attributes(class_: ast.ClassDef) -> set[str]:
    """Return the annotated fields of a class and the attributes that it assigns to `self` or `cls`."""
    annotated = {field.target.id for field in fields(class_) if isinstance(field.target, ast.Name)}
    return annotated | assigned(class_)


def assigned(class_: ast.ClassDef) -> set[str]:
    return {
        target.attr
        for target in inside(class_)
        if is_assigned(target) and ast.unparse(target.value) in ("self", "cls")
    }


class Hierarchy:
    """Classes of modules, with their bases: of the same module, else of the module that the name is
    imported from, else all of that name."""

    def __init__(self, trees: Modules) -> None:
        self._homes = {class_: path for path, module in trees.items() for class_ in classes(module)}
        self._origins = {path: origins(module) for path, module in trees.items()}

    def bases(self, class_: ast.ClassDef) -> list[ast.ClassDef]:
        """Return its direct bases among these classes."""
        home = self._homes[class_]
        return [
            base
            for text in base_names(class_)
            for base in self._named(text, home)
            if base is not class_
        ]

    def _named(self, text: str, home: Path) -> list[ast.ClassDef]:
        """`text`: a base in the module `home`, such as `part.Name`."""
        prefix, _, name = text.rpartition(".")
        module, original = self._origins[home].get(prefix or name, ("", ""))
        if prefix:
            module = original or module or prefix.rpartition(".")[2]
        else:
            name = original or name
        every = {class_: path for class_, path in self._homes.items() if class_.name == name}
        near = [
            class_
            for class_, path in every.items()
            if (module in (path.stem, path.parent.name) if module else path == home)
        ]
        return near or list(every)

    def above(self, class_: ast.ClassDef) -> list[ast.ClassDef]:
        """Return the class and all its bases, direct or not."""
        above, left = list[ast.ClassDef](), [class_]
        while left:
            base = left.pop()
            if base not in above:
                above.append(base)
                left += self.bases(base)
        return above

    def attributes(self, class_: ast.ClassDef) -> set[str]:
        """Return its attributes, inherited attributes included."""
        return set().union(*map(attributes, self.above(class_)))

    def is_record(self, class_: ast.ClassDef) -> bool:
        """Return whether its objects never change: a subclass of a record may assign nothing."""
        return self._is_record(class_, frozenset())

    def _is_record(self, class_: ast.ClassDef, below: frozenset[ast.ClassDef]) -> bool:
        if is_frozen(class_) or class_.name in RECORDS:
            return True
        names = {text.rpartition(".")[2] for text in base_names(class_)}
        bases = set(self.bases(class_)) - below
        is_below = bool(names & RECORDS) or any(
            self._is_record(base, below | {class_}) for base in bases
        )
        return is_below and not assigned(class_)


def base_names(class_: ast.ClassDef) -> list[str]:
    """Return the names of its bases, as written but for their parameters."""
    plain = (base.value if isinstance(base, ast.Subscript) else base for base in class_.bases)
    return [ast.unparse(base) for base in plain]


def origins(module: ast.AST) -> dict[str, tuple[str, str]]:
    """Return imported name -> last part of its module, and its name there ("" of `import`)."""
    names = {}
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom):
            origin = (node.module or "").rpartition(".")[2]
            names |= {alias.asname or alias.name: (origin, alias.name) for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {
                alias.asname or alias.name: (alias.name.rpartition(".")[2], "")
                for alias in node.names
            }
    return names


def is_assigned(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def is_frozen(class_: ast.ClassDef) -> bool:
    return any(
        keyword.arg == "frozen"
        and isinstance(keyword.value, ast.Constant)
        and keyword.value.value is True
        for decorator in class_.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
    )


def too_large(trees: Modules) -> Iterator[tuple[Path, Place]]:
    """Yield the classes of more than MOST_ATTRIBUTES attributes, inherited attributes included."""
    hierarchy = Hierarchy(trees)
    for path, module in trees.items():
        for class_ in classes(module):
            count = len(hierarchy.attributes(class_))
            if count > MOST_ATTRIBUTES and not hierarchy.is_record(class_):
                text = f"{class_.name} has {count} attributes, at most {MOST_ATTRIBUTES}"
                yield path, (class_.lineno, text)


def assigned_outside(trees: Modules) -> Iterator[tuple[Path, Place]]:
    """Yield the assignments to attributes of objects whose class is in another module.

    An attribute is known by its name alone: of a class in the same module, of one in another
    module, or of none of ours.
    """
    owned = {
        path: {name for class_ in classes(module) for name in attributes(class_)}
        for path, module in trees.items()
    }
    ours = set().union(*owned.values())
    for path, module in trees.items():
        for line, owner, name in assignments(module):
            if owner in ("self", "cls") or f"{owner}.{name}" in OTHERS:
                continue
            if not name and owner not in COMPUTED:
                yield path, (line, f"setattr({owner}, ...) with a computed name")
            elif name in ours - owned[path]:
                yield path, (line, f"{owner}.{name} is assigned outside the module of its class")


def assignments(module: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Yield line, object and attribute of each assignment, setattr included; "" if it computes the name."""
    for node in nodes(module):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, ast.unparse(node.value), node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setattr":
            owner, name, *_ = node.args
            constant = name.value if isinstance(name, ast.Constant) else ""
            yield node.lineno, ast.unparse(owner), str(constant)


# ---- names ----


def forbidden_names(trees: Modules) -> Iterator[tuple[Path, Place]]:
    """Yield the variables, parameters, captures and aliases with a name of FORBIDDEN."""
    for path, module in trees.items():
        allowed = {
            id(field.target)
            for class_ in classes(module)
            for field in fields(class_)
            if f"{class_.name}.{ast.unparse(field.target)}" in FIELDS
        }
        for node in nodes(module):
            name = "" if id(node) in allowed else bound(node)
            if name in FORBIDDEN:
                yield path, (node.lineno, f"{name!r}: use the noun of its value")  # type: ignore[attr-defined]


def bound(node: ast.AST) -> str:
    """Return the name that a node gives to a value, "" for none."""
    if isinstance(node, ast.Name):
        return node.id if isinstance(node.ctx, ast.Store) else ""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.alias):
        return node.asname or ""
    if isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        return node.name or ""
    return (node.rest or "") if isinstance(node, ast.MatchMapping) else ""


def lines(problems: Iterable[tuple[Path, Place]]) -> list[str]:
    """Return problems as `file:line: text`, in order."""
    return [
        f"{path.relative_to(PACKAGE.parent)}:{line}: {text}"
        for path, (line, text) in sorted(problems)
    ]


def main() -> None:
    trees = modules()
    for rule in (too_large, assigned_outside, forbidden_names):
        problems = lines(rule(trees))
        print("\n".join([f"{rule.__name__}: {len(problems)}", *problems]))


if __name__ == "__main__":
    main()
