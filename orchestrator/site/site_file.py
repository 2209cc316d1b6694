"""A site file: detected values as keys, the others as comments with default and description.

Only a valid file is written, all or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from orchestrator.errors import InputError, SetError, UsageError, is_full
from orchestrator.model.part import DocumentPart
from orchestrator.model.schema import descriptions, json_schema
from orchestrator.model.site_documents import Site
from orchestrator.model.source import read
from orchestrator.onnode.kernel.records import write_bytes
from orchestrator.site.find import SiteDraft, check_values
from orchestrator.words import clean

MODELINE = "# yaml-language-server: $schema={schema}"
"""For editors with Red Hat's YAML language server (VS Code, Vim, Emacs)."""
WIDTH = 110
HEAD = """\
# A site file for orchestrator: where things are on one cluster. A key behind a # shows its default
# or an example. Check a change with `orchestrator validate {name}` and `orchestrator doctor`.
"""
SHORT_HEAD = """\
# A site file for orchestrator: keys that differ from their defaults (`orchestrator config --all`:
# all).
# Check a change with `orchestrator validate {name}` and `orchestrator doctor`.
"""

Values = Mapping[str, Any]
"""Key -> value; section -> mapping."""
Remarks = Mapping[str, Sequence[str]]
"""Key (`network.ib_hca`) -> sentences about its value."""


def write_site(path: Path, draft: SiteDraft, *, short: bool = False) -> None:
    """Write `draft` to `path`, and STEM.schema.json next to it. `short`: without other keys.

    Raises UsageError, or SetError on a full disk; nothing is changed then.
    """
    if not path.name or path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name the file with -o FILE")
    schema = path.with_name(f"{path.stem}.schema.json")
    text = site_text(draft.values, draft.remarks, name=path.name, schema=schema.name, short=short)
    trial = path.with_name(f".{path.name}.trial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_bytes(trial, text.encode(), sync=False)
            check_values(draft.values)
            _compare(path, read(trial).data, draft.values)
        finally:
            trial.unlink(missing_ok=True)
        write_bytes(schema, (json.dumps(json_schema("site"), indent=1) + "\n").encode())
        write_bytes(path, text.encode())
    except OSError as error:
        kind = SetError if is_full(error) else UsageError
        raise kind(
            f"{path} cannot be written: {error.strerror or error}",
            hint="name another place with -o FILE",
        ) from error


def _compare(path: Path, written: Mapping[str, Any], values: Values) -> None:
    """Raise InputError unless the file holds the values: nodes may answer any text."""
    wrong = sorted({key for key in {*written, *values} if written.get(key) != values.get(key)})
    if wrong:
        raise InputError(
            f"{path}: the answers of the cluster would change {', '.join(map(clean, wrong))}; "
            "nothing is written",
            hint="orchestrator init --json shows the answers",
        )


def site_text(
    values: Values, remarks: Remarks, *, name: str, schema: str, short: bool = False
) -> str:
    """Return a site file with `values`, and every other key as a comment, unless `short`. `schema`:
    relative path of its JSON Schema."""
    lines = [
        MODELINE.format(schema=schema),
        *(SHORT_HEAD if short else HEAD).format(name=name).splitlines(),
        *_lines(Site, values, remarks, "", short=short),
    ]
    return "\n".join(lines) + "\n"


def _lines(
    model: type[DocumentPart], values: Values, remarks: Remarks, section: str, *, short: bool
) -> Iterator[str]:
    texts = descriptions(model)
    indent = "  " * section.count(".")
    for key, field in model.model_fields.items():
        path = f"{section}{key}"
        given = values.get(key)
        if short and key not in values:
            continue
        yield from [""] * (not section)
        for text in (texts.get(key, ""), *remarks.get(path, ())):
            yield from (
                f"{indent}# {line}"
                for line in wrap(clean(text), WIDTH - len(indent), break_on_hyphens=False)
            )
        part = field.annotation
        if isinstance(part, type) and issubclass(part, DocumentPart):
            yield f"{'' if given else '#'}{indent}{key}:"
            children = list(_lines(part, given or {}, remarks, f"{path}.", short=short))
            yield from children if given else (_commented(line) for line in children)
        elif key in values:
            yield f"{indent}{key}: {yaml_value(given)}"
        else:
            default = (
                field.examples[0]
                if field.examples
                else field.get_default(call_default_factory=True)
            )
            yield _commented(f"{indent}{key}: {yaml_value(default)}")


def _commented(line: str) -> str:
    return line if line.lstrip().startswith("# ") else f"#{line.removeprefix('#')}"


def yaml_value(value: object) -> str:
    import yaml

    text = yaml.safe_dump(
        value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")
