"""Write orchestrator/generated/ and pages of docs/reference from parsers, models and tools/*.yaml.

python tools/reference.py           writes them
python tools/reference.py --check   says which are out of date; exit status 1 when one is
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arguments import TOP, arguments, help_text, subcommands, written
from json_outputs import outputs_page, outputs_schema
from settings_rows import settings_page, settings_template
from shell_files import shell_files

from orchestrator.cli import COMMANDS, command_parser
from orchestrator.model.listing import INDEX, index_text
from orchestrator.model.schema import DOCUMENTS, json_schema
from orchestrator.report.columns import COLUMNS

MADE = "<!-- Made by tools/reference.py (`make reference`); a test compares. -->\n"
GENERATED = TOP / "orchestrator/generated"


# ---- commands ----


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def argument_rows(parser: argparse.ArgumentParser) -> list[str]:
    rows = []
    for action in arguments(parser):
        need = " (required)" if action.required and action.option_strings else ""
        rows.append(f"| `{cell(written(action))}` | {cell(help_text(action))}{need} |")
    return ["| argument | |", "|---|---|", *rows, ""] if rows else []


def prose(text: str) -> list[str]:
    """A command's description as Markdown: indented lines are shown as they are."""
    lines: list[str] = []
    for block in re.split(r"\n(?=  )|(?<=\n)(?! |\n)", text.strip()):
        if not block.strip():
            continue
        if block.startswith("  "):
            if lines and lines[-1] == "```":
                lines.pop()
            else:
                lines += ["", "```text"]
            lines += [line[2:] for line in block.rstrip().splitlines()] + ["```"]
        else:
            lines += (
                ["", *block.rstrip().splitlines()]
                if lines and lines[-1] == "```"
                else block.rstrip().splitlines()
            )
            if re.search(r"\n\n\Z", block):
                lines.append("")
    return [*lines, ""]


def cli_page() -> str:
    lines = [
        "# Every command and argument",
        "",
        MADE,
        "How they are used: [commands.md](../commands.md) and the guides. `orchestrator help COMMAND` prints the same.",
        "What exit codes mean: [exit-codes.md](../exit-codes.md).",
        "",
    ]
    for name in COMMANDS:
        command, parser = command_parser(name)
        lines += [f"## {name}", "", *prose(command.help), *argument_rows(parser)]
        if command.codes:
            lines += ["| exit code | |", "|---|---|"]
            lines += [
                f"| {int(code)} | {cell(text)} |" for code, text in sorted(command.codes.items())
            ]
            lines.append("")
        common = {written(one) for one in arguments(parser)}
        for action, sub in subcommands(parser).items():
            lines += [
                f"### {name} {action}",
                "",
                f"{(sub.description or action).capitalize()}.",
                "",
            ]
            rows = argument_rows(sub)
            lines += [
                row for row in rows if not any(row.startswith(f"| `{cell(one)}`") for one in common)
            ]
    return "\n".join(lines).rstrip() + "\n"


# ---- keys of the documents ----


def kind_text(about: dict[str, Any]) -> str:
    """The type of a key in words, from its JSON Schema."""
    if "$ref" in about:
        return "mapping"
    if "enum" in about:
        return ", ".join(f"`{one}`" for one in about["enum"])
    if "const" in about:
        return f"`{about['const']}`"
    if "anyOf" in about:
        parts = [kind_text(one) for one in about["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    words = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true`, `false`",
    }
    if about.get("type") == "array":
        inner = about.get("items", {})
        return f"list of {kind_text(inner)}" if inner else "list"
    if about.get("type") == "object":
        return "mapping"
    text = words.get(str(about.get("type")), "")
    low, high = about.get("minimum"), about.get("maximum")
    return f"{text}, {low} to {high}" if low is not None and high is not None else text


def inner_part(about: dict[str, Any]) -> str:
    """The name of the part that a key holds, or "": from $ref, in a list, in a mapping, or beside null."""
    if "$ref" in about:
        return str(about["$ref"]).rpartition("/")[2]
    for one in (*about.get("anyOf", ()), about.get("items"), about.get("additionalProperties")):
        if isinstance(one, dict) and (found := inner_part(one)):
            return found
    for one in about.get("patternProperties", {}).values():
        if found := inner_part(one):
            return found
    return ""


def default_text(about: dict[str, Any]) -> str:
    default = about.get("default")
    if default is None or default in ([], {}) or isinstance(default, dict):
        return ""
    return (
        f"`{json.dumps(default)}`"
        if not isinstance(default, str)
        else (f"`{default}`" if default else "")
    )


def _is_one_part(about: dict[str, Any]) -> bool:
    return any("$ref" in one for one in (about, *about.get("anyOf", ())))


def key_rows(
    part: dict[str, Any], parts: dict[str, Any], prefix: str, above: tuple[str, ...]
) -> Iterator[str]:
    for name, about in part.get("properties", {}).items():
        key = f"{prefix}{name}"
        need = "required" if name in part.get("required", ()) else default_text(about)
        inner = inner_part(about)
        text = about.get("description") or (parts[inner].get("description", "") if inner else "")
        text = re.sub(r"docs/([\w-]+\.md)", r"[\1](../\1)", cell(" ".join(text.split())))
        yield f"| `{key}` | {cell(kind_text(about))} | {need} | {text} |"
        if inner and inner not in above:
            mapping = kind_text(about)
            step = "[]." if mapping.startswith("list") else "." if _is_one_part(about) else ".NAME."
            yield from key_rows(parts[inner], parts, f"{key}{step}", (*above, inner))


def keys_page() -> str:
    lines = [
        "# Every key of the documents",
        "",
        MADE,
        "From the schema that checks them (`orchestrator systems schema KIND` prints it for editors). What goes together, and why,",
        "is in [descriptors.md](../descriptors.md). `NAME` stands for a name of your own (a workload, a round),",
        "`[]` for the items of a list.",
        "",
    ]
    for kind in ("site", "system", "workload"):
        assert kind in DOCUMENTS
        schema = json_schema(kind)
        lines += [f"## {kind}", "", "| key | value | default | |", "|---|---|---|---|"]
        lines += [*key_rows(schema, schema.get("$defs", {}), "", ()), ""]
    return "\n".join(lines).rstrip() + "\n"


# ---- columns of `export` ----


def runs_page() -> str:
    kinds = {
        str: "text",
        int: "whole number",
        float: "number",
        bool: "0 or 1; in Parquet true or false",
    }
    lines = [
        "# Columns of exported runs",
        "",
        MADE,
        "One row per run, in `orchestrator export` and in `orchestrator report --format csv`. A cell is empty where no log and",
        "no file of the set has. In CSV an apostrophe stands before a text that a spreadsheet would take for a formula.",
        "",
        "| column | value | |",
        "|---|---|---|",
        *(f"| `{one.name}` | {kinds[one.kind]} | {cell(one.text)} |" for one in COLUMNS),
        "",
        "In MLflow numbers are metrics, texts are parameters, and the metric `evaluation` has every evaluation, with its",
        "samples as the step. The experiment is the benchmark. The tag `orchestrator.run` is `SET/RUN`; a run that is there",
        "is not written again.",
    ]
    return "\n".join(lines) + "\n"


def made() -> dict[Path, str]:
    """Every file that this writes, with its text."""
    pages = {TOP / "docs/reference/cli.md": cli_page(), TOP / "docs/reference/keys.md": keys_page()}
    pages[TOP / "docs/reference/json.md"] = outputs_page(MADE)
    pages[TOP / "docs/reference/runs.md"] = runs_page()
    pages[TOP / "docs/reference/settings.md"] = settings_page(MADE)
    pages[GENERATED / "settings_rows.sh.j2"] = settings_template()
    pages[GENERATED / INDEX] = index_text()
    schemas = {**{kind: json_schema(kind) for kind in DOCUMENTS}, "outputs": outputs_schema()}
    for kind, schema in schemas.items():
        pages[GENERATED / "schemas" / f"{kind}.json"] = (
            json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        )
    return pages | {GENERATED / "shell" / name: text for name, text in shell_files().items()}


if __name__ == "__main__":
    today = made()
    old = [path for path, text in today.items() if not path.is_file() or path.read_text() != text]
    if sys.argv[1:] == ["--check"]:
        for path in old:
            print(f"{path.relative_to(TOP)} is out of date: make reference", file=sys.stderr)
        sys.exit(1 if old else 0)
    for path in old:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(today[path])
