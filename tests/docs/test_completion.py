"""Completions, asked of real shells: commands, options, names, sets and nodes; and the man page."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from pages import TOP, pages
from processes import captured

from orchestrator.cli import COMMANDS, EVERYWHERE, main

SHELL = TOP / "orchestrator/generated/shell"
SET = "MI325X_08x08x32-flux1-20261122-090000-0a1b"
BASH = """
source {file}
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_orchestrator
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
autoload -U compinit && compinit -D -u
source {file}
asked() {{ # as bashcompinit calls it
  emulate -L sh
  setopt kshglob noshglob braceexpand
  COMP_WORDS=({words})
  COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
  _orchestrator_bash
  printf '%s\\n' "${{COMPREPLY[@]}}"
}}
asked
"""


def in_bash(words: str, folder: Path) -> set[str]:
    quoted = " ".join(f"'{word}'" for word in words.split(" "))
    return told(
        ["bash", "--norc", "-c", BASH.format(file=SHELL / "orchestrator.bash", words=quoted)],
        folder,
    )


def in_fish(words: str, folder: Path) -> set[str]:
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    program = f"source {SHELL / 'orchestrator.fish'}; complete -C '{words}'"
    return {line.split("\t")[0] for line in told(["fish", "--no-config", "-c", program], folder)}


def in_zsh(words: str, folder: Path) -> set[str]:
    if not shutil.which("zsh"):
        pytest.skip("zsh is not installed")
    quoted = " ".join(f"'{word}'" for word in words.split(" "))
    found = told(
        ["zsh", "-f", "-c", ZSH.format(file=SHELL / "_orchestrator", words=quoted)], folder
    )
    return {
        one for one in found if one.startswith(words.split(" ")[-1])
    }  # which zsh itself does, behind the function


def told(argv: list[str], folder: Path) -> set[str]:
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    done = captured(argv, env, cwd=folder)
    assert not done.stderr, done.stderr
    return set(done.stdout.split("\n")) - {""}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with a site file, whose log directory has a set with two nodes."""
    (tmp_path / "results" / SET / "nodes").mkdir(parents=True)
    (tmp_path / "results" / SET / "set.json").write_text("{}")
    for node in ("node1", "node2"):
        (tmp_path / "results" / SET / "nodes" / node).mkdir()
    (tmp_path / "site.yaml").write_text(f'kind: site\nlog_dir: "{tmp_path}/results"  # here\n')
    return tmp_path


@pytest.fixture(params=[in_bash, in_zsh, in_fish], ids=["bash", "zsh", "fish"])
def ask(request: pytest.FixtureRequest, cluster: Path):  # type: ignore[no-untyped-def]
    return lambda words: request.param(words, cluster)


def test_commands(ask) -> None:  # type: ignore[no-untyped-def]
    assert set(COMMANDS) <= ask("orchestrator ")
    assert {"score", "status", "submit", "systems"} == ask("orchestrator s")
    assert "score" in ask("orchestrator help sc")


def test_options(ask) -> None:  # type: ignore[no-untyped-def]
    assert {"--sbatch", "--side-by-side", "--site", "--spares", "--systems-dir"} == ask(
        "orchestrator submit --s"
    )
    assert {"closed", "open"} == ask("orchestrator package --division ")
    for option in EVERYWHERE:
        name = option.split()[0]
        assert name in ask(f"orchestrator audit {name[:4]}")


def test_names(ask) -> None:  # type: ignore[no-untyped-def]
    assert "MI325X_08x08x32" in ask("orchestrator submit MI325X_0")
    assert ask("orchestrator render MI325X_08x08x32 fl") == {"flux1"}
    assert {"show", "diff", "new", "schema"} <= ask("orchestrator systems ")
    assert "howto/troubleshooting" in ask("orchestrator docs howto/t")


def test_sets_and_nodes(ask) -> None:  # type: ignore[no-untyped-def]
    assert ask("orchestrator status ") == {SET}
    assert ask("orchestrator score MI") == {SET}
    assert ask("orchestrator doctor --nodes ") == {"node1", "node2"}


def test_a_site_that_is_named(cluster: Path) -> None:
    (cluster / "site.yaml").rename(cluster / "other.yaml")
    assert in_bash("orchestrator status --site other.yaml ", cluster) == {SET}
    assert SET not in in_bash("orchestrator status ", cluster)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_command_prints_it(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out in {path.read_text() for path in SHELL.iterdir()}


def test_the_man_page_has_every_command() -> None:
    text = (SHELL / "orchestrator.1").read_text()
    assert all(f"\\fB{option}\\fR".replace("-", "\\-") in text for option in EVERYWHERE)
    assert [name for name in COMMANDS if f'.SS "{name}"' not in text] == []
    assert pages()
    if shutil.which("man"):
        argv = ["man", "--warnings", "-l", str(SHELL / "orchestrator.1")]
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "MANWIDTH": "100"},
        )
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert "--side-by-side K" in done.stdout


NAMES = (
    "MI$(touch${IFS}pwned)",
    "MI`touch${IFS}pwned`",
    "MI;touch pwned",
    "MI 1",
    "-delete",
    "MI\n$(id)",
)


@pytest.mark.parametrize(
    "words", ["orchestrator status ", "orchestrator score MI", "orchestrator doctor --nodes "]
)
def test_names_that_a_shell_would_obey(words: str, ask, cluster: Path) -> None:  # type: ignore[no-untyped-def]
    """Names of sets and nodes are anybody's who may write in the log directory."""
    for name in NAMES:
        (cluster / "results" / name / "nodes").mkdir(parents=True)
        (cluster / "results" / name / "set.json").write_text("{}")
        (cluster / "results" / SET / "nodes" / name).mkdir()
    offered = ask(words)
    assert offered and offered <= {SET, "node1", "node2", "MI"}
    assert not list(cluster.rglob("pwned"))


def test_files_are_offered_as_one_quoted_word(cluster: Path) -> None:
    (cluster / "$(touch pwned)").write_text("")
    (cluster / "a b;c").write_text("")
    offered = in_bash("orchestrator report -o ", cluster)
    assert r"\$\(touch\ pwned\)" in offered and r"a\ b\;c" in offered


@pytest.mark.parametrize("top", ["-delete", "results", ""])
def test_a_log_directory_that_find_would_obey(top: str, ask, cluster: Path) -> None:  # type: ignore[no-untyped-def]
    (cluster / "site.yaml").write_text(f"log_dir: {top}\n")
    assert SET not in ask("orchestrator status ")
    assert (cluster / "results" / SET / "set.json").exists()


def test_a_site_file_of_another_user(cluster: Path) -> None:
    if os.getuid():
        pytest.skip("only root can give a file to another user")
    os.chown(cluster / "site.yaml", 4242, -1)
    assert SET not in in_bash("orchestrator status ", cluster)
