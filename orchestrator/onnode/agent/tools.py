"""What a host is asked: its programs, within a limit; amd-smi and rocm-smi, and the JSON that they print; folders and small files.

The JSON of the GPU tools differs between versions (a list, or a member `gpu_data`; numbers with units or without; keys that
changed their case), so it is made a list of (path, value), and values are looked up by the end of their path.
"""

from __future__ import annotations

import json
import os
import re
import select
import stat
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..records import read_bytes
from ..settings import rehearsed
from .node import Node

MAX_BYTES = 16 << 20
"""More than this no program has to say."""
MAX_VALUES = 500_000
MAX_PATH = 500

Values = list[tuple[str, str]]
"""Values of a JSON text in its order: (/gpu_data/0/mem_usage/used_vram/value, 297). Keys in small letters, blanks as _."""


def which(name: str, first: str = "", last: str = "") -> str:
    """Return the path of a program in PATH, with a folder before it and one behind it; "" when there is none."""
    for folder in (first, *os.environ.get("PATH", "/usr/bin:/bin").split(":"), last):
        path = os.path.join(folder, name)
        if folder and os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return ""


def ask(argv: Sequence[str], seconds: float, *, errors: bool = False) -> tuple[int, str]:
    """Run a program with nothing to read; return its exit status and output, with what it says on standard error if wanted.

    The status is negative when it did not end within `seconds` or said more than MAX_BYTES, and 127 when it cannot be started.
    """
    end, output = time.monotonic() + seconds, bytearray()
    streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT if errors else subprocess.DEVNULL}
    try:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, **streams)  # type: ignore[call-overload]
    except (OSError, ValueError) as error:
        return 127, str(error)
    with process.stdout as pipe:
        while len(output) <= MAX_BYTES and select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
            piece = os.read(pipe.fileno(), 1 << 16)
            output += piece
            if not piece:
                break
        else:
            process.kill()
    try:
        status = process.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        status = -9
    return status, output[:MAX_BYTES].decode("utf-8", "replace")


def entries(folder: str) -> list[str]:
    """Return the names in a folder, numbers in their order; [] when it cannot be read."""
    try:
        return sorted(os.listdir(folder), key=lambda name: (len(name), name))
    except OSError:
        return []


def pairs(path: str) -> Iterator[list[str]]:
    """Yield [name, value] of each line of a small file of the kernel; lines of another form are left out."""
    try:
        lines = read_bytes(path, 1 << 16).decode("utf-8", "replace").splitlines()
    except OSError:
        return
    yield from (words for line in lines if len(words := line.split()) == 2)


def is_own_folder(path: str) -> bool:
    """Return whether this is a folder of this user and no link: in /tmp anybody can make something of a name."""
    try:
        about = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid()


# ---- JSON ------------------------------------------------------------------------------------------------------------

_BEGIN = r'[\[{]\s*(?:[\]}\[{"]|\Z)'  # a line `[WARNING] ...` in front of it is none
_HERE, _LINE = re.compile(r"\s*(?=" + _BEGIN + ")"), re.compile("^(?=" + _BEGIN + ")", re.MULTILINE)
# Numbers stay as they are written. Objects become tuples of pairs: a key that comes twice has both its values.
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=tuple, strict=False)
_KEY = str.maketrans(" /", "__")


def read_json(text: str) -> Values:
    """Return the values of all JSON documents in what a tool printed; lines around them and what is cut off do no harm."""
    values: Values = []
    at = 0
    while found := _HERE.match(text, at) or _LINE.search(text, at):
        try:
            document, at = _DECODER.raw_decode(text, found.end())
            _flatten(document, "", values)
        except (ValueError, RecursionError):
            at = text.find("\n", found.end()) + 1
            if at == 0:
                break
    return values


def _flatten(value: Any, path: str, values: Values) -> None:
    if len(path) > MAX_PATH or len(values) >= MAX_VALUES:
        return
    if isinstance(value, tuple):
        for key, one in value:
            _flatten(one, f"{path}/{key.lower().translate(_KEY)}", values)
    elif isinstance(value, list):
        for place, one in enumerate(value):
            _flatten(one, f"{path}/{place}", values)
    else:
        values.append((path, value if isinstance(value, str) else json.dumps(value)))


# ---- GPU tools -------------------------------------------------------------------------------------------------------


class Smi:
    """amd-smi and rocm-smi of a node. `amd`, `rocm`: their paths, "" where there is none; `problem`: last words without JSON."""

    def __init__(self, node: Node) -> None:
        first = rehearsed("ORCH_SMI_PATH", "", node.name)
        self.amd = which("amd-smi", first, "/opt/rocm/bin")
        self.rocm = which("rocm-smi", first, "/opt/rocm/bin")
        self.problem = ""
        self._seconds = node.settings.preflight_check_s

    def ask_amd(self, *commands: str) -> Values:
        """Return the values of the first of the commands that prints JSON; [] when none does."""
        return self._ask(self.amd, commands)

    def ask_rocm(self, *commands: str) -> Values:
        return self._ask(self.rocm, commands)

    def _ask(self, tool: str, commands: Sequence[str]) -> Values:
        for command in commands if tool else ():
            # The limit of the check ends its process group; this one is for the case that nobody is left to do that.
            status, text = ask([tool, *command.split(), "--json"], self._seconds + 1, errors=True)
            if values := read_json(text):
                return values
            self.problem = text.rstrip("\n").rpartition("\n")[2]
        return []
