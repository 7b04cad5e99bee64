"""Summary messages: values with tags, as TensorBoard reads them.

A `Summary` is a list of values, each with a tag: a number, a histogram, an image, a sound, or a tensor with metadata on
its display. This module builds messages from their contents (a PNG file, counts in buckets) and merges them. Operations
pass the serialized message.
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
      InvalidArgumentError: The tag is not UTF-8, which messages require.
    """
    try:
        return tag.decode()
    except UnicodeDecodeError as e:
        raise InvalidArgumentError(f"a tag must be UTF-8, got {tag[:100]!r} ({e})") from None


def scalars(tags: Sequence[bytes], values: Sequence[float]) -> bytes:
    """The serialized summary of numbers with tags. The message contains them as float32."""
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
    """The serialized summary of a distribution.

    Args:
      tag: The tag.
      least: The smallest number.
      greatest: The largest number.
      number: The number of numbers.
      total: Their sum.
      squares: The sum of their squares.
      limits: The upper limit of each bucket; a bucket begins at the limit of the previous one.
      counts: The number of numbers in each bucket.

    Returns:
      The serialized message.
    """
    made = _new()
    histo = made.value.add(tag=text_of(tag)).histo
    histo.min, histo.max, histo.num, histo.sum, histo.sum_squares = least, greatest, number, total, squares
    histo.bucket_limit.extend(limits)
    histo.bucket.extend(counts)
    return _bytes(made)


def images(tags: Sequence[bytes], files: Iterable[bytes], height: int, width: int, channels: int) -> bytes:
    """The serialized summary of images of one size.

    Args:
      tags: The tag of each image.
      files: Each image as a file in a format of browsers: PNG, JPEG or GIF.
      height: The height in pixels.
      width: The width in pixels.
      channels: The number of channels: 1 (grey), 3 (red, green, blue) or 4 (and opacity).

    Returns:
      The serialized message.
    """
    made = _new()
    for tag, data in zip(tags, files, strict=True):
        image = made.value.add(tag=text_of(tag)).image
        image.height, image.width, image.colorspace, image.encoded_image_string = height, width, channels, data
    return _bytes(made)


def sounds(tags: Sequence[bytes], files: Iterable[bytes], rate: float, channels: int, frames: int) -> bytes:
    """The serialized summary of sounds of one length.

    Args:
      tags: The tag of each sound.
      files: Each sound as a WAV file.
      rate: The frames per second.
      channels: The number of channels.
      frames: The number of frames in each channel.

    Returns:
      The serialized message.
    """
    made = _new()
    for tag, data in zip(tags, files, strict=True):
        audio = made.value.add(tag=text_of(tag)).audio
        audio.sample_rate, audio.num_channels, audio.length_frames = rate, channels, frames
        audio.encoded_audio_string, audio.content_type = data, "audio/wav"
    return _bytes(made)


def tensor(proto: bytes, tag: bytes = b"", node: str = "", metadata: bytes | None = None) -> bytes:
    """The serialized summary of a tensor.

    Args:
      proto: The serialized `TensorProto`.
      tag: The tag; b"" for none.
      node: The name of the tensor's operation, which replaces a missing tag.
      metadata: A serialized `SummaryMetadata` on its display; None for none.

    Returns:
      The serialized message.

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
    """The serialized `SummaryMetadata` of tensors that TensorBoard's plugin `plugin` shows."""
    from headrace import pb

    return _bytes(pb.SummaryMetadata(plugin_data=pb.SummaryMetadata.PluginData(plugin_name=plugin)))


def with_notes(given: bytes, description: str | None, display_name: str | None) -> bytes:
    """A serialized `SummaryMetadata` with its description and name replaced, where not None.

    Raises:
      InvalidArgumentError: `given` cannot be parsed.
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
    """A serialized summary with the tags of its values replaced by `tags`."""
    made = read(data)
    for value, tag in zip(made.value, tags, strict=True):
        value.tag = tag
    return _bytes(made)


def once_noted(data: Any, seen: set[str]) -> bytes:
    """Serializes a summary without the metadata of tags in `seen`; adds its tags.

    Args:
      data: The summary (see `read`).
      seen: The tags whose metadata was written before.

    Returns:
      The serialized message.
    """
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
    """Parses a summary from bytes, an array of one bytes object, or a message.

    Raises:
      InvalidArgumentError: The bytes are not a summary.
      TypeError: The argument has another type.
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
    """The `SummaryDescription` in a JSON text.

    Raises:
      ValueError: The text is not one.
    """
    from google.protobuf import json_format

    from headrace.pb.summary_pb2 import SummaryDescription

    try:
        return json_format.Parse(json, SummaryDescription())
    except (json_format.ParseError, UnicodeDecodeError) as e:
        raise ValueError(f"{json[:100]!r} is no SummaryDescription as JSON: {e}") from e


def merge(parts: Iterable[bytes]) -> bytes:
    """Merges summaries into one with all their values.

    Raises:
      InvalidArgumentError: A part is not a summary, or two values have the same tag.
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
