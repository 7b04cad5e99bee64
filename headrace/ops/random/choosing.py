"""Random choices: classes by their probabilities, and permutations.

Source: TensorFlow's Multinomial, StatelessMultinomial, RandomShuffle, StatelessShuffle and RandomIndexShuffle. The last
is a cipher with few rounds: Beaulieu et al., "The SIMON and SPECK Families of Lightweight Block Ciphers" (2013).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, REAL, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    flops_per_element,
    int_attr,
    missing,
    op,
    type_attr,
)
from headrace.opkit import arrays
from headrace.opkit.batch_node import Independent
from headrace.opkit.batch_rules import folding
from headrace.ops.random import definition
from headrace.ops.random.drawing import (
    PHILOX,
    SEEDED,
    SEEDS,
    key_shape,
    seed_shape,
    state_of,
    stream_of_key,
    stream_of_seeds,
)
from headrace.resources.philox import RESERVED_PER_NUMBER, Stream
from headrace.resources.values import shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_WORDS = frozenset({dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64})
_CLASSES = {"output_dtype": type_attr(INDEX, dtypes.int64)}


# *** Classes ***


def _choose(logits: Any, num_samples: Any, dtype: DType, stream: Callable[[int], Stream]) -> Any:
    """The classes drawn for each row of logits.

    Args:
      logits, num_samples: the op's inputs.
      dtype: of the result.
      stream: returns the stream of random numbers, with the given number of blocks reserved.
    """
    if len(shape_of(logits)) != 2:
        raise InvalidArgumentError(f"logits should be a matrix, got shape {shapes.show(shape_of(logits))}")
    if shape_of(num_samples):
        raise InvalidArgumentError(f"num_samples should be a scalar, got shape {shapes.show(shape_of(num_samples))}")
    batch, classes = logits.shape
    n = int(num_samples)
    if n < 0:
        raise InvalidArgumentError(f"num_samples should be non-negative, got {n}")
    if not classes:
        raise InvalidArgumentError(f"num_classes should be positive, got {classes}")
    arrays.check_size((batch, n), dtypes.float64)
    out = np.empty((batch, n), dtype.numpy)
    if not out.size:
        return out
    drawn = stream(batch * (-(-n // 4) * 4) * 2 * RESERVED_PER_NUMBER).uniform(batch * n, dtypes.float64)
    for row, scores, u in zip(out, _cumulative(logits), drawn.reshape(batch, n), strict=True):
        row[:] = np.searchsorted(scores, u * scores[-1], side="right")
    return out


def _cumulative(logits: np.ndarray) -> np.ndarray:
    """Cumulative sums of the unnormalized probabilities of each row.

    Logits that are not finite have the probability 0.
    """
    wide = logits.astype(np.float64)
    finite = np.isfinite(wide)
    top = np.max(wide, axis=1, keepdims=True, where=finite, initial=np.finfo(np.float64).min)
    out: np.ndarray = np.cumsum(np.where(finite, np.exp(np.where(finite, wide - top, 0.0)), 0.0), axis=1)
    return out


def _multinomial(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    state, dtype = state_of(ctx, attrs), attrs["output_dtype"]
    return lambda logits, num_samples: _choose(logits, num_samples, dtype, state.reserve)


def _stateless_multinomial(attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    dtype = attrs["output_dtype"]

    def kernel(logits: Any, num_samples: Any, seed: Any) -> Any:
        stream = stream_of_seeds(seed)
        return _choose(logits, num_samples, dtype, lambda blocks: stream)

    return kernel


def _multinomial_shape(c: Inference) -> Sequence[Shape]:
    rows, _ = shapes.with_rank(c.shapes[0], 2)
    if len(c.shapes) == 3:
        seed_shape(c, 2)
    return [(rows, c.scalar(1))]


def _multinomial_oracle(logits: np.ndarray, num_samples: np.ndarray, seed: np.ndarray, **attrs: Any) -> np.ndarray:
    source, out = definition.words(definition.mixed(seed)), []
    for row in logits.astype(np.float64).tolist():
        weights = [math.exp(x - max(row)) for x in row]
        for _ in range(int(num_samples)):
            left = definition.double(next(source), next(source)) * math.fsum(weights)
            k = 0
            while left >= weights[k]:
                left -= weights[k]
                k += 1
            out.append(k)
    dtype = attrs.get("output_dtype", dtypes.int64)
    return np.array(out, dtype.numpy).reshape(len(logits), int(num_samples))


def _multinomial_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    logits, seed = rng.uniform(0, 3, (2, 4)).astype(dtype.numpy), np.array([3, 4])
    return [
        case(logits, np.array(5, np.int32), seed, output_dtype=dtypes.int32),
        case(logits, np.array(0, np.int32), seed),
    ]


op(
    "Multinomial",
    "logits: T, num_samples: int32",
    "output: output_dtype",
    {**SEEDS, "T": REAL, **_CLASSES},
    shape=_multinomial_shape,
    stateful=_multinomial,
    grad=NOT_DIFFERENTIABLE,
    batch=Independent(folding(0)),
    facts=SEEDED,
    doc="For each row of logits, `num_samples` classes drawn with the probabilities of its softmax.",
)
op(
    "StatelessMultinomial",
    "logits: T, num_samples: int32, seed: Tseed",
    "output: output_dtype",
    {"T": REAL, "Tseed": type_attr(INDEX, dtypes.int64), **_CLASSES},
    shape=_multinomial_shape,
    kernel=_stateless_multinomial,
    xp=False,
    host=("logits", "num_samples", "seed"),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_element(40), dynamic_shape=True),
    oracle=_multinomial_oracle,
    sample=_multinomial_cases,
    doc="For each row of logits, `num_samples` classes drawn with the probabilities of its softmax.",
)


# *** Orders ***


def _shuffled(value: Any, stream: Callable[[int], Stream]) -> Any:
    """Shuffles the rows of `value` by a stream of random numbers.

    `stream(blocks)` returns the stream with that number of blocks reserved.
    """
    shape = shape_of(value)
    if math.prod(shape) <= 1 or shape[0] <= 1:
        return value  # nothing to shuffle, and no number is drawn
    n = shape[0]
    return value[stream(-(-(n - 1) // 4)).permutation(n)]


def _shuffle(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    state = state_of(ctx, attrs)
    return lambda value: _shuffled(value, state.reserve)


def _stateless_shuffle(attrs: Mapping[str, Any]) -> Callable[..., Any]:
    def kernel(value: Any, key: Any, counter: Any, alg: Any) -> Any:
        stream = stream_of_key(key, counter, alg)
        return _shuffled(value, lambda blocks: stream)

    return kernel


def _stateless_shuffle_shape(c: Inference) -> Sequence[Shape]:
    key_shape(c, 1)
    return [c.shapes[0]]


def _shuffle_oracle(value: np.ndarray, key: np.ndarray, counter: np.ndarray, alg: np.ndarray) -> np.ndarray:
    rows, source = list(range(len(value))), definition.words(definition.keyed(key, counter))
    out = []
    while len(rows) > 1:
        at = next(source) % len(rows)
        rows[0], rows[at] = rows[at], rows[0]
        out.append(rows.pop(0))
    return value[out + rows]


def _shuffle_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    seeds = (np.array([9], np.uint64), np.array([4, 5], np.uint64), np.array(PHILOX, np.int32))
    if dtype in arrays.HANDLES:
        return []
    dims = ((7,), (3, 2), (0, 2)) if dtype is dtypes.float32 else ((4,),)
    values = [np.arange(math.prod(d)).reshape(d) for d in dims]
    if dtype is dtypes.string:
        values = [np.array([b"%d" % i for i in v], object) for v in values]
    return [case(v.astype(dtype.numpy), *seeds) for v in values]


op(
    "RandomShuffle",
    "value: T",
    "output: T",
    {**SEEDS, "T": type_attr()},
    shape=lambda c: [c.shapes[0]],
    stateful=_shuffle,
    grad=missing("the permutation is not an output; shuffle the indices and use GatherV2"),
    facts=Facts(effect="random", writes=True),
    doc="The rows of `value` in random order.",
)


def _stateless_shuffle_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule: inverts the permutation of the rows.

    The op shuffles the row numbers in the same way as the value.
    """
    rows = b.StridedSlice(b.Shape(n.value), [0], [1], [1], shrink_axis_mask=1)
    order = b.StatelessShuffle(b.Range(0, rows, 1), n.key, n.counter, n.alg)
    return [b.GatherV2(dy, b.InvertPermutation(order), 0), None, None, None]


op(
    "StatelessShuffle",
    "value: T, key: uint64, counter: uint64, alg: int32",
    "output: T",
    {"T": type_attr()},
    shape=_stateless_shuffle_shape,
    kernel=arrays.boxed(_stateless_shuffle),
    xp=False,
    grad=_stateless_shuffle_grad,
    facts=Facts(cost=flops_per_element(1)),
    oracle=_shuffle_oracle,
    sample=_shuffle_cases,
    doc="The rows of `value` in an order that follows from the key and counter.",
)


# *** Orders that are never written down ***

_SIMON = 0x7369F885192C0EF5  # bits that tell its rounds apart
_LEAST_BITS = 16


def _rotated(x: Any, by: int, bits: int) -> Any:
    """Words of so many bits, turned to the left."""
    return (x << np.uint64(by) | x >> np.uint64(bits - by)) & np.uint64((1 << bits) - 1)


def _mixed(x: np.ndarray, bits: int) -> np.ndarray:
    return _rotated(x, 1, bits) & _rotated(x, 8, bits) ^ _rotated(x, 2, bits)


def _round_keys(seed: Sequence[int], rounds: int, bits: int) -> list[np.uint64]:
    """A word for each round, of the three of the seed."""
    mask = np.uint64((1 << bits) - 1)
    keys = [np.uint64(s) & mask for s in seed]
    for i in range(rounds - 3):
        turned = _rotated(keys[-1], bits - 3, bits) ^ _rotated(keys[-1], bits - 4, bits)
        keys.append(np.uint64(0xFFFFFFFC ^ ((_SIMON & int(mask)) >> i & 1)) & mask ^ keys[-3] ^ turned)
    return keys


def _enciphered(x: np.ndarray, keys: Sequence[np.uint64], bits: int) -> np.ndarray:
    """Applies a Feistel cipher, which permutes the numbers of `2 * bits` bits.

    Each round changes one half by a function of the other half and the round's key.
    """
    mask = np.uint64((1 << bits) - 1)
    halves = [x >> np.uint64(bits) & mask, x & mask]
    for i, key in enumerate(keys):
        halves[i % 2] = halves[i % 2] ^ _mixed(halves[1 - i % 2], bits) ^ key
    return halves[0] << np.uint64(bits) | halves[1]


def _relocated(index: np.ndarray, seed: Sequence[int], limit: int, rounds: int) -> np.ndarray:
    """Positions of the indices up to `limit` after the shuffle.

    The cipher is applied to an index again until the result is at most `limit`.
    """
    bits = max(_LEAST_BITS, math.ceil(math.log2(max(limit, 1))))
    bits = (bits + bits % 2) // 2
    keys = _round_keys(seed, rounds, bits)
    if 2 * bits == _LEAST_BITS:  # few of the numbers may be such: jumps of twice the length each time
        to = _enciphered(np.arange(1 << _LEAST_BITS, dtype=np.uint64), keys, bits)
        for _ in range(_LEAST_BITS):
            to = np.where(to <= limit, to, to[to])
        return to[index]
    index = _enciphered(index, keys, bits)
    while (beyond := index > np.uint64(limit)).any():  # at most three of four are
        index[beyond] = _enciphered(index[beyond], keys, bits)
    return index


def _index_shuffle(attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    dtype, rounds = attrs["dtype"], attrs["rounds"]
    if rounds < 4 or rounds % 2:
        raise InvalidArgumentError(f"rounds must be even and at least 4, got {rounds}")

    def kernel(index: Any, seed: Any, max_index: Any) -> Any:
        if shape_of(seed)[-1:] != (3,) or seed.ndim > 2:
            raise InvalidArgumentError(
                f"Seed must be a vector of size [3] or a matrix of size [n, 3] but got {shapes.show(shape_of(seed))}"
            )
        lists = [x.ndim > rank for x, rank in ((index, 0), (seed, 1), (max_index, 0))]
        n = max(1, index.size, seed.size // 3, max_index.size)
        for name, x in (("Index", index), ("max_index", max_index)):
            if shape_of(x) not in ((), (n,)):
                raise InvalidArgumentError(
                    f"{name} must be a scalar or vector of size [{n}], got shape {shapes.show(shape_of(x))}"
                )
        if lists[1] and len(seed) != n:
            raise InvalidArgumentError(
                f"Seed must be a vector of size [3] or a matrix of size [{n}, 3], got {len(seed)}"
            )
        for name, x in (("index", index), ("max_index", max_index)):
            if (x < 0).any():
                raise InvalidArgumentError(f"{name} must be >= 0 but was {x.min()}")
        if (max_index < index).any():
            raise InvalidArgumentError(
                f"max_index must be >= index, but {np.min(max_index)} < {np.max(index)}: of {n} pairs, one is not so"
            )
        indices = np.broadcast_to(index.astype(np.uint64), n)
        seeds = np.broadcast_to(seed, (n, 3)).astype(np.uint64) & np.uint64(0xFFFFFFFF)
        ways, which = np.unique(
            np.column_stack([seeds, np.broadcast_to(max_index.astype(np.uint64), n)]), axis=0, return_inverse=True
        )
        out = np.empty(n, np.uint64)
        for i, (*words, limit) in enumerate(ways.tolist()):
            some = which.ravel() == i
            out[some] = _relocated(indices[some], words, limit, rounds)
        out = out.astype(dtype.numpy)
        return out if any(lists) else out[0]

    return kernel


def _index_shuffle_shape(c: Inference) -> Sequence[Shape]:
    lists: list[Shape] = []
    for s, rank in zip(c.shapes, (0, 1, 0), strict=True):
        if s is None:
            return [None]
        if len(s) > rank + 1 or len(s) < rank:
            raise ValueError(f"Shape must be of rank {rank} or {rank + 1} but is {shapes.show(s)}")
        if len(s) > rank:
            lists.append((s[0],))
    out: Shape = ()
    for s in lists:
        out = s if out == () else shapes.merge(out, s)
    return [out]


def _index_shuffle_oracle(index: np.ndarray, seed: np.ndarray, max_index: np.ndarray, rounds: int = 4) -> np.ndarray:
    def one(i: int, words: Sequence[int], limit: int) -> int:
        bits = max(16, 2 * math.ceil(math.log2(max(limit, 1)) / 2)) // 2
        full = (1 << bits) - 1

        def turn(x: int, by: int) -> int:
            return (x << by | x >> (bits - by)) & full

        keys = [w & full for w in words]
        for k in range(3, rounds):
            z = (_SIMON & full) >> (k - 3) & 1
            keys.append(
                (0xFFFFFFFC ^ z ^ keys[k - 3] ^ turn(keys[k - 1], bits - 3) ^ turn(keys[k - 1], bits - 4)) & full
            )
        while True:
            a, b = i >> bits & full, i & full
            for key in keys:  # an even number of them
                a, b = b, a ^ (turn(b, 1) & turn(b, 8)) ^ turn(b, 2) ^ key
            i = a << bits | b
            if i <= limit:
                return i

    every = [one(int(i), [int(w) for w in np.ravel(seed)], int(max_index)) for i in np.ravel(index)]
    return np.array(every, index.dtype).reshape(index.shape)


def _index_shuffle_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    seed = np.array([1, 2, 3], np.uint32)
    limit = np.array(300, dtype.numpy)
    return [
        case(np.arange(7).astype(dtype.numpy), seed, limit, rounds=6),
        case(np.array(11, dtype.numpy), seed.astype(np.int64), limit),
    ]


op(
    "RandomIndexShuffle",
    "index: dtype, seed: Tseed, max_index: dtype",
    "output: dtype",
    {"rounds": int_attr(4), "dtype": _WORDS, "Tseed": _WORDS},
    shape=_index_shuffle_shape,
    kernel=_index_shuffle,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_element(200)),
    oracle=_index_shuffle_oracle,
    sample=_index_shuffle_cases,
    differs="refuses an odd number of rounds, and fewer than 4, for which TensorFlow reads past its keys",
    doc="Position of each index in a permutation of the integers up to `max_index` given by the seed.",
)
