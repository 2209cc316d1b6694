"""amd-smi and rocm-smi, and their JSON."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import Any

from ..kernel.settings_file import rehearsed
from ..kernel.system import ask
from .node import Node

MAX_VALUES, MAX_PATH = 500_000, 500

Values = list[tuple[str, str]]
"""(/gpu_data/0/mem_usage/used_vram/value, 297) in the order of the text; keys in lower case, blanks
as _."""


_BEGIN = r'[\[{]\s*(?:[\]}\[{"]|\Z)'  # not a line `[WARNING] ...`
_HERE, _LINE = re.compile(rf"\s*(?={_BEGIN})"), re.compile(f"^(?={_BEGIN})", re.MULTILINE)
# Numbers stay text; objects are tuples of pairs, since a repeated key keeps both values.
_DECODER = json.JSONDecoder(
    parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=tuple, strict=False
)
_KEY = str.maketrans(" /", "__")


def read_json(text: str) -> Values:
    """Read all JSON documents in a tool's output, among any other lines.

    Forms differ between versions (lists, a member `gpu_data`, units, case): look values up by the
    end of their path.
    """
    values: Values = []
    at = 0
    while match := _HERE.match(text, at) or _LINE.search(text, at):
        try:
            document, at = _DECODER.raw_decode(text, match.end())
            _flatten(document, "", values)
        except (ValueError, RecursionError):
            at = text.find("\n", match.end()) + 1 or len(text)
    return values


def _flatten(value: Any, path: str, values: Values) -> None:
    if len(path) > MAX_PATH or len(values) >= MAX_VALUES:
        return
    if isinstance(value, (tuple, list)):
        for key, member in value if isinstance(value, tuple) else enumerate(value):
            _flatten(member, f"{path}/{str(key).lower().translate(_KEY)}", values)
    else:
        values.append((path, value if isinstance(value, str) else json.dumps(value)))


def by_gpu(values: Values) -> Iterator[tuple[int, str, str, str]]:
    """Yield (GPU, path, value, unit). amd-smi has the GPU's number first in an entry, rocm-smi in
    the key. Paths end before /value; unit "" if missing."""
    gpu = None
    for (path, value), (beside, unit) in zip(values, values[1:] + [("", "")]):
        if card := re.match(r"/card([0-9]{1,6})/", path):
            gpu = int(card[1])
        elif re.fullmatch(r"(/[a-z_]+)?(/[0-9]+)+/gpu", path) and re.fullmatch("[0-9]{1,6}", value):
            gpu = int(value)
        bare = path[:-6] if path.endswith("/value") else path
        if gpu is not None:
            yield gpu, bare, value, unit if bare != path and beside == f"{bare}/unit" else ""


def tools_limit(node: Node) -> float:
    """Seconds for all tools of a check. Some drivers keep amd-smi for a minute: half of the limit
    is left to the driver's files."""
    return node.settings.preflight_check_s / 2


class Smi:
    """`paths`: installed tools; `source`: the last to answer; `problem`: the last output without
    JSON; `late`: a sentence about a tool without an answer at `until` (time.monotonic())."""

    def __init__(self, node: Node, until: float = 0.0) -> None:
        folders = os.environ.get("PATH", "/usr/bin:/bin").split(":")
        folders = [rehearsed("ORCH_SMI_PATH", "", node.name), *folders, "/opt/rocm/bin"]
        self.paths: dict[str, str] = {}
        for name, path in (
            (name, f"{folder}/{name}")
            for folder in folders
            if folder
            for name in ("amd-smi", "rocm-smi")
        ):
            if os.access(path, os.X_OK) and os.path.isfile(path):
                self.paths.setdefault(name, path)
        self.source = self.problem = self.late = ""
        self._seconds = tools_limit(node)
        self._until = until or time.monotonic() + self._seconds

    def ask(self, *commands: str) -> Values:
        """Return the values of the first command with JSON; [] without any, or out of time."""
        for name, *arguments in (
            command.split() for command in commands if command.split()[0] in self.paths
        ):
            left = self._until - time.monotonic()
            argv = [self.paths[name], *arguments, "--json"]
            status, text = ask(argv, left, errors=True) if left > 0 else (-1, "")
            if status < 0 and time.monotonic() >= self._until:
                self.late = f"{name} did not answer within {self._seconds:g} s"
                return []
            if values := read_json(text):
                self.source = name
                return values
            self.problem = text.rstrip("\n").rpartition("\n")[2]
        return []
