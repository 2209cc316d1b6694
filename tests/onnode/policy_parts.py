"""What tests of decisions begin with: settings, and nodes that have said something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from orchestrator.onnode.kernel.events import UNIT
from orchestrator.onnode.kernel.settings import Settings
from orchestrator.onnode.policy.reports import NodeReport

_EMPTY = {"int": 0, "str": "", "tuple[str, ...]": (), "dict[str, str]": {}}
_USUAL = {
    "system": "MI325X_08x08x32",
    "logdir": "/shared/sets",
    "cont": "rocm/training:6.0",
    "nnodes": 2,
    "fabric": "broadcom_roce",
    "network_rdma": "preferred",
    "preflight_run": 1,
    "preflight_clock_s": "2",
}


def settings(**changes: Any) -> Settings:
    """Settings of a set on two nodes with RDMA."""
    bare = Settings(**{item.name: _EMPTY[str(item.type)] for item in fields(Settings)})  # type: ignore[arg-type]
    return replace(bare, **(_USUAL | changes))


def unit(*parts: object) -> str:
    return UNIT.join(map(str, parts))


def report(
    *checks: tuple[str, ...],
    facts: Mapping[str, str] | None = None,
    same: str = "",
    troubles: Iterable[str] = (),
    **words: str,
) -> NodeReport:
    """A node that has said these: `checks` are (name, verdict, text, remedy), `words` the others with their detail."""
    told = NodeReport()
    for name, verdict, *texts in checks:
        told.apply("check", unit(name, verdict, 5, *texts))
    if facts is not None:
        told.apply("facts", unit(*(f"{name}={value}" for name, value in facts.items())))
    if same:
        told.apply("same", f"data={same}")
    for text in troubles:
        told.apply("trouble", text)
    for word, detail in words.items():
        told.apply(word, detail)
    return told
