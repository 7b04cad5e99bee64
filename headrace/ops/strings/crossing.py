"""Crosses of features: SparseCross, SparseCrossV2, SparseCrossHashed and RaggedCross.

Source: TensorFlow's ops of the same names. A feature is a column with some strings or numbers in each row. Each row of
a cross contains every combination of one element of each column, joined into a string or hashed into a number. The
elements of the last column change fastest.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import INDEX, int64, string
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    bool_attr,
    case,
    int_attr,
    list_attr,
    op,
    string_attr,
    type_attr,
)
from headrace.opkit.arrays import check_size
from headrace.ops.strings.fingerprints import each, farm, sip
from headrace.records import record
from headrace.shapes import Shape

_FACTS = Facts(dynamic_shape=True, cost=lambda ins, outs: 1e6)  # it depends on how many elements the rows have
_MOST = 2**63 - 1
_MUL = 0xC6A4A7935BD1E995
_FEATURES = list_attr("type", allowed={int64, string})


@record(frozen=True, slots=True)
class _Column:
    """One feature.

    Attributes:
      starts: where in `values` the elements of each row begin.
      sizes: how many each row has.
      values: the elements, row by row.
      is_dense: whether every row has the same number of them.
    """

    starts: np.ndarray
    sizes: np.ndarray
    values: np.ndarray
    is_dense: bool = False

    @property
    def hashes(self) -> np.ndarray:
        """Numbers stand for themselves."""
        return each(farm, self.values) if self.values.dtype == object else self.values.astype(np.uint64)

    def salted(self, salt: tuple[int, int] | None) -> np.ndarray:
        """Hashes for SparseCrossHashed: strong ones with a salt, fast ones without.

        The hash of a number is that of its last four bytes. Without a salt, the numbers of a dense feature are their
        own hashes.
        """
        if salt is None and self.is_dense:
            return self.hashes
        texts = self.values
        if texts.dtype != object:
            texts = np.empty(len(self.values), object)
            texts[:] = [v.astype("<i8").tobytes()[:4] for v in self.values]
        return each(farm if salt is None else lambda rows: sip(rows, salt), texts)

    @property
    def texts(self) -> np.ndarray:
        if self.values.dtype == object:
            return self.values
        out = np.empty(len(self.values), object)
        out[:] = [b"%d" % v for v in self.values.tolist()]
        return out


# *** The columns of the inputs ***


def _from_dense(x: Any, i: int) -> _Column:
    if x.ndim != 2:
        raise InvalidArgumentError(
            f"Dense inputs should be a matrix but received shape {shapes.show(x.shape)} at position {i}"
        )
    rows, n = x.shape
    return _Column(np.arange(rows) * n, np.full(rows, n), x.reshape(-1), is_dense=True)


def _from_sparse(i: int, indices: Any, values: Any, shape: Any) -> _Column:
    for name, x, rank in (("indices", indices, 2), ("values", values, 1), ("shape", shape, 1)):
        if x.ndim != rank:
            raise InvalidArgumentError(
                f"Input {name} should be a {'matrix' if rank == 2 else 'vector'} but received shape "
                f"{shapes.show(x.shape)} at position {i}"
            )
    if len(values) != len(indices):
        raise InvalidArgumentError(f"Expected size of values to be {len(indices)} got {len(values)} at position {i}")
    if len(shape) != 2 or indices.shape[1] != 2:
        raise InvalidArgumentError(f"shape should imply a 2D tensor, but got {shape.tolist()} at position {i}")
    rows = int(shape[0])
    check_size((rows,), int64)
    of = indices[:, 0]
    wrong = (of < 0) | (of >= rows)
    if wrong.any():
        raise InvalidArgumentError(f"Row {of[np.argmax(wrong)]} of a feature is not in [0, {rows}), at position {i}")
    sizes = np.bincount(of, minlength=rows)
    return _Column(np.cumsum(sizes) - sizes, sizes, values[np.argsort(of, kind="stable")])


def _from_ragged(values: Any, splits: Any, i: int) -> _Column:
    if values.ndim != 1 or splits.ndim != 1 or not len(splits):
        raise InvalidArgumentError(
            f"A ragged feature is a vector of values and one of splits, got shapes {shapes.show(values.shape)} and "
            f"{shapes.show(splits.shape)} at position {i}"
        )
    if splits[0] or (splits[1:] < splits[:-1]).any() or splits[-1] != len(values):
        raise InvalidArgumentError(
            f"Invalid ragged splits: must begin with 0, never fall and end with {len(values)}, got "
            f"{splits.tolist()[:10]} at position {i}"
        )
    return _Column(splits[:-1].astype(np.int64), np.diff(splits).astype(np.int64), values)


def _check_rows(columns: Sequence[_Column]) -> int:
    """The number of rows, which all columns must have."""
    rows = len(columns[0].sizes) if columns else 0
    for i, column in enumerate(columns):
        if len(column.sizes) != rows:
            raise InvalidArgumentError(f"Expected batch size {rows} got {len(column.sizes)} at feature {i}")
    return rows


def _combined(columns: Sequence[_Column], rows: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Number of combinations of each row, and for each column its element in each combination."""
    most = np.ones(rows, np.float64)
    for column in columns:
        most *= column.sizes
    total = float(most.sum())
    check_size((int(min(total, 2.0**62)), max(len(columns), 1)), int64)
    sizes = most.astype(np.int64)
    row = np.repeat(np.arange(rows), sizes)
    rest = np.arange(len(row)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # which combination of its row
    places = []
    for column in reversed(columns):
        n = column.sizes[row]
        places.append(column.starts[row] + rest % n)
        rest = rest // n
    return sizes, places[::-1]


def _mixed(x: np.ndarray) -> np.ndarray:
    return x ^ x >> np.uint64(47)


def _joined_hashes(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """FingerprintCat64: a hash of two hashes."""
    mul = np.uint64(_MUL)
    out = (a ^ mul ^ _mixed(b * mul) * mul) * mul
    return _mixed(_mixed(out) * mul)


def _bucketed(hashes: np.ndarray, buckets: int) -> np.ndarray:
    return (hashes % np.uint64(buckets if buckets > 0 else _MOST)).astype(np.int64)


def _hashed(hashes: Sequence[np.ndarray], first: int | None, buckets: int) -> np.ndarray:
    """The hash of each combination of hashes, beginning with `first`, if it is given."""
    if not hashes:
        return np.zeros(0, np.int64)
    out = hashes[0] if first is None else np.full(len(hashes[0]), first % 2**64, np.uint64)
    for h in hashes[first is None :]:
        out = _joined_hashes(out, h)
    return _bucketed(out, buckets)


def _text(columns: Sequence[_Column], places: Sequence[np.ndarray], separator: bytes) -> np.ndarray:
    found = [column.texts[p] for column, p in zip(columns, places, strict=True)]
    out = np.empty(len(found[0]) if found else 0, object)
    out[:] = [separator.join(parts) for parts in zip(*found, strict=True)]
    return out


def _as_sparse(sizes: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The three arrays of the sparse tensor whose rows have so many of the values."""
    rows = np.repeat(np.arange(len(sizes)), sizes)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    shape = np.array([len(sizes), sizes.max(initial=0)], np.int64)
    return np.stack([rows, place], axis=1).astype(np.int64), values, shape


# *** SparseCross ... ***


def _columns(args: Sequence[Any], attrs: Mapping[str, Any]) -> list[_Column]:
    """Columns of the sparse tensors, followed by those of the dense ones.

    `args` has all indices, then all values, all shapes and the dense tensors.
    """
    n = attrs["N"]
    if len(attrs["sparse_types"]) != n:
        raise InvalidArgumentError(f"{n} sparse inputs need as many values, got {len(attrs['sparse_types'])}")
    sparse = [_from_sparse(i, *args[i : 3 * n : n]) for i in range(n)] if n else []
    return sparse + [_from_dense(x, i) for i, x in enumerate(args[3 * n :])]


def _cross_kernel(attrs: Mapping[str, Any]) -> Any:
    buckets, key = attrs["num_buckets"], attrs["hash_key"]
    internal, out_type = attrs["internal_type"], attrs["out_type"]

    def kernel(*args: Any) -> Any:
        for kind, dtype in itertools.chain(
            (("Input values", d) for d in attrs["sparse_types"]), (("Dense inputs", d) for d in attrs["dense_types"])
        ):
            if internal is string and dtype is not string:
                raise InvalidArgumentError(
                    f"{kind} should be of internal type {internal.name} but received {dtype.name}"
                )
        columns = _columns(args, attrs)
        sizes, places = _combined(columns, _check_rows(columns))
        if out_type is string:
            values = _text(columns, places, b"_X_")
        else:
            hashes = [c.hashes[p] for c, p in zip(columns, places, strict=True)]
            values = _hashed(hashes, key, buckets)
        return _as_sparse(sizes, values)

    return kernel


def _cross_v2_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(*args: Any) -> Any:
        *features, separator = args
        if separator.ndim:
            raise InvalidArgumentError(
                f"Input separator should be a scalar. Received shape {shapes.show(separator.shape)}"
            )
        columns = _columns(features, attrs)
        sizes, places = _combined(columns, _check_rows(columns))
        return _as_sparse(sizes, _text(columns, places, separator.item()))

    return kernel


def _cross_hashed_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(*args: Any) -> Any:
        *features, buckets, strong, salt = args
        for name, x in (("num_buckets", buckets), ("strong_hash", strong)):
            if x.ndim:
                raise InvalidArgumentError(f"Input {name} should be a scalar. Received shape {shapes.show(x.shape)}")
        if salt.shape != (2,):
            raise InvalidArgumentError(f"Input salt should be two numbers. Received shape {shapes.show(salt.shape)}")
        columns = _columns(features, attrs)
        sizes, places = _combined(columns, _check_rows(columns))
        key = (int(salt[0]) % 2**64, int(salt[1]) % 2**64) if strong else None
        hashes = [c.salted(key)[p] for c, p in zip(columns, places, strict=True)]
        values = _hashed(hashes, None, int(buckets))
        return _as_sparse(sizes, values)

    return kernel


def _cross_shape(c: Inference) -> Sequence[Shape]:
    return [(None, 2), (None,), (2,)]


# *** RaggedCross ***


def _ragged_kernel(attrs: Mapping[str, Any]) -> Any:
    n, order = attrs["Nsparse"], attrs["input_order"]
    ragged, dense = len(attrs["ragged_values_types"]), len(attrs["dense_types"])
    splits_dtype = attrs["out_row_splits_type"].numpy

    def kernel(*args: Any) -> Any:
        sparse = args[2 * ragged : len(args) - dense]
        if not len(attrs["ragged_splits_types"]) == ragged or len(sparse) != 3 * n:
            raise InvalidArgumentError(
                f"{ragged} ragged inputs need as many row_splits and {n} sparse ones as many values, got "
                f"{len(attrs['ragged_splits_types'])} and {len(attrs['sparse_values_types'])}"
            )
        columns = {
            "R": [_from_ragged(args[i], args[ragged + i], i) for i in range(ragged)],
            "S": [_from_sparse(i, *sparse[i::n]) for i in range(n)],
            "D": [_from_dense(x, i) for i, x in enumerate(args[len(args) - dense :])],
        }
        if sorted(order) != sorted("R" * ragged + "S" * n + "D" * dense):
            raise InvalidArgumentError(
                f"Invalid input_order {order!r}: it must name each of {ragged} ragged (R), {n} sparse (S) and {dense} "
                "dense (D) inputs"
            )
        feeds = {kind: iter(found) for kind, found in columns.items()}
        ordered = [next(feeds[kind]) for kind in order]
        sizes, places = _combined(ordered, _check_rows(ordered))
        if attrs["out_values_type"] is not string:
            hashes = [c.hashes[p] for c, p in zip(ordered, places, strict=True)]
            values = _hashed(hashes, attrs["hash_key"], attrs["num_buckets"])
        else:
            values = _text(ordered, places, b"_X_")
        return values, np.concatenate([[0], np.cumsum(sizes)]).astype(splits_dtype)

    return kernel


# *** Records ***


def _strings(*items: bytes) -> np.ndarray:
    out = np.empty(len(items), object)
    out[:] = items
    return out


_I = np.array([[0, 0], [0, 1], [1, 0]], np.int64)
_V = _strings(b"a", b"b", b"c")
_S = np.array([2, 2], np.int64)
_DENSE = _strings(b"x", b"y", b"z", b"w").reshape(2, 2)
_NUMBERS = np.array([[1, 2], [3, 4]], np.int64)
_PLACES = np.array([[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1]], np.int64)
_WIDE = np.array([2, 4], np.int64)
_KEY = 956888297470


def _numbers(*items: int) -> np.ndarray:
    return np.array(items, np.int64)


_SPARSE = "indices: N * int64, values: sparse_types, shapes: N * int64, dense_inputs: dense_types"
_TYPES = {"N": int_attr(minimum=0), "sparse_types": _FEATURES, "dense_types": _FEATURES}

# The hashes are those that TensorFlow gives for the same inputs.
op(
    "SparseCross",
    _SPARSE,
    "output_indices: int64, output_values: out_type, output_shape: int64",
    {
        "out_type": type_attr({int64, string}),
        "internal_type": type_attr({int64, string}),
        **_TYPES,
        "hashed_output": bool_attr(),
        "num_buckets": int_attr(minimum=0),
        "hash_key": int_attr(),
    },
    shape=_cross_shape,
    kernel=_cross_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=lambda rng, dtype: [
        case(
            [_I],
            [_V],
            [_S],
            [_DENSE],
            hashed_output=dtype is int64,
            num_buckets=0,
            hash_key=_KEY,
            out_type=dtype,
            internal_type=string,
            want=(
                _PLACES,
                _strings(b"a_X_x", b"a_X_y", b"b_X_x", b"b_X_y", b"c_X_z", b"c_X_w")
                if dtype is string
                else _numbers(
                    1484974617627318892,
                    3920818148696658747,
                    3552177129620670004,
                    5470948523078679805,
                    5890530401397985473,
                    708001509833549428,
                ),
                _WIDE,
            ),
        )
    ],
    doc="The cross of sparse and dense features, as strings or hashes.",
    differs="Rows of sparse features that are out of bounds are refused.",
)
op(
    "SparseCrossV2",
    f"{_SPARSE}, sep: string",
    "output_indices: int64, output_values: string, output_shape: int64",
    _TYPES,
    shape=_cross_shape,
    kernel=_cross_v2_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=lambda rng, dtype: [
        case(
            [_I],
            [_V],
            [_S],
            [_NUMBERS],
            _strings(b"-")[0, ...],
            want=(_PLACES, _strings(b"a-1", b"a-2", b"b-1", b"b-2", b"c-3", b"c-4"), _WIDE),
        )
    ],
    doc="The cross of sparse and dense features, as strings joined by `sep`.",
    differs="Rows of sparse features that are out of bounds are refused.",
)
op(
    "SparseCrossHashed",
    f"{_SPARSE}, num_buckets: int64, strong_hash: bool, salt: int64",
    "output_indices: int64, output_values: int64, output_shape: int64",
    _TYPES,
    shape=_cross_shape,
    kernel=_cross_hashed_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=lambda rng, dtype: [
        case(
            [_I],
            [_V],
            [_S],
            [_NUMBERS],
            np.array(100, np.int64),
            np.array(False),
            _numbers(137, 173),
            want=(_PLACES, _numbers(41, 6, 22, 92, 54, 42), _WIDE),
        )
    ],
    doc="The cross of sparse and dense features, as hashes.",
    differs="Rows of sparse features that are out of bounds are refused.",
)
op(
    "RaggedCross",
    "ragged_values: ragged_values_types, ragged_row_splits: ragged_splits_types, sparse_indices: Nsparse * int64, "
    "sparse_values: sparse_values_types, sparse_shape: Nsparse * int64, dense_inputs: dense_types",
    "output_values: out_values_type, output_row_splits: out_row_splits_type",
    {
        "out_values_type": type_attr({int64, string}),
        "out_row_splits_type": INDEX,
        "Nsparse": int_attr(minimum=0),
        "input_order": string_attr(),
        "hashed_output": bool_attr(),
        "num_buckets": int_attr(minimum=0),
        "hash_key": int_attr(),
        "ragged_values_types": _FEATURES,
        "ragged_splits_types": list_attr("type", allowed=INDEX),
        "sparse_values_types": _FEATURES,
        "dense_types": _FEATURES,
    },
    shape=lambda c: [(None,), (None,)],
    kernel=_ragged_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    sample=lambda rng, dtype: [
        case(
            [_V],
            [_numbers(0, 1, 3)],
            [_I],
            [_V],
            [_S],
            [_NUMBERS],
            input_order="RSD",
            hashed_output=dtype is int64,
            num_buckets=10,
            hash_key=_KEY,
            out_values_type=dtype,
            out_row_splits_type=int64,
            want=(
                _numbers(8, 3, 4, 4, 1, 8, 8, 7)
                if dtype is int64
                else _strings(
                    b"a_X_a_X_1",
                    b"a_X_a_X_2",
                    b"a_X_b_X_1",
                    b"a_X_b_X_2",
                    b"b_X_c_X_3",
                    b"b_X_c_X_4",
                    b"c_X_c_X_3",
                    b"c_X_c_X_4",
                ),
                _numbers(0, 4, 8),
            ),
        )
    ],
    doc="The cross of ragged, sparse and dense features, in the order that `input_order` says, as strings or hashes.",
    differs="Rows of sparse features that are out of bounds are refused.",
)
