"""What all documents are made of, apart from the documents themselves: who reads another kind need not load these."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


class DocumentPart(BaseModel):
    """Base of every mapping in a document."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


@dataclass(frozen=True)
class NameOr:
    """Marks a field that is the name of a shared fact, or the fact itself written in place."""

    model: type[DocumentPart]
