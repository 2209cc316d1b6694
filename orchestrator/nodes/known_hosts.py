"""The keys of one host out of known_hosts files that name many: read once, and only that host's lines become keys.

Lines mean what they mean to ssh (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT): names are plain, patterns with `*`, `?` and `!`, or
hashed; a key of an @revoked line or of RevokedHostKeys is never accepted. A key behind @cert-authority is no host's own
key: hosts that show a certificate (which paramiko does not ask for) need a line with their key as well.
(paramiko parses every key of a file for every connection, and compares each with all before it.)
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.nodes.revoked import RevokedKeys
from orchestrator.onnode.kernel.regular import read_bytes

if TYPE_CHECKING:
    from paramiko import HostKeys

HASHED = "|1|"
REVOKED = "@revoked"


class KnownHosts:
    """The lines of `paths`, earlier files first; `revoked` is the file of RevokedHostKeys.

    A file that cannot be read is an OSError.
    """

    def __init__(self, paths: Sequence[Path], revoked: Path | None = None) -> None:
        self._lines: list[str] = []
        self._plain: dict[str, list[int]] = {}
        self._hashed: list[tuple[int, str]] = []
        self._patterns: list[tuple[int, list[str]]] = []
        self._revoked = RevokedKeys(revoked)
        for path in paths:
            for line in read_bytes(path).decode("utf-8", "surrogateescape").splitlines():
                self._take(line.strip())

    def _take(self, line: str) -> None:
        if not line or line[0] == "#" or (line[0] == "@" and not line.startswith(REVOKED)):
            return
        number = len(self._lines)
        self._lines.append(line)
        names = (line.split(None, 2)[1:2] if line[0] == "@" else line.split(None, 1)[:1]) or [""]
        words = names[0].split(",")
        if any(set("*?!") & set(word) for word in words):
            self._patterns.append((number, words))
            return
        for name in words:
            if name.startswith(HASHED):
                self._hashed.append((number, name))
            else:
                self._plain.setdefault(name, []).append(number)

    def add_to(self, keys: HostKeys, name: str) -> bool:
        """Add the keys of the host `name` (`host` or `[host]:port`) to `keys`; of each type the first one counts.

        Returns whether a key was left out because it is revoked.
        """
        from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
        from paramiko.ssh_exception import SSHException

        lines = [self._lines[number] for number in self._of(name)]
        revoked = {_blob(line.split(None, 1)[1]) for line in lines if line.startswith(REVOKED)}
        types, left_out = set(), False
        for number, line in enumerate(lines):
            if line.startswith(REVOKED):
                continue
            try:
                entry = HostKeyEntry.from_line(line, number)
            except (SSHException, InvalidHostKey):
                continue  # not a key; another line may have one
            if entry is None or entry.key.get_name() in types:
                continue
            if entry.key.asbytes() in revoked or entry.key.asbytes() in self._revoked:
                left_out = True
                continue
            types.add(entry.key.get_name())
            keys.add(name, entry.key.get_name(), entry.key)
        return left_out

    def _of(self, name: str) -> Iterator[int]:
        hashed = [number for number, one in self._hashed if _matches(one, name)]
        patterns = [number for number, words in self._patterns if _is_meant(name, words)]
        yield from sorted({*self._plain.get(name, ()), *hashed, *patterns})


def _blob(line: str) -> bytes:
    """Return the key of a line `names type base64 comment` as bytes; b"" where there is none."""
    try:
        return base64.b64decode(line.split()[2], validate=True)
    except (IndexError, binascii.Error, ValueError):
        return b""


def _is_meant(name: str, words: list[str]) -> bool:
    """Whether a list of patterns is about `name`: one fits, and none that begins with `!` does."""
    fitting = [word for word in words if _pattern(word.removeprefix("!")).fullmatch(name)]
    return bool(fitting) and not any(word.startswith("!") for word in fitting)


def _pattern(word: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile(
        "".join(parts.get(one) or re.escape(one) for one in re.sub(r"\*+", "*", word[:255])),
        re.DOTALL,
    )


def _matches(hashed: str, name: str) -> bool:
    from paramiko import HostKeys

    try:
        return bool(HostKeys.hash_host(name, hashed) == hashed)
    except (ValueError, IndexError, AssertionError):  # not what a hashed name looks like
        return False
