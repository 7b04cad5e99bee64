"""Products of complex matrices, by one product of real ones.

The rows of B are rows of 2n reals as they are in memory. Those of A are taken apart: above the real parts of all rows
stand the imaginary parts. The product of both is P above Q, and A · B = P + i · Q, where the parts of Q change places.
So the product is as fast as four real ones, and only A and the result are rearranged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.targets.native import scalars, state
from headrace.targets.native.complex_scalars import PARTS
from headrace.targets.native.held import Array
from headrace.targets.native.plan import matrix_rows, row_major
from headrace.targets.native.products import product
from headrace.targets.native.registers import of_host

if TYPE_CHECKING:
    from headrace.opkit.forms import Product
    from headrace.schedule.program import Compute
    from headrace.targets.native.arrays import ArrayPrinter


def print_complex_product(p: ArrayPrinter, instr: Compute, form: Product) -> Array:
    """Prints a product; returns its result."""
    a, b = (
        dataclasses.replace(x, shape=x.shape[::-1], strides=x.strides[::-1]) if is_turned else x
        for x, is_turned in zip(map(p.array, instr.inputs), form.turned, strict=True)
    )
    stored = matrix_rows(b.shape, b.strides)
    if stored is None or stored[0]:
        b = p.copied_block(b)
    target = p.place_of(instr.made[0])
    dtype, part = target.dtype, PARTS[target.dtype]
    (m, k), (_, n) = a.dims, b.dims
    size = (m * k + 2 * m * n) * dtype.itemsize
    scratch = state.allocate_block(p.f, size, "no_memory", "parts")
    p.own_block(scratch, str(size))
    apart = Array(scratch, part, (2, m, k), row_major((2, m, k)))
    p.copy(apart, Array(a.pointer, part, (2, m, k), (1, 2 * a.strides[0], 2 * a.strides[1])))
    found = Array(p.shifted(apart, 2 * m * k), dtype, (2, m, n), row_major((2, m, n)))
    distance = None if k == 1 else 2 * b.strides[0]
    name = product(
        p.module,
        2 * m,
        k,
        2 * n,
        part,
        (False, False),
        row_strides=(None, distance, None),
        vector_bytes=of_host().bytes,
    )
    p.f.line(f"call void {name}(ptr {found.pointer}, ptr {scratch}, ptr {b.pointer})")
    second = dataclasses.replace(found, pointer=p.shifted(found, m * n))

    def element(at: Sequence[str]) -> None:
        of_real, of_imag = p.load(found, at[1]), p.load(second, at[1])
        p.store(target, scalars.plus_turned(p.f, dtype, of_real, of_imag), at[0])

    p.each((m, n), (target.strides, found.strides[1:]), element)
    return target
