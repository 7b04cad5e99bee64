"""Division of windows into parts for several threads (`threads`), each of some images."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headrace import thresholds
from headrace.targets.native import threads
from headrace.targets.native.llvm_text import Function
from headrace.targets.native.windows.nest import Index, Nest


def each_image(nest: Nest, name: str, arrays: Mapping[str, int], batch: Index, cost: float) -> None:
    """Writes calls of `void @name(ptr..., i64 batch)` for a few images each.

    Args:
      nest: The writer of the function that calls; its arguments are those of `name`.
      name: The name of the function.
      arrays: For each address that the function takes, the bytes of an image there; 0: it is the same for all.
      batch: The number of images.
      cost: The estimated time of an image, in nanoseconds.
    """
    each = max(1, math.ceil(thresholds.NATIVE_PART / max(1.0, cost)))
    parts = nest.divided(nest.add(batch, each - 1), each)
    captured = [*(("ptr", f"%{array}") for array in arrays), ("i64", str(batch))]

    def body(g: Function, given: list[str], part: str) -> None:
        inner = nest.of(g)
        first = inner.mul(part, each)
        addresses = [inner.at(base, inner.mul(first, size)) for base, size in zip(given, arrays.values(), strict=False)]
        count = inner.least(each, inner.add(given[-1], inner.mul(first, -1)))
        g.line(f"call void @{name}({', '.join(f'ptr {address}' for address in addresses)}, i64 {count})")

    threads.each_part(nest.f, parts, captured, max(1, round(cost * each)), body)
