"""Calls of functions of windows in regions."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import thresholds
from headrace.opkit.forms import Window
from headrace.targets.native import state
from headrace.targets.native.costs import Costs
from headrace.targets.native.held import Array
from headrace.targets.native.plan import row_major
from headrace.targets.native.reductions import reduce
from headrace.targets.native.registers import of_host
from headrace.targets.native.windows import convolution, pooling
from headrace.targets.native.windows.depthwise import Depthwise
from headrace.targets.native.windows.specs import Spec, convolution_spec, write

if TYPE_CHECKING:
    from headrace.schedule.program import Compute
    from headrace.targets.native.arrays import ArrayPrinter

_CONVOLUTIONS: Final = {kind.value: kind for kind in convolution.Kind}


def print_window(p: ArrayPrinter, instr: Compute, form: Window) -> None:
    """Prints a convolution, a pooling or a gradient of one.

    The functions have the channels last, and a filter for each of them if the convolution is depthwise. Images of
    another order are copied, and channels with several filters are repeated, as by the kernels.
    """
    (out,) = instr.made
    spec = _spec(form, p.place_of(out).dtype)
    arrays = [_source(p, form, spec, i, p.copied(instr, k)) for i, k in enumerate(form.sources)]
    target = p.place_of(out)
    result = _result(p, form, spec, target)
    name = f"windows.{hashlib.sha256(repr(spec).encode()).hexdigest()[:16]}"
    if not p.module.has(name):
        write(p.module, spec, name)
    addresses = [result.pointer, *(a.pointer for a in arrays)]
    if isinstance(spec, pooling.Pooling):
        addresses += addresses[-1:] * (3 - len(addresses))
    elif isinstance(spec, convolution.Convolution):
        addresses.append(_scratch(p, spec))
    p.has_parts |= Costs().instr(instr) >= thresholds.NATIVE_THREAD_WORK
    p.f.line(f"call void @{name}({', '.join(f'ptr {a}' for a in addresses)}, i64 {form.images})")
    if result is not target:
        _put(p, form, result, target)
    p.values[out] = target


def _is_image(form: Window, i: int) -> bool:
    """Whether a source is images and not a filter."""
    return i == 0 or form.kind not in ("forward", "by_input")


def _source(p: ArrayPrinter, form: Window, spec: Spec, i: int, array: Array) -> Array:
    """A source as the function takes it."""
    if not _is_image(form, i):
        return array
    found = _with_channels_last(array) if form.is_channels_first else array
    times = form.outputs // form.channels
    if isinstance(spec, Depthwise) and times > 1 and i == 0 and form.kind != "by_input":
        found = dataclasses.replace(found, shape=(*found.shape, times), strides=(*found.strides, 0))
    return array if found is array else p.copied_block(found)


def _result(p: ArrayPrinter, form: Window, spec: Spec, target: Array) -> Array:
    """The memory into which the function writes; that of the result if it fits."""
    if form.kind == "by_filter":
        return target
    shape = _with_channels_last(target).dims if form.is_channels_first else target.dims
    times = form.outputs // form.channels
    if isinstance(spec, Depthwise) and times > 1 and form.kind == "by_input":
        shape = (*shape, times)
    if shape == target.dims and not form.is_channels_first:
        return target
    return _block(p, target.dtype, shape)


def _block(p: ArrayPrinter, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    """Memory for images, which ends with the block."""
    size = math.prod(shape) * dtype.itemsize
    pointer = state.allocate_block(p.f, size, "no_memory", "images")
    p.own_block(pointer, str(size))
    return Array(pointer, dtype, shape, row_major(shape))


def _put(p: ArrayPrinter, form: Window, result: Array, target: Array) -> None:
    """Prints a copy of the sums to the result, if there are several filters."""
    to = _with_channels_last(target) if form.is_channels_first else target
    if len(result.shape) > len(to.shape):
        total = _block(p, to.dtype, to.dims) if form.is_channels_first else to
        axis = len(result.dims) - 1
        name = reduce(p.module, np.add, result.dims, [axis], result.dtype, vector_bytes=of_host().bytes)
        p.f.line(f"call void {name}(ptr {total.pointer}, ptr {result.pointer})")
        result = total
    if result is not to:
        p.copy(to, result)


def _with_channels_last(array: Array) -> Array:
    """A view of images, whose second axis is that of the channels."""
    (images, channels, *rest), (a, b, *c) = array.dims, array.strides
    return dataclasses.replace(array, shape=(images, *rest, channels), strides=(a, *c, b))


def _spec(form: Window, dtype: np.dtype) -> Spec:
    kind = _CONVOLUTIONS.get(form.kind)
    if kind is None:
        return pooling.Pooling(pooling.Kind(form.kind), form.axes, form.channels, dtype)
    return convolution_spec(kind, form.axes, form.channels, form.outputs, form.groups, dtype)


def _scratch(p: ArrayPrinter, spec: convolution.Convolution) -> str:
    """The memory for a transposed filter, which ends with the block."""
    size = convolution.scratch_bytes(spec)
    if not size:
        return "null"
    pointer = state.allocate_block(p.f, size, "no_memory", "filter")
    p.own_block(pointer, str(size))
    return pointer
