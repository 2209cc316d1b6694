"""The keys of one host out of known_hosts files that name many: read once, and only that host's lines become keys.

(paramiko parses every key of a file for every connection, and compares each with all before it.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paramiko import HostKeys

HASHED = "|1|"


class KnownHosts:
    """The lines of `paths`, earlier files first. A file that cannot be read is an OSError."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._lines: list[str] = []
        self._plain: dict[str, list[int]] = {}
        self._hashed: list[tuple[int, str]] = []
        for path in paths:
            for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
                self._take(line.strip())

    def _take(self, line: str) -> None:
        # Lines with a mark (@revoked, @cert-authority) name no key that a host may show as it is.
        if not line or line[0] in "#@":
            return
        number = len(self._lines)
        self._lines.append(line)
        for name in line.split(None, 1)[0].split(","):
            if name.startswith(HASHED):
                self._hashed.append((number, name))
            else:
                self._plain.setdefault(name, []).append(number)

    def add_to(self, keys: HostKeys, name: str) -> None:
        """Add the keys of the host `name` (`host` or `[host]:port`) to `keys`; of each type the first one counts."""
        from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
        from paramiko.ssh_exception import SSHException

        types = set()
        for number in self._of(name):
            try:
                entry = HostKeyEntry.from_line(self._lines[number], number)
            except (SSHException, InvalidHostKey):
                continue  # not a key; another line may have one
            if entry is not None and entry.key.get_name() not in types:
                types.add(entry.key.get_name())
                keys.add(name, entry.key.get_name(), entry.key)

    def _of(self, name: str) -> Iterator[int]:
        hashed = [number for number, one in self._hashed if _matches(one, name)]
        yield from sorted({*self._plain.get(name, ()), *hashed})


def _matches(hashed: str, name: str) -> bool:
    from paramiko import HostKeys

    try:
        return bool(HostKeys.hash_host(name, hashed) == hashed)
    except (ValueError, IndexError, AssertionError):  # not what a hashed name looks like
        return False
