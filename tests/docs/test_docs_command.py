"""`orchestrator docs`: the pages, by any of their names."""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, pages
from until import LIMIT_S

from orchestrator.cli import COMMANDS, command_parser, main

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tools"))

from arguments import arguments, help_text  # noqa: E402


def test_it_lists_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["pages"]
    assert sorted(one["page"] for one in listed) == pages()
    assert all(one["title"] for one in listed)
    assert main(["docs"]) == 0
    assert "howto/troubleshooting" in capsys.readouterr().out


@pytest.mark.parametrize("topic", ["exit-codes", "docs/exit-codes.md", "exit", "Exit-Codes"])
def test_a_page_by_any_of_its_names(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", topic]) == 0
    assert capsys.readouterr().out == (DOCS / "exit-codes.md").read_text()


def test_what_is_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "troubelshooting"]) == 2
    assert 'did you mean "troubleshooting"?' in capsys.readouterr().err
    assert main(["docs", "own"]) == 2
    assert "howto/own-system, howto/own-workload" in capsys.readouterr().err
    assert main(["docs", "../README"]) == 2


def test_a_page_by_a_part_of_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "flux1"]) == 0
    page = (DOCS / "howto/reproduce-flux1.md").read_text()
    assert capsys.readouterr().out == re.sub(r"<!--.*-->\n", "", page)


def test_remarks_for_the_tests_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "first-set"]) == 0
    shown = capsys.readouterr().out
    assert "python3 -m venv .venv" in shown and "<!--" not in shown and "not run" not in shown


def test_a_search_lists_lines_with_all_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "-s", "Nodes spare", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["found"]
    for one in found:
        line = (DOCS / f"{one['page']}.md").read_text().splitlines()[one["line"] - 1]
        assert line.strip() == one["text"] and "spare" in line.lower() and "nodes" in line.lower()
    of_preflight = [one["text"] for one in found if one["page"] == "preflight"]
    assert of_preflight[:2] == ["# Preflight and spare nodes", "## Spare nodes"]
    assert len(of_preflight) <= 3
    assert main(["docs", "-s", "Nodes spare"]) == 0
    assert "preflight:1 " in capsys.readouterr().out
    assert main(["docs", "-s", "qzxyq"]) == 2
    assert "no page has 'qzxyq'" in capsys.readouterr().err


def test_the_pager_is_for_terminals(tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat >{tmp_path}/paged\n")
    pager.chmod(0o755)
    env = os.environ | {
        "PAGER": str(pager),
        "PYTHONPATH": str(TOP),
        "TERM": "xterm",
        "LINES": "24",
        "COLUMNS": "80",
    }
    argv = [sys.executable, "-m", "orchestrator", "docs", "descriptors"]
    piped = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=LIMIT_S)
    assert (
        piped.stdout == (DOCS / "descriptors.md").read_text() and not (tmp_path / "paged").exists()
    )
    controller, terminal = pty.openpty()
    try:
        assert (
            subprocess.run(
                argv, env=env, stdin=terminal, stdout=terminal, timeout=LIMIT_S
            ).returncode
            == 0
        )
    finally:
        os.close(terminal)
        os.close(controller)
    assert (tmp_path / "paged").read_text() == (DOCS / "descriptors.md").read_text()


def test_help_of_a_command_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for words in (["help", "docs"], ["docs", "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] and said[0].startswith("usage: orchestrator docs ")
    assert main(["help", "sbumit"]) == 2
    assert "Did you mean `submit`?" in capsys.readouterr().err


def test_help_of_an_action(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "systems", "new"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("usage: orchestrator systems new ")


@pytest.mark.parametrize(
    ("name", "action"),
    [(name, action) for name in COMMANDS for action in command_parser(name)[0].actions],
)
def test_help_of_an_action_has_its_options_alone(
    name: str, action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where actions share a parser: what only others take is left out."""
    command, parser = command_parser(name)
    shown = []
    for words in (["help", name, action], [name, action, "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    text = shown[0]
    assert text.startswith(f"usage: orchestrator {name} {action} [-h] ")
    assert f"\nexample:\n  orchestrator {name} {action}" in text
    options = command.actions[action].options.split()
    special = {one for each in command.actions.values() for one in each.options.split()}
    declared = {one: argument for argument in arguments(parser) for one in names_of(argument)}
    assert special <= declared.keys()
    for one in special:
        header = re.compile(
            rf"^  (?:-\w .*, )?{re.escape(shown_as(declared[one]))}(?![\w-])", re.MULTILINE
        )
        assert bool(header.search(text)) == (one in options), one
    for other in command.actions.keys() - {action}:
        assert f"  {other}: " not in text and f"orchestrator {name} {other} " not in text


def names_of(argument: argparse.Action) -> list[str]:
    return argument.option_strings or [argument.dest]


def shown_as(argument: argparse.Action) -> str:
    return (argument.option_strings or [str(argument.metavar)])[-1]


def test_an_option_of_some_actions_names_them() -> None:
    """In the help of the whole command, too, unless most of the actions take it."""
    for name in COMMANDS:
        command, parser = command_parser(name)
        for argument in arguments(parser) if command.actions else ():
            found = [
                action
                for action, one in command.actions.items()
                if {*names_of(argument)} & {*one.options.split()}
            ]
            if len(found) == 1:
                assert help_text(argument).startswith(f"{found[0]}: "), argument.option_strings
