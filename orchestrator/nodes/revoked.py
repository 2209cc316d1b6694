"""The file that ssh's RevokedHostKeys names: public keys, one a line, or a key revocation list as ssh-keygen -k makes it.

The binary form is OpenSSH's PROTOCOL.krl. Of its sections those about plain keys count here; certificates are not used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from orchestrator.onnode.kernel.regular import read_bytes

MAGIC = b"SSHKRL\n\0"
CERTIFICATES, KEYS, SHA1, SIGNATURE, SHA256 = 1, 2, 3, 4, 5


class RevokedKeys:
    """`key in revoked`, for a public key's bytes. Raises OSError when the file cannot be read or makes no sense: then
    ssh trusts no host either."""

    def __init__(self, path: Path | None) -> None:
        self._keys: set[bytes] = set()
        self._hashes: dict[int, set[bytes]] = {SHA1: set(), SHA256: set()}
        if path is None:
            return
        content = read_bytes(path)
        try:
            if content.startswith(MAGIC):
                self._take_list(content)
            else:
                self._take_lines(content)
        except (struct.error, binascii.Error, ValueError) as error:
            raise OSError(
                0, f"RevokedHostKeys: this is no list of keys: {error}", str(path)
            ) from error

    def __contains__(self, key: bytes) -> bool:
        return (
            key in self._keys
            or hashlib.sha1(key).digest() in self._hashes[SHA1]
            or hashlib.sha256(key).digest() in self._hashes[SHA256]
        )

    def _take_lines(self, content: bytes) -> None:
        for line in content.decode("utf-8", "replace").splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) < 2:
                raise ValueError(f"{line[:40]!r} is no public key")
            self._keys.add(base64.b64decode(words[1], validate=True))

    def _take_list(self, content: bytes) -> None:
        rest = content[len(MAGIC) + struct.calcsize(">IQQQ") :]
        for _ in range(2):  # reserved, comment
            _, rest = _string(rest)
        while rest:
            kind = rest[0]
            section, rest = _string(rest[1:])
            if kind == KEYS:
                self._keys |= set(_strings(section))
            elif kind in self._hashes:
                self._hashes[kind] |= set(_strings(section))
            elif kind not in (CERTIFICATES, SIGNATURE):
                raise ValueError(f"section of kind {kind}")


def _string(data: bytes) -> tuple[bytes, bytes]:
    """Return the string at the beginning of `data`, whose length stands before it, and the rest."""
    (length,) = struct.unpack_from(">I", data)
    if length > len(data) - 4:
        raise ValueError("it ends too early")
    return data[4 : 4 + length], data[4 + length :]


def _strings(data: bytes) -> Iterator[bytes]:
    while data:
        one, data = _string(data)
        yield one
