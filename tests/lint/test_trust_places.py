"""One place decides trust: every place that adopts what others may have put under a name asks it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from sources import PACKAGE, tree

ASKS = {"others", "foreign", "whose"}
"""The judgement, and those of a set and of a stored image, which are made of it."""
ELSEWHERE = {"onnode", "simulation"}
"""Nodes judge their own folders in /tmp; the simulated world has one user."""

REASONS = {
    "cli/image_contract.py:_keep": "a folder of data, in which only new files are made",
    "importing/execution.py:_output": "a private temporary folder",
    "importing/writing.py:write": "the folder that the user named; the files have to be new",
    "cli/debug.py:_opened": "the file that the user named",
    "cli/defect.py:_write": "a new name, in a folder that was judged",
    "cli/preflight.py:_write_excluded": "the file that the user named",
    "cli/report.py:_run_all": "the folder that the user named",
    "cli/systems.py:_new": "the folder that the user named; the file has to be new",
    "container/unpack.py:_file": "a new file below the descriptor of a new folder",
    "container/code.py:copy_code": "a new folder in the one that the user named",
    "container/image_nodes.py:keep": "names of nodes, which only silence a warning",
    "container/local.py:_start_service": "a log in a private temporary folder",
    "container/store.py:check_room": "tars of others are judged when they are read",
    "inspection/preparing.py:inspect_for_preparation": "results of inspections are data, in new files",
    "model/sites.py:group_problem": "asks only whether this user is in a group",
    "nodes/known_hosts.py:_listed": "a private temporary file",
    "preflight/places.py:_marker": "in the new folder of this preflight",
    "prepare/state.py:write_state": "data, never executed by this user",
    "prepare/step.py:__init__": "a log next to the data",
    "prepare/work.py:_make_folders": "data, never executed by this user",
    "render/files.py:write_bundle": "the parent of a new folder",
    "render/files.py:_fill": "in a new folder",
    "site/find.py:_log_dir": "doctor and submit judge the folder for the sets",
    "site/site_file.py:write_site": "the file that the user named",
    "submission/package.py:write_tree": "in a new folder",
    "submission/package.py:write_package": "the parent of a new folder",
}
"""Places that adopt nothing of others, and why."""
JUDGED = {
    "cli/demo.py:_site",
    "cli/finding.py:find_site_and_source",
    "cli/finding.py:own_set",
    "container/spread.py:tar_to_distribute",
    "container/store.py:stored",
    "jinja.py:_compiled",
    "runset/create.py:find_unsubmitted",
}
"""Places that execute or believe what they find."""


def calls(node: ast.AST) -> Iterator[ast.Call]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            yield inner


def name_of(call: ast.Call) -> str:
    target = call.func
    return (
        target.attr
        if isinstance(target, ast.Attribute)
        else target.id
        if isinstance(target, ast.Name)
        else ""
    )


def adopts(call: ast.Call) -> bool:
    """Return whether a call takes what stands there already, for code, settings or a folder."""
    name, words = name_of(call), {word.arg: word.value for word in call.keywords}
    if name in ("mkdir", "makedirs"):
        kept = words.get("exist_ok")
        return isinstance(kept, ast.Constant) and kept.value is True
    if name == "open":
        modes = [one.value for one in call.args if isinstance(one, ast.Constant)]
        return any(
            isinstance(mode, str) and mode[:1] in ("w", "a") and len(mode) < 4 for mode in modes
        )
    return name in (
        "write_text",
        "FileSystemBytecodeCache",
        "getuid",
        "geteuid",
        "spec_from_file_location",
        "run_path",
    ) or (name == "glob" and "tar" in ast.unparse(call))


@cache
def functions() -> tuple[tuple[str, list[ast.Call]], ...]:
    return tuple(_functions())


def _functions() -> Iterator[tuple[str, list[ast.Call]]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if inside.parts[0] in ELSEWHERE or inside.name == "trust.py":
            continue
        for function in ast.walk(tree(path)):
            if isinstance(function, ast.FunctionDef):
                yield f"{inside}:{function.name}", list(calls(function))


def test_every_place_that_adopts_something_asks_or_has_a_reason() -> None:
    silent = {
        name
        for name, made in functions()
        if any(map(adopts, made)) and not any(name_of(call) in ASKS for call in made)
    }
    assert silent - set(REASONS) == set(), "let these ask orchestrator.trust.others()"
    assert set(REASONS) - silent == set(), "these reasons are not needed any more"


def test_the_places_that_execute_what_they_find_ask() -> None:
    asking = {name for name, made in functions() if any(name_of(call) in ASKS for call in made)}
    assert JUDGED - asking == set()


def test_nothing_else_judges_an_owner() -> None:
    """A second judgement would forget the parents, the modes or the links."""
    compared = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ELSEWHERE
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and node.attr == "st_uid"
    }
    # find.py lists the user's own sets, which is no judgement of what they hold; sources.py notes
    # the owners of an image's files.
    known = {"trust.py", "runset/find.py", "inspection/sources.py"}
    assert compared == known
