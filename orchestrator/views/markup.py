"""HTML by construction: text not marked Safe is cleaned and escaped. Logs are hostile input."""

from __future__ import annotations

from html import escape

from orchestrator.words import unshown

LONGEST = 400
"""Characters of a value: in a log it may have a megabyte."""


class Safe(str):
    """HTML for tag() and templates."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def clean(value: object, longest: int = LONGEST) -> str:
    """Return printable text, cut to `longest`."""
    text = str(value)
    text = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return text if text.isprintable() else unshown().sub("\ufffd", text)


def tag(name: str, *children: object, **attributes: object) -> Safe:
    """Return an element. Children not marked Safe are escaped; `class_` is `class`, `_` is `-`,
    None is left out."""
    inner = "".join(
        child if isinstance(child, Safe) else escape(clean(child), quote=False)
        for child in children
    )
    return Safe(f"<{name}{_attributes(attributes)}>{inner}</{name}>")


def void(name: str, **attributes: object) -> Safe:
    """Return an empty element, such as <rect/>."""
    return Safe(f"<{name}{_attributes(attributes)}/>")


def join(*children: object) -> Safe:
    return Safe(
        "".join(
            child if isinstance(child, Safe) else escape(clean(child), quote=False)
            for child in children
        )
    )


def _attribute(value: object) -> str:
    return value if isinstance(value, Safe) else escape(clean(value))


def _attributes(attributes: dict[str, object]) -> str:
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
