"""Immutable objects without dataclasses: made as they are declared, or not at all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.frozen import Frozen


class Place(Frozen):
    """A field without a default, and two with one."""

    kind = "place"
    name: str
    rack: int = 0
    notes: tuple[str, ...] = ()


class Node(Frozen):
    """Another class with the same fields."""

    name: str
    rack: int = 0
    notes: tuple[str, ...] = ()


MISFITS: dict[str, Callable[[], Place]] = {
    "Place has no field `row`": lambda: Place("n1", row=3),  # type: ignore[call-arg]
    "Place has no field `kind`": lambda: Place("n1", kind="x"),  # type: ignore[call-arg]
    "Place takes no value after its field `notes`": lambda: Place("n1", 1, (), "x"),  # type: ignore[call-arg]
    "Place was given its field `name` twice": lambda: Place("n1", name="n2"),  # type: ignore[misc]
    "Place needs its field `name`": lambda: Place(rack=1),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("message", MISFITS)
def test_a_wrong_construction_names_class_and_field(message: str) -> None:
    with pytest.raises(TypeError) as error:
        MISFITS[message]()
    assert str(error.value) == message


def test_fields_are_not_inherited() -> None:
    with pytest.raises(TypeError, match=r"^Slot: a class of fields has no other base than Frozen$"):
        type("Slot", (Place,), {})


def test_a_copy_takes_known_fields_alone() -> None:
    assert Place("n1").replace(rack=2) == Place("n1", 2)
    with pytest.raises(TypeError, match=r"^Place has no field `row`$"):
        Place("n1").replace(row=3)


def test_equal_values_are_equal_whether_given_or_by_default() -> None:
    assert Place("n1") == Place("n1", 0, notes=())
    assert hash(Place("n1")) == hash(Place("n1", 0))
    assert Place("n1") != Place("n1", 1)
    assert Place("n1") != Node("n1") and Node("n1") != Place("n1")
    assert Place("n1") != ("n1", 0, ())


def test_it_shows_its_values() -> None:
    assert repr(Place("n1", notes=("x",))) == "Place(name='n1', rack=0, notes=('x',))"
