"""The host settings of a set's nodes: wanted, before, after. From nodes/<node>/tunables.tsv."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.evidence.sets import SetEvidence
from orchestrator.tuning.rows import SettingRow, parse_rows

_STATES = frozenset({"ok", "failed", "unsupported"})


@dataclass(frozen=True, slots=True)
class TunableReading:
    """A host setting on nodes with equal values."""

    knob: str
    wanted: str
    before: str
    after: str
    state: str
    nodes: tuple[str, ...]


def read_tunables(evidence: SetEvidence) -> tuple[TunableReading, ...]:
    """Return each setting's last values on each node, equal nodes together."""
    together: dict[tuple[str, str, str, str, str], list[str]] = {}
    for node in evidence.node_folders:
        text = evidence.findings.text(evidence.layout.node(node) / "tunables.tsv")
        for values in _last_words(parse_rows(text.splitlines())):
            together.setdefault(values, []).append(node)
    order = {
        knob: index for index, knob in enumerate(dict.fromkeys(values[0] for values in together))
    }
    rows = sorted(together.items(), key=lambda item: (order[item[0][0]], -len(item[1]), item[0]))
    return tuple(TunableReading(*values, tuple(nodes)) for values, nodes in rows)


def _last_words(rows: Iterable[SettingRow]) -> list[tuple[str, str, str, str, str]]:
    """Return per setting `before` of its first row and the rest of its last row, without
    reverts."""
    last: dict[str, tuple[str, str, str, str, str]] = {}
    for row in rows:
        if row.result not in _STATES or row.action == "revert":
            continue
        before = row.before
        if row.knob in last and last[row.knob][2] != "-":
            before = last[row.knob][2]
        last[row.knob] = (row.knob, row.wanted, before, row.after, row.result)
    return list(last.values())
