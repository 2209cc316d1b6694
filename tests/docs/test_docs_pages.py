"""The documents hold together: links lead somewhere, generated pages are those of today, names in the code are on their page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import DOCS, TOP, pages

sys.path.insert(0, str(TOP / "tools"))
import arguments
import reference
from pictures import animation

from orchestrator.cli import COMMANDS, command_parser
from orchestrator.onnode.policy.check_names import CHECKS


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#{1,3} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def links(path: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [one for one in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in one]


FILES = [
    *(f"docs/{page}.md" for page in pages()),
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "lab/README.md",
    "examples/tiny_gpt/README.md",
]


@pytest.mark.parametrize("name", FILES)
def test_links_lead_somewhere(name: str) -> None:
    path = TOP / name
    for link in links(path):
        target, _, anchor = link.partition("#")
        to = (path.parent / target).resolve() if target else path
        assert to.exists(), f"{name}: {link}"
        assert not anchor or anchor in anchors(to), (
            f"{name}: {link}; there is {sorted(anchors(to))}"
        )


def test_every_page_has_a_title() -> None:
    assert [
        page for page in pages() if not (DOCS / f"{page}.md").read_text().startswith("# ")
    ] == []


def test_generated_files_are_of_today() -> None:
    done = subprocess.run(
        [sys.executable, TOP / "tools/reference.py", "--check"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_a_help_text(name: str) -> None:
    _, parser = command_parser(name)
    for one in (parser, *arguments.subcommands(parser).values()):
        assert [
            arguments.written(action)
            for action in arguments.arguments(one)
            if not arguments.help_text(action)
        ] == []


def described(schema: object) -> Iterator[tuple[str, bool]]:
    """Every key of a JSON Schema, however deep, and whether a text says what it is: its own, or that of the part it refers to."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        for key, about in properties.items() if isinstance(properties, dict) else ():
            yield key, "description" in about or "$ref" in about
        schema = list(schema.values())
    for one in schema if isinstance(schema, list) else ():
        yield from described(one)


@pytest.mark.parametrize("kind", reference.DOCUMENTS)
def test_every_key_of_a_schema_has_a_description(kind: str) -> None:
    found = list(described(reference.json_schema(kind)))
    assert len(found) > 30 and [key for key, has_text in found if not has_text] == []


def test_every_environment_variable_is_on_its_page() -> None:
    named = set(
        re.findall(
            r"`((?:ORCH|ORCHESTRATOR)_[A-Z0-9_]+)`", (DOCS / "reference/environment.md").read_text()
        )
    )
    files = [
        path
        for top in ("orchestrator", "templates")
        for path in (TOP / top).rglob("*")
        if path.is_file()
    ]
    assert len(files) > 150
    code = "\n".join(path.read_text() for path in files if path.suffix in (".py", ".j2", ".sh"))
    used = set(re.findall(r"(?<![A-Z_])(?:ORCH|ORCHESTRATOR)_[A-Z0-9_]*[A-Z0-9](?![A-Z_{])", code))
    used -= {"ORCH_JOB", "ORCH_SET"}  # beginnings of names
    assert used - named == set(), "not in docs/reference/environment.md"
    assert named - used == set(), "not in the code any more"


def test_every_check_of_nodes_has_its_row() -> None:
    text = (DOCS / "preflight.md").read_text()
    missing = [name for name in CHECKS if name != "deep" and f"\n| `{name}` |" not in text]
    assert missing == []


def test_hints_do_not_name_files_that_an_installation_lacks() -> None:
    wrong = []
    for path in (TOP / "orchestrator").rglob("*.py"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"hint=[^#]*docs/|(return|hint =) f?[\"']docs/", line):
                wrong.append(f"{path.relative_to(TOP)}:{number}: {line.strip()}")
    assert wrong == [], "write `orchestrator docs PAGE`"


def test_hints_name_pages_that_there_are() -> None:
    names = {page.rpartition("/")[2] for page in pages()}
    files = [
        path
        for path in (TOP / "orchestrator").rglob("*.py")
        if path.name not in ("docs.py", "__init__.py")
    ]
    code = "\n".join(path.read_text() for path in files)
    hinted = set(re.findall(r"orchestrator docs ([a-z][a-z-]+)\b", code))
    assert {"package", "scoring", "descriptors", "exit-codes"} <= hinted
    assert hinted - names == set()


# ---- animations ----

SVG = "{http://www.w3.org/2000/svg}"


def frames(svg: str) -> list[tuple[bool, str]]:
    """Every frame in the order of its time: whether it is shown without motion, and its text."""
    root = ElementTree.fromstring(svg)
    style = "".join(one.text or "" for one in root.iter(f"{SVG}style"))
    times = dict(
        re.findall(r"@keyframes (f\d+)\{.*?([\d.]+)%\{visibility:visible\}[\d.]+%\{", style)
    )
    found = [one for one in root.iter(f"{SVG}g") if one.get("id", "") in times]
    assert len(found) == len(times)
    found.sort(key=lambda one: float(times[one.get("id", "")]))
    return [(one.get("visibility") != "hidden", "".join(one.itertext())) for one in found]


@pytest.mark.parametrize(
    ("picture", "end"),
    [("demo", "valid score by the workload's own rules"), ("rehearse", "set: complete")],
)
def test_an_animation_starts_with_its_end(picture: str, end: str) -> None:
    """Previews, paper and readers without motion show the first frame, and that alone."""
    shown = frames((DOCS / f"pictures/{picture}.svg").read_text())
    assert len(shown) > 10
    assert [still for still, _ in shown] == [True] + [False] * (len(shown) - 1)
    assert [end in text for _, text in shown] == [True] + [False] * (len(shown) - 1)


def test_a_recording_is_shown_from_its_last_frame_on() -> None:
    shown = frames(animation(["one", "two", "three"], "title"))
    assert shown == [(True, "three"), (False, "one"), (False, "two")]
