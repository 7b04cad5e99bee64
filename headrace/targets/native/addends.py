"""Products with an addend.

A sum of a product and another array, such as a bias or the product of the inputs of a recurrent cell, is computed with
the product: each element of the product is added to that of the array before it is stored. The result has the bits of
the two operations one after the other. A sum that a map reads stays apart, because both have one loop.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from headrace import thresholds
from headrace.opkit.forms import Product
from headrace.records import record
from headrace.schedule.program import Compute, Instr, Value
from headrace.schedule.scalar_expressions import Input
from headrace.schedule.select import Map, Move
from headrace.targets.native.fusion import deep_reads


@record(frozen=True, slots=True)
class AddedProduct(Move):
    """Product of inputs 0 and 1 to which input 2 is added.

    Input 2 is an array of the same shape, or a vector that is added to each row.
    """


def with_addends(instrs: Sequence[Instr], results: Collection[Value]) -> list[Instr]:
    """The instructions of a block, with products in place of the sums with them.

    Args:
      instrs: The instructions of the block.
      results: The values that are read behind them.
    """
    products = {i.made[0]: i for i in instrs if isinstance(i, Compute) and _is_short(i)}
    if not products:
        return list(instrs)
    reads = Counter(v for instr in instrs for v in deep_reads(instr))
    reads.update(results)
    in_maps = {v for i in instrs if isinstance(i, Compute) and isinstance(i.work, Map) for v in i.inputs}
    out: list[Instr] = []
    for instr in instrs:
        found = _product_in(instr, products) if in_maps.isdisjoint(instr.made) else None
        if found is None or reads[found.made[0]] > 1:
            out.append(instr)
            continue
        assert isinstance(instr, Compute)
        assert isinstance(found.work, Move)
        addend = next(v for v in instr.inputs if v is not found.made[0])
        out.remove(found)
        inputs = (*found.inputs[:2], addend)
        out.append(dataclasses.replace(instr, inputs=inputs, work=AddedProduct(found.work.form)))
    return out


def _is_short(instr: Compute) -> bool:
    """Whether an instruction is a product of two real matrices with few terms."""
    form = instr.work.form if isinstance(instr.work, Move) else None
    if not isinstance(form, Product) or len(instr.made) != 1 or len(instr.made[0].shape or ()) != 2:
        return False
    if instr.made[0].dtype.is_complex:
        return False
    terms = (instr.inputs[0].shape or (None,))[0 if form.turned[0] else -1]
    return not form.turned[1] and terms is not None and 0 < terms <= thresholds.PRODUCT_DEPTH


def _product_in(instr: Instr, products: dict[Value, Compute]) -> Compute | None:
    """The product that is one side of a sum, or None."""
    if not isinstance(instr, Compute) or not isinstance(instr.work, Map) or len(instr.inputs) != 2:
        return None
    expression, shape = instr.work.expression, instr.made[0].shape if instr.made else None
    if expression.ufunc is not np.add or expression.args != (Input(0), Input(1)) or not shape:
        return None
    for v, other in (instr.inputs, instr.inputs[::-1]):
        if v in products and v is not other and v.shape == shape and other.dtype == v.dtype:
            is_row = other.shape in ((shape[-1],), (1, shape[-1]))
            if other.representation == "array" and (is_row or (other.shape == shape and other.is_static)):
                return products[v]
    return None
