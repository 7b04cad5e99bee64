"""Rows of variables: gathering from and scattering into them, by handle or by reference.

Source: TensorFlow's ResourceGather, ResourceScatter* and Scatter*. A scatter writes into a copy of the value,
or into the value itself if only the variable refers to it (`Variable.change`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from headrace import dtypes, shapes
from headrace.device_arrays import computed, is_host, on_arrays, to_host
from headrace.dtypes import INDEX, NUMERIC, REAL
from headrace.errors import InvalidArgumentError
from headrace.ir.indexed_slices import IndexedSlices, of_gather
from headrace.ir.infer import Inference
from headrace.ir.kernel import OnResources, kernel_in
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, type_attr
from headrace.opkit import arrays
from headrace.opkit.batch_node import BatchNode, NoBatchRule
from headrace.opkit.scatter import accumulated
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref, Variable, by_handle, check_initialized
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Tensor
    from headrace.ir.kernel import KernelContext

_READS = Facts(effect="resource")
_WRITES = Facts(effect="resource", writes=True)


def _held(c: Inference) -> Shape:
    known = c.handle(0)
    if known is None:
        return None
    if known[0] != c.attrs["dtype"]:
        raise ValueError(
            f"Trying to access variable with wrong dtype. Expected {known[0].name} got {c.attrs['dtype'].name}"
        )
    return known[1]


def _check_range(indices: Any, n: int) -> None:
    """Checks that every index is in [0, n)."""
    bad = (indices < 0) | (indices >= n)
    if bad.any():
        where = np.argwhere(bad)[0].tolist()
        value = indices[tuple(where)]
        at = f"indices[{','.join(map(str, where))}]" if where else "indices"
        raise InvalidArgumentError(f"{at} = {value} is not in [0, {n})")


# *** gathering ***


def _gather(attrs: Mapping[str, Any], variable: Variable, handle: Any) -> Callable[[Any], Any]:
    dtype, batch = attrs["dtype"], attrs["batch_dims"]

    def kernel(indices: Any) -> Any:
        check_initialized(variable, handle)
        params = variable.read()
        shape, wanted = shape_of(params), shape_of(indices)
        if not shape:
            raise InvalidArgumentError("params must be at least 1 dimensional, got a scalar")
        if not 0 <= batch <= min(len(shape) - 1, len(wanted)) or shape[:batch] != wanted[:batch]:
            raise InvalidArgumentError(
                f"batch_dims = {batch}: the first {batch} dimensions of params {shapes.show(shape)} and indices "
                f"{shapes.show(wanted)} must be equal"
            )
        if not is_host(params) and not batch:
            take = on_arrays(kernel_in(params.memory, "Gather", {"Tparams": dtype}), params.memory)
            return take(params, indices)
        params, indices = to_host(params), to_host(indices)
        _check_range(indices, shape[batch])
        if not batch:
            out = params[indices, ...]
            return out[()] if not out.ndim and dtype in arrays.HANDLES else out  # a single object is no array
        leading = np.ix_(*(np.arange(d) for d in shape[:batch]))
        rest = (1,) * (len(wanted) - batch)
        return params[(*(i.reshape(i.shape + rest) for i in leading), indices)]

    return kernel


def _gather_shape(c: Inference) -> Sequence[Shape]:
    batch = c.attrs["batch_dims"]
    if batch < 0:
        raise ValueError(f"batch_dims is negative ({batch})")
    params = shapes.with_rank_at_least(_held(c), batch + 1)
    indices = shapes.with_rank_at_least(c.shapes[1], batch)
    if params is None or indices is None:
        return [None]
    return [(*_merged(params[:batch], indices[:batch]), *indices[batch:], *params[batch + 1 :])]


def _merged(a: tuple[int | None, ...], b: tuple[int | None, ...]) -> tuple[int | None, ...]:
    return tuple(shapes.merge_dim(x, y) for x, y in zip(a, b, strict=True))


def _gather_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | IndexedSlices | None]:
    """The gradient of a gather: the rows of `dy` added at the indices."""
    if n.attrs["batch_dims"]:
        raise LookupError("ResourceGather with batch_dims has no gradient; read the variable and use GatherV2")
    return [of_gather(b, dy, n.indices, b.VariableShape(n.resource)), None]


def _gather_jvp(b: Builder, n: GradNode, dx: Tensor, _: None) -> list[Tensor | None]:
    batch = n.attrs["batch_dims"]
    return [b.GatherV2(dx, n.indices, batch, batch_dims=batch)]


def _gather_rows(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """The batching rule: positions that differ between examples are more positions."""
    if n.attrs["batch_dims"]:
        raise NoBatchRule("the variable has a batch of its own")
    return n.make(*n.inputs)


op(
    "ResourceGather",
    "resource: resource, indices: Tindices",
    "output: dtype",
    {"batch_dims": 0, "validate_indices": True, "dtype": type_attr(), "Tindices": INDEX},
    shape=_gather_shape,
    stateful=OnResources(1, by_handle, _gather),
    xp=True,
    grad=_gather_grad,
    jvp=_gather_jvp,
    batch=_gather_rows,
    facts=_READS,
    doc="The variable's rows at `indices`.",
)


# *** scattering ***


def _put(rows: np.ndarray, indices: Any, updates: Any) -> None:
    rows[indices] = updates


def _divide(rows: np.ndarray, indices: Any, updates: Any) -> None:
    if rows.dtype.kind not in "iu":
        np.divide.at(rows, indices, updates)
        return
    updates = np.broadcast_to(updates, shape_of(indices) + rows.shape[1:])
    if not np.all(updates):
        raise InvalidArgumentError("Integer division by zero in a scatter")
    for at in np.ndindex(shape_of(indices)):  # one by one: an index may repeat, and each division rounds to zero
        row, by = rows[indices[at]], updates[at]
        quotient = np.floor_divide(row, by)
        rows[indices[at]] = quotient + ((quotient < 0) & (quotient * by != row))


def _each(f: np.ufunc) -> Callable[[np.ndarray, Any, Any], None]:
    return lambda rows, indices, updates: f.at(rows, indices, updates)


def _sum(how: Literal["add", "subtract"]) -> Callable[[np.ndarray, Any, Any], None]:
    def combine(rows: np.ndarray, indices: Any, updates: Any) -> None:
        if not shape_of(updates) or not accumulated(how, rows, (np.asarray(indices),), updates):
            getattr(np, how).at(rows, indices, updates)

    return combine


_Combine = Callable[[np.ndarray, Any, Any], None]


def _scatter(kind: str, combine: _Combine, variable: Variable, indices: Any, updates: Any) -> None:
    """Combines `updates` into the rows of a variable at `indices`, in order.

    Values in the memory of a device are combined there by the op TensorScatter*, if it does the same.
    """
    value = variable.read()
    if is_host(value) or kind not in ("Update", "Add", "Sub"):
        del value  # else `change` would copy it
        variable.change(lambda params: _scatter_on_host(combine, params, to_host(indices), to_host(updates)))
        return
    _check_rows(value, indices, updates)
    if value.memory.is_near:
        _check_range(to_host(indices), shape_of(value)[0])
    attrs = {"T": variable.dtype, "bad_indices_policy": "IGNORE"}
    scatter = kernel_in(value.memory, f"TensorScatter{kind}", attrs)

    def compute(xp: Any, params: Any, indices: Any, updates: Any) -> Any:
        count, rest = math.prod(indices.shape), params.shape[1:]
        each = xp.reshape(xp.broadcast_to(updates, (*indices.shape, *rest)), (count, *rest))
        return scatter(params, xp.reshape(indices, (count, 1)), each)

    variable.update(lambda params: computed(compute, params, indices, updates))


def _scatter_on_host(combine: _Combine, params: Any, indices: Any, updates: Any) -> None:
    _check_rows(params, indices, updates)
    _check_range(indices, shape_of(params)[0])
    if np.size(indices):
        combine(params, indices, updates)


def _check_rows(params: Any, indices: Any, updates: Any) -> None:
    shape = shape_of(params)
    if not shape:
        raise InvalidArgumentError("params must be at least 1-D, got shape []")
    if shape_of(updates) not in ((), shape_of(indices) + shape[1:]):
        raise InvalidArgumentError(
            "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got "
            f"updates.shape {shapes.show(shape_of(updates))}, indices.shape {shapes.show(shape_of(indices))}, "
            f"params.shape {shapes.show(shape)}"
        )


def _scatter_ref(kind: str, combine: _Combine) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref, Any, Any], Ref]:
        def kernel(ref: Ref, indices: Any, updates: Any) -> Ref:
            _scatter(kind, combine, ref.variable, indices, updates)
            return ref

        return kernel

    return factory


def _scatter_handle(kind: str, combine: _Combine) -> Any:
    def make(attrs: Mapping[str, Any], variable: Variable, handle: Any) -> Callable[[Any, Any], None]:
        def kernel(indices: Any, updates: Any) -> None:
            check_initialized(variable, handle)
            _scatter(kind, combine, variable, indices, updates)

        return kernel

    return OnResources(1, by_handle, make)


def _check_updates(params: Shape, indices: Shape, updates: Shape) -> None:
    if params is None or indices is None or updates == ():
        return
    shapes.merge(updates, indices + params[1:])


def _scatter_ref_shape(c: Inference) -> Sequence[Shape]:
    _check_updates(*c.shapes)
    return [c.shapes[0]]


def _scatter_handle_shape(c: Inference) -> Sequence[Shape]:
    _check_updates(_held(c), c.shapes[1], c.shapes[2])
    return []


for _name, _combine, _allowed, _doc in (
    ("Update", _put, None, "Replaces"),
    ("Add", _sum("add"), NUMERIC, "Adds to"),
    ("Sub", _sum("subtract"), NUMERIC, "Subtracts from"),
    ("Mul", _each(np.multiply), NUMERIC, "Multiplies"),
    ("Div", _divide, NUMERIC, "Divides"),
    ("Min", _each(np.minimum), REAL, "Assigns the minimum of the updates and"),
    ("Max", _each(np.maximum), REAL, "Assigns the maximum of the updates and"),
):
    # the reference forms of Min and Max support fewer dtypes
    _few = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64})
    op(
        f"Scatter{_name}",
        "ref: Ref(T), indices: Tindices, updates: T",
        "output_ref: Ref(T)",
        {
            "T": type_attr(_few if _allowed is REAL else _allowed),
            "Tindices": INDEX,
            "use_locking": _name == "Update",
        },
        shape=_scatter_ref_shape,
        stateful=_scatter_ref(_name, _combine),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_WRITES,
        doc=f"{_doc} the variable's rows at `indices`.",
    )
    op(
        f"ResourceScatter{_name}",
        "resource: resource, indices: Tindices, updates: dtype",
        "",
        {"dtype": type_attr(NUMERIC if _allowed is REAL else _allowed), "Tindices": INDEX},
        shape=_scatter_handle_shape,
        stateful=_scatter_handle(_name, _combine),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_WRITES,
        doc=f"{_doc} the variable's rows at `indices`.",
    )
