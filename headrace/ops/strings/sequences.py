"""Parsing of tf.train.SequenceExample: ParseSequenceExample, ParseSequenceExampleV2, ParseSingleSequenceExample.

Source: TensorFlow's ops of the same names. The features of a whole sequence, its context, become arrays as for
examples; the features of its steps become arrays with one more dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace.dtypes import INDEX, DType, float32, int32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, int_attr, list_attr, op
from headrace.opkit.arrays import single
from headrace.opkit.example_protos import read_sequence, write_sequence
from headrace.ops.strings.elements import texts
from headrace.ops.strings.features import (
    TYPES,
    Dense,
    checked_default,
    checked_shape,
    dense,
    dense_steps,
    flat_steps,
    joined,
    name_of,
    places_of_steps,
    sparse,
    splits,
    typed,
)
from headrace.shapes import Shape, is_full, merge, show, with_rank, with_rank_at_most

_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(20000))
_Typed = list[tuple[str, DType]]
_Split = list[tuple[str, DType, DType]]


class _Wanted(NamedTuple):
    """Features to parse, of the context and of the steps.

    `optional` names the features of steps that may be missing.
    """

    sparse: _Typed
    dense: list[Dense]
    ragged: _Split
    step_sparse: _Typed
    step_dense: list[Dense]
    step_ragged: _Split
    optional: set[str]


def _parsed(serialized: Any, names: Any, wanted: _Wanted, lengths: bool) -> tuple[Any, ...]:
    """Flat outputs of ParseSequenceExampleV2, for a vector of sequences or a single one.

    The numbers of steps of dense features are included if `lengths` is set.
    """

    def where(i: int) -> str:
        return f"Name: {names.ravel()[i].decode('utf-8', 'replace') if names.size else '<unknown>'}, "

    for i, of in enumerate(wanted.dense):
        checked_default(of, i)
    found = []
    for i, data in enumerate(serialized.ravel()):
        try:
            found.append(read_sequence(data))
        except ValueError as e:
            raise InvalidArgumentError(f"{where(i)}Could not parse example input, value: {data[:100]!r}: {e}") from None
    alone, n = not serialized.ndim, len(found)

    def rows(key: str, t: DType) -> list[np.ndarray]:
        return [typed(context.get(key), t, key, functools.partial(where, i)) for i, (context, _) in enumerate(found)]

    def steps(key: str) -> list[Any]:
        return [lists.get(key, []) for _, lists in found]

    def sparse_steps(key: str, t: DType) -> tuple[np.ndarray, ...]:
        of = steps(key)
        return sparse(flat_steps(of, t, key, where), places_of_steps(of), [n, max(map(len, of), default=0)], t)

    def whole_steps(of: Dense) -> tuple[np.ndarray, np.ndarray]:
        for i, (_, lists) in enumerate(found):
            if of.key not in lists and of.key not in wanted.optional:
                raise InvalidArgumentError(
                    f"{where(i)}Feature list '{of.key}' is required but could not be found.  Did you mean to include "
                    "it in feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?"
                )
        return dense_steps(of, steps(of.key), where)

    def ends(counts: list[int], t: DType) -> np.ndarray:
        return np.zeros((), t.numpy) if alone else splits(counts, t)

    def sparses(arrays: list[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
        if alone:
            arrays = [(indices[:, 1:], values, shape[1:]) for indices, values, shape in arrays]
        return [a[i] for i in range(3) for a in arrays]

    def first(a: np.ndarray) -> Any:
        return a[0, ...] if alone else a

    places = np.arange(n)[:, None]
    whole = [whole_steps(of) for of in wanted.step_dense]
    ragged = [(rows(key, t), t, s) for key, t, s in wanted.ragged]
    step_ragged = [(flat_steps(steps(key), t, key, where), list(map(len, steps(key))), t, s)
                   for key, t, s in wanted.step_ragged]  # fmt: skip
    return (
        *sparses([sparse(rows(key, t), places, [n], t) for key, t in wanted.sparse]),
        *(first(dense(of, [context.get(of.key) for context, _ in found], where)) for of in wanted.dense),
        *(joined(r, t) for r, t, _ in ragged),
        *(ends(list(map(len, r)), s) for r, _, s in ragged),
        *sparses([sparse_steps(key, t) for key, t in wanted.step_sparse]),
        *(first(array) for array, _ in whole),
        *(first(counts) for _, counts in whole if lengths),
        *(joined(r, t) for r, _, t, _ in step_ragged),
        *(ends(counts, s) for _, counts, _, s in step_ragged),
        *(splits(list(map(len, r)), s) for r, _, _, s in step_ragged),
    )


# *** Kernels ***


def _same_number(what: str, found: Sequence[Any], types: Sequence[Any]) -> None:
    if len(found) != len(types):
        raise InvalidArgumentError(f"expected as many {what} as there are types: {len(found)} and {len(types)}")


def _typed_keys(keys: Sequence[str], types: Sequence[DType], what: str) -> _Typed:
    _same_number(what, keys, types)
    return list(zip(keys, types, strict=True))


def _contexts(keys: Sequence[str], defaults: Sequence[Any], attrs: Mapping[str, Any]) -> list[Dense]:
    _same_number("dense keys of the context", keys, attrs["Tcontext_dense"])
    _same_number("dense shapes of the context", attrs["context_dense_shapes"], attrs["Tcontext_dense"])
    shapes = [checked_shape(s, i, opens=False) for i, s in enumerate(attrs["context_dense_shapes"])]
    return [Dense(*parts) for parts in zip(keys, attrs["Tcontext_dense"], shapes, defaults, strict=True)]


def _step_denses(keys: Sequence[str], attrs: Mapping[str, Any]) -> list[Dense]:
    types, shapes = attrs["feature_list_dense_types"], attrs["feature_list_dense_shapes"]
    _same_number("dense keys of feature lists", keys, types)
    _same_number("dense shapes of feature lists", shapes, types)
    shapes = [checked_shape(s, i, opens=False) for i, s in enumerate(shapes)]
    return [Dense(*parts, np.empty(0, parts[1].numpy)) for parts in zip(keys, types, shapes, strict=True)]


def _check_rank(serialized: Any, names: Any) -> None:
    if serialized.ndim > 1:
        raise InvalidArgumentError(f"Expected serialized to be a scalar or vector, got shape: {show(serialized.shape)}")
    if names.size and names.size != serialized.size:
        raise InvalidArgumentError(
            f"example_names must be empty or have the correct number of elements, {serialized.size}, got {names.size}"
        )


def _v1_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(serialized: Any, names: Any, *defaults: Any) -> tuple[Any, ...]:
        _check_rank(serialized, names)
        wanted = _Wanted(
            _typed_keys(attrs["context_sparse_keys"], attrs["context_sparse_types"], "sparse keys of the context"),
            _contexts(attrs["context_dense_keys"], defaults, attrs),
            [],
            _typed_keys(attrs["feature_list_sparse_keys"], attrs["feature_list_sparse_types"], "sparse keys of lists"),
            _step_denses(attrs["feature_list_dense_keys"], attrs),
            [],
            set(attrs["feature_list_dense_missing_assumed_empty"]),
        )
        return _parsed(serialized, names, wanted, lengths=True)

    return single(kernel, _outputs(attrs, lengths=True))


def _keys(vectors: Sequence[Any]) -> list[list[str]]:
    for vector in vectors:
        if vector.ndim != 1:
            raise InvalidArgumentError(f"Expected keys to be a vector, got shape: {show(vector.shape)}")
    return [list(map(name_of, vector)) for vector in vectors]


def _split_keys(keys: Sequence[str], attrs: Mapping[str, Any], prefix: str) -> _Split:
    types, ends = attrs[f"{prefix}_ragged_value_types"], attrs[f"{prefix}_ragged_split_types"]
    _same_number(f"ragged keys of {prefix}", keys, types)
    _same_number(f"types of splits of {prefix}", ends, types)
    return list(zip(keys, types, ends, strict=True))


def _v2_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(serialized: Any, names: Any, *rest: Any) -> tuple[Any, ...]:
        _check_rank(serialized, names)
        keys, missing = _keys(rest[:6]), rest[6]
        if missing.shape != (len(keys[4]),):
            raise InvalidArgumentError(
                "Expected len(feature_list_dense_missing_assumed_empty) to match Nfeature_list_dense: "
                f"{show(missing.shape)} and {len(keys[4])}"
            )
        wanted = _Wanted(
            _typed_keys(keys[0], attrs["context_sparse_types"], "sparse keys of the context"),
            _contexts(keys[1], rest[7:], attrs),
            _split_keys(keys[2], attrs, "context"),
            _typed_keys(keys[3], attrs["feature_list_sparse_types"], "sparse keys of feature lists"),
            _step_denses(keys[4], attrs),
            _split_keys(keys[5], attrs, "feature_list"),
            {key for key, may_miss in zip(keys[4], missing, strict=True) if may_miss},
        )
        return _parsed(serialized, names, wanted, lengths=True)

    return single(kernel, _outputs(attrs, lengths=True))


def _single_kernel(attrs: Mapping[str, Any]) -> Any:
    kinds = ("Ncontext_sparse", "Ncontext_dense", "Nfeature_list_sparse", "Nfeature_list_dense")
    numbers = [attrs[kind] for kind in kinds]

    def kernel(serialized: Any, missing: Any, *rest: Any) -> tuple[Any, ...]:
        if serialized.ndim:
            raise InvalidArgumentError(f"Expected serialized to be a scalar, got shape: {show(serialized.shape)}")
        if missing.ndim != 1:
            raise InvalidArgumentError(
                f"Expected feature_list_dense_missing_assumed_empty to be a vector, got shape: {show(missing.shape)}"
            )
        scalars, (*defaults, name) = rest[: sum(numbers)], rest[sum(numbers) :]
        for key in (*scalars, name):
            if key.ndim:
                raise InvalidArgumentError(f"Expected keys and debug_name to be scalars, got shape: {show(key.shape)}")
        texts = iter([name_of(key.item()) for key in scalars])
        keys = [[next(texts) for _ in range(n)] for n in numbers]
        wanted = _Wanted(
            _typed_keys(keys[0], attrs["context_sparse_types"], "sparse keys of the context"),
            _contexts(keys[1], defaults, attrs),
            [],
            _typed_keys(keys[2], attrs["feature_list_sparse_types"], "sparse keys of feature lists"),
            _step_denses(keys[3], attrs),
            [],
            set(map(name_of, missing)),
        )
        return _parsed(serialized, name, wanted, lengths=False)

    return single(kernel, _outputs(attrs, lengths=False))


def _outputs(attrs: Mapping[str, Any], lengths: bool) -> int:
    """Number of flat outputs."""
    return (
        3 * len(attrs["context_sparse_types"])
        + len(attrs["Tcontext_dense"])
        + 2 * len(attrs.get("context_ragged_value_types", ()))
        + 3 * len(attrs["feature_list_sparse_types"])
        + (2 if lengths else 1) * len(attrs["feature_list_dense_types"])
        + 3 * len(attrs.get("feature_list_ragged_value_types", ()))
    )


# *** Shapes ***


def _output_shapes(c: Inference, batch: Shape, lengths: bool) -> Sequence[Shape]:
    """Shapes of the outputs for sequences of the shape `batch`."""
    a, rank = c.attrs, None if batch is None else len(batch) + 1
    deeper = None if rank is None else rank + 1
    ends: Shape = None if batch is None else tuple(None if d is None else d + 1 for d in batch)
    for s in (*a["context_dense_shapes"], *a["feature_list_dense_shapes"]):
        if not is_full(s):
            raise ValueError(f"a dense shape is not fully defined: {show(s)}")
    n, m = len(a["context_sparse_types"]), len(a["feature_list_sparse_types"])
    k, l = len(a.get("context_ragged_value_types", ())), len(a.get("feature_list_ragged_value_types", ()))
    dense_lists = a["feature_list_dense_shapes"]
    return [
        *[(None, rank)] * n,
        *[(None,)] * n,
        *[(rank,)] * n,
        *(None if batch is None else (*batch, *s) for s in a["context_dense_shapes"]),
        *[(None,)] * k,
        *[ends] * k,
        *[(None, deeper)] * m,
        *[(None,)] * m,
        *[(deeper,)] * m,
        *(None if batch is None else (*batch, None, *s) for s in dense_lists),
        *[batch] * (len(dense_lists) if lengths else 0),
        *[(None,)] * l,
        *[ends] * l,
        *[(None,)] * l,
    ]


def _vector_shape(c: Inference) -> Sequence[Shape]:
    return _output_shapes(c, with_rank(c.shapes[0], 1), lengths=True)


def _batch_shape(c: Inference) -> Sequence[Shape]:
    return _output_shapes(c, with_rank_at_most(c.shapes[0], 1), lengths=True)


def _single_shape(c: Inference) -> Sequence[Shape]:
    return _output_shapes(c, merge(c.shapes[0], ()), lengths=False)


# *** How the tests exercise them ***


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


_STEPS = [np.array([1]), None, np.array([2, 3])]
_SEQUENCES = texts(
    write_sequence(
        {"a": np.array([1, 2]), "a2": np.array([1, 2]), "b": texts(b"x")},
        {"f": [_floats(1, 2), _floats(3, 4)], "g": _STEPS, "h": _STEPS},
    ),
    write_sequence({"a": np.array([5]), "a2": np.array([5])}, {"f": [_floats(5, 6)]}),
)
_NONE = np.empty(0, object)
_A = (np.array([[0, 0], [0, 1], [1, 0]]), np.array([1, 2, 5]), np.array([2, 2]))
_B = texts(b"x", b"z").reshape(2, 1)
_G = (np.array([[0, 0, 0], [0, 2, 0], [0, 2, 1]]), np.array([1, 2, 3]), np.array([2, 3, 2]))
_F = np.array([[[1, 2], [3, 4]], [[5, 6], [0, 0]]], np.float32)
_LENGTHS = np.array([2, 1])
_ALONE = (_A[0][:2, 1:], _A[1][:2], _A[2][1:], _B[0], _G[0][:, 1:], _G[1], _G[2][1:], _F[0])
_TYPES_OF_CASES: dict[str, Any] = {
    "context_sparse_types": (int64,),
    "context_dense_shapes": ((1,),),
    "feature_list_sparse_types": (int64,),
    "feature_list_dense_types": (float32,),
    "feature_list_dense_shapes": ((2,),),
}


def _v1_samples(rng: np.random.Generator, t: DType) -> list[Any]:
    def some(x: np.ndarray, *want: Any) -> Any:
        return case(
            x,
            _NONE,
            [texts(b"z")],
            feature_list_dense_missing_assumed_empty=(),
            context_sparse_keys=("a",),
            context_dense_keys=("b",),
            feature_list_sparse_keys=("g",),
            feature_list_dense_keys=("f",),
            Ncontext_dense=1,
            **{f"N{name}": 1 for name in ("context_sparse", "feature_list_sparse", "feature_list_dense")},
            **_TYPES_OF_CASES,
            want=want,
        )

    return [some(_SEQUENCES, *_A, _B, *_G, _F, _LENGTHS)]


def _v2_samples(rng: np.random.Generator, t: DType) -> list[Any]:
    def some(x: np.ndarray, *want: Any) -> Any:
        keys = [texts(key) for key in (b"a", b"b", b"a2", b"g", b"f", b"h")]
        return case(
            x,
            _NONE,
            *keys,
            np.array([True]),
            [texts(b"z")],
            **{f"N{name}": 1 for name in ("context_sparse", "feature_list_sparse", "feature_list_dense")},
            **{f"{name}_ragged_value_types": (int64,) for name in ("context", "feature_list")},
            **{f"{name}_ragged_split_types": (int32,) for name in ("context", "feature_list")},
            **_TYPES_OF_CASES,
            want=want,
        )

    ends = [np.array(e, np.int32) for e in ([0, 2, 3], [0, 3, 3], [0, 1, 1, 3])]
    return [some(_SEQUENCES, *_A, _B, _A[1], ends[0], *_G, _F, _LENGTHS, _G[1], *ends[1:])]


def _single_samples(rng: np.random.Generator, t: DType) -> list[Any]:
    a, b, g, f, z = (np.array(key, object) for key in (b"a", b"b", b"g", b"f", b"z"))
    x = _SEQUENCES[0, ...]
    default = [texts(b"z")]
    return [
        case(x, _NONE, [a], [b], [g], [f], default, np.array(b"", object), **_TYPES_OF_CASES, want=_ALONE),
        case(
            x,
            texts(b"z"),
            [],
            [],
            [],
            [z],
            [],
            np.array(b"name", object),
            **_TYPES_OF_CASES
            | {"context_sparse_types": (), "context_dense_shapes": (), "feature_list_sparse_types": ()},
            want=np.zeros((0, 2), np.float32),
        ),
    ]


# *** Records ***


def _types(*names: str) -> dict[str, Any]:
    return {name: list_attr("type", (), allowed=TYPES) for name in names}


def _numbers(*names: str) -> dict[str, Any]:
    return {f"N{name}": int_attr(0, minimum=0) for name in names}


_SHAPES = {name: list_attr("shape", ()) for name in ("context_dense_shapes", "feature_list_dense_shapes")}
_ALL_TYPES = _types("context_sparse_types", "Tcontext_dense", "feature_list_dense_types", "feature_list_sparse_types")
_CONTEXT = (
    "context_sparse_indices: Ncontext_sparse * int64, context_sparse_values: context_sparse_types, "
    "context_sparse_shapes: Ncontext_sparse * int64, context_dense_values: Tcontext_dense, "
)
_CONTEXT_RAGGED = (
    "context_ragged_values: context_ragged_value_types, context_ragged_row_splits: context_ragged_split_types, "
)
_LISTS = (
    "feature_list_sparse_indices: Nfeature_list_sparse * int64, "
    "feature_list_sparse_values: feature_list_sparse_types, "
    "feature_list_sparse_shapes: Nfeature_list_sparse * int64, feature_list_dense_values: feature_list_dense_types"
)
_DENSE_LENGTHS = ", feature_list_dense_lengths: Nfeature_list_dense * int64"
_LISTS_RAGGED = (
    ", feature_list_ragged_values: feature_list_ragged_value_types, "
    "feature_list_ragged_outer_splits: feature_list_ragged_split_types, "
    "feature_list_ragged_inner_splits: feature_list_ragged_split_types"
)

op(
    "ParseSequenceExample",
    "serialized: string, debug_name: string, context_dense_defaults: Tcontext_dense",
    _CONTEXT + _LISTS + _DENSE_LENGTHS,
    {
        "feature_list_dense_missing_assumed_empty": list_attr("string"),
        "context_sparse_keys": list_attr("string"),
        "context_dense_keys": list_attr("string"),
        "feature_list_sparse_keys": list_attr("string"),
        "feature_list_dense_keys": list_attr("string"),
    }
    | _numbers("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense")
    | _ALL_TYPES
    | _SHAPES,
    shape=_vector_shape,
    kernel=_v1_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_v1_samples,
    doc="Features of serialized sequence examples, or of one, as sparse and dense arrays.",
)
op(
    "ParseSequenceExampleV2",
    "serialized: string, debug_name: string, context_sparse_keys: string, context_dense_keys: string, "
    "context_ragged_keys: string, feature_list_sparse_keys: string, feature_list_dense_keys: string, "
    "feature_list_ragged_keys: string, feature_list_dense_missing_assumed_empty: bool, "
    "context_dense_defaults: Tcontext_dense",
    _CONTEXT + _CONTEXT_RAGGED + _LISTS + _DENSE_LENGTHS + _LISTS_RAGGED,
    _numbers("context_sparse", "feature_list_sparse", "feature_list_dense")
    | _ALL_TYPES
    | _types("context_ragged_value_types", "feature_list_ragged_value_types")
    | {f"{name}_ragged_split_types": list_attr("type", (), allowed=INDEX) for name in ("context", "feature_list")}
    | _SHAPES,
    shape=_batch_shape,
    kernel=_v2_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_v2_samples,
    doc="Features of serialized sequence examples, or of one, as sparse, dense and ragged arrays.",
    differs="The outer splits of a single sequence are 0; TensorFlow leaves them uninitialized.",
)
op(
    "ParseSingleSequenceExample",
    "serialized: string, feature_list_dense_missing_assumed_empty: string, "
    "context_sparse_keys: Ncontext_sparse * string, context_dense_keys: Ncontext_dense * string, "
    "feature_list_sparse_keys: Nfeature_list_sparse * string, feature_list_dense_keys: Nfeature_list_dense * string, "
    "context_dense_defaults: Tcontext_dense, debug_name: string",
    _CONTEXT + _LISTS,
    _numbers("context_sparse", "context_dense", "feature_list_sparse", "feature_list_dense") | _ALL_TYPES | _SHAPES,
    shape=_single_shape,
    kernel=_single_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=_single_samples,
    doc="Features of one serialized sequence example, as sparse and dense arrays.",
)
