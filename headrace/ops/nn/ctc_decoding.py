"""Decoding of predictions for connectionist temporal classification: CTCGreedyDecoder and CTCBeamSearchDecoder.

Source: TensorFlow's ops of the same names; Graves, "Supervised Sequence Labelling with Recurrent Neural Networks"
(2012) for the beam search, which keeps the most probable label sequences at each step.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.dtypes import DType, float32, float64
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, int_attr, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.resources.values import shape_of
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank

Array: TypeAlias = np.ndarray

_TYPES = type_attr({float32, float64}, float32)


def _check(x: Any, lengths: Any) -> None:
    if x.ndim != 3:
        raise InvalidArgumentError(f"inputs is not a 3-Tensor: its shape is {show(x.shape)}")
    if not x.size:
        raise InvalidArgumentError(f"inputs must not be empty: its shape is {show(x.shape)}")
    steps, batch, _ = x.shape
    if len(shape_of(lengths)) != 1:
        raise InvalidArgumentError(f"sequence_length is not a vector: its shape is {show(shape_of(lengths))}")
    if len(lengths) != batch:
        raise FailedPreconditionError(
            f"len(sequence_length) != batch_size. len(sequence_length): {len(lengths)} batch_size: {batch}"
        )
    if (lengths > steps).any():
        k = int(np.argmax(lengths > steps))
        raise FailedPreconditionError(f"sequence_length({k}) <= {steps}, the number of steps, got {lengths[k]}")


def _sparse(rows: Sequence[Sequence[int]]) -> tuple[Array, Array, Array]:
    """Rows of labels as indices, values and shape of a sparse matrix."""
    indices = [(k, at) for k, row in enumerate(rows) for at in range(len(row))]
    values = list(itertools.chain.from_iterable(rows))
    dims = (len(rows), max(map(len, rows), default=0))
    return np.array(indices, np.int64).reshape(-1, 2), np.array(values, np.int64), np.array(dims, np.int64)


# *** The likeliest class of each step ***


def _greedy(attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    t, merge, blank_index = attrs["T"], attrs["merge_repeated"], attrs["blank_index"]

    def kernel(x: Any, lengths: Any) -> Any:
        _check(x, lengths)
        classes = x.shape[2]
        if not -classes <= blank_index < classes:
            raise InvalidArgumentError(
                f"blank_index expected to be between {-classes} and {classes - 1} but was {blank_index}"
            )
        wide = np.where(np.isnan(x), -np.inf, x)
        # of NaN the first class counts as the greatest only where it is NaN itself
        best = np.where(np.isnan(x[:, :, 0]), 0, np.argmax(wide, axis=2))
        best_x = np.take_along_axis(x, best[:, :, np.newaxis], axis=2)[:, :, 0]
        inside = np.arange(len(x))[:, np.newaxis] < lengths
        kept = inside & (best != blank_index % classes)
        if merge:
            kept[1:] &= best[1:] != best[:-1]
        rows = [best[kept[:, k], k].tolist() for k in range(x.shape[1])]
        log_p = -np.sum(np.where(inside, best_x, 0), axis=0, dtype=t.numpy)
        return *_sparse(rows), log_p[:, np.newaxis]

    return kernel


def _batch(c: Inference) -> Dim:
    _, batch, _ = with_rank(c.shapes[0], 3)
    (lengths,) = with_rank(c.shapes[1], 1)
    return merge_dim(batch, lengths)


def _greedy_oracle(x: np.ndarray, lengths: np.ndarray, **attrs: Any) -> tuple[np.ndarray, ...]:
    blank = attrs.get("blank_index", -1) % x.shape[2]
    rows, sums = [], []
    for k, n in enumerate(lengths.tolist()):
        way = [row.index(max(row)) for row in x[:n, k].tolist()]
        said = [c for c, _ in itertools.groupby(way)] if attrs.get("merge_repeated") else way
        rows.append([c for c in said if c != blank])
        sums.append([-math.fsum(float(x[t, k, c]) for t, c in enumerate(way))])
    return *_sparse(rows), np.array(sums, x.dtype)


def _greedy_cases(rng: np.random.Generator, t: DType) -> list[Any]:
    x, lengths = rng.uniform(-2, 2, (6, 2, 3)).astype(t.numpy), np.array([6, 4], np.int32)
    return [case(x, lengths), case(x, lengths, merge_repeated=True, blank_index=0)]


op(
    "CTCGreedyDecoder",
    "inputs: T, sequence_length: int32",
    "decoded_indices: int64, decoded_values: int64, decoded_shape: int64, log_probability: T",
    {"merge_repeated": False, "blank_index": -1, "T": _TYPES},
    shape=lambda c: [(None, 2), (None,), (2,), (_batch(c), 1)],
    kernel=_greedy,
    xp=False,  # the classes are lists of Python
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(4), dynamic_shape=True),
    oracle=_greedy_oracle,
    sample=_greedy_cases,
    doc="The likeliest class of each step, without blanks (and repetitions), and the sum of their negated inputs.",
)


# *** The likeliest label sequences ***


def _add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    if a < b:
        a, b = b, a
    return a if b == -math.inf else a + math.log1p(math.exp(b - a))


class _Beam:
    """A label sequence: one label more than its parent.

    Attributes:
      parent, label: the sequence before the last label, and that label; None and -1 for the empty sequence.
      blank, said: log of the probability of the sequence after this step, ending in a blank or its label.
      total: log of the sum of both probabilities; -inf if the sequence is not kept.
      old_blank, old_total: the same of the step before.
      children: the sequences that extend it by one label.
    """

    __slots__ = ("blank", "children", "label", "old_blank", "old_total", "parent", "said", "total")

    def __init__(self, parent: _Beam | None, label: int) -> None:
        self.parent, self.label = parent, label
        self.children: dict[int, _Beam] = {}
        self.blank = self.said = self.total = self.old_blank = self.old_total = -math.inf

    def drop(self) -> None:
        """Keeps it no longer."""
        self.blank = self.said = self.total = -math.inf

    def labels(self) -> list[int]:
        """The sequence."""
        out, at = [], self
        while at.parent is not None:
            out.append(at.label)
            at = at.parent
        return out[::-1]


class _Search:
    """The search in one sequence.

    Args:
      width: how many label sequences are kept.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        root = _Beam(None, -1)
        root.blank = root.total = 0.0
        self.kept = [root]  # the likeliest first

    def _keep(self, beam: _Beam) -> None:
        """Inserts a sequence into the kept ones, and drops the last above the beam width.

        The order is by descending probability; equal ones keep the order of insertion.
        """
        bisect.insort_right(self.kept, beam, key=lambda k: -k.total)
        if len(self.kept) > self._width:
            self.kept.pop().drop()

    def step(self, log_y: Array) -> None:
        """Advances by one step, given the log probabilities of the classes.

        The last class is the blank.
        """
        before, self.kept = self.kept, []
        y = log_y.tolist()
        for k in before:
            k.old_blank, k.old_total = k.blank, k.total
        for k in before:
            if k.parent is not None:
                if k.parent.total > -math.inf:
                    previous = k.parent.old_blank if k.label == k.parent.label else k.parent.old_total
                    k.said = _add(k.said, previous)
                k.said += y[k.label]
            k.blank = k.old_total + y[-1]
            k.total = _add(k.blank, k.said)
        for k in before:
            bisect.insort_right(self.kept, k, key=lambda k: -k.total)
        for k in before:
            if self._is_candidate(k.old_total):
                self._grow(k, log_y)

    def _is_candidate(self, total: float) -> bool:
        return total > -math.inf and (len(self.kept) < self._width or total > self.kept[-1].total)

    def _grow(self, k: _Beam, log_y: Array) -> None:
        """Extends a sequence by one label, for labels that are likely enough to be kept."""
        totals = log_y[:-1] + k.old_total
        if 0 <= k.label < len(totals):
            totals[k.label] = log_y[k.label] + k.old_blank
        least = self.kept[-1].total if len(self.kept) == self._width else -math.inf
        for label in sorted({*np.flatnonzero(totals > least).tolist(), *k.children}):
            child, total = k.children.get(label), float(totals[label])
            if child is not None and child.total > -math.inf:
                continue
            if self._is_candidate(total):
                if child is None:
                    child = k.children[label] = _Beam(k, label)
                child.blank, child.said, child.total = -math.inf, total, total
                self._keep(child)
            elif child is not None:  # nor does it grow in this step, if it was kept until now
                child.old_blank = child.old_total = -math.inf


def _beam_search(attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    t, width, top, merge = attrs["T"], attrs["beam_width"], attrs["top_paths"], attrs["merge_repeated"]

    def kernel(x: Any, lengths: Any) -> Any:
        _check(x, lengths)
        if top > width:
            raise InvalidArgumentError(f"requested more paths than the beam width. {top} > {width}")
        check_size(x.shape, float64)
        wide = x.astype(np.float64)
        shifted = wide - np.max(wide, axis=2, keepdims=True)
        log_y = shifted - np.log(np.sum(np.exp(shifted), axis=2, keepdims=True))
        paths: list[list[list[int]]] = [[] for _ in range(top)]
        log_p = np.empty((x.shape[1], top), t.numpy)
        for k, n in enumerate(lengths.tolist()):
            search = _Search(width)
            for row in log_y[: max(n, 0), k]:
                search.step(row)
            if len(search.kept) < top:
                raise InvalidArgumentError(
                    f"Less leaves in the beam search than requested. Have {len(search.kept)}, need {top}"
                )
            for to, beam in zip(paths, search.kept[:top], strict=True):
                found = beam.labels()
                to.append([c for c, _ in itertools.groupby(found)] if merge else found)
            log_p[k] = [beam.total for beam in search.kept[:top]]
        columns = zip(*map(_sparse, paths), strict=True)
        return *itertools.chain.from_iterable(columns), log_p

    return kernel


def _beam_shape(c: Inference) -> Sequence[Shape]:
    top = c.attrs["top_paths"]
    return [*[(None, 2)] * top, *[(None,)] * top, *[(2,)] * top, (_batch(c), top)]


def _beam_oracle(x: np.ndarray, lengths: np.ndarray, **attrs: Any) -> tuple[np.ndarray, ...]:
    """All that can be said, for a beam so wide that nothing is lost."""
    top = attrs["top_paths"]
    paths: list[list[list[int]]] = [[] for _ in range(top)]
    log_p = np.zeros((x.shape[1], top), x.dtype)
    blank = x.shape[2] - 1
    for k, n in enumerate(lengths.tolist()):
        y = [[math.exp(v) / math.fsum(map(math.exp, row)) for v in row] for row in x[:n, k].astype(np.float64).tolist()]
        found: dict[tuple[int, ...], float] = {}
        for way in itertools.product(range(x.shape[2]), repeat=n):
            said = tuple(c for c, _ in itertools.groupby(way) if c != blank)
            found[said] = found.get(said, 0.0) + math.prod(y[t][c] for t, c in enumerate(way))
        best = sorted(found.items(), key=lambda pair: -pair[1])[:top]
        for j, (said, p) in enumerate(best):
            paths[j].append(
                [c for c, _ in itertools.groupby(said)] if attrs.get("merge_repeated", True) else list(said)
            )
            log_p[k, j] = math.log(p)
    columns = zip(*map(_sparse, paths), strict=True)
    return *itertools.chain.from_iterable(columns), log_p


def _beam_cases(rng: np.random.Generator, t: DType) -> list[Any]:
    x, lengths = rng.uniform(-2, 2, (4, 2, 3)).astype(t.numpy), np.array([4, 3], np.int32)
    return [case(x, lengths, beam_width=100, top_paths=3, merge_repeated=m) for m in (False, True)]


_PATHS = "decoded_indices: top_paths * int64, decoded_values: top_paths * int64, decoded_shape: top_paths * int64"
op(
    "CTCBeamSearchDecoder",
    "inputs: T, sequence_length: int32",
    f"{_PATHS}, log_probability: T",
    {
        "beam_width": int_attr(minimum=1),
        "top_paths": int_attr(minimum=1),
        "merge_repeated": True,
        "T": _TYPES,
    },
    shape=_beam_shape,
    kernel=_beam_search,
    xp=False,  # the beams are objects of Python
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(500), dynamic_shape=True),
    oracle=_beam_oracle,
    sample=_beam_cases,
    doc="The likeliest label sequences, found among the `beam_width` likeliest of each step, and log probabilities.",
)
