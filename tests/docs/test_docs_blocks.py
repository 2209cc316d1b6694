"""Every block of commands in the documents is run, or says why not; what it shows is what is printed.

DOCS=record writes what the tutorial's commands print now into its page.

The tutorial is followed to the letter. The blocks of other pages run in a copy of the folder that it leaves, with its site. The
pages of ALONE need neither: they run in an empty folder without a site.
A shown `...` stands for any lines; numbers, ids and paths may be others.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
from pages import DOCS, Block, Command, blocks, examples, pages, record, same_words
from processes import captured

from orchestrator.model import load_entry, load_site

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from arguments import arguments, help_text, parsers, written

RECORD = os.environ.get("DOCS") == "record"
TUTORIAL = "tutorial/first-set"
ALONE = ("howto/own-system", "howto/own-workload")
MAY_END_WITH = {"orchestrator tune facts": {0, 1}, "orchestrator score --compliance": {0, 1}}
"""Commands whose exit code tells what they found."""


def follow(pasted: Sequence[Block], folder: Path) -> str:
    """Run blocks in one shell, in `folder`, and compare what each command prints with what is shown.

    Return everything that was printed.
    """
    wanted = [
        (block, command) for block in pasted if not block.not_run for command in block.commands
    ]
    script = "".join(
        f"printf '\\036%s\\n' {n}\n{command.words}\nprintf '\\037%s\\n' $?\n"
        for n, (_, command) in enumerate(wanted)
    )
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM", "ORCH", "PYTHON"))
    }
    env = own | {"PATH": f"{folder / '.bin'}:{own['PATH']}", "HOME": str(folder), "COLUMNS": "160"}
    if (site := folder / "demo-results/site.yaml").exists():
        env["ORCHESTRATOR_SITE"] = str(site)
    argv = ["bash", "-c", f"exec 2>&1\n{script}"]
    done = captured(argv, env, cwd=folder)
    told = {
        int(n): (out, int(code))
        for n, out, code in re.findall(r"\x1e(\d+)\n(.*?)\x1f(\d+)\n", done.stdout, re.DOTALL)
    }
    outputs: dict[str, dict[int, str]] = {}
    for number, (block, command) in enumerate(wanted):
        where = f"docs/{block.page}.md:{command.line}: {command.words}"
        assert number in told, f"{where}\nthe shell ended\n{done.stdout[-2000:]}"
        out, code = told[number]
        fine = next(
            (codes for begin, codes in MAY_END_WITH.items() if command.words.startswith(begin)), {0}
        )
        assert code in fine, f"{where}\nexit code {code}\n{out[-3000:]}"
        printed = out.replace(str(folder), "/home/you")
        outputs.setdefault(block.page, {})[command.line] = printed
        for shown in command.shown:
            if shown.strip() and shown.strip() != "...":
                assert RECORD or any(same_words(shown, line) for line in out.splitlines()), (
                    f"{where}\nnot printed: {shown}\n{out[-3000:]}"
                )
    if RECORD:
        for page in outputs:
            record(page, outputs[page])
    return done.stdout


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which somebody has followed the tutorial."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / ".bin").mkdir()
    command = folder / ".bin/orchestrator"
    top = Path(__file__).resolve().parents[2]
    command.write_text(f'#!/bin/sh\nPYTHONPATH={top} exec {sys.executable} -m orchestrator "$@"\n')
    command.chmod(0o755)
    follow(blocks(TUTORIAL), folder)
    return folder


def test_the_tutorial(followed: Path) -> None:
    assert (followed / "report.html").stat().st_size > 50_000
    sets = list(followed.glob("demo-results/local_2x2x8-builtin-*"))
    assert len(sets) == 2, "the demo's, and the one in which something was changed"


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in pages()
        if page not in (TUTORIAL, *ALONE) and any(not one.not_run for one in blocks(page))
    ],
)
def test_the_blocks_of(page: str, followed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    shutil.copytree(followed, folder, symlinks=True)
    follow(blocks(page), folder)
    assert not_ignored(left_in(folder), tmp_path) == []


@pytest.mark.long
def test_the_pages_for_documents_of_your_own_share_a_folder(followed: Path, tmp_path: Path) -> None:
    """The blocks of both, in one shell; after them a command of the first page still works."""
    folder = tmp_path / "work"
    shutil.copytree(followed / ".bin", folder / ".bin")
    # The first page's commands name their site file: no other counts.
    (folder / "site.yaml").write_text("kind: site\nbroken: true\n")
    again = Block(ALONE[0], "sh", [Command(0, "orchestrator validate mine")], "")
    printed = follow([*blocks(ALONE[0]), *blocks(ALONE[1]), again], folder)
    assert "the name is only a label" not in printed, "a page's system has a name that fits"
    assert len(list(folder.glob("results/one_node-hello-*/results/*.txt"))) == 3
    assert (folder / "hello.html").exists()
    assert not_ignored(left_in(folder), tmp_path) == []


def left_in(folder: Path) -> list[str]:
    """The top of what a followed page leaves: names as git lists them."""
    hidden = {".bin", ".cache", ".config"}  # the test's command, and what belongs into the home
    made = (path for path in folder.iterdir() if path.name not in hidden)
    return sorted(f"{path.name}/" if path.is_dir() else path.name for path in made)


def not_ignored(names: Sequence[str], folder: Path) -> list[str]:
    """The names that git would show as untracked at the top of the checkout."""
    checkout = folder / "checkout"
    subprocess.run(["git", "init", "--quiet", checkout], check=True)
    shutil.copy(DOCS.parent / ".gitignore", checkout)
    argv = ["git", "-C", checkout, "check-ignore", "--stdin"]
    done = subprocess.run(argv, input="\n".join(names), capture_output=True, text=True)
    return [name for name in names if name not in done.stdout.splitlines()]


WRITES = re.compile(r"(?:>>?|\s-o|\s--output|\s--exclude-file|mkdir -p)[ =]*([\w./-]+)")
"""A file or folder that a command of a page writes."""


def test_git_ignores_what_the_guides_write_into_a_checkout(tmp_path: Path) -> None:
    guides = [page for page in pages() if page.startswith(("howto/", "tutorial/"))]
    written_names = set()
    for page in [README, "../lab/README", *guides]:
        typed = [command.words for block in blocks(page) for command in block.commands]
        typed += TYPED.findall((DOCS / f"{page}.md").read_text())
        for name in (name for words in typed for name in WRITES.findall(words)):
            top, below, _ = name.partition("/")
            is_folder = below or "." not in top
            written_names.add(f"{top}/" if is_folder else top)
    assert written_names >= {"results/", "hello.html", "smoke.html", "bad-nodes.txt"}
    assert not_ignored(sorted(written_names), tmp_path) == []


README = "../README"


def all_blocks() -> list[Block]:
    return [block for page in [README, *pages()] for block in blocks(page)]


def test_the_readme_answers_what_why_and_how_on_its_first_screen() -> None:
    text = (DOCS / f"{README}.md").read_text()
    assert len(text.splitlines()) <= 70
    install, *after = [command.words.split()[:2] for command in blocks(README)[0].commands]
    assert install == ["uv", "tool"]
    assert after == [["orchestrator", name] for name in ("init", "doctor", "run")]
    demo = [command.words.split("#")[0].split() for command in blocks(README)[1].commands]
    # What needs only Python and make comes before what needs uv.
    assert demo[0] == ["make", "demo"]
    assert demo[1][0] == "uvx" and demo[1][-2:] == ["orchestrator", "demo"]
    first = "\n".join(screen(text, 80, 50))
    what, why = first.index("\nRun, score and reproduce"), first.index("\n- **")
    assert what < why < first.index("\norchestrator run") < first.index("\nmake demo")
    assert "![" not in first[: first.index("\nmake demo")], "a picture pushes commands down"


def screen(text: str, columns: int, rows: int) -> list[str]:
    """The first lines of a text as a terminal of this size shows them."""
    found = [row for line in text.splitlines() for row in textwrap.wrap(line, columns) or [""]]
    return found[:rows]


def test_blocks_to_paste_have_no_prompts() -> None:
    """A `console` block shows output; what shows none is a `sh` block. Comments that zsh would pass on stand alone."""
    for page in pages():
        for block in blocks(page):
            shown = [line for command in block.commands for line in command.shown if line.strip()]
            prompts = block.language == "console"
            assert prompts == any(line.strip() != "..." for line in shown), (
                f"docs/{page}.md:{block.commands[0].line}"
            )
            assert prompts or not any(one.words.startswith("$ ") for one in block.commands)
            if not prompts:
                alone = [one.words.splitlines()[0] for one in block.commands]
                assert [words for words in alone if "  # " in words] == [], f"docs/{page}.md"


def test_what_is_not_run_needs_what_a_machine_may_lack() -> None:
    reasons = {block.not_run for block in all_blocks()} - {""}
    assert reasons, "the guides for a cluster cannot be run here"
    needs = ("needs", "makes an installation", "downloads", "changes", "the two files")
    assert [why for why in reasons if not why.startswith(needs)] == []


def test_commands_that_are_not_run_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Their options are read by the parsers, which stop before anything is done."""
    import shlex

    from orchestrator.cli import COMMANDS, command_parser

    seen = 0
    for block in all_blocks():
        for command in block.commands:
            words = shlex.split(command.words, comments=True)
            if (
                words[:1] != ["orchestrator"]
                or words[1:2] == ["--version"]
                or "$(" in command.words
            ):
                continue
            assert words[1] in COMMANDS, f"docs/{block.page}.md:{command.line}: {command.words}"
            end = next((n for n, word in enumerate(words) if word[0] in "|<>"), len(words))
            try:
                command_parser(words[1])[1].parse_args(words[2:end])
            except SystemExit:
                pytest.fail(
                    f"docs/{block.page}.md:{command.line}: {command.words}\n{capsys.readouterr().err}"
                )
            seen += 1
    assert seen > 60


SITES = examples("howto/site-file")


def test_there_are_five_examples_of_a_site() -> None:
    assert len(SITES) == 5


@pytest.mark.parametrize("name", SITES)
def test_an_example_of_a_site_is_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(SITES[name])
    site = load_site(path)
    assert site.log_dir
    workload = next(iter(site.data))
    system = {
        "flux1": "MI325X_08x08x32",
        "llama2_70b_lora": "MI355X_1x8x1",
        "llama31_8b": "MI355X_1x8x1",
    }[workload]
    entry = load_entry(system, workload, site=path)
    assert (
        all(str(folder).startswith("/") for folder in site.data[workload].values())
        and entry.runs_required == 10
    )


# ---- node lists ----

NODE_LIST = re.compile(r"[\w-]+\[\d[\d,-]*\]")
"""As Slurm writes one. A shell takes it for a pattern; zsh then refuses to start the command."""
TYPED = re.compile(
    r"(?:^|`)[ $]*(?:orchestrator|srun|salloc|sbatch|scontrol|sinfo|lab/site)\b.*", re.MULTILINE
)


def bare_lists(text: str) -> list[str]:
    return NODE_LIST.findall(re.sub(r"'[^'\s]*'|\"[^\"\s]*\"", "", text))


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("--nodes node[1-8]", ["node[1-8]"]),
        ("the site's nodes, such as n[1-4,7] of the site's list", ["n[1-4,7]"]),
        ("--nodes 'node[1-8]' or --nodes=\"n[08-10]\"", []),
        ("data[0] of a list, node[k]", ["data[0]"]),
    ],
)
def test_a_list_without_quotes_is_seen(text: str, bare: list[str]) -> None:
    assert bare_lists(text) == bare


def test_commands_in_documents_quote_node_lists() -> None:
    found, quoted = [], 0
    for page in [README, *pages()]:
        typed = [command.words for block in blocks(page) for command in block.commands]
        typed += TYPED.findall((DOCS / f"{page}.md").read_text())
        quoted += sum(len(NODE_LIST.findall(line)) for line in typed)
        found += [f"{page}: {line}" for line in typed if bare_lists(line)]
    assert found == [] and quoted > 5


def test_help_quotes_node_lists() -> None:
    """Also where it only says what a value looks like: people type it so."""
    texts = {
        f"{name} {written(one)}": help_text(one)
        for name, parser in parsers()
        for one in arguments(parser)
    }
    texts |= {name: parser.description or "" for name, parser in parsers()}
    assert sum(len(NODE_LIST.findall(text)) for text in texts.values()) > 5
    assert {name: text for name, text in texts.items() if bare_lists(text)} == {}
