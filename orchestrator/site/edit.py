"""Values written into a site file: its comments and all other values stay."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import DescriptorError, Fix, SetError, UsageError, is_full
from orchestrator.model import Catalogue
from orchestrator.model.source import folders_in, override, parsed, read
from orchestrator.model.validation import check_site
from orchestrator.onnode.kernel.records import write_bytes
from orchestrator.onnode.kernel.world import THIS
from orchestrator.onnode.set.lease import HeldError, Lease
from orchestrator.site.site_file import yaml_value
from orchestrator.words import quoted

if TYPE_CHECKING:
    import yaml

OPTION = "--set"
PATIENCE_S = 10.0
"""For others that change the file."""


def set_values(path: Path, given: Sequence[tuple[str, str]]) -> None:
    """Set keys (`a.b`) to YAML values. Raises DescriptorError for a wrong key or value, UsageError
    or SetError if the file cannot be written; nothing is changed then."""
    file = Path(os.path.realpath(path))
    lease = Lease(file.with_name(f".{file.name}.lock"), THIS.holder())
    try:
        lease.take(patience_s=PATIENCE_S, beat=False)
        try:
            _set_values(path, given)
        finally:
            lease.release()
    except HeldError as held:
        raise SetError(
            f"{path} is being changed by {held.holder}; {held.verdict.why}",
            hint=f"if that process has certainly ended: rm {quoted(held.path)}",
        ) from held
    except OSError as error:
        raise (SetError if is_full(error) else UsageError)(
            f"{path} cannot be written: {error.strerror or error}",
            hint="--override sets a key for one command, without the file",
            fix=Fix(f"ls -ld {quoted(path)} {quoted(path.absolute().parent)}"),
        ) from error


def _set_values(path: Path, given: Sequence[tuple[str, str]]) -> None:
    wanted = read(path)
    override(wanted, given, OPTION)
    check_site(Catalogue(folders_in(wanted)), wanted)
    text = path.read_bytes().decode("utf-8-sig")
    for name, _ in given:
        value = wanted.data
        for part in name.split("."):
            value = value[part]
        text = with_value(text, name.split("."), value)
    try:
        is_as_wanted = parsed(path, text).data == wanted.data
    except DescriptorError:
        is_as_wanted = False
    if not is_as_wanted:
        raise UsageError(
            f"{path}: {' and '.join(name for name, _ in given)} cannot be set without changing "
            "other lines",
            hint="write it into the file by hand",
            fix=Fix(f"${{EDITOR:-vi}} {quoted(path)}"),
        )
    mode = path.stat().st_mode
    write_bytes(path, text.encode())
    path.chmod(mode)


def with_value(text: str, key: Sequence[str], value: object) -> str:
    """Return the YAML mapping `text` with `value` at `key`."""
    import yaml

    mapping: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, name in enumerate(key):
        inside = _nested(key[depth + 1 :], value)
        pairs = [(known, node) for known, node in mapping.value if known.value == name]
        if not pairs:
            return _with_pair(text, mapping, f"{yaml_value(name)}: {yaml_value(inside)}", depth)
        [(known, node)] = pairs
        if depth == len(key) - 1 or not isinstance(node, yaml.MappingNode):
            start = known.end_mark.index
            end = start + len(text[start : _end(node)].rstrip())
            return f"{text[:start]}: {yaml_value(inside)}{text[end:]}"
        mapping = node
    return text


def _nested(key: Sequence[str], value: object) -> object:
    for name in reversed(key):
        value = {name: value}
    return value


def _with_pair(text: str, mapping: yaml.MappingNode, pair: str, depth: int) -> str:
    if mapping.flow_style:
        end = mapping.end_mark.index - 1
        return f"{text[:end].rstrip()}{', ' if mapping.value else ''}{pair}{text[end:]}"
    if not depth:
        return f"{text.rstrip()}\n{pair}\n"
    first = mapping.value[0][0].start_mark
    return f"{text[: first.index]}{pair}\n{' ' * first.column}{text[first.index :]}"


def _end(node: Any) -> int:
    """Return the end of a value; a block's is its last value's, without later comments."""
    if isinstance(node.value, list) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end(last[1] if isinstance(last, tuple) else last)
    return int(node.end_mark.index)
