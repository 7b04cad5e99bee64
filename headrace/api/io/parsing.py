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
from headrace.records import record
from headrace.shapes import Shape


class VarLenFeature(NamedTuple):
    """Feature with a varying number of elements; its result is a `SparseTensor`.

    Args:
      dtype: float32, int64 or string.

    Source: TensorFlow's `tf.io.VarLenFeature`.

    Example:
      >>> import headrace as hr
      >>> hr.io.VarLenFeature(hr.int64).dtype
      headrace.int64
    """

    dtype: Any


class FixedLenFeature(NamedTuple):
    """Feature with the same shape in each example; its result is a tensor.

    Args:
      shape: shape of the feature, fully known.
      dtype: float32, int64 or string.
      default_value: the value of a missing feature; None: a missing feature is an error.

    Source: TensorFlow's `tf.io.FixedLenFeature`.

    Example:
      >>> import headrace as hr
      >>> hr.io.FixedLenFeature([2], hr.float32).shape
      [2]
    """

    shape: Any
    dtype: Any
    default_value: Any = None


class FixedLenSequenceFeature(NamedTuple):
    """Feature that is a sequence of varying length; its result is padded.

    Args:
      shape: shape of an element of the sequence.
      dtype: float32, int64 or string.
      allow_missing: whether the feature may be missing. `parse_example` requires True; for feature lists of sequence
        examples False is allowed, too.
      default_value: a scalar that pads shorter sequences; None: zero or the empty string.

    Source: TensorFlow's `tf.io.FixedLenSequenceFeature`.

    Example:
      >>> import headrace as hr
      >>> hr.io.FixedLenSequenceFeature([2], hr.float32).shape
      [2]
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class SparseFeature(NamedTuple):
    """Features with the indices and the values of a `SparseTensor`.

    Args:
      index_key: key of the int64 feature with the index of each value, or a list of keys, one for each axis.
      value_key: key of the feature with the values.
      dtype: dtype of the values: float32, int64 or string.
      size: size of the axis, or a list of sizes, one for each axis.
      already_sorted: whether the indices are in order.

    Source: TensorFlow's `tf.io.SparseFeature`.

    Example:
      >>> import headrace as hr
      >>> hr.io.SparseFeature("index", "value", hr.float32, 10).size
      10
    """

    index_key: Any
    value_key: Any
    dtype: Any
    size: Any
    already_sorted: bool = False


_Features = Mapping[Any, Any]


@record
class _Wanted:
    """Requested keys: sparse ones with dtypes, dense ones with dtypes, shapes and defaults."""

    sparse: dict[Any, Any] = dataclasses.field(default_factory=dict)
    dense: dict[Any, tuple[Any, Shape, Any]] = dataclasses.field(default_factory=dict)
    missing: set[Any] = dataclasses.field(default_factory=set)  # optional dense keys

    def add_sparse(self, key: Any, dtype: Any) -> None:
        wanted = dtypes.as_dtype(dtype)
        if self.sparse.setdefault(key, wanted) != wanted:
            raise ValueError(f"Conflicting type {self.sparse[key]} vs {wanted} for feature {key}.")

    def check(self) -> None:
        both = sorted(self.sparse.keys() & self.dense.keys())
        if both:
            raise ValueError(f"Dense and sparse keys must not intersect; both are asked for: {both}")

    def defaults(self, b: Any) -> list[Any]:
        """Returns the defaults of dense features; an empty vector for required ones."""
        return [_default(b, key, *self.dense[key]) for key in self.dense]

    @property
    def shapes(self) -> list[Shape]:
        return [shape for _, shape, _ in self.dense.values()]

    @property
    def types(self) -> list[Any]:
        return [dtype for dtype, _, _ in self.dense.values()]


def _default(b: Any, key: Any, dtype: Any, shape: Shape, value: Any) -> Any:
    """Returns the default of a feature: a scalar for a sequence, empty if required."""
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
    """Returns the requested keys, in order.

    Raises:
      ValueError: the class of a feature is not supported, or its fields are missing or contradict another feature.
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
    # the op requires sorted keys, and equal requests give equal graphs
    wanted.sparse = dict(sorted(wanted.sparse.items()))
    return wanted


def _parsed(serialized: Any, names: Any, wanted: _Wanted, name: str | None) -> dict[Any, Any]:
    """Parses the features to a dict by key; sparse ones are `SparseTensor`s."""
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
    """Assigns the results of an op to keys.

    The results are the indices, values and shapes of the sparse features, then the dense features.
    """
    parts = [list(itertools.islice(made, len(wanted.sparse))) for _ in range(3)]
    found: dict[Any, Any] = {key: SparseTensor(*p) for key, *p in zip(wanted.sparse, *parts, strict=True)}
    for key in wanted.dense:
        found[key] = next(made)
    return found


def _finished(features: _Features, found: dict[Any, Any]) -> dict[Any, Any]:
    """Builds the `SparseFeature`s, and drops the features that were needed only for them."""
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
    """Parses features of serialized examples.

    Args:
      serialized: strings, a vector (a batch) or a scalar.
      features: a dict of `VarLenFeature`, `SparseFeature`, `FixedLenFeature` and `FixedLenSequenceFeature` objects.
      example_names: strings with the names of the examples, for errors; None: no names.
      name: name of the scope; "ParseExample" if None.

    Returns:
      A dict with the same keys, of tensors, [batch, ...] (without the batch axis for a scalar), and `SparseTensor`s.

    Raises:
      ValueError: there are no features, or fields of a feature are missing or contradict another feature.
      TypeError: a dtype is not float32, int64 or string.
      InvalidArgumentError: in a run, if a string is not an example, or a feature is missing or has another dtype or
        length.

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
    """Parses features of one serialized example, without a batch axis; see `parse_example`.

    Raises:
      ValueError: as for `parse_example`, or `serialized` is not a scalar.

    Source: TensorFlow's `tf.io.parse_single_example`.

    Example:
      >>> import headrace as hr
      >>> text = '{"features": {"feature": {"n": {"int64List": {"value": [3, 4]}}}}}'
      >>> hr.io.parse_single_example(hr.io.decode_json_example(text), {"n": hr.io.FixedLenFeature([2], hr.int64)})
      {'n': <EagerTensor shape=[2] dtype=int64: array([3, 4])>}
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
    """Parses features of serialized sequence examples.

    Args:
      serialized: strings, a vector.
      context_features: a dict of `VarLenFeature` and `FixedLenFeature` objects.
      sequence_features: a dict of `VarLenFeature` and `FixedLenSequenceFeature` objects, for lists of features.
      example_names: strings with the names of the examples, for errors; None: no names.
      name: name of the scope; "ParseSequenceExample" if None.

    Returns:
      Three dicts by key: the context features, [batch, ...]; the feature lists, [batch, longest, ...]; and the lengths,
      [batch], of the dense feature lists.

    Raises:
      ValueError: there are no features, or fields of a feature are missing or contradict another feature.
      InvalidArgumentError: in a run; see `parse_example`.

    Source: TensorFlow's `tf.io.parse_sequence_example`.

    Example:
      >>> import headrace as hr
      >>> from headrace import pb
      >>> steps = {"feature": [{"int64_list": {"value": [3]}}, {"int64_list": {"value": [4]}}]}
      >>> data = pb.SequenceExample(feature_lists={"feature_list": {"n": steps}}).SerializeToString()
      >>> features = {"n": hr.io.FixedLenSequenceFeature([], hr.int64)}
      >>> _, lists, lengths = hr.io.parse_sequence_example([data], sequence_features=features)
      >>> lists["n"].numpy().tolist(), lengths["n"].numpy().tolist()
      ([[3, 4]], [2])
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
    """Parses features of one serialized sequence example; see `parse_sequence_example`.

    The results have no batch axis.

    Returns:
      Two dicts by key: the context features and the feature lists.

    Raises:
      ValueError: as for `parse_sequence_example`, or `serialized` is not a scalar.

    Source: TensorFlow's `tf.io.parse_single_sequence_example`.

    Example:
      >>> import headrace as hr
      >>> from headrace import pb
      >>> steps = {"feature": [{"int64_list": {"value": [3]}}, {"int64_list": {"value": [4]}}]}
      >>> data = pb.SequenceExample(feature_lists={"feature_list": {"n": steps}}).SerializeToString()
      >>> features = {"n": hr.io.FixedLenSequenceFeature([], hr.int64)}
      >>> _, lists = hr.io.parse_single_sequence_example(data, sequence_features=features)
      >>> lists["n"].numpy()
      array([3, 4])
    """
    with scopes.name_scope(name, "ParseSingleSequenceExample", [serialized, example_name]):
        return _sequences(_one(serialized), context_features, sequence_features, example_name)[:2]
