"""Write the table of the site's keys in docs/descriptors.md from the texts below the keys of the model; a test compares."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from orchestrator.model.part import DocumentPart  # noqa: E402
from orchestrator.model.schema import descriptions  # noqa: E402
from orchestrator.model.site_documents import Site  # noqa: E402

BEGIN, END = (
    "<!-- site keys: written by tools/site_keys.py -->\n",
    "<!-- end of the site keys -->\n",
)


def rows(model: type[DocumentPart], section: str = "") -> list[str]:
    """Return a row for each key of a model; the keys of its sections stand behind it."""
    found = []
    for name, field in model.model_fields.items():
        part = field.annotation
        if isinstance(part, type) and issubclass(part, DocumentPart):
            found += rows(part, f"{section}{name}.")
            continue
        default = field.get_default(call_default_factory=True)
        shown = (
            ""
            if default is None or default in ([], {})
            else f"`{json.dumps(default).strip(chr(34))}`"
        )
        text = re.sub(r"docs/(\w[\w-]*\.md)", r"[\1](\1)", descriptions(model)[name])
        found.append(f"| `{section}{name}` | {shown} | {text} |".replace("|  |", "| |"))
    return found


def page(text: str) -> str:
    """Return the page with the table written anew."""
    before, _, rest = text.partition(BEGIN)
    table = ["| key | default | |", "|---|---|---|", *rows(Site)]
    return before + BEGIN + "\n".join(table) + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    path = TOP / "docs/descriptors.md"
    path.write_text(page(path.read_text()))
