"""Patterns and regular expressions of scripts, as far as they end soon."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from math import comb, prod

from orchestrator.inspection.trace import is_known

MOST_WAYS = 10_000_000
"""To match: about a second."""
_REPEATED = re.compile(r"[+*{]")
_REPEATED_GROUP = re.compile(r"\)[+*{]")
_CLASSES = {
    "digit": "0-9",
    "xdigit": "0-9A-Fa-f",
    "alnum": "A-Za-z0-9",
    "word": "A-Za-z0-9_",
    "alpha": "A-Za-z",
    "upper": "A-Z",
    "lower": "a-z",
    "blank": r" \t",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "graph": "!-~",
    "print": " -~",
    "cntrl": r"\x00-\x1f\x7f",
}
"""Of POSIX: `[:digit:]` is a part of a set."""
_OPERATORS = re.compile(r"\(\?|[+?*}][+?*{]|[(|^][+?*{]|^[+?*{]")
"""Other things, or nothing, in an extended regular expression of POSIX."""


@cache
def search(pattern: str, text: str) -> bool | None:
    """Return whether a text matches; None if unknown, or if the search may take too long."""
    expression = _expression(pattern)
    if expression is None or len(text) > 4096 or _ways(pattern, len(text)) > MOST_WAYS:
        return None
    try:
        return re.search(expression, text, re.DOTALL) is not None
    except (re.error, OverflowError, RecursionError):
        return None


def cost(pattern: str, text: str) -> int:
    """Return the number of ways that a search may try."""
    ways = _ways(pattern, len(text)) if len(pattern) <= 256 else 0
    return ways if ways <= MOST_WAYS else 0


def _ways(pattern: str, length: int) -> int:
    """Return at least the number of ways in which a pattern can divide a text."""
    repeated = len(_REPEATED.findall(pattern))
    optional = pattern.count("?")
    if _REPEATED_GROUP.search(pattern):
        longest = max(length, *map(int, re.findall("[{,]([0-9]+)", pattern)), 0)
        return int((1 + repeated + optional + pattern.count("|")) ** min(longest, 64))
    choices = prod(1 + part.count("|") for part in pattern.split("(")[1:])
    return comb(length + repeated + 1, repeated + 1) * choices << optional


def _expression(pattern: str) -> str | None:
    """Translate an extended regular expression of POSIX; None for other things."""
    if len(pattern) > 256 or _OPERATORS.search(re.sub(r"\\.|\[[^]]*\]", "x", pattern)):
        return None
    parts = []
    at = 0
    while at < len(pattern):
        part, end = pattern[at], at + 1
        if part == "\\":
            part, end = pattern[at : at + 2], at + 2
            if len(part) < 2 or (part[1].isalnum() and part[1] not in "wWsSbB"):
                return None
        elif part == "[":
            set_, end = _set(pattern, at)
            if not set_:
                return None
            part = set_
        elif part == "$":
            part = r"\Z"
        elif part == "{":
            interval = re.match(r"\{[0-9]+(,[0-9]*)?\}", pattern[at:])
            if interval is None:
                return None
            part, end = interval[0], at + interval.end()
        parts.append(part)
        at = end
    return "".join(parts)


def _set(pattern: str, begin: int, escape: str = "") -> tuple[str, int]:
    """Translate the set that starts at `begin`; return it and its end. "" if it is none, or
    unknown. `escape`: the sign before a plain one in it."""
    at = begin + 1
    negated = pattern[at : at + 1] in ("^", "!" if escape else "^")
    at += negated
    first = at
    parts: list[str] = []
    while at < len(pattern) and (pattern[at] != "]" or at == first):
        if pattern.startswith(("[:", "[=", "[."), at):
            name, end, _ = pattern[at + 2 :].partition(":]")
            if not end or name not in _CLASSES:
                return "", at
            parts.append(_CLASSES[name])
            at += len(name) + 4
            continue
        at += pattern[at] == escape
        is_range = pattern[at : at + 1] == "-" and at > first and pattern[at + 1 : at + 2] != "]"
        parts.append("-" if is_range else re.escape(pattern[at : at + 1]))
        at += 1
    if at >= len(pattern):
        return "", at
    return f"[{'^' if negated else ''}{''.join(parts)}]", at + 1


# ---- patterns of files, case and ${NAME%pattern} ----


@lru_cache(4096)
def _signs(pattern: str) -> tuple[str, ...] | None:
    """Return an expression for each sign of a pattern, `*` for any text; None if unknown."""
    if not is_known(pattern):
        return None
    signs: list[str] = []
    at = 0
    while at < len(pattern):
        sign, end = pattern[at], at + 1
        if sign in "+?*@!" and pattern[end : end + 1] == "(":
            return None
        if sign == "[":
            set_, end = _set(pattern, at, "\\")
            if not set_ and "[:" in pattern:
                return None
            sign, end = (set_, end) if set_ else (r"\[", at + 1)
        elif sign == "\\" and end < len(pattern):
            sign, end = re.escape(pattern[end]), end + 1
        elif sign not in "*?":
            sign = re.escape(sign)
        if sign != "*" or signs[-1:] != ["*"]:
            signs.append("." if sign == "?" else sign)
        at = end
    return tuple(signs)


def _compiled(signs: Sequence[str], *, longest: bool) -> re.Pattern[str]:
    """`longest`: of the matches at a place. No search goes back behind an earlier `*`."""
    texts = _between(signs)
    expression = texts[0]
    for number, part in enumerate(texts[1:], 1):
        if number == len(texts) - 1:
            expression += f".*{part}" if longest else f".*?{part}"
        else:
            expression += f"(?=(?P<g{number}>.*?{part}))(?P=g{number})"
    return re.compile(expression, re.DOTALL)


def _between(signs: Sequence[str]) -> list[str]:
    texts = [""]
    for sign in signs:
        if sign == "*":
            texts.append("")
        else:
            texts[-1] += sign
    return texts


def fits(text: str, pattern: str) -> bool | None:
    """Return whether a pattern fits a whole text; None if unknown."""
    signs = _signs(pattern)
    if signs is None:
        return None
    try:
        return _compiled([*signs, r"\Z"], longest=True).match(text) is not None
    except re.error:
        return None


def cut(text: str, operator: str, pattern: str) -> str | None:
    """Return a text after ${NAME%pattern}, %%, # or ##; None if unknown."""
    signs = _signs(pattern)
    if signs is None:
        return None
    backward = operator[0] == "%"
    try:
        expression = _compiled(signs[::-1] if backward else signs, longest=len(operator) == 2)
    except re.error:
        return None
    match = expression.match(text[::-1] if backward else text)
    if match is None:
        return text
    return text[: len(text) - match.end()] if backward else text[match.end() :]


def replaced(text: str, operator: str, pattern: str, new: str) -> str | None:
    """Return a text after ${NAME/pattern/new}, //, /# or /%; None if unknown."""
    signs = _signs(pattern)
    if signs is None or ("*" in signs and len(text) > 512):
        return None
    anchored = [*signs, r"\Z"] if operator == "/%" else signs
    try:
        expression = _compiled(anchored, longest=True)
    except re.error:
        return None
    if expression.match(""):
        return text if not pattern else None
    if operator == "/#":
        match = expression.match(text)
        return new + text[match.end() :] if match else text
    return expression.sub(lambda match: new, text, count=0 if operator == "//" else 1)
