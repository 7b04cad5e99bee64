"""Nested structures of Python: flatten them, map functions over their leaves, register classes.

A *tree* is a tuple, list, mapping, named tuple, dataclass, composite (`SparseTensor`, `IndexedSlices`, `TensorArray`)
or instance of a registered class, whose parts are trees; or None, the empty tree; or a *leaf*, which is everything
else: a tensor, a number, an array. The leaves have an order: that of the elements and of the fields; in a mapping, the
order of the sorted keys. All functions of headrace that take nested structures read them in this way.

With `is_leaf`, a predicate, functions treat the trees that satisfy it as leaves. None is a leaf with
`is_leaf=lambda x: x is None`.

Source: TensorFlow's `tf.nest` and JAX's `jax.tree`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace import nest, public_names
from headrace.ir.tensor_type import TensorOperations
from headrace.nest import Flatten, IsLeaf, Unflatten

__all__ = [
    "Structure", "all_leaves", "flatten", "flatten_with_paths", "leaves", "map", "map_with_paths", "paths", "reduce",
    "register", "structure", "transpose", "unflatten",
]  # fmt: skip

_Rebuild: TypeAlias = "Callable[[list[Any]], Any]"


class Structure:
    """The structure of a tree without its leaves: hashable and comparable.

    Two structures are equal if the leaves of a tree of one can stand in a tree of the other: if `map` accepts the two
    trees together. `len` of a structure is its number of leaves; its text shows a `*` for each leaf.

    Example:
      >>> import headrace as hr
      >>> s = hr.tree.structure({"b": 2, "a": (1, 3)})
      >>> s, len(s), s == hr.tree.structure({"a": (0, 0), "b": 0})
      (Structure({'b': *, 'a': (*, *)}), 3, True)
      >>> hr.tree.unflatten(s, [10, 20, 30])
      {'b': 30, 'a': (10, 20)}
    """

    __slots__ = ("_children", "_n", "_outline", "_rebuild")

    def __init__(self, outline: Hashable, rebuild: _Rebuild | None, children: Sequence[Structure]) -> None:
        self._outline = outline
        self._rebuild = rebuild
        self._children = tuple(children)
        self._n: int = 1 if rebuild is None else sum(c._n for c in self._children)

    def __len__(self) -> int:
        return self._n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> Hashable:
        return (self._outline, *[c._key() for c in self._children])

    def __repr__(self) -> str:
        return f"Structure({self._packed([_STAR] * self._n)!r})"

    def _packed(self, leaves: Sequence[Any]) -> Any:
        rest = iter(leaves)

        def pack(s: Structure) -> Any:
            return next(rest) if s._rebuild is None else s._rebuild([pack(c) for c in s._children])

        return pack(self)


class _Star:
    """A leaf in the text of a structure."""

    def __repr__(self) -> str:
        return "*"


_STAR = _Star()
_LEAF = Structure("leaf", None, ())


def flatten(tree: Any, is_leaf: IsLeaf | None = None) -> tuple[list[Any], Structure]:
    """Returns the leaves of a tree in order, and its structure.

    Args:
      tree: the tree.
      is_leaf: predicate of trees that count as leaves.

    Raises:
      ValueError: the tree is nested too deeply, or contains itself.

    Source: `jax.tree.flatten`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.flatten({"b": 2, "a": (1, None)})
      ([1, 2], Structure({'b': *, 'a': (*, None)}))
    """
    out: list[Any] = []

    def walk(x: Any) -> Structure:
        node = nest.nodes[type(x)]
        if node is None or (is_leaf is not None and is_leaf(x)):
            out.append(x)
            return _LEAF
        return Structure(node.outline(x), node.rebuilder(x), [walk(part) for part in node.parts(x)])

    return out, nest.bounded(walk)(tree)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """Returns the tree of a structure with the given leaves.

    Args:
      structure: the structure.
      leaves: the leaves, in the order of `flatten`.

    Raises:
      TypeError: `structure` is not a `Structure`.
      ValueError: there are more or fewer leaves than the structure has.

    Source: `jax.tree.unflatten`.

    Example:
      >>> import headrace as hr
      >>> leaves, structure = hr.tree.flatten([1, (2, 3)])
      >>> hr.tree.unflatten(structure, [-x for x in leaves])
      [-1, (-2, -3)]
    """
    if not isinstance(structure, Structure):
        raise TypeError(
            f"unflatten: 'structure' must be a Structure, got {nest.describe(structure)}; hr.tree.structure(tree) "
            "returns that of a tree"
        )
    given = list(leaves)
    if len(given) != len(structure):
        raise ValueError(f"unflatten: {structure} has {len(structure)} leaves, got {len(given)}")
    return structure._packed(given)


def leaves(tree: Any, is_leaf: IsLeaf | None = None) -> list[Any]:
    """Returns the leaves of a tree in order.

    Raises:
      ValueError: the tree is nested too deeply, or contains itself.

    Source: `jax.tree.leaves`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.leaves({"b": 2, "a": (1, None)})
      [1, 2]
    """
    return nest.flatten(tree, is_leaf=is_leaf)


def structure(tree: Any, is_leaf: IsLeaf | None = None) -> Structure:
    """Returns the structure of a tree.

    Raises:
      ValueError: the tree is nested too deeply, or contains itself.

    Source: `jax.tree.structure`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.structure((1, 2)) == hr.tree.structure((3, 4)) != hr.tree.structure([1, 2])
      True
    """
    return flatten(tree, is_leaf)[1]


def map(fn: Callable[..., Any], tree: Any, *others: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Returns a tree with the results of a function for each leaf.

    Args:
      fn: function of one leaf of each tree.
      tree: the tree whose structure the result has.
      others: trees of the same structure.
      is_leaf: predicate of parts of `tree` that count as leaves; `fn` gets the parts of the others at these places.

    Raises:
      ValueError: the trees differ in structure; the text names the place.

    Source: `jax.tree.map`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.map(lambda p, g: p - g, {"w": 3, "b": (1, 2)}, {"w": 1, "b": (1, 1)})
      {'w': 2, 'b': (0, 1)}
    """
    if is_leaf is None:
        return nest.map_leaves(fn, tree, *others)
    found, s = flatten(tree, is_leaf)
    rest = [_parts_at(s, other) for other in others]
    return s._packed([fn(*parts) for parts in zip(found, *rest, strict=True)])


def _parts_at(s: Structure, tree: Any) -> list[Any]:
    """Returns the parts of a tree at the places of the leaves of `s`."""
    if s._rebuild is None:
        return [tree]
    node = nest.nodes[type(tree)]
    if node is None or node.outline(tree) != s._outline:
        raise ValueError(f"different structures: {nest.describe(tree)} where {s} was expected")
    return [x for c, part in zip(s._children, node.parts(tree), strict=True) for x in _parts_at(c, part)]


def paths(tree: Any) -> list[str]:
    """Returns the path of each leaf: the text of the access to it.

    Raises:
      ValueError: the tree is nested too deeply, or contains itself.

    Source: `jax.tree_util.keystr`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.paths({"state": (1, 2)})
      ["['state'][0]", "['state'][1]"]
    """
    return [path for path, _ in nest.flatten_with_paths(tree)]


def flatten_with_paths(tree: Any) -> list[tuple[str, Any]]:
    """Returns the pairs (path, leaf) of all leaves.

    Raises:
      ValueError: the tree is nested too deeply, or contains itself.

    Source: TensorFlow's `nest.flatten_with_joined_string_paths`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.flatten_with_paths({"state": (1, 2)})
      [("['state'][0]", 1), ("['state'][1]", 2)]
    """
    return nest.flatten_with_paths(tree)


def map_with_paths(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Returns a tree with the results of a function of paths and leaves.

    Args:
      fn: function of the path and one leaf of each tree.
      tree: the tree whose structure the result has.
      others: trees of the same structure.

    Raises:
      ValueError: the trees differ in structure; the text names the place.

    Source: `jax.tree_util.tree_map_with_path`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.map_with_paths(lambda path, x: f"{path} is {x}", [1, {"a": 2}])
      ['[0] is 1', {'a': "[1]['a'] is 2"}]
    """
    names = nest.pack(tree, paths(tree))
    return nest.map_leaves(lambda x, path, *rest: fn(path, x, *rest), tree, names, *others)


_NO_START: Any = object()


def reduce(fn: Callable[[Any, Any], Any], tree: Any, initial: Any = _NO_START) -> Any:
    """Combines the leaves of a tree in order with a function of two values.

    Args:
      fn: function of the value so far and a leaf.
      tree: the tree.
      initial: the first value; by default, the first leaf.

    Raises:
      TypeError: the tree has no leaves, and `initial` is not given.

    Source: `jax.tree.reduce`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.reduce(lambda total, x: total + x, {"a": 1, "b": (2, 3)})
      6
    """
    flat = nest.flatten(tree)
    return functools.reduce(fn, flat) if initial is _NO_START else functools.reduce(fn, flat, initial)


def all_leaves(items: Iterable[Any]) -> bool:
    """Whether no element of `items` is a structure.

    Source: `jax.tree_util.all_leaves`.

    Example:
      >>> import headrace as hr
      >>> hr.tree.all_leaves([1, "a"]), hr.tree.all_leaves([1, (2,)])
      (True, False)
    """
    return not any(nest.is_nested(x) for x in items)


def transpose(outer: Structure, inner: Structure, tree: Any) -> Any:
    """Exchanges the two levels of a tree of trees.

    Args:
      outer: the structure of the tree; each of its leaves is a tree of `inner`.
      inner: the structure of these trees.
      tree: the tree.

    Returns:
      A tree of structure `inner`, whose leaves are trees of structure `outer`.

    Raises:
      ValueError: the tree does not have this structure.

    Source: `jax.tree.transpose`.

    Example:
      >>> import headrace as hr
      >>> two, pair = hr.tree.structure([0, 0]), hr.tree.structure({"x": 0, "y": 0})
      >>> hr.tree.transpose(two, pair, [{"x": 1, "y": 2}, {"x": 3, "y": 4}])
      {'x': [1, 3], 'y': [2, 4]}
    """
    rows = [_parts_at(inner, part) for part in _parts_at(outer, tree)]
    columns = zip(*rows, strict=True) if rows else [()] * len(inner)
    return unflatten(inner, [unflatten(outer, column) for column in columns])


def register(kind: type, flatten: Flatten, unflatten: Unflatten) -> None:
    """Makes the instances of a class trees.

    Loops, conditionals, functions, sessions and transforms then take and return such instances. The registration holds
    for the class itself, not for its subclasses, and for the whole process. Named tuples and dataclasses are trees
    without a registration; one replaces the meaning that they have.

    Args:
      kind: the class.
      flatten: function from an instance to a pair: its parts, which are trees, and a hashable remainder.
      unflatten: function from such a remainder and a list of parts to an instance. The parts can be any objects:
        tensors, Python numbers, shapes.

    Raises:
      TypeError: `kind` is not a class, or is one of Python's (a list) or headrace's own.
      DuplicateError (a KeyError): the class is registered already; the text names the line.

    Source: `jax.tree_util.register_pytree_node`.

    Example:
      >>> import headrace as hr
      >>> class Dense:
      ...     def __init__(self, w, b, name):
      ...         self.w, self.b, self.name = w, b, name
      >>> hr.tree.register(Dense, lambda d: ((d.w, d.b), d.name), lambda name, parts: Dense(*parts, name))
      >>> hr.tree.map(lambda x: 2 * x, Dense(1.0, 2.0, "first")).b
      4.0
    """
    if isinstance(kind, type) and (issubclass(kind, TensorOperations) or hasattr(kind, "as_tensor")):
        raise TypeError(f"{kind.__name__} is a class of tensors, which are leaves; register a class of your own")
    nest.register(kind, flatten, unflatten, depth=2)


if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
