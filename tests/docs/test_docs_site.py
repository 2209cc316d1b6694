"""The documentation site in a real browser: what can be read at every width, and that links and console are in order.

Two of its pages are compared with pictures that were looked at (tests/docs/pictures/): the front page, and one with a block
of code and a table that are wider than a telephone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
from chromium import Page, running
from pages import TOP, blocks, pages
from photographs import LOOKS, assert_change_is_seen, camera, compare, show
from programs import unavailable

PICTURES = Path(__file__).resolve().parent / "pictures"
PICTURED = ("index", "exit-codes")
SCREENS = [look for look in LOOKS if look != "paper"]

pytestmark = pytest.mark.usefixtures("own_home")

MEASURE = """(() => {
  const boxes = "article pre, article .table-wrapper", style = one => getComputedStyle(one);
  const text = one => one.textContent.trim().slice(0, 40);
  const seen = one => one.checkVisibility({visibilityProperty: true}) && one.getBoundingClientRect().width > 0;
  const scrolls = one => ["auto", "scroll"].includes(style(one).overflowX);
  const shows = one => style(one).backgroundImage.split("linear-gradient").length == 5
    && style(one).backgroundAttachment == "local, local, scroll, scroll";
  const wide = [...document.querySelectorAll(boxes)].filter(one => one.scrollWidth > one.clientWidth);
  // Furo cuts the document off and has the part with the text scroll.
  const sideways = [document.documentElement, document.querySelector(".content")].map(one => one.scrollWidth - one.clientWidth);
  return {wide: Math.max(...sideways),
    off: [...document.querySelectorAll(".main *")].filter(one => seen(one) && !one.parentElement.closest(boxes)
      && one.closest(".content") && one.getBoundingClientRect().right > innerWidth + 1).map(text),
    scrolling: wide.length, stuck: wide.filter(one => !scrolls(one)).map(text), silent: wide.filter(one => !shows(one)).map(text),
    pictures: [...document.images].filter(one => !one.naturalWidth).map(one => one.src),
    links: [...document.links].map(one => one.href), anchors: [...document.querySelectorAll("[id]")].map(one => one.id)};
})()"""


@pytest.fixture(scope="module")
def site(own_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of these sources."""
    if not (TOP / "build/docs-venv/installed").exists():
        unavailable("Sphinx is not installed: make docs")
    place = tmp_path_factory.mktemp("site") / "docs"
    env = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    done = subprocess.run(
        ["make", "-C", TOP, "docs", f"SITE={place}"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with running(tmp_path_factory.mktemp("profile")) as browser:
        yield browser.page()


def measure(page: Page, site: Path) -> dict[str, dict[str, Any]]:
    """Open every page of a site on a telephone: {name: what was found}."""
    page.look(390)
    found = {}
    for file in sorted(site.rglob("*.html")):
        page.open(file)
        found[file.relative_to(site).with_suffix("").as_posix()] = {
            **page.run(MEASURE),
            "console": list(page.console),
        }
    return found


def only(measured: dict[str, dict[str, Any]], what: str) -> dict[str, Any]:
    """The pages on which there is something of this kind."""
    return {name: facts[what] for name, facts in measured.items() if facts[what]}


def broken(measured: dict[str, dict[str, Any]], site: Path) -> dict[str, list[str]]:
    """The links of each page that lead to no file of the site, or to no place of its page."""
    anchors = {
        (site / f"{name}.html").as_uri(): set(facts["anchors"]) for name, facts in measured.items()
    }
    found: dict[str, list[str]] = {}
    for name, facts in measured.items():
        for link in facts["links"]:
            target, anchor = urldefrag(link)
            if not target.startswith(site.as_uri()):
                continue
            if target not in anchors or (anchor and unquote(anchor) not in anchors[target]):
                found.setdefault(name, []).append(link.removeprefix(site.as_uri()))
    return found


@pytest.fixture(scope="module")
def measured(page: Page, site: Path) -> dict[str, dict[str, Any]]:
    return measure(page, site)


def test_every_page_is_on_the_site(measured: dict[str, dict[str, Any]]) -> None:
    assert set(pages()) <= measured.keys()


def test_no_page_scrolls_sideways(measured: dict[str, dict[str, Any]]) -> None:
    assert only(measured, "wide") == {} and only(measured, "off") == {}


def test_wide_tables_and_code_scroll_and_show_it(measured: dict[str, dict[str, Any]]) -> None:
    assert sum(facts["scrolling"] for facts in measured.values()) > 100
    assert measured["exit-codes"]["scrolling"] == 2
    assert only(measured, "stuck") == {} and only(measured, "silent") == {}


def test_the_console_stays_empty_and_pictures_load(measured: dict[str, dict[str, Any]]) -> None:
    assert only(measured, "console") == {} and only(measured, "pictures") == {}


def test_links_lead_somewhere(measured: dict[str, dict[str, Any]], site: Path) -> None:
    inner = [
        link
        for facts in measured.values()
        for link in facts["links"]
        if link.startswith(site.as_uri())
    ]
    assert len(inner) > 2000 and sum("#" in link for link in inner) > 200
    assert broken(measured, site) == {}


def test_a_link_to_a_page_shows_its_title(page: Page, site: Path) -> None:
    """Where a document names a page by its file."""
    page.open(site / "set-folder.html")
    texts = page.run("[...document.querySelectorAll('article a')].map(one => one.textContent)")
    assert "(Submission packages)" in page.run("document.querySelector('article').textContent")
    assert [text for text in texts if text.endswith(".md")] == []


def test_commands_paste_as_they_were_written(site: Path) -> None:
    """With smart quotes, `--json` in a title is no option any more, and quotes quote nothing."""
    seen = 0
    for name in pages():
        text = (site / f"{name}.html").read_text()
        assert not re.search("[–—‘’“”]", unescape(re.sub("<[^>]+>", "", text))), name
        shown = [
            unescape(re.sub("<[^>]+>", "", block))
            for block in re.findall("(?s)<pre>(.*?)</pre>", text)
        ]
        for command in (one for block in blocks(name) for one in block.commands):
            assert any(command.words in block for block in shown), (name, command.words)
            seen += 1
    assert seen > 100


WRONG = """<p style="width:2000px">beyond</p>
<style>article pre { overflow: visible !important } .table-wrapper { background: none !important }</style>
<script>missing()</script><script src="missing.js"></script><img src="missing.png">
<a href="missing.html">no page</a> <a href="index.html#missing">no place</a> <a href="#missing">no place here</a>"""


def test_the_measuring_finds_what_it_looks_for(page: Page, site: Path, tmp_path: Path) -> None:
    place = tmp_path / "site"
    for folder in ("_static", "_images"):
        shutil.copytree(site / folder, place / folder)
    for name in PICTURED:
        text = (site / f"{name}.html").read_text()
        changed = text.replace("</article>", f"{WRONG}</article>") if name != "index" else text
        (place / f"{name}.html").write_text(changed)
    measured = measure(page, place)
    found = measured["exit-codes"]
    assert found["wide"] > 1600 and found["off"] == ["beyond"]
    assert len(found["stuck"]) == len(found["silent"]) == 1
    assert found["stuck"][0].startswith("{") and found["silent"][0].startswith("code")
    assert [Path(url).name for url in found["pictures"]] == ["missing.png"]
    for text in ("missing is not defined", "/missing.js", "/missing.png"):
        assert any(text in line for line in found["console"]), text
    links = {"/missing.html", "/index.html#missing", "/exit-codes.html#missing"}
    assert links <= set(broken(measured, place)["exit-codes"])
    kinds = ("wide", "off", "stuck", "silent", "pictures", "console")
    assert [kind for kind in kinds if measured["index"][kind]] == []


# ---- pictures ----


@pytest.fixture(scope="module")
def photographer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with camera(tmp_path_factory.mktemp("profile")) as page:
        yield page


def show_still(page: Page, file: Path, look: str) -> None:
    """Show a page without its pictures: they are recorded and tested by themselves, and move."""
    show(page, file, look)
    page.run("document.querySelectorAll('img').forEach(one => one.style.visibility = 'hidden')")


@pytest.mark.parametrize("look", SCREENS)
@pytest.mark.parametrize("name", PICTURED)
def test_it_looks_as_it_was_seen(
    photographer: Page, site: Path, tmp_path: Path, name: str, look: str
) -> None:
    show_still(photographer, site / f"{name}.html", look)
    compare(photographer, PICTURES / f"{name}-{look}.png", tmp_path / f"{name}-{look}.png", look)


@pytest.mark.parametrize(
    ("name", "look", "change"),
    [
        ("index", "telephone", "h1 { display: none }"),  # a part is missing
        ("index", "dark", "article pre { background: #d40 !important }"),  # another colour
        ("exit-codes", "desk", "article td { font-size: 1.3em }"),  # tables grow
        ("exit-codes", "telephone-dark", ".table-wrapper { transform: translateX(12px) }"),
    ],
)
def test_a_change_is_seen(
    photographer: Page, site: Path, tmp_path: Path, name: str, look: str, change: str
) -> None:
    show_still(photographer, site / f"{name}.html", look)
    photographer.run(f"document.head.insertAdjacentHTML('beforeend', '<style>{change}</style>')")
    kept = PICTURES / f"{name}-{look}.png"
    assert_change_is_seen(photographer, kept, tmp_path / "now.png", look)
