"""Order of leaves, packing and differences of structures in `nest`, compared with a model."""

import collections
import dataclasses
import random
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
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
    def __init__(self, a: Any, b: Any, kind: str = "k", known: frozenset[str] = frozenset()) -> None:
        self.a, self.b, self.kind, self.known = a, b, kind, known

    def __repr__(self) -> str:
        return f"Pair({self.a!r}, {self.b!r}, {self.kind!r}, {sorted(self.known)})"

    def _flatten(self) -> list[Any]:
        return [self.a, self.b]

    def _unflatten(self, parts: Sequence[Any]) -> "Pair":
        return Pair(*parts, self.kind, self.known)

    def _key(self) -> str:
        return self.kind

    def _merged(self, other: "Pair") -> "Pair":
        return Pair(self.a, self.b, self.kind, self.known | other.known)


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


# *** random structures ***


@dataclasses.dataclass
class Model:
    """A structure as the test made it, without `nest`.

    Attributes:
      paths: of the leaves, in order.
      given: the numbers of the leaves in the order of insertion.
      whole: for each leaf or composite, its number of leaves.
      make: a structure with these leaves; the text goes into the `known` of its composites.
    """

    paths: list[str]
    given: list[int]
    whole: list[int]
    make: Callable[[list[Any], str], Any]


def joined(
    keys: Sequence[str], parts: Sequence[Model], given: Sequence[int], make: Callable[[list[Any]], Any]
) -> Model:
    """Structure with `parts` under `keys`, inserted in the order `given`."""
    starts = [sum(len(p.paths) for p in parts[:i]) for i in range(len(parts) + 1)]

    def made(leaves: list[Any], known: str) -> Any:
        return make([p.make(leaves[a:b], known) for p, a, b in zip(parts, starts, starts[1:], strict=False)])

    return Model(
        [key + path for key, p in zip(keys, parts, strict=True) for path in p.paths],
        [starts[i] + n for i in given for n in parts[i].given],
        [n for p in parts for n in p.whole],
        made,
    )


def a_leaf() -> Model:
    return Model([""], [0], [1], lambda leaves, known: leaves[0])


def a_composite(kind: str) -> Model:
    def made(leaves: list[Any], known: str) -> Pair:
        return Pair(*leaves, kind, frozenset({known} if known else ()))

    return Model([" (part 0)", " (part 1)"], [0, 1], [2], made)


def a_structure(rng: random.Random, depth: int) -> Model:
    what = rng.choice("leaf composite none list tuple named dict mapping record".split() if depth else ["leaf"])
    if what == "leaf":
        return a_leaf()
    if what == "composite":
        return a_composite(rng.choice("kl"))
    if what == "none":
        return Model([], [], [], lambda leaves, known: None)
    n = 2 if what in ("named", "record") else rng.randrange(4)
    parts, order = [a_structure(rng, depth - 1) for _ in range(n)], list(range(n))
    numbered = [f"[{i}]" for i in range(n)]
    if what == "list":
        return joined(numbered, parts, order, lambda xs: xs)
    if what == "tuple":
        return joined(numbered, parts, order, tuple)
    if what == "named":
        return joined([".x", ".y"], parts, order, lambda xs: Point(*xs))
    if what == "record":
        return joined([".first", ".second"], parts, order, lambda xs: Record(*xs))
    keys = sorted(rng.sample("abcdefgh", n))
    rng.shuffle(order)
    kind = dict if what == "dict" else rng.choice([collections.OrderedDict, lambda x: collections.defaultdict(list, x)])
    return joined([f"[{k!r}]" for k in keys], parts, order, lambda xs: kind({keys[i]: xs[i] for i in order}))


SEEDS = range(100)


def random_structure(seed: int) -> tuple[Model, list[int]]:
    model = a_structure(random.Random(seed), 4)
    return model, list(range(len(model.paths)))


def test_random_structures_flatten_and_pack():
    for seed in SEEDS:
        model, leaves = random_structure(seed)
        structure, other = model.make(leaves, ""), [str(x) for x in leaves]
        assert nest.flatten(structure) == leaves
        assert nest.flatten(structure, as_given=True) == model.given
        assert repr(nest.pack(structure, other)) == repr(model.make(other, ""))
        assert nest.flatten_with_paths(structure, "x") == [
            ("x" + p, i) for p, i in zip(model.paths, leaves, strict=True)
        ]
        for wrong in ([*other, "more"], other[:-1]):
            if len(wrong) != len(leaves):
                with pytest.raises(ValueError, match=f"has {len(leaves)} leaves, got {len(wrong)}"):
                    nest.pack(structure, wrong)


def test_random_structures_with_composites_for_leaves():
    for seed in SEEDS:
        model, leaves = random_structure(seed)
        structure = model.make(leaves, "")
        whole = nest.flatten(structure, expand=False)
        assert [2 if isinstance(x, Pair) else 1 for x in whole] == model.whole
        assert repr(nest.pack(structure, whole, expand=False)) == repr(structure)
        doubled = nest.map_leaves(lambda x: x if isinstance(x, Pair) else -x, structure, expand=False)
        assert [abs(x) for x in nest.flatten(doubled)] == leaves


def test_random_structures_with_mappings_for_leaves():
    for seed in SEEDS:
        model, leaves = random_structure(seed)
        structure = model.make(leaves, "")
        parts = nest.flatten(structure, is_leaf=lambda x: isinstance(x, Mapping))
        assert [x for part in parts for x in nest.flatten(part)] == leaves
        back = nest.map_leaves(lambda x: x, structure, is_leaf=lambda x: isinstance(x, Mapping))
        assert repr(back) == repr(structure)
        assert all(
            x is y for x, y in zip(parts, nest.flatten(back, is_leaf=lambda x: isinstance(x, Mapping)), strict=True)
        )


def test_random_structures_map_with_others_of_the_same_structure():
    for seed in SEEDS:
        model, leaves = random_structure(seed)
        first, second = model.make(leaves, "first"), model.make([10 * x for x in leaves], "second")
        mapped = nest.map_leaves(lambda x, y: x + y, first, second)
        assert repr(mapped) == repr(model.make([11 * x for x in leaves], "first"))
        merged = nest.merged(first, second)
        assert nest.flatten(merged) == leaves
        for pair in (x for x in nest.flatten(merged, expand=False) if isinstance(x, Pair)):
            assert pair.known == {"first", "second"}


def test_random_structures_up_to_their_leaves():
    for seed in SEEDS:
        model, leaves = random_structure(seed)
        if set(model.whole) == {1}:  # no composites, which stand for one part of the other structure
            parts = [[x, (x,)] for x in leaves]
            assert nest.flatten_up_to(model.make(leaves, ""), model.make(parts, "")) == parts


def test_random_structures_are_different_where_their_outlines_are():
    models = [random_structure(seed) for seed in range(40)]
    made = [(model.make(leaves, ""), model.make([str(x) for x in leaves], "other")) for model, leaves in models]
    for i, (x, _) in enumerate(made):
        for j, (_, y) in enumerate(made):
            found = nest.mismatch(x, y)
            assert (found is None) is (nest.outline(x) == nest.outline(y))
            assert i != j or found is None


# *** limits ***


def cyclic() -> Any:
    x: dict[str, Any] = {"a": 1}
    x["b"] = [x]
    return x


WALKS = {
    "flatten": nest.flatten,
    "paths": nest.flatten_with_paths,
    "pack": lambda x: nest.pack(x, [1] * 10_000),
    "map": lambda x: nest.map_leaves(str, x),
    "merged": lambda x: nest.merged(x, x),
    "up to": lambda x: nest.flatten_up_to(x, x),
    "mismatch": lambda x: nest.mismatch(x, x),
    "outline": nest.outline,
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_structure_that_contains_itself_or_is_too_deep_is_an_error(walk):
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    for x in (cyclic(), deep):
        with pytest.raises(ValueError, match="nested too deeply, or contains itself"):
            walk(x)


def test_keys_that_equal_only_themselves_are_not_compared():
    with hr.Graph() as g:
        x, y = hr.constant(1.0), hr.constant(2.0)
        n = len(g.operations)
        assert nest.flatten({y: 2, x: 1}) == [2, 1]
        assert list(nest.pack({y: 0, x: 0}, [2, 1])) == [y, x]
        assert len(g.operations) == n


def test_flatten_up_to_pairs_the_parts_of_mappings_by_key():
    a, b = object(), object()
    assert nest.flatten_up_to({1: 0, "b": 0}, {"b": "of b", 1: "of 1"}) == ["of 1", "of b"]
    assert nest.flatten_up_to({a: 0, b: (0, 0)}, {b: ("b0", "b1"), a: "of a"}) == ["of a", "b0", "b1"]
    with pytest.raises(ValueError, match="was expected"):
        nest.flatten_up_to({1: 0, "b": 0}, {1: 0, "c": 0})


def test_the_table_of_classes_is_bounded(monkeypatch):
    monkeypatch.setattr(type(nest.nodes), "MOST", 10)
    for i in range(30):
        kind = namedtuple(f"Kind{i}", "a b")
        assert nest.flatten(kind(1, [2])) == [1, 2]
        assert len(nest.nodes) <= 10


def test_a_rebuilder_does_not_follow_changes_of_its_structure():
    x = {"b": 1, "a": 2}
    rebuild = nest.nodes[dict].rebuilder(x)
    x["c"] = 3
    assert rebuild([10, 20]) == {"a": 10, "b": 20}


def test_a_composite_defines_how_it_comes_apart():
    with pytest.raises(TypeError, match="the composite Half must define _unflatten"):

        class Half(nest.Composite):
            def _flatten(self) -> list[Any]:
                return []


def test_fields_outside_of_the_constructor_are_parts():
    @dataclasses.dataclass(frozen=True)
    class Late:
        a: Any
        b: Any = dataclasses.field(init=False, default=2)

    back = nest.pack(Late(1), [10, 20])
    assert (back.a, back.b) == (10, 20)


@pytest.mark.parametrize(
    ("x", "want"), [((1, 2), [1, 2]), ([1], [1]), (3, [3]), (None, [None]), ("ab", ["ab"]), ((), [])]
)
def test_as_list(x, want):
    assert nest.as_list(x) == want


def test_leaves_are_described_by_their_modules():
    with hr.Graph():
        x = hr.constant(1.0, name="x")
        described = [nest.describe(v) for v in (x, x.op, hr.TensorArray(hr.float32, 2), [x], 3j, object())]
    assert described == [
        "the tensor 'x:0'", "the operation 'x'", "a TensorArray of dtype float32", "a list of 1", "the number 3j",
        "an object",
    ]  # fmt: skip
