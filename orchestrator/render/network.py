"""Facts for the nodes to complete the network's environment: those of the fabric, and the source
of each variable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.model.values import NETWORK_NAMES, Text

if TYPE_CHECKING:
    from orchestrator.model.entry import Entry

_ORIGINS = {"command line": "user", "site": "site", "site network": "site"}


def network_values(entry: Entry) -> dict[str, Any]:
    """Return the template's `fabric`, `network_origins` and `network_removed`.

    An origin is a line "NAME<tab>user|site|descriptor<tab>value". By the value a node notices an
    edited bundle.
    """
    return {
        "fabric": entry.documents.fabric,
        "network_origins": [_line(entry, name) for name in _names(entry)],
        "network_removed": [
            name
            for name in NETWORK_NAMES
            if name in entry.removed and entry.removed[name].layer in _ORIGINS
        ],
    }


def _names(entry: Entry) -> list[str]:
    return list(
        dict.fromkeys(
            [*(name for name in NETWORK_NAMES if name in entry.whole_env), *entry.rccl_env]
        )
    )


def _line(entry: Entry, name: str) -> str:
    value = entry.whole_env[name]
    text = value.text if isinstance(value, Text) else str(value)
    return "\t".join((name, _ORIGINS.get(entry.origins[name].layer, "descriptor"), text))
