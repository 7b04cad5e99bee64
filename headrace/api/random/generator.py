"""`hr.random.Generator`: random numbers with a state in a variable, which can be saved and restored."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, reductions, scopes
from headrace.api.random.stateless import Algorithm, algorithm_number
from headrace.api.tensors import shape_tensor
from headrace.api.variable import Variable
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor

_STATE = {1: 3, 2: 2, 3: 3}  # the length of the state, by algorithm: a counter and a key


def create_rng_state(seed: Any, alg: Any) -> Tensor:
    """Returns the initial state of a generator for a seed: an int64 vector.

    Args:
      seed: an int, whose low bits are used, or an int tensor, whose first elements are used.
      alg: an `Algorithm`, its number or its name.

    Source: TensorFlow's `tf.random.create_rng_state`.

    Example:
      >>> import headrace as hr
      >>> hr.random.create_rng_state(7, "philox")
      <EagerTensor shape=[3] dtype=int64: array([7, 0, 0])>
    """
    n = _STATE[algorithm_number(alg)]
    b = scopes.builder(seed)
    if isinstance(seed, (int, np.integer)):
        parts = [int(seed) >> 64 * i & 2**64 - 1 for i in range(n)]
        return b.const(np.array(parts, np.uint64).view(np.int64), dtypes.int64)
    words = arrays.reshape(math.cast(b.tensor(seed), dtypes.int64), [-1])[:n]
    missing = n - arrays.shape(words)[0]
    return arrays.reshape(arrays.pad(words, [[missing, 0]]), [n])


class Generator:
    """Random number generator whose state is a variable.

    In a graph the state belongs to a session and must be initialized (`hr.variables_initializer([g.state])`). In an
    `hr.Graph` the numbers are drawn in program order.

    Args:
      copy_from: a generator whose state and algorithm are copied. Without it, both other arguments are required.
      state: the initial state: an int64 vector (of three numbers, for Philox).
      alg: an `Algorithm`, its number or its name.

    Attributes:
      state: the variable.

    Raises:
      ValueError: not exactly one of `copy_from` and the pair `state`, `alg` is given; or the state has another length
        than the algorithm's.

    Source: TensorFlow's `tf.random.Generator`.

    Example:
      >>> import headrace as hr
      >>> g = hr.random.Generator.from_seed(7)
      >>> g.uniform((2,), 0, 10, hr.int32)
      <EagerTensor shape=[2] dtype=int32: array([5, 5], dtype=int32)>
      >>> g.state.numpy()
      array([519,   0,   0])
    """

    state: Variable

    def __init__(self, copy_from: Generator | None = None, state: Any = None, alg: Any = None) -> None:
        if (copy_from is None) == (state is None and alg is None):
            raise ValueError("a generator is made of `copy_from`, or of `state` and `alg`: one of the two")
        if copy_from is not None:
            state, alg = copy_from.state.read_value(), copy_from.algorithm
        elif state is None or alg is None:
            raise ValueError("a generator needs both `state` and `alg`; from_seed makes one with a state of its own")
        self._algorithm = algorithm_number(alg)
        words = scopes.builder(state).tensor(state, dtypes.int64)
        n = _STATE[self._algorithm]
        if words.shape is not None and words.shape != (n,):
            raise ShapeError(f"Shapes {words.shape} and [{n}] are incompatible: so long is the algorithm's state")
        with scopes.name_scope("random_generator"):
            self.state = Variable(words, trainable=False, name="StateVar", dtype=dtypes.int64)

    @classmethod
    def from_state(cls, state: Any, alg: Any) -> Generator:
        """Creates a generator with a state."""
        return cls(state=state, alg=alg)

    @classmethod
    def from_seed(cls, seed: Any, alg: Any = None) -> Generator:
        """Creates a generator from a seed, see `create_rng_state`; the default is Philox."""
        number = algorithm_number(Algorithm.PHILOX if alg is None else alg)
        return cls(state=create_rng_state(seed, number), alg=number)

    @classmethod
    def from_non_deterministic_state(cls, alg: Any = None) -> Generator:
        """Creates a generator with an unpredictable state."""
        number = algorithm_number(Algorithm.PHILOX if alg is None else alg)
        b = scopes.builder()
        state = b.make("NonDeterministicInts", ([_STATE[number]],), {"dtype": dtypes.int64})
        return cls(state=arrays.reshape(state, [_STATE[number]]), alg=number)

    @classmethod
    def from_key_counter(cls, key: Any, counter: Any, alg: Any) -> Generator:
        """Creates a generator from a key, an int, and a counter, an int vector."""
        return cls(state=_joined(key, counter, algorithm_number(alg)), alg=alg)

    @property
    def algorithm(self) -> int:
        """The number of the algorithm."""
        return self._algorithm

    @property
    def key(self) -> Any:
        """The key: the part of the state that does not change while numbers are drawn."""
        return self.state.read_value()[-1]

    def reset(self, state: Any) -> Any:
        """Sets the state. In a graph: returns the operation that sets it."""
        return self.state.assign(state)

    def reset_from_seed(self, seed: Any) -> Any:
        """Sets the state to that of a seed."""
        return self.reset(create_rng_state(seed, self._algorithm))

    def reset_from_key_counter(self, key: Any, counter: Any) -> Any:
        """Sets the state to that of a key and a counter."""
        return self.reset(_joined(key, counter, self._algorithm))

    def skip(self, delta: Any) -> Any:
        """Advances the state by `delta` draws of 256 words; returns the old state."""
        b = scopes.builder(self.state, delta)
        steps = math.cast(b.tensor(delta), dtypes.uint64)
        return b.make("RngReadAndSkip", (self.state.handle, self._algorithm, steps), {})

    def _source(self, b: Any, shape: Any) -> tuple[Any, Any, int]:
        """Advances the state by the size of a shape; returns key, counter and algorithm."""
        before = self.skip(reductions.reduce_prod(shape))
        n = _STATE[self._algorithm]
        counter = arrays.bitcast(before[: n - 1], dtypes.uint64)
        return arrays.bitcast(before[n - 1 : n], dtypes.uint64), counter, self._algorithm

    def _normal(self, op: str, default: str, shape: Any, at: tuple[Any, Any], dtype: Any, name: str | None) -> Any:
        t = dtypes.as_dtype(dtype)
        with scopes.name_scope(name, default, [shape, *at]) as scope:
            b = scopes.builder(self.state, shape, *at)
            dims = shape_tensor(b, shape)
            mean, stddev = b.tensor(at[0], t, "mean"), b.tensor(at[1], t, "stddev")
            drawn = b.make(op, (dims, *self._source(b, dims)), {"dtype": t})
            return b.make("AddV2", (b.make("Mul", (drawn, stddev), {}, "mul"), mean), {}, scope)

    def normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, name: str | None = None
    ) -> Tensor:
        """Draws normally distributed numbers; see `hr.random.normal`."""
        return self._normal("StatelessRandomNormalV2", "stateful_normal", shape, (mean, stddev), dtype, name)

    def truncated_normal(
        self, shape: Any, mean: Any = 0.0, stddev: Any = 1.0, dtype: Any = dtypes.float32, name: str | None = None
    ) -> Tensor:
        """Draws normally distributed numbers within two standard deviations; see `hr.random.truncated_normal`."""
        return self._normal("StatelessTruncatedNormalV2", "truncated_normal", shape, (mean, stddev), dtype, name)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = dtypes.float32, name: str | None = None
    ) -> Tensor:
        """Draws uniformly distributed numbers; see `hr.random.stateless_uniform`.

        Raises:
          ValueError: only one bound is given for integers.
        """
        t = dtypes.as_dtype(dtype)
        if t.is_integer and (minval is None) != (maxval is None):
            raise ValueError(
                f"For integer dtype {t.name}, minval and maxval must be both `None` or both given, got {minval!r} and "
                f"{maxval!r}"
            )
        if t.is_integer and minval is None:
            return self.uniform_full_int(shape, t, name)
        with scopes.name_scope(name, "stateful_uniform", [shape, minval, maxval]) as scope:
            b = scopes.builder(self.state, shape, minval, maxval)
            dims = shape_tensor(b, shape)
            low = b.tensor(minval, t, "min")
            high = b.tensor(1 if maxval is None else maxval, t, "max")
            source = self._source(b, dims)
            if t.is_integer:
                return b.make("StatelessRandomUniformIntV2", (dims, *source, low, high), {}, scope)
            drawn = b.make("StatelessRandomUniformV2", (dims, *source), {"dtype": t})
            width = b.make("Sub", (high, low), {}, "sub")
            return b.make("AddV2", (b.make("Mul", (drawn, width), {}, "mul"), low), {}, scope)

    def uniform_full_int(self, shape: Any, dtype: Any = dtypes.uint64, name: str | None = None) -> Tensor:
        """Draws integers (int32, int64, uint32 or uint64) uniformly from the range of the dtype."""
        with scopes.name_scope(name, "stateful_uniform_full_int", [shape]) as scope:
            b = scopes.builder(self.state, shape)
            dims = shape_tensor(b, shape)
            attrs = {"dtype": dtypes.as_dtype(dtype)}
            return b.make("StatelessRandomUniformFullIntV2", (dims, *self._source(b, dims)), attrs, scope)

    def binomial(
        self, shape: Any, counts: Any, probs: Any, dtype: Any = dtypes.int32, name: str | None = None
    ) -> Tensor:
        """Draws numbers of binomial distributions.

        Args:
          shape: the shape of the result, which ends in that of the parameters.
          counts: numbers of trials.
          probs: probabilities of success.
          dtype: dtype of the result.
          name: name of the operation; "binomial" if None.
        """
        with scopes.name_scope(name, "binomial", [shape, counts, probs]) as scope:
            b = scopes.builder(self.state, shape, counts, probs)
            trials = b.tensor(counts, None, "counts")
            chances = b.tensor(probs, trials.dtype.base, "probs")
            algorithm = b.const(np.int64(self._algorithm), dtypes.int64, "algorithm")
            args = (self.state.handle, algorithm, shape_tensor(b, shape), trials, chances)
            return b.make("StatefulRandomBinomial", args, {"dtype": dtypes.as_dtype(dtype)}, scope)

    def make_seeds(self, count: int = 1) -> Tensor:
        """Draws seeds for the `stateless_...` functions: the columns of an int64 matrix, [2, count]."""
        first = self.uniform_full_int([count], dtypes.int64)
        return arrays.stack([first, arrays.zeros_like(first)])

    def split(self, count: int = 1) -> list[Generator]:
        """Returns `count` independent generators. Outside of graphs only.

        Raises:
          NotImplementedError: in a graph.
        """
        if self.state.graph is not None or not scopes.is_outside():
            raise NotImplementedError("generators are split outside of graphs; in one, make seeds (make_seeds)")
        n = _STATE[self._algorithm]
        keys = self.uniform_full_int([count], dtypes.int64).numpy().tolist()
        return [Generator(state=[0] * (n - 1) + [key], alg=self._algorithm) for key in keys]


def _joined(key: Any, counter: Any, alg: int) -> Any:
    """Joins a counter and a key to a state.

    Raises:
      ShapeError (a ValueError): the counter has another length than the algorithm's.
    """
    b = scopes.builder(key, counter)
    words = b.tensor(counter, dtypes.int64)
    n = _STATE[alg] - 1
    if words.shape is not None and words.shape != (n,):
        raise ShapeError(f"Shapes {words.shape} and [{n}] are incompatible: so long is the algorithm's counter")
    last = b.tensor(key, dtypes.int64)
    return arrays.concat([words, arrays.reshape(last, [1])], 0)
