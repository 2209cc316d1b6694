"""Turn pydantic's errors into a line each: problem, accepted values, likely intention."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError

from orchestrator.errors import did_you_mean
from orchestrator.model.part import KINDS, DocumentPart, NameOr
from orchestrator.model.source import Document, Key, kind_of

P = TypeVar("P", bound=DocumentPart)


def validate(document: Document, model: type[P]) -> P | None:
    """Build `model`; report errors in the document and return None."""
    if _other_kind(document, model):
        return None
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            key, text = _explain(model, detail)
            document.add(key, text)
        return None


def checked(document: Document, built: P | None) -> P:
    """Return the result of `validate`. Raises DescriptorError with every problem so far."""
    document.check()
    if built is None:
        raise AssertionError("a document without problems was not built")
    return built


def _other_kind(document: Document, model: type[DocumentPart]) -> bool:
    expected = get_args(model.model_fields["kind"].annotation)[0]
    kind = document.data.get("kind")
    if kind == expected:
        return False
    if "kind" not in document.data and not model.model_fields["kind"].is_required():
        return False
    if "kind" not in document.data:
        document.add(("kind",), f"this key is required; write `kind: {expected}`")
        document.data["kind"] = expected
        return False
    document.add(("kind",), f"{kind!r} instead of `kind: {expected}`")
    return kind in KINDS


def _explain(model: type[DocumentPart], error: Any) -> tuple[Key, str]:
    location = error["loc"]
    if location and location[-1] == "[key]":
        location = location[:-1]
    if error["type"] == "extra_forbidden":
        return location, _unknown_key(model, location)
    if error["type"] == "missing":
        return location, "this key is required"
    return location, _wrong_value(error["type"], error.get("ctx", {}), error["input"], error["msg"])


def _unknown_key(model: type[DocumentPart], location: Key) -> str:
    parent = _annotation_at(model, location[:-1])
    keys = list(parent.model_fields) if parent else []
    meant = did_you_mean(str(location[-1]), keys)
    return f"unknown key{meant}" if meant else f"unknown key; keys here: {', '.join(keys)}"


_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}


def _wrong_value(kind: str, context: dict[str, Any], given: Any, message: str) -> str:
    if kind in _WANTED:
        quotes = (
            "; write it in quotes"
            if kind == "string_type" and isinstance(given, (bool, int, float))
            else ""
        )
        return f"must be {_WANTED[kind]}, not {_given(kind, given)}{quotes}"
    if kind == "literal_error":
        accepted = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        return (
            f"{given!r} is not accepted; accepted: "
            f"{', '.join(accepted)}{did_you_mean(str(given), accepted)}"
        )
    if kind == "greater_than_equal":
        return f"{_short(given)} is too small; accepted: at least {context['ge']}"
    if kind == "less_than_equal":
        return f"{_short(given)} is too large; accepted: at most {context['le']}"
    if kind == "too_short":
        return "must not be empty"
    return message


def _given(kind: str, given: Any) -> str:
    # Text in place of `env` or `pass_env` can be a secret.
    if given is None or isinstance(given, (list, dict)) or _WANTED[kind] in ("a list", "a mapping"):
        return kind_of(given)
    return f"{kind_of(given)} ({_short(given)})"


def _short(given: Any) -> str:
    text = repr(given) if isinstance(given, str) else str(given)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _annotation_at(model: type[DocumentPart], location: Key) -> type[BaseModel] | None:
    annotation: Any = model
    for part in location:
        annotation = _step(annotation, part)
    return _model_in(annotation)


def _step(annotation: Any, part: str | int) -> Any:
    for choice in _choices(annotation):
        if get_origin(choice) in (dict, list):
            return get_args(choice)[-1]
    model = _model_in(annotation)
    field = model.model_fields.get(str(part)) if model else None
    marks = [mark.model for mark in field.metadata if isinstance(mark, NameOr)] if field else []
    return marks[0] if marks else field.annotation if field else None


def _choices(annotation: Any) -> tuple[Any, ...]:
    """Return the annotation and the members of a union or Annotated, not of a dict or list."""
    return (
        (annotation,)
        if get_origin(annotation) in (dict, list)
        else (annotation, *get_args(annotation))
    )


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for choice in _choices(annotation):
        if isinstance(choice, type) and not get_args(choice) and issubclass(choice, BaseModel):
            return choice
    return None
