"""Matrix products: MatMul, BatchMatMul and its later versions, Einsum.

Products of integers are not here: PyTorch has them on the CPU alone.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from headrace.devices.torch.registering import (
    INEXACT,
    INTEGERS,
    Factory,
    Kernel,
    Tensor,
    Unsuited,
    for_torch,
    type_of,
)
from headrace.memo import cached

_DOTS = "..."


@for_torch("MatMul", {"T": INEXACT})
def _matmul(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    turn_a, turn_b = attrs["transpose_a"], attrs["transpose_b"]

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        if a.ndim != 2 or b.ndim != 2:
            raise Unsuited
        return torch.mm(a.t() if turn_a else a, b.t() if turn_b else b)

    return kernel


def _batch(broadcasts: bool) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        adj_x, adj_y = attrs["adj_x"], attrs["adj_y"]
        to = type_of(attrs["Tout"]) if "Tout" in attrs else None

        def kernel(x: Tensor, y: Tensor) -> Tensor:
            if x.ndim < 2 or y.ndim < 2 or (not broadcasts and x.shape[:-2] != y.shape[:-2]):
                raise Unsuited
            if to is not None:
                x, y = x.to(to), y.to(to)
            return torch.matmul(x.mH if adj_x else x, y.mH if adj_y else y)

        return kernel

    return factory


for_torch("BatchMatMul", {"T": INEXACT})(_batch(broadcasts=False))
for_torch("BatchMatMulV2", {"T": INEXACT})(_batch(broadcasts=True))
_NARROW = INEXACT | INTEGERS
for_torch("BatchMatMulV3", {"Ta": _NARROW, "Tb": _NARROW, "Tout": INEXACT})(_batch(broadcasts=True))


# *** Einsum ***


def _labels(text: str) -> tuple[str, ...]:
    before, dots, after = text.partition(_DOTS)
    return (*before, *([dots] if dots else []), *after)


@cached(1024, "equations of PyTorch")
def _is_suited(equation: str, *shapes: tuple[int, ...]) -> bool:
    """Whether dimensions of one label are equal, and those of `...` in the output.

    PyTorch broadcasts the former and sums over the latter.
    """
    left, _, right = equation.partition("->")
    sizes: dict[str, int] = {}
    ins = [_labels(s) for s in left.split(",")]
    if len(ins) != len(shapes):
        return False
    for labels, shape in zip(ins, shapes, strict=True):
        more = len(shape) - (len(labels) - (_DOTS in labels))
        if more < 0 or (more and (_DOTS not in labels or _DOTS not in right)):
            return False
        at = 0
        for k in labels:
            if k == _DOTS:
                at += more
            elif sizes.setdefault(k, shape[at]) != shape[at]:
                return False
            else:
                at += 1
    return True


@for_torch("Einsum", {"T": INEXACT})
def _einsum(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    equation = attrs["equation"]
    left, arrow, right = equation.partition("->")
    ins, out = [_labels(s) for s in left.split(",")], _labels(right)
    numbers = {k: i for i, k in enumerate(dict.fromkeys(k for s in ins for k in s if k != _DOTS))}
    # A label may be any character; PyTorch has 52. It has no diagonal of the output.
    known = numbers.keys() | {_DOTS}
    if not arrow or "->" in right or len(numbers) > 52 or not known >= set(out) or len(set(out)) < len(out):
        return _refused

    def numbered(labels: tuple[str, ...]) -> list[Any]:
        return [... if k == _DOTS else numbers[k] for k in labels]

    places, result = [numbered(s) for s in ins], numbered(out)

    def kernel(*tensors: Tensor) -> Tensor:
        if not _is_suited(equation, *(tuple(x.shape) for x in tensors)):
            raise Unsuited
        operands = [a for pair in zip(tensors, places, strict=True) for a in pair]
        return torch.einsum(*operands, result)

    return kernel


def _refused(*tensors: Any) -> Any:
    raise Unsuited
