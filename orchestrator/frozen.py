"""Immutable objects without `dataclasses`, for what a cold `orchestrator score` loads.

To its 40 ms of processor time, importing `dataclasses` would add 6 ms, and each frozen class 0.6
ms; a class here takes 0.01 ms. So `mllog`, the views that `score` shows and `cli.command` use
Frozen; elsewhere a dataclass, or a NamedTuple (0.1 ms, with `typing` loaded) for a row of values.
"""

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

    _names = frozenset[str]()
    _required = frozenset[str]()

    def __init_subclass__(cls) -> None:
        if cls.__bases__ != (Frozen,):
            raise TypeError(f"{cls.__name__}: a class of fields has no other base than Frozen")
        cls._names = frozenset(cls.__annotations__)
        cls._required = frozenset(name for name in cls._names if not hasattr(cls, name))

    def __init__(self, *values: Any, **fields: Any) -> None:
        given = self.__dict__
        given.update(zip(self.__annotations__, values, strict=False), **fields)
        if len(given) < len(values) + len(fields) or not (
            self._required <= given.keys() <= self._names
        ):
            raise TypeError(f"{type(self).__name__} {self._misfit(values, fields)}")

    def _misfit(self, values: tuple[Any, ...], fields: dict[str, Any]) -> str:
        """Return why these arguments make no object."""
        names = [*self.__annotations__]
        if len(values) > len(names):
            return f"takes no value after its field `{names[-1]}`"
        for name in fields:
            if name not in names:
                return f"has no field `{name}`"
            if name in names[: len(values)]:
                return f"was given its field `{name}` twice"
        missing = (name for name in names[len(values) :] if name in self._required - fields.keys())
        return f"needs its field `{next(missing)}`"

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__annotations__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frozen) or type(other) is not type(self):
            return NotImplemented
        return other._values() == self._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        pairs = zip(self.__annotations__, self._values(), strict=True)
        values = ", ".join(f"{name}={value!r}" for name, value in pairs)
        return f"{type(self).__name__}({values})"

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{type(self).__name__}.{name} was set when the object was made; `replace` gives "
            "another"
        )

    def named(self, *names: str) -> dict[str, Any]:
        """Return these fields by name; without names, all."""
        return {name: getattr(self, name) for name in names or self.__annotations__}

    def replace(self, **changes: Any) -> Self:
        """Return a copy with changed fields."""
        return type(self)(**{**self.__dict__, **changes})
