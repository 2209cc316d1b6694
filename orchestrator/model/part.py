"""The base of all documents, apart: readers of one kind need not load the others."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

KINDS = (
    "system",
    "workload",
    "site",
    "accelerators",
    "hosts",
    "fabrics",
    "preparation",
    "tuning",
    "tuning_choice",
)
"""Values of a document's key `kind`."""


class DocumentPart(BaseModel):
    """Base of every mapping in a document."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


@dataclass(frozen=True)
class NameOr:
    """Marks a field with a shared fact's name, or the fact."""

    model: type[DocumentPart]
