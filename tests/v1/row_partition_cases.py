"""Calls with partitions and ragged shapes for TensorFlow or `headrace.v1`, by name.

python tests/v1/row_partition_cases.py              # with TensorFlow: writes row_partition_values.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).parent / "row_partition_values.json"


def partitions(tf: Any) -> dict[str, Callable[[], Any]]:
    """Functions without arguments, by name, for the default graph."""
    make = tf.experimental.RowPartition
    fed = tf.placeholder_with_default(tf.constant([0, 2, 2, 5], tf.int64), [None])
    one = tf.placeholder_with_default(tf.constant(2, tf.int64), [])
    made = {
        "row_splits": lambda: make.from_row_splits([0, 2, 2, 5]),
        "row_splits of a tensor": lambda: make.from_row_splits(fed),
        "row_splits of int32": lambda: make.from_row_splits([0, 3], dtype=tf.int32),
        "row_splits of an array": lambda: make.from_row_splits(np.array([0, 3], np.int32)),
        "row_splits with a hint": lambda: make.from_row_splits([0, 3], dtype_hint=tf.int32),
        "row_lengths": lambda: make.from_row_lengths([2, 0, 3]),
        "row_starts": lambda: make.from_row_starts([0, 2, 2], 5),
        "row_limits": lambda: make.from_row_limits([2, 2, 5]),
        "value_rowids": lambda: make.from_value_rowids([0, 0, 2, 2, 2]),
        "value_rowids of 5 rows": lambda: make.from_value_rowids([0, 0, 2], nrows=5),
        "value_rowids of nothing": lambda: make.from_value_rowids([]),
        "value_rowids of a tensor": lambda: make.from_value_rowids(fed),
        "uniform of values": lambda: make.from_uniform_row_length(2, nvals=6),
        "uniform of rows": lambda: make.from_uniform_row_length(2, nrows=4),
        "uniform of both": lambda: make.from_uniform_row_length(2, 6, 3),
        "uniform of 0": lambda: make.from_uniform_row_length(0, nvals=0),
        "uniform of a tensor": lambda: make.from_uniform_row_length(one, nvals=6),
        "int32": lambda: make.from_row_lengths([2, 0, 3]).with_dtype(tf.int32),
    }

    def whole(call: Callable[[], Any]) -> Callable[[], Any]:
        def result() -> Any:
            p = call()
            tensors = [
                p.row_splits(), p.row_lengths(), p.row_starts(), p.row_limits(), p.value_rowids(), p.offsets_in_rows(),
                p.nrows(), p.nvals(),
            ]  # fmt: skip
            length = p.uniform_row_length()
            known = [p.static_nrows, p.static_nvals, p.static_uniform_row_length, p.is_uniform(), p.dtype.name]
            return [tensors, known, length]

        return result

    errors = {
        "constructor": lambda: make(tf.constant([0, 2])),
        "empty splits": lambda: make.from_row_splits([]),
        "splits from 1": lambda: make.from_row_splits([1, 2]).row_splits(),
        "descending splits": lambda: make.from_row_splits([0, 3, 2]).row_splits(),
        "unchecked splits": lambda: make.from_row_splits([0, 3, 2], validate=False).row_splits(),
        "splits of rank 0": lambda: make.from_row_splits(3),
        "float splits": lambda: make.from_row_splits([0.5, 2.0]),
        "negative lengths": lambda: make.from_row_lengths([1, -1]).row_splits(),
        "starts behind the end": lambda: make.from_row_starts([0, 7], 5).row_splits(),
        "descending limits": lambda: make.from_row_limits([3, 2]).row_splits(),
        "descending rows": lambda: make.from_value_rowids([1, 0]).row_splits(),
        "too few rows": lambda: make.from_value_rowids([0, 3], nrows=2),
        "negative rows": lambda: make.from_value_rowids([0, 3], nrows=-1),
        "uniform without numbers": lambda: make.from_uniform_row_length(2),
        "uniform of other numbers": lambda: make.from_uniform_row_length(2, 7, 3),
        "negative length": lambda: make.from_uniform_row_length(-1, nrows=3),
        "no bool": lambda: make.from_row_splits([0, 2], validate=1),
        "float dtype": lambda: make.from_row_splits([0, 2]).with_dtype(tf.float32),
        "cond": lambda: tf.cond(
            one > 1, lambda: make.from_row_lengths([1, 2]), lambda: make.from_row_lengths([2, 1])
        ).row_splits(),
        "flatten": lambda: tf.nest.flatten(make.from_row_lengths([1, 2]), expand_composites=True),
    }
    return {k: whole(f) for k, f in made.items()} | errors


def shapes(tf: Any) -> dict[str, Callable[[], Any]]:
    """Functions of ragged shapes without arguments, by name, for the default graph."""
    make, rows = tf.experimental.DynamicRaggedShape, tf.experimental.RowPartition
    fed = tf.placeholder_with_default(tf.constant([[1, 2, 3], [4, 5, 6]]), [None, 3])
    splits = tf.placeholder_with_default(tf.constant([0, 1, 3], tf.int64), [3])
    ragged = tf.RaggedTensor.from_row_splits([5, 6, 7], splits)
    made = {
        "lengths": lambda: make.from_lengths([2, (3, 1), 5]),
        "lengths of two ragged axes": lambda: make.from_lengths([2, (2, 1), (1, 0, 3)]),
        "uniform lengths": lambda: make.from_lengths([2, 3, 4]),
        "uniform partitions": lambda: make.from_lengths([2, 3, 4], num_row_partitions=1),
        "no lengths": lambda: make.from_lengths([]),
        "lengths of int32": lambda: make.from_lengths([2, (3, 1)], dtype=tf.int32),
        "partitions": lambda: make.from_row_partitions([rows.from_row_lengths([2, 0, 1])]),
        "tensor": lambda: make.from_tensor(fed),
        "tensor of int64": lambda: make.from_tensor(fed, tf.int64),
        "ragged tensor": lambda: make.from_tensor(ragged),
        "constructor": lambda: make([rows.from_row_lengths([2, 0, 1])], [3, 7]),
        "validated": lambda: make([rows.from_row_splits(splits)], [3, 7], validate=True),
        "slice": lambda: make.from_lengths([2, (3, 1), 5])[:2],
        "first axis": lambda: make.from_lengths([2, (3, 1), 5])[:1],
        "slice behind": lambda: make.from_lengths([2, (3, 1), 5, 6])[2:],
        "empty slice": lambda: make.from_lengths([2, (3, 1), 5])[1:1],
        "all axes": lambda: make.from_lengths([2, (3, 1), 5])[:],
        "other dtype": lambda: make.from_lengths([2, (3, 1), 5]).with_dtype(tf.int32),
    }

    def whole(call: Callable[[], Any]) -> Callable[[], Any]:
        def result() -> Any:
            s = call()
            known = [s.rank, s.inner_rank, s.num_row_partitions, s.dtype.name, s.static_lengths()]
            axes = [s.is_uniform(i) for i in range(s.rank)]
            parts = [p.row_splits() for p in s.row_partitions]
            return [known, s.static_lengths(ragged_lengths=False), axes, s.inner_shape, parts, repr(s)]

        return result

    one = make.from_lengths([2, (3, 1), 5, 6])
    others = {
        "axis 0": lambda: one[0],
        "axis 1": lambda: one[1],
        "axis 2": lambda: one[2],
        "last axis": lambda: one[-1],
        "no axis": lambda: one[4],
        "axis of another kind": lambda: one["a"],
        "step": lambda: one[::2],
        "ragged slice": lambda: one[1:],
        "lengths as a tuple": lambda: make.from_lengths((2, 3)),
        "lengths of floats": lambda: make.from_lengths([2, 3.5]),
        "too many partitions": lambda: make.from_lengths([2, 3], num_row_partitions=2),
        "no partitions": lambda: make.from_row_partitions([]),
        "other elements": lambda: make([3], [3]),
        "no list": lambda: make(3, [3]),
        "other number of values": lambda: make([rows.from_value_rowids([0, 0])], [3]),
        "partitions that do not align": lambda: make(
            [rows.from_value_rowids([0, 0]), rows.from_row_lengths([1, 2, 3])], [6]
        ),
        "is_uniform of -1": lambda: one.is_uniform(-1),
        "is_uniform of 9": lambda: one.is_uniform(9),
        "spec": lambda: [make.Spec.from_value(one).rank, make.Spec.from_value(one).num_row_partitions],
        "spec of no partitions": lambda: make.Spec([], tf.TensorShape([None, 3]), tf.int64).inner_rank,
        "spec of floats": lambda: make.Spec([], tf.TensorShape([3]), tf.float32),
        "spec of other elements": lambda: make.Spec([3], tf.TensorShape([3]), tf.int64),
        "spec of another dtype": lambda: make.Spec([], tf.TensorShape([3]), tf.int64).with_dtype(tf.int32).dtype.name,
    }
    return {k: whole(f) for k, f in made.items()} | others


def structures(tf: Any) -> dict[str, Callable[[], Any]]:
    """Functions of structured tensors without arguments, by name, for the default graph."""
    make, rows = tf.experimental.StructuredTensor, tf.experimental.RowPartition
    people = [{"age": 12, "names": ["Jo"]}, {"age": 82, "names": ["Bob", "Bobby"]}, {"age": 42, "names": []}]
    docs = [{"docs": [{"tokens": [1, 2]}, {"tokens": [3]}]}, {"docs": [{"tokens": [7]}]}]
    deep = [[{"foo": 12}, {"foo": 33}], [], [{"foo": 99}]]
    one, two = make.from_pyval(people), make.from_pyval(deep)

    def whole(s: Any) -> Any:
        if isinstance(s, make):
            names = sorted(s.field_names())
            shape = [s.rank, s.shape.as_list(), s.nrows(), [p.row_splits() for p in s.row_partitions]]
            return [shape, {name: whole(s.field_value(name)) for name in names}]
        return tf.nest.flatten(s, expand_composites=True)

    made = {
        "pyval of a dict": lambda: make.from_pyval({"a": [1, 2, 3], "b": [[4, 5], [6]]}),
        "pyval": lambda: one,
        "pyval of rank 2": lambda: two,
        "pyval of nested dicts": lambda: make.from_pyval(docs),
        "pyval of empty dicts": lambda: make.from_pyval([{}, {}]),
        "pyval of empty dicts of rank 2": lambda: make.from_pyval([[{}], [{}, {}]]),
        "fields": lambda: make.from_fields({"x": 1, "y": [1, 2, 3]}),
        "fields of rank 1": lambda: make.from_fields({"foo": [1, 2], "bar": [[3, 4], [5, 6]]}, shape=[2]),
        "fields of rank 2": lambda: make.from_fields({"bar": [[3, 4], [5, 6]]}, shape=[2, None]),
        "fields of partitions": lambda: make.from_fields(
            {"x": tf.ragged.constant([[1, 2], [3]])}, [2, None], row_partitions=[rows.from_row_lengths([2, 1])]
        ),
        "fields and rank": lambda: make.from_fields_and_rank({"foo": [1, 2], "bar": [[3, 4], [5, 6]]}, 1),
        "fields and rank 2": lambda: make.from_fields_and_rank({"bar": tf.ragged.constant([[3, 4], [5]])}, 2),
        "shape": lambda: make.from_shape(tf.experimental.DynamicRaggedShape.from_lengths([2, (1, 2)])),
        "row": lambda: one[1],
        "rows": lambda: one[1:],
        "rows of rank 2": lambda: two[2],
        "inner row": lambda: two[0, 1],
        "updated": lambda: one.with_updates({"age": lambda x: x * 2, "n": [1, 2, 3], "names": None}),
        "updated path": lambda: make.from_pyval(docs).with_updates({("docs", "tokens"): lambda x: x + 1}),
        "promoted": lambda: make.from_pyval(docs).promote(("docs", "tokens"), "all"),
        "partitioned": lambda: one.partition_outer_dimension(rows.from_row_lengths([2, 0, 1])),
        "partitioned uniform": lambda: make.from_pyval([{"a": 1}, {"a": 2}]).partition_outer_dimension(
            rows.from_uniform_row_length(1, nrows=2)
        ),
        "merged": lambda: two.merge_dims(0, 1),
        "int32": lambda: two.with_shape_dtype(tf.int32),
        "cond": lambda: tf.cond(
            tf.constant(False), lambda: two, lambda: two.with_updates({"foo": lambda x: x + 1})
        ).field_value("foo"),
        "spec": lambda: make.from_pyval([{"age": 1, "names": []}], tf.type_spec_from_value(one)),
    }
    others = {
        "names": lambda: sorted(one.field_names()),
        "field": lambda: one.field_value("age"),
        "field of a row": lambda: one[1]["age"],
        "field of all": lambda: one[:, "age"],
        "ragged field": lambda: tf.nest.flatten(one[:, "names"], expand_composites=True),
        "path": lambda: tf.nest.flatten(make.from_pyval(docs).field_value(("docs", "tokens")), expand_composites=True),
        "no field": lambda: one.field_value("z"),
        "no path": lambda: one.field_value(("age", "z")),
        "index with None": lambda: one[None],
        "index of a number for a field": lambda: one[0, 1],
        "scalar index": lambda: make.from_pyval({"a": 1})[0],
        "fields of no dict": lambda: make.from_fields([1]),
        "fields with a bad name": lambda: make.from_fields({"a b": 1}),
        "fields with a number as name": lambda: make.from_fields({1: 1}),
        "fields of other lengths": lambda: make.from_fields({"a": [1, 2], "b": [1]}, [None]),
        "fields of an unknown rank": lambda: make.from_fields({"a": 1}, shape=tf.TensorShape(None)),
        "fields of objects": lambda: make.from_fields({"a": object()}),
        "nrows of rank 0": lambda: make.from_fields({"a": 1}, nrows=3),
        "partitions of rank 1": lambda: make.from_fields({"a": [1]}, [1], row_partitions=[rows.from_row_lengths([1])]),
        "partitions of rank 3": lambda: make.from_fields(
            {}, [None, None, None], row_partitions=[rows.from_row_lengths([1])]
        ),
        "no fields": lambda: make.from_fields({}, [None]),
        "no fields of rank 2": lambda: make.from_fields({}, [None, None]),
        "no fields with a rank": lambda: make.from_fields_and_rank({}, 1),
        "negative rank": lambda: make.from_fields_and_rank({"a": 1}, -1),
        "rank of a text": lambda: make.from_fields_and_rank({"a": 1}, "1"),
        "other depths": lambda: make.from_pyval([{"a": 1}, [{"a": 2}]]),
        "other keys": lambda: make.from_pyval([{"a": 1}, {"b": 2}]),
        "other spec": lambda: make.from_pyval([{"a": 1}], tf.type_spec_from_value(one)),
        "delete no field": lambda: one.with_updates({"z": None}),
        "change no field": lambda: one.with_updates({"z": lambda x: x}),
        "update parent and child": lambda: one.with_updates({"age": 1, ("age", "x"): 2}),
        "update inside a tensor": lambda: one.with_updates({("age", "x"): 2}),
        "update inside nothing": lambda: one.with_updates({("z", "x"): 2}),
        "update of another length": lambda: one.with_updates({"age": [1, 2]}),
        "empty name": lambda: one.with_updates({"": 2}),
        "promote a short path": lambda: one.promote(("age",), "x"),
        "promote a text": lambda: one.promote("age", "x"),
        "promote to a number": lambda: one.promote(("age", "x"), 3),
        "partition by lengths": lambda: one.partition_outer_dimension([1, 2]),
        "partition rank 0": lambda: make.from_pyval({"a": 1}).partition_outer_dimension(rows.from_row_lengths([1])),
        "merge in reverse": lambda: two.merge_dims(1, 0),
        "merge no axis": lambda: two.merge_dims(0, 5),
        "to_pyval": lambda: one.to_pyval(),
    }
    return {k: (lambda f=f: whole(f())) for k, f in made.items()} | others


def plain(tf: Any, x: Any, run: Callable[[Any], Any]) -> Any:
    """Returns a result as lists, numbers and texts."""
    if isinstance(x, (list, tuple)):
        return [plain(tf, v, run) for v in x]
    if isinstance(x, dict):
        return {k: plain(tf, v, run) for k, v in x.items()}
    if tf.is_tensor(x):
        value = run(x)
        return plain(tf, [value] if isinstance(value, bytes) else value.tolist(), run)
    if isinstance(x, (np.generic, np.ndarray)):
        return x.tolist()
    return x.decode() if isinstance(x, bytes) else x


def results(tf: Any, cases: Callable[[Any], dict[str, Callable[[], Any]]]) -> dict[str, Any]:
    """Calls all functions: plain results, and lists of the classes of errors."""
    out: dict[str, Any] = {}
    with tf.Graph().as_default(), tf.Session() as session:
        for name, call in cases(tf).items():
            try:
                out[name] = plain(tf, call(), session.run)
            except Exception as e:
                out[name] = {"error": [c.__name__ for c in type(e).__mro__[:-2]]}
    return out


KINDS = {"partitions": partitions, "shapes": shapes, "structures": structures}


def main() -> None:
    """Writes the values of TensorFlow."""
    import tensorflow.compat.v1 as tf

    found = {f"{kind}: {k}": v for kind, cases in KINDS.items() for k, v in results(tf, cases).items()}
    rows = (f" {json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    VALUES.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
