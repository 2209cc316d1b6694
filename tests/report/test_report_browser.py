"""Reports in a real browser: every chart is drawn where it can be seen, and the console stays empty."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import set_of_logs as sets

from orchestrator.report.page import page
from orchestrator.report.reading import read_report

PROBE = """<script>
const rows = [...document.querySelectorAll("svg.chart")].map(chart => {
  const box = chart.getBoundingClientRect();
  const marks = [...chart.querySelectorAll(".mark")].map(mark => mark.getBBox())
    .filter(box => box.width + box.height > 0).length;
  const texts = [...chart.querySelectorAll("text")].filter(text => getComputedStyle(text).visibility == "visible")
    .map(text => ({text: text.textContent, box: text.getBoundingClientRect()}));
  const outside = texts.filter(one => one.box.left < box.left - 1
    || one.box.right > box.right + 1 || one.box.bottom > box.bottom + 1);
  const over = [];
  texts.forEach((a, i) => texts.slice(i + 1).forEach(b => {
    if (a.box.left < b.box.right - 1 && b.box.left < a.box.right - 1
        && a.box.top < b.box.bottom - 3 && b.box.top < a.box.bottom - 3)
      over.push([a.text, b.text]); }));
  return {id: chart.id, width: box.width, height: box.height, marks, outside: outside.map(one => one.text), over};
});
const mark = document.querySelector("#chart-times .mark"); mark.focus();
const tip = getComputedStyle(mark.querySelector(".tip")).visibility;
const wide = document.documentElement.scrollWidth > innerWidth;
document.body.setAttribute("data-probe", JSON.stringify({rows, tip, wide}));
</script>"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        text = "no chromium: `apt-get install chromium` (as root on Debian) brings it"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{text}; with CI=true its tests may not be skipped", pytrace=False)
        pytest.skip(text)
    return found


def browse(chromium: str, file: Path, profile: Path, *options: str) -> tuple[str, str]:
    """(the document after scripts ran, what the browser logged)"""
    answer = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            "--enable-logging=stderr",
            "--window-size=1100,1400",
            *options,
            "--dump-dom",
            file.as_uri(),
        ],
        capture_output=True,
        timeout=300,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return answer.stdout.decode(), answer.stderr.decode(errors="replace")


def probed(text: str) -> str:
    """The page with the probe in it, and without the policy that would keep the probe from running."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", f"{PROBE}</body>")


def test_charts_are_drawn(chromium: str, tmp_path: Path) -> None:
    root = sets.make_set(tmp_path / "sets", sets.logs(sets.MI355X))
    file = tmp_path / "report.html"
    file.write_text(probed(page(read_report(str(root)))))
    dom, _ = browse(chromium, file, tmp_path / "profile")
    found = re.search(r'data-probe="([^"]*)"', dom)
    assert found, "the probe did not run"
    probe = json.loads(found[1].replace("&quot;", '"').replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    rows = {row["id"]: row for row in probe["rows"]}
    assert {f"chart-{name}" for name in ("times", "convergence", "samples", "throughput", "timeline")} <= set(rows)
    for row in rows.values():
        assert row["width"] > 500 and row["height"] > 150, row
        assert row["marks"] >= 10, row
        assert row["outside"] == [] and row["over"] == [], row
    assert probe["tip"] == "visible" and not probe["wide"]


def test_the_console_stays_empty(chromium: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(read_report(str(sets.NVIDIA))))
    _, log = browse(chromium, file, tmp_path / "profile")
    assert "CONSOLE" not in log, log
    # The same look finds what it looks for: a script that the page's policy forbids.
    file.write_text(file.read_text().replace("</body>", "<script>1</script></body>"))
    assert "CONSOLE" in browse(chromium, file, tmp_path / "profile")[1]
