"""Rules that tests keep, so that none depends on how fast the machine is: how they wait, and what they do not measure."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

EXCEPTIONS = {
    "until.py": "the one helper",
    "deep/deep_parts.py": "drives a flow of the loop, which yields times of the monotonic clock",
    "onnode/test_loop_": "the same; they move to the simulated world",
    "preflight/preflight_parts.py": "drives checks up to their own deadline, as the agent does",
    "deep/stand_in/": "programs that stand for torch",
    "simulation/seeded_sets.py": "a program: how many sets it plays in a second",
    "hostile/fuzz_readers.py": "a program: it gives each reader so many minutes",
    "simulation/mutations.py": "a program: how long it looks for each defect",
    "faults/": "the campaign: faults at random moments, and how long a set takes to recover",
}

CLOCKS = {
    "time": {
        "sleep",
        "monotonic",
        "monotonic_ns",
        "time",
        "time_ns",
        "perf_counter",
        "perf_counter_ns",
    }
    | {"process_time", "process_time_ns", "thread_time", "thread_time_ns"},
    "os": {"times"},
    "resource": {"getrusage"},
    "asyncio": {"sleep"},
}


AGE = re.compile(r"^.*\b\d+ s ago.*$")
"""In a text of one line. How long ago something was depends on how long the test takes."""


def problems(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each use of a clock, second `until`, assertion that something took less than a time, age in
    seconds that is compared, and time limit for examples."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in CLOCKS.get(node.value.id, ()):
                yield node.lineno, f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in CLOCKS:
            for name in node.names:
                if name.name in CLOCKS[node.module]:
                    yield node.lineno, f"{node.module}.{name.name}"
        elif isinstance(node, ast.FunctionDef) and node.name in (
            "until",
            "wait_until",
            "eventually",
        ):
            yield node.lineno, f"def {node.name}"
        elif isinstance(node, ast.Constant) and AGE.fullmatch(str(node.value)):
            yield node.lineno, "an age in seconds"
        elif isinstance(node, ast.keyword) and node.arg == "deadline" and has_limit(node.value):
            yield node.value.lineno, "deadline"
        elif isinstance(node, ast.Compare) and any(map(is_span, smaller(node))):
            yield node.lineno, "a limit on how long something took"


def has_limit(node: ast.expr) -> bool:
    return not (isinstance(node, ast.Constant) and node.value is None)


def smaller(node: ast.Compare) -> Iterator[ast.expr]:
    """Yield what has to be less than something."""
    sides = [node.left, *node.comparators]
    for left, operator, right in zip(sides, node.ops, node.comparators, strict=False):
        if isinstance(operator, (ast.Lt, ast.LtE)):
            yield left
        elif isinstance(operator, (ast.Gt, ast.GtE)):
            yield right


def is_span(node: ast.expr) -> bool:
    """Whether an expression is the difference of two recorded times."""
    subtractions = [
        part
        for part in ast.walk(node)
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub)
    ]
    return any(
        ast.unparse(side).rstrip("'\")]").endswith("_ms")
        for part in subtractions
        for side in (part.left, part.right)
    )


def test_tests_wait_by_one_helper_and_measure_no_time() -> None:
    places, needed = [], set()
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        for line, what in problems(ast.parse(path.read_bytes())):
            excepted = [prefix for prefix in EXCEPTIONS if name.startswith(prefix)]
            needed.update(excepted)
            if not excepted:
                places.append(f"tests/{name}:{line}: {what}")
    assert not places, "\n".join(places)
    assert needed == set(EXCEPTIONS), "exceptions that nothing needs any more"


def test_no_two_modules_have_one_name() -> None:
    """pytest puts every folder of tests on the path: which of two came first depended on the order of the tests."""
    names = Counter(path.name for path in TESTS.rglob("*.py") if path.name != "conftest.py")
    assert [name for name, times in names.items() if times > 1] == []


def test_what_the_rules_find() -> None:
    text = """
time.sleep(1)
from time import monotonic
assert b["end_ms"] - a["start_ms"] < 5000
assert 5000 > max(one.end_ms for one in runs) - run.start_ms
assert b["end_ms"] - a["start_ms"] >= 2000
def until(): ...
assert "it was heard of 0 s ago" in text
@settings(deadline=200)
def test(): ...
"""
    assert sorted(problems(ast.parse(text))) == [
        (2, "time.sleep"),
        (3, "time.monotonic"),
        (4, "a limit on how long something took"),
        (5, "a limit on how long something took"),
        (7, "def until"),
        (8, "an age in seconds"),
        (9, "deadline"),
    ]
