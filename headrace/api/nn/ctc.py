"""Connectionist temporal classification: losses for label sequences shorter than their predictions.

Source: "Connectionist temporal classification" (Graves, Fernández, Gomez and Schmidhuber, 2006).
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api import arrays, gathering, math, scopes
from headrace.api.sparse_tensor import SparseTensor
from headrace.ir.tensor_type import Tensor


def ctc_loss(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    unique: Any = None,
    blank_index: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Computes -log of the probability of label sequences, summed over all alignments with time.

    Args:
      labels: a SparseTensor [batch, time] of int32, or an int32 matrix, in whose row i the first label_length[i] labels
        are used.
      logits: floats, [time, batch, classes]; one of the classes is the blank between labels.
      label_length: an int vector: number of labels in each row of a matrix; ignored for a SparseTensor.
      logit_length: an int vector: number of time steps of each sequence.
      logits_time_major: whether time is the first axis of the logits; otherwise the batch is.
      unique: ignored; accepted for compatibility with TensorFlow.
      blank_index: the class of the blank, negative: counted from the end; None: 0. A SparseTensor requires it.
      name: name of the scope; "ctc_loss" if None.

    Returns:
      A vector: the loss of each sequence.

    Raises:
      ValueError: there is no `blank_index` for a SparseTensor, or the number of classes is unknown.
      InvalidArgumentError: in a run: the labels need more time steps than there are.

    Source: TensorFlow's `tf.nn.ctc_loss`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.ctc_loss([[1]], hr.zeros((1, 1, 2)), [1], [1]).numpy()
      array([0.6931472], dtype=float32)
    """
    is_sparse = isinstance(labels, SparseTensor)
    if is_sparse and blank_index is None:
        raise ValueError("'blank_index' must be given when 'labels' is a SparseTensor")
    with scopes.name_scope(name, "ctc_loss", [logits, logit_length]):
        b = scopes.builder(logits, logit_length)
        x = b.tensor(logits, None, "logits")
        if not logits_time_major:
            x = arrays.transpose(x, (1, 0, 2))
        classes = x.shape[2] if x.shape is not None and len(x.shape) == 3 else None
        if classes is None:
            raise ValueError(f"ctc_loss needs to know the number of classes, the last axis of 'logits', got {x!r}")
        blank = 0 if blank_index is None else blank_index + classes * (blank_index < 0)
        indices, values = (labels.indices, labels.values) if is_sparse else _dense(b, labels, label_length)
        if blank != classes - 1:  # the operation's blank is the last class
            x = arrays.concat([x[:, :, :blank], x[:, :, blank + 1 :], x[:, :, blank : blank + 1]], 2)
            values = gathering.where(math.less(values, blank), values, math.subtract(values, 1))
        return sparse_loss(x, indices, values, logit_length, {})


def _dense(b: Any, labels: Any, label_length: Any) -> tuple[Any, Any]:
    """Returns the indices and values of the labels of a matrix that `label_length` includes."""
    labels = b.tensor(labels, None, "labels")
    indices = gathering.where(gathering.sequence_mask(label_length, arrays.shape(labels)[1]))
    return indices, gathering.gather_nd(labels, indices)


def sparse_loss(x: Any, indices: Any, values: Any, lengths: Any, attrs: dict[str, Any]) -> Any:
    """Adds the op CTCLoss; half-precision logits are computed in float32."""
    t = x.dtype.base
    is_half = t in (dtypes.float16, dtypes.bfloat16)
    given = math.cast(x, dtypes.float32) if is_half else x
    b = scopes.builder(given, indices, values)
    loss, _ = b.make("CTCLoss", (given, indices, math.cast(values, dtypes.int32), lengths), attrs)
    return math.cast(loss, t) if is_half else loss


def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: bool = True, blank_index: int | None = None
) -> tuple[list[SparseTensor], Tensor]:
    """Decodes labels by taking the most likely class at each step.

    Args:
      inputs: logits: floats, [time, batch, classes].
      sequence_length: an int vector: number of time steps of each sequence.
      merge_repeated: whether equal labels at adjacent steps, without a blank between them, are merged.
      blank_index: the class of the blank; None: the last.

    Returns:
      A list of one SparseTensor [batch, time] of int64, without blanks, and a tensor [batch, 1]: minus the sum of the
      greatest logits.

    Source: TensorFlow's `tf.nn.ctc_greedy_decoder`.

    Example:
      >>> import headrace as hr
      >>> (found,), _ = hr.nn.ctc_greedy_decoder([[[9.0, 0.0, 0.0]], [[0.0, 9.0, 0.0]], [[0.0, 9.0, 0.0]]], [3])
      >>> found.values.numpy().tolist()
      [0, 1]
    """
    attrs = {"merge_repeated": merge_repeated, "blank_index": -1 if blank_index is None else blank_index}
    b = scopes.builder(inputs, sequence_length)
    *parts, score = b.make("CTCGreedyDecoder", (inputs, sequence_length), attrs)
    return [SparseTensor(*parts)], score


def ctc_beam_search_decoder(
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1, merge_repeated: bool = False
) -> tuple[list[SparseTensor], Tensor]:
    """Decodes the most likely label sequences by beam search.

    Args:
      inputs: logits: floats, [time, batch, classes]; the blank is the last class.
      sequence_length: an int vector: number of time steps of each sequence.
      beam_width: number of sequences that the search keeps at each step.
      top_paths: number of sequences to return, at most `beam_width`.
      merge_repeated: whether equal adjacent labels of a result are merged.

    Returns:
      A list of `top_paths` SparseTensors [batch, time] of int64, and their log probabilities [batch, top_paths].

    Source: TensorFlow's `tf.nn.ctc_beam_search_decoder`.

    Example:
      >>> import headrace as hr
      >>> (found,), _ = hr.nn.ctc_beam_search_decoder([[[9.0, 0.0, 0.0]], [[0.0, 9.0, 0.0]]], [2])
      >>> found.values.numpy().tolist()
      [0, 1]
    """
    attrs = {"beam_width": int(beam_width), "top_paths": int(top_paths), "merge_repeated": merge_repeated}
    b = scopes.builder(inputs, sequence_length)
    made = b.make("CTCBeamSearchDecoder", (inputs, sequence_length), attrs)
    parts = [made[n * top_paths : (n + 1) * top_paths] for n in range(3)]
    return [SparseTensor(*p) for p in zip(*parts, strict=True)], made[-1]
