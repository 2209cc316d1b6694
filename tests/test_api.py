"""What `import orchestrator` offers: exactly what docs/api.md says, with types, and nothing before it is asked for."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
import set_of_logs as sets
from sites import write_code, write_site

import orchestrator

TOP = Path(orchestrator.__file__).resolve().parent.parent
API = TOP / "docs/api.md"


def test_exported_members_are_those_of_the_document() -> None:
    documented = re.findall(r"^\| `(\w+)", API.read_text(), re.MULTILINE)
    assert sorted([*documented, "__version__"]) == orchestrator.__all__ == dir(orchestrator)
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'open_sets'"):
        _ = orchestrator.open_sets


def test_type_checkers_see_the_same_names() -> None:
    guarded = [
        node
        for node in ast.parse(Path(orchestrator.__file__).read_text()).body
        if isinstance(node, ast.If)
    ]
    seen = {
        alias.name: node.module.removeprefix("orchestrator.")
        for node in ast.walk(guarded[0])
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    assert seen == orchestrator._HOMES
    assert (TOP / "orchestrator/py.typed").is_file()


def test_nothing_is_loaded_before_it_is_asked_for() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); before = set(sys.modules); import orchestrator\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(TOP)], capture_output=True, text=True
    )
    assert done.stdout.strip() == "['orchestrator']", done.stderr


def test_the_examples_of_the_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sets.make_set(tmp_path, sets.logs(sets.MI355X))
    made.rename(tmp_path / "a-set")
    (tmp_path / "site.yaml").write_text(
        "log_dir: /shared/results\ndata: {flux1: {DATADIR: /data}}\n"
    )
    write_site(tmp_path / "here.yaml", tmp_path / "sets")
    monkeypatch.chdir(tmp_path)
    result = doctest.testfile(str(API), module_relative=False, globs={"Path": Path})
    assert result.failed == 0 and result.attempted >= 14
    assert (tmp_path / "bundle/job.sh").is_file()


def test_a_notebook_shows_a_set_as_a_table(tmp_path: Path) -> None:
    made = sets.make_set(tmp_path, sets.logs(sets.MI355X))
    shown = orchestrator.open_set(made)._repr_html_()
    assert f"<h3>{made.name}</h3>" in shown and "all 10 runs are done" in shown
    assert shown.count("<tr>") == 11 and "<script" not in shown
    state = made / "runs/3/state.json"
    assert state.exists()
    hostile = dataclasses.replace(orchestrator.open_set(made), reason="<script>1</script>\x1b[2J")
    shown = hostile._repr_html_()
    assert "<script" not in shown and "\x1b" not in shown


def test_a_notebook_shows_a_hundred_runs_and_no_time_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.views.sets.left_text", lambda _: "about 2h, until 14:20")
    seen = orchestrator.open_set(sets.make_set(tmp_path, sets.logs(sets.MI355X)))
    many = dataclasses.replace(seen, runs=seen.runs * 1000)
    shown = many._repr_html_()
    assert shown.count("<tr>") == 101 and "9900 more rows left out." in shown
    assert "14:20" not in shown


@pytest.mark.parametrize("call", [orchestrator.open_set, orchestrator.score_dir])
def test_a_folder_that_is_no_set_is_an_error_for_people(call: object, tmp_path: Path) -> None:
    assert callable(call)
    with pytest.raises(orchestrator.OrchestratorError, match=str(tmp_path)):
        call(str(tmp_path))


def test_comparing_with_what_does_not_exist() -> None:
    with pytest.raises(
        orchestrator.OrchestratorError, match="neither a folder nor a published entry"
    ):
        orchestrator.compare_sets("nothing", "nothing")


def test_a_set_is_refused_and_doubted_as_by_the_command(tmp_path: Path) -> None:
    site, folder = tmp_path / "here.yaml", tmp_path / "sets"
    write_site(site, folder)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    entry = orchestrator.load_entry("local_2x2x8", "builtin", site=site)
    rules = entry.documents.rules.model_copy(update={"ruleset": "9.9.9"})
    unscored = dataclasses.replace(
        entry, documents=dataclasses.replace(entry.documents, rules=rules)
    )
    doubts: list[str] = []
    with pytest.raises(
        orchestrator.OrchestratorError, match="there are no rules for round '9.9.9'"
    ):
        orchestrator.submit_set(unscored, warn=doubts.append)
    assert len(doubts) == 1 and doubts[0].endswith(f"its owner can fix it: chmod +t {folder}")
    assert not list(folder.iterdir())


def test_a_set_that_takes_too_long_is_not_waited_for(tmp_path: Path) -> None:
    waited, code = tmp_path / "waited", tmp_path / "code"
    write_code(code, f"until [ -e {waited} ]; do sleep 0.05; done")
    site = write_site(tmp_path / "here.yaml", tmp_path / "sets", code={"builtin": str(code)})
    entry = orchestrator.load_entry("local_2x2x8", "builtin", site=site)
    folder = orchestrator.submit_set(entry, nexp=1)
    with pytest.raises(TimeoutError, match="it keeps running"):
        orchestrator.wait_for_set(folder, timeout_s=0)
    waited.touch()
    assert orchestrator.wait_for_set(folder).state == "complete"
