"""Files of a size that no set has: a message, and little is read."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import bytes_read
from hostile_parts import Answer, call

from orchestrator.errors import ExitCode
from orchestrator.evidence.bundle import unpacked
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


@pytest.mark.parametrize(
    ("runs", "key", "old", "new"),
    [
        ((4,), "init_start", rb'"time_ms": \d+', b'"time_ms": -1e400'),
        ((4,), "init_start", rb'"time_ms": \d+', b'"time_ms": NaN'),
        ((4, 5, 6), "run_stop", rb'"time_ms": \d+', b'"time_ms": 1.7e308'),
        ((4,), "eval_accuracy", rb'"value": [\d.]+', b'"value": -1.7e308'),
        ((4,), "eval_accuracy", rb'"samples_count": \d+', b'"samples_count": 1.7e308'),
        ((4,), "run_stop", rb'"status": "\w+"', b'"status": ' + b"[" * 600 + b"]" * 600),
        ((4,), "seed", rb'"value": \d+', b'"value": ' + b'{"a":' * 600 + b"1" + b"}" * 600),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_numbers_and_nesting_without_end(
    runs: tuple[int, ...], key: str, old: bytes, new: bytes, a_set: Path
) -> None:
    """Well-formed JSON that no float holds, whose square no float holds, or that is too deep."""
    for run in runs:
        result = a_set / f"runs/{run}/result_{run}.txt"
        lines = result.read_bytes().split(b"\n")
        name = b'"key": "%s"' % key.encode()
        index = next(index for index, line in enumerate(lines) if name in line)
        changed = re.sub(old, lambda _: new, lines[index], count=1)
        assert changed != lines[index]
        result.write_bytes(b"\n".join([*lines[:index], changed, *lines[index + 1 :]]))
    for name, ask in asked(a_set).items():
        assert not ask().problem, name
    for words in (["score", "--json"], ["score", "--compliance"]):
        answer = call([*words, str(a_set)])
        assert not answer.problem, answer


@pytest.mark.parametrize("record", ["jobs/7.json", "submissions/1.json"])
def test_a_job_id_that_no_path_holds(record: str, a_set: Path) -> None:
    path = a_set / record
    path.write_text(json.dumps({**json.loads(path.read_text()), "job_id": "7\0"}))
    job = a_set / "jobs/7.json"
    job.write_text(json.dumps({**json.loads(job.read_text()), "state": "failed"}))
    shutil.rmtree(a_set / "runs/10")
    for ask in asked(a_set).values():
        answer = ask()
        assert not answer.problem, answer
    assert not call(["explain", str(a_set)]).problem
    answer = call(["status", str(a_set)])
    assert f"{record}: `job_id` holds a NUL" in answer.out + answer.err, answer


def test_of_an_archive_only_whole_files_are_taken() -> None:
    """Neither a sparse file of 3 GiB in 77 bytes, nor what a link or a chain of names leads to."""
    good, link = tarfile.TarInfo("lib/a.py"), tarfile.TarInfo("job.sh")
    good.size, link.type, link.linkname = 3, tarfile.SYMTYPE, "job.sh"
    sparse = tarfile.TarInfo("settings.sh")
    sparse.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(sparse.tobuf(tarfile.GNU_FORMAT))
    header[386:410] = b"%011o\0" % 0 * 2  # a part of no bytes
    header[483:495] = b"%011o\0" % (3 << 30)
    header[148:156] = b"%06o\0 " % tarfile.calc_chksums(header)[0]
    longer = tarfile.TarInfo("././@LongLink")
    longer.type, longer.size = tarfile.GNUTYPE_LONGNAME, 2
    names = (longer.tobuf(tarfile.GNU_FORMAT) + b"a".ljust(512, b"\0")) * 2000
    members = good.tobuf() + b"a=1".ljust(512, b"\0") + link.tobuf() + header + names
    archive = gzip.compress(members + bytes(1024))
    assert unpacked(archive, {"lib/a.py", "job.sh", "settings.sh", "a"}) == {"lib/a.py": b"a=1"}


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
