"""Parsing of serialized examples into features: `hr.io.parse_example` and related functions.

An example is a message of named features, each a list of bytes, floats or ints. A sequence example has a context of
such features, and named lists of them. The caller describes each requested feature by an object: `FixedLenFeature`,
`VarLenFeature`, `FixedLenSequenceFeature` or `SparseFeature`.

Source: TensorFlow's `tf.io.parse_example` and the messages `tensorflow.Example`, `tensorflow.SequenceExample`.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import arrays, scopes, sparse
from headrace.api.sparse_tensor import SparseTensor
from headrace.errors import ShapeError
from headrace.shapes import Shape


class VarLenFeature(NamedTuple):
    """A feature with any number of elements in each example: a `SparseTensor`.

    Source: TensorFlow's `tf.io.VarLenFeature`.
    """

    dtype: Any


class FixedLenFeature(NamedTuple):
    """A feature of the same shape in each example: a tensor.

    Args:
      shape: of the feature; the first dimension is known.
      dtype: float32, int64 or string.
      default_value: what stands for a feature that is missing; if None, that is an error.

    Source: TensorFlow's `tf.io.FixedLenFeature`.
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """A feature that is a sequence of parts of one shape: a tensor, filled up to the longest sequence.

    Args:
      shape: of a part.
      dtype: float32, int64 or string.
      allow_missing: whether it may be missing. (`parse_example` takes no other; for lists of features of a single
        sequence example it may be False.)
      default_value: a scalar that fills up; zero or empty if None.

    Source: TensorFlow's `tf.io.FixedLenSequenceFeature`.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class SparseFeature(NamedTuple):
    """Two or more features of an example that give the values of a `SparseTensor`, and where they stand.

    Args:
      index_key: the int64 feature that has the index of each value; several for as many axes.
      value_key: the feature that has the values.
      dtype: of the values: float32, int64 or string.
      size: the length of the axis; several for as many axes.
      already_sorted: whether the indices are known to be in order.

    Source: TensorFlow's `tf.io.SparseFeature`.
    """

    index_key: Any
    value_key: Any
    dtype: Any
    size: Any
    already_sorted: bool = False


_Features = Mapping[Any, Any]


@dataclasses.dataclass
class _Wanted:
    """What an op is asked for: sparse keys with dtypes, dense ones with dtypes, shapes and defaults."""

    sparse: dict[Any, Any] = dataclasses.field(default_factory=dict)
    dense: dict[Any, tuple[Any, Shape, Any]] = dataclasses.field(default_factory=dict)
    missing: set[Any] = dataclasses.field(default_factory=set)  # dense keys that need not be there

    def add_sparse(self, key: Any, dtype: Any) -> None:
        wanted = dtypes.as_dtype(dtype)
        if self.sparse.setdefault(key, wanted) != wanted:
            raise ValueError(f"Conflicting type {self.sparse[key]} vs {wanted} for feature {key}.")

    def check(self) -> None:
        both = sorted(self.sparse.keys() & self.dense.keys())
        if both:
            raise ValueError(f"Dense and sparse keys must not intersect; both are asked for: {both}")

    def defaults(self, b: Any) -> list[Any]:
        """What stands for dense features that are missing: an empty vector for what must be there."""
        return [_default(b, key, *self.dense[key]) for key in self.dense]

    @property
    def shapes(self) -> list[Shape]:
        return [shape for _, shape, _ in self.dense.values()]

    @property
    def types(self) -> list[Any]:
        return [dtype for dtype, _, _ in self.dense.values()]


def _default(b: Any, key: Any, dtype: Any, shape: Shape, value: Any) -> Any:
    """The default of a feature, as the op wants it: of the shape, a scalar for a sequence, empty if there is none."""
    is_sequence = shape is not None and len(shape) > 0 and shape[0] is None
    if value is None:
        nothing = np.zeros(() if is_sequence else (0,), dtype.numpy)
        return b.const(np.array(b"", object) if is_sequence and dtype is dtypes.string else nothing, dtype)
    text = key.decode(errors="replace") if isinstance(key, bytes) else str(key)
    clean = "".join(c if c.isalnum() or c in "_.\\-/>" else "_" for c in text)
    given = b.tensor(value, dtype, ("padding_" if is_sequence else "key_") + clean)
    return arrays.reshape(given, np.array(() if is_sequence else shape, np.int32))


def _said(what: str, key: Any, feature: Any) -> ValueError:
    return ValueError(f"{what} for feature {key}. Received feature={feature}.")


def _sorted(features: _Features) -> list[tuple[Any, Any]]:
    return sorted(features.items(), key=lambda item: item[0])


def _fixed(wanted: _Wanted, key: Any, feature: FixedLenFeature) -> None:
    if feature.shape is None:
        raise _said("Missing shape", key, feature)
    shape = shapes.as_shape(feature.shape)
    assert shape is not None
    if shape and shape[0] is None:
        raise _said("First dimension of shape unknown (a FixedLenSequenceFeature may have that)", key, feature)
    if None in shape:
        raise _said(f"All dimensions of shape must be known, but shape is {shapes.show(shape)}", key, feature)
    wanted.dense[key] = (dtypes.as_dtype(feature.dtype), shape, feature.default_value)


def _sequence(wanted: _Wanted, key: Any, feature: FixedLenSequenceFeature) -> None:
    if not feature.allow_missing:
        raise ValueError(f"Unsupported: FixedLenSequenceFeature requires allow_missing to be True. ({key}: {feature})")
    if feature.shape is None:
        raise _said("Missing shape", key, feature)
    shape = (None, *(shapes.as_shape(feature.shape) or ()))
    wanted.dense[key] = (dtypes.as_dtype(feature.dtype), shape, feature.default_value)


def _sparse(wanted: _Wanted, key: Any, feature: SparseFeature) -> None:
    for part in ("index_key", "value_key"):
        if not getattr(feature, part):
            raise _said(f"Missing {part}", key, feature)
    for index in sorted(nest.as_list(feature.index_key)):
        wanted.add_sparse(index, dtypes.int64)
    wanted.add_sparse(feature.value_key, feature.dtype)


def _variable(wanted: _Wanted, key: Any, feature: VarLenFeature) -> None:
    wanted.add_sparse(key, feature.dtype)


_EXAMPLE: dict[type, Callable[..., None]] = {
    VarLenFeature: _variable,
    SparseFeature: _sparse,
    FixedLenFeature: _fixed,
    FixedLenSequenceFeature: _sequence,
}
_CONTEXT: dict[type, Callable[..., None]] = {VarLenFeature: _variable, FixedLenFeature: _fixed}


def _listed(wanted: _Wanted, key: Any, feature: FixedLenSequenceFeature) -> None:
    if feature.shape is None:
        raise _said("Missing shape", key, feature)
    if feature.default_value is not None:
        raise ValueError(f"the default of {key!r} must be None: lists of features have none, got {feature}")
    wanted.dense[key] = (dtypes.as_dtype(feature.dtype), shapes.as_shape(feature.shape), None)
    if feature.allow_missing:
        wanted.missing.add(key)


_LISTS: dict[type, Callable[..., None]] = {VarLenFeature: _variable, FixedLenSequenceFeature: _listed}


def _wanted(features: _Features | None, taken: Mapping[type, Callable[..., None]]) -> _Wanted:
    """What an op is to be asked for, in the order of the keys.

    Raises:
      ValueError: a feature is no such object, or something of it is missing or contradicts another.
    """
    wanted = _Wanted()
    for key, feature in _sorted(features or {}):
        add = taken.get(type(feature))
        if add is None:
            raise ValueError(f"Unsupported {type(feature).__name__} {feature} for key {key!r}")
        if not feature.dtype:
            raise _said("Missing type", key, feature)
        add(wanted, key, feature)
    wanted.check()
    # the op wants them in the order of their keys, and so do graphs that are to be compared
    wanted.sparse = dict(sorted(wanted.sparse.items()))
    return wanted


def _parsed(serialized: Any, names: Any, wanted: _Wanted, name: str | None) -> dict[Any, Any]:
    """The features by key, sparse ones as `SparseTensor`s."""
    with scopes.name_scope(name, "ParseExample", [serialized, names]):
        b = scopes.builder(serialized, names)
        x = b.tensor(serialized, dtypes.string, "serialized")
        defaults = wanted.defaults(b)
        attrs = {
            "num_sparse": len(wanted.sparse),
            "sparse_types": list(wanted.sparse.values()),
            "Tdense": wanted.types,
            "dense_shapes": wanted.shapes,
            "ragged_value_types": [],
            "ragged_split_types": [],
        }
        args: Any = (x, [] if names is None else names, list(wanted.sparse), list(wanted.dense), [], defaults)
        made = b.make("ParseExampleV2", args, attrs)
        return _by_key(iter(nest.as_list(made)), wanted)


def _by_key(made: Iterator[Any], wanted: _Wanted) -> dict[Any, Any]:
    """Keys and values, of an op's results: indices, values and shapes of the sparse ones, then the dense ones."""
    parts = [list(itertools.islice(made, len(wanted.sparse))) for _ in range(3)]
    found: dict[Any, Any] = {key: SparseTensor(*p) for key, *p in zip(wanted.sparse, *parts, strict=True)}
    for key in wanted.dense:
        found[key] = next(made)
    return found


def _finished(features: _Features, found: dict[Any, Any]) -> dict[Any, Any]:
    """What was asked for: `SparseFeature`s put together, and no features that were only needed for that."""
    out = {}
    for key, feature in _sorted(features):
        if not isinstance(feature, SparseFeature):
            out[key] = found[key]
            continue
        one = isinstance(feature.index_key, (str, bytes))
        ids = found[feature.index_key] if one else [found[k] for k in feature.index_key]
        out[key] = sparse.merge(ids, found[feature.value_key], feature.size, None, feature.already_sorted)
    return out


def parse_example(
    serialized: Any, features: _Features, example_names: Any = None, name: str | None = None
) -> dict[Any, Any]:
    """Features of serialized examples.

    Args:
      serialized: strings, a vector (a batch) or a scalar.
      features: a dict of `VarLenFeature`, `SparseFeature`, `FixedLenFeature` and `FixedLenSequenceFeature` objects.
      example_names: strings that errors call the examples by; None: they are numbered.
      name: name of the scope; "ParseExample" if None.

    Returns:
      A dict with the same keys, of tensors, [batch, ...] (of a scalar without that axis), and `SparseTensor`s.

    Raises:
      ValueError: there are no features, or something is missing in one or contradicts another.
      TypeError: a dtype is not float32, int64 or string.
      InvalidArgumentError: when it runs, and a string is no example, or a feature is missing, of another dtype, or of
        another length.

    Source: TensorFlow's `tf.io.parse_example`.

    Example:
      >>> import headrace as hr
      >>> text = '{"features": {"feature": {"n": {"int64List": {"value": [3, 4]}}}}}'
      >>> hr.io.parse_example(hr.io.decode_json_example([text]), {"n": hr.io.FixedLenFeature([2], hr.int64)})
      {'n': <EagerTensor shape=[1,2] dtype=int64: array([[3, 4]])>}
    """
    if not features:
        raise ValueError(f"Argument `features` cannot be None or falsy. Got {features}")
    return _finished(features, _parsed(serialized, example_names, _wanted(features, _EXAMPLE), name))


def parse_single_example(
    serialized: Any, features: _Features, example_names: Any = None, name: str | None = None
) -> dict[Any, Any]:
    """Features of one serialized example; see `parse_example`. There is no axis for a batch.

    Raises:
      ValueError: as there, or `serialized` is not a scalar.

    Source: TensorFlow's `tf.io.parse_single_example`.
    """
    if not features:
        raise ValueError("Invalid argument: Argument `features` cannot be None.")
    with scopes.name_scope(name, "ParseSingleExample", [serialized, example_names]):
        x = _one(serialized)
        return parse_example(x, features, example_names)


def _one(serialized: Any) -> Any:
    x = scopes.builder(serialized).tensor(serialized, dtypes.string, "serialized")
    if x.shape is not None and x.shape != ():
        raise ShapeError(f"Input serialized must be a scalar, got shape {shapes.show(x.shape)}")
    return x


def _sequences(
    serialized: Any, contexts: _Features | None, lists: _Features | None, names: Any
) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
    if not (contexts or lists):
        raise ValueError("neither context features nor features of sequences are given; at least one should be")
    context, listed = _wanted(contexts, _CONTEXT), _wanted(lists, _LISTS)
    with scopes.name_scope(None, "ParseSequenceExample", [serialized, names]):
        b = scopes.builder(serialized, names)
        x = b.tensor(serialized, dtypes.string, "serialized")
        defaults = context.defaults(b)
        attrs = {
            "Ncontext_sparse": len(context.sparse),
            "context_sparse_types": list(context.sparse.values()),
            "Tcontext_dense": context.types,
            "context_dense_shapes": context.shapes,
            "Nfeature_list_sparse": len(listed.sparse),
            "feature_list_sparse_types": list(listed.sparse.values()),
            "Nfeature_list_dense": len(listed.dense),
            "feature_list_dense_types": listed.types,
            "feature_list_dense_shapes": listed.shapes,
        }
        keys = [list(context.sparse), list(context.dense), [], list(listed.sparse), list(listed.dense), []]
        may_miss = [key in listed.missing for key in listed.dense]
        args: Any = (x, [] if names is None else names, *keys, may_miss, defaults)
        made = b.make("ParseSequenceExampleV2", args, attrs)
        rest = iter(nest.as_list(made))
        found = _by_key(rest, context), _by_key(rest, listed)
        return *found, {key: next(rest) for key in listed.dense}


def parse_sequence_example(
    serialized: Any,
    context_features: _Features | None = None,
    sequence_features: _Features | None = None,
    example_names: Any = None,
    name: str | None = None,
) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
    """Features of serialized sequence examples.

    Args:
      serialized: strings, a vector.
      context_features: a dict of `VarLenFeature` and `FixedLenFeature` objects.
      sequence_features: a dict of `VarLenFeature` and `FixedLenSequenceFeature` objects, for lists of features.
      example_names: strings that errors call the examples by; None: they are numbered.
      name: name of the scope; "ParseSequenceExample" if None.

    Returns:
      The features of the contexts, [batch, ...]; the lists, [batch, longest, ...]; and the lengths, [batch], of the
      lists that are dense: dicts by key.

    Raises:
      ValueError: there are no features, or something is missing in one or contradicts another.
      InvalidArgumentError: when it runs, see `parse_example`.

    Source: TensorFlow's `tf.io.parse_sequence_example`.
    """
    with scopes.name_scope(name, "ParseSequenceExample", [serialized, example_names]):
        return _sequences(serialized, context_features, sequence_features, example_names)


def parse_single_sequence_example(
    serialized: Any,
    context_features: _Features | None = None,
    sequence_features: _Features | None = None,
    example_name: Any = None,
    name: str | None = None,
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Features of one serialized sequence example; see `parse_sequence_example`. There is no axis for a batch.

    Returns:
      The features of the context, and the lists: dicts by key.

    Raises:
      ValueError: as there, or `serialized` is not a scalar.

    Source: TensorFlow's `tf.io.parse_single_sequence_example`.
    """
    with scopes.name_scope(name, "ParseSingleSequenceExample", [serialized, example_name]):
        return _sequences(_one(serialized), context_features, sequence_features, example_name)[:2]
