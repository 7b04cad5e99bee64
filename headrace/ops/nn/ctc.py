"""Connectionist temporal classification: the loss of label sequences without alignment (CTCLoss, CTCLossV2).

Source: TensorFlow's ops of the same names; Graves et al., "Connectionist Temporal Classification" (2006). Each step
predicts a class or a blank. The sequence of predictions, without repetitions and then without blanks, is the label
sequence. The probabilities of all prediction sequences for the labels are summed forward and backward over the labels
with blanks between them, for all sequences of a batch at once. It is computed in double precision.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace.dtypes import DType, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.resources.values import shape_of
from headrace.shapes import Shape, merge_dim, show, with_rank

Array: TypeAlias = np.ndarray

_ATTRS: Final = {
    "preprocess_collapse_repeated": False,
    "ctc_merge_repeated": True,
    "ignore_longer_outputs_than_inputs": False,
}


# *** Labels ***


def _rows_of_labels(indices: Array, values: Array, batch: int) -> list[list[int]]:
    """The labels of each sequence, from a sparse matrix of them."""
    if indices.ndim != 2 or indices.shape[1] != 2:
        raise InvalidArgumentError(f"labels_indices is not a matrix of two columns: its shape is {show(indices.shape)}")
    if values.ndim != 1 or len(values) != len(indices):
        raise InvalidArgumentError(
            "labels_indices and labels_values must contain the same number of rows, but saw shapes: "
            f"{show(indices.shape)} vs. {show(values.shape)}"
        )
    rows: list[list[int]] = [[] for _ in range(batch)]
    last = (-1, -1)
    for k, ((row, at), value) in enumerate(zip(indices.tolist(), values.tolist(), strict=True)):
        if not 0 <= row < batch or at < 0:
            raise InvalidArgumentError(
                f"label SparseTensor is not valid: indices[{k}] = [{row},{at}] is out of bounds: "
                f"there are {batch} sequences"
            )
        if (row, at) <= last:
            what = "repeated" if (row, at) == last else "out of order"
            raise InvalidArgumentError(f"label SparseTensor is not valid: indices[{k}] = [{row},{at}] is {what}")
        last = row, at
        rows[row].append(value)
    return rows


def _said(row: int, labels: list[int], classes: int, blank: int, collapse: bool) -> list[int]:
    """Labels of a row up to the first null label.

    Repetitions are merged if `collapse` is set. Later labels must be null too.
    """
    if not labels:
        raise InvalidArgumentError(f"Labels length is zero in batch {row}")
    if collapse:
        labels = [k for k, _ in itertools.groupby(labels)]
    lowest, beyond = (0, classes - 1) if blank else (1, classes)  # the blank is the last class, or the first
    found = [k for k in labels if k < beyond]
    if found != labels[: len(found)]:
        raise InvalidArgumentError(
            f"Saw a non-null label (index >= num_classes - 1) following a null label, batch: {row} "
            f"num_classes: {classes} labels: {labels}"
        )
    if min(found, default=lowest) < lowest:
        what = "nonnegative integers" if blank else "positive integers, for 0 is the blank"
        raise InvalidArgumentError(f"All labels must be {what}, batch: {row} labels: {labels}")
    return found


def _check_lengths(lengths: Any, steps: int, batch: int) -> None:
    if shape_of(lengths) != (batch,):
        raise InvalidArgumentError(
            f"len(sequence_length) != batch_size. sequence_length has the shape {show(shape_of(lengths))}, "
            f"batch_size: {batch}"
        )
    for k, n in enumerate(lengths.tolist()):
        if n < 0:
            raise InvalidArgumentError(f"seq_len({k}) < 0: {n}")
        if n > steps:
            raise InvalidArgumentError(f"sequence_length({k}) <= {steps}, the number of steps, got {n}")


# *** Sums over all ways ***


def _log_softmax(x: Array) -> Array:
    shifted = x - np.max(x, axis=-1, keepdims=True)
    out: Array = shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))
    return out


def _sum_of_logs(*terms: Array) -> Array:
    out = terms[0]
    for t in terms[1:]:
        out = np.logaddexp(out, t)
    return out


def _shifted(x: Array, by: int) -> Array:
    """Rows shifted `by` places to the right, with -inf in the free places.

    A negative `by` shifts to the left.
    """
    out = np.full_like(x, -np.inf)
    if by > 0:
        out[:, by:] = x[:, :-by]
    else:
        out[:, :by] = x[:, -by:]
    return out


class _Ways:
    """Labels of all sequences with blanks between them, and the transitions allowed.

    Args:
      said: the labels of each sequence.
      blank: the class that is the blank.
      merge: whether a class that is said twice in a row counts once.
    """

    def __init__(self, said: Sequence[Sequence[int]], blank: int, merge: bool) -> None:
        self.lengths = np.array([2 * len(s) + 1 for s in said])
        self.classes = np.full((len(said), self.lengths.max()), blank)
        for row, s in zip(self.classes, said, strict=True):
            row[1 : 2 * len(s) : 2] = s
        is_blank = self.classes == blank
        self._stay = np.where(is_blank | merge, 0.0, -np.inf)
        same = np.zeros(self.classes.shape, np.bool_)
        same[:, 2:] = self.classes[:, 2:] == self.classes[:, :-2]
        self._skip = np.where(is_blank | (same & merge), -np.inf, 0.0)  # from two places before

    def forward(self, before: Array) -> Array:
        """The sums of the ways to each place, a step later."""
        return _sum_of_logs(before + self._stay, _shifted(before, 1), _shifted(before, 2) + self._skip)

    def backward(self, after: Array) -> Array:
        """The sums of the ways from each place, a step earlier."""
        return _sum_of_logs(after + self._stay, _shifted(after, -1), _shifted(after + self._skip, -2))


def _loss_and_gradient(x: Array, ways: _Ways, lengths: Array, counted: Array) -> tuple[Array, Array]:
    """Negative log-likelihood of each counted sequence, and its gradient by `x`.

    Both are zero for sequences that are not counted.
    """
    steps, batch, _ = x.shape
    log_y = _log_softmax(x)
    rows = np.arange(batch)[:, np.newaxis]
    check_size((steps, *ways.classes.shape), float64)
    alpha = np.full((steps, *ways.classes.shape), -np.inf)
    for t in range(steps):
        here = log_y[t][rows, ways.classes]
        if t:
            alpha[t] = ways.forward(alpha[t - 1]) + here
        else:
            alpha[0, :, :2] = here[:, :2]
    ends = np.arange(ways.classes.shape[1]) >= ways.lengths[:, np.newaxis] - 2
    ends &= np.arange(ways.classes.shape[1]) < ways.lengths[:, np.newaxis]
    last = alpha[lengths - 1, np.arange(batch)]
    log_p = np.logaddexp.reduce(np.where(ends, last, -np.inf), axis=1)
    gradient = np.zeros(x.shape)
    beta = np.zeros(ways.classes.shape)
    possible = ~(log_p == -np.inf)
    for t in reversed(range(steps)):
        if t + 1 < steps:
            beta = ways.backward(beta + log_y[t + 1][rows, ways.classes])
        beta = np.where((lengths == t + 1)[:, np.newaxis], np.where(ends, 0.0, -np.inf), beta)
        share = np.exp(alpha[t] + beta - np.where(possible, log_p, 0.0)[:, np.newaxis])
        np.subtract.at(gradient[t], (rows, ways.classes), np.where(possible[:, np.newaxis], share, 0.0))
        gradient[t] += np.exp(log_y[t])
        gradient[t, ~(counted & (t < lengths))] = 0
    return np.where(counted, -log_p, 0.0), gradient


# *** Records ***


def _ctc(blank: int) -> Any:
    """The factory for a blank that is the first class (0) or the last (-1)."""

    def factory(attrs: Mapping[str, Any]) -> Callable[..., Any]:
        dtype = attrs.get("T", float32)
        collapse, merge = attrs["preprocess_collapse_repeated"], attrs["ctc_merge_repeated"]
        ignore = attrs["ignore_longer_outputs_than_inputs"]

        def kernel(x: Any, indices: Any, values: Any, lengths: Any) -> Any:
            if x.ndim != 3:
                raise InvalidArgumentError(f"inputs is not a 3-Tensor: its shape is {show(x.shape)}")
            steps, batch, classes = x.shape
            for what, n in (
                ("Max time or first dimension of input", steps),
                ("batch_size", batch),
                ("num_classes", classes),
            ):
                if not n:
                    raise InvalidArgumentError(f"{what} must not be 0, got inputs of the shape {show(x.shape)}")
            rows = _rows_of_labels(np.asarray(indices), np.asarray(values), batch)
            _check_lengths(lengths, steps, batch)
            said = [_said(k, labels, classes, blank, collapse) for k, labels in enumerate(rows)]
            needed = np.array([len(labels) for labels in rows])
            if not ignore and (needed > lengths).any():
                k = int(np.argmax(needed > lengths))
                raise InvalidArgumentError(
                    f"Not enough time for target transition sequence (required: {needed[k]}, available: {lengths[k]}) "
                    f"in batch {k}. You can turn this error into a warning by using the flag "
                    "ignore_longer_outputs_than_inputs"
                )
            ways = _Ways(said, classes - 1 if blank else 0, merge)
            counted = (lengths > 0) & (needed <= lengths)
            loss, gradient = _loss_and_gradient(x.astype(np.float64), ways, lengths.astype(np.int64), counted)
            return loss.astype(dtype.numpy), gradient.astype(dtype.numpy)

        return kernel

    return factory


def _shape(c: Inference) -> Sequence[Shape]:
    steps, batch, classes = with_rank(c.shapes[0], 3)
    with_rank(c.shapes[1], 2)
    with_rank(c.shapes[2], 1)
    (lengths,) = with_rank(c.shapes[3], 1)
    batch = merge_dim(batch, lengths)
    return [(batch,), (steps, batch, classes)]


def _grad(b: Any, n: Any, dloss: Any, _: Any) -> list[Any]:
    """Gradient rule: the second output is the gradient of the loss.

    PreventGradient rejects a second derivative, because the kernel computes the gradient together with the loss.
    """
    slope = b.PreventGradient(
        n.gradient, message=f"there is no second derivative of {n.op.type}: its gradient is computed beside the loss"
    )
    return [b.Mul(b.ExpandDims(dloss, -1), slope), None, None, None]


def _alignments(
    blank: int, x: np.ndarray, indices: np.ndarray, values: np.ndarray, lengths: np.ndarray, **attrs: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The definition: the sum over everything that can be said; its gradient by differences."""
    classes = x.shape[2]
    blank %= classes

    def loss(x: np.ndarray, k: int) -> float:
        labels = [int(v) for (row, _), v in zip(indices, values, strict=True) if row == k]
        if attrs.get("preprocess_collapse_repeated"):
            labels = [v for v, _ in itertools.groupby(labels)]
        n, total = int(lengths[k]), 0.0
        y = [[math.exp(v) / math.fsum(map(math.exp, row)) for v in row] for row in x[:n, k].tolist()]
        for way in itertools.product(range(classes), repeat=n):
            said = [v for v, _ in itertools.groupby(way)] if attrs.get("ctc_merge_repeated", True) else list(way)
            if [v for v in said if v != blank] == labels:
                total += math.prod(y[t][c] for t, c in enumerate(way))
        return -math.log(total) if total else math.inf

    wide = x.astype(np.float64)
    losses = np.array([loss(wide, k) for k in range(x.shape[1])])
    gradient = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        up, down = wide.copy(), wide.copy()
        up[at] += 1e-5
        down[at] -= 1e-5
        gradient[at] = (loss(up, at[1]) - loss(down, at[1])) / 2e-5
    return losses.astype(x.dtype), gradient.astype(x.dtype)


def _cases(low: int) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        if dtype is float64:  # gradients would be compared with those of both outputs
            return []
        x = rng.uniform(-2, 2, (4, 2, 3)).astype(np.float32)
        indices = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.int64)
        labels, lengths = np.array([0, 1, 1, 1], np.int32) + np.int32(low), np.array([3, 4], np.int32)
        return [
            case(x, indices, labels, lengths, **attrs)
            for attrs in ({}, {"ctc_merge_repeated": False}, {"preprocess_collapse_repeated": True})
        ]

    return sample


_NOTHING_SAID: Final = "for labels that are all blank the loss is that of the empty sequence; TensorFlow's differs"
_LABELS = "labels_indices: int64, labels_values: int32, sequence_length: int32"
for _type, _blank, _element, _types, _differs, _doc in (
    ("CTCLoss", -1, "T", {"T": type_attr({float32, float64}, float32)}, _NOTHING_SAID, "the last class is the blank."),
    ("CTCLossV2", 0, "float32", {}, "TensorFlow has a kernel for GPUs only", "the first class is the blank."),
):
    op(
        _type,
        f"inputs: {_element}, {_LABELS}",
        f"loss: {_element}, gradient: {_element}",
        {**_ATTRS, **_types},
        shape=_shape,
        kernel=_ctc(_blank),
        xp=False,  # labels are lists of Python
        grad=_grad,
        facts=Facts(cost=flops_per_input(100)),
        oracle=functools.partial(_alignments, _blank),
        sample=_cases(0 if _blank else 1),
        differs=_differs,
        doc=f"-log of the probability of each sequence of labels, and its gradient by the inputs; {_doc}",
    )
