"""Serialization of tf.train.Example and tf.train.SequenceExample, TensorFlow's training records.

An example has features by name; a feature is a vector of strings, float32 or int64. A sequence example has features for
the whole sequence, its context, and features for each of its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from google.protobuf import message as protobuf

from headrace import pb

if TYPE_CHECKING:
    from collections.abc import Iterable

Values: TypeAlias = "np.ndarray[Any, Any]"
Features: TypeAlias = "Mapping[str, Values | None]"  # None: the feature exists, but has no kind
Steps: TypeAlias = "Mapping[str, list[Values | None]]"

_NUMBERS: Final = {"float_list": np.float32, "int64_list": np.int64}


def _values(feature: pb.Feature) -> Values | None:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return None
    found = getattr(feature, kind).value
    if kind in _NUMBERS:
        return np.fromiter(found, _NUMBERS[kind], len(found))
    out: Values = np.empty(len(found), object)
    out[:] = found
    return out


def _by_name(features: Iterable[tuple[str, pb.Feature]]) -> Features:
    return {name: _values(feature) for name, feature in features}


def _message(of: Any, data: bytes) -> Any:
    try:
        return of.FromString(data)
    except protobuf.DecodeError as e:
        raise ValueError(str(e)) from None


def read_example(data: bytes) -> Features:
    """Returns the features of a serialized Example.

    Raises:
      ValueError: `data` is not an Example.
    """
    return _by_name(_message(pb.Example, data).features.feature.items())


def read_sequence(data: bytes) -> tuple[Features, Steps]:
    """Returns the context and the steps of a serialized SequenceExample.

    Raises:
      ValueError: `data` is not a SequenceExample.
    """
    found = _message(pb.SequenceExample, data)
    steps = {name: list(map(_values, of.feature)) for name, of in found.feature_lists.feature_list.items()}
    return _by_name(found.context.feature.items()), steps


def example_of_json(text: str) -> bytes:
    """Returns the serialized Example that JSON describes.

    Raises:
      ValueError: `text` does not describe an Example.
    """
    from google.protobuf import json_format

    try:
        return json_format.Parse(text, pb.Example(), max_recursion_depth=32).SerializeToString(deterministic=True)
    except json_format.ParseError as e:
        raise ValueError(str(e)) from None


def write_feature(values: Values | None) -> pb.Feature:
    """Returns a feature with these values, for tests and tools."""
    if values is None:
        return pb.Feature()
    kind = {"f": "float_list", "i": "int64_list", "O": "bytes_list"}[values.dtype.kind]
    return pb.Feature(**{kind: {"value": values.tolist()}})


def write_example(features: Features) -> bytes:
    """Returns the serialized Example; the inverse of `read_example`."""
    made = {name: write_feature(values) for name, values in features.items()}
    return pb.Example(features={"feature": made}).SerializeToString(deterministic=True)


def write_sequence(context: Features, steps: Steps) -> bytes:
    """Returns the serialized SequenceExample; the inverse of `read_sequence`."""
    made = {name: write_feature(values) for name, values in context.items()}
    lists = {name: {"feature": list(map(write_feature, of))} for name, of in steps.items()}
    return pb.SequenceExample(context={"feature": made}, feature_lists={"feature_list": lists}).SerializeToString(
        deterministic=True
    )
