"""Variables: creation, reads, assignments and updates, by handle or by reference (TensorFlow 1).

Source: TensorFlow's VarHandleOp and VariableV2 and the ops on them. A variable's value is replaced, never written
(`resources.variable`). Gathering from and scattering into variables is in `state_rows`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.device_arrays import computed, to_host
from headrace.dtypes import INDEX, NUMERIC
from headrace.errors import FailedPreconditionError, HeadraceError, InvalidArgumentError, NotFoundError, OutOfRangeError
from headrace.ir.indexed_slices import forwarded
from headrace.ir.infer import Inference
from headrace.ir.kernel import NamesResource, OnResources, device_memory
from headrace.ir.op_roles import BY_REFERENCE
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    bool_attr,
    int_attr,
    list_attr,
    op,
    shape_attr,
    string_attr,
    type_attr,
)
from headrace.opkit import arrays
from headrace.opkit.jvp_rules import passed
from headrace.opkit.shape_rules import nothing, scalars
from headrace.records import record
from headrace.resources.manager import Handle, destroy, handle_of, resource_of
from headrace.resources.values import int_of, shape_of
from headrace.resources.variable import (
    CountedVariable,
    DeviceVariable,
    Ref,
    Variable,
    by_handle,
    check_initialized,
    initialized_variable,
)
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.ir.kernel import KernelContext

# TensorFlow's name for "a new variable at each firing"
_ANONYMOUS = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
_NAMED = {"shape": shape_attr(), "dtype": type_attr(), "container": "", "shared_name": ""}
_READS = Facts(effect="resource")
_WRITES = Facts(effect="resource", writes=True)


# *** making variables ***


def _full(shape: Shape) -> tuple[int, ...]:
    """The shape of a reference variable; a scalar's for an unknown rank, as in TensorFlow."""
    if not shapes.is_full(shape) and shape is not None:
        raise InvalidArgumentError(f"Shape {shapes.show(shape)} is not fully defined")
    return tuple(d for d in shape or () if d is not None)


def _named_variable(ctx: KernelContext, attrs: Mapping[str, Any], shape: Shape, by_reference: bool) -> Variable:
    name = attrs["shared_name"] or ctx.node

    def make() -> Variable:
        use, there = ctx.step.memory, device_memory(ctx.op)
        if there is not None:
            use = None if use is None else use.of(there)
            made: Variable = DeviceVariable(name, attrs["dtype"], shape, there, None if use is None else use.memory)
        elif use is None:
            made = Variable(name, attrs["dtype"], shape)
        else:
            made = CountedVariable(name, attrs["dtype"], shape, use.memory)
        made.by_reference = by_reference
        return made

    found: Variable = ctx.step.session.lookup_or_create(attrs["container"], Variable, name, make)
    return found


def _ref_variable(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Ref]:
    def kernel() -> Ref:
        variable = _named_variable(ctx, attrs, _full(attrs["shape"]), True)
        if variable.dtype != attrs["dtype"]:
            raise InvalidArgumentError(
                f"Trying to access variable {variable.name} with wrong dtype. "
                f"Expected {variable.dtype.name} got {attrs['dtype'].name}"
            )
        return Ref(variable)

    return kernel


op(
    "VariableV2",
    outs="ref: Ref(dtype)",
    attrs=_NAMED,
    shape=lambda c: [c.attrs["shape"]],
    stateful=_ref_variable,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="A reference to the session's variable of this name.",
)
op(
    "Variable",
    outs="ref: Ref(dtype)",
    attrs=_NAMED,
    shape=lambda c: [c.attrs["shape"] or None],  # the shape () may mean "unknown"
    stateful=_ref_variable,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="A reference to the session's variable of this name.",
)


def _temporary_name(ctx: KernelContext, attrs: Mapping[str, Any]) -> str:
    # each iteration of a loop has its own
    return f"{attrs['var_name'] or ctx.node}/{ctx.step.tag}"


def _temporary(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Ref]:
    def kernel() -> Ref:
        shape, dtype = _full(attrs["shape"]), attrs["dtype"]
        name = _temporary_name(ctx, attrs)
        variable = Variable(name, dtype, shape)
        ctx.step.resources.create("_temporary", Variable, name, variable)
        variable.assign(arrays.zeros(np, shape, dtype))
        return Ref(variable)

    return kernel


def _destroy_temporary(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref], Any]:
    def kernel(ref: Ref) -> Any:
        value = ref.read()
        ctx.step.resources.delete("_temporary", Variable, _temporary_name(ctx, attrs))
        return value

    return kernel


op(
    "TemporaryVariable",
    outs="ref: Ref(dtype)",
    attrs={"shape": shape_attr(), "dtype": type_attr(), "var_name": ""},
    shape=lambda c: [c.attrs["shape"]],
    stateful=_temporary,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="step", writes=True),
    doc="A reference to a new variable of zeros, which exists until DestroyTemporaryVariable or the step's end.",
)
op(
    "DestroyTemporaryVariable",
    "ref: Ref(T)",
    "value: T",
    {"T": type_attr(), "var_name": string_attr()},
    shape=lambda c: [c.shapes[0]],
    stateful=_destroy_temporary,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="step", writes=True),
    doc="The value of a temporary variable, which it destroys.",
)


def _var_handle(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[], Handle]:
    dtype, shape, container = attrs["dtype"], attrs["shape"], attrs["container"]
    if attrs["shared_name"] == _ANONYMOUS:
        handle = handle_of(ctx.op, container, Variable, ctx.node, dtype, shape)
        return lambda: dataclasses.replace(handle, owned=Variable(ctx.node, dtype, shape))

    def kernel() -> Handle:
        variable = _named_variable(ctx, attrs, shape, attrs["debug_name"] == BY_REFERENCE)
        return handle_of(ctx.op, container, Variable, variable.name, dtype, shape)

    return kernel


def _known_handle(op: Operation) -> Handle | None:
    attrs = op.attrs
    if attrs["shared_name"] == _ANONYMOUS:
        return None
    name = attrs["shared_name"] or op.name
    return handle_of(op, attrs["container"], Variable, name, attrs["dtype"], attrs["shape"])


def _var_handle_shape(c: Inference) -> Sequence[Shape]:
    c.set_handle(0, c.attrs["dtype"], c.attrs["shape"])
    return [()]


op(
    "VarHandleOp",
    outs="resource: resource",
    attrs={
        "container": "",
        "shared_name": "",
        "debug_name": "",
        "dtype": type_attr(),
        "shape": shape_attr(),
        "allowed_devices": list_attr("string", ()),
    },
    shape=_var_handle_shape,
    stateful=NamesResource(_var_handle, _known_handle),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="A handle to the session's variable of this name.",
)


def _select_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[0], 0)
    first = c.shapes[1]
    return [first if all(s == first for s in c.shapes[2:]) else None]


def _select(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Ref]:
    n = attrs["N"]

    def kernel(index: Any, *refs: Ref) -> Ref:
        i = int_of(index, "Index")
        if not 0 <= i < n:
            raise InvalidArgumentError(f"Index must be in the range [0, {n}) but got {i}")
        return refs[i]

    return kernel


op(
    "RefSelect",
    "index: int32, inputs: N * Ref(T)",
    "output: Ref(T)",
    {"T": type_attr(), "N": int_attr(minimum=1)},
    shape=_select_shape,
    stateful=_select,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="The reference at `index`.",
)


# *** shapes ***


def _held(c: Inference, dtype: str = "dtype") -> Shape:
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


def _written(c: Inference) -> Sequence[Shape]:
    shapes.merge(_held(c), c.shapes[1])
    return []


def _merged_ref(c: Inference) -> Sequence[Shape]:
    return [shapes.merge(c.shapes[0], c.shapes[1])]


# *** reading ***


def _variable_shape(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    out = attrs["out_type"].numpy
    return lambda handle: np.array(shape_of(initialized_variable(ctx.step, handle).read()), out)


def _variable_shape_shape(c: Inference) -> Sequence[Shape]:
    known = c.handle(0)
    rank = None if known is None or known[1] is None else len(known[1])
    return [(rank,)]


def _variable_shape_value(c: Inference) -> Shape:
    known = c.handle(0)
    return None if known is None else known[1]


op(
    "ReadVariableOp",
    "resource: resource",
    "value: dtype",
    {"dtype": type_attr()},
    shape=lambda c: [_held(c)],
    stateful=OnResources(1, by_handle, lambda attrs, variable, handle: variable.read),
    xp=True,
    grad=forwarded,  # the gradient of a variable is that of its value
    jvp=passed,
    facts=_READS,
    doc="The variable's value.",
)


@record(frozen=True, slots=True)
class _ReadIfNeeded(OnResources):
    """Factory of a read that fails only if its value is needed.

    Otherwise a variable may also be missing.
    """

    def __call__(self, ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        def kernel(handle: Any, is_needed: Any) -> Any:
            try:
                found = self.find(ctx.step, attrs, handle)
            except HeadraceError:
                if is_needed:
                    raise
                return _zeros(attrs)
            return self.make(attrs, *found)(is_needed)

        return kernel


def _zeros(attrs: Mapping[str, Any]) -> np.ndarray:
    return np.zeros(attrs["shape"], attrs["dtype"].numpy)


def _read_if_needed(attrs: Mapping[str, Any], variable: Variable, handle: Any) -> Callable[..., Any]:
    def kernel(is_needed: Any = True) -> Any:
        try:
            return variable.read()
        except FailedPreconditionError:
            if is_needed:
                raise
            return _zeros(attrs)

    return kernel


op(
    "_ReadVariableIfNeeded",
    "resource: resource, is_needed: bool",
    "value: dtype",
    {"dtype": type_attr(), "shape": shape_attr()},
    shape=lambda c: [shapes.merge(_held(c), c.attrs["shape"])],
    stateful=_ReadIfNeeded(1, by_handle, _read_if_needed, conditions=1),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="The variable's value; zeros if it has none and none is needed.",
)
op(
    "VarIsInitializedOp",
    "resource: resource",
    "is_initialized: bool",
    shape=scalars,
    stateful=lambda ctx, attrs: lambda handle: np.bool_(resource_of(ctx.step, handle, Variable).is_initialized),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="Whether the variable has a value.",
)
op(
    "IsVariableInitialized",
    "ref: Ref(dtype)",
    "is_initialized: bool",
    {"dtype": type_attr()},
    shape=scalars,
    stateful=lambda ctx, attrs: lambda ref: np.bool_(ref.variable.is_initialized),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="Whether the variable has a value.",
)
op(
    "VariableShape",
    "input: resource",
    "output: out_type",
    {"out_type": type_attr(INDEX, dtypes.int32)},
    shape=_variable_shape_shape,
    stateful=_variable_shape,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    shape_value=_variable_shape_value,
    doc="The shape of the variable's value.",
)


def _no_copies(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], None]:
    def kernel(handle: Any) -> None:
        initialized_variable(ctx.step, handle)

    return kernel


op(
    "DisableCopyOnRead",
    "resource: resource",
    shape=nothing,
    stateful=_no_copies,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_READS,
    doc="Does nothing to an initialized variable: a read needs no copy here.",
)


# *** assigning ***


def _assign_handle(attrs: Mapping[str, Any], variable: Variable, handle: Any) -> Callable[[Any], None]:
    validate = attrs["validate_shape"]
    return lambda value: variable.assign(value, same_shape=validate)


def _assign_ref(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref, Any], Ref]:
    validate = attrs["validate_shape"]

    def kernel(ref: Ref, value: Any) -> Ref:
        ref.variable.assign(value, same_shape=validate)
        return ref

    return kernel


def _assign_ref_shape(c: Inference) -> Sequence[Shape]:
    return _merged_ref(c) if c.attrs["validate_shape"] else [c.shapes[1]]


def _destroy(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], None]:
    ignore = attrs["ignore_lookup_error"]

    def kernel(handle: Any) -> None:
        if getattr(handle, "kind", "") == Variable.__name__:  # the name stays: handles may assign to it again
            variable = resource_of(ctx.step, handle, Variable)
            existed = variable.is_initialized
            variable.release()
        else:
            existed = destroy(ctx.step, handle)
        if not existed and not ignore:
            raise NotFoundError(f"Resource {handle.container}/{handle.name} does not exist, so it cannot be destroyed")

    return kernel


op(
    "AssignVariableOp",
    "resource: resource, value: dtype",
    "",
    {"dtype": type_attr(), "validate_shape": False},
    shape=_written,
    stateful=OnResources(1, by_handle, _assign_handle),
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_WRITES,
    doc="Assigns a value to the variable.",
)
op(
    "Assign",
    "ref: Ref(T), value: T",
    "output_ref: Ref(T)",
    {"T": type_attr(), "validate_shape": True, "use_locking": True},
    shape=_assign_ref_shape,
    stateful=_assign_ref,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_WRITES,
    doc="Assigns a value to the variable.",
)
op(
    "DestroyResourceOp",
    "resource: resource",
    "",
    {"ignore_lookup_error": bool_attr(True)},
    shape=nothing,
    stateful=_destroy,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_WRITES,
    doc="Destroys the resource; a variable becomes uninitialized.",
)


# *** adding and subtracting ***


def _combined(name: str, old: Any, value: Any) -> Any:
    if shape_of(old) != shape_of(value):
        raise InvalidArgumentError(
            f"Cannot update variable with shape {shapes.show(shape_of(old))} using a Tensor with shape "
            f"{shapes.show(shape_of(value))}, shapes must be equal. Parameters and update must be the same size"
        )
    return computed(lambda xp, x, y: getattr(xp, name)(x, y), old, value)


def _update_handle(f: str) -> Any:
    def make(attrs: Mapping[str, Any], variable: Variable, handle: Any) -> Callable[[Any], None]:
        def kernel(value: Any) -> None:
            check_initialized(variable, handle)
            variable.update(lambda old: _combined(f, old, value))

        return kernel

    return OnResources(1, by_handle, make)


def _update_ref(f: str) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref, Any], Ref]:
        def kernel(ref: Ref, value: Any) -> Ref:
            ref.variable.update(lambda old: _combined(f, old, value))
            return ref

        return kernel

    return factory


for _name, _f, _verb in (("Add", "add", "Adds to"), ("Sub", "subtract", "Subtracts from")):
    op(
        f"Assign{_name}VariableOp",
        "resource: resource, value: dtype",
        "",
        {"dtype": type_attr()},
        shape=_written,
        stateful=_update_handle(_f),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_WRITES,
        doc=f"{_verb} the variable's value.",
    )
    op(
        f"Assign{_name}",
        "ref: Ref(T), value: T",
        "output_ref: Ref(T)",
        {"T": NUMERIC, "use_locking": False},
        shape=_merged_ref,
        stateful=_update_ref(_f),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_WRITES,
        doc=f"{_verb} the variable's value.",
    )


# *** counting ***


def _counter(limit: int, variable: Variable) -> Any:
    """Adds one to the variable and returns its previous value."""
    before = None

    def next_value(value: Any) -> Any:
        nonlocal before
        value = to_host(value)
        if shape_of(value):
            raise InvalidArgumentError(f"input is not a scalar: {shapes.show(shape_of(value))}")
        if value >= limit:
            raise OutOfRangeError(f"Reached limit of {limit}")
        before = value
        return value + value.dtype.type(1)

    variable.update(next_value)
    return before


def _count_ref(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Ref], Any]:
    limit = attrs["limit"]
    return lambda ref: _counter(limit, ref.variable)


def _count_handle(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    limit, dtype = attrs["limit"], attrs["T"]
    return lambda handle: _counter(limit, initialized_variable(ctx.step, handle, dtype))


def _count_handle_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(_held(c, "T"), 0)
    return [()]


op(
    "CountUpTo",
    "ref: Ref(T)",
    "output: T",
    {"limit": int_attr(), "T": INDEX},
    shape=lambda c: [shapes.with_rank(c.shapes[0], 0)],
    stateful=_count_ref,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_WRITES,
    doc="Adds one to the variable and returns its previous value; an OutOfRangeError at `limit`.",
)
op(
    "ResourceCountUpTo",
    "resource: resource",
    "output: T",
    {"limit": int_attr(), "T": INDEX},
    shape=_count_handle_shape,
    stateful=_count_handle,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=_WRITES,
    doc="Adds one to the variable and returns its previous value; an OutOfRangeError at `limit`.",
)
