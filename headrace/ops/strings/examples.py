"""Parsing of tf.train.Example: ParseExample, ParseExampleV2, ParseSingleExample, DecodeJSONExample.

Source: TensorFlow's ops of the same names. A feature becomes a sparse, dense or ragged array of all examples.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.dtypes import INDEX, DType, int32, int64, string
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    flops_per_element,
    flops_per_input,
    int_attr,
    list_attr,
    op,
)
from headrace.opkit.arrays import single
from headrace.opkit.example_protos import example_of_json, read_example, write_example
from headrace.opkit.shape_rules import same_as
from headrace.ops.strings.elements import each, texts
from headrace.ops.strings.features import (
    TYPES,
    Dense,
    checked_default,
    checked_shape,
    dense,
    joined,
    name_of,
    sparse,
    splits,
    typed,
)
from headrace.shapes import Shape, merge, show, with_rank, with_rank_at_most

_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(20000))


class _Wanted(NamedTuple):
    """The features to find in examples: keys and types, and all about the dense ones."""

    sparse: list[tuple[str, DType]]
    dense: list[Dense]
    ragged: list[tuple[str, DType, DType]]


def _parsed(serialized: Any, names: Any, wanted: _Wanted) -> tuple[Any, ...]:
    """The flat outputs of ParseExampleV2, of a vector of examples or one alone."""

    def where(i: int) -> str:
        return f"Name: {names.ravel()[i].decode('utf-8', 'replace') if names.size else '<unknown>'}, "

    for i, of in enumerate(wanted.dense):
        checked_default(of, i)
    examples = []
    for i, data in enumerate(serialized.ravel()):
        try:
            examples.append(read_example(data))
        except ValueError as e:
            raise InvalidArgumentError(f"{where(i)}Could not parse example input, value: {data[:100]!r}: {e}") from None
    alone = not serialized.ndim
    places = np.arange(len(examples))[:, None]

    def rows(key: str, t: DType) -> list[np.ndarray]:
        return [typed(e.get(key), t, key, functools.partial(where, i)) for i, e in enumerate(examples)]

    found = [sparse(rows(key, t), places, [len(examples)], t) for key, t in wanted.sparse]
    if alone:
        found = [(indices[:, 1:], values, shape[1:]) for indices, values, shape in found]
    arrays = [dense(of, [e.get(of.key) for e in examples], where) for of in wanted.dense]
    ragged = [(rows(key, t), t, s) for key, t, s in wanted.ragged]
    return (
        *(f[0] for f in found),
        *(f[1] for f in found),
        *(f[2] for f in found),
        *(a[0, ...] if alone else a for a in arrays),
        *(joined(r, t) for r, t, _ in ragged),
        *(np.empty(0, s.numpy) if alone else splits(list(map(len, r)), s) for r, _, s in ragged),
    )


def _count(attrs: Mapping[str, Any]) -> int:
    return 3 * len(attrs["sparse_types"]) + len(attrs["Tdense"]) + 2 * len(attrs.get("ragged_value_types", ()))


def _denses(keys: Sequence[str], defaults: Sequence[Any], attrs: Mapping[str, Any]) -> list[Dense]:
    shapes = [checked_shape(s, i, opens=True) for i, s in enumerate(attrs["dense_shapes"])]
    return [Dense(*parts) for parts in zip(keys, attrs["Tdense"], shapes, defaults, strict=True)]


def _same_number(name: str, keys: Sequence[Any], types: Sequence[Any]) -> None:
    if len(keys) != len(types):
        raise InvalidArgumentError(f"len({name}_keys) != len({name}_types): {len(keys)} and {len(types)}")


def _check_names(serialized: Any, names: Any) -> None:
    if names.size and names.shape != serialized.shape:
        raise InvalidArgumentError(
            "Expected names have the same shape as serialized: "
            f"name.shape={show(names.shape)}, serialized.shape={show(serialized.shape)}"
        )


def _v1_kernel(attrs: Mapping[str, Any]) -> Any:
    n, m = attrs["Nsparse"], attrs["Ndense"]
    _same_number("sparse", range(n), attrs["sparse_types"])
    _same_number("dense", range(m), attrs["Tdense"])
    _same_number("dense", range(m), attrs["dense_shapes"])

    def kernel(serialized: Any, names: Any, *rest: Any) -> tuple[Any, ...]:
        if serialized.ndim != 1:
            raise InvalidArgumentError(f"Expected serialized to be a vector, got shape: {show(serialized.shape)}")
        _check_names(serialized, names)
        keys = []
        for key in rest[: n + m]:
            if key.ndim:
                raise InvalidArgumentError(f"Expected keys to be scalars, got shape: {show(key.shape)}")
            keys.append(name_of(key.item()))
        wanted = list(zip(keys[:n], attrs["sparse_types"], strict=True))
        return _parsed(serialized, names, _Wanted(wanted, _denses(keys[n:], rest[n + m :], attrs), []))

    return single(kernel, _count(attrs))


def _v2_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(serialized: Any, names: Any, *rest: Any) -> tuple[Any, ...]:
        if serialized.ndim > 1:
            raise InvalidArgumentError(
                f"Expected serialized to be a scalar or vector, got shape: {show(serialized.shape)}"
            )
        _check_names(serialized, names)
        keys = []
        for name, vector, types in zip(
            ("sparse", "dense", "ragged"),
            rest[:3],
            (attrs["sparse_types"], attrs["Tdense"], attrs["ragged_value_types"]),
            strict=True,
        ):
            if vector.ndim != 1:
                raise InvalidArgumentError(f"Expected {name}_keys to be a vector, got shape: {show(vector.shape)}")
            _same_number(name, vector, types)
            keys.append(list(map(name_of, vector)))
        wanted = _Wanted(
            list(zip(keys[0], attrs["sparse_types"], strict=True)),
            _denses(keys[1], rest[3:], attrs),
            list(zip(keys[2], attrs["ragged_value_types"], attrs["ragged_split_types"], strict=True)),
        )
        return _parsed(serialized, names, wanted)

    _same_number("sparse", range(attrs["num_sparse"]), attrs["sparse_types"])
    _same_number("dense", attrs["dense_shapes"], attrs["Tdense"])
    _same_number("ragged", attrs["ragged_split_types"], attrs["ragged_value_types"])
    return single(kernel, _count(attrs))


def _single_kernel(attrs: Mapping[str, Any]) -> Any:
    _same_number("sparse", attrs["sparse_keys"], attrs["sparse_types"])
    _same_number("dense", attrs["dense_keys"], attrs["Tdense"])
    _same_number("dense", attrs["dense_shapes"], attrs["Tdense"])
    names = np.empty(0, object)

    def kernel(serialized: Any, *defaults: Any) -> tuple[Any, ...]:
        if serialized.ndim:
            raise InvalidArgumentError(f"Expected serialized to be a scalar, got shape: {show(serialized.shape)}")
        wanted = list(zip(attrs["sparse_keys"], attrs["sparse_types"], strict=True))
        return _parsed(serialized, names, _Wanted(wanted, _denses(attrs["dense_keys"], defaults, attrs), []))

    return single(kernel, _count(attrs))


# *** Shapes ***


def _output_shapes(c: Inference, batch: Shape) -> Sequence[Shape]:
    """Shapes of the outputs for examples of the shape `batch`."""
    rank = None if batch is None else len(batch) + 1
    n, m = len(c.attrs["sparse_types"]), len(c.attrs.get("ragged_value_types", ()))
    rows = None if batch is None else 0 if batch == () else None if batch[0] is None else batch[0] + 1
    for i, s in enumerate(c.attrs["dense_shapes"]):
        if s is None or None in s[1:]:
            raise ValueError(f"dense_shapes[{i}] has unknown rank or unknown inner dimensions: {show(s)}")
    return [
        *[(None, rank)] * n,
        *[(None,)] * n,
        *[(rank,)] * n,
        *(None if batch is None else (*batch, *s) for s in c.attrs["dense_shapes"]),
        *[(None,)] * m,
        *[(rows,)] * m,
    ]


def _v1_shape(c: Inference) -> Sequence[Shape]:
    return _output_shapes(c, with_rank(c.shapes[0], 1))


def _v2_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes[2:5]:
        with_rank(s, 1)
    return _output_shapes(c, with_rank_at_most(c.shapes[0], 1))


def _single_shape(c: Inference) -> Sequence[Shape]:
    return _output_shapes(c, merge(c.shapes[0], ()))


# *** How the tests exercise them ***


def _vector(*values: Any) -> np.ndarray:
    return texts(*values) if isinstance(values[0], bytes) else np.array(values, np.float32 if values[0] % 1 else None)


def _example(a: np.ndarray | None, b: np.ndarray | None, c: np.ndarray) -> bytes:
    """Serialized example with the features a, b and c.

    The features a and b have further names as well, because TensorFlow accepts each name once.
    """
    found = {"a": a, "a2": a, "a3": a, "b": b, "b2": b, "c": c}
    return write_example({name: values for name, values in found.items() if name == "b" or values is not None})


_EXAMPLES = texts(
    _example(_vector(1, 2), _vector(b"x"), _vector(1.5, 2.5)),
    _example(_vector(3), None, _vector(3.5, 4.5)),
    _example(None, None, _vector(5.5, 6.5)),
)
_NONE, _NO_FLOATS = np.empty(0, object), np.empty(0, np.float32)
_SPARSE = (
    np.array([[0, 0], [0, 1], [1, 0]]),
    np.array([[0, 0]]),
    np.array([1, 2, 3]),
    texts(b"x"),
    np.array([3, 2]),
    np.array([3, 1]),
)
_FIXED = np.array([[1.5, 2.5], [3.5, 4.5], [5.5, 6.5]], np.float32)
_OPEN = np.array([[1, 2], [3, 9], [9, 9]])


def _v1_samples(rng: np.random.Generator, t: DType) -> list[Any]:
    keys = [np.array(k, object) for k in (b"a", b"b", b"c", b"a2")]
    return [
        case(
            _EXAMPLES,
            _NONE,
            keys[:2],
            keys[2:],
            [_NO_FLOATS, np.array([9])],
            sparse_types=(int64, string),
            dense_shapes=((2,), (None,)),
            want=(*_SPARSE, _FIXED, _OPEN),
        ),
        case(_EXAMPLES[:0], _NONE, [], keys[2:3], [_NO_FLOATS], sparse_types=(), dense_shapes=((2,),), want=_FIXED[:0]),
        case(
            _EXAMPLES[2:],
            _NONE,
            [],
            keys[:1],
            [np.array([[4, 5]])],
            sparse_types=(),
            dense_shapes=((1, 2),),
            want=np.array([[[4, 5]]]),
        ),
    ]


def _v2_samples(rng: np.random.Generator, t: DType) -> list[Any]:
    def some(serialized: np.ndarray, *want: Any) -> Any:
        return case(
            serialized,
            _NONE,
            texts(b"a", b"b"),
            texts(b"c", b"a2"),
            texts(b"a3", b"b2"),
            [_NO_FLOATS, np.array([9])],
            num_sparse=2,
            sparse_types=(int64, string),
            ragged_value_types=(int64, string),
            ragged_split_types=(int32, int64),
            dense_shapes=((2,), (None,)),
            want=want,
        )

    nothing = np.empty(0, np.int32)
    return [
        some(
            _EXAMPLES,
            *_SPARSE,
            _FIXED,
            _OPEN,
            _SPARSE[2],
            _SPARSE[3],
            np.array([0, 2, 3, 3], np.int32),
            np.array([0, 1, 1, 1]),
        ),
        some(
            _EXAMPLES[:1].reshape(()),
            *(np.array([[0], [1]]), np.array([[0]])),
            *(np.array([1, 2]), texts(b"x")),
            *(np.array([2]), np.array([1])),
            *(_FIXED[0], np.array([1, 2])),
            *(np.array([1, 2]), texts(b"x")),
            *(nothing, nothing.astype(np.int64)),
        ),
    ]


def _single_samples(rng: np.random.Generator, t: DType) -> list[Any]:
    return [
        case(
            _EXAMPLES[:1].reshape(()),
            [_NO_FLOATS, np.array([7])],
            num_sparse=1,
            sparse_keys=("a",),
            sparse_types=(int64,),
            dense_keys=("c", "z"),
            dense_shapes=((1, 2), (1,)),
            want=(np.array([[0], [1]]), np.array([1, 2]), np.array([2]), _FIXED[:1], np.array([7])),
        )
    ]


# *** Records ***

_DENSE = {
    "Tdense": list_attr("type", allowed=TYPES),
    "dense_shapes": list_attr("shape"),
}
_TYPES = {"sparse_types": list_attr("type", allowed=TYPES)}
_SPARSE_OUT = (
    "sparse_indices: {0} * int64, sparse_values: sparse_types, sparse_shapes: {0} * int64, dense_values: Tdense"
)

op(
    "ParseExample",
    "serialized: string, names: string, sparse_keys: Nsparse * string, dense_keys: Ndense * string, "
    "dense_defaults: Tdense",
    _SPARSE_OUT.format("Nsparse"),
    {"Nsparse": int_attr(minimum=0), "Ndense": int_attr(minimum=0)} | _TYPES | _DENSE,
    shape=_v1_shape,
    kernel=_v1_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_v1_samples,
    doc="Features of serialized examples, as sparse and dense arrays.",
)
op(
    "ParseExampleV2",
    "serialized: string, names: string, sparse_keys: string, dense_keys: string, ragged_keys: string, "
    "dense_defaults: Tdense",
    f"{_SPARSE_OUT.format('num_sparse')}, ragged_values: ragged_value_types, ragged_row_splits: ragged_split_types",
    {"num_sparse": int_attr(minimum=0)}
    | _TYPES
    | _DENSE
    | {
        "ragged_value_types": list_attr("type", allowed=TYPES),
        "ragged_split_types": list_attr("type", allowed=INDEX),
    },
    shape=_v2_shape,
    kernel=_v2_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_v2_samples,
    doc="Features of serialized examples, or of one, as sparse, dense and ragged arrays.",
    differs="A key may be requested more than once.",
)
op(
    "ParseSingleExample",
    "serialized: string, dense_defaults: Tdense",
    _SPARSE_OUT.format("num_sparse"),
    {
        "num_sparse": int_attr(minimum=0),
        "sparse_keys": list_attr("string"),
        "dense_keys": list_attr("string"),
    }
    | _TYPES
    | _DENSE,
    shape=_single_shape,
    kernel=_single_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_single_samples,
    doc="Features of one serialized example, as sparse and dense arrays.",
)


def _json_kernel(attrs: Mapping[str, Any]) -> Any:
    def example(text: bytes) -> bytes:
        try:
            return example_of_json(text.decode())
        except ValueError as e:
            raise InvalidArgumentError(f"Error while parsing JSON: {e}") from None

    return lambda x: each(example, x)


op(
    "DecodeJSONExample",
    "json_examples: string",
    "binary_examples: string",
    shape=same_as(0),
    kernel=_json_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_element(20000)),
    sample=lambda rng, t: [
        case(
            texts(b'{"features": {"feature": {"b": {"bytesList": {"value": ["eA=="]}}}}}', b"{}"),
            want=texts(write_example({"b": _vector(b"x")}), b""),
        )
    ],
    doc="The serialized example that each JSON text describes.",
    differs="Lists of numbers are written packed; the bytes differ, the message is equal.",
)
