"""Records: classes with the methods of dataclasses."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.records import record

FORMS: list[dict[str, bool]] = [
    {},
    {"slots": True},
    {"eq": False, "slots": True},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False},
    {"frozen": True, "slots": True, "order": True},
]


def _classes(make: Callable[..., Any], options: dict[str, bool]) -> list[type]:
    """Classes of a field of each kind, without fields, with one field, and derived."""

    @make(**options)
    class Point:
        x: int
        f1: str = "b"
        c: list[int] = dataclasses.field(default_factory=list)
        size: int = dataclasses.field(default=3, kw_only=True)
        hidden: int = dataclasses.field(default=4, repr=False, compare=False)
        made: dict[str, int] = dataclasses.field(default_factory=dict, init=False)

        def __post_init__(self) -> None:
            self.made["x"] = self.x

    @make(**options)
    class Derived(Point):  # type: ignore[misc, valid-type]
        x: int
        z: int = 5
        name: str = dataclasses.field(default="n", kw_only=True)

    @make(**options)
    class Empty:
        pass

    @make(**options)
    class Own:
        x: float

        def __repr__(self) -> str:
            return f"own {self.x}"

        def __hash__(self) -> int:
            return 7

    return [Point, Derived, Empty, Own]


def _outcome(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as e:
        return type(e), str(e)


def _described(kinds: list[Any]) -> list[Any]:
    """Results of all that one does with objects of the classes of `_classes`, and errors."""
    point, derived, empty, own = kinds
    a, b = point(1), point(2, "c", [3], size=4)
    out: list[Any] = [a, b, a == point(1), a == b, a == derived(1), a != b, a == 1]
    out += [derived(1, "d", [2], 3, name="m"), empty(), empty() == empty(), own(2.0), hash(own(2.0))]
    makers: list[Callable[[], Any]] = [
        lambda: point(),
        lambda: point(1, "c", [3], 4, 5),
        lambda: point(1, wrong=2),
        lambda: point(1, made={}),
        lambda: hash(own(1.0)) == hash(own(2.0)),
        lambda: hash(empty()) == hash(empty()),
        lambda: a < b,
        lambda: own(1.0) <= own(2.0),
        lambda: setattr(a, "x", 5),
        lambda: delattr(point(2), "x"),
        lambda: a.x,
        lambda: repr(dataclasses.replace(point(1), x=7)),
        lambda: repr(dataclasses.asdict(derived(1))),
        lambda: repr(copy.copy(point(8))),
        lambda: point(1).c is not point(1).c,
        lambda: point.__match_args__,
        lambda: str(inspect.signature(derived)),
        lambda: [f.name for f in dataclasses.fields(derived)],
        lambda: point.__dict__.get("__slots__"),
        lambda: point.__hash__ is None,
        lambda: point(9).__getstate__(),
    ]
    return [repr(x) if not isinstance(x, bool) else x for x in [*out, *map(_outcome, makers)]]


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_a_record_has_the_methods_of_a_dataclass(options: dict[str, bool]) -> None:
    expected = _described(_classes(dataclasses.dataclass, options))
    assert _described(_classes(record, options)) == expected


@record(frozen=True, slots=True)
class Cell:
    """Object with a reference to itself."""

    content: list[Any]
    number: int = 0


def test_objects_of_frozen_classes_are_pickled_and_copied() -> None:
    cell = Cell([1, 2], 3)
    for other in (pickle.loads(pickle.dumps(cell)), copy.deepcopy(cell)):
        assert other == cell


def test_the_text_of_an_object_that_contains_itself_is_finite() -> None:
    cell = Cell([])
    cell.content.append(cell)
    assert repr(cell) == "Cell(content=[...], number=0)"


def test_fields_of_one_element_compare_by_identity_first() -> None:
    @record(frozen=True)
    class One:
        x: float

    nan = float("nan")
    assert One(nan) == One(nan)
    assert One(nan) != One(float("nan"))


def test_a_frozen_object_takes_no_other_attribute() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'other'"):
        Cell([]).other = 1  # type: ignore[attr-defined]


@pytest.mark.system  # it parses half of the package
def test_the_package_has_no_dataclass_that_is_no_record() -> None:
    package = Path(__file__).parent.parent / "headrace"
    texts = {path: path.read_text() for path in package.rglob("*.py")}
    found = [
        f"{path.relative_to(package)}: {node.name}"
        for path, text in texts.items()
        if "import dataclass" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    ]
    assert not found
