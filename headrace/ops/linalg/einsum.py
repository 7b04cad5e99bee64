"""Einsum: sums of products of one or two arrays, by an equation (`"ij,jk->ik"`).

The equation names the dimensions.

Source: TensorFlow's op of the same name. As there, the equation has an arrow and at most two inputs, any character is a
label, a label may be repeated (in the output too: the result is then on the diagonal), and `...` stands for dimensions
that broadcast. Other dimensions of the same label must be equal.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes, thresholds
from headrace.dtypes import INDEX, INEXACT, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, int_attr, op, string_attr
from headrace.opkit.batch_products import einsum
from headrace.opkit.elementwise import conj, widened
from headrace.opkit.jvp_rules import multilinear
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, broadcast, merge_dim, show

_DOTS = "..."


def _labels(text: str) -> list[str]:
    """The labels of one subscript, with `...` as one of them."""
    before, dots, after = text.partition(_DOTS)
    if _DOTS in after:
        raise ValueError(f"Only one ellipsis is allowed in a subscript, got {text!r}")
    return [*before, *([dots] if dots else []), *after]


def _parse(equation: str) -> tuple[list[list[str]], list[str]]:
    """The labels of each input and of the output.

    Raises:
      ValueError: the equation is none.
    """
    if equation.count("->") != 1:
        raise ValueError(f"Expecting exactly one '->' in einsum equation: {equation}")
    left, right = equation.split("->")
    ins, out = [_labels(s) for s in left.split(",")], _labels(right)
    if len(ins) > 2:
        raise ValueError(f"Expecting 1 or 2 input subscripts in equation '{equation}' but got: {len(ins)}")
    unknown = set(out) - {_DOTS}.union(*ins)
    if unknown:
        raise ValueError(f"The output labels {sorted(unknown)} are in no input of '{equation}'")
    return ins, out


def _dims(ins: list[list[str]], out: list[str], found: Sequence[Shape]) -> dict[str, Any]:
    """Dimension of each label; for `...` the broadcast shape of the inputs.

    Raises:
      ValueError: ranks or dimensions do not fit the equation.
    """
    if len(found) != len(ins):
        raise ValueError(f"Expected {len(ins)} inputs but got: {len(found)}")
    dims: dict[str, Any] = {_DOTS: ()}
    for i, (labels, shape) in enumerate(zip(ins, found, strict=True)):
        if shape is None:
            dims[_DOTS] = None if _DOTS in labels else dims[_DOTS]
            dims |= {k: None for k in labels if k not in dims}
            continue
        named = len(labels) - (_DOTS in labels)
        if len(shape) < named or (len(shape) != named and _DOTS not in labels):
            raise ValueError(f"Expected input {i} to have rank {named} but got: {len(shape)}")
        at = 0
        for k in labels:
            if k == _DOTS:
                n = len(shape) - named
                dims[k] = broadcast(dims[k], shape[at : at + n])
                at += n
                continue
            try:
                dims[k] = merge_dim(dims.get(k), shape[at])
            except ValueError:
                raise ValueError(
                    f"Expected dimension {dims[k]} at axis {at} of the input shaped {show(shape)} "
                    f"but got dimension {shape[at]}"
                ) from None
            at += 1
    if dims[_DOTS] and _DOTS not in out:
        raise ValueError(
            f"Output contains {len(dims[_DOTS])} broadcasting dimension(s) but no ellipsis (...) was found in the "
            "output subscripts."
        )
    return dims


def _shape(c: Inference) -> Sequence[Shape]:
    ins, out = _parse(c.attrs["equation"])
    dims = _dims(ins, out, c.shapes)
    found: Shape = ()
    for k in out:
        found = shapes.concatenate(found, dims[k] if k == _DOTS else (dims[k],))
    return [found]


def _cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    """Cost in operations, by the formula of a matrix product.

    It is exact unless a label is in all three arrays; then it is too low.
    """
    sizes = [shapes.size(s) for s in (*ins, *outs)]
    if len(sizes) < 3:
        return sizes[0]
    return None if None in sizes else 2.0 * math.sqrt(math.prod(sizes))  # type: ignore[arg-type]


def _kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    try:
        ins, out = _parse(attrs["equation"])
    except ValueError as e:
        error = str(e)

        def refuse(*arrays: Any) -> Any:
            raise InvalidArgumentError(error)

        return refuse
    numbers = {k: i for i, k in enumerate(dict.fromkeys(k for labels in ins for k in labels))}

    def numbered(labels: Sequence[str]) -> list[Any]:
        return [Ellipsis if k == _DOTS else numbers[k] for k in labels]

    subscripts = [numbered(s) for s in ins]
    unique = list(dict.fromkeys(out))
    result = numbered(unique)

    def multiply(*arrays: Any) -> Any:
        operands = [x for pair in zip(arrays, subscripts, strict=True) for x in pair]
        return np.einsum(
            *operands, result, optimize=len(arrays) > 1 and arrays[0].size > thresholds.EINSUM_SEARCH_ELEMENTS
        )

    product = widened(multiply, t)
    if xp is not np:
        return _portable(xp, ins, out, t)

    def kernel(*arrays: Any) -> Any:
        dims = _dims(ins, out, [x.shape for x in arrays])
        found = product(*arrays)
        if len(unique) == len(out):
            return found
        shape: tuple[int, ...] = ()
        for k in out:
            shape += dims[k] if k == _DOTS else (dims[k],)
        whole = np.zeros(shape, t.numpy)
        np.einsum(whole, numbered(out), result)[...] = found  # a view of the diagonal
        return whole

    return kernel


def _portable(xp: Any, ins: list[list[str]], out: list[str], t: DType) -> Any:
    """The kernel by functions of the standard.

    A product of two inputs is a stack of products of matrices.
    """

    def diagonal(x: Any, labels: list[str]) -> tuple[Any, list[str]]:
        """The input without repeated labels."""
        for k in dict.fromkeys(labels):
            while labels.count(k) > 1:
                first = labels.index(k)
                second = labels.index(k, first + 1)
                x = xp.linalg.diagonal(xp.moveaxis(x, (first, second), (-2, -1)))
                labels = [*(m for i, m in enumerate(labels) if i not in (first, second)), k]
        return x, labels

    def summed(x: Any, labels: list[str], elsewhere: set[str]) -> tuple[Any, list[str]]:
        """The input summed over the labels that are nowhere else."""
        axes = tuple(i for i, k in enumerate(labels) if k not in elsewhere)
        x = xp.sum(x, axis=axes, dtype=x.dtype) if axes else x
        return x, [k for k in labels if k in elsewhere]

    def ordered(x: Any, labels: list[str], wanted: list[str]) -> Any:
        return xp.permute_dims(x, tuple(labels.index(k) for k in wanted))

    def multiply(x: Any, a: list[str], y: Any, b: list[str], kept: set[str]) -> tuple[Any, list[str]]:
        both = [k for k in a if k in b]
        batch, inner = [k for k in both if k in kept], [k for k in both if k not in kept]
        rows, columns = [k for k in a if k not in b], [k for k in b if k not in a]
        x, y = ordered(x, a, batch + rows + inner), ordered(y, b, batch + inner + columns)
        n, m = len(batch), len(batch) + len(inner)
        shape = (*x.shape[: n + len(rows)], *y.shape[m:])
        sizes = math.prod(x.shape[:n]), math.prod(x.shape[n : n + len(rows)]), math.prod(y.shape[n:m])
        found = xp.reshape(x, sizes) @ xp.reshape(y, (sizes[0], sizes[2], math.prod(y.shape[m:])))
        return xp.reshape(found, shape), batch + rows + columns

    def compute(*arrays: Any) -> Any:
        found = []
        dims = _dims(ins, out, [x.shape for x in arrays])
        free = [f"{_DOTS}{i}" for i in range(len(dims[_DOTS]))]
        sides = [_spelled(s, free, x.ndim) for s, x in zip(ins, arrays, strict=True)]
        result = _spelled(out, free, len(out) - 1 + len(free))
        sizes = dims | dict(zip(free, dims[_DOTS], strict=True))
        for i, (x, labels) in enumerate(zip(arrays, sides, strict=True)):
            x = xp.broadcast_to(x, tuple(sizes[k] for k in labels))
            found.append(summed(*diagonal(x, labels), {*result}.union(*sides[:i], *sides[i + 1 :])))
        y, labels = found[0] if len(found) == 1 else multiply(*found[0], *found[1], {*result})
        unique = list(dict.fromkeys(result))
        y = ordered(y, labels, unique)
        for axis, k in enumerate(result):
            if axis != (first := result.index(k)):  # the result is on the diagonal
                y = xp.expand_dims(y, axis=axis)
                spread = [[-1 if i == at else 1 for i in range(y.ndim)] for at in (first, axis)]
                number = xp.arange(sizes[k], dtype=xp.int64, device=y.device)
                is_same = xp.reshape(number, tuple(spread[0])) == xp.reshape(number, tuple(spread[1]))
                y = xp.where(is_same, y, xp.zeros((), dtype=y.dtype, device=y.device))
        return y

    return widened(compute, t, xp)


# *** Gradient ***


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule: for each input the product of `dy` and the other input.

    The product is summed over the labels that the input lacks.
    """
    ins, out = _parse(n.attrs["equation"])
    tensors = [n.inputs[i] for i in range(len(ins))]
    free = [chr(i) for i in range(0x100, 0x200)]  # labels for the dimensions of `...`; no program names them
    dots = any(_DOTS in s for s in ins)
    if dots:
        found = [t.shape for t in tensors]
        if None in found:
            raise LookupError(f"the gradient of Einsum ({n.op.name}) with `...` needs inputs of known rank")
        rank = max(len(s) - len(labels) + 1 for s, labels in zip(found, ins, strict=True) if _DOTS in labels)
        free = free[:rank]
        ins = [_spelled(s, free, len(shape)) for s, shape in zip(ins, found, strict=True)]
        out = _spelled(out, free, len(out) - 1 + rank)

    def by(i: int) -> Any:
        other = None
        if len(ins) > 1:
            t, labels = tensors[1 - i], ins[1 - i]
            other = (_stretched(b, t, labels, dy, out, free) if dots else t), labels
        return _grad_by(b, n.inputs[i], ins[i], other, dy, out)

    return [functools.partial(by, i) for i in range(len(ins))]


def _spelled(labels: list[str], free: list[str], rank: int) -> list[str]:
    """Labels with `...` replaced by the last of `free`, for an array of this rank."""
    if _DOTS not in labels:
        return labels
    at, n = labels.index(_DOTS), rank - len(labels) + 1
    return labels[:at] + free[len(free) - n :] + labels[at + 1 :]


def _stretched(b: Any, x: Any, labels: list[str], dy: Any, out: list[str], free: list[str]) -> Any:
    """`x` broadcast along the dimensions of its `...` to those of the output."""
    axes = [i for i, k in enumerate(labels) if k in free]
    if all(x.shape[i] == dy.shape[out.index(labels[i])] is not None for i in axes if dy.shape is not None):
        return x
    known = b.ConcatV2([b.Shape(x), b.Shape(dy)], 0)
    where = [len(labels) + out.index(k) if k in free else i for i, k in enumerate(labels)]
    return b.BroadcastTo(x, b.GatherV2(known, where, 0))


def _grad_by(b: Any, x: Any, labels: list[str], other: tuple[Any, list[str]] | None, dy: Any, out: list[str]) -> Any:
    elsewhere = {*out, *(other[1] if other else ())}
    there = [k for k in dict.fromkeys(labels) if k in elsewhere]
    summed = [k for k in dict.fromkeys(labels) if k not in elsewhere]  # dy is the same along these
    target = there if summed else labels
    if other is None:
        g = b.Einsum([dy], equation=f"{_join(out)}->{_join(target)}")
    else:
        g = b.Einsum([dy, conj(b, other[0])], equation=f"{_join(out)},{_join(other[1])}->{_join(target)}")
    if summed:
        sizes = b.GatherV2(b.Shape(x), [labels.index(k) for k in summed], 0)
        ones = b.Fill(sizes, b.const(1, x.dtype.base))
        g = b.Einsum([g, ones], equation=f"{_join(there)},{_join(summed)}->{_join(labels)}")
    if g.shape is not None and g.shape == x.shape and shapes.is_full(x.shape):
        return g
    axes = b.BroadcastGradientArgs(b.Shape(x), b.Shape(g))[0]
    return b.Reshape(b.Sum(g, axes, keep_dims=False), b.Shape(x))


def _join(labels: Sequence[str]) -> str:
    return "".join(labels)


# *** Tests ***


def _oracle(arrays: Sequence[np.ndarray], equation: str) -> np.ndarray:
    """A loop over all values of all labels."""
    ins, out = _parse(equation)
    rank = max((x.ndim - len(s) + 1 for x, s in zip(arrays, ins, strict=True) if _DOTS in s), default=0)
    free = [f"dots{i}" for i in range(rank)]
    ins = [_spelled(s, free, x.ndim) for x, s in zip(arrays, ins, strict=True)]
    out = _spelled(out, free, len(out) - 1 + rank)
    dims: dict[str, int] = {}
    for x, s in zip(arrays, ins, strict=True):
        for k, d in zip(s, x.shape, strict=True):
            dims[k] = max(d, dims.get(k, 0)) if dims.get(k) != 0 else 0
    kind = arrays[0].dtype.kind
    found = np.zeros([dims[k] for k in out], complex if kind == "c" else np.int64 if kind in "iu" else float)
    for values in np.ndindex(*dims.values()):
        at = dict(zip(dims, values, strict=True))
        term: Any = 1
        for x, s in zip(arrays, ins, strict=True):
            term = term * x[tuple(at[k] if d > 1 else 0 for k, d in zip(s, x.shape, strict=True))].astype(found.dtype)
        found[tuple(at[k] for k in out)] += term
    return found.astype(arrays[0].dtype)


_EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((2, 3), (3, 2))),
    ("bij,bjk->bki", ((2, 2, 3), (2, 3, 2))),
    ("ij->ji", ((2, 3),)),
    ("ij->", ((2, 3),)),
    ("ii->i", ((2, 2),)),
    ("i->ii", ((3,),)),
    ("ij,ij->i", ((2, 3), (2, 3))),
    ("i,j->ij", ((2,), (3,))),
    ("ij,k->j", ((2, 3), (2,))),
    ("...ij,...jk->...ik", ((2, 2, 3), (3, 2))),
    ("...i,j...->ij...", ((2, 1, 2), (2, 3))),
    ("ij,jk->ik", ((2, 0), (0, 3))),
)


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case([draw(rng, dtype, s) for s in found], equation=e) for e, found in _EQUATIONS]


op(
    "Einsum",
    "inputs: N * T",
    "output: T",
    {"equation": string_attr(), "N": int_attr(minimum=1), "T": INEXACT | INDEX},
    shape=_shape,
    kernel=_kernel,
    xp=True,
    grad=_grad,
    jvp=multilinear("inputs"),
    batch=einsum,
    facts=Facts(cost=_cost, blas=True),
    oracle=_oracle,
    sample=_samples,
    doc="Sums of products over the labels that the output lacks.",
)
