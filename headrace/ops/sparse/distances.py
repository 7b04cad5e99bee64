"""EditDistance: the Levenshtein distance of two sequences, in insertions, deletions and replacements.

Source: TensorFlow's op of the same name. The last dimension of a sparse tensor is a sequence, with the elements in
stored order; the other coordinates, the *group*, identify the sequence.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import VALUE, DType, float32, int32, string
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, case, flops_per_input, op
from headrace.opkit.arrays import check_size
from headrace.ops.sparse.coordinates import dense_shape, drawn, filled
from headrace.shapes import Shape

_OPERANDS = ("hypothesis", "truth")


def _sequences(name: str, indices: Any, values: Any, groups: tuple[int, ...]) -> dict[int, np.ndarray]:
    """Sequences of the nonempty groups, by the flat index of the group in the result."""
    places = np.zeros(len(indices), object)  # Python numbers: coordinates may be anything
    for column, d in zip(indices.T[:-1], groups, strict=True):
        places = places * d + column
    size = math.prod(groups)
    for i, p in enumerate(places):
        if not 0 <= p < size:
            raise InternalError(
                f"Got an inner product {p} which would require writing to outside of the buffer for the output tensor "
                f"(max elements {size}), of {name}_indices[{i}] = {indices[i].tolist()}"
            )
    flat = places.astype(np.int64)
    order = np.argsort(flat, kind="stable")
    where, starts = np.unique(flat[order], return_index=True)
    return dict(zip(where.tolist(), np.split(values[order], starts[1:]), strict=True)) if len(where) else {}


def _distance(x: np.ndarray, y: np.ndarray) -> int:
    """The distance, one row of the table at a time."""
    steps = np.arange(len(y) + 1)
    row = steps
    for v in x:
        least = np.empty(len(y) + 1, np.int64)
        least[0] = row[0] + 1
        least[1:] = np.minimum(row[1:] + 1, row[:-1] + (y != v))
        row = np.minimum.accumulate(least - steps) + steps  # an element more of y costs 1
    return int(row[-1])


def _check(name: str, indices: Any, values: Any, shape: Any) -> None:
    for what, x, rank in (("indices", indices, 2), ("values", values, 1), ("shape", shape, 1)):
        if x.ndim != rank:
            raise InvalidArgumentError(
                f"{name}_{what} should be a {'matrix' if rank == 2 else 'vector'}, but got shape {shapes.show(x.shape)}"
            )
    if len(values) != len(indices):
        raise InvalidArgumentError(
            f"Expected {name}_values.NumElements == #rows({name}_indices), their shapes are: [{len(values)}] and "
            f"{shapes.show(indices.shape)}"
        )
    if len(shape) != indices.shape[1]:
        raise InvalidArgumentError(
            f"Expected {name}_shape.NumElements == #cols({name}_indices), their shapes are: [{len(shape)}] and "
            f"{shapes.show(indices.shape)}"
        )
    if len(shape) < 2:
        raise InvalidArgumentError(
            f"Input SparseTensors must have rank at least 2, but {name}_shape rank is: {len(shape)}"
        )


def _kernel(attrs: Mapping[str, Any]) -> Any:
    normalize = attrs["normalize"]

    def kernel(*args: Any) -> Any:
        operands = (args[:3], args[3:])
        for name, operand in zip(_OPERANDS, operands, strict=True):
            _check(name, *operand)
        dims = [dense_shape(operand[2]) for operand in operands]
        if len(dims[0]) != len(dims[1]):
            raise InvalidArgumentError(
                f"Expected hypothesis_shape and truth_shape to be of one length, got {len(dims[0])} and {len(dims[1])}"
            )
        groups = tuple(max(x, y) for x, y in zip(*dims, strict=True))[:-1]
        check_size(groups, float32)
        hypotheses, truths = (
            _sequences(name, indices, values, groups)
            for name, (indices, values, _) in zip(_OPERANDS, operands, strict=True)
        )
        out = np.zeros(math.prod(groups), np.float32)
        nothing = args[1][:0]
        for g in hypotheses.keys() | truths.keys():
            truth = truths.get(g, nothing)
            distance: float = _distance(hypotheses.get(g, nothing), truth)
            if normalize:
                distance = distance / len(truth) if len(truth) else math.inf
            out[g] = distance
        return out.reshape(groups)

    return kernel


def _shape(c: Inference) -> Sequence[Shape]:
    for i, rank in enumerate((2, 1, 1, 2, 1, 1)):
        shapes.with_rank(c.shapes[i], rank)
    x, y = c.shape_value(2), c.shape_value(5)
    if x is None or y is None or len(x) != len(y):
        return [None]
    return [tuple(None if a is None or b is None else max(a, b) for a, b in zip(x[:-1], y[:-1], strict=True))]


def _model(*args: Any, normalize: bool = True) -> np.ndarray:
    """Model of the distance, by recursion on the last elements."""
    groups = tuple(max(a, b) for a, b in zip(args[2].tolist(), args[5].tolist(), strict=True))[:-1]
    x, y = (
        {g: [v for _, v in same] for g, same in itertools.groupby(filled(*three).items(), lambda e: e[0][:-1])}
        for three in (args[:3], args[3:])
    )

    def distance(a: list[Any], b: list[Any]) -> int:
        if not a or not b:
            return len(a) + len(b)
        return min(distance(a[:-1], b) + 1, distance(a, b[:-1]) + 1, distance(a[:-1], b[:-1]) + bool(a[-1] != b[-1]))

    out = np.zeros(groups, np.float32)
    for g in np.ndindex(groups):
        a, b = x.get(g, []), y.get(g, [])
        d: float = distance(a, b)
        out[g] = d if not normalize or not (a or b) else d / len(b) if b else math.inf
    return out


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = []
    for s, m, t, n, normalize in (
        ((2, 3), 4, (2, 4), 5, True),
        ((2, 2, 2), 3, (1, 3, 2), 2, False),
        ((3, 4), 0, (3, 4), 6, True),
    ):
        cases.append(case(*drawn(rng, dtype, s, m, 0, 2), *drawn(rng, dtype, t, n, 0, 2), normalize=normalize))
    return cases if dtype in (int32, string) else cases[:1]


op(
    "EditDistance",
    "hypothesis_indices: int64, hypothesis_values: T, hypothesis_shape: int64, "
    "truth_indices: int64, truth_values: T, truth_shape: int64",
    "output: float32",
    {"T": VALUE, "normalize": bool_attr(True)},
    shape=_shape,
    kernel=_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_input(100)),
    oracle=_model,
    sample=_samples,
    doc="How many insertions, deletions and replacements it takes from each hypothesis to its truth (over its length).",
    differs="Sequences are in the order of their elements even if the groups are unsorted.",
)
