"""Embeddings: rows of tables by number, and combinations of rows for examples with several numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import arrays, gathering, linalg, math, reductions, scopes, sparse
from headrace.api.partitioned import parts_of
from headrace.api.sparse_tensor import SparseTensor
from headrace.api.tensors import identity
from headrace.api.variable import Variable
from headrace.ir.graph import Tensor as SymbolicTensor
from headrace.ir.tensor_type import Tensor

_COMBINERS = {"sum": sparse.segment_sum, "mean": sparse.segment_mean, "sqrtn": sparse.segment_sqrt_n}


def embedding_lookup(params: Any, ids: Any, max_norm: Any = None, name: str | None = None) -> Tensor:
    """Looks up rows of a table by their indices.

    Args:
      params: a tensor, or a list of its parts (or a `PartitionedVariable`). Parts are consecutive rows of the table; if
        the rows do not divide evenly, the first parts have one more.
      ids: indices of rows: int32 or int64, of any shape.
      max_norm: the greatest l2 norm of a row in the result; longer rows are scaled down. None: no limit.
      name: name of the operation; "embedding_lookup" if None.

    Raises:
      ValueError: the list of parts is empty.

    Source: TensorFlow's `tf.nn.embedding_lookup`.

    Example:
      >>> import headrace as hr
      >>> table = hr.constant([[1, 2], [3, 4], [5, 6]])
      >>> hr.nn.embedding_lookup(table, [2, 0]).numpy().tolist()
      [[5, 6], [1, 2]]
    """
    return rows(params, ids, "div", name, max_norm)


def rows(params: Any, ids: Any, partition_strategy: str = "mod", name: str | None = None, max_norm: Any = None) -> Any:
    """Looks up rows of a table that is partitioned by either strategy.

    Args:
      params, ids, name, max_norm: see `embedding_lookup`.
      partition_strategy: "mod": row i is in part i % n of n parts; "div": parts are consecutive rows, as in
        `embedding_lookup`.

    Raises:
      ValueError: the list of parts is empty, or the strategy is unknown.

    Source: TensorFlow's `tf.compat.v1.nn.embedding_lookup`.
    """
    parts = parts_of(params)
    if params is None or not parts:
        raise ValueError("Need at least one param: the table, or a list of its parts")
    if partition_strategy not in ("mod", "div"):
        raise ValueError(f"Unrecognized partition strategy: {partition_strategy!r}. Must be one of `mod` and `div`.")
    with scopes.name_scope(name, "embedding_lookup", [*parts, ids]) as scope:
        b = scopes.builder(*parts, ids)
        wanted = b.tensor(ids, None, "ids")
        if len(parts) == 1:
            with _on_device_of(parts[0]):
                found = scopes.builder(*parts, ids).make("GatherV2", (parts[0], wanted, 0), {}, scope)
            return _clipped(found, wanted, max_norm) if max_norm is not None else identity(found)
        tables = [b.tensor(p) for p in parts]
        part, row = _place(tables, arrays.reshape(wanted, [-1]), partition_strategy)
        part = math.cast(part, dtypes.int32)
        asked = gathering.dynamic_partition(row, part, len(tables))
        places = gathering.dynamic_partition(reductions.range(arrays.size(part)), part, len(tables))
        got = []
        for p, table, at in zip(parts, tables, asked, strict=True):
            with _on_device_of(p):
                got.append(gathering.gather(table, at))
        stitched = b.make("ParallelDynamicStitch", (places, got), {}, scope)
        element = arrays.shape(tables[0])[1:]
        whole = arrays.reshape(stitched, arrays.concat([arrays.shape(wanted), element], 0))
        return _clipped(whole, wanted, max_norm)


def _on_device_of(table: Any) -> contextlib.AbstractContextManager[object]:
    """Returns a context in which new ops request the device of a table.

    So the table sends rows and not all of itself.
    """
    device = table.device if isinstance(table, SymbolicTensor | Variable) and table.graph is not None else ""
    return scopes.device(device) if device else contextlib.nullcontext()


def _place(tables: Sequence[Any], ids: Any, strategy: str) -> tuple[Any, Any]:
    """Returns the part of each row, and its index in that part."""
    n = len(tables)
    if strategy == "mod":
        return math.floormod(ids, n), math.floordiv(ids, n)
    total = math.cast(math.add_n([arrays.shape(t)[0] for t in tables]), ids.dtype)
    each, more = math.floordiv(total, n), math.floormod(total, n)
    # the first `more` tables have one row more than the others
    part = math.maximum(math.floordiv(ids, each + 1), math.floordiv(ids - more, each))
    row = gathering.where(math.less(part, more), math.floormod(ids, each + 1), math.floormod(ids - more, each))
    return part, row


def _clipped(found: Any, ids: Any, max_norm: Any) -> Any:
    if max_norm is None:
        return found
    if ids.shape is None or found.shape is None:
        return linalg.clip_by_norm(found, max_norm, None)
    return linalg.clip_by_norm(found, max_norm, list(range(len(ids.shape), len(found.shape))))


def embedding_lookup_sparse(
    params: Any,
    sp_ids: SparseTensor,
    sp_weights: SparseTensor | None,
    combiner: str | None = None,
    max_norm: Any = None,
    name: str | None = None,
    allow_fast_lookup: bool = False,
    partition_strategy: str = "div",
) -> Tensor:
    """Looks up the rows of each example's ids, and combines them to one row.

    Args:
      params: the table, or a list of its parts (see `embedding_lookup`).
      sp_ids: a sparse matrix of int32 or int64. Each row has the ids of an example, at least one.
      sp_weights: the weight of each id, with the indices of `sp_ids`; None: 1.
      combiner: "mean" (also None): the weighted mean; "sum": the weighted sum; "sqrtn": the weighted sum divided by the
        square root of the sum of the squared weights.
      max_norm: the greatest l2 norm of a row of the table; longer rows are scaled down first. None: no limit.
      name: name of the scope; "embedding_lookup_sparse" if None.
      allow_fast_lookup: whether to gather rows without removing duplicate ids first.
      partition_strategy: the distribution of the rows over the parts, "div" or "mod"; see `rows`.

    Returns:
      A tensor with one row for each example.

    Raises:
      TypeError: `sp_ids` or `sp_weights` is not sparse.
      ValueError: the combiner is unknown, or `sp_weights` has another shape than `sp_ids`.

    Source: TensorFlow's `tf.nn.embedding_lookup_sparse`.

    Example:
      >>> import headrace as hr
      >>> ids = hr.SparseTensor([[0, 0], [0, 1], [1, 0]], [0, 2, 1], [2, 2])
      >>> hr.nn.embedding_lookup_sparse(hr.constant([[1.0], [2.0], [5.0]]), ids, None)
      <EagerTensor shape=[2,1] dtype=float32: array([[3.],
             [2.]], dtype=float32)>
    """
    how = "mean" if combiner is None else combiner
    if how not in _COMBINERS:
        raise ValueError(f"combiner must be one of 'mean', 'sqrtn' or 'sum', got {how!r}")
    parts = parts_of(params)
    for what, given in (("sp_ids", sp_ids), ("sp_weights", sp_weights)):
        if not isinstance(given, SparseTensor) and (given is not None or what == "sp_ids"):
            raise TypeError(f"{what} must be SparseTensor, got {type(given).__name__}")
    if sp_weights is not None:
        for one, other in zip(nest.flatten(sp_ids), nest.flatten(sp_weights), strict=True):
            shapes.merge(one.shape, other.shape)
    with scopes.name_scope(name, "embedding_lookup_sparse", [*parts, *nest.flatten(sp_ids)]) as scope:
        segments, wanted = sp_ids.indices[:, 0], sp_ids.values
        is_direct = len(parts) == 1 and max_norm is None and (allow_fast_lookup or sp_weights is None)
        if is_direct:
            table = scopes.builder(*parts, wanted).tensor(parts[0], None, "params")
        else:
            different, wanted = gathering.unique(wanted)
            table = rows(parts, different, partition_strategy, max_norm=max_norm)
        if sp_weights is None:
            is_sparse = is_direct and not allow_fast_lookup
            with _on_device_of(parts[0]) if is_direct else contextlib.nullcontext():
                return _COMBINERS[how](table, wanted, segments, name=scope, sparse_gradient=is_sparse)
        return _weighted(gathering.gather(table, wanted), sp_weights.values, segments, how, scope)


def _weighted(found: Any, weights: Any, segments: Any, how: str, name: str) -> Any:
    """Combines rows, multiplied by their weights, for each segment."""
    of = found.dtype.base
    is_small = of in (dtypes.float16, dtypes.bfloat16)
    x = math.cast(found, dtypes.float32) if is_small else found
    segments = math.cast(segments, dtypes.int32)
    w = math.cast(weights, x.dtype.base)
    ones = arrays.ones(arrays.expand_dims(arrays.rank(x) - 1, 0), dtypes.int32)
    w = arrays.reshape(w, arrays.concat([arrays.shape(w), ones], 0))
    if x.shape is not None and isinstance(w, SymbolicTensor):
        w.refine(shapes.concatenate(weights.shape, (1,) * (len(x.shape) - 1)))
    total = reductions.segment_sum(math.multiply(x, w), segments, name=name if how == "sum" else None)
    if how != "sum":
        by = reductions.segment_sum(math.square(w) if how == "sqrtn" else w, segments)
        total = math.divide_no_nan(total, math.sqrt(by) if how == "sqrtn" else by, name=name)
    return math.cast(total, of) if is_small else total


def safe_embedding_lookup_sparse(
    embedding_weights: Any,
    sparse_ids: SparseTensor,
    sparse_weights: SparseTensor | None = None,
    combiner: str = "mean",
    default_id: Any = None,
    max_norm: Any = None,
    name: str | None = None,
    allow_fast_lookup: bool = False,
    partition_strategy: str = "div",
) -> Tensor:
    """Looks up rows as `embedding_lookup_sparse`, and accepts empty examples and invalid ids.

    Args:
      embedding_weights: the table, or a list of its parts.
      sparse_ids: a SparseTensor of rank 2 or more: the ids of an example are along the last axis. Negative ids are
        ignored.
      sparse_weights: the weight of each id; None: 1. Ids with a weight of 0 or less are ignored, except by "sum".
      combiner: "mean", "sum" or "sqrtn".
      default_id: id of the row for examples without ids; None: a row of zeros.
      max_norm, allow_fast_lookup, partition_strategy: see `embedding_lookup_sparse`.
      name: name of the scope; "embedding_lookup" if None.

    Returns:
      A tensor of the shape of `sparse_ids` without the last axis, followed by the size of a row.

    Raises:
      ValueError: `embedding_weights` is None or an empty list.

    Source: TensorFlow's `tf.nn.safe_embedding_lookup_sparse`.

    Example:
      >>> import headrace as hr
      >>> words = hr.SparseTensor([[0, 0], [0, 1]], hr.constant([2, 0], hr.int64), [2, 2])
      >>> table = hr.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
      >>> hr.nn.safe_embedding_lookup_sparse(table, words).numpy().tolist()
      [[3.0, 4.0], [0.0, 0.0]]
    """
    parts = parts_of(embedding_weights)
    if embedding_weights is None or not parts:
        raise ValueError(f"Missing embedding_weights {embedding_weights}.")
    b = scopes.builder(*parts, *nest.flatten(sparse_ids))
    wanted = None if sparse_weights is None else sparse_weights.dtype.base
    parts = [p if isinstance(p, Variable) and wanted in (None, p.dtype.base) else b.tensor(p, wanted) for p in parts]
    with scopes.name_scope(name, "embedding_lookup", [*parts, *nest.flatten(sparse_ids)]) as scope:
        shape = sparse_ids.dense_shape
        known = shapes.with_rank(shape.shape, 1)[0]
        rank = arrays.size(shape) if known is None else known
        rest = gathering.slice(shape, [0], [rank - 1])
        ids = sparse.reshape(sparse_ids, [reductions.reduce_prod(rest), gathering.gather(shape, rank - 1)])
        weights = None
        if sparse_weights is not None:
            weights = SparseTensor(ids.indices, sparse_weights.values, ids.dense_shape)
        ids, weights = _kept(ids, weights, math.greater_equal(ids.values, 0))
        if combiner != "sum" and weights is not None:
            ids, weights = _kept(ids, weights, math.greater(weights.values, 0))
        ids, is_empty = sparse.fill_empty_rows(ids, default_id or 0)
        if weights is not None:
            weights, _ = sparse.fill_empty_rows(weights, 1.0)
        found = embedding_lookup_sparse(
            parts, ids, weights, combiner, max_norm, None if default_id is None else scope, allow_fast_lookup,
            partition_strategy,
        )  # fmt: skip
        if default_id is None:
            width = arrays.stack([1, arrays.shape(found)[1]])
            empty = arrays.tile(arrays.reshape(is_empty, [-1, 1]), width)
            found = scopes.builder(empty, found).make("Select", (empty, arrays.zeros_like(found), found), {}, scope)
        before = gathering.slice(math.cast(shape, dtypes.int32), [0], [rank - 1])
        after = gathering.slice(arrays.shape(found), [1], [-1])
        return arrays.reshape(found, arrays.concat([before, after], 0))


def _kept(ids: SparseTensor, weights: SparseTensor | None, which: Any) -> tuple[SparseTensor, SparseTensor | None]:
    return sparse.retain(ids, which), None if weights is None else sparse.retain(weights, which)
