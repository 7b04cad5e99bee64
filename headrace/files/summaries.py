"""Summaries as messages: values under tags, as TensorBoard reads them.

A `Summary` is a list of values, each with a tag: a number, a histogram, a picture, a sound, or any tensor with a note
on how to show it. Here these are made of what the message holds (a PNG file, counts in buckets) and put together. What
goes between operations is the serialized message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidArgumentError

if TYPE_CHECKING:
    from headrace.pb import Summary
    from headrace.pb.summary_pb2 import SummaryDescription


def _new() -> Summary:
    from headrace import pb

    return pb.Summary()


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def text_of(tag: bytes) -> str:
    """A tag as text.

    Raises:
      InvalidArgumentError: it is not UTF-8, and so cannot be in a message.
    """
    try:
        return tag.decode()
    except UnicodeDecodeError as e:
        raise InvalidArgumentError(f"a tag must be UTF-8, got {tag[:100]!r} ({e})") from None


def scalars(tags: Sequence[bytes], values: Sequence[float]) -> bytes:
    """The summary of numbers, each with its tag. The message holds them as float32."""
    made = _new()
    for tag, value in zip(tags, values, strict=True):
        made.value.add(tag=text_of(tag), simple_value=float(value))
    return _bytes(made)


def histogram(
    tag: bytes,
    least: float,
    greatest: float,
    number: float,
    total: float,
    squares: float,
    limits: Sequence[float],
    counts: Sequence[float],
) -> bytes:
    """The summary of a distribution.

    Args:
      tag: its tag.
      least, greatest, number, total, squares: of the numbers: the least and the greatest, how many, their sum, and the
        sum of their squares.
      limits: the upper end of each bucket; each begins where the one before ends.
      counts: how many numbers are in each.
    """
    made = _new()
    histo = made.value.add(tag=text_of(tag)).histo
    histo.min, histo.max, histo.num, histo.sum, histo.sum_squares = least, greatest, number, total, squares
    histo.bucket_limit.extend(limits)
    histo.bucket.extend(counts)
    return _bytes(made)


def images(tags: Sequence[bytes], files: Iterable[bytes], height: int, width: int, channels: int) -> bytes:
    """The summary of pictures of one size.

    Args:
      tags: a tag for each.
      files: each as a file of a format that browsers show: PNG, JPEG or GIF.
      height, width: pixels.
      channels: 1 (grey), 3 (red, green, blue) or 4 (and opacity).
    """
    made = _new()
    for tag, data in zip(tags, files, strict=True):
        image = made.value.add(tag=text_of(tag)).image
        image.height, image.width, image.colorspace, image.encoded_image_string = height, width, channels, data
    return _bytes(made)


def sounds(tags: Sequence[bytes], files: Iterable[bytes], rate: float, channels: int, frames: int) -> bytes:
    """The summary of sounds of one length.

    Args:
      tags: a tag for each.
      files: each as a WAV file.
      rate: frames a second.
      channels: how many.
      frames: how many, in each channel.
    """
    made = _new()
    for tag, data in zip(tags, files, strict=True):
        audio = made.value.add(tag=text_of(tag)).audio
        audio.sample_rate, audio.num_channels, audio.length_frames = rate, channels, frames
        audio.encoded_audio_string, audio.content_type = data, "audio/wav"
    return _bytes(made)


def tensor(proto: bytes, tag: bytes = b"", node: str = "", metadata: bytes | None = None) -> bytes:
    """The summary of a tensor.

    Args:
      proto: the serialized `TensorProto`.
      tag: its tag; b"": none.
      node: the name of the operation that the tensor is of, which stands for a tag where there is none.
      metadata: a serialized `SummaryMetadata`, which says how to show it; None: there is none.

    Raises:
      InvalidArgumentError: `metadata` cannot be parsed.
    """
    made = _new()
    value = made.value.add(tag=text_of(tag), node_name=node)
    value.tensor.ParseFromString(proto)
    if metadata is not None:
        _parse_metadata(value.metadata, metadata)
        value.metadata.SetInParent()
    return _bytes(made)


def metadata(plugin: str) -> bytes:
    """The serialized `SummaryMetadata` of tensors that the page `plugin` of TensorBoard shows."""
    from headrace import pb

    return _bytes(pb.SummaryMetadata(plugin_data=pb.SummaryMetadata.PluginData(plugin_name=plugin)))


def with_notes(given: bytes, description: str | None, display_name: str | None) -> bytes:
    """A serialized `SummaryMetadata` with another description and name, where these are not None.

    Raises:
      InvalidArgumentError: the one that is given cannot be parsed.
    """
    from headrace import pb

    made = pb.SummaryMetadata()
    _parse_metadata(made, given)
    if description is not None:
        made.summary_description = description
    if display_name is not None:
        made.display_name = display_name
    return _bytes(made)


def _parse_metadata(into: Any, given: bytes) -> None:
    from google.protobuf import message as protobuf

    try:
        into.ParseFromString(given)
    except protobuf.DecodeError as e:
        raise InvalidArgumentError(
            f"serialized_summary_metadata is no SummaryMetadata message ({len(given)} bytes): {e}"
        ) from None


def renamed(data: bytes, tags: Sequence[str]) -> bytes:
    """A serialized summary, with these tags for its values."""
    made = read(data)
    for value, tag in zip(made.value, tags, strict=True):
        value.tag = tag
    return _bytes(made)


def once_noted(data: Any, seen: set[str]) -> bytes:
    """A summary (see `read`), serialized, without the notes on tags whose note has been `seen`; adds to these."""
    given = read(data)
    if any(v.HasField("metadata") for v in given.value):
        copy = _new()
        copy.CopyFrom(given)
        given = copy
        for value in given.value:
            if value.HasField("metadata"):
                if value.tag in seen:
                    value.ClearField("metadata")
                seen.add(value.tag)
    return _bytes(given)


def read(data: Any) -> Summary:
    """The summary that bytes (or an array of one such) or a message of TensorFlow's are.

    Raises:
      InvalidArgumentError: the bytes are no summary. TypeError: it is neither.
    """
    from google.protobuf import message as protobuf

    from headrace import pb

    if isinstance(data, pb.Summary):
        return data
    if isinstance(data, protobuf.Message):
        data = data.SerializeToString()
    item = getattr(data, "item", None)
    if item is not None and getattr(data, "size", 0) == 1:
        data = item()
    if not isinstance(data, bytes):
        raise TypeError(
            f"a summary is a Summary message or its bytes, as session.run gives them, got {type(data).__name__}; "
            "run the tensor first"
        )
    try:
        return pb.Summary.FromString(data)
    except protobuf.DecodeError as e:
        raise InvalidArgumentError(f"{len(data)} bytes that are no Summary message: {e}") from None


def description(json: bytes) -> SummaryDescription:
    """The `SummaryDescription` that JSON says.

    Raises:
      ValueError: it is none.
    """
    from google.protobuf import json_format

    from headrace.pb.summary_pb2 import SummaryDescription

    try:
        return json_format.Parse(json, SummaryDescription())
    except (json_format.ParseError, UnicodeDecodeError) as e:
        raise ValueError(f"{json[:100]!r} is no SummaryDescription as JSON: {e}") from e


def merge(parts: Iterable[bytes]) -> bytes:
    """One summary of all values of several.

    Raises:
      InvalidArgumentError: a part is no summary, or two values have one tag.
    """
    made = _new()
    tags: set[str] = set()
    for i, part in enumerate(parts):
        try:
            summary = read(part)
        except InvalidArgumentError as e:
            raise InvalidArgumentError(f"Could not parse one of the summary inputs: input {i}: {e}") from None
        for value in summary.value:
            if value.tag and value.tag in tags:
                raise InvalidArgumentError(
                    f"Duplicate tag {value.tag} found in summary inputs; give each summary a name of its own"
                )
            tags.add(value.tag)
            made.value.append(value)
    return _bytes(made)
