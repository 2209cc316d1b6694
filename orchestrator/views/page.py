"""Parts as HTML, by the templates in templates/report/."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from orchestrator.resources import data_dir
from orchestrator.views.markup import Safe, clean
from orchestrator.views.parts import Part
from orchestrator.words import Screen, kind_of

MOST_OF_A_LINE = 12_000
"""The most characters of a reason against a score, and of a line of its arithmetic."""


def render(template: str, **values: object) -> str:
    """Render a template. Values except markup are cleaned and escaped: logs are hostile input."""
    from orchestrator import __version__
    from orchestrator.jinja import environment

    folder = data_dir("templates") / "report"
    made = environment(
        folder,
        autoescape=True,
        finalize=lambda value: value if hasattr(value, "__html__") else clean(value),
    )
    made.filters |= {"whole": _whole, "kind": _kind, "sign": _sign}
    css = (folder / "page.css").read_text(encoding="utf-8").strip()
    return made.get_template(template).render(css=Safe(css), version=__version__, **values)


def rendered(parts: Iterable[Part]) -> str:
    """Return the parts as an element for a page of others, such as a notebook."""
    return render("fragment.html.j2", parts=list(parts))


def _kind(state: object) -> str:
    """Return the class of a state, a key of `words.KINDS`, or ""."""
    return kind_of(str(state))


def _sign(state: object) -> str:
    return Screen(signs="unicode").sign(clean(state))


def _whole(line: str) -> Safe:
    """Return a line as markup, cut to MOST_OF_A_LINE."""
    return Safe(escape(clean(line, MOST_OF_A_LINE)))
