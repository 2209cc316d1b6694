"""What a newcomer reads on an ordinary terminal: lines broken at words, commands whole, names instead of numbers."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from orchestrator.container import pull
from orchestrator.errors import Fix
from orchestrator.installation import install_command
from orchestrator.onnode.kernel.node_names import fold, ranked, subject
from orchestrator.runset.create import unwritable
from orchestrator.submission.verify import NEEDED
from orchestrator.trust import user_name
from orchestrator.words import wrapped

LONG = "all 8 nodes: DATADIR is not set in the site file of this cluster, and the job gets no other variables"


def test_prose_is_broken_at_words_and_words_never() -> None:
    assert wrapped(LONG, None) == [LONG]
    lines = wrapped(LONG, 40)
    assert all(len(line) <= 40 for line in lines) and len(lines) > 2
    assert " ".join(" ".join(lines).split()) == LONG
    path = f"/shared/{'long/' * 20}"
    assert wrapped(f"see {path} there", 40) == ["see", f"  {path}", "  there"]
    assert wrapped(f"  {LONG}", 60)[1].startswith("    ")


def test_the_typed_command_with_other_options() -> None:
    typed = ["submit", "S", "w", "--exclude", "n1", "--spares=2", "--override", "partition=x"]
    changed = Fix(options=("--override", "partition=batch")).line(typed)
    assert changed == ("orchestrator submit S w --exclude n1 --spares=2 --override partition=batch")
    other = Fix(options=("--override", "time_limit=60")).line(typed)
    assert other.endswith("--override partition=x --override time_limit=60")
    assert " --spares 0" in Fix(options=("--spares", "0")).line(typed)
    assert "--spares=2" not in Fix(options=("--spares", "0")).line(typed)
    without = Fix(options=("--override", "exclude=[]"), without="--exclude")
    assert without.line(typed) == "orchestrator submit S w --spares=2 --override partition=x"
    assert without.line(["submit", "S"]) == "orchestrator submit S --override 'exclude=[]'"
    assert Fix(again=("--others",)).line(["cancel", "a b"]) == "orchestrator cancel 'a b' --others"
    assert Fix("df -h /x").line(typed) == "df -h /x"
    first = Fix(first=("config", "--set", "k"))
    assert first.line(["submit", "S", "--site", "a b"]) == (
        "orchestrator config --set k --site 'a b' && orchestrator submit S --site 'a b'"
    )
    other = Fix(other=("prepare", "w"))
    assert (
        other.line(["submit", "S", "--site=s", "--nexp", "1"]) == "orchestrator prepare w --site=s"
    )
    assert first.line([]) == "orchestrator config --set k"


def test_nodes_in_few_words() -> None:
    names = [f"n{number}" for number in range(8)]
    ranks = ranked(names)
    assert subject(names, 8, ranks) == "all 8 nodes"
    assert subject(names[:2], 2, ranks) == "both nodes"
    assert subject(names[1:], 8, ranks) == "nodes n[1-7]"
    assert subject(["n3"], 8, ranks) == "node n3 (rank 3)"
    assert subject(["n3"], 1, {}) == "node n3"
    assert fold(["n0", "n10"]) == "n[0,10]"
    far = [f"n{2 * number}" for number in range(100)]
    assert subject(far, 200, {}) == "nodes n[0,2,4,6] and 96 more"


def test_users_have_names() -> None:
    assert user_name(0) == "root"
    assert user_name(4_000_000) == "user 4000000"


@pytest.mark.parametrize(
    ("code", "hint", "fix"),
    [
        (errno.ENOSPC, "make room", "du -ahd1 "),
        (errno.EACCES, "ask its owner", "ls -ld "),
        (errno.EROFS, "mounted read-only", ""),
        (errno.ESTALE, "is the shared storage mounted?", ""),
    ],
)
def test_the_remedy_fits_the_reason(code: int, hint: str, fix: str) -> None:
    error = unwritable(OSError(code, os.strerror(code)), "cannot write", Path("/shared/a b"))
    assert hint in error.hint
    command = error.fix.command if error.fix else ""
    assert fix in command and ("'/shared/a b'" in command) == bool(fix)


@pytest.mark.parametrize(
    ("receipt", "command"),
    [
        ("pipx_metadata.json", "pipx inject mlperf-orchestrator mlperf-logging==4.1.68"),
        ("uv-receipt.toml", "uv tool install --force --with mlperf-logging==4.1.68 "),
        ("", f"{sys.executable} -m pip install mlperf-logging==4.1.68"),
    ],
)
def test_the_checker_is_installed_as_this_program_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str, command: str
) -> None:
    if receipt:
        (tmp_path / receipt).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert install_command(NEEDED).startswith(command)


def test_a_pull_and_a_save_count_bytes() -> None:
    said: list[str] = []
    pieces = [b"x" * 300_000_000 for _ in range(4)]
    assert list(pull.counted(pieces, 1_200_000_000, said.append)) == pieces
    assert said == ["  0.3 of 1.2 GB", "  0.6 of 1.2 GB", "  0.9 of 1.2 GB", "  1.2 of 1.2 GB"]
    assert list(pull.counted([b"abc"], 0, said.append)) == [b"abc"] and len(said) == 4
    layers = pull._Layers()
    lines = [
        ("a", "Pulling fs layer", {}),
        ("b", "Already exists", {}),
        ("a", "Downloading", {"current": 10**9, "total": 4 * 10**9}),
        ("a", "Downloading", {"current": 10**9 + 1, "total": 4 * 10**9}),
        ("a", "Download complete", {}),
        ("a", "Extracting", {"current": 5, "total": 9}),
        ("a", "Pull complete", {}),
    ]
    assert [layers.update(*line) for line in lines] == [
        "0 of 1 layer",
        "1 of 2 layers",
        "1 of 2 layers, 1.0 of 4.0 GB",
        "",
        "1 of 2 layers, 4.0 of 4.0 GB",
        "",
        "2 of 2 layers, 4.0 of 4.0 GB",
    ]
