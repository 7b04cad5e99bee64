"""`hr.io`: examples and what else is in strings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import headrace as hr

io = hr.io


def _examples(*features: dict[str, Any]) -> Any:
    kinds = {int: "int64List", float: "floatList"}
    return io.decode_json_example(
        [
            json.dumps({"features": {"feature": {k: {kinds[type(v[0])]: {"value": v}} for k, v in f.items()}}})
            for f in features
        ]
    )


def test_features_of_a_batch() -> None:
    found = io.parse_example(
        _examples({"n": [3, 4], "q": [1, 2, 3]}, {"n": [5, 6], "v": [0.5]}),
        {
            "n": io.FixedLenFeature([2], hr.int64),
            "d": io.FixedLenFeature([], hr.float32, 1.5),
            "v": io.VarLenFeature(hr.float32),
            "q": io.FixedLenSequenceFeature([], hr.int64, allow_missing=True, default_value=-1),
        },
    )
    assert found["n"].numpy().tolist() == [[3, 4], [5, 6]]
    assert found["d"].numpy().tolist() == [1.5, 1.5]
    assert found["q"].numpy().tolist() == [[1, 2, 3], [-1, -1, -1]]
    assert found["v"].indices.numpy().tolist() == [[1, 0]]
    assert found["v"].values.numpy().tolist() == [0.5]


def test_one_example_has_no_axis_for_a_batch() -> None:
    features = {"n": io.FixedLenFeature([2], hr.int64), "s": io.SparseFeature("n", "w", hr.float32, 9)}
    serialized = _examples({"n": [7, 2], "w": [0.5, 1.5]})
    found = io.parse_single_example(serialized[0], {"s": features["s"]})
    assert hr.sparse.to_dense(found["s"]).numpy().tolist() == [0, 0, 1.5, 0, 0, 0, 0, 0.5, 0]
    assert io.parse_single_example(serialized[0], {"n": features["n"]})["n"].numpy().tolist() == [7, 2]
    with pytest.raises(ValueError, match="Input serialized must be a scalar"):
        io.parse_single_example(serialized, {"n": features["n"]})
    with pytest.raises(ValueError, match="must not intersect"):
        io.parse_single_example(serialized[0], features)


def test_several_indices_make_several_axes() -> None:
    serialized = _examples({"i": [1, 0], "j": [2, 1], "w": [0.5, 1.5]})
    found = io.parse_example(serialized, {"s": io.SparseFeature(["i", "j"], "w", hr.float32, [2, 3])})["s"]
    assert hr.sparse.to_dense(found).numpy().tolist() == [[[0, 1.5, 0], [0, 0, 0.5]]]


_INT = hr.int64


@pytest.mark.parametrize(
    ("feature", "message"),
    [
        (io.FixedLenFeature(None, _INT), "Missing shape"),
        (io.FixedLenFeature([None, 2], _INT), "First dimension of shape unknown"),
        (io.FixedLenFeature([2, None], _INT), "All dimensions of shape must be known"),
        (io.FixedLenFeature([2], None), "Missing type for feature a"),
        (io.FixedLenFeature([2], _INT, [1, 2, 3]), "3 elements"),
        (io.FixedLenSequenceFeature([], _INT), "requires allow_missing to be True"),
        (io.FixedLenSequenceFeature(None, _INT, True), "Missing shape"),
        (io.SparseFeature(None, "v", _INT, 3), "Missing index_key"),
        (io.SparseFeature("i", None, _INT, 3), "Missing value_key"),
        (3, "Unsupported int 3 for key 'a'"),
    ],
)
def test_features_that_say_too_little(feature: Any, message: str) -> None:
    with hr.Graph(), pytest.raises(ValueError, match=message):
        io.parse_example([b""], {"a": feature})


def test_other_mistakes() -> None:
    with pytest.raises(ValueError, match="`features` cannot be None"):
        io.parse_example([b""], {})
    with pytest.raises(ValueError, match="`features` cannot be None"):
        io.parse_single_example(b"", {})
    with pytest.raises(ValueError, match="Conflicting type float32 vs int64 for feature w"):
        io.parse_example([b""], {"a": io.SparseFeature("i", "w", hr.float32, 3), "w": io.VarLenFeature(_INT)})
    with pytest.raises(ValueError, match="at least one should be"):
        io.parse_sequence_example([b""])
    with pytest.raises(ValueError, match="Unsupported SparseFeature"):
        io.parse_sequence_example([b""], {"a": io.SparseFeature("i", "w", hr.float32, 3)})
    with pytest.raises(ValueError, match="must be None: lists of features have none"):
        io.parse_sequence_example([b""], None, {"a": io.FixedLenSequenceFeature([], _INT, True, 1)})
    with pytest.raises(hr.errors.InvalidArgumentError, match="required but could not be found"):
        io.parse_example([b""], {"a": io.FixedLenFeature([], _INT)})


def _delimited(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def _ints(*values: int) -> bytes:
    return _delimited(3, _delimited(1, bytes(values)))


def _entry(key: bytes, value: bytes) -> bytes:
    return _delimited(1, _delimited(1, key) + _delimited(2, value))


def test_sequences() -> None:
    lists = b"".join(_delimited(1, _ints(*v)) for v in ((1, 2), (3, 4)))
    serialized = _delimited(1, _entry(b"c", _ints(9))) + _delimited(2, _entry(b"q", lists))
    context = {"c": io.FixedLenFeature([1], _INT), "d": io.VarLenFeature(_INT)}
    sequences = {"q": io.FixedLenSequenceFeature([2], _INT, allow_missing=True), "z": io.VarLenFeature(_INT)}
    a, b, lengths = io.parse_sequence_example([serialized, _delimited(1, _entry(b"c", _ints(8)))], context, sequences)
    assert a["c"].numpy().tolist() == [[9], [8]]
    assert a["d"].values.shape == (0,)
    assert b["q"].numpy().tolist() == [[[1, 2], [3, 4]], [[0, 0], [0, 0]]]
    assert lengths["q"].numpy().tolist() == [2, 0]
    assert b["z"].dense_shape.shape == (3,)
    a, b = io.parse_single_sequence_example(serialized, context, {"q": io.VarLenFeature(_INT)}, example_name="one")
    assert a["c"].numpy().tolist() == [9]
    assert b["q"].values.numpy().tolist() == [1, 2, 3, 4]
    assert b["q"].dense_shape.numpy().tolist() == [2, 2]


def test_numbers_and_columns() -> None:
    assert io.decode_raw([b"\1\0", b"\2\1"], hr.uint16, little_endian=False).numpy().tolist() == [[256], [513]]
    assert io.decode_raw([b"\1", b"\2\1\3"], hr.uint8, fixed_length=2).numpy().tolist() == [[1, 0], [2, 1]]
    one, two = io.decode_csv(["1,a;b,2.5", "NA,x,3"], [[7], np.zeros(0, np.float32)], na_value="NA", select_cols=[0, 2])
    assert one.numpy().tolist() == [1, 7]
    assert two.numpy().tolist() == [2.5, 3.0]
    for columns, message in (
        ([1, 0], "not strictly increasing"),
        ([-1, 0], "negative"),
        ([0], "do not match: 1 and 2"),
    ):
        with pytest.raises(ValueError, match=message):
            io.decode_csv(["1,2"], [[1], [1]], select_cols=columns)
