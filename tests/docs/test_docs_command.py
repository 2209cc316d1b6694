"""`orchestrator docs`: the pages, by any of their names."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from pages import DOCS, pages
from until import LIMIT_S

from orchestrator.cli import main

TOP = Path(__file__).resolve().parents[2]


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
    assert capsys.readouterr().out == (DOCS / "howto/reproduce-flux1.md").read_text()


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
