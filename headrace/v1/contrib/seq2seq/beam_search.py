"""`BeamSearchDecoder`: it keeps the likeliest sequences of each example, the *beams*.

A step computes log probabilities of all continuations of all beams [batch, beam width * classes], and keeps the best
`beam width` by their scores. The states of the cell follow their beams. After the loop `gather_tree` reads the
sequences backward, from the ids and the numbers of the parent beams of each step.

A finished beam has one continuation, `end_token` with probability 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, nest
from headrace.api import arrays, functional, gathering, math, nn, reductions, scopes, tensors
from headrace.api.cond import cond
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import check_cell
from headrace.errors import ShapeError
from headrace.v1.contrib.seq2seq.decoding import Decoder
from headrace.v1.contrib.seq2seq.inputs import lookup_of
from headrace.v1.graph import in_default_graph
from headrace.v1.tensor_array import TensorArray
from headrace.v1.tensor_shape import TensorShape


class BeamSearchDecoderState(NamedTuple):
    """State of a `BeamSearchDecoder`; every tensor is [batch, beam width, ...].

    Attributes:
      cell_state: states of the cell.
      log_probs: log probabilities of the beams.
      finished: whether the beams have ended.
      lengths: numbers of steps of the beams.
      accumulated_attention_probs: sums of the weights of an attention, or () without a coverage penalty.

    Source: TensorFlow's `tf.contrib.seq2seq.BeamSearchDecoderState`.
    """

    cell_state: Any
    log_probs: Any
    finished: Any
    lengths: Any
    accumulated_attention_probs: Any


class BeamSearchDecoderOutput(NamedTuple):
    """Outputs of the steps of a `BeamSearchDecoder`: [batch, time, beam width].

    Attributes:
      scores: scores of the beams.
      predicted_ids: ids of the step.
      parent_ids: numbers of the beams of the step before that they continue.

    Source: TensorFlow's `tf.contrib.seq2seq.BeamSearchDecoderOutput`.
    """

    scores: Any
    predicted_ids: Any
    parent_ids: Any


class FinalBeamSearchDecoderOutput(NamedTuple):
    """Result of a beam search.

    Attributes:
      predicted_ids: [batch, time, beam width]: the sequences, the likeliest first.
      beam_search_decoder_output: the `BeamSearchDecoderOutput` of all steps.

    Source: TensorFlow's `tf.contrib.seq2seq.FinalBeamSearchDecoderOutput`.
    """

    predicted_ids: Any
    beam_search_decoder_output: Any


@in_default_graph
def tile_batch(t: Any, multiplier: int, name: str | None = None) -> Any:
    """Repeats each example: [batch, ...] becomes [batch * multiplier, ...].

    Args:
      t: a tensor [batch, ...], or a structure of them.
      multiplier: the number of copies of each example, such as the beam width.
      name: name of the scope.

    Source: TensorFlow's `tf.contrib.seq2seq.tile_batch`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Session() as sess:
      ...     sess.run(tf.contrib.seq2seq.tile_batch(tf.constant([1, 2]), 3))
      array([1, 1, 1, 2, 2, 2], dtype=int32)
    """
    flat = nest.flatten(t)
    with scopes.name_scope(name, "tile_batch", [*flat, multiplier]):

        def tiled(x: Any) -> Any:
            x = scopes.builder(x).tensor(x, None, "t")
            if x.shape is None:
                raise ShapeError("t must have statically known rank")
            dims = arrays.shape(x)
            rows = arrays.tile(arrays.expand_dims(x, 1), [1, multiplier] + [1] * (len(x.shape) - 1))
            out = arrays.reshape(rows, arrays.concat([dims[:1] * multiplier, dims[1:]], 0))
            first = x.shape[0]
            tensors.narrow(out, (None if first is None else first * multiplier, *x.shape[1:]))
            return out

        return nest.map_leaves(tiled, t)


@in_default_graph
def gather_tree(
    step_ids: Any, parent_ids: Any, max_sequence_lengths: Any, end_token: Any, name: str | None = None
) -> Any:
    """Returns the sequences of a beam search, read backward along the parents.

    Args:
      step_ids: the ids of each step: [time, batch, beams].
      parent_ids: the beam that each beam continues: [time, batch, beams].
      max_sequence_lengths: largest length of the beams of an example: [batch].
      end_token: the id that ends a sequence, which fills the rest.
      name: name of the scope.

    Source: TensorFlow's `tf.contrib.seq2seq.gather_tree`.
    """
    with scopes.name_scope(name, "GatherTree", [step_ids, parent_ids]):
        b = scopes.builder(step_ids, parent_ids)
        ids, parents = b.tensor(step_ids, dtypes.int32), b.tensor(parent_ids, dtypes.int32)
        lengths = b.tensor(max_sequence_lengths, dtypes.int32)
        end = b.tensor(end_token, dtypes.int32)
        dims = arrays.shape(ids)
        own = arrays.zeros_like(ids[0]) + reductions.range(dims[2])
        times = reductions.range(dims[0])

        def back(carried: Any, step: Any) -> Any:
            at, _ = carried
            time, here, above = step
            is_in = arrays.expand_dims(time < lengths, 1)
            found = gathering.where(is_in, gathering.gather(here, at, axis=1, batch_dims=1), end)
            return gathering.where(is_in, gathering.gather(above, at, axis=1, batch_dims=1), at), found

        _, found = functional.scan(back, (times, ids, parents), (own, arrays.zeros_like(own)), reverse=True)
        ended = reductions.cumsum(math.cast(math.equal(found, end), dtypes.int32), axis=0, exclusive=True)
        out = gathering.where(ended > 0, end, found)
        tensors.narrow(out, ids.shape)
        return out


class BeamSearchDecoder(Decoder):
    """Decoder that keeps the likeliest sequences.

    The initial state and the memory of an attention have `beam_width` copies of each example (`tile_batch`).

    Args:
      cell: the cell.
      embedding: the table of embeddings, or a function from ids to embeddings.
      start_tokens: the first id of each example: [batch].
      end_token: the id that ends a sequence: a scalar.
      initial_state: state of the cell: [batch * beam width, ...].
      beam_width: number of sequences of each example.
      output_layer: a layer from the outputs of the cell to logits, or None.
      length_penalty_weight: exponent of the length penalty; 0: none.
      coverage_penalty_weight: weight of the coverage penalty of an attention; 0: none.
      reorder_tensor_arrays: whether the tensor arrays of the state, such as `alignment_history`, are reordered by the
        beams at the end.

    Raises:
      TypeError: `cell` is not a cell, or `output_layer` cannot be called.
      ValueError: `start_tokens` is not a vector, or `end_token` not a scalar.

    Source: TensorFlow's `tf.contrib.seq2seq.BeamSearchDecoder`; Wu et al., "Google's neural machine translation system"
    (2016).
    """

    @in_default_graph
    def __init__(
        self, cell: Any, embedding: Any, start_tokens: Any, end_token: Any, initial_state: Any, beam_width: int,
        output_layer: Any = None, length_penalty_weight: float = 0.0, coverage_penalty_weight: float = 0.0,
        reorder_tensor_arrays: bool = True,
    ) -> None:  # fmt: skip
        check_cell("cell", cell)
        if output_layer is not None and not callable(output_layer):
            raise TypeError(f"output_layer must be a Layer, received: {type(output_layer)}")
        self._cell, self._output_layer, self._width = cell, output_layer, beam_width
        self._embedding_fn = lookup_of(embedding)
        b = scopes.builder(start_tokens, end_token)
        tokens = b.tensor(start_tokens, dtypes.int32, "start_tokens")
        self._end_token = b.tensor(end_token, dtypes.int32, "end_token")
        if tokens.shape is not None and len(tokens.shape) != 1:
            raise ShapeError("start_tokens must be a vector")
        if self._end_token.shape is not None and self._end_token.shape:
            raise ShapeError("end_token must be a scalar")
        self._length_weight, self._coverage_weight = length_penalty_weight, coverage_penalty_weight
        self._reorders = reorder_tensor_arrays
        self._batch_size = sizes.batch_size(tokens, 0)
        self._start_tokens = arrays.tile(arrays.expand_dims(tokens, 1), [1, beam_width])
        self._start_inputs = self._embedding_fn(self._start_tokens)
        self._initial_state = nest.pack(
            initial_state, [self._split(x) for x in nest.flatten(initial_state, False)], False
        )

    @property
    def batch_size(self) -> Any:
        """Number of examples, without the beams."""
        return self._batch_size

    @property
    def tracks_own_finished(self) -> bool:
        """True: a finished beam may be replaced by one that is not."""
        return True

    @property
    def output_size(self) -> BeamSearchDecoderOutput:
        """Sizes of the outputs: the beam width."""
        size = TensorShape([self._width])
        return BeamSearchDecoderOutput(size, size, size)

    @property
    def output_dtype(self) -> BeamSearchDecoderOutput:
        """Dtypes of the outputs."""
        dtype = next(x.dtype.base for x in nest.flatten(self._initial_state, False) if x.dtype.is_floating)
        return BeamSearchDecoderOutput(dtype, dtypes.int32, dtypes.int32)

    def _split(self, x: Any) -> Any:
        """Returns [batch, beam width, ...] for [batch * beam width, ...]."""
        if nest.is_composite(x) or not x.shape:
            return x
        dims = arrays.shape(x)
        out = arrays.reshape(x, arrays.concat([arrays.stack([self._batch_size, self._width]), dims[1:]], 0))
        static = self._batch_size if isinstance(self._batch_size, int) else None
        tensors.narrow(out, (static, self._width, *x.shape[1:]))
        return out

    def _merged(self, x: Any) -> Any:
        """Returns [batch * beam width, ...] for [batch, beam width, ...]."""
        if nest.is_composite(x) or not x.shape:
            return x
        dims = arrays.shape(x)
        out = arrays.reshape(x, arrays.concat([dims[:1] * self._width, dims[2:]], 0))
        static = None if x.shape[0] is None else x.shape[0] * self._width
        tensors.narrow(out, (static, *x.shape[2:]))
        return out

    @in_default_graph
    def initialize(self, name: str | None = None) -> Any:
        """Returns the flags, the inputs and the state of the first step."""
        # all beams but the first are impossible, so that the first step does not find each continuation several times
        finished = arrays.fill(arrays.stack([self._batch_size, self._width]), False)
        dtype = self.output_dtype.scores
        first = np.array([0.0] + [-np.inf] * (self._width - 1), dtype.numpy)
        log_probs = arrays.zeros_like(finished, dtype=dtype) + scopes.builder().const(first)
        sums: Any = ()
        if self._coverage_weight:
            sums = arrays.zeros_like(self._alignments(self._initial_state))
        static = (self._batch_size if isinstance(self._batch_size, int) else None, self._width)
        for x in (finished, log_probs):
            tensors.narrow(x, static)
        lengths = arrays.zeros_like(finished, dtype=dtypes.int64)
        return finished, self._start_inputs, BeamSearchDecoderState(
            self._initial_state, log_probs, finished, lengths, sums
        )  # fmt: skip

    @in_default_graph
    def step(self, time: Any, inputs: Any, state: Any, name: str | None = None) -> Any:
        """See `Decoder.step`."""
        with scopes.name_scope(name, "BeamSearchDecoderStep", [time]):
            inner = nest.pack(state.cell_state, [self._merged(x) for x in nest.flatten(state.cell_state, False)], False)
            outputs, new = self._cell(nest.map_leaves(self._merged, inputs), inner)
            if self._output_layer is not None:
                outputs = self._output_layer(outputs)
            logits = self._split(outputs)
            new = nest.pack(state.cell_state, [self._split(x) for x in nest.flatten(new, False)], False)
            made, after = self._searched(logits, new, state)
            is_done = reductions.reduce_all(after.finished)
            start = self._start_inputs
            next_inputs = cond(is_done, lambda: start, lambda: self._embedding_fn(made.predicted_ids))
            return made, after, next_inputs, after.finished

    def _searched(self, logits: Any, new: Any, state: Any) -> tuple[Any, Any]:
        """Returns the outputs and the next state for the logits of all beams."""
        classes = logits.shape[-1] or arrays.shape(logits)[-1]
        dtype = logits.dtype.base
        ended = arrays.expand_dims(state.finished, -1)
        only_end = arrays.one_hot(self._end_token, classes, on_value=0.0, off_value=float(_least(dtype)), dtype=dtype)
        steps = gathering.where(ended, only_end, nn.log_softmax(logits))
        totals = arrays.expand_dims(state.log_probs, -1) + steps
        is_longer = arrays.one_hot(self._end_token, classes, on_value=0, off_value=1, dtype=dtypes.int64)
        alive = math.cast(math.logical_not(ended), dtypes.int64)
        lengths = arrays.expand_dims(state.lengths, -1) + alive * is_longer
        scores, sums = self._scores(totals, lengths, new, state)
        flat = arrays.reshape(scores, arrays.stack([self._batch_size, -1]))
        best, places = nn.top_k(flat, self._width)
        static = (self._batch_size if isinstance(self._batch_size, int) else None, self._width)
        for x in (best, places):
            tensors.narrow(x, static)
        ids, parents = math.floormod(places, classes), math.floordiv(places, classes)

        def of_parent(x: Any) -> Any:
            if nest.is_composite(x) or not x.shape or len(x.shape) < 2:
                return x
            out = gathering.gather(x, parents, axis=1, batch_dims=1)
            tensors.narrow(out, x.shape)
            return out

        def of_place(x: Any) -> Any:
            out = gathering.gather(
                arrays.reshape(x, arrays.stack([self._batch_size, -1])), places, axis=1, batch_dims=1
            )
            tensors.narrow(out, static)
            return out

        was = of_parent(state.finished)
        finished = math.logical_or(was, math.equal(ids, self._end_token))
        after = BeamSearchDecoderState(
            nest.pack(new, [of_parent(x) for x in nest.flatten(new, False)], False),
            of_place(totals),
            finished,
            of_parent(state.lengths) + math.cast(math.logical_not(was), dtypes.int64),
            of_parent(sums) if self._coverage_weight else (),
        )
        return BeamSearchDecoderOutput(best, ids, parents), after

    def _scores(self, totals: Any, lengths: Any, new: Any, state: Any) -> tuple[Any, Any]:
        """Returns the scores, [batch, beam width, classes], and sums of attention weights."""
        dtype = totals.dtype.base
        if self._length_weight:
            # (5 + length)**weight / (5 + 1)**weight
            sizes_ = (math.cast(lengths, dtype) + 5.0) / 6.0
            scores = totals / math.pow(sizes_, self._length_weight)
        else:
            scores = totals
        if not self._coverage_weight:
            return scores, ()
        weights = self._alignments(new)
        alive = math.logical_not(arrays.expand_dims(state.finished, -1))
        sums = gathering.where(alive, state.accumulated_attention_probs + weights, state.accumulated_attention_probs)
        seen = math.log(math.minimum(sums, arrays.ones_like(sums)))
        penalty = reductions.reduce_sum(gathering.where(sums > 0, seen, arrays.zeros_like(seen)), [2])
        return scores + arrays.expand_dims(self._coverage_weight * penalty, -1), sums

    @staticmethod
    def _alignments(state: Any) -> Any:
        """Returns the weights of the attention in the state of the cell.

        Raises:
          ValueError: the state has none, or those of several mechanisms.
        """
        found = getattr(state, "alignments", None)
        if found is None or isinstance(found, tuple):
            raise ValueError("A coverage penalty needs the state of an AttentionWrapper with one attention mechanism")
        return found

    @in_default_graph
    def finalize(self, outputs: Any, final_state: Any, sequence_lengths: Any) -> Any:
        """Returns the sequences of the beams, a `FinalBeamSearchDecoderOutput`, and the state."""
        longest = math.cast(reductions.reduce_max(final_state.lengths, [1]), dtypes.int32)
        ids = gather_tree(outputs.predicted_ids, outputs.parent_ids, longest, self._end_token)
        if self._reorders:
            flat = [
                self._reordered(x, outputs.parent_ids, final_state.lengths) if isinstance(x, TensorArray) else x
                for x in nest.flatten(final_state.cell_state, False)
            ]
            final_state = final_state._replace(cell_state=nest.pack(final_state.cell_state, flat, False))
        return FinalBeamSearchDecoderOutput(ids, outputs), final_state

    def _reordered(self, array: Any, parent_ids: Any, lengths: Any) -> Any:
        """Returns the elements of a tensor array in the order of the final beams.

        Steps after the end of a beam stay in their order.
        """
        x = array.stack()
        dims = arrays.shape(x)
        whole = arrays.reshape(x, arrays.stack([dims[0], self._batch_size, self._width, -1]))
        own = arrays.zeros_like(parent_ids) + reductions.range(self._width)
        longest = math.cast(reductions.reduce_max(lengths, [1]), dtypes.int32)
        beams = gather_tree(own, parent_ids, longest, self._width + 1)
        is_in = arrays.transpose(gathering.sequence_mask(lengths, dims[0]), [2, 0, 1])
        found = gathering.gather(whole, gathering.where(is_in, beams, own), axis=2, batch_dims=2)
        out = arrays.reshape(found, dims)
        tensors.narrow(out, x.shape)
        return out


def _least(t: dtypes.DType) -> float:
    return float(np.finfo(t.numpy).min)
