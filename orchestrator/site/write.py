"""Write a site file and its schema: complete or not at all, and only a valid one."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.errors import SetError, UsageError, is_full
from orchestrator.model.schema import json_schema
from orchestrator.model.sites import load_site
from orchestrator.onnode.kernel.records import write_bytes
from orchestrator.site.find import SiteDraft
from orchestrator.site.text import site_text


def write_site(path: Path, draft: SiteDraft) -> None:
    """Write `found` to `path`, and STEM.schema.json next to it.

    Raises UsageError, DescriptorError, or SetError on a full disk; nothing is changed then.
    """
    if not path.name or path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name the file with -o FILE")
    schema = path.with_name(f"{path.stem}.schema.json")
    text = site_text(draft.values, draft.remarks, name=path.name, schema=schema.name)
    trial = path.with_name(f".{path.name}.trial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_bytes(trial, text.encode(), sync=False)
            load_site(trial)
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
