"""Ops of an optimizer's formula: on variables by reference or handle, dense or sparse.

A formula is a function of arrays that is written once. It states how a gradient changes the variable and its slots (the
averages and sums that an optimizer keeps for it). `records` creates up to four ops from it: `ApplyX`, `ResourceApplyX`,
`SparseApplyX`, `ResourceSparseApplyX`. The sparse ops apply it to rows; a repeated index is applied repeatedly, in
order. All values change together, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import shapes, thresholds
from headrace.device_arrays import computed, is_host, on_arrays, to_host
from headrace.dtypes import INDEX, DType
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.kernel import OnResources
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, type_attr
from headrace.opkit.kernel_library import kernel_library
from headrace.resources.manager import Owners
from headrace.resources.values import shape_of
from headrace.resources.variable import (
    DeviceVariable,
    Ref,
    Variable,
    change_together,
    update_together,
    variable_of,
)
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.device_arrays import ArrayMemory
    from headrace.ir.kernel import KernelContext

Formula = Callable[..., Sequence[Any]]  # (xp, attrs, *values of the variable and its slots, *arguments) -> new values

DENSE: Final = ("Apply", "ResourceApply")
SPARSE: Final = ("SparseApply", "ResourceSparseApply")


# *** rows ***


def _rounds(indices: np.ndarray) -> list[Any]:
    """Positions in `indices`, in rounds in which no index is repeated.

    Round k has the k-th occurrence of each index.
    """
    order = np.argsort(indices, kind="stable")
    found = indices[order]
    starts = np.flatnonzero(np.concatenate(([True], found[1:] != found[:-1])))
    if len(starts) == len(indices):
        return [slice(None)]
    turn = np.arange(len(indices)) - np.repeat(starts, np.diff(starts, append=len(indices)))
    ends = np.cumsum(np.bincount(turn))
    return np.split(order[np.argsort(turn, kind="stable")], ends[:-1])


def _check_rows(var: tuple[int, ...], grad: tuple[int, ...], indices: Any) -> None:
    if not var:
        raise InvalidArgumentError("var must be at least 1 dimensional, got a scalar")
    if shape_of(indices) != grad[:1] or len(shape_of(indices)) != 1:
        raise InvalidArgumentError(
            "indices must be one-dimensional and grad must be the same size as indices in the first dimension: got "
            f"indices {shapes.show(shape_of(indices))} and grad {shapes.show(grad)}"
        )
    if var[1:] != grad[1:]:
        raise InvalidArgumentError(
            f"var and grad must match in all dimensions but the first: got {shapes.show(var)} and {shapes.show(grad)}"
        )
    if not all(var[1:]):
        raise InvalidArgumentError(f"Inner dimension should be greater than zero, var is {shapes.show(var)}")
    bad = (indices < 0) | (indices >= var[0])
    if bad.any():
        at = int(np.argmax(bad))
        raise InvalidArgumentError(f"Index {indices[at]} at offset {at} in indices is out of range: [0, {var[0]})")


def _by_rows(formula: Formula, gradient: int, attrs: Any, values: Sequence[Any], args: list[Any]) -> None:
    """Applies `formula` to rows of `values`, in place.

    `args[gradient]` is the gradient of the rows at `args[gradient + 1]`. The arrays change when all new rows are known.
    """
    args[:] = map(to_host, args)
    grad, indices = args[gradient], args[gradient + 1]
    del args[gradient + 1]
    _check_rows(shape_of(values[0]), shape_of(grad), indices)
    if not len(indices):
        return
    used, places = np.unique(indices, return_inverse=True)
    out = [v[used] for v in values]
    for turn in _rounds(places):
        args[gradient] = grad[turn]
        rows = places[turn]
        for array, new in zip(out, formula(np, attrs, *(v[rows] for v in out), *args), strict=True):
            array[rows] = new
    for value, new in zip(values, out, strict=True):
        value[used] = new


# *** blocks ***


def _by_blocks(formula: Formula, gradient: int, attrs: Any, values: Sequence[Any], args: list[Any]) -> Sequence[Any]:
    """Applies the elementwise `formula` to large arrays in blocks."""
    n = values[0].size
    whole = [np.ascontiguousarray(x).reshape(-1) for x in (*values, args[gradient])]
    out = [np.empty(v.shape, v.dtype) for v in values]
    flat = [x.reshape(-1) for x in out]
    for start in range(0, n, thresholds.UPDATE_BLOCK_ELEMENTS):
        at = slice(start, start + thresholds.UPDATE_BLOCK_ELEMENTS)
        *block, args[gradient] = (x[at] for x in whole)
        for array, new in zip(flat, formula(np, attrs, *block, *args), strict=True):
            array[at] = new
    return out


# *** devices ***


def _with_numbers(given: Sequence[Any], scalars: Sequence[int], memory: ArrayMemory) -> list[Any]:
    """The arguments, with numbers of Python for scalars that the host can read at once.

    A kernel for each operation on such a scalar would take longer.
    """
    out = list(given)
    for i in scalars:
        x = out[i]
        if is_host(x):
            out[i] = x.item()
        elif memory.is_near:
            out[i] = x.array.item()
    return out


def _computed(
    formula: Formula, attrs: Any, values: Sequence[Any], given: Sequence[Any], scalars: Sequence[int]
) -> Sequence[Any]:
    """Applies `formula` in the memory of a device."""
    whole = [*values, *_with_numbers(given, scalars, values[0].memory)]
    is_moving = [not isinstance(x, (int, float, complex)) for x in whole]

    def compute(xp: Any, *arrays: Any) -> tuple[Any, ...]:
        rest = iter(arrays)
        return tuple(formula(xp, attrs, *[next(rest) if m else x for m, x in zip(is_moving, whole, strict=True)]))

    found: Sequence[Any] = computed(compute, *[x for m, x in zip(is_moving, whole, strict=True) if m])
    return found


def _in_place(
    name: str, attrs: Any, variables: Sequence[Variable], given: Sequence[Any], scalars: Sequence[int], grad: Any
) -> Callable[..., object] | None:
    """The function of a device's library for a formula, or None; see `ArrayMemory.update`."""
    if is_host(grad) or not all(type(v) is DeviceVariable for v in variables):
        return None
    memory: ArrayMemory = grad.memory
    known = _with_numbers(given, scalars, memory)
    return memory.update(name, attrs, [x if is_host(x) else x.array for x in (known[i] for i in scalars)])


# *** kernels ***


def _by_handles(step: Owners, attrs: Mapping[str, Any], *handles: Any) -> list[Variable]:
    return [variable_of(step, handle, attrs["T"]) for handle in handles]


def _check_initialized(variables: Sequence[Variable]) -> None:
    for v in variables:
        if not v.is_initialized and v.by_reference:
            v.read()
        elif not v.is_initialized:  # an odd class, but TensorFlow's
            raise InternalError(f"Invalid variable reference. Variable {v.name} is uninitialized")


def _scalars(args: Sequence[str], gradient: int) -> list[int]:
    return [i for i, name in enumerate(args) if i != gradient and name != "indices"]


def _differ(first: str, shape: tuple[int, ...], name: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{first} and {name} do not have the same shape{shapes.show(shape)} {shapes.show(value.shape)}"
    )


def _kernel(
    name: str,
    formula: Formula,
    slots: Sequence[str],
    args: Sequence[str],
    gradient: int,
    on_rows: bool,
    ref: bool,
    is_arithmetic: bool,
) -> Any:
    scalars, n = _scalars(args, gradient), len(slots)

    def check(values: Sequence[Any], grad: Any) -> None:
        var = values[0].shape
        for slot, value in zip(slots, values, strict=True):
            if value.shape != var:
                raise _differ(slots[0], var, slot, value)
        if not on_rows and grad.shape != var:
            raise _differ(slots[0], var, args[gradient], grad)

    def change_rows(attrs: Any, values: Sequence[Any], given: Sequence[Any]) -> None:
        check(values, given[gradient])
        _by_rows(formula, gradient, attrs, values, list(given))

    def updated(attrs: Any, values: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        check(values, given[gradient])
        if not is_host(values[0]):
            return _computed(formula, attrs, values, given, scalars)
        if is_arithmetic and values[0].size >= thresholds.NATIVE_UPDATE:  # else the library need not be imported
            numbers = [given[i] for i in scalars]
            new = kernel_library().updated(formula, attrs, values, given[gradient], numbers, gradient)
            if new is not None:
                return new
        if values[0].size >= thresholds.UPDATE_BLOCKED_ELEMENTS:
            return _by_blocks(formula, gradient, attrs, values, list(given))
        return formula(np, attrs, *values, *given)

    def write(function: Callable[..., object], values: Sequence[Any], grad: Any) -> None:
        check(values, grad)
        on_arrays(function, grad.memory)(grad, *values)

    def change(attrs: Mapping[str, Any], variables: Sequence[Variable], given: Sequence[Any]) -> None:
        if n > 1 and len(set(map(id, variables))) < n:
            raise InvalidArgumentError(
                f"{', '.join(slots)} must be variables of their own: got {[v.name for v in variables]}"
            )
        for i in scalars:
            if given[i].shape:
                raise InvalidArgumentError(f"{args[i]} is not a scalar: {shapes.show(given[i].shape)}")
        grad = given[gradient]
        if on_rows:
            change_together(variables, lambda *values: change_rows(attrs, values, given))
        elif (function := _in_place(name, attrs, variables, given, scalars, grad)) is not None:
            change_together(variables, lambda *values: write(function, values, grad), grad)
        else:
            update_together(variables, lambda *values: updated(attrs, values, given))

    def by_reference(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Ref]:
        def kernel(*inputs: Any) -> Ref:
            change(attrs, [r.variable for r in inputs[:n]], inputs[n:])
            target: Ref = inputs[0]
            return target

        return kernel

    def by_handle(attrs: Mapping[str, Any], *variables: Variable) -> Callable[..., None]:
        def kernel(*given: Any) -> None:
            _check_initialized(variables)
            change(attrs, variables, given)

        return kernel

    return by_reference if ref else OnResources(n, _by_handles, by_handle)


# *** shapes ***


def _shape(slots: Sequence[str], args: Sequence[str], gradient: int, on_rows: bool, ref: bool) -> Any:
    scalars = _scalars(args, gradient)

    def held(c: Inference, i: int) -> Shape:
        if ref:
            return c.shapes[i]
        known = c.handle(i)
        if known is None:
            return None
        if known[0] != c.attrs["T"]:
            raise ValueError(
                f"Trying to access variable with wrong dtype. Expected {known[0].name} got {c.attrs['T'].name}"
            )
        return known[1]

    def rule(c: Inference) -> Sequence[Shape]:
        var: Shape = None
        for i in range(len(slots)):
            var = shapes.merge(var, held(c, i))
        given = c.shapes[len(slots) :]
        for i in scalars:
            shapes.with_rank(given[i], 0)
        if not on_rows:
            var = shapes.merge(var, given[gradient])
        else:
            (n,) = shapes.with_rank(given[gradient + 1], 1)
            shapes.merge(given[gradient], None if var is None else (n, *var[1:]))
        return [var] if ref else []

    return rule


# *** records ***


def records(
    formula: Formula,
    name: str,
    slots: str,
    args: str,
    types: Collection[DType],
    doc: str,
    forms: Sequence[str] = (*DENSE, *SPARSE),
    flag: tuple[str, bool] | None = None,
    is_arithmetic: bool = False,
) -> Iterator[dict[str, Any]]:
    """The fields of the records of the ops of a formula.

    Args:
      formula: `f(xp, attrs, *values, *arguments) -> new values`; `xp` is a namespace of the array API standard, numpy
        here, or has its functions for tensors.
      name: the suffix of the op types.
      slots: the variable, and the slots with it.
      args: the further arguments in TensorFlow's order. The gradient is `grad`, or `delta` if the op on whole variables
        calls it so; the ops on rows have `indices` behind it. The others are scalars.
      types: of the variable.
      doc: for the ops.
      forms: the prefixes of the op types.
      flag: a further attribute, and its default.
      is_arithmetic: whether the formula consists of sums, products, quotients, squares and roots, and checks nothing.
    """
    for form in forms:
        ref, on_rows = "Resource" not in form, "Sparse" in form
        parts = args.replace("delta", "grad").replace("grad", "grad indices") if on_rows else args
        keys, given = slots.split(), parts.split()
        gradient = next(i for i, a in enumerate(given) if a in ("grad", "delta"))
        kinds = {"indices": "Tindices", "global_step": "int64"}
        ins = [f"{k}: {'Ref(T)' if ref else 'resource'}" for k in keys]
        ins += [f"{a}: {kinds.get(a, 'T')}" for a in given]
        attrs = {"T": type_attr(types), "use_locking": bool_attr(False)}
        attrs |= {"Tindices": type_attr(INDEX)} if on_rows else {}
        attrs |= {flag[0]: bool_attr(flag[1])} if flag else {}
        yield {
            "type": form + name,
            "ins": ", ".join(ins),
            "outs": "out: Ref(T)" if ref else "",
            "attrs": attrs,
            "shape": _shape(keys, given, gradient, on_rows, ref),
            "stateful": _kernel(name, formula, keys, given, gradient, on_rows, ref, is_arithmetic),
            "xp": True,
            "grad": NOT_DIFFERENTIABLE,
            "facts": Facts(effect="resource", writes=True),
            "doc": doc + (" Only the rows at `indices`, one after the other." if on_rows else ""),
        }
