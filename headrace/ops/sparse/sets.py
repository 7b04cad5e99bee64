"""Operations on rows as sets: sizes, unions, intersections and differences.

Source: TensorFlow's SetSize, DenseToDenseSetOperation, DenseToSparseSetOperation and SparseToSparseSetOperation. The
last dimension of a dense or sparse tensor is a set, in which repeated values count once; the other dimensions, the
*group*, identify the set. Results are sparse, with the values of each set in ascending order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import DType, int8, int16, int32, int64, string, uint8, uint16
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, case, flops_per_input, op, string_attr, type_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.testing.samples import draw
from headrace.ops.sparse.coordinates import check_sorted, checked, drawn, numbered, parts, runs, sparse_out
from headrace.shapes import Shape

_TYPES = frozenset({int8, int16, int32, int64, uint8, uint16, string})
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "a-b": lambda a, b: a & ~b,
    "b-a": lambda a, b: b & ~a,
    "intersection": lambda a, b: a & b,
    "union": lambda a, b: a | b,
}


class _Rows:
    """The sets of one tensor.

    Attributes:
      groups: the shape of the group dimensions.
      members: the number of each element's group, [n].
      values: the elements, [n].
    """

    def __init__(self, groups: tuple[int, ...], members: np.ndarray, values: np.ndarray) -> None:
        self.groups = groups
        self.members = members
        self.values = values


def _dense(array: Any) -> _Rows:
    if array.ndim < 2:
        raise InvalidArgumentError(f"Shape {shapes.show(array.shape)} has rank {array.ndim} < 2")
    members = np.repeat(np.arange(math.prod(array.shape[:-1])), array.shape[-1])
    return _Rows(array.shape[:-1], members, array.reshape(-1))


def _sparse(indices: Any, values: Any, shape: Any, validate: bool) -> _Rows:
    dims = checked(indices, values, shape, "set")
    if len(dims) < 2:
        raise InvalidArgumentError(f"Invalid rank {len(dims)}: a tensor of sets has a group dimension and the elements")
    if validate:
        check_sorted(indices, dims)
    wrong = (indices < 0) | (indices >= np.array(dims))
    if wrong.any():
        i, k = map(int, np.argwhere(wrong)[0])
        raise InternalError(f"indices[{i}, {k}] expected < {dims[k]}, got {indices[i, k]}.")
    groups = dims[:-1]
    members = np.ravel_multi_index(tuple(indices[:, :-1].T), groups) if len(values) else np.zeros(0, np.int64)
    return _Rows(groups, members, values)


def _size_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        rows = _sparse(indices, values, shape, attrs["validate_indices"])
        check_size(rows.groups, int32)
        sizes = np.zeros(rows.groups, np.int32)
        elements = np.unique(rows.values, return_inverse=True)[1] if len(values) else rows.members
        numbers = numbered(np.stack([rows.members, elements], axis=1))
        _, first = np.unique(numbers, return_index=True)
        np.add.at(sizes.reshape(-1), rows.members[first], np.int32(1))
        return sizes

    return kernel


def _operation(first: Callable[..., _Rows], second: Callable[..., _Rows], split: int) -> Any:
    """Kernel factory of an op on two sets.

    The first `split` arguments are the first operand, and the others the second.
    """

    def factory(attrs: Mapping[str, Any]) -> Any:
        name, dtype, validate = attrs["set_operation"].lower(), attrs["T"].numpy, attrs["validate_indices"]

        def kernel(*args: Any) -> Any:
            choose = _OPERATIONS.get(name)
            if choose is None:
                raise InvalidArgumentError(
                    f"Invalid set_operation {attrs['set_operation']}: it is none of {', '.join(_OPERATIONS)}"
                )
            x, y = (
                side(*part, *([validate] if side is _sparse else []))
                for side, part in ((first, args[:split]), (second, args[split:]))
            )
            if x.groups != y.groups:
                raise InvalidArgumentError(f"Mismatched shapes {shapes.show(x.groups)} vs {shapes.show(y.groups)}")
            return _combined(choose, x, y, dtype)

        return kernel

    return factory


def _combined(choose: Callable[[Any, Any], Any], x: _Rows, y: _Rows, dtype: np.dtype) -> tuple[Any, Any, Any]:
    """The result, as the three arrays of a sparse tensor."""
    names, elements = np.unique(np.concatenate([x.values, y.values]), return_inverse=True)
    pairs = np.stack([np.concatenate([x.members, y.members]), elements.reshape(-1)], axis=1)
    numbers = numbered(pairs)
    _, where = np.unique(numbers, return_index=True)  # ascending by group, then by value
    in_x, in_y = np.zeros(len(where), bool), np.zeros(len(where), bool)
    in_x[numbers[: len(x.values)]] = True
    in_y[numbers[len(x.values) :]] = True
    left = pairs[where[choose(in_x, in_y)]]
    members = left[:, 0]
    starts = runs(members)
    sizes = np.diff(np.append(starts, len(members)))
    place = np.arange(len(members)) - np.repeat(starts, sizes)
    coordinates = np.unravel_index(members, x.groups) if len(members) else [members] * len(x.groups)
    indices = np.stack([*coordinates, place], axis=1).astype(np.int64)
    return indices, names[left[:, 1]].astype(dtype), np.array([*x.groups, sizes.max(initial=0)], np.int64)


def _operation_shape(*kinds: bool) -> Any:
    """The shape rule for operands of which each is dense (False) or sparse (True)."""

    def rule(c: Inference) -> Sequence[Shape]:
        rank, groups, at = None, None, 0
        for is_sparse in kinds:
            if is_sparse:
                mine = parts(c, at)[1]
                group = None
                at += 3
            else:
                full = shapes.with_rank_at_least(c.shapes[at], 2)
                mine = None if full is None else len(full)
                group = None if full is None else full[:-1]
                at += 1
            rank = shapes.merge_dim(rank, mine)
            groups = shapes.merge(groups, group)
        return sparse_out(None, rank)

    return rule


def _size_shape(c: Inference) -> Sequence[Shape]:
    _, rank = parts(c, 0, ranks="")
    known = c.shape_value(2) if c.shapes[2] is None or len(c.shapes[2]) == 1 else None
    return [known[:-1] if known else None if rank is None else (None,) * (rank - 1)]


# *** Oracles and samples ***


def _sets_of(args: Sequence[np.ndarray]) -> tuple[tuple[int, ...], dict[tuple[int, ...], set[Any]]]:
    """Shape of the group, and the nonempty sets in it.

    `args` is a dense array, or the three arrays of a sparse tensor.
    """
    found: dict[tuple[int, ...], set[Any]] = {}
    if len(args) == 1:
        places, values, shape = list(np.ndindex(args[0].shape)), list(args[0].ravel()), args[0].shape
    else:
        places, values, shape = list(map(tuple, args[0].tolist())), list(args[1]), tuple(args[2].tolist())
    for p, v in zip(places, values, strict=True):
        found.setdefault(p[:-1], set()).add(v)
    return shape[:-1], found


def _model(split: int) -> Any:
    def oracle(*args: Any, set_operation: str, **attrs: Any) -> Any:
        (groups, x), (_, y) = _sets_of(args[:split]), _sets_of(args[split:])
        indices, values, most = [], [], 0
        for g in np.ndindex(groups):
            a, b = x.get(g, set()), y.get(g, set())
            members = {"a-b": a - b, "b-a": b - a, "intersection": a & b, "union": a | b}[set_operation]
            for k, v in enumerate(sorted(members)):
                indices.append((*g, k))
                values.append(v)
            most = max(most, len(members))
        dtype = args[0].dtype if split == 1 else args[1].dtype
        return (
            np.array(indices, np.int64).reshape(-1, len(groups) + 1),
            np.array(values, dtype),
            np.array([*groups, most], np.int64),
        )

    return oracle


def _sizes(indices: np.ndarray, values: np.ndarray, shape: np.ndarray, **attrs: Any) -> np.ndarray:
    groups, found = _sets_of((indices, values, shape))
    return np.array([len(found.get(g, ())) for g in np.ndindex(groups)], np.int32).reshape(groups)


def _samples(*kinds: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        cases = []
        for group, name in (((2, 2), "union"), ((3,), "a-b"), ((2,), "intersection"), ((0,), "b-a"))[
            : 4 if dtype in (int32, string) else 1
        ]:
            args: list[np.ndarray] = []
            for k, is_sparse in enumerate(kinds):
                shape = (*group, 4 - k)
                args += drawn(rng, dtype, shape, math.prod(shape) // 2) if is_sparse else [draw(rng, dtype, shape)]
            cases.append(case(*args, set_operation=name))
        return cases

    return sample


op(
    "SetSize",
    "set_indices: int64, set_values: T, set_shape: int64",
    "size: int32",
    {"T": type_attr(_TYPES), "validate_indices": bool_attr(True)},
    shape=_size_shape,
    kernel=_size_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True, cost=flops_per_input(20)),
    oracle=_sizes,
    sample=lambda rng, dtype: [
        case(*drawn(rng, dtype, s, n))
        for s, n in (((2, 3), 4), ((2, 2, 3), 7), ((3, 0), 0))[: 3 if dtype is int32 else 1]
    ],
    doc="How many different values each set has.",
)

_A, _B = "{0}: T", "{0}_indices: int64, {0}_values: T, {0}_shape: int64"
for _type, _first, _second in (
    ("DenseToDenseSetOperation", False, False),
    ("DenseToSparseSetOperation", False, True),
    ("SparseToSparseSetOperation", True, True),
):
    op(
        _type,
        f"{(_B if _first else _A).format('set1')}, {(_B if _second else _A).format('set2')}",
        "result_indices: int64, result_values: T, result_shape: int64",
        {"T": type_attr(_TYPES), "set_operation": string_attr(), "validate_indices": bool_attr(True)},
        shape=_operation_shape(_first, _second),
        kernel=_operation(_sparse if _first else _dense, _sparse if _second else _dense, 3 if _first else 1),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(dynamic_shape=True, cost=flops_per_input(40)),
        oracle=_model(3 if _first else 1),
        sample=_samples(_first, _second),
        doc=f"The union, intersection or difference of each two sets of "
        f"{'sparse' if _first else 'dense'} and {'sparse' if _second else 'dense'} tensors.",
        differs="Without validate_indices, unsorted indices give the same sets as sorted ones.",
    )
