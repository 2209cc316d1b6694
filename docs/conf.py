"""The documentation site: `make docs` (Sphinx with MyST and Furo). Pages are the Markdown files
beside this one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent

project = "orchestrator"
author = copyright = "the orchestrator developers"
release = re.search(r'__version__ = "(.+?)"', (TOP / "orchestrator/__init__.py").read_text())[1]  # type: ignore[index]

extensions = ["myst_parser", "sphinx_copybutton"]
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block"]
# The dashes of options stay dashes.
smartquotes = False
# Copied are the commands of a block, without prompts and output.
copybutton_prompt_text = "$ "
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = f"orchestrator {release}"
html_copy_source = False
html_show_sphinx = False
nitpicky = True
# The examples of YAML and shell are for people: `...` stands in some, and prompts in others.
suppress_warnings = ["misc.highlighting_failure"]


def adapt_links(app: Any, name: str, source: list[str]) -> None:
    """Links that leave docs/ lead into the checkout; the site, and the pages in the wheel, only
    name the file. A link to a page that reads as its file's name shows the title instead."""
    up = "../" * (name.count("/") + 1)
    text = re.sub(rf"\[([^\]]+)\]\({re.escape(up)}(?!\.\./)[^)]+\)", r"\1", source[0])
    source[0] = re.sub(r"\[[\w/-]+\.md\]\(", "[](", text)


def setup(app: Any) -> None:
    app.connect("source-read", adapt_links)
