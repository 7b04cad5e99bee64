"""Nested structures: what a branch may return, what a loop may carry, what a function may take.

A *structure* is a tuple, list, dict, named tuple, dataclass, or a composite object (below) of structures, or None,
which is the empty one. All else is a *leaf*: tensors, numbers, arrays, variables. The leaves have an order: that of
sequences and fields; a dict's are in the order of its sorted keys, whatever order they were put in.

A *composite* stands for several tensors: it has `_flatten()`, which gives them, and `_unflatten(tensors)`, which gives
an object like it of others. Two composites have the same structure if they are of one class, with equally many parts,
and their `_key()`s, where they have that method, are equal. With `expand=False`, functions take composites for leaves.
Composites may have further methods: `_merged(other)` (see `merged`), and `_loop_shapes(invariant)`, the shapes of the
parts in all iterations of a loop (see `api.while_loop`).

Source: TensorFlow's `tf.nest`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

from headrace.ir.graph import Operation, Tensor

P = ParamSpec("P")
R = TypeVar("R")


def _parts(x: Any, expand: bool = True) -> list[tuple[str, Any]] | None:
    """The parts of a structure, each with how it is reached from it; None for a leaf."""
    kind = type(x)
    if kind is int or kind is float or isinstance(x, Tensor):
        return None
    if x is None:
        return []
    if hasattr(kind, "_flatten"):
        return [(f" (part {i})", t) for i, t in enumerate(x._flatten())] if expand else None
    if isinstance(x, (list, tuple)):
        fields = getattr(x, "_fields", None)
        if fields is not None:
            return [(f".{f}", v) for f, v in zip(fields, x, strict=True)]
        return [(f"[{i}]", v) for i, v in enumerate(x)]
    if isinstance(x, Mapping):
        return [(f"[{k!r}]", x[k]) for k in _keys(x)]
    if is_record(x):
        return [(f".{f.name}", getattr(x, f.name)) for f in dataclasses.fields(x)]
    return None


def _rebuilt(x: Any, parts: list[Any]) -> Any:
    """A structure like `x` of other parts."""
    if x is None:
        return None
    kind = type(x)
    if hasattr(kind, "_flatten"):
        return x._unflatten(parts)
    if isinstance(x, tuple):
        return kind(*parts) if hasattr(x, "_fields") else tuple(parts)
    if isinstance(x, list):
        return parts
    if isinstance(x, Mapping):
        new = dict(zip(_keys(x), parts, strict=True))
        items = {k: new[k] for k in x}  # in the user's order
        if kind is dict:
            return items
        factory = getattr(x, "default_factory", None)  # a defaultdict wants that first
        return kind(factory, items) if factory is not None else kind(items)
    fields = dataclasses.fields(x)
    out = dataclasses.replace(x, **{f.name: v for f, v in zip(fields, parts, strict=True) if f.init})
    for f, v in zip(fields, parts, strict=True):
        if not f.init:
            object.__setattr__(out, f.name, v)
    return out


def _keys(x: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(x)
    except TypeError:  # keys of several kinds
        return list(x)


def is_record(x: Any) -> bool:
    """Whether `x` is an instance of a dataclass whose fields are parts of a structure (a variable is a leaf)."""
    return dataclasses.is_dataclass(x) and not isinstance(x, type) and not hasattr(type(x), "as_tensor")


def is_composite(x: Any) -> bool:
    """Whether `x` stands for several tensors: a `SparseTensor`, `IndexedSlices` or `TensorArray`."""
    return hasattr(type(x), "_flatten")


def is_nested(x: Any) -> bool:
    """Whether `x` is a structure, not a leaf."""
    return _parts(x) is not None


def bounded(walk: Callable[P, R]) -> Callable[P, R]:
    """Decorates a walk over a structure, which recurses: one that is deeper than Python's stack is a ValueError."""

    @functools.wraps(walk)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return walk(*args, **kwargs)
        except RecursionError:
            raise ValueError(
                "a structure (of lists, tuples, dicts, dataclasses) is nested too deeply, or contains itself"
            ) from None

    return wrapper


@bounded
def flatten(structure: Any, expand: bool = True) -> list[Any]:
    """The leaves, in order.

    >>> flatten({"b": 2, "a": (1, [None, 3])})
    [1, 3, 2]
    """
    out: list[Any] = []
    _flatten_into(structure, out, expand)
    return out


def _flatten_into(x: Any, out: list[Any], expand: bool) -> None:
    parts = _parts(x, expand)
    if parts is None:
        out.append(x)
    else:
        for _, part in parts:
            _flatten_into(part, out, expand)


@bounded
def flatten_with_paths(structure: Any, start: str = "") -> list[tuple[str, Any]]:
    """(path, leaf) of each leaf; a path is what one writes behind the structure to get the leaf.

    >>> flatten_with_paths({"state": (1, 2)})
    [("['state'][0]", 1), ("['state'][1]", 2)]
    """
    out: list[tuple[str, Any]] = []
    _paths_into(structure, start, out)
    return out


def _paths_into(x: Any, path: str, out: list[tuple[str, Any]]) -> None:
    parts = _parts(x)
    if parts is None:
        out.append((path, x))
    else:
        for how, part in parts:
            _paths_into(part, path + how, out)


def pack(structure: Any, leaves: Sequence[Any], expand: bool = True) -> Any:
    """A structure like `structure` with other leaves.

    >>> pack({"b": 0, "a": (0, 0)}, [1, 2, 3])
    {'b': 3, 'a': (1, 2)}

    Raises:
      ValueError: there are more or fewer leaves than it has places.
    """
    rest = iter(leaves)
    try:
        out = _pack(structure, rest, expand)
    except _TooFew:
        n = len(flatten(structure, expand))
        raise ValueError(f"the structure has {n} leaves, got {len(leaves)}: {describe(structure)}") from None
    if next(rest, _END) is not _END:
        raise ValueError(
            f"the structure has {len(flatten(structure, expand))} leaves, got {len(leaves)}: {describe(structure)}"
        )
    return out


_END = object()


class _TooFew(Exception):
    pass


def _pack(x: Any, leaves: Iterator[Any], expand: bool) -> Any:
    parts = _parts(x, expand)
    if parts is not None:
        return _rebuilt(x, [_pack(part, leaves, expand) for _, part in parts])
    leaf = next(leaves, _END)
    if leaf is _END:
        raise _TooFew
    return leaf


def map_leaves(fn: Callable[..., Any], structure: Any, *others: Any, expand: bool = True) -> Any:
    """A structure like `structure` of what `fn` makes of each leaf (with the leaves of `others` in the same place).

    >>> map_leaves(lambda x, y: x + y, (1, {"a": 2}), (10, {"a": 20}))
    (11, {'a': 22})

    Raises:
      ValueError: `others` have another structure; the text names the path.
    """
    for other in others:
        found = mismatch(structure, other)
        if found is not None:
            raise ValueError(f"different structures{found}")
    flat = [flatten(s, expand) for s in (structure, *others)]
    return pack(structure, [fn(*leaves) for leaves in zip(*flat, strict=True)], expand)


def merged(first: Any, second: Any) -> Any:
    """`first`, its composites with what `second`, of the same structure, knows of them besides (`_merged(other)`)."""
    if hasattr(type(first), "_flatten"):
        return first._merged(second) if hasattr(type(first), "_merged") else first
    parts = _parts(first)
    if not parts:
        return first
    return _rebuilt(first, [merged(x, y) for (_, x), (_, y) in zip(parts, _parts(second) or (), strict=True)])


def flatten_up_to(structure: Any, other: Any, expand: bool = True) -> list[Any]:
    """What `other`, which is like `structure` as far as that goes, has in the place of each leaf; for a composite the
    same for all its leaves.

    >>> flatten_up_to({"x": 0, "y": (0, 0)}, {"x": (1, 2), "y": ("a", None)})
    [(1, 2), 'a', None]

    Raises:
      ValueError: `other` is not like `structure`.
    """
    parts = _parts(structure, expand)
    if parts is None:
        return [other]
    if hasattr(type(structure), "_flatten"):
        return [other] * len(parts)
    others = _parts(other)
    if others is None or len(others) != len(parts) or not _has_keys_of(structure, other):
        raise ValueError(f"{describe(other)} where {describe(structure)} was expected")
    return [leaf for (_, x), (_, y) in zip(parts, others, strict=True) for leaf in flatten_up_to(x, y, expand)]


def _has_keys_of(structure: Any, other: Any) -> bool:
    return not isinstance(structure, Mapping) or (isinstance(other, Mapping) and structure.keys() == other.keys())


class Mismatch(NamedTuple):
    """Where two structures differ first.

    Attributes:
      path: how one gets there from the whole; "" for the whole.
      first, second: what each has there, in words.
    """

    path: str
    first: str
    second: str

    def __str__(self) -> str:
        where = f" at {self.path}" if self.path else ""
        return f"{where}: {self.first} and {self.second}"


def mismatch(first: Any, second: Any, path: str = "", expand: bool = True) -> Mismatch | None:
    """Where the structures differ first; None if they are the same. What the leaves are does not matter.

    >>> print(mismatch({"a": (1, 2)}, {"a": (1, 2, 3)}))
     at ['a']: a tuple of 2 and a tuple of 3
    """
    a, b = _parts(first, expand), _parts(second, expand)
    if _kind(first, a) != _kind(second, b):
        return Mismatch(path, describe(first), describe(second))
    for (how, x), (_, y) in zip(a or (), b or (), strict=True):
        found = mismatch(x, y, path + how, expand)
        if found is not None:
            return found
    return None


def _kind(x: Any, parts: list[tuple[str, Any]] | None) -> Any:
    """Equal for structures that can have the same leaves: of one sort, with as many parts."""
    if parts is None:
        return None
    if x is None:
        return "None"
    kind = type(x)
    if hasattr(kind, "_flatten"):
        key = getattr(x, "_key", None)
        return kind, None if key is None else key(), len(parts)
    if isinstance(x, (list, tuple)):
        if hasattr(x, "_fields"):
            return kind.__name__, x._fields
        return list if isinstance(x, list) else tuple, len(x)
    if isinstance(x, Mapping):
        return dict, tuple(map(repr, _keys(x)))
    return kind, len(parts)


def outline(structure: Any) -> Any:
    """A hashable value, equal for equal structures, whatever their leaves."""
    parts = _parts(structure)
    if parts is None:
        return None
    return _kind(structure, parts), tuple([outline(part) for _, part in parts])


def describe(x: Any) -> str:
    """What `x` is, in a few words.

    >>> describe((1, 2)), describe({"a": 1}), describe(None), describe(3)
    ('a tuple of 2', "a dict with the keys ['a']", 'None', 'the number 3')
    """
    if x is None:
        return "None"
    if isinstance(x, Tensor):
        return f"the tensor {x.name!r}"
    if isinstance(x, Operation):
        return f"the operation {x.name!r}"
    kind = type(x)
    if isinstance(x, (list, tuple)):
        if hasattr(x, "_fields"):
            return f"a {kind.__name__}({', '.join(x._fields)})"
        return f"a {'list' if isinstance(x, list) else 'tuple'} of {len(x)}"
    if isinstance(x, Mapping):
        return f"a {kind.__name__} with the keys {_keys(x)}"
    if is_record(x):
        return f"a {kind.__name__}({', '.join(f.name for f in dataclasses.fields(x))})"
    if isinstance(x, (int, float, complex)):
        return f"the number {x!r}"
    key = getattr(x, "_key", None)
    return f"{_article(kind.__name__)}" + (f" of {key()}" if key is not None else "")


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
