"""What one node has said since it was asked: data, cut to size, whatever the words were."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..kernel.events import UNIT, clean, number

VERDICTS = frozenset({"pass", "warn", "fail", "skip"})
CHECKS = (
    *(
        "engine",
        "image",
        "gpu_count",
        "gpu_model",
        "gpu_memory",
        "gpu_processes",
        "gpu_errors",
        "gpu_links",
        "rdma",
    ),
    *("data", "log_dir", "free_space", "clock", "limits", "leftovers", "versions", "deep"),
)
"""In the order in which they are told; the first that fails is the reason why a node is not fit."""
OUTCOMES = ("container", "tunables", "verdict")
"""Rows about what became of a node after its checks; they stand last."""

MOST_CHECKS, MOST_FACTS, MOST_ITEMS, MOST_CHARACTERS = 64, 512, 64, 1024
_PLACE = {name: (0, at) for at, name in enumerate(CHECKS)} | {
    name: (2, at) for at, name in enumerate(OUTCOMES)
}
_NAME = re.compile(r"[a-z_]{1,40}", re.ASCII)
_MS = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True)
class Check:
    """One row: `verdict` is pass, warn, fail or skip, `ms` how long it took."""

    name: str
    verdict: str
    ms: int = 0
    text: str = ""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """Return text and remedy as one."""
        return f"{self.text}; {self.remedy}" if self.remedy else self.text


def parse_check(detail: str) -> Check | None:
    """Return the row in a detail, or None where its name or its verdict is none."""
    name, verdict, ms, text, remedy = (detail.split(UNIT, 4) + [""] * 4)[:5]
    if not _NAME.fullmatch(name) or verdict not in VERDICTS:
        return None
    return Check(name, verdict, int(ms) if _MS.fullmatch(ms) else 0, line(text), line(remedy))


def line(text: str, limit: int = MOST_CHARACTERS) -> str:
    """Return `text` as one line that can be written as UTF-8, at most `limit` characters."""
    return clean(text[:limit], limit).replace(UNIT, " ").encode("utf-8", "replace").decode()


def place(name: str) -> tuple[int, int, str]:
    """Return what sorts the names of checks: those that we know as they stand in CHECKS, OUTCOMES last."""
    first, second = _PLACE.get(name, (1, 0))
    return first, second, name


@dataclass
class NodeReport:
    """One node's words. `network` is "" as long as it has told none; `clock_off_ms` and `unseen` are the loop's findings.

    `unseen`: what the node wrote to shared storage was not seen on the batch host.
    """

    checks: dict[str, Check] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    network: str = ""
    troubles: list[str] = field(default_factory=list)
    image: str = ""
    lacks_image: bool = False
    """It has to pull the image yet."""
    host: str = ""
    """Its full host name where its runs are, as torchrun there finds it; "" where it has told none."""
    address: str = ""
    """Its IPv4 address, where that is asked for."""
    clock_off_ms: int = 0
    unseen: bool = False
    revert_problem: str = ""
    """Why it did not revert its host settings, "" otherwise."""
    loop_gone: str = ""
    """Why it let go by itself: the loop counted as gone; "" otherwise."""
    messages: set[str] = field(default_factory=set)

    def apply(self, word: str, detail: str) -> None:
        """Take a word of the node, or of the loop about it: `clock` (ms off), `unseen`, `deep` (a row, as `check`)."""
        if len(self.messages) < MOST_ITEMS:
            self.messages.add(line(word, 20))
        # The measuring containers say `deep`, too, with other fields.
        if word == "check" or (word == "deep" and detail.startswith("deep" + UNIT)):
            check = parse_check(detail)
            if check is not None and (check.name in self.checks or len(self.checks) < MOST_CHECKS):
                self.checks[check.name] = check
        elif word in ("facts", "facts+"):
            self.facts = {} if word == "facts" else self.facts
            for one in detail.split(UNIT, MOST_FACTS):
                _put(self.facts, one, MOST_FACTS)
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
            self.host, self.address = (line(one, 255) for one in [*detail.split(UNIT), ""][:2])
        elif word == "clock":
            off = number(detail)
            self.clock_off_ms = self.clock_off_ms if off is None else off
        elif word == "unseen":
            self.unseen = True
        elif word == "left":
            self.loop_gone = line(detail)
        elif word == "revert-failed":
            self.revert_problem = line(detail) or "no reason given"

    def reset(self) -> None:
        """Forget everything but the bandwidth, which is measured once."""
        deep = self.checks.get("deep")
        vars(self).update(vars(NodeReport()))
        if deep is not None:
            self.checks["deep"] = deep


def _put(values: dict[str, str], word: str, most: int) -> None:
    name, equals, value = word.partition("=")
    name = line(name, 80)
    if equals and name and (name in values or len(values) < most):
        values[name] = line(value)
