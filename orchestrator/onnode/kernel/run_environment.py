"""The environment of the runs: the config evaluated by bash in the form of `declare -px`, and its
reader without a shell."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

_WORDS = rb'"[^"\\]*(?:\\.[^"\\]*)*"|\$\'[^\'\\]*(?:\\.[^\'\\]*)*\''
# Arrays cannot be exported, but bash prints them; a similar line in one of their values is no
# variable.
_DECLARED = re.compile(
    rb"(?ms)^declare -([A-Za-z]*x[A-Za-z]*) ([A-Za-z_][A-Za-z0-9_]*)=(?:(%b)|\((?:[^\"'\n]|%b)*\))$"
    % (_WORDS, _WORDS)
)
_IN_DOUBLE = re.compile(rb'\\([\\"$`])')
_IN_ANSI = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|([abeEfnrtv\\'\"?]))")
_LETTERS = dict(zip(b"abeEfnrtv", b"\a\b\x1b\x1b\f\n\r\t\v"))


def declared(text: str) -> dict[str, str]:
    """Return the variables of `declare -x` lines by name, byte for byte; other lines are skipped.

    Bytes that are no UTF-8 are surrogates, in `text` and in values (errors="surrogateescape"); see
    `shown`. Variables exported without a value, and arrays, are in no process's environment, and
    not here.
    """
    found = {}
    for flags, name, word in _DECLARED.findall(text.encode("utf-8", "surrogateescape")):
        if word and not set(flags) & set(b"aAn"):
            raw = (
                _IN_ANSI.sub(_ansi, word[2:-1])
                if word[:1] == b"$"
                else _IN_DOUBLE.sub(rb"\1", word[1:-1])
            )
            found[name.decode()] = raw.decode("utf-8", "surrogateescape")
    return found


def unique_names(environment: bytes, timeless: bytes) -> frozenset[str]:
    """Return the variables that are new in each job: they contain a time stamp (`{unique: ...}`
    in a document)."""
    values, constant = _declared(environment), _declared(timeless)
    return frozenset(name for name, value in values.items() if value != constant.get(name))


def fingerprint(environment: bytes, unique: Collection[str]) -> str:
    """Return the SHA-256 of the variables that are not `unique`: equal in all jobs of an
    unedited set."""
    values = sorted(_declared(environment).items())
    text = "".join(f"{name}={value}\0" for name, value in values if name not in unique)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _declared(environment: bytes) -> dict[str, str]:
    return declared(environment.decode("utf-8", "surrogateescape"))


def _ansi(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = match.groups()
    if letter:
        return bytes([_LETTERS.get(letter[0], letter[0])])
    return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])


def shown(value: str) -> str:
    """Return a value with invalid UTF-8 replaced, for printing and writing."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
