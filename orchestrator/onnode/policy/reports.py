"""A node's report in the present step: data, cut to size."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from ..kernel.events import UNIT, clean, number
from .check_names import CHECKS, OUTCOMES

VERDICTS = frozenset({"pass", "warn", "fail", "skip"})
MOST_CHECKS, MOST_FACTS, MOST_ITEMS, MOST_CHARACTERS = 64, 512, 64, 1024
MOST_QUOTED = 200
"""Most characters of a log's line in a reason."""
_ORDER = {name: (0, index) for index, name in enumerate(CHECKS)} | {
    name: (2, index) for index, name in enumerate(OUTCOMES)
}
_NAME = re.compile(r"[a-z_]{1,40}", re.ASCII)
_MS = re.compile(r"[0-9]{1,9}", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9._-]{1,255}")
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ADDRESS = re.compile(rf"{_BYTE}(?:[.]{_BYTE}){{3}}")


class Check(NamedTuple):
    """`verdict`: pass, warn, fail or skip; `ms`: duration."""

    name: str
    verdict: str
    ms: int = 0
    text: str = ""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


def parse_check(detail: str) -> Check | None:
    """None for an invalid name or verdict."""
    name, verdict, ms, text, remedy = (detail.split(UNIT, 4) + [""] * 4)[:5]
    if not _NAME.fullmatch(name) or verdict not in VERDICTS:
        return None
    return Check(name, verdict, int(ms) if _MS.fullmatch(ms) else 0, line(text), line(remedy))


def line(text: str, limit: int = MOST_CHARACTERS) -> str:
    """Return one line of valid UTF-8."""
    if text.isascii() and text.isprintable():
        return text[:limit]
    return clean(text[:limit], limit).replace(UNIT, " ").encode("utf-8", "replace").decode()


def check_order(name: str) -> tuple[int, int, str]:
    """Sort key: CHECKS, unknown names, OUTCOMES."""
    part, index = _ORDER.get(name, (1, 0))
    return part, index, name


@dataclass
class NodeReport:
    """`clock_off_ms` and `unseen` come from the loop."""

    checks: dict[str, Check] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    network: str = ""
    """Its ports, once reported."""
    troubles: list[str] = field(default_factory=list)
    image: str = ""
    lacks_image: bool = False
    host: str = ""
    """Full host name in its runs, as torchrun finds it."""
    address: str = ""
    """IPv4, if the site wants it."""
    clock_off_ms: int = 0
    unseen: bool = False
    """Its marker is invisible to the batch host."""
    revert_problem: str = ""
    """Why host settings stay changed."""
    loop_gone: str = ""
    """Why the loop seemed dead to it."""
    messages: set[str] = field(default_factory=set)

    def apply(self, word: str, detail: str) -> None:
        """`word`: from the node, or from the loop about it (`clock`, `unseen`, `deep`)."""
        if len(self.messages) < MOST_ITEMS:
            self.messages.add(line(word, 20))
        # Measuring containers send `deep` with other fields.
        if word == "check" or (word == "deep" and detail.startswith("deep" + UNIT)):
            self._add_check(parse_check(detail))
        elif word in ("facts", "facts+"):
            self.facts = {} if word == "facts" else self.facts
            for fact in detail.split(UNIT, MOST_FACTS):
                _put(self.facts, fact, MOST_FACTS)
        elif word == "same":
            _put(self.same, detail, MOST_ITEMS)
        elif word == "network":
            self.network = line(detail, 4 * MOST_CHARACTERS)
        elif word == "trouble" and len(self.troubles) < MOST_ITEMS:
            self.troubles.append(line(detail))
        elif word in ("lacks", "pulled"):
            self.lacks_image = word == "lacks"
        elif word == "ready":
            self.image = line(detail)
        elif word == "host":
            host, address = [*detail.split(UNIT), ""][:2]
            # They become lines of /etc/hosts in all containers.
            self.host = host if _HOST.fullmatch(host) else ""
            self.address = address if _ADDRESS.fullmatch(address) else ""
        elif word == "clock":
            off_ms = number(detail)
            self.clock_off_ms = self.clock_off_ms if off_ms is None else off_ms
        elif word == "unseen":
            self.unseen = True
        elif word == "left":
            self.loop_gone = line(detail)
        elif word == "revert-failed":
            self.revert_problem = line(detail) or "no reason given"

    def _add_check(self, check: Check | None) -> None:
        if check is not None and (check.name in self.checks or len(self.checks) < MOST_CHECKS):
            self.checks[check.name] = check

    def reset(self) -> None:
        """Forget everything but the bandwidth, measured once."""
        deep = self.checks.get("deep")
        vars(self).update(vars(NodeReport()))
        if deep is not None:
            self.checks["deep"] = deep


def _put(values: dict[str, str], text: str, most: int) -> None:
    name, equals, value = text.partition("=")
    name = line(name, 80)
    if equals and name and (name in values or len(values) < most):
        values[name] = line(value)
