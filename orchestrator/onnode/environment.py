"""Reading `declare -px`: the environment of a set's runs as bash printed it. No shell is asked."""

from __future__ import annotations

import re

_WORDS = rb'"[^"\\]*(?:\\.[^"\\]*)*"|\$\'[^\'\\]*(?:\\.[^\'\\]*)*\''
# Arrays cannot be exported; bash prints them all the same, and what looks like a line in one of their values is none.
_DECLARED = re.compile(
    rb"(?ms)^declare -([A-Za-z]*x[A-Za-z]*) ([A-Za-z_][A-Za-z0-9_]*)=(?:(%b)|\((?:[^\"'\n]|%b)*\))$" % (_WORDS, _WORDS)
)
_IN_DOUBLE = re.compile(rb'\\([\\"$`])')
_IN_ANSI = re.compile(rb"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|([abeEfnrtv\\'\"?]))")
_LETTERS = dict(zip(b"abeEfnrtv", b"\a\b\x1b\x1b\f\n\r\t\v"))


def parse(text: str) -> dict[str, str]:
    """Return the variables of `declare -x` lines by name, byte for byte; what is no such line is passed over.

    Bytes that are no UTF-8 are surrogates, in `text` and in values (errors="surrogateescape"); see `shown`. A variable that
    is exported without a value, and an array, is not in the environment of any process, and not here.
    """
    found = {}
    for flags, name, word in _DECLARED.findall(text.encode("utf-8", "surrogateescape")):
        if word and not set(flags) & set(b"aAn"):
            raw = _IN_ANSI.sub(_ansi, word[2:-1]) if word[:1] == b"$" else _IN_DOUBLE.sub(rb"\1", word[1:-1])
            found[name.decode()] = raw.decode("utf-8", "surrogateescape")
    return found


def _ansi(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = match.groups()
    if letter:
        return bytes([_LETTERS.get(letter[0], letter[0])])
    return bytes([int(octal, 8) & 255 if octal else int(hexadecimal, 16)])


def shown(value: str) -> str:
    """Return a value with what is no UTF-8 replaced, so that it can be printed and written."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
