"""Photographs of pages, compared with those that were looked at and kept.

GOLDEN=write writes them anew: look at them before they are committed. The browser itself compares, so that nothing is needed
to read a PNG. Pictures are small, and a tolerance lets letters be drawn a little differently; what moves, vanishes or changes its
colour is more than that. They hold for Debian's fonts: elsewhere only the tests that measure run.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chromium import Page, running
from programs import unavailable

LOOKS: dict[str, dict[str, Any]] = {
    "telephone": {"width": 390},
    "telephone-dark": {"width": 390, "dark": True},
    "desk": {"width": 1280},
    "dark": {"width": 1280, "dark": True},
    "paper": {"width": 718, "paper": True, "dark": True},
}
"""A4 less a centimetre on each side is 718 pixels wide. What is dark on the screen is light on paper."""
WRITE = os.environ.get("GOLDEN") == "write"
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


@contextmanager
def camera(profile: Path) -> Iterator[Page]:
    """A page of a browser that draws with the fonts of the kept pictures."""
    fonts = (
        subprocess.run(["fc-match", "sans-serif"], capture_output=True, text=True)
        if shutil.which("fc-match")
        else None
    )
    if fonts is None or "DejaVu Sans" not in fonts.stdout:
        unavailable("the pictures have Debian's DejaVu: apt-get install fontconfig fonts-dejavu")
    with running(profile) as browser:
        yield browser.page()


def show(page: Page, file: Path, look: str) -> None:
    page.look(**LOOKS[look])
    page.open(file)


def differs(page: Page, before: Path, now: Path) -> dict[str, float]:
    """What share of the pixels are others, and in which row the first one is."""
    page.call("Page.navigate", url="about:blank")  # the report lets nothing in that is not its own
    page.browser.wait_for("Page.loadEventFired", page.session)
    texts = [base64.b64encode(file.read_bytes()).decode() for file in (before, now)]
    shares: dict[str, float] = page.run(
        f"{COMPARE}({', '.join(map(json.dumps, (STRONG, *texts)))})"
    )
    return shares


def compare(page: Page, kept: Path, now: Path, look: str) -> None:
    """Photograph what `page` shows and compare it with `kept`, or write that anew."""
    page.photograph(kept if WRITE else now, scale=SCALE[look])
    if not WRITE:
        assert kept.exists(), f"{kept} is missing: GOLDEN=write writes it"
        shares = differs(page, kept, now)
        assert shares["share"] <= MOST, (
            f"{kept.stem}: {shares}; look at {now}, then GOLDEN=write if it is right"
        )


def assert_change_is_seen(page: Page, kept: Path, now: Path, look: str) -> None:
    """What `page` shows was changed: it is clearly another picture than `kept`."""
    page.photograph(now, scale=SCALE[look])
    assert differs(page, kept, now)["share"] > 2 * MOST
