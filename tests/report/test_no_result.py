"""A set of a stand-in workload is a valid rehearsal, and looks like a result nowhere."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import set_of_logs as sets
from sites import write_site

from orchestrator.cli import main
from orchestrator.cli.frame import one_set
from orchestrator.evidence.metrics import families
from orchestrator.evidence.picture import SetPicture, as_json, look
from orchestrator.evidence.sets import SetEvidence
from orchestrator.mllog.score import score_dir
from orchestrator.report.history import indexed
from orchestrator.report.markdown import markdown
from orchestrator.report.page import page
from orchestrator.report.reading import read_report
from orchestrator.submission.package import Options, make_package
from orchestrator.submission.refusal import Refused
from orchestrator.views.notebook import for_notebook
from orchestrator.views.score import score_parts
from orchestrator.views.sets import describe, headline, set_table
from orchestrator.views.terminal import lines as part_lines
from orchestrator.words import Screen

ANNOUNCED = b'"submission_benchmark", "value": "llama2_70b_lora", "metadata": {'
COLOURS = Screen(100, colour=True, signs="unicode")


@pytest.fixture
def published(tmp_path: Path) -> Path:
    return sets.make_set(tmp_path / "published", sets.logs(sets.MI355X))


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """The same logs, but of a program that says what it is."""
    logs = [
        log.replace(ANNOUNCED, ANNOUNCED + b'"stand_in": true, ') for log in sets.logs(sets.MI355X)
    ]
    assert all(b'"stand_in": true' in log for log in logs)
    return sets.make_set(tmp_path / "stand-in", logs)


def test_a_score_of_a_stand_in_is_neutral_and_says_so_first(
    published: Path, stand_in: Path
) -> None:
    real, small = score_dir(str(published)), score_dir(str(stand_in))
    assert real.valid and small.valid and real.minutes == small.minutes and not real.no_result
    assert part_lines(score_parts(real), COLOURS)[0].startswith("\x1b[1;32mvalid score: ")
    head = "\x1b[1mrehearsal, not a result (a small stand-in workload ran): valid score: "
    assert part_lines(score_parts(small), COLOURS)[0].startswith(head)
    assert (small.to_json()["stand_in"], real.to_json()["stand_in"]) == (True, False)


def test_nothing_compares_a_stand_in_with_a_published_result(
    published: Path, stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(published)]) == 0
    assert "published" in capsys.readouterr().out
    assert main(["score", str(stand_in)]) == 0
    assert "published" not in capsys.readouterr().out
    assert read_report(str(published)).published and not read_report(str(stand_in)).published


@pytest.mark.parametrize("stand_in_first", [True, False])
def test_a_stand_in_against_a_published_result_is_refused(
    stand_in: Path, published: Path, stand_in_first: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = "5.1/llama2_70b_lora/MI355X_1x8x1"
    sides = [str(stand_in), entry] if stand_in_first else [entry, str(stand_in)]
    assert main(["compare", *sides]) == 2
    written = capsys.readouterr()
    assert "is not compared with a published result: stand-in: " in written.err
    assert written.out == ""
    assert main(["compare", str(stand_in), str(published)]) == 0


def test_the_report_of_a_stand_in_has_a_headline_of_its_own(
    published: Path, stand_in: Path
) -> None:
    real, small = page(read_report(str(published))), page(read_report(str(stand_in)))
    assert "✓ valid score</div>" in real and '<div class="verdict good">' in real
    assert '<div class="word">rehearsal, not a result (a small stand-in workload ran): ' in small
    assert "✓ valid score" not in small and '<div class="verdict rehearsal">' in small
    assert "A rehearsal, not a result: a small stand-in workload ran." in small
    assert "rehearsal, not a result" in markdown(read_report(str(stand_in)))


def test_a_package_of_a_stand_in_is_refused(stand_in: Path) -> None:
    with pytest.raises(Refused, match="this is a rehearsal: a small stand-in workload ran"):
        make_package([str(stand_in)], Options(submitter="AMD", framework="PyTorch"))


@pytest.mark.parametrize("command", ["status", "ls"])
def test_tables_of_sets_mark_a_stand_in(
    published: Path, stand_in: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a sign nor a colour: these are for results."""
    site = stand_in.parents[1] / "site.yaml"
    lines = {}
    for root in (published, stand_in):
        write_site(site, root.parent)
        assert main([command, "--site", str(site)]) == 0
        head, lines[root] = capsys.readouterr().out.splitlines()
        assert " OLYMPIC MEAN " in head
    assert " complete (rehearsal) " in lines[stand_in]
    assert " complete " in lines[published] and "rehearsal" not in lines[published]
    [_, real], [_, small] = (part_lines([set_table([drawn(root)])], COLOURS) for root in lines)
    assert "\x1b[32m✓ complete\x1b[0m" in real
    assert "\x1b" not in small and "✓" not in small


def drawn(root: Path) -> SetPicture:
    [picture] = look([root], [])
    return picture


def test_every_view_of_a_set_says_first_that_it_is_no_result(
    published: Path, stand_in: Path
) -> None:
    real, small = drawn(published), drawn(stand_in)
    fact = "not a result: a small stand-in workload ran"
    assert describe(small)[0] == ("rehearsal", fact)
    assert headline(small).startswith("rehearsal  complete  ")
    assert "rehearsal" in for_notebook(small)._repr_html_()
    assert (as_json(small)["stand_in"], as_json(small)["rehearsal"]) == (True, False)
    screen = one_set(small, COLOURS, 24)
    assert fact in screen[1] and "✓" not in screen[2] and "complete" in screen[2]
    for text in (str(describe(real)), headline(real), for_notebook(real)._repr_html_()):
        assert "rehearsal" not in text
    assert as_json(real)["stand_in"] is False and "✓ complete" in one_set(real, COLOURS, 24)[1]


def test_exports_mark_a_stand_in(
    published: Path, stand_in: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(published), str(stand_in)]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["stand_in"] for row in rows] == 10 * ["0"] + 10 * ["1"]
    found = families([(SetEvidence(root), drawn(root)) for root in (published, stand_in)], 0.0)
    [score] = [family for family in found if family.name == "orchestrator_last_score_seconds"]
    labels = [dict(labels) for labels in score.samples]
    assert [one.get("rehearsal") for one in labels] == [None, "true"]
    assert len(labels) == 2 and len(set(score.samples.values())) == 1


def test_the_page_of_all_sets_counts_no_stand_in_as_a_result(
    published: Path, stand_in: Path
) -> None:
    real, small = (indexed("x", read_report(str(root))) for root in (published, stand_in))
    assert (real.minutes, real.remark) == (real.value, "")
    assert small.minutes is None and small.mean == real.mean
    assert small.remark.startswith("rehearsal, not a result (a small stand-in workload ran): ")


def test_one_rounding_for_the_score_on_a_page(published: Path) -> None:
    """The score is the same text in the verdict and at the end of the arithmetic."""
    score = score_dir(str(published))
    lines = part_lines(score_parts(score))
    [arithmetic] = [line for line in lines if line.startswith("score: ")]
    assert lines[0].removeprefix("valid score: ") == arithmetic.rpartition(" = ")[2]
