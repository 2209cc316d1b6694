"""JSON Schema of the documents, for editors, and the texts below a model's keys."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from typing import Any

from orchestrator.model.documents import System, Workload
from orchestrator.model.part import DocumentPart
from orchestrator.model.site_documents import Site

DOCUMENTS: dict[str, type[DocumentPart]] = {"system": System, "workload": Workload, "site": Site}


def json_schema(kind: str) -> dict[str, Any]:
    """`kind` is a key of DOCUMENTS."""
    model = DOCUMENTS[kind]
    schema = model.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        texts = _texts(sys.modules[model.__module__]).get(part.get("title", ""), {})
        for name, about in part.get("properties", {}).items():
            if name in texts:
                about["description"] = texts[name]
    if model is Site:
        schema["required"] = [
            "log_dir"
        ]  # as in sites.site_of(): None is for sites made without a file
        schema["properties"]["log_dir"] = {
            "type": "string",
            "pattern": "^/",
            **_described(schema["properties"]["log_dir"]),
        }
    if model is Workload:
        _allow_extending(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": f"orchestrator {kind}",
    }


def _allow_extending(schema: dict[str, Any]) -> None:
    """If a workload extends another, require only its kind and name, and no key of its rounds."""
    common = ["kind", "name", "extends"]
    schema["anyOf"] = [{"required": schema["required"]}, {"required": common}]
    schema["required"] = ["kind", "name"]
    del schema["$defs"]["WorkloadRound"]["required"]


def _described(about: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in about.items() if name in ("description", "examples", "title")
    }


def descriptions(model: type[DocumentPart]) -> dict[str, str]:
    """Return key -> the text below it, in a line."""
    return _texts(sys.modules[model.__module__]).get(model.__name__, {})


@cache
def _texts(module: Any) -> dict[str, dict[str, str]]:
    """Read the source on demand: it would slow every reader of documents."""
    texts: dict[str, dict[str, str]] = {}
    for statement in ast.parse(inspect.getsource(module)).body:
        if isinstance(statement, ast.ClassDef):
            texts[statement.name] = {
                key.target.id: " ".join(text.value.value.split())
                for key, text in zip(statement.body, statement.body[1:], strict=False)
                if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
                if isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and isinstance(text.value.value, str)
            }
    return texts
