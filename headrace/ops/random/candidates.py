"""Candidate sampling: a few of many classes, for losses that do not use all classes.

Source: TensorFlow's UniformCandidateSampler, LogUniformCandidateSampler, LearnedUnigramCandidateSampler,
ThreadUnsafeUnigramCandidateSampler, FixedUnigramCandidateSampler, AllCandidateSampler and ComputeAccidentalHits. Each
sampler returns the candidates, and the expected counts of true classes and candidates among them. The fixed unigrams
are drawn by Vose's alias method ("A Linear Algorithm for Generating Random Numbers with a Given Distribution", 1991).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, thresholds
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.files import system
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, bool_attr, case, int_attr, list_attr, op
from headrace.opkit import arrays
from headrace.ops.random.drawing import SEEDED, SEEDS, state_of
from headrace.resources.philox import Stream
from headrace.resources.values import shape_of
from headrace.shapes import Shape, show, with_rank

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_RESERVED: Final = 2048 // 4  # blocks for each candidate


class _Words:
    """The words of a stream one by one, and numbers made of them."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ready: list[int] = []

    def word(self) -> int:
        if not self._ready:
            self._ready = self._stream.words(thresholds.CANDIDATE_WORDS)[::-1].tolist()
            self._stream = self._stream.skip(thresholds.CANDIDATE_WORDS // 4)
        return self._ready.pop()

    def below(self, n: int, bits: int) -> int:
        """Draws an integer in [0, n) uniformly.

        Words that would make some integers more likely are rejected.
        """
        rest = (1 << bits) % n if n & (n - 1) else 0
        while True:
            found = self.word() if bits == 32 else self.word() | self.word() << 32
            if found >= rest:
                return found % n

    def single(self) -> float:
        """A number in [0, 1) of single precision."""
        return (self.word() & 0x7FFFFF) / (1 << 23)

    def double(self) -> float:
        """A number in [0, 1) of double precision."""
        high = self.word() & 0xFFFFF
        return (high << 32 | self.word()) / (1 << 52)


# *** Distributions over the classes ***


class _Uniform:
    def __init__(self, n: int, attrs: Mapping[str, Any]) -> None:
        self._n = n

    def draw(self, words: _Words) -> int:
        return words.below(self._n, 64)

    def probability(self, value: int) -> float:
        return 1 / self._n

    def saw(self, classes: Sequence[int]) -> None:
        """Takes notice of true classes."""


class _LogUniform(_Uniform):
    """The smaller a class, the likelier: as words by rank of frequency."""

    def draw(self, words: _Words) -> int:
        return (int(math.exp(words.double() * math.log1p(self._n))) - 1) % self._n

    def probability(self, value: int) -> float:
        return math.log((value + 2) / (value + 1)) / math.log1p(self._n)


class _Learned(_Uniform):
    """Sampler whose weights are the counts of the true classes, plus one."""

    def __init__(self, n: int, attrs: Mapping[str, Any]) -> None:
        super().__init__(n, attrs)
        arrays.check_size((n,), dtypes.int64)
        self._counts = np.ones(n, np.int64)

    def draw(self, words: _Words) -> int:
        total = int(self._counts.sum())
        return int(np.searchsorted(np.cumsum(self._counts), words.below(total, 32), side="right"))

    def probability(self, value: int) -> float:
        return float(self._counts[value] / self._counts.sum())

    def saw(self, classes: Sequence[int]) -> None:
        np.add.at(self._counts, classes, 1)


class _Fixed(_Uniform):
    """Sampler with given weights."""

    def __init__(self, n: int, attrs: Mapping[str, Any]) -> None:
        super().__init__(n, attrs)
        weights = _weights(attrs)
        if len(weights) != n:
            raise InvalidArgumentError(f"range is {n} must be equal to weights size  {len(weights)}")
        self._weights, self._total = weights, float(np.sum(weights, dtype=np.float64))
        if not self._total > 0:
            raise InvalidArgumentError("the unigrams' weights must not all be 0")
        self._keep, self._other = _aliases(weights)

    def draw(self, words: _Words) -> int:
        u = words.single()
        at = words.below(self._n, 32)
        return at if u < self._keep[at] else self._other[at]

    def probability(self, value: int) -> float:
        return float(self._weights[value]) / self._total


def _weights(attrs: Mapping[str, Any]) -> np.ndarray:
    """Weights of a shard; reserved classes have none.

    The others are `unigrams` or the last column of `vocab_file`.
    """
    file, unigrams = attrs["vocab_file"], attrs["unigrams"]
    if file and unigrams:
        raise InvalidArgumentError("Must only provide one of vocab_file and unigrams.")
    if not file and not unigrams:
        raise InvalidArgumentError("Must provide either vocab_file or unigrams.")
    if file:
        try:
            with system.stream(file, "r") as lines:
                unigrams = [float(line.rstrip("\n").rpartition(",")[2]) for line in lines if line.strip()]
        except OSError as e:
            raise NotFoundError(f"{file}; {e.strerror}") from None
        except ValueError as e:
            raise InvalidArgumentError(f"Wrong vocabulary format in {file}: {e}") from None
    given = np.array(unigrams, np.float32)
    powers = np.where(given > 0, np.power(np.abs(given), np.float32(attrs["distortion"])), 0).astype(np.float32)
    shards, shard = attrs["num_shards"], attrs["shard"]
    reserved = sum(k % shards == shard for k in range(attrs["num_reserved_ids"]))
    mine = (reserved + np.arange(len(powers))) % shards == shard
    return np.concatenate([np.zeros(reserved, np.float32), powers[mine]])


def _aliases(weights: np.ndarray) -> tuple[list[float], list[int]]:
    """Tables of the alias method: the share that each class keeps, and its alias."""
    n = len(weights)
    share = (weights.astype(np.float64) * n / np.sum(weights, dtype=np.float64)).tolist()
    keep, other = [1.0] * n, list(range(n))
    low, high = [i for i in range(n) if share[i] < 1], [i for i in range(n) if share[i] >= 1]
    while low and high:
        small, large = low.pop(), high.pop()
        keep[small], other[small] = float(np.float32(share[small])), large
        share[large] -= 1 - share[small]
        (low if share[large] < 1 else high).append(large)
    return keep, other


# *** Records ***


def _true_classes(x: Any, num_true: int) -> list[int]:
    if len(shape_of(x)) != 2:
        raise InvalidArgumentError(f"true_classes must be a matrix, got shape {show(shape_of(x))}")
    if x.shape[1] != num_true:
        raise InvalidArgumentError(f"true_classes must have num_true columns, expected: {x.shape[1]} was: {num_true}")
    found: list[int] = x.ravel().tolist()
    return found


def _expected(p: float, n: int, tries: int) -> float:
    """Expected count of a class of probability `p` among `n` candidates.

    `tries` is the number of draws that it took to find them.
    """
    if tries == n:
        return p * n
    return 1.0 if p >= 1 else -math.expm1(tries * math.log1p(-p))


def _sampler(kind: type[_Uniform]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
        state, n, classes = state_of(ctx, attrs), attrs["num_sampled"], attrs["range_max"]
        unique, name = attrs["unique"], f"_candidates/{ctx.op.type}"

        def kernel(true: Any) -> Any:
            trues = _true_classes(true, attrs["num_true"])
            distribution = ctx.step.session.lookup_or_create(name, _Uniform, ctx.node, lambda: kind(classes, attrs))
            if unique and n > classes:
                raise InvalidArgumentError(f"Sampler's range is too small. {n} candidates of {classes} classes")
            for k in trues:
                if not 0 <= k < classes:
                    raise InvalidArgumentError(f"`true_candidate` out of range [0, {classes}), received {k}")
            arrays.check_size((n,), dtypes.int64)
            words = _Words(state.reserve(n * _RESERVED))
            found: dict[int, None] = {}
            drawn: list[int] = []
            tries = 0
            while len(drawn) < n:
                tries += 1
                k = distribution.draw(words)
                if not unique or k not in found:
                    found[k] = None
                    drawn.append(k)

            def counts(of: Sequence[int]) -> np.ndarray:
                return np.array([_expected(distribution.probability(k), n, tries) for k in of], np.float32)

            out = np.array(drawn, np.int64), counts(trues).reshape(true.shape), counts(drawn)
            distribution.saw(trues)
            return out

        return kernel

    return factory


def _all(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    n = attrs["num_sampled"]

    def kernel(true: Any) -> Any:
        _true_classes(true, attrs["num_true"])
        arrays.check_size((n,), dtypes.int64)
        return np.arange(n), np.ones(true.shape, np.float32), np.ones(n, np.float32)

    return kernel


def _shape(c: Inference) -> Sequence[Shape]:
    rows, _ = with_rank(c.shapes[0], 2)
    n = (c.attrs["num_sampled"],)
    return [n, (rows, c.attrs["num_true"]), n]


_OUT: Final = "sampled_candidates: int64, true_expected_count: float32, sampled_expected_count: float32"
_SIZES: Final[dict[str, Any]] = {
    "num_true": int_attr(minimum=1),
    "num_sampled": int_attr(minimum=1),
    "unique": bool_attr(),
}
_RANGE: Final[dict[str, Any]] = {"range_max": int_attr(minimum=1)}
_UNIGRAMS: Final[dict[str, Any]] = {
    "vocab_file": "",
    "distortion": 1.0,
    "num_reserved_ids": 0,
    "num_shards": int_attr(1, 1),
    "shard": int_attr(0, 0),
    "unigrams": list_attr("float", ()),
}

for _name, _kernel, _more, _doc in (
    ("UniformCandidateSampler", _sampler(_Uniform), _RANGE, "all equally likely."),
    ("LogUniformCandidateSampler", _sampler(_LogUniform), _RANGE, "the smaller the likelier."),
    ("LearnedUnigramCandidateSampler", _sampler(_Learned), _RANGE, "by how often they were true classes so far."),
    ("ThreadUnsafeUnigramCandidateSampler", _sampler(_Learned), _RANGE, "by how often they were true classes so far."),
    ("FixedUnigramCandidateSampler", _sampler(_Fixed), {**_RANGE, **_UNIGRAMS}, "by given weights."),
    ("AllCandidateSampler", _all, {}, "just the first ones."),
):
    op(
        _name,
        "true_classes: int64",
        _OUT,
        {**_SIZES, **_more, **SEEDS},
        shape=_shape,
        stateful=_kernel,
        grad=NOT_DIFFERENTIABLE,
        facts=SEEDED,
        doc=f"Draws classes, {_doc}",
    )


# *** Candidates that are true classes ***


def _hits(attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    num_true = attrs["num_true"]

    def kernel(true: Any, sampled: Any) -> Any:
        if len(shape_of(true)) != 2 or true.shape[1] != num_true:
            raise InvalidArgumentError(
                f"true_candidates must be a batch_size * num_true matrix, with {num_true} columns; "
                f"got shape {show(shape_of(true))}"
            )
        if len(shape_of(sampled)) != 1:
            raise InvalidArgumentError(
                "sampled_candidates must be a vector, which is typically an output from CandidateSampler; "
                f"got shape {show(shape_of(sampled))}"
            )
        last = {k: at for at, k in enumerate(sampled.tolist())}  # of a class that came twice, the last one
        pairs = [(row, last[k]) for row, of in enumerate(true.tolist()) for k in of if k in last]
        rows, at = np.array(pairs, np.int64).reshape(-1, 2).T
        return rows.astype(np.int32), at.copy(), np.full(len(pairs), np.finfo(np.float32).min, np.float32)

    return kernel


def _hits_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 2)
    with_rank(c.shapes[1], 1)
    return [(None,)] * 3


op(
    "ComputeAccidentalHits",
    "true_classes: int64, sampled_candidates: int64",
    "indices: int32, ids: int64, weights: float32",
    {"num_true": int_attr(), **SEEDS},
    shape=_hits_shape,
    kernel=_hits,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True),
    sample=lambda rng, dtype: [
        case(
            np.array([[1, 2], [3, 1]]),
            np.array([3, 4, 1, 5, 2]),
            num_true=2,
            want=(
                np.array([0, 0, 1, 1], np.int32),
                np.array([2, 4, 0, 2]),
                np.full(4, np.finfo(np.float32).min, np.float32),
            ),
        )
    ],
    doc="Which candidates are true classes: the row, the candidate's position, and a weight that hides it.",
)
