"""Products of complex matrices, by one product of real ones.

The rows of B are rows of 2n reals as they are in memory. Those of A are taken apart: above the real parts of all rows
stand the imaginary parts. The product of both is P above Q, and A · B = P + i · Q, where the parts of Q change places.
So the product is as fast as four real ones, and only A and the result are rearranged. Conjugates are no other work: the
parts of A are copied with the sign, and A · conj(B) is the conjugate of conj(A) · B.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace.schedule.scalar_expressions import Apply, Input
from headrace.targets.native import scalars, state
from headrace.targets.native.complex_scalars import PARTS
from headrace.targets.native.held import Array
from headrace.targets.native.plan import matrix_rows, row_major, spread
from headrace.targets.native.products import product
from headrace.targets.native.registers import of_host

if TYPE_CHECKING:
    from headrace.opkit.forms import Product
    from headrace.schedule.program import Compute
    from headrace.targets.native.arrays import ArrayPrinter


def print_complex_product(p: ArrayPrinter, instr: Compute, form: Product) -> Array:
    """Prints a product, or those of a batch; returns its result."""
    a, b = (
        _transposed(x) if is_turned else x for x, is_turned in zip(map(p.array, instr.inputs), form.turned, strict=True)
    )
    stored = matrix_rows(b.shape[-2:], b.strides[-2:])
    if stored is None or stored[0]:
        b = p.copied_block(b)
    target = p.place_of(instr.made[0])
    dtype, part = target.dtype, PARTS[target.dtype]
    (m, k), n = a.dims[-2:], b.dims[-1]
    size = (m * k + 2 * m * n) * dtype.itemsize
    scratch = state.allocate_block(p.f, size, "no_memory", "parts")
    p.own_block(scratch, str(size))
    apart = Array(scratch, part, (2, m, k), row_major((2, m, k)))
    found = Array(p.shifted(apart, 2 * m * k), dtype, (2, m, n), row_major((2, m, n)))
    second = dataclasses.replace(found, pointer=p.shifted(found, m * n))
    distance = None if k == 1 else 2 * b.strides[-2]
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
    is_conjugated = form.conjugated[0] != form.conjugated[1]

    def one(at: Sequence[str]) -> None:
        of, left, right = (p.at(x, offset) for x, offset in zip((target, a, b), at, strict=True))
        of_a = Array(left, part, (2, m, k), (1, *(2 * s for s in a.strides[-2:])))
        _take_apart(p, apart, of_a, is_conjugated)
        p.f.line(f"call void {name}(ptr {found.pointer}, ptr {scratch}, ptr {right})")
        to = Array(of, dtype, (m, n), target.strides[-2:])

        def element(at: Sequence[str]) -> None:
            number = scalars.plus_turned(p.f, dtype, p.load(found, at[1]), p.load(second, at[1]))
            p.store(to, _conjugate(p, dtype, number) if form.conjugated[1] else number, at[0])

        p.each((m, n), (to.strides, found.strides[1:]), element)

    batch = target.shape[:-2]
    layouts = [spread(x.shape[:-2], x.strides[:-2], len(batch)) for x in (a, b)]
    p.each(batch, (target.strides[:-2], *layouts), one, False)
    return target


def _transposed(x: Array) -> Array:
    """The matrices of an array, transposed."""
    shape, strides = (*x.shape[:-2], *x.shape[:-3:-1]), (*x.strides[:-2], *x.strides[:-3:-1])
    return dataclasses.replace(x, shape=shape, strides=strides)


def _take_apart(p: ArrayPrinter, apart: Array, parts: Array, is_conjugated: bool) -> None:
    """Prints copies of the real and of the imaginary parts of a matrix."""
    if not is_conjugated:
        p.copy(apart, parts)
        return
    _, m, k = apart.dims
    halves = [
        (
            dataclasses.replace(apart, pointer=p.shifted(apart, i * m * k), shape=(m, k), strides=(k, 1)),
            dataclasses.replace(parts, pointer=p.shifted(parts, i), shape=(m, k), strides=parts.strides[1:]),
        )
        for i in range(2)
    ]
    p.copy(*halves[0])
    to, of = halves[1]
    kind = scalars.register_type(apart.dtype)
    p.each(
        (m, k),
        (to.strides, of.strides),
        lambda at: p.store(to, p.f.op(f"fneg {kind} {p.load(of, at[1])}"), at[0]),
    )


def _conjugate(p: ArrayPrinter, dtype: np.dtype, number: str) -> str:
    return scalars.expression(p.f, Apply(np.conjugate, (Input(0),), dtype, None), [number], [dtype])
