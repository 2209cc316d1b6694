"""The environment of a set's runs as it was evaluated."""

from __future__ import annotations

import re

from orchestrator.evidence.sets import SetEvidence

LARGEST = 1 << 20
_DECLARED = re.compile(
    r'^declare -x ([A-Za-z_]\w*)(?:="((?:[^"\\]|\\.)*)"|=\$\'((?:[^\'\\]|\\.)*)\')?$', re.MULTILINE | re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "E": "\x1b"}


def declared(text: str) -> dict[str, str]:
    """Return the variables of `declare -x` lines, as bash prints them: "..." with backslashes, or $'...'."""
    found = {}
    for name, double, ansi in _DECLARED.findall(text):
        found[name] = _ESCAPE.sub(_ansi, ansi) if ansi else re.sub(r'\\([\\"$`])', r"\1", double)
    return found


def _ansi(match: re.Match[str]) -> str:
    octal, hexadecimal, letter = match.groups()
    if octal or hexadecimal:
        return chr(int(octal, 8) & 255 if octal else int(hexadecimal, 16))
    return _LETTERS.get(letter, letter)


def evaluated(evidence: SetEvidence) -> dict[str, str]:
    """Return the values in a set's environment.sh; {} when there is none."""
    return declared(evidence.findings.text(evidence.layout.environment, LARGEST))
