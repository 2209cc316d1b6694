"""Public names of a package, imported from their modules on first use."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module


def public_name(package: str, homes: Mapping[str, str], name: str) -> object:
    """Return the public `name` of `package`. Raises AttributeError."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(f"{package}.{homes[name]}"), name)
    setattr(sys.modules[package], name, value)
    return value
