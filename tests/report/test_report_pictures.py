"""The report as a picture at every look, compared with the one that was looked at and kept (tests/report/pictures/)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import set_of_logs as sets
from chromium import Page
from photographs import LOOKS, assert_change_is_seen, camera, compare, show

from orchestrator.cli import main

PICTURES = Path(__file__).resolve().parent / "pictures"

pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with camera(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture(scope="module")
def report(own_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("report")
    out = top / "set.html"
    assert (
        main(["report", str(sets.make_set(top / "sets", sets.logs(sets.MI355X))), "-o", str(out)])
        == 0
    )
    return out


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(look, marks=[] if look in ("telephone-dark", "paper") else pytest.mark.long)
        for look in LOOKS
    ],
)
def test_it_looks_as_it_was_seen(page: Page, report: Path, tmp_path: Path, look: str) -> None:
    show(page, report, look)
    compare(page, PICTURES / f"{look}.png", tmp_path / f"{look}.png", look)


@pytest.mark.parametrize(
    "change",
    [
        ".verdict{display:none}",  # a part is gone
        "svg.chart{transform:translateY(12px)}",  # charts are over their legends
        "table{font-size:15px}",  # tables grow
        ":root{--line:#d40}",  # lines have another colour
    ],
)
def test_a_change_is_seen(page: Page, report: Path, tmp_path: Path, change: str) -> None:
    file = tmp_path / "changed.html"
    text = report.read_text()
    assert "</style>" in text
    file.write_text(text.replace("</style>", f"{change}</style>", 1))
    show(page, file, "desk")
    assert_change_is_seen(page, PICTURES / "desk.png", tmp_path / "now.png", "desk")
