"""Immutable objects without `dataclasses`: its import is a third of a cold `orchestrator score`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: object):
        return lambda decorated: decorated


@dataclass_transform(frozen_default=True)
class Frozen:
    """An immutable object; its class's annotations are its fields, in this order."""

    def __init__(self, *values: Any, **fields: Any) -> None:
        self.__dict__.update(zip(self.__annotations__, values, strict=False), **fields)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{type(self).__name__}.{name} was set when the object was made; `replace` gives "
            "another"
        )

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed fields."""
        return type(self)(**{**self.__dict__, **changes})
