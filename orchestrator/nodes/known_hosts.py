"""Host keys of a node from known_hosts files, without revoked keys.

Lines mean the same as to ssh (sshd(8)), except @cert-authority: paramiko requests no certificates.
Its `HostKeys.load` knows neither markers nor patterns, drops the rest of a file after a broken key,
and compares each key with all earlier keys, for every connection.
"""

from __future__ import annotations

import base64
import binascii
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.onnode.kernel.regular import read_bytes

if TYPE_CHECKING:
    from paramiko import HostKeys, PKey

HASHED = "|1|"
REVOKED = "@revoked"
KRL_MAGIC = b"SSHKRL\n\0"
"""Start of a key revocation list (OpenSSH, PROTOCOL.krl)."""


@dataclass(frozen=True, slots=True)
class _Line:
    """`text` is without the marker."""

    names: list[str]
    revoked: bool
    text: str


class KnownHosts:
    """Lines of known_hosts files, earlier files first.

    `revoked`: the file of RevokedHostKeys. Raises OSError for an unreadable file.
    """

    def __init__(self, paths: Sequence[Path], revoked: Path | None = None) -> None:
        self._lines: list[_Line] = []
        self._by_name: dict[str, list[int]] = {}
        self._matched: list[int] = []
        self._revoked = RevokedKeys(revoked) if revoked else None
        for path in paths:
            for text in read_bytes(path).decode("utf-8", "surrogateescape").splitlines():
                line = _parsed(text.strip())
                if line is not None:
                    self._add(line)

    def _add(self, line: _Line) -> None:
        number = len(self._lines)
        self._lines.append(line)
        if any(name.startswith(HASHED) or set(name) & set("*?!") for name in line.names):
            self._matched.append(number)
            return
        for name in line.names:
            self._by_name.setdefault(name, []).append(number)

    def add_to(self, keys: HostKeys, name: str) -> bool:
        """Add the keys of `name` (`host` or `[host]:port`) to `keys`, the first of each type.

        Returns whether a revoked key was left out. Raises OSError or UsageError if unknown.
        """
        lines = self._lines_of(name)
        candidates = [key for line in lines if not line.revoked and (key := _key(line.text))]
        revoked = {_key_bytes(line.text) for line in lines if line.revoked}
        if self._revoked is not None:
            revoked |= self._revoked.among(candidates)
        accepted: dict[str, PKey] = {}
        for key in candidates:
            if key.asbytes() not in revoked:
                accepted.setdefault(key.get_name(), key)
        for kind, key in accepted.items():
            keys.add(name, kind, key)
        return any(key.asbytes() in revoked for key in candidates)

    def _lines_of(self, name: str) -> list[_Line]:
        matched = [number for number in self._matched if _matches(name, self._lines[number].names)]
        numbers = {*self._by_name.get(name, ()), *matched}
        return [self._lines[number] for number in sorted(numbers)]


class RevokedKeys:
    """The file of RevokedHostKeys: public keys in lines, or a key revocation list.

    Raises OSError if unreadable or malformed: ssh trusts no host then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = read_bytes(path)
        self._is_list = content.startswith(KRL_MAGIC)
        try:
            self._keys = set() if self._is_list else set(_public_keys(content))
        except ValueError as error:
            raise OSError(
                0, f"RevokedHostKeys: this is no list of keys: {error}", str(path)
            ) from error

    def among(self, keys: Sequence[PKey]) -> set[bytes]:
        """Return the revoked keys, as bytes. Raises OSError for a malformed list, UsageError
        without ssh-keygen, which reads it."""
        if not self._is_list:
            return self._keys & {key.asbytes() for key in keys}
        return self._listed(keys) if keys else set()

    def _listed(self, keys: Sequence[PKey]) -> set[bytes]:
        with tempfile.TemporaryDirectory(prefix="orch-revoked.") as folder:
            files = [Path(folder, f"{number}.pub") for number in range(len(keys))]
            for file, key in zip(files, keys, strict=True):
                file.write_text(f"{key.get_name()} {key.get_base64()}\n")
            verdicts = self._verdicts(files)
        return {
            key.asbytes()
            for key, verdict in zip(keys, verdicts, strict=True)
            if not verdict.endswith(": ok")
        }

    def _verdicts(self, files: Sequence[Path]) -> list[str]:
        argv = ["ssh-keygen", "-Q", "-f", str(self.path), *map(str, files)]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise UsageError(
                f"RevokedHostKeys: {self.path} is a key revocation list, and ssh-keygen, which "
                f"reads it, cannot run ({error.strerror}); install openssh-client"
            ) from error
        lines = done.stdout.splitlines()
        # 0: no key is revoked, 1: a key is.
        if done.returncode not in (0, 1) or len(lines) != len(files):
            reason = done.stderr.strip() or f"ssh-keygen exited with {done.returncode}"
            raise OSError(0, f"RevokedHostKeys: this is no list of keys: {reason}", str(self.path))
        return lines


def _parsed(text: str) -> _Line | None:
    revoked = False
    if text.startswith("@"):
        marker, *rest = text.split(None, 1)
        if marker != REVOKED or not rest:
            return None
        revoked = True
        text = rest[0]
    if not text or text.startswith("#"):
        return None
    return _Line(text.split(None, 1)[0].split(","), revoked, text)


def _key(text: str) -> PKey | None:
    """Read `names type base64 comment`; None if unusable."""
    from paramiko.hostkeys import HostKeyEntry, InvalidHostKey
    from paramiko.ssh_exception import SSHException

    try:
        entry = HostKeyEntry.from_line(text)
    except (SSHException, InvalidHostKey):
        return None
    return entry.key if entry else None


def _key_bytes(text: str) -> bytes:
    """Return the key of such a line, of any type, else b""."""
    try:
        return base64.b64decode(text.split()[2], validate=True)
    except (IndexError, binascii.Error):
        return b""


def _public_keys(content: bytes) -> Iterable[bytes]:
    """Read lines `type base64 comment`. Raises ValueError."""
    for line in content.decode("utf-8", "replace").splitlines():
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) < 2:
            raise ValueError(f"{line[:40]!r} is no public key")
        yield base64.b64decode(fields[1], validate=True)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern fits `name`, and no pattern with `!` does."""
    fitting = [pattern for pattern in patterns if _fits(name, pattern.removeprefix("!"))]
    return bool(fitting) and not any(pattern.startswith("!") for pattern in fitting)


def _fits(name: str, pattern: str) -> bool:
    if not pattern.startswith(HASHED):
        # Only `*` and `?` are special to ssh: `[` begins a host with a port.
        return fnmatchcase(name, pattern.replace("[", "[[]"))
    from paramiko import HostKeys

    try:
        return bool(HostKeys.hash_host(name, pattern) == pattern)
    except (ValueError, IndexError, AssertionError):  # a malformed hash
        return False
