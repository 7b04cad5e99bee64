"""Elements and slices of variables at multi-dimensional indices: gather and scatter.

Source: TensorFlow's ResourceGatherNd, ResourceScatterNd* and ScatterNd*. A scatter writes into a copy of the value, or
into the value itself if only the variable refers to it (`Variable.change`). Rows of variables are in `state_rows`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.device_arrays import is_host, on_arrays, to_host
from headrace.dtypes import INDEX, NUMERIC, REAL
from headrace.errors import InvalidArgumentError
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.infer import Inference
from headrace.ir.kernel import kernel_in
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, type_attr
from headrace.opkit.arrays import HANDLES
from headrace.opkit.batch_rules import first_in_step
from headrace.opkit.scatter import POLICY, add_at, check_static, extreme_at, places, scatter, set_at, subtract_at
from headrace.resources.values import shape_of
from headrace.resources.variable import Ref, Variable, initialized_variable
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Tensor
    from headrace.ir.kernel import KernelContext


def _held(c: Inference, dtype: str) -> Shape:
    """The static shape of the variable of the handle at input 0.

    Raises:
      ValueError: the variable's dtype is not the value of the attribute that `dtype` names.
    """
    known = c.handle(0)
    if known is None:
        return None
    if known[0] != c.attrs[dtype]:
        raise ValueError(
            f"Trying to access variable with wrong dtype. Expected {known[0].name} got {c.attrs[dtype].name}"
        )
    return known[1]


# *** gathering ***


def _gather(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    dtype = attrs["dtype"]

    def kernel(handle: Any, indices: Any) -> Any:
        params = initialized_variable(ctx.step, handle, dtype).read()
        if not is_host(params) and shape_of(params) and shape_of(indices):
            gather = kernel_in(params.memory, "GatherNd", {"Tparams": dtype, "bad_indices_policy": ""})
            return on_arrays(gather, params.memory)(params, indices)
        params, indices = np.asarray(to_host(params)), to_host(indices)
        if not params.ndim or not indices.ndim:
            raise InvalidArgumentError("params and indices must be at least vectors")
        where, _ = places(indices, params.shape, ignore_bad=False)
        if not where:
            return np.broadcast_to(params, indices.shape[:-1] + params.shape)
        return params[(*where, ...)] if dtype in dtypes.OBJECT else params[where]

    return kernel


def _gather_shape(c: Inference) -> Sequence[Shape]:
    params, indices = _held(c, "dtype"), shapes.with_rank_at_least(c.shapes[1], 1)
    if params is None or indices is None or indices[-1] is None:
        return [None]
    if indices[-1] > len(params):
        raise ValueError(f"indices.shape[-1] must be <= params.rank, but saw {indices[-1]} and {shapes.show(params)}")
    return [indices[:-1] + params[indices[-1] :]]


def _gather_grad(b: Builder, n: GradNode, dy: Tensor) -> list[Tensor | IndexedSlices | None]:
    """The gradient of a gather: the slices of `dy` added at the indices."""
    indices, shape = n.indices, b.VariableShape(n.resource, out_type=n.indices.dtype.base)
    known = indices.shape
    if known is not None and len(known) == 2 and known[1] == 1:
        return [IndexedSlices(dy, b.Squeeze(indices, squeeze_dims=(1,)), shape), None]  # these are rows
    if known is None or len(known) == 1:  # a single position; ScatterNd wants a list of them
        indices, dy = b.ExpandDims(indices, 0), b.ExpandDims(dy, 0)
    return [b.ScatterNd(indices, dy, shape), None]


def _gather_jvp(b: Builder, n: GradNode, dx: Tensor, _: None) -> list[Tensor | None]:
    return [b.GatherNd(dx, n.indices)]


op(
    "ResourceGatherNd",
    "resource: resource, indices: Tindices",
    "output: dtype",
    {"dtype": type_attr(), "Tindices": INDEX},
    shape=_gather_shape,
    stateful=_gather,
    xp=True,
    grad=_gather_grad,
    jvp=_gather_jvp,
    batch=first_in_step(1),
    facts=Facts(effect="resource"),
    doc="The slices of the variable at positions whose leading coordinates are the rows of `indices`.",
)


# *** scattering ***

_Put = Callable[[Any, tuple[Any, ...], Any], None]


def _scatter(kind: str, put: _Put, policy: str, variable: Variable, indices: Any, updates: Any) -> None:
    """Scatters updates into a variable by `put`, on a device by the op TensorScatter*."""
    value = variable.read()
    if not shape_of(value):
        raise InvalidArgumentError("Output must be at least 1-D, got shape: []")
    if is_host(value):
        del value  # else `change` would copy it
        ignore_bad = policy == "IGNORE"
        variable.change(lambda params: scatter(params, to_host(indices), to_host(updates), put, ignore_bad))
        return
    attrs = {"T": variable.dtype, "bad_indices_policy": policy}
    compute = on_arrays(kernel_in(value.memory, f"TensorScatter{kind}", attrs), value.memory)
    variable.update(lambda params: compute(params, indices, updates))


def _scatter_ref(kind: str, put: _Put) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref, Any, Any], Ref]:
        policy = attrs["bad_indices_policy"]

        def kernel(ref: Ref, indices: Any, updates: Any) -> Ref:
            _scatter(kind, put, policy, ref.variable, indices, updates)
            return ref

        return kernel

    return factory


def _scatter_handle(kind: str, put: _Put) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], None]:
        policy, dtype = attrs["bad_indices_policy"], attrs["T"]

        def kernel(handle: Any, indices: Any, updates: Any) -> None:
            _scatter(kind, put, policy, initialized_variable(ctx.step, handle, dtype), indices, updates)

        return kernel

    return factory


def _scatter_ref_shape(c: Inference) -> Sequence[Shape]:
    check_static(c.shapes[1], c.shapes[2], c.shapes[0])
    return [c.shapes[0]]


def _scatter_handle_shape(c: Inference) -> Sequence[Shape]:
    check_static(c.shapes[1], c.shapes[2], _held(c, "T"))
    return []


_SUMMED = NUMERIC | {dtypes.bool_}  # the sum of bools is their logical or

for _name, _put, _types, _doc in (
    ("Update", set_at, dtypes.ALL - HANDLES, "Replaces"),
    ("Add", add_at, _SUMMED, "Adds to"),
    ("Sub", subtract_at, NUMERIC, "Subtracts from"),
    ("Min", extreme_at(np.minimum), REAL, "Assigns the minimum of the updates and"),
    ("Max", extreme_at(np.maximum), REAL, "Assigns the maximum of the updates and"),
):
    _facts = Facts(effect="resource", writes=True)
    _doc = f"{_doc} the elements or slices of the variable at `indices`."
    op(
        f"ScatterNd{_name}",
        "ref: Ref(T), indices: Tindices, updates: T",
        "output_ref: Ref(T)",
        {
            "T": type_attr(_types - {dtypes.bool_} if _name != "Update" else _types),
            "Tindices": INDEX,
            "use_locking": _name == "Update",
            "bad_indices_policy": POLICY,
        },
        shape=_scatter_ref_shape,
        stateful=_scatter_ref(_name, _put),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_facts,
        doc=_doc,
    )
    op(
        f"ResourceScatterNd{_name}",
        "ref: resource, indices: Tindices, updates: T",
        "",
        {"T": type_attr(_types), "Tindices": INDEX, "use_locking": True, "bad_indices_policy": POLICY},
        shape=_scatter_handle_shape,
        stateful=_scatter_handle(_name, _put),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_facts,
        doc=_doc,
    )
