"""The YAML documents as typed models, and their composition into an `Entry`.

The first document read imports pydantic and yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.model.catalogue import Catalogue
    from orchestrator.model.compose import load_entry
    from orchestrator.model.documents import System, Workload
    from orchestrator.model.entry import Container, Entry, Mount, Origin
    from orchestrator.model.site_documents import Site
    from orchestrator.model.sites import load_site
    from orchestrator.model.values import EnvValue, Minutes, Text, Unique

_HOMES = {
    "Catalogue": "catalogue",
    "Container": "entry",
    "Entry": "entry",
    "EnvValue": "values",
    "Minutes": "values",
    "Mount": "entry",
    "Origin": "entry",
    "Site": "site_documents",
    "System": "documents",
    "Text": "values",
    "Unique": "values",
    "Workload": "documents",
    "load_entry": "compose",
    "load_site": "sites",
}

__all__ = [
    "Catalogue",
    "Container",
    "Entry",
    "EnvValue",
    "Minutes",
    "Mount",
    "Origin",
    "Site",
    "System",
    "Text",
    "Unique",
    "Workload",
    "load_entry",
    "load_site",
]


def __getattr__(name: str) -> Any:
    from orchestrator.lazy import public_name

    return public_name(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return __all__
