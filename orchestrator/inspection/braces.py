"""Brace expansion: {a,b} and {1..3}."""

from __future__ import annotations

import re

from orchestrator.inspection.trace import UNKNOWN, whole_number

MOST_WORDS = 10_000
_TOKEN = re.compile(
    r"""\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\{[^{}]*\}|\$\((?:[^()]|\([^()]*\))*\)|`[^`]*`|.""",
    re.DOTALL,
)
_RANGE = re.compile(r"(-?[0-9]+|[A-Za-z])\.\.(-?[0-9]+|[A-Za-z])(?:\.\.(-?[0-9]+))?")


def spread(word: str) -> list[str]:
    """Return the words that a word with braces becomes, before all other expansions."""
    tokens = _TOKEN.findall(word)
    for at, token in enumerate(tokens):
        if token != "{":
            continue
        parts, end = _parts(tokens, at + 1)
        if end == 0:
            continue
        if len(parts) > 1:
            middle = [text for part in parts for text in spread(part)]
        elif (numbers := _range(parts[0])) is not None:
            middle = numbers
        else:
            continue
        head, tails = "".join(tokens[:at]), spread("".join(tokens[end:]))
        if len(middle) * len(tails) > MOST_WORDS:
            return [UNKNOWN]
        return [head + text + tail for text in middle for tail in tails]
    return [word]


def _parts(tokens: list[str], begin: int) -> tuple[list[str], int]:
    """Return the parts between commas up to a closing brace, and the place behind it; 0 without
    it."""
    parts, depth = [""], 0
    for at in range(begin, len(tokens)):
        token = tokens[at]
        if token == "}" and depth == 0:
            return parts, at + 1
        depth += {"{": 1, "}": -1}.get(token, 0)
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    return parts, 0


def _range(text: str) -> list[str] | None:
    match = _RANGE.fullmatch(text)
    if match is None:
        return None
    first, last, width = match[1], match[2], 0
    is_letters = first.isalpha()
    if is_letters != last.isalpha():
        return None
    if is_letters:
        begin, end = ord(first), ord(last)
        if first.isupper() != last.isupper():
            return [UNKNOWN]  # with signs between them
    else:
        numbers = whole_number(first), whole_number(last)
        if numbers[0] is None or numbers[1] is None:
            return [UNKNOWN]
        begin, end = numbers[0], numbers[1]
        if re.match(r"-?0[0-9]", first) or re.match(r"-?0[0-9]", last):
            width = max(len(first), len(last))
    step = abs(whole_number(match[3] or "1") or 1)
    if abs(end - begin) // step >= MOST_WORDS:
        return [UNKNOWN]
    values = range(begin, end + 1, step) if begin <= end else range(begin, end - 1, -step)
    return [chr(value) if is_letters else f"{value:0{width}d}" for value in values]
