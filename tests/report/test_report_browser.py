"""Pages in a real browser: what can be read at every width, on paper and in the dark, and that the console stays empty.

Fonts differ between machines, so these measure instead of comparing pictures: no text meets a line or another text, none
is cut off or too small, nothing makes the page wider than its window, every text stands out from what is behind it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import own_logs
import pytest
import set_of_logs as sets
from chromium import Page, running
from photographs import LOOKS

from orchestrator.cli import main

MEASURE = """(() => {
  const seen = one => one.checkVisibility({visibilityProperty: true}) && one.getBoundingClientRect().width > 0;
  const charts = [...document.querySelectorAll("svg.chart")].filter(seen).map(chart => {
    const whole = chart.getBoundingClientRect(), scale = chart.getScreenCTM().a;
    const texts = [...chart.querySelectorAll("text")].filter(seen).map(text => ({text: text.textContent,
      box: text.getBoundingClientRect(), size: parseFloat(getComputedStyle(text).fontSize) * scale}));
    const segments = [];
    for (const line of chart.querySelectorAll("line, polyline:not(.hit)")) {
      const at = (x, y) => new DOMPoint(x, y).matrixTransform(line.getScreenCTM());
      const points = line.tagName == "line" ? [at(line.x1.baseVal.value, line.y1.baseVal.value),
        at(line.x2.baseVal.value, line.y2.baseVal.value)] : [...line.points].map(one => at(one.x, one.y));
      points.slice(1).forEach((point, index) => segments.push([points[index], point]));
    }
    const inside = (point, box) => point.x > box.left && point.x < box.right && point.y > box.top && point.y < box.bottom;
    const crosses = ([a, b], box) => { // a few hundred steps along a line are finer than any letter
      if (Math.min(a.x, b.x) > box.right || Math.max(a.x, b.x) < box.left
        || Math.min(a.y, b.y) > box.bottom || Math.max(a.y, b.y) < box.top) return false;
      for (let step = 0; step <= 400; step++)
        if (inside({x: a.x + (b.x - a.x) * step / 400, y: a.y + (b.y - a.y) * step / 400}, box)) return true;
      return false; };
    const core = box => ({left: box.left + 1, right: box.right - 1, top: box.top + 3, bottom: box.bottom - 3});
    const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    return {id: chart.id, width: whole.width, height: whole.height,
      marks: [...chart.querySelectorAll(".mark")].filter(one => one.getBBox().width + one.getBBox().height > 0).length,
      outside: texts.filter(one => one.box.left < whole.left - 1 || one.box.right > whole.right + 1
        || one.box.top < whole.top - 1 || one.box.bottom > whole.bottom + 1).map(one => one.text),
      over: texts.flatMap((a, i) => texts.slice(i + 1).filter(b => !apart(core(a.box), core(b.box))).map(b => [a.text, b.text])),
      crossed: texts.filter(one => segments.some(segment => crosses(segment, core(one.box)))).map(one => one.text),
      smallest: Math.min(...texts.map(one => one.size))};
  });
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map(one => one / 255).map(one => one <= 0.04045 ? one / 12.92
    : ((one + 0.055) / 1.055) ** 2.4).reduce((sum, one, index) => sum + one * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = one => { for (; one; one = one.parentElement) {
    const colour = rgb(getComputedStyle(one).backgroundColor); if (colour.length < 4 || colour[3] > 0) return colour; }
    return [255, 255, 255]; };
  const spoken = [...document.querySelectorAll("body *")].filter(one => seen(one) && !one.closest(".tip")
    && [...one.childNodes].some(child => child.nodeType == 3 && child.textContent.trim()));
  const contrasts = spoken.map(one => { const style = getComputedStyle(one);
    const a = luminance(rgb(one.closest("svg") ? style.fill : style.color)), b = luminance(behind(one));
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.textContent.trim().slice(0, 40)]; });
  return {charts, wide: document.documentElement.scrollWidth - innerWidth, paper: behind(document.body),
    off: spoken.filter(one => !one.closest(".scroll, .skip") && one.getBoundingClientRect().right > innerWidth + 1)
      .map(one => one.textContent.trim().slice(0, 40)),
    flat: contrasts.filter(one => one[0] < 4.5),
    open: [...document.querySelectorAll("details:not(.screen) :is(table, ol)")].every(one => one.checkVisibility({contentVisibilityAuto: true}))};
})()"""


pytestmark = pytest.mark.usefixtures("own_home")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with running(tmp_path_factory.mktemp("profile")) as browser:
        yield browser.page()


@pytest.fixture(scope="module")
def pages(own_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """set.html, unfinished.html, own.html and logs.html, compare.html and several.html, all/index.html."""
    top = tmp_path_factory.mktemp("pages")
    log_dir, out = top / "sets", top / "out"
    out.mkdir()
    whole = sets.make_set(log_dir, sets.logs(sets.MI355X))
    part = Path(
        shutil.move(sets.make_set(top / "part", sets.logs(sets.MI355X)[:4]), log_dir / "unfinished")
    )
    own = own_logs.own_set(
        log_dir / "own", [own_logs.own_log(index, 0.5 + index / 100) for index in range(5)]
    )
    logs, slower = str(sets.MI350X), str(sets.MI325X)
    published = "5.1/llama2_70b_lora/MI355X_1x8x1"
    for name, words in {
        "set": ["report", str(whole)],
        "unfinished": ["report", str(part)],
        "own": ["report", str(own)],
        "logs": ["report", logs],
        "compare": ["compare", str(whole), str(part)],
        "several": ["compare", published, str(whole), slower, "6.0/llama2_70b_lora/MI355X_1x8x1"],
    }.items():
        code = main([*words, "-o", str(out / f"{name}.html")])
        assert code == (name == "compare"), f"{name}: a side has no valid score"
    assert main(["report", "--all", str(log_dir), "-o", str(out / "all")]) == 0
    return out


def test_the_browser_writes_nothing_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with running(tmp_path / "profile") as browser:
        browser.page().open(tmp_path)
    assert list(home.iterdir()) == [] and any((tmp_path / "profile").rglob("Crash Reports"))


def measured(page: Page, file: Path, **look: Any) -> dict[str, Any]:
    page.look(**look)
    page.open(file)
    found: dict[str, Any] = page.run(MEASURE)
    return found


PAGES = {
    "set": set(LOOKS),
    "unfinished": {"telephone"},
    "own": {"desk"},
    "logs": {"telephone-dark"},
    "compare": {"dark"},
    "several": {"telephone", "paper"},
    "all/index": {"desk"},
}
"""Each with the looks of `make test`; `make long` has all."""


@pytest.mark.parametrize(
    ("name", "look"),
    [
        pytest.param(name, look, marks=[] if look in looks else pytest.mark.long)
        for name, looks in PAGES.items()
        for look in LOOKS
    ],
)
def test_everything_can_be_read(page: Page, pages: Path, name: str, look: str) -> None:
    told = measured(page, pages / f"{name}.html", **LOOKS[look])
    assert told["charts"], "no chart is shown"
    for chart in told["charts"]:
        assert chart["outside"] == [] and chart["over"] == [] and chart["crossed"] == [], chart
        assert chart["id"].endswith("-narrow") == look.startswith("telephone"), chart["id"]
        assert chart["width"] > 300 and chart["height"] > 100 and chart["marks"] > 0, chart
        assert chart["smallest"] >= (9 if look == "paper" else 11), chart
    assert told["wide"] <= 0 and told["off"] == [] and told["flat"] == []
    assert sum(told["paper"][:3]) < 150 if "dark" in look else sum(told["paper"][:3]) > 700
    if look == "paper":
        assert told["open"], "a table stays folded on paper"
    assert page.console == []


def test_the_measuring_finds_what_it_looks_for(page: Page, pages: Path, tmp_path: Path) -> None:
    text = (pages / "set.html").read_text()
    wrong = '<text x="400" y="300" class="tick">crossed</text><line x1="300" x2="600" y1="296" y2="296" class="mean"/>'
    wrong += '<text x="880" y="320" class="tick">beyond the edge</text><text x="402" y="303" class="tick">on it</text>'
    start = text.index('id="chart-times"')
    end = text.index("</svg>", start)
    pale = '<p style="color:#bbb">pale</p><div style="width:2000px">wide</div>'
    file = tmp_path / "wrong.html"
    file.write_text(f"{text[:end]}{wrong}{text[end:]}".replace("</main>", f"{pale}</main>"))
    told = measured(page, file, width=1280)
    chart = next(one for one in told["charts"] if one["id"] == "chart-times")
    assert (
        "crossed" in chart["crossed"]
        and "beyond the edge" in chart["outside"]
        and ["crossed", "on it"] in chart["over"]
    )
    assert told["wide"] > 0 and [one[1] for one in told["flat"]] == ["pale"]


def test_one_series_stands_out_without_scripts(page: Page, pages: Path) -> None:
    page.look(1280, height=9000)
    page.open(pages / "set.html")
    page.run(
        "document.head.insertAdjacentHTML('beforeend', '<style>*{transition:none!important}</style>')"
    )
    figure = "document.querySelector('#convergence figure')"

    def opacities() -> list[float]:
        drawn = f"[...{figure}.querySelectorAll('.chart.wide .one')]"
        found: list[float] = page.run(f"{drawn}.map(one => +getComputedStyle(one).opacity)")
        return found

    assert opacities() == [1] * 10
    for what in (".legend .s3", ".chart.wide .s3"):
        page.run(f"{figure}.querySelector('{what}').focus()")
        assert opacities() == [1 if index == 3 else 0.1 for index in range(10)], what
    # The pointer goes before the focus.
    box = page.run(f"{figure}.querySelector('.legend .s7').getBoundingClientRect().toJSON()")
    page.point(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert opacities() == [1 if index == 7 else 0.1 for index in range(10)]
    page.point(1, 1)
    page.run("document.activeElement.blur()")
    assert opacities() == [1] * 10


def test_a_mark_says_what_it_is(page: Page, pages: Path) -> None:
    for width, kind in ((1280, "wide"), (390, "narrow")):
        page.look(width)
        page.open(pages / "set.html")
        page.run(f"document.querySelector('#times .chart.{kind} .mark').focus()")
        tip = f"document.querySelector('#times .chart.{kind} .mark .tip')"
        assert page.run(f"getComputedStyle({tip}).visibility") == "visible"
        assert page.run(
            f"[...{tip}.querySelectorAll('text')].map(one => one.textContent).join(' ')"
        ) == ("run 1 on node-a,node-b: 11.113 min, 3\u202f456 samples, counted")
        room = f"{tip}.querySelector('rect').getBoundingClientRect().right"
        assert page.run(
            f"[...{tip}.querySelectorAll('text')].every(one => one.getBoundingClientRect().right <= {room})"
        )


def test_the_first_column_stays_when_a_table_is_pushed_aside(page: Page, pages: Path) -> None:
    page.look(390)
    page.open(pages / "set.html")
    page.run("document.querySelector('#times .scroll').scrollLeft = 200")
    row = "document.querySelector('#times tbody tr')"
    assert page.run(f"{row}.cells[0].getBoundingClientRect().left") == page.run(
        "document.querySelector('#times .scroll').getBoundingClientRect().left"
    )
    assert page.run(f"{row}.cells[1].getBoundingClientRect().left") < 0
    assert page.run(f"{row}.getBoundingClientRect().height") < 40


def test_it_prints(page: Page, pages: Path, tmp_path: Path) -> None:
    """The whole set on at most seven pages: first what is read, then what is looked up in small type."""
    page.look(**LOOKS["paper"])
    page.open(pages / "set.html")
    page.paper(tmp_path / "set.pdf")
    content = (tmp_path / "set.pdf").read_bytes()
    assert content.startswith(b"%PDF") and 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 7
    sizes = "[...document.querySelectorAll('main > section')].map(one => [one.className, parseFloat(getComputedStyle(one).fontSize)])"
    listed = page.run(sizes)
    assert listed == sorted(listed, key=lambda one: one[0] == "appendix")
    assert {round(size * 0.75) for name, size in listed if name == "appendix"} == {8}
    assert not page.run(
        "[...document.querySelectorAll('details.screen')].some(one => one.checkVisibility())"
    )


def test_contents_stay_in_sight(page: Page, pages: Path) -> None:
    for width in (390, 1280):
        page.look(width)
        page.open(pages / "set.html")
        for section in ("nodes", "facts"):
            page.run(f"document.querySelector('nav a[href=\"#{section}\"]').click()")
            assert page.run("scrollY") > 2000
            assert -1 <= page.run("document.querySelector('nav').getBoundingClientRect().top") <= 1
            below = (
                "document.querySelector('nav').getBoundingClientRect().bottom"
                if width < 1180
                else "0"
            )
            top = f"document.querySelector('#{section} h2').getBoundingClientRect().top"
            assert page.run(f"{top} >= {below} - 1")


def test_the_arithmetic_is_folded_and_throughput_has_one_bold_line(page: Page, pages: Path) -> None:
    page.look(1280)
    page.open(pages / "set.html")
    steps = "document.querySelector('#arithmetic ol.steps')"
    seen = f"{steps}.getBoundingClientRect().height > 100 && {steps}.closest('details').open"
    assert not page.run(seen)
    page.run("document.querySelector('#arithmetic summary').click()")
    assert page.run(seen)
    widths = "[...document.querySelectorAll('#throughput .chart.wide .line')].map(one => parseFloat(getComputedStyle(one).strokeWidth))"
    quiet, bold = page.run(widths)[:-1], page.run(widths)[-1]
    assert len(quiet) == 10 and max(quiet) < bold / 2


def test_a_table_shows_that_it_goes_on(page: Page, pages: Path) -> None:
    """By a shadow at its edge, which moves away with the last column."""
    page.look(390)
    page.open(pages / "set.html")
    table = "document.querySelector('#times .scroll')"
    assert page.run(f"{table}.scrollWidth > {table}.clientWidth")
    assert page.run(f"getComputedStyle({table}).backgroundImage").count("gradient") == 4
    fixed = page.run(f"getComputedStyle({table}).backgroundAttachment")
    assert fixed == "local, local, scroll, scroll"


def test_the_console_would_tell_of_a_script(page: Page, pages: Path, tmp_path: Path) -> None:
    """The other tests see an empty console; this is what they would see: the page's policy forbids what is not its own."""
    file = tmp_path / "scripted.html"
    file.write_text(
        (pages / "set.html").read_text().replace("</body>", "<script>1</script></body>")
    )
    page.open(file)
    assert any(
        "Content Security Policy" in json.loads(one).get("entry", {}).get("text", "")
        for one in page.console
    )
