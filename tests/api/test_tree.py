"""Trees: leaves, structures as keys, registered classes in every part of headrace that walks structures."""

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.extend import DuplicateError

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any


class Layer:
    """A class of a user, with a part that is no tensor."""

    def __init__(self, w: Any, b: Any, name: str) -> None:
        self.w, self.b, self.name = w, b, name

    def __repr__(self) -> str:
        return f"Layer({self.name})"


hr.tree.register(Layer, lambda layer: ((layer.w, layer.b), layer.name), lambda name, parts: Layer(*parts, name))

TREES = [1, None, (), [1, (2, None)], {"b": 1, "a": [2, 3]}, Point(1, {"k": 2}), Pair([1], 2), Layer(1, (2, 3), "a")]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_a_tree_is_its_structure_and_its_leaves(tree: Any) -> None:
    leaves, structure = hr.tree.flatten(tree)
    assert leaves == hr.tree.leaves(tree)
    assert len(structure) == len(leaves)
    again = hr.tree.unflatten(structure, leaves)
    assert type(again) is type(tree)
    assert hr.tree.flatten(again) == (leaves, structure)


def test_structures_are_keys() -> None:
    structures = [hr.tree.structure(t) for t in TREES]
    others = [hr.tree.structure(hr.tree.map(lambda x: x * 10, t)) for t in TREES]
    assert structures == others
    assert len({*structures, *others}) == len(TREES)
    assert hr.tree.structure({"a": 1, "b": 2}) == hr.tree.structure({"b": 1, "a": 2})
    assert hr.tree.structure(Layer(1, 2, "a")) != hr.tree.structure(Layer(1, 2, "b"))
    assert hr.tree.structure(1) != hr.tree.structure((1,)) != (1,)


def test_a_structure_shows_its_leaves_as_stars() -> None:
    assert repr(hr.tree.structure({"a": (1, None), "b": Pair(2, [])})) == (
        "Structure({'a': (*, None), 'b': Pair(first=*, second=[])})"
    )


def test_leaves_too_few_and_too_many_are_errors() -> None:
    structure = hr.tree.structure((1, 2))
    for given in ([], [1], [1, 2, 3]):
        with pytest.raises(ValueError, match=rf"Structure\(\(\*, \*\)\) has 2 leaves, got {len(given)}"):
            hr.tree.unflatten(structure, given)
    with pytest.raises(TypeError, match=r"'structure' must be a Structure, got a tuple of 2"):
        hr.tree.unflatten((1, 2), [1, 2])  # type: ignore[arg-type]


def test_is_leaf_stops_the_walk() -> None:
    def is_pair(x: Any) -> bool:
        return isinstance(x, tuple)

    tree = {"a": (1, 2), "b": [(3, 4), 5]}
    assert hr.tree.leaves(tree, is_leaf=is_pair) == [(1, 2), (3, 4), 5]
    assert hr.tree.map(lambda x: x, tree, is_leaf=is_pair) == tree
    other = {"a": [1], "b": ["x", None]}
    assert hr.tree.map(lambda x, y: (x, y), tree, other, is_leaf=is_pair) == {
        "a": ((1, 2), [1]),
        "b": [((3, 4), "x"), (5, None)],
    }
    with pytest.raises(ValueError, match="different structures"):
        hr.tree.map(lambda x, y: x, tree, {"a": 1, "b": (1, 2)}, is_leaf=is_pair)


def test_maps_of_different_structures_name_the_place() -> None:
    with pytest.raises(ValueError, match=r"\['a'\]: a tuple of 2 and a tuple of 3"):
        hr.tree.map(lambda x, y: x, {"a": (1, 2)}, {"a": (1, 2, 3)})
    with pytest.raises(ValueError, match="a Layer and a Layer"):
        hr.tree.map(lambda x, y: x, Layer(1, 2, "a"), Layer(1, 2, "b"))


def test_paths_name_the_leaves() -> None:
    tree = {"l": Layer(1, [2], "a"), "p": Point(3, 4)}
    assert hr.tree.paths(tree) == ["['l'] (part 0)", "['l'] (part 1)[0]", "['p'].x", "['p'].y"]
    assert dict(hr.tree.flatten_with_paths(tree)) == dict(zip(hr.tree.paths(tree), [1, 2, 3, 4], strict=True))
    assert hr.tree.leaves(hr.tree.map_with_paths(lambda path, x, y: (path[-2:], x + y), [1, 2], [10, 20])) == [
        "0]", 11, "1]", 22,
    ]  # fmt: skip


def test_transpose_exchanges_two_levels() -> None:
    outer, inner = hr.tree.structure([0, 0, 0]), hr.tree.structure(Point(0, 0))
    rows = [Point(1, 2), Point(3, 4), Point(5, 6)]
    assert hr.tree.transpose(outer, inner, rows) == Point([1, 3, 5], [2, 4, 6])
    assert hr.tree.transpose(hr.tree.structure(()), inner, ()) == Point((), ())
    with pytest.raises(ValueError, match="different structures"):
        hr.tree.transpose(outer, inner, [1, 2, 3])


def test_reduce_and_all_leaves() -> None:
    assert hr.tree.reduce(max, {"a": 3, "b": [9, 1]}) == 9
    assert hr.tree.reduce(lambda s, x: s + x, (), 7) == 7
    with pytest.raises(TypeError):
        hr.tree.reduce(max, None)
    assert hr.tree.all_leaves([1, "a", np.zeros(2)])
    assert not hr.tree.all_leaves([1, None])


def test_an_endless_tree_is_an_error() -> None:
    tree: list[Any] = []
    tree.append(tree)
    with pytest.raises(ValueError, match="contains itself"):
        hr.tree.structure(tree)


# *** registered classes ***


def test_registered_classes_are_walked_everywhere() -> None:
    with hr.Graph() as g:
        given = Layer(hr.placeholder(hr.float32, [2]), hr.constant(1.0), "first")
        chosen = hr.cond(hr.constant(True), lambda: given, lambda: Layer(hr.zeros([2]), 2.0, "first"))
        assert (chosen.name, chosen.w.shape) == ("first", (2,))
        grown = hr.while_loop(
            lambda layer: layer.b < 10.0, lambda layer: Layer(layer.w * 2.0, layer.b * 2.0, "first"), [chosen]
        )
        grown = grown[0] if isinstance(grown, list) else grown
        by = hr.grad(lambda layer: hr.reduce_sum(layer.w * layer.b))(given)
        with hr.Session(graph=g) as s:
            w, b, dw = s.run([grown.w, grown.b, by.w], {given.w: np.ones(2, np.float32)})
    assert (w.tolist(), b, dw.tolist()) == ([16.0, 16.0], 16.0, [1.0, 1.0])


def test_a_session_fetches_registered_classes() -> None:
    with hr.Graph() as g:
        layer = Layer(hr.constant([1.0]), hr.constant(2.0), "first")
        with hr.Session(graph=g) as s:
            found = s.run({"layer": layer})["layer"]
    assert (type(found), found.w.tolist(), found.b, found.name) == (Layer, [1.0], 2.0, "first")


def test_a_second_registration_names_the_first() -> None:
    class Twice:
        pass

    hr.tree.register(Twice, lambda x: ((), None), lambda rest, parts: Twice())
    with pytest.raises(DuplicateError, match=r"the class Twice is registered already, at .*test_tree\.py:\d+"):
        hr.tree.register(Twice, lambda x: ((), None), lambda rest, parts: Twice())


def test_a_class_that_was_a_leaf_can_be_registered() -> None:
    class Late:
        def __init__(self, x: Any) -> None:
            self.x = x

    assert hr.tree.all_leaves([Late(1)])
    hr.tree.register(Late, lambda late: ([late.x], None), lambda rest, parts: Late(*parts))
    assert hr.tree.leaves([Late(1)]) == [1]


def test_a_dataclass_can_be_registered_with_fields_that_are_no_leaves() -> None:
    @dataclasses.dataclass(frozen=True)
    class Scaled:
        x: Any
        unit: str

    assert hr.tree.leaves(Scaled(1, "m")) == [1, "m"]
    hr.tree.register(Scaled, lambda s: ([s.x], s.unit), lambda unit, parts: Scaled(parts[0], unit))
    assert hr.tree.map(lambda x: x + 1, Scaled(1, "m")) == Scaled(2, "m")


@pytest.mark.parametrize("kind", [list, dict, type(None), hr.SparseTensor, hr.Tensor, hr.Variable])
def test_classes_with_a_meaning_cannot_be_registered(kind: Any) -> None:
    with pytest.raises(TypeError, match="register a class of your own"):
        hr.tree.register(kind, lambda x: ((), None), lambda rest, parts: None)


def test_only_classes_can_be_registered() -> None:
    with pytest.raises(TypeError, match=r"a class is registered, got a function"):
        hr.tree.register(test_paths_name_the_leaves, None, None)  # type: ignore[arg-type]


def test_a_wrong_flatten_names_the_class() -> None:
    class Wrong:
        pass

    hr.tree.register(Wrong, lambda x: ([1], []), lambda rest, parts: Wrong())  # type: ignore[arg-type,return-value]
    with pytest.raises(TypeError, match="unhashable") as e:
        hr.tree.leaves(Wrong())
    assert "while flattening a Wrong" in e.value.__notes__[0]
