"""Summaries: values that a step reports to TensorBoard.

Each function creates an operation whose result is a string, the serialized summary. `merge` combines several, so that a
training loop fetches one tensor and passes it to `hr.train.FileWriter.add_summary`, with the step number:

    hr.summary.scalar("loss", loss)                 # the tag is the operation's name, scopes included: "loss"
    with hr.name_scope("net"):
        hr.summary.histogram("weights", w)          # "net/weights"

TensorBoard shows the values of all steps under the tag. Characters that are invalid in names become "_". With a
`family` the tag begins with the family instead of the scope, so that summaries of one family are shown together.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, public_names
from headrace.api import scopes
from headrace.files import summaries

_ILLEGAL = re.compile(r"[^-/\w.]", re.ASCII)
_log = logging.getLogger("headrace")


def cleaned(name: str | None) -> str | None:
    """A tag as a name that operations may have."""
    if name is None:
        return None
    out = _ILLEGAL.sub("_", name).lstrip("/")
    if out != name:
        _log.info("Summary name %s is illegal; using %s instead.", name, out)
    return out


@contextlib.contextmanager
def _tagged(name: str, family: str | None, values: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """The tag of a summary, and the scope that its operation has the name of."""
    name, family = cleaned(name) or "", cleaned(family)
    with scopes.name_scope(name if family is None else f"{family}/{name}", None, values) as scope:
        tag = scope.removesuffix("/")
        yield tag if family is None else f"{family}/{tag}", scope


def scalar(name: str, tensor: Any, family: str | None = None) -> Any:
    """The summary of a number.

    Args:
      name: name of the operation and, with the scopes around, the tag.
      tensor: the number, of any real dtype; the summary keeps a float32.
      family: the first part of the tag.

    Returns:
      A scalar string.

    Raises:
      InvalidArgumentError: it is no scalar (when it runs).

    Source: TensorFlow's `tf.summary.scalar`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     loss = hr.placeholder(hr.float32, ())
      ...     summary = scalar("loss", loss)
      >>> data = hr.Session(graph=g).run(summary, {loss: 0.25})
      >>> value = summaries.read(data).value[0]
      >>> value.tag, value.simple_value
      ('loss', 0.25)
    """
    with _tagged(name, family, [tensor]) as (tag, scope):
        return scopes.builder(tensor).make("ScalarSummary", (tag, tensor), {}, scope)


def histogram(name: str, values: Any, family: str | None = None) -> Any:
    """The summary of how numbers are distributed.

    Args:
      name: name of the operation and, with the scopes around, the tag.
      values: a tensor of any shape and real dtype.
      family: the first part of the tag.

    Returns:
      A scalar string.

    Raises:
      InvalidArgumentError: a number is not finite (when it runs).

    Source: TensorFlow's `tf.summary.histogram`.

    Example:
      >>> import headrace as hr
      >>> histo = summaries.read(histogram("weights", hr.constant([1.0, 2.0, 2.0])).numpy()).value[0].histo
      >>> histo.num, histo.max, histo.sum
      (3.0, 2.0, 5.0)
    """
    with _tagged(name, family, [values]) as (tag, scope):
        return scopes.builder(values).make("HistogramSummary", (tag, values), {}, scope)


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    family: str | None = None,
    bad_color: Sequence[int] = (255, 0, 0, 255),
) -> Any:
    """The summary of pictures, which are kept as PNG files. Needs Pillow.

    Bytes are shown as they are. Floats are scaled, each picture by itself: without negative ones, so that the greatest
    is white; with, so that the greatest magnitude is black or white and 0 in the middle.

    Args:
      name: name of the operation; the tags are that with the scopes, and "/image" or "/image/0", "/image/1", ...
      tensor: [batch, height, width, channels], of uint8, float16, float32 or float64, with 1, 3 or 4 channels.
      max_outputs: how many pictures of the batch, at most.
      family: the first part of the tags.
      bad_color: the color of pixels that are not finite: a number from 0 to 255 for each channel.

    Returns:
      A scalar string.

    Raises:
      InvalidArgumentError: it is of another shape (when it runs).

    Source: TensorFlow's `tf.summary.image`.

    Example:
      >>> import headrace as hr
      >>> shown = summaries.read(image("digit", hr.zeros([1, 8, 6, 1])).numpy()).value[0]
      >>> shown.tag, shown.image.height, shown.image.width
      ('digit/image/0', 8, 6)
    """
    attrs = {"max_images": max_outputs, "bad_color": np.array(bad_color, np.uint8)}
    with _tagged(name, family, [tensor]) as (tag, scope):
        return scopes.builder(tensor).make("ImageSummary", (tag, tensor), attrs, scope)


def audio(name: str, tensor: Any, sample_rate: Any, max_outputs: int = 3, family: str | None = None) -> Any:
    """The summary of sounds, which are kept as WAV files.

    Args:
      name: name of the operation; the tags are that with the scopes, and "/audio" or "/audio/0", "/audio/1", ...
      tensor: float32 [batch, frames, channels] or [batch, frames], from -1 to 1.
      sample_rate: frames a second, a float32 scalar.
      max_outputs: how many sounds of the batch, at most.
      family: the first part of the tags.

    Returns:
      A scalar string.

    Raises:
      InvalidArgumentError: it is of another shape, or the rate is not positive (when it runs).

    Source: TensorFlow's `tf.summary.audio`.

    Example:
      >>> import headrace as hr
      >>> sound = summaries.read(audio("tone", hr.zeros([1, 100]), 8000.0, max_outputs=1).numpy()).value[0]
      >>> sound.tag, sound.audio.length_frames
      ('tone/audio', 100)
    """
    with _tagged(name, family, [tensor, sample_rate]) as (tag, scope):
        b = scopes.builder(tensor, sample_rate)
        rate = b.tensor(sample_rate, dtypes.float32, "sample_rate")
        return b.make("AudioSummaryV2", (tag, tensor, rate), {"max_outputs": max_outputs}, scope)


def text(name: str, tensor: Any) -> Any:
    """The summary of text, which TensorBoard shows as Markdown; a matrix as a table.

    Args:
      name: name of the operation and, with the scopes around, the tag.
      tensor: strings, of any shape.

    Returns:
      A scalar string.

    Raises:
      ValueError: they are no strings.

    Source: TensorFlow's `tf.summary.text`.

    Example:
      >>> import headrace as hr
      >>> summaries.read(text("note", "so *it* is").numpy()).value[0].metadata.plugin_data.plugin_name
      'text'
    """
    dtype = getattr(tensor, "dtype", None)
    if isinstance(dtype, dtypes.DType) and dtype.base is not dtypes.string:
        raise ValueError(f"Expected tensor {tensor!r} to have dtype string, got {dtype.name}; hr.strings.as_string")
    x = tensor if isinstance(dtype, dtypes.DType) else scopes.builder().const(tensor, dtypes.string)
    return tensor_summary(name, x, summary_metadata=summaries.metadata(plugin="text"))


def tensor_summary(
    name: str,
    tensor: Any,
    summary_description: str | None = None,
    summary_metadata: Any = None,
    family: str | None = None,
    display_name: str | None = None,
) -> Any:
    """The summary of any tensor, with a note on how to show it.

    Args:
      name: name of the operation and, with the scopes around, the tag.
      tensor: of any shape and dtype but handles.
      summary_description: what TensorBoard says of it.
      summary_metadata: a `SummaryMetadata` message, or its bytes: which of TensorBoard's pages shows it.
      family: the first part of the tag.
      display_name: the title in TensorBoard; None: the tag.

    Returns:
      A scalar string.

    Source: TensorFlow's `tf.summary.tensor_summary`.

    Example:
      >>> import headrace as hr
      >>> made = tensor_summary("confusion", hr.constant([[3, 0], [1, 4]]), summary_description="rows: truth")
      >>> value = summaries.read(made.numpy()).value[0]
      >>> value.tag, value.metadata.summary_description
      ('confusion', 'rows: truth')
    """
    given = summary_metadata if summary_metadata is not None else b""
    note = given if isinstance(given, bytes) else given.SerializeToString()
    note = summaries.with_notes(note, summary_description, display_name)
    with _tagged(name, family, [tensor]) as (tag, scope):
        return scopes.builder(tensor).make("TensorSummaryV2", (tag, tensor, note), {}, scope)


def merge(inputs: Sequence[Any], name: str | None = None) -> Any:
    """One summary of all values of several.

    Args:
      inputs: summaries: strings of any shape.
      name: name of the operation; "Merge/MergeSummary" if None.

    Returns:
      A scalar string.

    Raises:
      ValueError: there are none.
      InvalidArgumentError: two values have one tag, or a string is no summary (when it runs).

    Source: TensorFlow's `tf.summary.merge`.

    Example:
      >>> both = merge([scalar("loss", 0.5), scalar("accuracy", 0.75)])
      >>> [v.tag for v in summaries.read(both.numpy()).value]
      ['loss', 'accuracy']
    """
    given = list(inputs)
    if not given:
        raise ValueError("merge needs at least one summary, got an empty list")
    clean = cleaned(name)
    with scopes.name_scope(clean, "Merge", given):
        return scopes.builder(*given).make("MergeSummary", (given,), {}, clean)


__all__ = ["audio", "histogram", "image", "merge", "scalar", "tensor_summary", "text"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
