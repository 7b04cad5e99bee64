"""Parsing of comma-separated records, examples and sequence examples, beyond the records' cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import float32, int32, int64, string
from headrace.errors import InvalidArgumentError, ShapeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ir.opdef import Case, op_registry
from headrace.opkit import arrays
from headrace.opkit.example_protos import read_example, write_example, write_sequence
from headrace.ops.strings.elements import texts
from tests.ops.cases import flat, open_op, run_kernel

pytestmark = pytest.mark.one_engine

I64 = lambda *values: np.array(values, np.int64)
F32 = lambda *values: np.array(values, np.float32)
NONE: dict[dtypes.DType, np.ndarray] = {t: np.empty(0, t.numpy) for t in (int32, int64, float32, string)}
INVALID = (InvalidArgumentError, ValueError)


def text(value: bytes) -> np.ndarray:
    return np.array(value, object)


def run(type: str, *inputs: Any, **attrs: Any) -> list[Any]:
    """The outputs of a kernel on arrays of unknown static shape, as Python lists."""
    op = open_op(op_registry.get(type), Case(inputs, attrs), lambda x: None)
    return [x.tolist() for x in run_kernel(op, flat(inputs))]


# *** Comma-separated records ***


def csv(record: bytes, *defaults: np.ndarray, **attrs: Any) -> list[Any]:
    return [column[0] for column in run("DecodeCSV", texts(record), list(defaults), **attrs)]


def test_fields() -> None:
    s = NONE[string]
    assert csv(b'"a","b ""q"" c",d', s, s, s) == [b"a", b'b "q" c', b"d"]
    assert csv(b'"a\r\nb",c', s, s) == [b"a\r\nb", b"c"]
    assert csv(b'"",x', texts(b"q"), s) == [b"q", b"x"]
    assert csv(b"1\t2", NONE[int32], NONE[int32], field_delim="\t") == [1, 2]
    assert csv(b'a,b,c,"d', s, select_cols=(0,)) == [b"a"]  # fields after the last column wanted are not parsed
    assert csv(b" 1 ,inf", NONE[int64], NONE[float32]) == [1, np.inf]


@pytest.mark.parametrize(
    ("record", "defaults", "attrs", "match"),
    [
        (b"1,2", [int32] * 3, {}, "Expect 3 fields but have 2 in record 0"),
        (b"1,2,", [int32] * 2, {}, "Expect 2 fields but have 3 in record 0"),
        (b"", [string], {}, "Expect 1 fields but have 0"),
        (b",1", [int32] * 2, {}, "Field 0 is required but missing in record 0"),
        (b"x", [int32], {}, "Field 0 in record 0 is not a valid int32: x"),
        (b"3000000000", [int32], {}, "not a valid int32"),
        (b"1_0", [float32], {}, "not a valid float32"),
        (b'a"b', [string], {}, "Unquoted fields cannot have quotes/CRLFs inside"),
        (b"a\nb", [string], {"use_quote_delim": False}, "Unquoted fields"),
        (b'"a"b', [string], {}, "has to be escaped by another quote"),
        (b'"a', [string], {}, "has to end with quote followed by delim or end"),
        (b"a", [string], {"field_delim": ";;"}, "only 1 char"),
        (b"a,b", [string] * 2, {"select_cols": (1, 0)}, "strictly increasing"),
        (b"a,b", [string], {"select_cols": (-1,)}, "non-negative"),
        (b"a,b", [string], {"select_cols": (0, 1)}, "match output size"),
    ],
)
def test_bad_records(record: bytes, defaults: list[Any], attrs: dict[str, Any], match: str) -> None:
    with pytest.raises(INVALID, match=match):
        csv(record, *(NONE[t] for t in defaults), **attrs)


def test_a_field_has_one_default() -> None:
    with pytest.raises(INVALID, match="only be 1 default"):
        csv(b"1", np.array([1, 2], np.int32))


# *** Examples ***

EXAMPLES = texts(
    write_example({"a": I64(1, 2), "b": texts(b"x"), "c": F32(1.5, 2.5)}),
    write_example({"a": I64(3), "b": None, "c": F32(3.5, 4.5)}),
    write_example({"c": F32(5, 6)}),
)


def parse(
    serialized: np.ndarray,
    sparse: Mapping[str, Any] | None = None,
    dense: Mapping[str, tuple[Any, Any]] | None = None,
    ragged: Mapping[str, Any] | None = None,
    names: np.ndarray = NONE[string],
) -> list[Any]:
    """ParseExampleV2: keys and types of sparse and ragged features, shapes and defaults of dense ones."""
    sparse, dense, ragged = sparse or {}, dense or {}, ragged or {}
    return run(
        "ParseExampleV2",
        serialized,
        names,
        *(texts(*(k.encode() for k in keys)) for keys in (sparse, dense, ragged)),
        [default for _, default in dense.values()],
        num_sparse=len(sparse),
        sparse_types=tuple(sparse.values()),
        ragged_value_types=tuple(ragged.values()),
        ragged_split_types=(int64,) * len(ragged),
        dense_shapes=tuple(shape for shape, _ in dense.values()),
    )


def test_dense_features() -> None:
    assert parse(EXAMPLES[1:], dense={"a": ((1,), I64(7))}) == [[[3], [7]]]
    assert parse(EXAMPLES[1:], dense={"a": ((), np.array(7))}) == [[3, 7]]
    assert parse(EXAMPLES, dense={"c": ((None, 2), F32(0))}) == [[[[1.5, 2.5]], [[3.5, 4.5]], [[5, 6]]]]
    assert parse(EXAMPLES, dense={"a": ((None,), np.array(9))}) == [[[1, 2], [3, 9], [9, 9]]]


def test_no_examples_and_empty_ones() -> None:
    none = parse(EXAMPLES[:0], {"a": int64}, {"c": ((2,), F32()), "d": ((None, 3), I64(1))}, {"a": int64})
    assert none == [[], [], [0, 0], [], [], [], [0]]
    assert parse(texts(b"", EXAMPLES[0]), {"a": int64}) == [[[1, 0], [1, 1]], [1, 2], [2, 2]]


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        ({"dense": {"a": ((1,), I64())}}, "Key: a, Index: 0.  Number of int64 values != expected.  Values size: 2"),
        (
            {"dense": {"b": ((1,), NONE[string])}},
            r"Feature: b \(data type: string\) is required but could not be found",
        ),
        (
            {"dense": {"c": ((2,), I64())}},
            "Key: c.  Data types don't match. Expected type: int64, Actual type: float32",
        ),
        ({"sparse": {"c": int64}}, "Data types don't match"),
        ({"ragged": {"c": int64}}, "Data types don't match"),
        ({"dense": {"a": ((None,), I64())}}, "variable length shape"),
        ({"dense": {"a": ((None, 2), I64(1))}}, "not a multiple of stride length. Saw 1 values"),
        ({"dense": {"a": ((1,), I64(1, 2))}}, "is not compatible with"),
        ({"names": texts(b"n")}, "Expected names have the same shape"),
        ({"sparse": {"c": int64}, "names": texts(b"n0", b"n1", b"n2")}, "Name: n0, Key: c"),
    ],
)
def test_features_that_are_not_as_expected(wanted: dict[str, Any], match: str) -> None:
    with pytest.raises(INVALID, match=match):
        parse(EXAMPLES, **wanted)


def test_bytes_that_are_no_example() -> None:
    rng = np.random.default_rng(0)
    damaged = [bytes(rng.integers(0, 256, n).astype(np.uint8)) for n in range(1, 60)]
    good = EXAMPLES[0]
    damaged += [good[:i] + bytes([good[i] ^ 255]) + good[i + 1 :] for i in range(len(good))]
    refused = 0
    for data in damaged:
        try:
            parse(texts(data), {"a": int64}, ragged={"b": string})
        except InvalidArgumentError:
            refused += 1
    assert refused > len(damaged) // 2
    with pytest.raises(InvalidArgumentError, match="Could not parse example input, value: b'garbage'"):
        parse(texts(b"garbage"), {"a": int64})


def test_padding_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "max_bytes", 10**6)
    with pytest.raises(Exception, match="OOM"):
        parse(texts(write_example({"a": np.zeros(2000, np.int64)}), *[b""] * 200), dense={"a": ((None,), I64(0))})


def test_single_examples() -> None:
    attrs = {"num_sparse": 0, "sparse_keys": (), "sparse_types": (), "dense_keys": ("a",), "dense_shapes": ((2,),)}
    assert run("ParseSingleExample", EXAMPLES[0, ...], [I64()], **attrs) == [[1, 2]]
    with pytest.raises(INVALID, match="Expected serialized to be a scalar"):
        run("ParseSingleExample", EXAMPLES, [I64()], **attrs)
    with pytest.raises(INVALID, match="is required but could not be found"):
        run("ParseSingleExample", EXAMPLES[2, ...], [I64()], **attrs)
    with pytest.raises(INVALID, match="dense_keys"):
        run("ParseSingleExample", EXAMPLES[0, ...], [I64()], **{**attrs, "dense_keys": ()})


def test_json() -> None:
    value = b'{"features": {"feature": {"a": {"int64List": {"value": [1, "2"]}}, "b": {"float_list": {"value": [1]}}}}}'
    (found,) = run("DecodeJSONExample", texts(value))
    assert {k: v.tolist() for k, v in read_example(found[0]).items() if v is not None} == {"a": [1, 2], "b": [1]}
    for bad in (b"{", b'{"foo": 1}', b"\xff", b"[" * 100000, b"null"):
        with pytest.raises(InvalidArgumentError, match="Error while parsing JSON"):
            run("DecodeJSONExample", texts(bad))


# *** Sequence examples ***

SEQUENCES = texts(
    write_sequence({"a": I64(1, 2)}, {"f": [F32(1, 2), F32(3, 4)], "g": [I64(1), None, I64(2, 3)]}),
    write_sequence({}, {}),
)


def one(serialized: bytes, missing: np.ndarray = NONE[string], name: bytes = b"", **wanted: Any) -> list[Any]:
    """ParseSingleSequenceExample with one feature: `sparse`, `dense`, `step_sparse` or `step_dense`."""
    keys = {kind: [text(v[0].encode()) for v in [wanted[kind]]] if kind in wanted else [] for kind in KINDS}
    kinds = {kind: tuple(v[1] for v in [wanted[kind]]) if kind in wanted else () for kind in KINDS}
    shapes = {kind: tuple(v[2] for v in [wanted[kind]]) if kind in wanted else () for kind in ("dense", "step_dense")}
    return run(
        "ParseSingleSequenceExample",
        text(serialized),
        missing,
        *keys.values(),
        [wanted["dense"][3]] if "dense" in wanted else [],
        text(name),
        context_sparse_types=kinds["sparse"],
        context_dense_shapes=shapes["dense"],
        feature_list_sparse_types=kinds["step_sparse"],
        feature_list_dense_types=kinds["step_dense"],
        feature_list_dense_shapes=shapes["step_dense"],
    )


KINDS = ("sparse", "dense", "step_sparse", "step_dense")


def test_one_sequence() -> None:
    assert one(SEQUENCES[0], step_sparse=("g", int64)) == [[[0, 0], [2, 0], [2, 1]], [1, 2, 3], [3, 2]]
    assert one(SEQUENCES[1], step_sparse=("g", int64)) == [[], [], [0, 0]]
    assert one(SEQUENCES[1], texts(b"f"), step_dense=("f", float32, (2,))) == [[]]
    assert one(SEQUENCES[1], dense=("b", string, (1,), texts(b"z"))) == [[b"z"]]


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        ({"step_dense": ("z", float32, (2,))}, "Name: me, Feature list 'z' is required but could not be found"),
        ({"step_dense": ("f", float32, (3,))}, "Number of float32 values != expected.  values size: 2"),
        ({"step_dense": ("g", int64, (1,))}, "Key: g, Index: 1.  Number of int64 values != expected.  values size: 0"),
        ({"step_dense": ("f", int64, (2,))}, "Data types don't match. Expected type: int64"),
        ({"step_sparse": ("f", int64)}, "Data types don't match"),
        ({"sparse": ("a", float32)}, "Data types don't match"),
        ({"dense": ("b", string, (1,), NONE[string])}, "is required but could not be found"),
        ({"dense": ("a", int64, (1,), I64())}, "Number of int64 values != expected"),
    ],
)
def test_sequences_that_are_not_as_expected(wanted: dict[str, Any], match: str) -> None:
    with pytest.raises(INVALID, match=match):
        one(SEQUENCES[0], name=b"me", **wanted)


def test_bytes_that_are_no_sequence() -> None:
    with pytest.raises(InvalidArgumentError, match="Could not parse example input, value: b'garbage'"):
        one(b"garbage", sparse=("a", int64))


# *** Static shapes ***


def test_parsed_examples_have_their_static_shapes() -> None:
    b = Builder(Graph())
    attrs = {"sparse_types": (int64,), "dense_shapes": ((2,), (None, 3))}

    def shapes(serialized: Any) -> list[Any]:
        made = b.make("ParseExample", [serialized, NONE[string], ["a"], ["b", "c"], [F32(), I64(0)]], attrs)
        return [t.shape for t in made]

    known = shapes(b.Placeholder(dtype=string, shape=(4,)))
    assert known == [(None, 2), (None,), (2,), (4, 2), (4, None, 3)]
    assert shapes(b.Placeholder(dtype=string, shape=None))[3:] == [(None, 2), (None, None, 3)]
    with pytest.raises(ShapeError):
        shapes(b.Placeholder(dtype=string, shape=()))
    column = b.DecodeCSV(b.Placeholder(dtype=string, shape=(3, None)), [I64()])
    assert (column[0] if isinstance(column, (list, tuple)) else column).shape == (3, None)
