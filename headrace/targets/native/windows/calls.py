"""Calls of functions of windows in regions."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import thresholds
from headrace.opkit.forms import Window
from headrace.targets.native import state
from headrace.targets.native.costs import Costs
from headrace.targets.native.windows import convolution, pooling
from headrace.targets.native.windows.specs import Spec, convolution_spec, write

if TYPE_CHECKING:
    from headrace.schedule.program import Compute
    from headrace.targets.native.arrays import ArrayPrinter

_CONVOLUTIONS: Final = {kind.value: kind for kind in convolution.Kind}


def print_window(p: ArrayPrinter, instr: Compute, form: Window) -> None:
    """Prints a convolution, a pooling or a gradient of one."""
    (out,) = instr.made
    target, arrays = p.place_of(out), [p.copied(instr, k) for k in form.sources]
    spec = _spec(form, target.dtype)
    name = f"windows.{hashlib.sha256(repr(spec).encode()).hexdigest()[:16]}"
    if not p.module.has(name):
        write(p.module, spec, name)
    addresses = [target.pointer, *(a.pointer for a in arrays)]
    if isinstance(spec, pooling.Pooling):
        addresses += addresses[-1:] * (3 - len(addresses))
    elif isinstance(spec, convolution.Convolution):
        addresses.append(_scratch(p, spec))
    p.has_parts |= Costs().instr(instr) >= thresholds.NATIVE_THREAD_WORK
    p.f.line(f"call void @{name}({', '.join(f'ptr {a}' for a in addresses)}, i64 {form.images})")
    p.values[out] = target


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
