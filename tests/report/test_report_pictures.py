"""The report as a picture at every look, beside the one that was looked at and kept (tests/report/pictures/).

GOLDEN=write writes them anew: look at them before they are committed. The browser itself compares, so that nothing is needed
to read a PNG. Pictures are small, and a tolerance lets letters be drawn a little differently; what moves, vanishes or changes its
colour is more than that. They hold for Debian's fonts: elsewhere only test_report_browser.py measures.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import set_of_logs as sets
from chromium import Page, running
from programs import unavailable
from test_report_browser import LOOKS

from orchestrator.cli import main

WRITE = os.environ.get("GOLDEN") == "write"
PICTURES = Path(__file__).resolve().parent / "pictures"
SCALE = {"telephone": 0.35, "telephone-dark": 0.35, "desk": 0.2, "dark": 0.2, "paper": 0.25}
STRONG, MOST = 40, 0.004
"""Of 255 steps of a colour: from there a pixel is another one. And how large a share of the pixels may be others."""

COMPARE = """(async (strong, before, now) => {
  const pixels = async text => { const image = new Image(); image.src = "data:image/png;base64," + text; await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d"); pen.drawImage(image, 0, 0);
    return {width: image.width, height: image.height, data: pen.getImageData(0, 0, image.width, image.height).data}; };
  const [a, b] = [await pixels(before), await pixels(now)];
  if (a.width != b.width || Math.abs(a.height - b.height) > 2) return {sizes: [[a.width, a.height], [b.width, b.height]], share: 1};
  const rows = Math.min(a.height, b.height); let other = 0, first = -1;
  for (let at = 0; at < rows * a.width * 4; at += 4)
    if (Math.max(...[0, 1, 2].map(one => Math.abs(a.data[at + one] - b.data[at + one]))) > strong) {
      other++; if (first < 0) first = Math.floor(at / 4 / a.width); }
  return {share: other / rows / a.width, first}; })"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    told = (
        subprocess.run(["fc-match", "sans-serif"], capture_output=True, text=True)
        if shutil.which("fc-match")
        else None
    )
    if told is None or "DejaVu Sans" not in told.stdout:
        unavailable("the pictures have Debian's DejaVu: apt-get install fontconfig fonts-dejavu")
    with running(tmp_path_factory.mktemp("profile")) as browser:
        yield browser.page()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("report")
    out = top / "set.html"
    assert (
        main(["report", str(sets.make_set(top / "sets", sets.logs(sets.MI355X))), "-o", str(out)])
        == 0
    )
    return out


def differs(page: Page, before: Path, now: Path) -> dict[str, float]:
    """What share of the pixels are others, and in which row the first one is."""
    page.call("Page.navigate", url="about:blank")  # the report lets nothing in that is not its own
    page.browser.wait_for("Page.loadEventFired", page.session)
    texts = [base64.b64encode(file.read_bytes()).decode() for file in (before, now)]
    found: dict[str, float] = page.run(f"{COMPARE}({', '.join(map(json.dumps, (STRONG, *texts)))})")
    return found


@pytest.mark.parametrize("look", LOOKS)
def test_it_looks_as_it_was_seen(page: Page, report: Path, tmp_path: Path, look: str) -> None:
    kept, now = PICTURES / f"{look}.png", tmp_path / f"{look}.png"
    page.look(**LOOKS[look])
    page.open(report)
    page.photograph(kept if WRITE else now, scale=SCALE[look])
    if not WRITE:
        found = differs(page, kept, now)
        assert found["share"] <= MOST, (
            f"{look}: {found}; look at {now}, then GOLDEN=write if it is right"
        )


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
    page.look(**LOOKS["desk"])
    page.open(file)
    page.photograph(tmp_path / "now.png", scale=SCALE["desk"])
    assert differs(page, PICTURES / "desk.png", tmp_path / "now.png")["share"] > 2 * MOST
