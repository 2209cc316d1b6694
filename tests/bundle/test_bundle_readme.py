"""What a bundle's README says of lib/: which folders the batch host and the nodes run, and what a reader can skip."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from orchestrator.model import Site, load_entry
from orchestrator.render import render_bundle


def bundle(deep: bool) -> Mapping[str, bytes]:
    site = Site(log_dir="/logs", preflight={"deep": deep})
    return render_bundle(load_entry("MI325X_08x08x32", "flux1", site=site), nexp=1)


def about_lib(files: Mapping[str, bytes]) -> str:
    """The README's paragraph about lib/ as one line."""
    [text] = re.findall(r"^lib/ .*?(?=^\S)", files["README"].decode(), re.S | re.M)
    return " ".join(text.split())


def imported(files: Mapping[str, bytes], start: str) -> set[str]:
    """Return the files of lib/ that a program imports, at once or later."""
    reached, waiting = set[str](), [f"lib/{start}"]
    while waiting:
        name = waiting.pop()
        if name in reached or name not in files:
            continue
        reached.add(name)
        for node in ast.walk(ast.parse(files[name])):
            if isinstance(node, ast.ImportFrom) and node.level:
                above = PurePosixPath(name).parents[node.level - 1]
                module = above.joinpath(*(node.module or "").split("."))
                waiting += [f"{module}.py", *(f"{module}/{item.name}.py" for item in node.names)]
    return reached


def folders(files: set[str]) -> set[str]:
    return {f"{PurePosixPath(name).parent.name}/" for name in files}


@pytest.mark.parametrize("deep", [False, True])
def test_it_names_the_folders_that_a_node_and_the_loop_run(deep: bool) -> None:
    files = bundle(deep)
    host, node, both = about_lib(files).split("; ")[:3]
    common = set(re.findall(r"\w+/", both.split(".")[0]))
    for part, program in ((host, "loop/job.py"), (node, "agent/agent.py")):
        named = set(re.findall(r"\w+/", part.replace("lib/ ", ""))) - {"measure/"}
        assert named | common == folders(imported(files, program))
    is_there = any(name.startswith("lib/measure/") for name in files)
    assert ("measure/" in node) == is_there == deep


@pytest.mark.parametrize("deep", [False, True])
def test_it_names_files_that_are_there(deep: bool) -> None:
    files = bundle(deep)
    _, reading = about_lib(files).split("One run, in reading order: ")
    path, skipped = reading.split(" To follow a run, skip ")
    for name in path.split(", "):
        assert f"lib/{name}" in files
    assert re.findall(r"\w+(?:/|\.py)", skipped) == ["kernel/", "loader.py", "__main__.py"]
    assert {"lib/loader.py", "lib/__main__.py"} <= files.keys()
