"""One meaning per name: a class is found by its name alone, and a variable has the noun of its value."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
from sources import tree

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))

from rules import FIELDS, PACKAGE, Modules, classes, fields, forbidden_names, lines, modules  # noqa: E402


@pytest.fixture(scope="module")
def trees() -> Modules:
    return modules(read=tree)


def test_every_class_name_is_used_once(trees: Modules) -> None:
    places: dict[str, list[str]] = {}
    for path, module in trees.items():
        for class_ in classes(module):
            place = f"{path.relative_to(PACKAGE)}:{class_.lineno}"
            places.setdefault(class_.name, []).append(place)
    assert len(places) > 150
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_every_variable_has_the_noun_of_its_value(trees: Modules) -> None:
    problems = lines(forbidden_names(trees))
    assert not problems, "\n".join(["", *problems])


def beside_the_package() -> Modules:
    """The tools, the benchmarks, the tests of the lab, and what stands above the folders of tests."""
    folders = [TOP / "tools", TOP / "benchmarks", TOP / "tests", TOP / "tests/lab"]
    return {path: tree(path) for folder in folders for path in sorted(folder.glob("*.py"))}


def test_so_has_every_variable_of_tools_and_of_some_tests() -> None:
    problems = lines(forbidden_names(beside_the_package()))
    assert not problems, "\n".join(["", *problems])


def test_the_excepted_fields_exist(trees: Modules) -> None:
    every = {
        f"{class_.name}.{ast.unparse(field.target)}"
        for module in (*trees.values(), *beside_the_package().values())
        for class_ in classes(module)
        for field in fields(class_)
    }
    assert FIELDS - every == set(), "remove these from FIELDS of tools/rules.py"


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("one = 1", True),
        ("a, (one, *b) = x", True),
        ("for one in x: pass", True),
        ("[one for one in x]", True),
        ("lambda one: 1", True),
        ("def f(*, one): pass", True),
        ("def f(**one): pass", True),
        ("with x as one: pass", True),
        ("import x as one", True),
        ("from x import y as one", True),
        ("try: pass\nexcept E as one: pass", True),
        ("(one := 1)", True),
        ("match x:\n    case [one]: pass", True),
        ("match x:\n    case [*one]: pass", True),
        ("match x:\n    case {**one}: pass", True),
        ("class Score:\n    one: int", True),
        ("class Score:\n    own: int", False),
        ("class Other:\n    own: int", True),
        ("from x import words", False),
        ("x.one = f(one=1)", False),
        ("def one(): pass", False),
        ("oneself = 1", False),
    ],
)
def test_what_the_rule_finds(source: str, wrong: bool) -> None:
    assert bool(lines(forbidden_names({PACKAGE / "a.py": ast.parse(source)}))) is wrong
