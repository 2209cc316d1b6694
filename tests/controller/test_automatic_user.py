"""A user who knows nothing but the texts does ten tasks: `--help`, `docs` and `--json`.

Commands, options and members of the output are looked up by words of the task, in the help and in the page about `--json`. Exactly
one must have them all: a text that loses the word that people look for, or shares it with another, fails here.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import outputs
import pytest
import set_of_logs as sets
from controller_parts import Commands, write_set
from sites import write_site
from test_tables import GOOD, make_sets
from until import LIMIT_S, until

from orchestrator.errors import ExitCode
from orchestrator.evidence.sets import SubmissionRecord

Texts = dict[str, str]


def only(texts: Texts, *words: str) -> str:
    """Return the name whose text has all words."""
    found = [name for name, text in texts.items() if all(word in text.lower() for word in words)]
    assert len(found) == 1, f"{words} are in the texts of {found or 'none'} of {sorted(texts)}"
    return found[0]


class Member(NamedTuple):
    """A member of an output. `path`: its names from the top, `[]` for each of a list."""

    path: tuple[str, ...]

    def values(self, document: Any) -> list[Any]:
        found = [document]
        for name in self.path:
            found = [one[name] for one in found if one is not None]
            found = [part for one in found for part in (one if isinstance(one, list) else [one])]
        return found

    def value(self, document: Any) -> Any:
        [found] = self.values(document)
        return found


class Reader:
    """Reads the texts, and finds in them what a task needs."""

    def __init__(self, cli: Commands) -> None:
        self.cli = cli

    def command(self, *words: str) -> str:
        """Find a command in `--help`."""
        return only(dict(re.findall(r"^  (\w+) {2,}(.+)$", self.cli("--help").out, re.M)), *words)

    def option(self, command: str, *words: str) -> str:
        """Find an option in the help of a command."""
        text = self.cli("help", *command.split()).out.partition("\noptions:\n")[2]
        entries = re.split(r"\n(?=  -)", f"\n{text}")[1:]
        texts = {re.findall(r"--?[a-z-]+", entry)[0]: " ".join(entry.split()) for entry in entries}
        longest = {
            name: next(iter(re.findall(r"--[a-z-]+", text)), name) for name, text in texts.items()
        }
        return longest[only(texts, *words)]

    def example(self, command: str, *words: str) -> list[str]:
        """Find an example in the help of a command; return the words that follow the command."""
        text = self.cli("help", command).out
        lines = re.findall(rf"^  orchestrator {command} (.*?)(?: {{2,}}#.*)?$", text, re.M)
        return only({line: line for line in lines}, *words).split()

    def member(self, printed_by: str, *words: str) -> Member:
        """Find a member in the page about `--json`: below what a command prints."""
        page = self.cli.json("docs", "reference/json")["text"]
        printers = re.findall(r"^## ([\w-]+)\n\n`(.+?)`:", page, re.M)
        [kind] = [kind for kind, by in printers if printed_by in re.split("[,;] ", by)]
        found = dict(self._members(page, f"## {kind}", ()))
        return Member(tuple(only(found, *words).split(".")))

    def _members(
        self, page: str, heading: str, above: tuple[str, ...]
    ) -> Iterator[tuple[str, str]]:
        [block] = re.findall(rf"^{heading}\n[^#]*?^```text\n(.*?)^```", page, re.M | re.S)
        for line in block.splitlines():
            if line.startswith("..."):
                yield from self._members(page, f"### part {line[3:].strip()}", above)
                continue
            name, kind, *text = re.split(" {2,}", line)
            path = (*above, name.rstrip("?"))
            yield ".".join(path), f"{name}: {' '.join(text)}"
            part = kind.rstrip("[]{}?")
            if f"\n### part {part}\n" in page and not heading.endswith(f" {part}"):
                yield from self._members(page, f"### part {part}", path)

    def ask(self, *argv: str | Path) -> Any:
        """Give a command for programs."""
        return self.cli.json(*argv)


@pytest.fixture
def user(cli: Commands) -> Reader:
    return Reader(cli)


@pytest.fixture
def whole_set(tmp_path: Path) -> Path:
    return sets.make_set(tmp_path / "of-logs", sets.logs(sets.MI355X))


def start(cli: Commands, site: Path, nexp: int, fault: str) -> Path:
    """Start a set whose program has a fault."""
    words = ("local_2x2x8", "builtin", "--site", site, "--nexp", str(nexp))
    return Path(cli.json("submit", *words, "--env", f"BUILTIN_FAULT={fault}")["set"])


def test_1_find_the_slow_node(user: Reader, tmp_path: Path) -> None:
    log_dir = tmp_path / "written"
    make_sets(log_dir)
    nodes = user.command("timings", "every node")
    answer = user.ask(nodes, log_dir / GOOD)
    relative = user.member(nodes, "time over the other nodes")
    times = relative.values(answer)
    names = Member((*relative.path[:-1], "node")).values(answer)
    assert names[times.index(max(times))] == "node07"


def test_2_resume_a_paused_set(user: Reader, site: Path) -> None:
    root = start(user.cli, site, 2, "hang:run=2:attempt=1")
    until(lambda: user.cli.json("status", root)["current_run"] == 2)
    [job] = (root / "jobs").glob("*.json")
    os.kill(json.loads(job.read_text())["pid"], signal.SIGUSR1)  # the time is over
    status = user.command("state of all sets")
    state = user.member(f"{status} SET", "state:", "commands.md")
    until(lambda: state.value(user.cli.json(status, root)) not in ("running", "ending"))
    found = state.value(user.ask(status, root))
    rows = re.findall(r"^\| (`\w+`.*?) \| (.*) \|$", user.cli("docs", "commands").out, re.M)
    [meaning] = [text for states, text in rows if f"`{found}`" in states]
    assert "`resume` continues" in meaning
    resume = user.command("submit the remaining runs")
    while (
        user.cli(resume, root, "--json").code == ExitCode.SET_STATE
    ):  # its job may still be ending
        assert "a minute at most; then:\n  orchestrator resume" in user.cli.err
    again = outputs.checked(user.cli.out)
    assert user.member("resume", "still to be done").values(again) == [2]
    until(lambda: state.value(user.cli.json(status, root)) == "complete")


def test_3_say_why_a_set_waits(
    user: Reader, tmp_path: Path, fake: Callable[[str, str], Path]
) -> None:
    asked = SubmissionRecord(
        number=1, job_name="orch-s", requested_ms=5, state="submitted", job_id="7"
    )
    root = write_set(tmp_path, "s", submission=asked)
    row = "\\x1f".join(("7", "PENDING", "0", "0", "", "QOSMaxJobsPerUserLimit", "orch-s"))
    fake("squeue", f"printf '\\x1fMARK\\x1f{row}\\n'")
    fake("scontrol", 'echo "ClusterName             = beta"')
    explain = user.command("why", "pending")
    answer = user.ask(explain, root)
    assert "QOS" in user.member(explain, "sentence:", "why").value(answer)
    assert user.member(explain, "known:").value(answer) is True
    assert user.member(explain, "next:", "command to type").value(answer).startswith(("s", "orch"))


def test_4_compare_with_the_published_value(user: Reader, whole_set: Path) -> None:
    compare = user.command("compare", "published results")
    published = user.example(compare, "6.0/", "flux1")[0]
    form = re.sub("[^/]+", "NAME", published)
    assert form == "NAME/NAME/NAME" and "round/benchmark/system" in user.cli("help", compare).out
    answer = user.ask(compare, "5.1/llama2_70b_lora/MI355X_1x8x1", whole_set)
    ratio = user.member(f"{compare} A B", "score_ratio:", "b / a").value(answer)
    assert user.member(f"{compare} A B", "within_1_percent").value(answer) is (
        abs(ratio - 1) <= 0.01
    )


def test_5_find_the_failed_attempt_and_its_deciding_line(user: Reader, site: Path) -> None:
    root = start(user.cli, site, 1, "nan:run=1,die:run=1:node=1")
    until(lambda: user.cli.json("status", root)["state"] not in ("pending", "starting", "running"))
    status, explain = user.command("state of all sets"), user.command("why", "failed")
    picture, answer = user.ask(status, root), user.ask(explain, root)
    run = user.member(f"{status} SET", "outcome:", "outcome of the newest attempt")
    assert run.value(picture) not in ("", "success")
    line = user.member(explain, "text:", "the line").values(answer)
    assert line and user.member(explain, "file:").values(answer), answer


def test_6_score_and_whether_it_converges(user: Reader, whole_set: Path) -> None:
    score = user.command("time-to-train", "score")
    answer = user.ask(score, whole_set)
    minutes = user.member(score, "score_minutes:", "null without a valid score").value(answer)
    assert 9 < minutes < 11
    assert user.member(score, "no faster than the reference").value(answer) is True
    converged = user.member(score, "target was reached").values(answer)
    assert converged == [True] * 10


def test_7_cancel(user: Reader, site: Path) -> None:
    root = start(user.cli, site, 1, "hang:run=1")
    until(lambda: user.cli.json("status", root)["state"] == "running")
    cancel = user.command("stop a set's job")
    grace = user.option(cancel, "seconds", "ended by force")
    answer = user.ask(cancel, root, grace, str(LIMIT_S))
    assert set(user.member(cancel, "it has ended").value(answer).values()) == {True}
    assert answer["state"] == "cancelled"


def test_8_list_what_would_be_submitted(user: Reader, tmp_path: Path) -> None:
    site = write_site(tmp_path / "site.yaml", tmp_path / "results", scheduler="local")
    submit = user.command("create a set", "submit")
    dry = user.option(submit, "submit nothing", "the resources of the job")
    answer = user.ask(submit, "local_2x2x8", "builtin", "--site", site, dry)
    for words in (("number of runs",), ("container image",), ("the scheduler's command",)):
        assert user.member(f"{submit} {dry}", *words).values(answer)
    assert list((tmp_path / "results").iterdir()) == []


def test_9_which_settings_differ_between_two_sets(
    user: Reader, whole_set: Path, tmp_path: Path
) -> None:
    other = sets.make_set(tmp_path / "others", sets.logs(sets.MI355X))
    variables = other / "environment.sh"
    variables.write_text(variables.read_text().replace("0.0004", "0.0005"))
    compare = user.command("compare sets")
    answer = user.ask(compare, whole_set, other)
    differences = user.member(f"{compare} A B", "differences:", "environment", "settings")
    found = differences.values(answer)
    assert [(one["name"], one["a"], one["b"]) for one in found] == [("LR", "0.0004", "0.0005")]


def test_10_make_and_check_a_package(user: Reader, whole_set: Path, tmp_path: Path) -> None:
    package = user.command("submission tree")
    options = {
        user.option(package, "new or empty"): str(tmp_path / "AMD"),
        user.option(package, "organisation"): "AMD",
        user.option(package, "pytorch"): "PyTorch 2.9 + ROCm 7.0",
    }
    check = user.option(package, "official package checker")
    words = [word for pair in options.items() for word in pair]
    answer = user.ask(package, whole_set, *words, check)
    directory = Path(user.member(package, "directory:").value(answer))
    files = user.member(package, "files:", "below the directory").values(answer)
    assert files and all((directory / file).is_file() for file in files)
    assert user.member(package, "checker:", "official").value(answer) is not None
