"""`nest`: order of leaves, packing, what differs between two structures."""

import collections
import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

from headrace import nest

Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Record:
    first: Any
    second: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


class Pair(nest.Composite):
    """A composite."""

    def __init__(self, a: Any, b: Any, kind: str = "k") -> None:
        self.a, self.b, self.kind = a, b, kind

    def _flatten(self) -> list[Any]:
        return [self.a, self.b]

    def _unflatten(self, parts: list[Any]) -> "Pair":
        return Pair(*parts, self.kind)

    def _key(self) -> str:
        return self.kind


STRUCTURES = [
    (5, [5]),
    (None, []),
    ((), []),
    ((1, [2, (3,)]), [1, 2, 3]),
    ({"b": 2, "a": 1}, [1, 2]),
    ({"b": {"z": 3, "y": 2}, "a": (0, 1)}, [0, 1, 2, 3]),
    ({2: "two", 1: "one"}, ["one", "two"]),
    ({1: "n", "s": "t"}, ["n", "t"]),
    (Point(1, {"k": 2}), [1, 2]),
    (Record(1, [2, None]), [1, 2]),
    (Frozen((1, 2)), [1, 2]),
    ([None, 1, None], [1]),
    (collections.OrderedDict([("b", 2), ("a", 1)]), [1, 2]),
    (collections.defaultdict(list, {"b": 2, "a": 1}), [1, 2]),
]


@pytest.mark.parametrize(("structure", "leaves"), STRUCTURES)
def test_flatten_and_pack_are_inverse(structure, leaves):
    assert nest.flatten(structure) == leaves
    back = nest.pack(structure, leaves)
    assert back == structure
    assert type(back) is type(structure)


def test_a_dict_keeps_the_users_order():
    assert list(nest.pack({"b": 0, "a": 0}, [1, 2]).items()) == [("b", 2), ("a", 1)]
    assert nest.pack(collections.defaultdict(list, a=1), [2]).default_factory is list


def test_arrays_and_text_are_leaves():
    array = np.zeros(3)
    assert nest.flatten(["text", array, b"bytes", np.float32(1)])[1] is array
    assert len(nest.flatten(["text", array])) == 2
    assert not nest.is_nested(array)
    assert nest.is_nested([])


def test_composites_flatten_to_what_they_hold():
    pair = Pair(1, 2)
    assert nest.flatten({"p": pair, "q": 3}) == [1, 2, 3]
    back = nest.pack((pair, 0), [10, 20, 30])[0]
    assert (back.a, back.b) == (10, 20)
    assert nest.mismatch(pair, Pair(5, 6)) is None
    assert nest.mismatch(pair, Pair(5, 6, "other")) is not None
    assert nest.mismatch(pair, (5, 6)) is not None


@pytest.mark.parametrize("leaves", [[1], [1, 2, 3]])
def test_the_number_of_leaves_must_fit(leaves):
    with pytest.raises(ValueError, match=f"has 2 leaves, got {len(leaves)}: a tuple of 2"):
        nest.pack((0, 0), leaves)


def test_paths_are_what_one_writes():
    value = {"state": Record(1, (2, Point(3, 4))), "n": 5}
    paths = nest.flatten_with_paths(value, "value")
    assert [p for p, _ in paths] == [
        "value['n']", "value['state'].first", "value['state'].second[0]", "value['state'].second[1].x",
        "value['state'].second[1].y",
    ]  # fmt: skip
    assert [eval(p, {"value": value}) for p, _ in paths] == [leaf for _, leaf in paths]


def test_map_leaves():
    assert nest.map_leaves(lambda x, y: x * y, {"a": (1, 2)}, {"a": (3, 4)}) == {"a": (3, 8)}
    with pytest.raises(ValueError, match=r"at \['a'\]: a tuple of 2 and a list of 2"):
        nest.map_leaves(max, {"a": (1, 2)}, {"a": [1, 2]})


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        ((1, 2), (1,), ": a tuple of 2 and a tuple of 1"),
        ((1, 2), [1, 2], ": a tuple of 2 and a list of 2"),
        ({"a": 1}, {"b": 1}, ": a dict with the keys ['a'] and a dict with the keys ['b']"),
        ({"a": (1, None)}, {"a": (1, 2)}, " at ['a'][1]: None and the number 2"),
        (Record(1, Point(1, 2)), Record(1, (1, 2)), " at .second: a Point(x, y) and a tuple of 2"),
        (Record(1), Frozen(1), ": a Record(first, second) and a Frozen(value)"),
        ([1, [2]], [1, 2], " at [1]: a list of 1 and the number 2"),
    ],
)
def test_what_differs_is_named(first, second, says):
    assert str(nest.mismatch(first, second)) == says
    assert nest.outline(first) != nest.outline(second)


@pytest.mark.parametrize("structure", [s for s, _ in STRUCTURES])
def test_equal_structures_have_no_difference(structure):
    other = nest.map_leaves(lambda x: object(), structure)
    assert nest.mismatch(structure, other) is None
    assert nest.outline(structure) == nest.outline(other)
    hash(nest.outline(structure))


def test_flatten_up_to():
    assert nest.flatten_up_to((0, {"a": 0}), ((1, None), {"a": None})) == [(1, None), None]
    assert nest.flatten_up_to([Pair(0, 0), 0], ["same", "x"]) == ["same", "same", "x"]
    with pytest.raises(ValueError, match="a tuple of 1 where a tuple of 2 was expected"):
        nest.flatten_up_to((0, 0), (1,))
