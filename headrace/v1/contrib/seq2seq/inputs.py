"""Helpers of `tf.contrib.seq2seq`: they choose the inputs of a decoder's next step.

`initialize()` returns the finished flags and the inputs of the first step, `sample` chooses ids from the outputs of a
step, and `next_inputs` returns the flags and inputs of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import dtypes, nest
from headrace.api import arrays, gathering, math, random, reductions, scopes
from headrace.api.cond import cond
from headrace.api.nn import embedding
from headrace.api.rnn import sizes
from headrace.errors import ShapeError
from headrace.v1.graph import in_default_graph
from headrace.v1.tensor_array import TensorArray
from headrace.v1.tensor_shape import TensorShape


class Helper:
    """Base class of helpers.

    Source: TensorFlow's `tf.contrib.seq2seq.Helper`.
    """

    @property
    def batch_size(self) -> Any:
        """Number of examples: a scalar."""
        raise NotImplementedError("batch_size has not been implemented")

    @property
    def sample_ids_shape(self) -> Any:
        """Shape of an example's sample, () for an id."""
        raise NotImplementedError("sample_ids_shape has not been implemented")

    @property
    def sample_ids_dtype(self) -> Any:
        """The dtype of samples."""
        raise NotImplementedError("sample_ids_dtype has not been implemented")

    def initialize(self, name: str | None = None) -> Any:
        """Returns the pair (finished, inputs) of the first step."""
        raise NotImplementedError

    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns the samples for the outputs of a step."""
        raise NotImplementedError

    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """Returns the triple (finished, inputs, state) of the next step."""
        raise NotImplementedError


class CustomHelper(Helper):
    """Helper of three functions.

    Args:
      initialize_fn: a function without arguments that returns (finished, inputs).
      sample_fn: a function (time, outputs, state) that returns samples.
      next_inputs_fn: a function (time, outputs, state, sample_ids) that returns (finished, inputs, state).
      sample_ids_shape: shape of an example's sample; None: ().
      sample_ids_dtype: dtype of samples; None: int32.

    Source: TensorFlow's `tf.contrib.seq2seq.CustomHelper`.
    """

    def __init__(
        self, initialize_fn: Any, sample_fn: Any, next_inputs_fn: Any, sample_ids_shape: Any = None,
        sample_ids_dtype: Any = None,
    ) -> None:  # fmt: skip
        self._initialize_fn, self._sample_fn, self._next_inputs_fn = initialize_fn, sample_fn, next_inputs_fn
        self._ids_shape = TensorShape([] if sample_ids_shape is None else sample_ids_shape)
        self._ids_dtype = dtypes.as_dtype(sample_ids_dtype or dtypes.int32)
        self._batch_size: Any = None

    @property
    def batch_size(self) -> Any:
        """Number of examples, known after `initialize`.

        Raises:
          ValueError: `initialize` has not been called.
        """
        if self._batch_size is None:
            raise ValueError("batch_size accessed before initialize was called")
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        """Shape of an example's sample."""
        return self._ids_shape

    @property
    def sample_ids_dtype(self) -> Any:
        """The dtype of samples."""
        return self._ids_dtype

    @in_default_graph
    def initialize(self, name: str | None = None) -> Any:
        """See `Helper.initialize`."""
        with scopes.name_scope(name, "CustomHelperInitialize"):
            finished, inputs = self._initialize_fn()
            if self._batch_size is None:
                self._batch_size = arrays.size(finished)
            return finished, inputs

    @in_default_graph
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """See `Helper.sample`."""
        with scopes.name_scope(name, "CustomHelperSample"):
            return self._sample_fn(time=time, outputs=outputs, state=state)

    @in_default_graph
    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """See `Helper.next_inputs`."""
        with scopes.name_scope(name, "CustomHelperNextInputs"):
            return self._next_inputs_fn(time=time, outputs=outputs, state=state, sample_ids=sample_ids)


class _OfIds(Helper):
    """Base of helpers whose samples are ids."""

    _batch_size: Any

    @property
    def batch_size(self) -> Any:
        """Number of examples: a scalar."""
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        """Shape of an id: that of a scalar."""
        return TensorShape([])

    @property
    def sample_ids_dtype(self) -> dtypes.DType:
        """The dtype of ids: int32."""
        return dtypes.int32


def _greedy(outputs: Any) -> Any:
    return reductions.argmax(outputs, -1, output_type=dtypes.int32)


class TrainingHelper(_OfIds):
    """Helper that reads the inputs of all steps from a tensor.

    Args:
      inputs: [batch, time, ...], or a structure of them.
      sequence_length: number of steps of each example: [batch].
      time_major: whether the inputs are [time, batch, ...].
      name: name of the scope.

    Raises:
      ValueError: `sequence_length` is not a vector.

    Source: TensorFlow's `tf.contrib.seq2seq.TrainingHelper`.
    """

    @in_default_graph
    def __init__(self, inputs: Any, sequence_length: Any, time_major: bool = False, name: str | None = None) -> None:
        with scopes.name_scope(name, "TrainingHelper", [inputs, sequence_length]):
            b = scopes.builder(*nest.flatten(inputs))
            inputs = nest.map_leaves(lambda x: b.tensor(x, None, "inputs"), inputs)
            self._inputs = inputs
            if not time_major:
                inputs = nest.map_leaves(lambda x: arrays.transpose(x, [1, 0, *range(2, len(x.shape))]), inputs)
            self._arrays = nest.map_leaves(self._unstacked, inputs)
            self._sequence_length = b.tensor(sequence_length, None, "sequence_length")
            if self._sequence_length.shape is not None and len(self._sequence_length.shape) != 1:
                raise ShapeError(
                    f"Expected sequence_length to be a vector, but received shape: {self._sequence_length.shape}"
                )
            self._zeros = nest.map_leaves(lambda x: arrays.zeros_like(x[0]), inputs)
            self._batch_size = arrays.size(self._sequence_length)

    @staticmethod
    def _unstacked(x: Any) -> Any:
        n = sizes.batch_size(x, 0)
        array = TensorArray(x.dtype.base, size=n, element_shape=x.shape[1:], clear_after_read=False)
        return array.unstack(x)

    @property
    def inputs(self) -> Any:
        """The inputs as given."""
        return self._inputs

    @property
    def sequence_length(self) -> Any:
        """Number of steps of each example."""
        return self._sequence_length

    @in_default_graph
    def initialize(self, name: str | None = None) -> Any:
        """See `Helper.initialize`."""
        with scopes.name_scope(name, "TrainingHelperInitialize"):
            finished = math.equal(0, self._sequence_length)
            return finished, self._read(reductions.reduce_all(finished), 0)

    def _read(self, is_done: Any, time: Any) -> Any:
        flat, zeros = nest.flatten(self._arrays, False), nest.flatten(self._zeros)
        found = cond(is_done, lambda: zeros, lambda: [a.read(time) for a in flat])
        return nest.pack(self._zeros, list(found))

    @in_default_graph
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns the likeliest ids. See `Helper.sample`."""
        with scopes.name_scope(name, "TrainingHelperSample", [time, outputs]):
            return math.cast(_greedy(outputs), dtypes.int32)

    @in_default_graph
    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """See `Helper.next_inputs`."""
        with scopes.name_scope(name, "TrainingHelperNextInputs", [time, outputs]):
            later = time + 1
            finished = later >= self._sequence_length
            return finished, self._read(reductions.reduce_all(finished), later), state


class ScheduledEmbeddingTrainingHelper(TrainingHelper):
    """Training helper whose inputs are sometimes the embeddings of sampled ids.

    Args:
      embedding: the table of embeddings, or a function from ids to embeddings.
      sampling_probability: the probability that an input is that of a sampled id: a scalar.
      seed: seed of the samples.
      scheduling_seed: seed of the choice.
      Others: see `TrainingHelper`.

    Source: TensorFlow's `tf.contrib.seq2seq.ScheduledEmbeddingTrainingHelper`; Bengio et al., "Scheduled sampling"
    (2015).
    """

    @in_default_graph
    def __init__(
        self, inputs: Any, sequence_length: Any, embedding: Any, sampling_probability: Any, time_major: bool = False,
        seed: int | None = None, scheduling_seed: int | None = None, name: str | None = None,
    ) -> None:  # fmt: skip
        self._embedding_fn = lookup_of(embedding)
        self._probability = _probability(sampling_probability)
        self._seed, self._choice_seed = seed, scheduling_seed
        super().__init__(inputs, sequence_length, time_major, name or "ScheduledEmbeddingSamplingWrapper")

    @in_default_graph
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns sampled ids, and -1 for the examples that read their own inputs."""
        with scopes.name_scope(name, "ScheduledEmbeddingTrainingHelperSample", [time, outputs]):
            chosen = random.uniform([self._batch_size], seed=self._choice_seed) < self._probability
            ids = random.categorical(outputs, 1, dtype=dtypes.int32, seed=self._seed)
            return gathering.where(chosen, arrays.squeeze(ids, [1]), arrays.fill([self._batch_size], -1))

    @in_default_graph
    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """See `Helper.next_inputs`."""
        with scopes.name_scope(name, "ScheduledEmbeddingTrainingHelperNextInputs", [time, outputs]):
            finished, inputs, state = super().next_inputs(time, outputs, state, sample_ids)
            found = self._embedding_fn(math.maximum(sample_ids, 0))
            return finished, gathering.where(arrays.expand_dims(sample_ids > -1, 1), found, inputs), state


class ScheduledOutputTrainingHelper(TrainingHelper):
    """Training helper whose inputs are sometimes the outputs of the step before.

    Args:
      sampling_probability: the probability that an input is an output: a scalar.
      seed: seed of the choice.
      next_inputs_fn: a function from outputs to inputs; None: the outputs themselves.
      auxiliary_inputs: further inputs [batch, time, ...] that are joined with those of each step, or None.
      Others: see `TrainingHelper`.

    Source: TensorFlow's `tf.contrib.seq2seq.ScheduledOutputTrainingHelper`.
    """

    @in_default_graph
    def __init__(
        self, inputs: Any, sequence_length: Any, sampling_probability: Any, time_major: bool = False,
        seed: int | None = None, next_inputs_fn: Callable[[Any], Any] | None = None, auxiliary_inputs: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        self._probability, self._seed = _probability(sampling_probability), seed
        self._next_inputs_fn = next_inputs_fn
        self._more = None
        if auxiliary_inputs is not None:
            time_first = auxiliary_inputs if time_major else arrays.transpose(
                auxiliary_inputs, [1, 0, *range(2, len(auxiliary_inputs.shape))]
            )  # fmt: skip
            self._more = self._unstacked(time_first)
            inputs = arrays.concat([inputs, auxiliary_inputs], -1)
        super().__init__(inputs, sequence_length, time_major, name or "ScheduledOutputTrainingHelper")

    @in_default_graph
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns 1 for examples whose next inputs are their outputs, else 0."""
        with scopes.name_scope(name, "ScheduledOutputTrainingHelperSample", [time, outputs]):
            chosen = random.uniform([self._batch_size], seed=self._seed) < self._probability
            return math.cast(chosen, dtypes.int32)

    @in_default_graph
    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """See `Helper.next_inputs`."""
        with scopes.name_scope(name, "ScheduledOutputTrainingHelperNextInputs", [time, outputs]):
            finished, inputs, state = super().next_inputs(time, outputs, state, sample_ids)
            own = outputs if self._next_inputs_fn is None else self._next_inputs_fn(outputs)
            if self._more is not None:
                array = self._more
                at = math.minimum(time + 1, array.size() - 1)
                own = arrays.concat([own, array.read(at)], -1)
            return finished, gathering.where(arrays.expand_dims(sample_ids > 0, 1), own, inputs), state


class GreedyEmbeddingHelper(_OfIds):
    """Helper whose next inputs are the embeddings of the likeliest ids.

    Args:
      embedding: the table of embeddings, or a function from ids to embeddings.
      start_tokens: the first id of each example: [batch].
      end_token: the id that ends an example: a scalar.

    Raises:
      ValueError: `start_tokens` is not a vector, or `end_token` not a scalar.

    Source: TensorFlow's `tf.contrib.seq2seq.GreedyEmbeddingHelper`.
    """

    @in_default_graph
    def __init__(self, embedding: Any, start_tokens: Any, end_token: Any) -> None:
        self._embedding_fn = lookup_of(embedding)
        b = scopes.builder(start_tokens, end_token)
        self._start_tokens = b.tensor(start_tokens, dtypes.int32, "start_tokens")
        self._end_token = b.tensor(end_token, dtypes.int32, "end_token")
        if self._start_tokens.shape is not None and len(self._start_tokens.shape) != 1:
            raise ShapeError("start_tokens must be a vector")
        if self._end_token.shape is not None and self._end_token.shape:
            raise ShapeError("end_token must be a scalar")
        self._batch_size = arrays.size(self._start_tokens)
        self._start_inputs = self._embedding_fn(self._start_tokens)

    @in_default_graph
    def initialize(self, name: str | None = None) -> Any:
        """See `Helper.initialize`."""
        return arrays.fill([self._batch_size], False), self._start_inputs

    @in_default_graph
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns the likeliest ids. See `Helper.sample`.

        Raises:
          TypeError: the outputs are not one tensor.
        """
        _check_one(outputs)
        return _greedy(outputs)

    @in_default_graph
    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """See `Helper.next_inputs`."""
        finished = math.equal(sample_ids, self._end_token)
        is_done = reductions.reduce_all(finished)
        return finished, cond(is_done, lambda: self._start_inputs, lambda: self._embedding_fn(sample_ids)), state


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Helper whose next inputs are the embeddings of sampled ids.

    Args:
      softmax_temperature: divisor of the outputs; None: 1.
      seed: seed of the samples.
      Others: see `GreedyEmbeddingHelper`.

    Source: TensorFlow's `tf.contrib.seq2seq.SampleEmbeddingHelper`.
    """

    def __init__(
        self, embedding: Any, start_tokens: Any, end_token: Any, softmax_temperature: Any = None,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(embedding, start_tokens, end_token)
        self._temperature, self._seed = softmax_temperature, seed

    @in_default_graph
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns sampled ids. See `Helper.sample`."""
        _check_one(outputs)
        logits = outputs if self._temperature is None else outputs / self._temperature
        return arrays.squeeze(random.categorical(logits, 1, dtype=dtypes.int32, seed=self._seed), [1])


class InferenceHelper(Helper):
    """Helper whose samples are made by a function and are the next inputs.

    Args:
      sample_fn: a function from outputs to samples.
      sample_shape: shape of an example's sample.
      sample_dtype: dtype of samples.
      start_inputs: inputs of the first step: [batch, ...].
      end_fn: a function from samples to booleans [batch]: whether the example is finished.
      next_inputs_fn: a function from samples to inputs; None: the samples themselves.

    Source: TensorFlow's `tf.contrib.seq2seq.InferenceHelper`.
    """

    @in_default_graph
    def __init__(
        self, sample_fn: Any, sample_shape: Any, sample_dtype: Any, start_inputs: Any, end_fn: Any,
        next_inputs_fn: Any = None,
    ) -> None:  # fmt: skip
        self._sample_fn, self._end_fn, self._next_inputs_fn = sample_fn, end_fn, next_inputs_fn
        self._shape = TensorShape([sample_shape] if isinstance(sample_shape, int) else sample_shape)
        self._dtype = dtypes.as_dtype(sample_dtype)
        self._start_inputs = scopes.builder(start_inputs).tensor(start_inputs, None, "start_inputs")
        self._batch_size = arrays.shape(self._start_inputs)[0]

    @property
    def batch_size(self) -> Any:
        """Number of examples: a scalar."""
        return self._batch_size

    @property
    def sample_ids_shape(self) -> Any:
        """Shape of an example's sample."""
        return self._shape

    @property
    def sample_ids_dtype(self) -> dtypes.DType:
        """The dtype of samples."""
        return self._dtype

    @in_default_graph
    def initialize(self, name: str | None = None) -> Any:
        """See `Helper.initialize`."""
        return arrays.fill([self._batch_size], False), self._start_inputs

    @in_default_graph
    def sample(self, time: Any, outputs: Any, state: Any, name: str | None = None) -> Any:
        """See `Helper.sample`."""
        return self._sample_fn(outputs)

    @in_default_graph
    def next_inputs(self, time: Any, outputs: Any, state: Any, sample_ids: Any, name: str | None = None) -> Any:
        """See `Helper.next_inputs`."""
        inputs = sample_ids if self._next_inputs_fn is None else self._next_inputs_fn(sample_ids)
        return self._end_fn(sample_ids), inputs, state


def _check_one(outputs: Any) -> None:
    if nest.is_nested(outputs):
        raise TypeError(f"Expected outputs to be a single Tensor, got: {type(outputs)}")


def lookup_of(given: Any) -> Callable[[Any], Any]:
    """Returns a function from ids to embeddings for one, or for a table of embeddings."""
    if callable(given) and not hasattr(given, "dtype"):
        return given  # type: ignore[no-any-return]
    return lambda ids: embedding.rows(given, ids)


def _probability(given: Any) -> Any:
    p = scopes.builder(given).tensor(given, None, "sampling_probability")
    if p.shape is not None and len(p.shape) > 1:
        raise ShapeError(f"sampling_probability must be either a scalar or a vector. saw shape: {p.shape}")
    return p
