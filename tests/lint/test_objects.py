"""What a class of the package may hold, and who may change it: an object that everybody changes is nobody's idea."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from sources import tree

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from rules import (
    COMPUTED,
    MOST_ATTRIBUTES,
    OTHERS,
    PACKAGE,
    RECORDS,
    Hierarchy,
    Modules,
    assigned_outside,
    assignments,
    attributes,
    classes,
    lines,
    modules,
    too_large,
)


@pytest.fixture(scope="module")
def trees() -> Modules:
    return modules(read=tree)


def test_no_class_has_more_attributes_than_a_reader_can_hold(trees: Modules) -> None:
    names = {class_.name for module in trees.values() for class_ in classes(module)}
    assert len(names) > 400 and RECORDS - names == set()
    problems = lines(too_large(trees))
    assert not problems, "\n".join(["", *problems])


def test_no_attribute_is_assigned_from_outside_its_module(trees: Modules) -> None:
    problems = lines(assigned_outside(trees))
    assert not problems, "\n".join(["", *problems])


def test_every_exception_is_needed(trees: Modules) -> None:
    every = [place for module in trees.values() for place in assignments(module)]
    assert OTHERS.keys() - {f"{owner}.{name}" for _, owner, name in every} == set()
    assert COMPUTED.keys() - {owner for _, owner, name in every if not name} == set()


LARGE = "\n".join(f"    a{number}: int" for number in range(MOST_ATTRIBUTES + 1))


def checked(**sources: str) -> Modules:
    return {PACKAGE / f"{name}.py": ast.parse(source) for name, source in sources.items()}


@pytest.mark.parametrize(
    ("head", "wrong"),
    [
        ("class A:", True),
        ("@dataclass\nclass A:", True),
        ("@dataclass(frozen=False)\nclass A:", True),
        ("@dataclass(frozen=True, slots=True)\nclass A:", False),
        ("class A(StateFile):", False),
        ("class B(part.DocumentPart): ...\nclass A(B):", False),
        ("class B(list): ...\nclass A(B):", True),
        ("@dataclass(frozen=True)\nclass B: ...\nclass A(B):", False),
        ("@dataclass(frozen=True)\nclass B: ...\nclass A(B):\n    def f(self): self.x = 1", True),
        ("class A(B):\n    x: int\nclass B(A):", True),
    ],
)
def test_records_alone_may_be_large(head: str, wrong: bool) -> None:
    assert bool(lines(too_large(checked(a=f"{head}\n{LARGE}")))) is wrong


def test_the_attributes_of_a_class() -> None:
    source = """
class A:
    kind = "no field"
    field: int = 0
    def __init__(self):
        self.plain, (self.first, *self.rest) = 1, (2, 3)
        self.counted += 1
        self.given: int = 1
        self.other.inner = 1
        for self.each in (): pass
    class B:
        def __init__(self): self.of_b = 1
"""
    outer, inner = classes(ast.parse(source))
    assert attributes(outer) == {"field", "plain", "first", "rest", "counted", "given", "each"}
    assert attributes(inner) == {"of_b"}


def test_attributes_of_bases_count() -> None:
    source = """
class A(Protocol[T]):
    of_a: int
    both: int
class B(other.A[int], Unknown):
    both: int
    def __init__(self): self.of_b = 1
class C(B): ...
"""
    trees = checked(a=source)
    last = classes(*trees.values())[-1]
    assert Hierarchy(trees).attributes(last) == {"of_a", "both", "of_b"}
    half = "\n".join(LARGE.splitlines()[: MOST_ATTRIBUTES - 1])
    sources = {"a": f"class A:\n{half}", "b": "class B(A):\n    x: int\nclass C(B):\n    y: int"}
    assert [line.partition(" has")[0] for line in lines(too_large(checked(**sources)))] == [
        "orchestrator/b.py:3: C"
    ]


def large(**sources: str) -> list[str]:
    return [line.partition(" has")[0] for line in lines(too_large(checked(**sources)))]


def test_classes_that_are_each_others_base() -> None:
    """Of two modules: the rules have an answer, as Python has none."""
    assert large(a=f"class A(B):\n{LARGE}", b="class B(A): ...") == [
        "orchestrator/a.py:1: A",
        "orchestrator/b.py:1: B",
    ]


@pytest.mark.parametrize(
    "importing", ["from .{} import Base", "from . import {}", "from .{} import Base as Other"]
)
@pytest.mark.parametrize("module", ["a", "c"])
def test_of_two_bases_of_a_name_the_imported_base_counts(importing: str, module: str) -> None:
    base = {"from . import {}": f"{module}.Base"}.get(
        importing, "Other" if importing.endswith("Other") else "Base"
    )
    sources = {
        "a": "class Base:\n    x: int",
        "b": f"{importing.format(module)}\nclass B({base}): ...",
        "c": f"class Base:\n{LARGE}",
    }
    wrong = ["orchestrator/b.py:2: B"] if module == "c" else []
    assert large(**sources) == [*wrong, "orchestrator/c.py:1: Base"]


def test_the_base_of_the_same_module_comes_first() -> None:
    large_base = f"class Base:\n{LARGE}"
    small = "class Base: ...\nclass B(Base): ..."
    assert large(a=large_base, b=small) == large(b=small, a=large_base)
    assert large(a=large_base, b=small) == ["orchestrator/a.py:1: Base"]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (
            "a.field = 1",
            ["orchestrator/b.py:1: a.field is assigned outside the module of its class"],
        ),
        (
            "x, a.b.field = 1, 2",
            ["orchestrator/b.py:1: a.b.field is assigned outside the module of its class"],
        ),
        (
            "a.field += 1",
            ["orchestrator/b.py:1: a.field is assigned outside the module of its class"],
        ),
        (
            "setattr(a, 'field', 1)",
            ["orchestrator/b.py:1: a.field is assigned outside the module of its class"],
        ),
        ("setattr(a, name, 1)", ["orchestrator/b.py:1: setattr(a, ...) with a computed name"]),
        ("setattr(sys, name, 1)", []),
        ("self.field = 1", []),
        ("a.lineno = 1", []),
        ("a.mine = 1", []),
    ],
)
def test_assignments_from_outside(line: str, wrong: list[str]) -> None:
    trees = checked(a="class A:\n    field: int", b=f"{line}\nclass B:\n    mine: int")
    assert lines(assigned_outside(trees)) == wrong
