"""`dynamic_decode`: the loop of a decoder; `BasicDecoder`: a decoder of a cell and a helper."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, nest
from headrace.api import arrays, gathering, math, reductions, scopes, tensors
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import check_cell
from headrace.errors import ShapeError
from headrace.v1 import control_flow
from headrace.v1.contrib.rnn.networks import transpose_batch_time
from headrace.v1.graph import in_default_graph
from headrace.v1.tensor_array import TensorArray
from headrace.v1.variable_scopes import variable_scope


class Decoder:
    """Base class of decoders.

    Source: TensorFlow's `tf.contrib.seq2seq.Decoder`.
    """

    @property
    def batch_size(self) -> Any:
        """Number of examples."""
        raise NotImplementedError

    @property
    def output_size(self) -> Any:
        """Sizes of an example's outputs, in their structure."""
        raise NotImplementedError

    @property
    def output_dtype(self) -> Any:
        """Dtypes of the outputs, in their structure."""
        raise NotImplementedError

    def initialize(self, name: str | None = None) -> Any:
        """Returns the triple (finished, inputs, state) of the first step."""
        raise NotImplementedError

    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """Returns the quadruple (outputs, next state, next inputs, finished) of a step."""
        raise NotImplementedError

    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        """Returns the pair (outputs, state) after the loop. A decoder may leave it out."""
        raise NotImplementedError

    @property
    def tracks_own_finished(self) -> bool:
        """Whether `step` returns the finished flags of all steps so far."""
        return False


class BasicDecoderOutput(NamedTuple):
    """Outputs of a `BasicDecoder`.

    Attributes:
      rnn_output: outputs of the cell or of the output layer: [batch, time, size].
      sample_id: samples of the helper: [batch, time].

    Source: TensorFlow's `tf.contrib.seq2seq.BasicDecoderOutput`.
    """

    rnn_output: Any
    sample_id: Any


class BasicDecoder(Decoder):
    """Decoder that runs a cell with the inputs of a helper.

    Args:
      cell: the cell.
      helper: the helper, which chooses the inputs.
      initial_state: state of the cell before the first step.
      output_layer: a layer of the outputs of the cell, or None.

    Raises:
      TypeError: `cell` is not a cell, or `output_layer` cannot be called.

    Source: TensorFlow's `tf.contrib.seq2seq.BasicDecoder`.
    """

    def __init__(self, cell: Any, helper: Any, initial_state: Any, output_layer: Any = None) -> None:
        check_cell("cell", cell)
        if output_layer is not None and not callable(output_layer):
            raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}")
        self._cell, self._helper, self._initial_state, self._output_layer = cell, helper, initial_state, output_layer

    @property
    def batch_size(self) -> Any:
        """Number of examples."""
        return self._helper.batch_size

    @property
    def output_size(self) -> BasicDecoderOutput:
        """Sizes of the outputs."""
        return BasicDecoderOutput(output_size(self._cell, self._output_layer), self._helper.sample_ids_shape)

    @property
    def output_dtype(self) -> BasicDecoderOutput:
        """Dtypes of the outputs."""
        dtype = nest.flatten(self._initial_state)[0].dtype.base
        own = nest.map_leaves(lambda _: dtype, self._cell.output_size)
        return BasicDecoderOutput(own, self._helper.sample_ids_dtype)

    @in_default_graph
    def initialize(self, name: str | None = None) -> Any:
        """See `Decoder.initialize`."""
        return (*self._helper.initialize(), self._initial_state)

    @in_default_graph
    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """See `Decoder.step`."""
        with scopes.name_scope(name, "BasicDecoderStep", [time]):
            outputs, new = self._cell(inputs, state)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            ids = self._helper.sample(time=time, outputs=outputs, state=new)
            finished, next_inputs, new = self._helper.next_inputs(time=time, outputs=outputs, state=new, sample_ids=ids)
            return BasicDecoderOutput(outputs, ids), new, next_inputs, finished


def output_size(cell: Any, layer: Any) -> Any:
    """Returns the size of the outputs of a layer after a cell; None if unknown."""
    if layer is None:
        return cell.output_size
    units = getattr(layer, "units", None)
    return None if units is None else int(units)


@in_default_graph
def dynamic_decode(
    decoder: Any,
    output_time_major: bool = False,
    impute_finished: bool = False,
    maximum_iterations: Any = None,
    parallel_iterations: int = 32,
    swap_memory: bool = False,
    scope: Any = None,
    **kwargs: Any,
) -> tuple[Any, Any, Any]:
    """Runs a decoder until all examples are finished.

    Args:
      decoder: the `Decoder`.
      output_time_major: whether the outputs are [time, batch, ...]; otherwise [batch, time, ...].
      impute_finished: whether the outputs of finished examples are zeros and their states stay unchanged.
      maximum_iterations: largest number of steps: an int or an int32 scalar; None: no limit.
      parallel_iterations, swap_memory: see `tf.while_loop`.
      scope: a variable scope or its name. None: "decoder".
      kwargs: accepted as in TensorFlow, without effect.

    Returns:
      The outputs, the final state, and the number of steps of each example.

    Raises:
      TypeError: `decoder` is no decoder.
      ValueError: `maximum_iterations` is not a scalar.

    Source: TensorFlow's `tf.contrib.seq2seq.dynamic_decode`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     seq2seq, cell = tf.contrib.seq2seq, tf.nn.rnn_cell.GRUCell(5)
      ...     helper = seq2seq.GreedyEmbeddingHelper(tf.eye(5), start_tokens=[1, 2], end_token=0)
      ...     decoder = seq2seq.BasicDecoder(cell, helper, cell.zero_state(2, tf.float32))
      ...     outputs, state, lengths = seq2seq.dynamic_decode(decoder, maximum_iterations=4)
      ...     sess.run(tf.global_variables_initializer())
      ...     sess.run(outputs.rnn_output).shape[::2]
      (2, 5)
    """
    if not isinstance(decoder, Decoder):
        raise TypeError(f"Expected decoder to be type Decoder, but saw: {type(decoder)}")
    with variable_scope(scope, "decoder"):
        if maximum_iterations is not None:
            maximum_iterations = scopes.builder(maximum_iterations).tensor(
                maximum_iterations, dtypes.int32, "maximum_iterations"
            )
            if maximum_iterations.shape is not None and maximum_iterations.shape:
                raise ShapeError("maximum_iterations must be a scalar")
        finished, inputs, state = decoder.initialize()
        batch = decoder.batch_size
        if maximum_iterations is not None:
            finished = math.logical_or(finished, maximum_iterations <= 0)
        lengths = arrays.zeros_like(finished, dtype=dtypes.int32)
        known = tensors.constant_value(batch) if tensors.is_tensor(batch) else batch
        static = None if known is None else int(known)
        kinds = decoder.output_dtype
        pairs = zip(nest.flatten(kinds), nest.flatten_up_to(kinds, decoder.output_size), strict=True)
        written = [
            TensorArray(
                dtype, size=0, dynamic_size=True, element_shape=None if size is None else sizes.static(static, size)
            )
            for dtype, size in pairs
        ]

        def goes_on(time: Any, arrays_: Any, state: Any, inputs: Any, finished: Any, lengths: Any) -> Any:
            return math.logical_not(reductions.reduce_all(finished))

        def body(time: Any, arrays_: Any, state: Any, inputs: Any, finished: Any, lengths: Any) -> Any:
            outputs, new, next_inputs, done = decoder.step(time, inputs, state)
            ended = done if decoder.tracks_own_finished else math.logical_or(done, finished)
            lengths = select(math.logical_not(finished), arrays.fill(arrays.shape(lengths), time + 1), lengths)
            flat = nest.flatten(outputs)
            if impute_finished:
                flat = [select(finished, arrays.zeros_like(y), y) for y in flat]
                new = _carried(new, state, finished)
            arrays_ = [a.write(time, y) for a, y in zip(arrays_, flat, strict=True)]
            return time + 1, arrays_, new, next_inputs, ended, lengths

        start = scopes.builder().const(np.int32(0))
        _, written, state, _, _, lengths = control_flow.while_loop(
            goes_on, body, (start, written, state, inputs, finished, lengths),
            parallel_iterations=parallel_iterations, maximum_iterations=maximum_iterations, swap_memory=swap_memory,
        )  # fmt: skip
        outputs = nest.pack(kinds, [a.stack() for a in written])
        if type(decoder).finalize is not Decoder.finalize:
            outputs, state = decoder.finalize(outputs, state, lengths)
        if not output_time_major:
            outputs = nest.map_leaves(transpose_batch_time, outputs)
        return outputs, state, lengths


def select(condition: Any, x: Any, y: Any) -> Any:
    """Returns rows of `x` where the condition holds, and of `y` elsewhere."""
    for _ in range(len(y.shape) - len(condition.shape)):
        condition = arrays.expand_dims(condition, -1)
    return gathering.where(condition, x, y)


def _carried(new: Any, old: Any, finished: Any) -> Any:
    """Returns the old state of finished examples, and the new one of others."""
    flat = [
        x if nest.is_composite(x) or not x.shape else select(finished, y, x)
        for x, y in zip(nest.flatten(new, False), nest.flatten(old, False), strict=True)
    ]
    return nest.pack(old, flat, False)
