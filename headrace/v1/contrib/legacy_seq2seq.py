"""TensorFlow 1's `tf.contrib.legacy_seq2seq`: encoders and decoders without loops, for lists of time steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, nest
from headrace.api import arrays, initializers, linalg, math, nn, reductions, scopes, tensors
from headrace.api.cond import cond
from headrace.api.layers.base import Layer
from headrace.api.nn import embedding
from headrace.api.rnn import sizes
from headrace.errors import ShapeError
from headrace.v1 import rnn
from headrace.v1.contrib import equivalents
from headrace.v1.contrib.rnn.wrappers import EmbeddingWrapper, OutputProjectionWrapper
from headrace.v1.graph import in_default_graph
from headrace.v1.variable_scopes import get_variable_scope, variable_scope
from headrace.v1.variable_store import get_variable

LoopFunction = Callable[[Any, Any], Any]


def _unbuilt(cell: Any) -> Any:
    """Returns a copy of a cell that makes or finds its own variables."""
    if not isinstance(cell, Layer):
        return copy.deepcopy(cell)
    made = cell._copied({})
    todo = [made]
    while todo:
        layer = todo.pop()
        layer.built, layer._scope, layer._stands_in = False, None, None
        layer._own_variables, layer._own_losses, layer._own_updates = [], [], []
        todo += layer._inside
    return made


class _Linear:
    """[inputs] @ kernel + bias, with variables that a later call finds again."""

    def __init__(self, inputs: Sequence[Any], size: int, has_bias: bool = True) -> None:
        rows = sum(int(x.shape[1]) for x in inputs)
        dtype = inputs[0].dtype.base
        scope = get_variable_scope()
        with variable_scope(scope) as outer:
            self._kernel = get_variable("kernel", [rows, size], dtype)
            self._bias = None
            if has_bias:
                with variable_scope(outer) as inner:
                    inner.set_partitioner(None)
                    self._bias = get_variable("bias", [size], dtype, initializers.zeros())

    def __call__(self, inputs: Sequence[Any]) -> Any:
        y = linalg.matmul(inputs[0] if len(inputs) == 1 else arrays.concat(list(inputs), 1), self._kernel)
        return y if self._bias is None else nn.bias_add(y, self._bias)


def _looked_up(table: Any, projection: Any, update: bool) -> LoopFunction:
    """Returns the function from an output to the embedding of its likeliest id."""

    def loop_function(previous: Any, _: Any) -> Any:
        if projection is not None:
            previous = nn.bias_add(linalg.matmul(previous, projection[0]), projection[1])
        found = embedding.rows(table, reductions.argmax(previous, 1))
        return found if update else tensors.stop_gradient(found)

    return loop_function


@in_default_graph
def rnn_decoder(
    decoder_inputs: Sequence[Any], initial_state: Any, cell: Any, loop_function: LoopFunction | None = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Runs a cell for each input.

    Args:
      decoder_inputs: inputs [batch, size] of each step.
      initial_state: state before the first step.
      cell: the cell.
      loop_function: a function (output, number of the step) that returns the next input, in place of
        `decoder_inputs`; None: those are used.
      scope: a variable scope or its name. None: "rnn_decoder".

    Returns:
      The outputs of all steps, and the final state.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.rnn_decoder`.
    """
    with variable_scope(scope or "rnn_decoder"):
        state, outputs, previous = initial_state, [], None
        for i, given in enumerate(decoder_inputs):
            x = given
            if loop_function is not None and previous is not None:
                with variable_scope("loop_function", reuse=True):
                    x = loop_function(previous, i)
            if i > 0:
                get_variable_scope().reuse_variables()
            output, state = cell(x, state)
            outputs.append(output)
            previous = output if loop_function is not None else None
    return outputs, state


@in_default_graph
def basic_rnn_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], cell: Any, dtype: Any = dtypes.float32,
    scope: Any = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Encodes a sequence by one cell, and decodes from its last state by another one.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.basic_rnn_seq2seq`.
    """
    with variable_scope(scope or "basic_rnn_seq2seq"):
        _, state = rnn.static_rnn(_unbuilt(cell), list(encoder_inputs), dtype=dtype)
        return rnn_decoder(decoder_inputs, state, cell)


@in_default_graph
def tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], cell: Any,
    loop_function: LoopFunction | None = None, dtype: Any = dtypes.float32, scope: Any = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Encodes and decodes by one cell with the same variables. See `rnn_decoder`.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.tied_rnn_seq2seq`.
    """
    with variable_scope("combined_tied_rnn_seq2seq"):
        scope = scope or "tied_rnn_seq2seq"
        _, state = rnn.static_rnn(cell, list(encoder_inputs), dtype=dtype, scope=scope)
        get_variable_scope().reuse_variables()
        return rnn_decoder(decoder_inputs, state, cell, loop_function, scope)


@in_default_graph
def embedding_rnn_decoder(
    decoder_inputs: Sequence[Any], initial_state: Any, cell: Any, num_symbols: int, embedding_size: int,
    output_projection: Any = None, feed_previous: bool = False, update_embedding_for_previous: bool = True,
    scope: Any = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Runs a cell for the embeddings of ids; the variable is "embedding".

    Args:
      decoder_inputs: ids [batch] of each step.
      initial_state: state before the first step.
      cell: the cell.
      num_symbols: number of ids.
      embedding_size: size of an embedding.
      output_projection: weights and biases from outputs to logits, or None.
      feed_previous: whether the likeliest ids of a step are the inputs of the next one.
      update_embedding_for_previous: whether gradients reach the embeddings of such ids.
      scope: a variable scope or its name. None: "embedding_rnn_decoder".

    Returns:
      The outputs of all steps, and the final state.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.embedding_rnn_decoder`.
    """
    with variable_scope(scope or "embedding_rnn_decoder"):
        if output_projection is not None:
            dtype = output_projection[0].dtype.base
            table = get_variable("embedding", [num_symbols, embedding_size], dtype)
        else:
            table = get_variable("embedding", [num_symbols, embedding_size])
        follows = _looked_up(table, output_projection, update_embedding_for_previous) if feed_previous else None
        return rnn_decoder([embedding.rows(table, i) for i in decoder_inputs], initial_state, cell, follows)


def _switched(feed_previous: Any, decode: Callable[[bool], tuple[list[Any], Any]]) -> tuple[list[Any], Any]:
    """Returns the results of `decode` with a flag that may be a tensor."""
    if isinstance(feed_previous, bool):
        return decode(feed_previous)
    forms: list[Any] = []

    def branch(flag: bool) -> list[Any]:
        scope = get_variable_scope()
        with variable_scope(scope, reuse=None if flag else True):
            outputs, state = decode(flag)
            forms.append((outputs, state))
            return [*outputs, *nest.flatten(state)]

    found = cond(feed_previous, lambda: branch(True), lambda: branch(False))
    outputs, state = forms[0]
    n = len(outputs)
    return list(found[:n]), nest.pack(state, list(found[n:]))


@in_default_graph
def embedding_rnn_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], cell: Any, num_encoder_symbols: int,
    num_decoder_symbols: int, embedding_size: int, output_projection: Any = None, feed_previous: Any = False,
    dtype: Any = None, scope: Any = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Encodes the embeddings of ids, and decodes from the last state. See `embedding_rnn_decoder`.

    Without `output_projection` the outputs are logits of a projection that the cell of the decoder gets.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.embedding_rnn_seq2seq`.
    """
    with variable_scope(scope or "embedding_rnn_seq2seq") as sc:
        if dtype is not None:
            sc.set_dtype(dtype)
        encoder = EmbeddingWrapper(_unbuilt(cell), num_encoder_symbols, embedding_size)
        _, state = rnn.static_rnn(encoder, list(encoder_inputs), dtype=dtype or sc.dtype)
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)

        def decode(flag: bool) -> tuple[list[Any], Any]:
            return embedding_rnn_decoder(
                decoder_inputs, state, cell, num_decoder_symbols, embedding_size, output_projection, flag
            )

        return _switched(feed_previous, decode)


@in_default_graph
def embedding_tied_rnn_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], cell: Any, num_symbols: int, embedding_size: int,
    num_decoder_symbols: int | None = None, output_projection: Any = None, feed_previous: Any = False,
    dtype: Any = None, scope: Any = None,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Encodes and decodes by one cell and one table of embeddings. See `embedding_rnn_decoder`.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.embedding_tied_rnn_seq2seq`.
    """
    with variable_scope(scope or "embedding_tied_rnn_seq2seq", dtype=dtype) as sc:
        table = get_variable("embedding", [num_symbols, embedding_size], sc.dtype)
        inputs = [embedding.rows(table, i) for i in encoder_inputs]
        targets = [embedding.rows(table, i) for i in decoder_inputs]
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols or num_symbols)

        def decode(flag: bool) -> tuple[list[Any], Any]:
            follows = _looked_up(table, output_projection, True) if flag else None
            return tied_rnn_seq2seq(inputs, targets, cell, follows, sc.dtype)

        return _switched(feed_previous, decode)


@in_default_graph
def attention_decoder(
    decoder_inputs: Sequence[Any], initial_state: Any, attention_states: Any, cell: Any,
    output_size: int | None = None, num_heads: int = 1, loop_function: LoopFunction | None = None,
    dtype: Any = None, scope: Any = None, initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Runs a cell with attention to a memory for each input.

    Variables of each head a: AttnW_a [1, 1, size, size], AttnV_a [size], Attention_a/kernel and bias; kernel and bias
    of the inputs; AttnOutputProjection/kernel and bias.

    Args:
      decoder_inputs: inputs [batch, size] of each step.
      initial_state: state before the first step.
      attention_states: the memory: [batch, steps, size].
      cell: the cell.
      output_size: size of the outputs; None: that of the cell.
      num_heads: number of attentions.
      loop_function: see `rnn_decoder`.
      dtype: dtype of the variables; None: that of the scope.
      scope: a variable scope or its name. None: "attention_decoder".
      initial_state_attention: whether the attention of the first step is that of the initial state; otherwise zeros.

    Returns:
      The outputs of all steps, and the final state.

    Raises:
      ValueError: there are no inputs or heads, or a size of the memory is unknown.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.attention_decoder`; Vinyals et al., "Grammar as a foreign language"
    (2015).
    """
    if not decoder_inputs:
        raise ValueError("Must provide at least 1 input to attention decoder.")
    if num_heads < 1:
        raise ValueError("With less than 1 heads, use a non-attention decoder.")
    memory = attention_states
    if memory.shape is None or len(memory.shape) != 3 or memory.shape[2] is None:
        raise ShapeError(f"Shape[2] of attention_states must be known: {memory.shape}")
    output_size = sizes.width(cell.output_size) if output_size is None else output_size
    with variable_scope(scope or "attention_decoder", dtype=dtype) as sc:
        dtype, size = sc.dtype, int(memory.shape[2])
        keys, vectors = [], []
        for a in range(num_heads):
            kernel = get_variable(f"AttnW_{a}", [1, 1, size, size], dtype)
            keys.append(linalg.tensordot(memory, arrays.reshape(kernel, [size, size]), 1))
            vectors.append(get_variable(f"AttnV_{a}", [size], dtype))

        def attention(state: Any) -> list[Any]:
            flat = nest.flatten(state)
            query = flat[0] if len(flat) == 1 else arrays.concat(flat, 1)
            found = []
            for a in range(num_heads):
                with variable_scope(f"Attention_{a}"):
                    y = arrays.expand_dims(_Linear([query], size)([query]), 1)
                    scores = reductions.reduce_sum(vectors[a] * math.tanh(keys[a] + math.cast(y, dtype)), [2])
                    weights = arrays.expand_dims(nn.softmax(scores), 2)
                    found.append(reductions.reduce_sum(weights * memory, [1]))
            return found

        batch = sizes.batch_size(decoder_inputs[0], 0)
        attended = [sizes.zeros(batch, size, dtype) for _ in range(num_heads)]
        if initial_state_attention:
            attended = attention(initial_state)
        state, outputs, previous = initial_state, [], None
        for i, given in enumerate(decoder_inputs):
            if i > 0:
                get_variable_scope().reuse_variables()
            x = given
            if loop_function is not None and previous is not None:
                with variable_scope("loop_function", reuse=True):
                    x = loop_function(previous, i)
            if x.shape is None or len(x.shape) != 2 or x.shape[1] is None:
                raise ShapeError(f"Could not infer input size from input: {x.name}")
            x = _Linear([x, *attended], int(x.shape[1]))([x, *attended])
            output, state = cell(x, state)
            if i == 0 and initial_state_attention:
                with variable_scope(get_variable_scope(), reuse=True):
                    attended = attention(state)
            else:
                attended = attention(state)
            with variable_scope("AttnOutputProjection"):
                both = [math.cast(output, dtype), *attended]
                output = _Linear(both, output_size)(both)
            previous = output if loop_function is not None else None
            outputs.append(output)
    return outputs, state


@in_default_graph
def embedding_attention_decoder(
    decoder_inputs: Sequence[Any], initial_state: Any, attention_states: Any, cell: Any, num_symbols: int,
    embedding_size: int, num_heads: int = 1, output_size: int | None = None, output_projection: Any = None,
    feed_previous: bool = False, update_embedding_for_previous: bool = True, dtype: Any = None, scope: Any = None,
    initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Runs a cell with attention for the embeddings of ids. See `attention_decoder`, `embedding_rnn_decoder`.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.embedding_attention_decoder`.
    """
    output_size = sizes.width(cell.output_size) if output_size is None else output_size
    with variable_scope(scope or "embedding_attention_decoder", dtype=dtype):
        table = get_variable("embedding", [num_symbols, embedding_size])
        follows = _looked_up(table, output_projection, update_embedding_for_previous) if feed_previous else None
        return attention_decoder(
            [embedding.rows(table, i) for i in decoder_inputs], initial_state, attention_states, cell, output_size,
            num_heads, follows, initial_state_attention=initial_state_attention,
        )  # fmt: skip


@in_default_graph
def embedding_attention_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], cell: Any, num_encoder_symbols: int,
    num_decoder_symbols: int, embedding_size: int, num_heads: int = 1, output_projection: Any = None,
    feed_previous: Any = False, dtype: Any = None, scope: Any = None, initial_state_attention: bool = False,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Encodes the embeddings of ids, and decodes with attention to the outputs of the encoder.

    The arguments are those of `embedding_rnn_seq2seq` and `attention_decoder`.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.embedding_attention_seq2seq`.
    """
    with variable_scope(scope or "embedding_attention_seq2seq", dtype=dtype) as sc:
        encoder = EmbeddingWrapper(_unbuilt(cell), num_encoder_symbols, embedding_size)
        found, state = rnn.static_rnn(encoder, list(encoder_inputs), dtype=sc.dtype)
        memory = arrays.stack(found, 1)
        output_size = None
        if output_projection is None:
            cell = OutputProjectionWrapper(cell, num_decoder_symbols)
            output_size = num_decoder_symbols

        def decode(flag: bool) -> tuple[list[Any], Any]:
            return embedding_attention_decoder(
                decoder_inputs, state, memory, cell, num_decoder_symbols, embedding_size, num_heads, output_size,
                output_projection, flag, initial_state_attention=initial_state_attention,
            )  # fmt: skip

        return _switched(feed_previous, decode)


# *** losses ***


@in_default_graph
def sequence_loss_by_example(
    logits: Sequence[Any], targets: Sequence[Any], weights: Sequence[Any], average_across_timesteps: bool = True,
    softmax_loss_function: Callable[..., Any] | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """Returns the weighted cross entropy of each example: [batch].

    Args:
      logits: [batch, classes] of each step.
      targets: ids [batch] of each step.
      weights: [batch] of each step.
      average_across_timesteps: whether the loss is divided by the sum of the weights.
      softmax_loss_function: a function (labels, logits) that returns losses; None: the sparse cross entropy.
      name: name of the scope.

    Raises:
      ValueError: the numbers of steps differ.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.sequence_loss_by_example`.
    """
    if not len(targets) == len(logits) == len(weights):
        raise ValueError(
            f"Lengths of logits, weights, and targets must be the same {len(logits)}, {len(weights)}, {len(targets)}."
        )
    with scopes.name_scope(name, "sequence_loss_by_example", [*logits, *targets, *weights]):
        b = scopes.builder(*logits)
        found = []
        for x, y, w in zip(logits, targets, weights, strict=True):
            if softmax_loss_function is None:
                labels = arrays.reshape(y, [-1])
                loss = nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x)
            else:
                loss = softmax_loss_function(labels=y, logits=x)
            found.append(loss * w)
        total = math.add_n(found)
        if not average_across_timesteps:
            return total
        return total / (math.add_n(list(weights)) + b.const(1e-12, total.dtype.base))


@in_default_graph
def sequence_loss(
    logits: Sequence[Any], targets: Sequence[Any], weights: Sequence[Any], average_across_timesteps: bool = True,
    average_across_batch: bool = True, softmax_loss_function: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Returns the sum of `sequence_loss_by_example`, or with `average_across_batch` the mean.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.sequence_loss`.
    """
    with scopes.name_scope(name, "sequence_loss", [*logits, *targets, *weights]):
        cost = reductions.reduce_sum(
            sequence_loss_by_example(logits, targets, weights, average_across_timesteps, softmax_loss_function)
        )
        if not average_across_batch:
            return cost
        return cost / math.cast(arrays.shape(targets[0])[0], cost.dtype.base)


@in_default_graph
def model_with_buckets(
    encoder_inputs: Sequence[Any], decoder_inputs: Sequence[Any], targets: Sequence[Any], weights: Sequence[Any],
    buckets: Sequence[tuple[int, int]], seq2seq: Callable[[Any, Any], Any],
    softmax_loss_function: Callable[..., Any] | None = None, per_example_loss: bool = False, name: str | None = None,
) -> tuple[list[list[Any]], list[Any]]:  # fmt: skip
    """Makes a model for each bucket of lengths; all have the same variables.

    Args:
      encoder_inputs, decoder_inputs, targets, weights: tensors of each step, as many as the largest bucket has.
      buckets: pairs of the numbers of steps of inputs and of outputs.
      seq2seq: a function from the inputs of encoder and decoder to outputs and a state.
      softmax_loss_function: see `sequence_loss_by_example`.
      per_example_loss: whether a loss is [batch]; otherwise it is the mean.
      name: name of the scope.

    Returns:
      For each bucket the outputs of its steps, and for each bucket the loss.

    Raises:
      ValueError: there are fewer steps than the last bucket has.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.model_with_buckets`.
    """
    for what, given, wanted in (
        ("encoder_inputs", encoder_inputs, buckets[-1][0]), ("targets", targets, buckets[-1][1]),
        ("weights", weights, buckets[-1][1]),
    ):  # fmt: skip
        if len(given) < wanted:
            raise ValueError(f"Length of {what} ({len(given)}) must be at least that of last bucket ({wanted}).")
    outputs, losses = [], []
    with scopes.name_scope(name, "model_with_buckets", [*encoder_inputs, *decoder_inputs, *targets, *weights]):
        for j, (n, m) in enumerate(buckets):
            with variable_scope(get_variable_scope(), reuse=True if j > 0 else None):
                found, _ = seq2seq(encoder_inputs[:n], decoder_inputs[:m])
                outputs.append(found)
                loss = sequence_loss_by_example if per_example_loss else sequence_loss
                losses.append(loss(found, targets[:m], weights[:m], softmax_loss_function=softmax_loss_function))
    return outputs, losses


@in_default_graph
def one2many_rnn_seq2seq(
    encoder_inputs: Sequence[Any], decoder_inputs_dict: dict[str, Sequence[Any]], enc_cell: Any,
    dec_cells_dict: dict[str, Any], num_encoder_symbols: int, num_decoder_symbols_dict: dict[str, int],
    embedding_size: int, feed_previous: Any = False, dtype: Any = None, scope: Any = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Encodes a sequence once, and decodes it by several decoders, by name.

    Source: TensorFlow's `tf.contrib.legacy_seq2seq.one2many_rnn_seq2seq`.
    """
    outputs, states = {}, {}
    with variable_scope(scope or "one2many_rnn_seq2seq", dtype=dtype) as sc:
        encoder = EmbeddingWrapper(enc_cell, num_encoder_symbols, embedding_size)
        _, state = rnn.static_rnn(encoder, list(encoder_inputs), dtype=sc.dtype)
        for name, inputs in decoder_inputs_dict.items():
            n = num_decoder_symbols_dict[name]
            with variable_scope(f"one2many_decoder_{name}"):
                cell = OutputProjectionWrapper(dec_cells_dict[name], n)

                def decode(flag: bool, inputs: Any = inputs, cell: Any = cell, n: int = n) -> tuple[list[Any], Any]:
                    return embedding_rnn_decoder(inputs, state, cell, n, embedding_size, None, flag)

                outputs[name], states[name] = _switched(feed_previous, decode)
    return outputs, states


__all__ = [
    "attention_decoder", "basic_rnn_seq2seq", "embedding_attention_decoder", "embedding_attention_seq2seq",
    "embedding_rnn_decoder", "embedding_rnn_seq2seq", "embedding_tied_rnn_seq2seq", "model_with_buckets",
    "one2many_rnn_seq2seq", "rnn_decoder", "sequence_loss", "sequence_loss_by_example", "tied_rnn_seq2seq",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
