"""Readers of bytes that somebody else wrote: a few hundred examples of each, more in `make long`, and every case that was ever found."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz_readers import KEPT, MARK, READERS, Kept, Part, fuzz, recorded
from processes import kill_all, see_them_go
from until import LIMIT_S, until

from orchestrator.evidence.events import read_events
from orchestrator.evidence.ledger import verify
from orchestrator.model.sites import load_site
from orchestrator.onnode.kernel.events import parse_word
from orchestrator.onnode.set import lease
from orchestrator.scheduler import slurm
from orchestrator.scheduler.command import Answer

PROGRAM = Path(__file__).with_name("fuzz_readers.py")
FEW, MANY = 20, 20_000
CASES = sorted(path for path in KEPT.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", READERS)
def test_no_reader_fails(name: str, tmp_path: Path) -> None:
    assert fuzz(name, FEW, 1, tmp_path) is None


@pytest.mark.long
@pytest.mark.parametrize("name", READERS)
def test_no_reader_fails_on_many(name: str, tmp_path: Path) -> None:
    assert fuzz(name, MANY, 2, tmp_path) is None


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_was_found(case: Path, tmp_path: Path) -> None:
    READERS[case.parent.name][0](case.read_bytes(), tmp_path)


def test_a_figure_counts_for_the_code_that_it_was_measured_on(tmp_path: Path) -> None:
    done = Part(60.0, 500, frozenset(["onnode/set/lease.py:1"]), b"a case")
    Kept(tmp_path).take("lease", done)
    kept = Kept(tmp_path).readers["lease"]
    assert (kept.processor_s, kept.parts) == (60.0, 1)
    assert "orchestrator/onnode/set/lease.py" in kept.sources

    path = tmp_path / "progress.json"
    measured = json.loads(path.read_text())
    measured["readers"]["lease"]["sources"]["orchestrator/onnode/set/lease.py"] = "other"
    path.write_text(json.dumps(measured))
    again = Kept(tmp_path).readers["lease"]
    assert (again.processor_s, again.inputs, again.parts) == (0.0, 0, 1), "other seeds, from zero"
    assert again.found == kept.found, "a case that was found stays"


def test_an_end_by_a_signal_leaves_nothing(tmp_path: Path) -> None:
    """Neither workers nor their temporary folders."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    program = [
        sys.executable,
        PROGRAM,
        "lease",
        "words",
        "--keep",
        tmp_path / "kept",
        "--processes",
        "2",
    ]
    process = subprocess.Popen(program, env={**os.environ, "TMPDIR": str(temporary)})
    try:
        until(lambda: len(list(temporary.glob("tmp*/tmp*"))) >= 2)
        process.terminate()
        assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
        see_them_go(tmp_path)
        assert list(temporary.iterdir()) == []
    finally:
        kill_all(tmp_path)


def test_the_examples_begin_with_what_is_read(tmp_path: Path) -> None:
    """Otherwise every example would be refused at its first byte."""
    site, queue, held, index = (
        READERS[name][1]()[0] for name in ("yaml", "slurm", "lease", "registry")
    )
    (tmp_path / "site.yaml").write_bytes(site)
    assert load_site(tmp_path / "site.yaml").partition == "gpu"
    answer = Answer([], 0, queue.decode(), "")
    assert [job.name for job in slurm.parse_queue(answer, MARK)] == ["orch-x"]
    (tmp_path / "lock").write_bytes(held)
    assert lease.read(tmp_path / "lock") not in (None, lease.UNREADABLE)
    assert json.loads(index)["layers"]
    (tmp_path / "events.tsv").write_bytes(READERS["events"][1]()[0])
    assert len(list(read_events(tmp_path / "events.tsv"))) == 10
    words = READERS["words"][1]()[0].split(b"\n")
    assert all(parse_word(line, {"n1", "n2"}) for line in words)
    assert verify(recorded()).problems == ()
