"""The lines of settings.sh as a template, and the page of the settings, from the rows of
orchestrator/onnode/kernel/settings.py."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import Field
from typing import Any

from orchestrator.onnode.kernel.settings import rows

KINDS = {"str": "text", "int": "number", "tuple[str, ...]": "list"}


def settings_template() -> str:
    """Return the lines of all settings, as the template that templates/settings.sh.j2 includes."""
    lines = ["{# Made from orchestrator/onnode/kernel/settings.py by `make reference`. -#}"]
    for setting in rows():
        lines += _lines(setting)
    return "\n".join(lines) + "\n"


def _lines(setting: Field[Any]) -> Iterator[str]:
    about, name = setting.metadata, setting.name.upper()
    source, kind = f"({about['source']})", KINDS[str(setting.type)]
    if about["title"]:
        yield ""
        yield f"# ---- {about['title']}"
    for line in textwrap.wrap(about["text"], 96):
        yield f"# {line}"
    if about["one_a_line"]:
        yield f"{name}=("
        yield f"{{% for line in {source} %}}"
        yield "  {{ line | q }}"
        yield "{% endfor %}"
        yield ")"
    elif kind == "list":
        yield f"{name}=({{{{ {source} | qlist }}}})"
    else:
        value = f"{{{{ {source}{' | q' * (kind == 'text')} }}}}"
        yield f"use {name} {value}" if about["overridable"] else f"{name}={value}"


def settings_page(made: str) -> str:
    """Return docs/reference/settings.md: the settings that the environment overrides."""
    lines = [
        "# Settings of a bundle",
        "",
        made.rstrip(),
        "",
        "`settings.sh` of a bundle has every setting with its value and a comment. When you start a bundle by hand, your",
        "environment overrides these, within the limits if there are some. The rest comes from the site file alone.",
        "",
        "| variable | limits | |",
        "|---|---|---|",
    ]
    for setting in rows():
        about = setting.metadata
        if not about["overridable"]:
            continue
        limit = f"1 to {about['most']:,}" if about["most"] else ""
        text = about["text"].replace("|", "\\|")
        lines.append(f"| `{setting.name.upper()}` | {limit} | {text} |")
    return "\n".join(lines) + "\n"
