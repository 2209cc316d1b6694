"""Write orchestrator/generated/ and pages of docs/reference from parsers, models and tools/*.yaml.

python tools/reference.py           writes them
python tools/reference.py --check   says which are out of date; exit status 1 when one is
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from arguments import TOP, arguments, help_text, subcommands, written
from json_outputs import outputs_page, outputs_schema
from settings_rows import settings_page, settings_template
from shell_files import shell_files

from orchestrator.causes.cause import Cause
from orchestrator.causes.tables import CAUSES
from orchestrator.cli import COMMANDS, EVERYWHERE, command_parser
from orchestrator.evidence.own_causes import LOOP_CAUSES, UNFIT
from orchestrator.model.listing import INDEX, index_text
from orchestrator.model.schema import DOCUMENTS, json_schema
from orchestrator.report.columns import COLUMNS
from orchestrator.scheduler.slurm_reasons import REASONS

COMMON = 2
"""An argument that so many commands share is described once."""
MADE = "<!-- Made by tools/reference.py (`make reference`); a test compares. -->\n"
GENERATED = TOP / "orchestrator/generated"


# ---- commands ----


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def row(action: argparse.Action) -> str:
    need = " (required)" if action.required and action.option_strings else ""
    return f"| `{cell(written(action))}` | {cell(help_text(action))}{need} |"


def common_rows() -> list[str]:
    """Return the rows of arguments that several commands have with the same text."""
    rows = Counter(
        row(action) for name in COMMANDS for action in arguments(command_parser(name)[1])
    )
    common = [line for line, commands in rows.items() if commands >= COMMON]
    common += [f"| `{option}` | {text} |" for option, text in EVERYWHERE.items()]
    return sorted(common, key=lambda line: (line.startswith("| `-"), line))


def argument_rows(parser: argparse.ArgumentParser, common: list[str]) -> list[str]:
    """Return a table of the arguments of a command; those in `common` only by name."""
    rows = [row(action) for action in arguments(parser)]
    names = [line.split("|", 2)[1].strip() for line in common if line in rows]
    rows = [line for line in rows if line not in common]
    lines = ["| argument | |", "|---|---|", *rows, ""] if rows else []
    return [*lines, f"[Common](#common-arguments): {', '.join(names)}", ""] if names else lines


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
    common = common_rows()
    lines = [
        "# Every command and argument",
        "",
        MADE,
        "`orchestrator help COMMAND` prints the same. States, queues and rules of sets: [commands.md](../commands.md).",
        "Without a table of its own a command uses the common [exit codes](../exit-codes.md).",
        "",
        "## Common arguments",
        "",
        *["| argument | |", "|---|---|", *common, ""],
    ]
    for name in COMMANDS:
        command, parser = command_parser(name)
        lines += [f"## {name}", "", *prose(command.help), *argument_rows(parser, common)]
        if command.codes:
            lines += ["| exit code | |", "|---|---|"]
            lines += [
                f"| {int(code)} | {cell(text)} |" for code, text in sorted(command.codes.items())
            ]
            lines.append("")
        above = {row(argument) for argument in arguments(parser)}
        for action, sub in subcommands(parser).items():
            rows = argument_rows(sub, common)
            lines += [
                f"### {name} {action}",
                "",
                f"{(sub.description or action).capitalize()}.",
                "",
            ]
            lines += [line for line in rows if line not in above]
    return "\n".join(lines).rstrip() + "\n"


# ---- keys of the documents ----


def kind_text(about: dict[str, Any]) -> str:
    """The type of a key in words, from its JSON Schema."""
    if "$ref" in about:
        return "mapping"
    if "enum" in about:
        return ", ".join(f"`{choice}`" for choice in about["enum"])
    if "const" in about:
        return f"`{about['const']}`"
    if "anyOf" in about:
        parts = [kind_text(choice) for choice in about["anyOf"] if choice.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    names = {
        "string": "text",
        "integer": "integer",
        "number": "number",
        "boolean": "boolean",
    }
    if about.get("type") == "array":
        inner = about.get("items", {})
        return f"list of {kind_text(inner)}" if inner else "list"
    if about.get("type") == "object":
        return "mapping"
    text = names.get(str(about.get("type")), "")
    low, high = about.get("minimum"), about.get("maximum")
    return f"{text}, {low} to {high}" if low is not None and high is not None else text


def inner_part(about: dict[str, Any]) -> str:
    """The name of the part that a key holds, or "": from $ref, in a list, in a mapping, or beside null."""
    if "$ref" in about:
        return str(about["$ref"]).rpartition("/")[2]
    for inner in (*about.get("anyOf", ()), about.get("items"), about.get("additionalProperties")):
        if isinstance(inner, dict) and (part := inner_part(inner)):
            return part
    for inner in about.get("patternProperties", {}).values():
        if part := inner_part(inner):
            return part
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
    return any("$ref" in inner for inner in (about, *about.get("anyOf", ())))


def key_rows(
    part: dict[str, Any], parts: dict[str, Any], prefix: str, seen: dict[str, str]
) -> Iterator[str]:
    """Yield a row for each key. `seen`: the parts described so far, by the key that has them."""
    for name, about in part.get("properties", {}).items():
        key = f"{prefix}{name}"
        need = "required" if name in part.get("required", ()) else default_text(about)
        inner = inner_part(about)
        text = about.get("description") or (parts[inner].get("description", "") if inner else "")
        text = re.sub(r"docs/([\w-]+\.md)", r"[\1](../\1)", cell(" ".join(text.split())))
        text = re.sub(r"docs/([\w-]+/[\w-]+\.md)", r"[\1](../\1)", text)
        known = f" Keys as in `{seen[inner]}`." if inner in seen else ""
        value = cell(kind_text(about))
        value += f" ({need})" if need and need != value else ""
        yield f"| `{key}` | {value} | {text}{known} |"
        if inner and inner not in seen:
            seen[inner] = key
            mapping = kind_text(about)
            step = "[]." if mapping.startswith("list") else "." if _is_one_part(about) else ".NAME."
            yield from key_rows(parts[inner], parts, f"{key}{step}", seen)


def keys_page() -> str:
    lines = [
        "# Every key of the documents",
        "",
        MADE,
        "`orchestrator systems schema KIND` prints this as JSON Schema, for editors. Rules and examples:",
        "[descriptors.md](../descriptors.md). `NAME` stands for a name of your own (a workload, a round), `[]` for list items.",
        "",
    ]
    seen: dict[str, str] = {}
    for kind in ("site", "system", "workload"):
        assert kind in DOCUMENTS
        schema = json_schema(kind)
        lines += [f"## {kind}", "", "| key | value (default) | |", "|---|---|---|"]
        lines += [*key_rows(schema, schema.get("$defs", {}), "", seen), ""]
    return "\n".join(lines).rstrip() + "\n"


# ---- columns of `export` ----


def runs_page() -> str:
    kinds = {
        str: "text",
        int: "integer",
        float: "number",
        bool: "0 or 1; in Parquet true or false",
    }
    lines = [
        "# Columns of exported runs",
        "",
        MADE,
        "One row per run, from `orchestrator export` and `orchestrator report --format csv`. A cell without a value is empty.",
        "In CSV an apostrophe precedes a text that a spreadsheet would take for a formula.",
        "",
        "| column | value | |",
        "|---|---|---|",
        *(
            f"| `{column.name}` | {kinds[column.kind]} | {cell(column.text)} |"
            for column in COLUMNS
        ),
        "",
        "MLflow: the experiment is the benchmark, numbers are metrics, texts are parameters. The metric `evaluation` has every",
        "evaluation, with its samples as the step. The tag `orchestrator.run` is `SET/RUN`; a known run is not written again.",
    ]
    return "\n".join(lines) + "\n"


# ---- causes of `explain` ----


def causes_page() -> str:
    known = {cause.name for cause in CAUSES}
    tables: dict[str, tuple[Cause, ...]] = {
        "Output of programs": CAUSES,
        "Slurm": tuple(cause for cause in REASONS if cause.name not in known),
        "The loop and the checks": (*LOOP_CAUSES, UNFIT),
    }
    lines = [
        "# Causes",
        "",
        MADE,
        "The causes that `orchestrator explain` names, with their remedies. How it finds them: [explain.md](../explain.md).",
        "",
    ]
    for title, causes in tables.items():
        lines += [f"## {title}", "", "| cause | meaning | remedy |", "|---|---|---|"]
        lines += [
            f"| `{cause.name}` | {cell(cause.sentence)} | {cell(cause.remedy)} |"
            for cause in causes
        ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def made() -> dict[Path, str]:
    """Every file that this writes, with its text."""
    pages = {TOP / "docs/reference/cli.md": cli_page(), TOP / "docs/reference/keys.md": keys_page()}
    pages[TOP / "docs/reference/causes.md"] = causes_page()
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
