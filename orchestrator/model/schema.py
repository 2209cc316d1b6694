"""JSON Schema of the documents, for editors."""

from __future__ import annotations

from typing import Any

from orchestrator.model.documents import Site, System, Workload
from orchestrator.model.part import DocumentPart

DOCUMENTS: dict[str, type[DocumentPart]] = {"system": System, "workload": Workload, "site": Site}


def json_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of `kind`, a key of DOCUMENTS."""
    schema = DOCUMENTS[kind].model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": f"orchestrator {kind}"}
