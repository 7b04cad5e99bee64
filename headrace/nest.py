"""Nested structures of Python: flatten, pack, map, compare.

A *structure* is a tuple, list, mapping, named tuple, dataclass, instance of a registered class (`register`) or
composite (below) of structures, or None, which is the empty structure. Everything else is a *leaf*: tensors, numbers,
arrays, variables, and all objects with a method `as_tensor`. The leaves have an order: that of the elements and of the
fields; in a mapping, the order of the sorted keys, independent of the order of insertion. A rebuilt mapping has its
keys in the order of insertion.

A *composite* consists of several tensors; its class derives from `Composite`. With `expand=False`, functions treat
composites as leaves. With `is_leaf`, a predicate, they treat the structures that satisfy it as leaves.

`nodes[type(x)]` describes one level of each class: its parts, and how to rebuild an instance. The walks of this module
use it, and so do walks elsewhere with a purpose of their own (the fetches of a session, the names of saved values).

Source: TensorFlow's `tf.nest`; `is_leaf` is that of JAX's `jax.tree_util`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, TypeAlias, TypeVar

from headrace.records import record
from headrace.registry import DuplicateError, line_of_caller

if TYPE_CHECKING:
    from headrace.shapes import Shape

P = ParamSpec("P")
R = TypeVar("R")
IsLeaf: TypeAlias = Callable[[Any], bool]
Flatten: TypeAlias = Callable[[Any], tuple[Iterable[Any], Hashable]]  # an instance → its parts and the remainder
Unflatten: TypeAlias = Callable[[Any, Sequence[Any]], Any]  # the remainder and parts → an instance


class Composite:
    """Base class of objects that consist of tensors: `SparseTensor`, `IndexedSlices`, `TensorArray`.

    Two composites have the same structure if they have the same class, number of parts and key.

    If a class has the attribute `fetched_as`, a function of the values of the parts, its instances can be fetched from
    a session and fed to it. The result of the function is the fetched value. If `is_fetched_as_itself` is true, the
    fetched value is a composite like the instance, with the values as its parts.

    Raises (when a class is derived):
      TypeError: the class lacks `_flatten` or `_unflatten`.

    Example:
      >>> class Interval(Composite):
      ...     def __init__(self, low, high):
      ...         self.low, self.high = low, high
      ...     def _flatten(self):
      ...         return [self.low, self.high]
      ...     def _unflatten(self, parts):
      ...         return Interval(*parts)
      >>> flatten({"b": Interval(2, 3), "a": 1})
      [1, 2, 3]
      >>> map_leaves(lambda x: -x, Interval(2, 3)).high
      -3
    """

    __slots__ = ()

    is_fetched_as_itself = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        missing = [m for m in ("_flatten", "_unflatten") if getattr(cls, m) is getattr(Composite, m)]
        if missing:
            raise TypeError(f"the composite {cls.__name__} must define {' and '.join(missing)}")

    def _flatten(self) -> list[Any]:
        """Returns the parts, which are tensors."""
        raise NotImplementedError

    def _unflatten(self, parts: Sequence[Any]) -> Any:
        """Returns a composite like this one with other parts, in the order of `_flatten`."""
        raise NotImplementedError

    def _key(self) -> Hashable:
        """Returns the properties that composites of one structure share: a text or another hashable value."""
        return None

    def _merged(self, other: Any) -> Any:
        """Returns this composite with the static information of both; the structures are equal."""
        return self

    def _loop_shapes(self, invariant: Shape) -> list[Shape] | None:
        """Returns shapes that the parts have in all iterations of a loop (`api.while_loop`).

        Args:
          invariant: the shape invariant of the loop variable; None for none.

        Returns:
          A shape for each part; None if the parts follow the rule for tensors.

        Raises:
          ShapeError (a ValueError): `invariant` cannot be the shape of such a composite.
        """
        return None


# *** one level of a structure ***


@record(frozen=True, slots=True)
class Node:
    """Functions that flatten one level of the instances of a class, and rebuild them.

    Attributes:
      parts: returns the parts of an instance in order.
      as_given: returns the parts of an instance in its own order; for a mapping, the order of insertion.
      keys: returns the keys of the parts, in the order of `parts`: numbers, names of fields, keys of a mapping.
      path: returns, for a key, the text of the access to the part, such as "['a']".
      form: returns a hashable value with all properties of an instance, other than the parts, that `rebuilder` uses.
      rebuilder: returns a function that makes a structure like an instance from a list of parts, which it may keep. The
        function has no reference to the instance, unless that is a composite.
      outline: returns a hashable value, equal for instances that can have the same leaves.
      describe: returns a short description of an instance for messages.
      is_composite: whether the class is a `Composite`.
      fetched_as: function of a composite's class that makes the fetched value from the values of the parts, or None.
      is_fetchable: whether an instance may be among the fetches of a session. None is not, nor is a composite without
        `fetched_as`.
    """

    parts: Callable[[Any], Sequence[Any]]
    as_given: Callable[[Any], Iterable[Any]]
    keys: Callable[[Any], Sequence[Any]]
    path: Callable[[Any], str]
    form: Callable[[Any], Hashable]
    rebuilder: Callable[[Any], Callable[[list[Any]], Any]]
    outline: Callable[[Any], Hashable]
    describe: Callable[[Any], str]
    is_composite: bool = False
    fetched_as: Callable[..., Any] | None = None
    is_fetchable: bool = True


_in_brackets: Final = "[{!r}]".format
_behind_dot: Final = ".{}".format


def _numbers(x: Sequence[Any]) -> Sequence[int]:
    return range(len(x))


def _itself(parts: list[Any]) -> list[Any]:
    return parts


def _nothing() -> Node:
    return Node(
        parts=lambda x: (),
        as_given=lambda x: (),
        keys=lambda x: (),
        path=_in_brackets,
        form=type,
        rebuilder=lambda x: lambda parts: None,
        outline=lambda x: "None",
        describe=lambda x: "None",
        is_fetchable=False,
    )


def _sequence(base: type) -> Node:
    noun = base.__name__
    return Node(
        parts=list,  # a copy in C is cheaper than a call of Python's
        as_given=iter,
        keys=_numbers,
        path=_in_brackets,
        form=type,
        rebuilder=lambda x: _itself if base is list else tuple,
        outline=lambda x: (base, len(x)),
        describe=lambda x: f"a {noun} of {len(x)}",
    )


def _named_tuple(kind: Any) -> Node:
    fields = kind._fields
    outline, words = (kind.__name__, fields), f"a {kind.__name__}({', '.join(fields)})"
    return Node(
        parts=tuple,
        as_given=iter,
        keys=lambda x: fields,
        path=_behind_dot,
        form=type,
        rebuilder=lambda x: lambda parts: kind(*parts),
        outline=lambda x: outline,
        describe=lambda x: words,
    )


def _mapping(kind: Any) -> Node:
    has_factory = hasattr(kind, "default_factory")  # a defaultdict's first argument

    def parts(x: Mapping[Any, Any]) -> list[Any]:
        return [x[k] for k in _sorted_keys(x)]

    def rebuilder(x: Any) -> Callable[[list[Any]], Any]:
        keys, inserted = _sorted_keys(x), list(x)
        at = {k: i for i, k in enumerate(keys)}
        order = [(k, at[k]) for k in inserted]
        if kind is dict:
            return lambda parts: {k: parts[i] for k, i in order}
        first = (x.default_factory,) if has_factory else ()
        return lambda parts: kind(*first, {k: parts[i] for k, i in order})

    return Node(
        parts=parts,
        keys=_sorted_keys,
        as_given=dict.values if kind is dict else lambda x: [x[k] for k in x],
        path=_in_brackets,
        form=lambda x: (kind, x.default_factory if has_factory else None, *x, *map(type, x)),  # 1 == True
        rebuilder=rebuilder,
        outline=lambda x: (dict, tuple(map(repr, _sorted_keys(x)))),
        describe=lambda x: f"a {kind.__name__} with the keys {_sorted_keys(x)}",
    )


_by_identity: Final[Any] = object.__hash__


def _sorted_keys(x: Mapping[Any, Any]) -> list[Any]:
    keys = list(x)
    if len(keys) < 2 or _by_identity in [type(k).__hash__ for k in keys]:
        return keys  # objects that equal only themselves (tensors, whose comparison is an operation) have no order
    try:
        return sorted(keys)
    except TypeError:  # keys of several kinds
        return keys


def _record(kind: Any) -> Node:
    fields = dataclasses.fields(kind)
    names = [f.name for f in fields]
    given = [(i, f.name) for i, f in enumerate(fields) if f.init]
    set_later = [(i, f.name) for i, f in enumerate(fields) if not f.init]
    words = f"a {kind.__name__}({', '.join(names)})"

    def parts(x: Any) -> list[Any]:
        return [getattr(x, name) for name in names]

    def rebuilt(parts: list[Any]) -> Any:
        out = kind(**{name: parts[i] for i, name in given})
        for i, name in set_later:
            object.__setattr__(out, name, parts[i])
        return out

    return Node(
        parts=parts,
        as_given=parts,
        keys=lambda x: names,
        path=_behind_dot,
        form=type,
        rebuilder=lambda x: rebuilt,
        outline=lambda x: (kind, len(names)),
        describe=lambda x: words,
    )


def _composite(kind: type[Composite]) -> Node:
    name, fetched_as = _with_article(kind.__name__), getattr(kind, "fetched_as", None)

    def describe(x: Composite) -> str:
        key = x._key()
        return name if key is None else f"{name} of {key}"

    return Node(
        parts=kind._flatten,
        as_given=kind._flatten,
        keys=lambda x: range(len(x._flatten())),
        path=" (part {})".format,
        form=(lambda x: (kind, x._key())) if kind.is_fetched_as_itself else type,
        rebuilder=lambda x: x._unflatten,
        outline=lambda x: (kind, x._key(), len(x._flatten())),
        describe=describe,
        is_composite=True,
        fetched_as=fetched_as,
        is_fetchable=fetched_as is not None or kind.is_fetched_as_itself,
    )


def _registered_node(kind: type, flatten: Flatten, unflatten: Unflatten) -> Node:
    words = _with_article(kind.__name__)

    def split(x: Any) -> tuple[list[Any], Hashable]:
        try:
            parts, rest = flatten(x)
            hash(rest)
            return list(parts), rest
        except (TypeError, ValueError) as e:
            e.add_note(f"while flattening {words}: the registered function must return (parts, hashable remainder)")
            raise

    def rebuilder(x: Any) -> Callable[[list[Any]], Any]:
        rest = split(x)[1]
        return lambda parts: unflatten(rest, parts)

    def outline(x: Any) -> Hashable:
        parts, rest = split(x)
        return (kind, rest, len(parts))

    return Node(
        parts=lambda x: split(x)[0],
        as_given=lambda x: split(x)[0],
        keys=lambda x: range(len(split(x)[0])),
        path=" (part {})".format,
        form=lambda x: (kind, split(x)[1]),
        rebuilder=rebuilder,
        outline=outline,
        describe=lambda x: words,
    )


def _node_of(kind: type) -> Node | None:
    if kind in _registered:
        return _registered[kind][0]
    if kind is type(None):
        return _nothing()
    if issubclass(kind, Composite):
        return _composite(kind)
    if issubclass(kind, tuple):
        return _named_tuple(kind) if hasattr(kind, "_fields") else _sequence(tuple)
    if issubclass(kind, list):
        return _sequence(list)
    if issubclass(kind, Mapping):
        return _mapping(kind)
    if dataclasses.is_dataclass(kind) and not hasattr(kind, "as_tensor"):
        return _record(kind)
    return None


class _Nodes(dict[type, "Node | None"]):
    """The node of each class, None for a class of leaves.

    A miss adds the class.

    >>> n = nodes[dict]
    >>> n.keys({"b": 2, "a": 1}), n.parts({"b": 2, "a": 1}), n.rebuilder({"b": 2, "a": 1})([10, 20])
    (['a', 'b'], [1, 2], {'b': 20, 'a': 10})
    """

    MOST: Final = 4096  # classes; a program that defines more (a named tuple for each step) starts again

    def __missing__(self, kind: type) -> Node | None:
        if len(self) >= self.MOST:
            self.clear()
        found = self[kind] = _node_of(kind)
        return found


nodes: Final = _Nodes()
_registered: Final[dict[type, tuple[Node, str]]] = {}  # a class of the user → its node, and the line of the call


def register(kind: type, flatten: Flatten, unflatten: Unflatten, depth: int = 1) -> None:
    """Makes the instances of a class structures; `headrace.tree.register` describes the arguments.

    Args:
      kind: the class. Its subclasses are not registered with it.
      flatten: function from an instance to its parts and its hashable remainder.
      unflatten: function from a remainder and parts to an instance.
      depth: the number of stack frames between this function and the line that counts as the place of registration.

    Raises:
      TypeError: `kind` is not a class, or is one of Python's structures or a composite.
      DuplicateError: `kind` is registered already.
    """
    if not isinstance(kind, type):
        raise TypeError(f"a class is registered, got {describe(kind)}")
    if issubclass(kind, Composite) or kind in (tuple, list, dict, type(None)):
        raise TypeError(f"{kind.__name__} is a structure already; register a class of your own")
    if kind in _registered:
        raise DuplicateError(f"the class {kind.__name__} is registered already, at {_registered[kind][1]}")
    _registered[kind] = _registered_node(kind, flatten, unflatten), line_of_caller(depth)
    nodes.pop(kind, None)


def rebuilt(x: Any, parts: Sequence[Any]) -> Any:
    """Returns a structure like `x` with other parts.

    Args:
      x: a structure.
      parts: the new parts, in the order and number of `nodes[type(x)].parts(x)`.

    Raises:
      TypeError: `x` is a leaf.

    >>> rebuilt({"b": 0, "a": 0}, [1, 2])
    {'b': 2, 'a': 1}
    """
    found = nodes[type(x)]
    if found is None:
        raise TypeError(f"{describe(x)} has no parts")
    return found.rebuilder(x)(list(parts))


def is_composite(x: Any) -> bool:
    """Whether `x` is a composite: a `SparseTensor`, `IndexedSlices` or `TensorArray`."""
    return isinstance(x, Composite)


def is_nested(x: Any) -> bool:
    """Whether `x` is a structure, not a leaf."""
    return nodes[type(x)] is not None


def as_list(x: Any) -> list[Any]:
    """Returns the elements of a list or tuple as a list, or `[x]`.

    >>> as_list((1, 2)), as_list(3)
    ([1, 2], [3])
    """
    return list(x) if isinstance(x, (list, tuple)) else [x]


# *** walks ***


def bounded(walk: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a recursive walk: a structure deeper than Python's stack is a ValueError."""

    @functools.wraps(walk)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return walk(*args, **kwargs)
        except RecursionError:
            raise too_deep() from None

    return wrapper


def too_deep() -> ValueError:
    """Returns the error of a walk that exceeds Python's stack."""
    return ValueError("a structure (of lists, tuples, dicts, dataclasses) is nested too deeply, or contains itself")


def _node_in(x: Any, expand: bool, is_leaf: IsLeaf | None) -> Node | None:
    """Returns the node of `x`; None for a leaf of a walk with these arguments."""
    found = nodes[type(x)]
    if found is None or (found.is_composite and not expand) or (is_leaf is not None and is_leaf(x)):
        return None
    return found


def flatten(structure: Any, expand: bool = True, is_leaf: IsLeaf | None = None, as_given: bool = False) -> list[Any]:
    """Returns the leaves in order.

    With `as_given`, the leaves of a mapping are in the order of insertion.

    >>> flatten({"b": 2, "a": (1, [None, 3])})
    [1, 3, 2]
    >>> flatten([None, (1, 2)], is_leaf=lambda x: x is None or isinstance(x, tuple))
    [None, (1, 2)]
    """
    out: list[Any] = []
    try:  # not `bounded`, whose call takes a third of the time of a flat list
        _flatten_into((structure,), out, expand, is_leaf, as_given)
    except RecursionError:
        raise too_deep() from None
    return out


def _flatten_into(parts: Iterable[Any], out: list[Any], expand: bool, is_leaf: IsLeaf | None, as_given: bool) -> None:
    for x in parts:
        found = nodes[type(x)]
        if found is None or (found.is_composite and not expand) or (is_leaf is not None and is_leaf(x)):
            out.append(x)
        else:
            _flatten_into(found.as_given(x) if as_given else found.parts(x), out, expand, is_leaf, as_given)


@bounded
def flatten_with_paths(structure: Any, start: str = "") -> list[tuple[str, Any]]:
    """Returns the pairs (path, leaf) of all leaves.

    A path is the text of the access to the leaf, after the name of the structure.

    >>> flatten_with_paths({"state": (1, 2)})
    [("['state'][0]", 1), ("['state'][1]", 2)]
    """
    out: list[tuple[str, Any]] = []
    _paths_into(structure, start, out)
    return out


def _paths_into(x: Any, path: str, out: list[tuple[str, Any]]) -> None:
    found = nodes[type(x)]
    if found is None:
        out.append((path, x))
        return
    for key, part in zip(found.keys(x), found.parts(x), strict=True):
        _paths_into(part, path + found.path(key), out)


@bounded
def pack(structure: Any, leaves: Sequence[Any], expand: bool = True, is_leaf: IsLeaf | None = None) -> Any:
    """Returns a structure like `structure` with other leaves.

    >>> pack({"b": 0, "a": (0, 0)}, [1, 2, 3])
    {'b': 3, 'a': (1, 2)}

    Raises:
      ValueError: `structure` has more or fewer leaves than are given.
    """
    rest = iter(leaves)
    try:
        out = _pack(structure, rest, expand, is_leaf)
    except _TooFew:
        pass
    else:
        if next(rest, _END) is _END:
            return out
    n = len(flatten(structure, expand, is_leaf))
    raise ValueError(f"the structure has {n} leaves, got {len(leaves)}: {describe(structure)}")


_END: Final = object()


class _TooFew(Exception):
    pass


def _pack(x: Any, leaves: Iterator[Any], expand: bool, is_leaf: IsLeaf | None) -> Any:
    found = _node_in(x, expand, is_leaf)
    if found is not None:
        return found.rebuilder(x)([_pack(part, leaves, expand, is_leaf) for part in found.parts(x)])
    leaf = next(leaves, _END)
    if leaf is _END:
        raise _TooFew
    return leaf


def map_leaves(
    fn: Callable[..., Any], structure: Any, *others: Any, expand: bool = True, is_leaf: IsLeaf | None = None
) -> Any:
    """Returns a structure like `structure` with the results of `fn` for each leaf.

    `fn` also receives the leaves of `others` at the same place.

    >>> map_leaves(lambda x, y: x + y, (1, {"a": 2}), (10, {"a": 20}))
    (11, {'a': 22})

    Raises:
      ValueError: `others` have another structure; the text names the path.
    """
    for other in others:
        found = mismatch(structure, other)
        if found is not None:
            raise ValueError(f"different structures{found}")
    flat = [flatten(s, expand, is_leaf) for s in (structure, *others)]
    return pack(structure, [fn(*leaves) for leaves in zip(*flat, strict=True)], expand, is_leaf)


@bounded
def merged(first: Any, second: Any) -> Any:
    """Returns `first` with the static information of both in its composites; the structures are equal."""
    return _merged(first, second)


def _merged(first: Any, second: Any) -> Any:
    found = nodes[type(first)]
    if found is None:
        return first
    if found.is_composite:
        return first._merged(second)
    other = nodes[type(second)]
    others = () if other is None else other.parts(second)
    return found.rebuilder(first)([_merged(x, y) for x, y in zip(found.parts(first), others, strict=True)])


@bounded
def flatten_up_to(structure: Any, other: Any, expand: bool = True) -> list[Any]:
    """Returns the parts of `other` at the places of the leaves of `structure`.

    All leaves of a composite in `structure` get the same part.

    >>> flatten_up_to({"x": 0, "y": (0, 0)}, {"x": (1, 2), "y": ("a", None)})
    [(1, 2), 'a', None]

    Raises:
      ValueError: `other` differs from `structure` above its leaves.
    """
    return _flatten_up_to(structure, other, expand)


def _flatten_up_to(structure: Any, other: Any, expand: bool) -> list[Any]:
    found = _node_in(structure, expand, None)
    if found is None:
        return [other]
    parts = found.parts(structure)
    if found.is_composite:
        return [other] * len(parts)
    others = _parts_as_in(structure, found, other)
    if others is None or len(others) != len(parts):
        raise ValueError(f"{describe(other)} where {describe(structure)} was expected")
    return [leaf for x, y in zip(parts, others, strict=True) for leaf in _flatten_up_to(x, y, expand)]


def _parts_as_in(structure: Any, found: Node, other: Any) -> Sequence[Any] | None:
    """Parts of `other` in the order of those of `structure`; None if the two differ.

    The result is None for a leaf and for a mapping with other keys. Parts of mappings are paired by key, because keys
    without an order (numbers and texts together, objects) are in the order of insertion, which may differ.
    """
    if isinstance(structure, Mapping):
        is_alike = isinstance(other, Mapping) and structure.keys() == other.keys()
        return [other[k] for k in found.keys(structure)] if is_alike else None
    same = nodes[type(other)]
    return None if same is None else same.parts(other)


# *** comparison and texts ***


class Mismatch(NamedTuple):
    """The first difference of two structures.

    Attributes:
      path: the path to the difference; "" for the whole structure.
      first: a description of the part of the first structure.
      second: a description of the part of the second structure.
    """

    path: str
    first: str
    second: str

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{where}: {self.first} and {self.second}"


@bounded
def mismatch(first: Any, second: Any, path: str = "", expand: bool = True) -> Mismatch | None:
    """Returns the first difference of two structures; None if they differ in leaves only.

    >>> print(mismatch({"a": (1, 2)}, {"a": (1, 2, 3)}))
     at ['a']: a tuple of 2 and a tuple of 3
    """
    return _mismatch(first, second, path, expand)


def _mismatch(first: Any, second: Any, path: str, expand: bool) -> Mismatch | None:
    a, b = _node_in(first, expand, None), _node_in(second, expand, None)
    if a is None and b is None:
        return None
    if a is None or b is None or a.outline(first) != b.outline(second):
        return Mismatch(path, describe(first), describe(second))
    for key, x, y in zip(a.keys(first), a.parts(first), b.parts(second), strict=True):
        found = _mismatch(x, y, path + a.path(key), expand)
        if found is not None:
            return found
    return None


@bounded
def outline(structure: Any) -> Hashable:
    """Returns a hashable value, equal for structures that differ in their leaves only."""
    return _outline(structure)


def _outline(x: Any) -> Hashable:
    found = nodes[type(x)]
    return None if found is None else (found.outline(x), *[_outline(part) for part in found.parts(x)])


@functools.singledispatch
def describe(x: Any) -> str:
    """Returns a short description of `x` for messages.

    Modules register the texts of their classes (`describe.register`).

    >>> describe((1, 2)), describe({"a": 1}), describe(None), describe(3)
    ('a tuple of 2', "a dict with the keys ['a']", 'None', 'the number 3')
    """
    found = nodes[type(x)]
    if found is not None:
        return found.describe(x)
    if isinstance(x, (int, float, complex)):
        return f"the number {x!r}"
    return _with_article(type(x).__name__)


def _with_article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
