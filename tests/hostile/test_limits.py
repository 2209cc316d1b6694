"""Files of a size that no set has: a message, and little is read."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import bytes_read
from hostile_parts import Answer, call

from orchestrator.errors import ExitCode
from orchestrator.evidence.ledger import verify
from orchestrator.mllog import blocks
from orchestrator.onnode.set import ledger


@pytest.fixture
def a_set(whole: Path, place: Path) -> Path:
    (place.parent / "site.yaml").write_text(f"log_dir: {place}/sets\n")
    return Path(shutil.copytree(whole, place / "sets" / whole.name, symlinks=True))


def asked(root: Path) -> dict[str, Callable[[], Answer]]:
    words = {
        "score": [],
        "check": [],
        "report": ["-o", "-"],
        "compare": [str(root)],
        "package": ["-o", str(root.parent / "out"), "--submitter", "AMD", "--framework", "x"],
        "cancel": [],
        "resume": [],
        "nodes": [],
        "status": [],
        "ledger": ["verify"],
    }
    return {
        name: lambda name=name, more=more: call(  # type: ignore[misc]
            [name, *more, str(root)] if name == "ledger" else [name, str(root), *more]
        )
        for name, more in words.items()
    }


def test_a_result_of_four_gigabytes_is_not_read(a_set: Path) -> None:
    result = a_set / "runs/1/result_1.txt"
    with open(result, "r+b") as file:
        file.truncate(4 << 30)
    for name, ask in asked(a_set).items():
        answers: list[Answer] = []
        assert bytes_read(lambda ask=ask, to=answers: to.append(ask())) < 100_000_000, name  # type: ignore[misc]
        assert not answers[0].problem, answers[0]
        if name in ("score", "check", "report", "compare", "package"):
            assert "longer than 1024 MiB, which no log is" in answers[0].err, answers[0]
            assert answers[0].code in (ExitCode.BAD_INPUT, ExitCode.NO_SCORE), answers[0]


def test_a_result_that_expands_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a compressed log says nothing."""
    monkeypatch.setattr(blocks, "MOST_BYTES", 10 << 20)
    with gzip.open(tmp_path / "result_0.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(20):
            file.write(bytes(1 << 20))
    answer = call(["score", str(tmp_path)])
    assert answer.code == ExitCode.BAD_INPUT and "longer than 10 MiB" in answer.err, answer


def test_a_ledger_of_two_million_lines_is_not_parsed(
    a_set: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.append(a_set, ("declare", {}))
    with open(a_set / ledger.NAME, "ab") as file:
        file.write(b"{}\n" * 2_000_000)
    parsed = 0
    entry = ledger._entry

    def counted(line: int, text: bytes) -> ledger.LedgerRecord:
        nonlocal parsed
        parsed += 1
        return entry(line, text)

    monkeypatch.setattr(ledger, "_entry", counted)
    [problem] = verify(a_set).problems
    assert str(problem) == "ledger.jsonl: cannot be read: it has more than 200000 lines"
    for ask in asked(a_set).values():
        answer = ask()
        assert not answer.problem, answer
    assert parsed == 0
