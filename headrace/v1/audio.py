"""TensorFlow 1's `tf.audio`: sound files."""

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import public_names
from headrace.api import scopes
from headrace.v1.graph import in_default_graph
from headrace.v1.plain_ops import plain

encode_wav = plain("audio.encode_wav", "EncodeWav", "audio sample_rate")


class _DecodedWav(NamedTuple):
    """The results of `decode_wav`."""

    audio: Any
    sample_rate: Any


@in_default_graph
def decode_wav(
    contents: Any, desired_channels: int = -1, desired_samples: int = -1, name: str | None = None
) -> _DecodedWav:
    """Decodes a WAV file with samples of 16 bits.

    Args:
      contents: the content of the file: a string scalar.
      desired_channels: number of channels; -1: those of the file. Channels beyond them repeat the last one.
      desired_samples: number of frames; -1: those of the file. Frames beyond them are zeros.
      name: name of the operation; "DecodeWav" if None.

    Returns:
      The samples, float32 from -1 to 1, [frames, channels]; and the number of frames in a second, an int32 scalar.

    Source: TensorFlow's `tf.audio.decode_wav`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     file = tf.audio.encode_wav([[0.5], [-1.0]], 8000)
      ...     sess.run(tf.audio.decode_wav(file).audio).tolist()
      [[0.5], [-1.0]]
    """
    attrs = {"desired_channels": desired_channels, "desired_samples": desired_samples}
    return _DecodedWav(*scopes.builder(contents).make("DecodeWav", (contents,), attrs, name))


__all__ = ["decode_wav", "encode_wav"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
