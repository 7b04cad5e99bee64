"""Decoding and encoding of image files, such as `hr.image.decode_image`. The functions need Pillow."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.api import random, scopes
from headrace.api.image.colors import convert_image_dtype
from headrace.api.tensors import is_tensor
from headrace.ir.tensor_type import Tensor


def decode_png(contents: Any, channels: int = 0, dtype: Any = dtypes.uint8, name: str | None = None) -> Tensor:
    """Decodes a PNG image.

    Args:
      contents: the content of the file: a string scalar.
      channels: 1 for grey, 3 for RGB, 4 for RGBA; 0 for the channels of the image.
      dtype: uint8 or uint16.
      name: name of the operation; "DecodePng" if None.

    Returns:
      A tensor [height, width, channels].

    Raises (when it runs):
      InvalidArgumentError: the string is not a PNG image, or is damaged. ResourceExhaustedError: the image is too
        large.

    Source: TensorFlow's `tf.io.decode_png`.

    Example:
      >>> import headrace as hr
      >>> file = hr.image.encode_png(hr.constant([[[1], [2]]], hr.uint8))
      >>> hr.image.decode_png(file).numpy().tolist()
      [[[1], [2]]]
    """
    attrs = {"channels": channels, "dtype": dtypes.as_dtype(dtype)}
    return scopes.builder(contents).make("DecodePng", (contents,), attrs, name)


def decode_jpeg(
    contents: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1.0,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """Decodes a JPEG image to uint8.

    Args:
      contents: the content of the file: a string scalar.
      channels: 1 for grey, 3 for RGB; 0 for the channels of the image.
      ratio: 1, 2, 4 or 8: the factor by which the image is downscaled while it is decoded.
      fancy_upscaling, dct_method: hints without effect.
      try_recover_truncated, acceptable_fraction: without effect: truncated images are refused.
      name: name of the operation; "DecodeJpeg" if None.

    Returns:
      A tensor [height, width, channels].

    Source: TensorFlow's `tf.io.decode_jpeg`. See `decode_png`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> data = hr.image.encode_jpeg(np.full((8, 8, 3), 7, np.uint8))
      >>> hr.image.decode_jpeg(data).shape
      (8, 8, 3)
    """
    attrs = _jpeg_attrs(channels, ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method)
    return scopes.builder(contents).make("DecodeJpeg", (contents,), attrs, name)


def decode_and_crop_jpeg(
    contents: Any,
    crop_window: Any,
    channels: int = 0,
    ratio: int = 1,
    fancy_upscaling: bool = True,
    try_recover_truncated: bool = False,
    acceptable_fraction: float = 1.0,
    dct_method: str = "",
    name: str | None = None,
) -> Tensor:
    """Decodes a part of a JPEG image. See `decode_jpeg`.

    Args:
      crop_window: int32, [y, x, height, width] of the part.
      Others: see `decode_jpeg`.

    Source: TensorFlow's `tf.io.decode_and_crop_jpeg`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> data = hr.image.encode_jpeg(np.full((8, 8, 3), 7, np.uint8))
      >>> hr.image.decode_and_crop_jpeg(data, [0, 0, 2, 3]).shape
      (2, 3, 3)
    """
    attrs = _jpeg_attrs(channels, ratio, fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method)
    return scopes.builder(contents, crop_window).make("DecodeAndCropJpeg", (contents, crop_window), attrs, name)


def _jpeg_attrs(
    channels: int, ratio: int, fancy_upscaling: bool, try_recover_truncated: bool, acceptable_fraction: float, dct: str
) -> dict[str, Any]:
    return {
        "channels": channels,
        "ratio": ratio,
        "fancy_upscaling": fancy_upscaling,
        "try_recover_truncated": try_recover_truncated,
        "acceptable_fraction": acceptable_fraction,
        "dct_method": dct,
    }


def decode_gif(contents: Any, name: str | None = None) -> Tensor:
    """Decodes a GIF animation to uint8, [frames, height, width, 3].

    Args:
      contents: the content of the file: a string scalar.
      name: name of the operation; "DecodeGif" if None.

    Source: TensorFlow's `tf.io.decode_gif`. See `decode_png`.

    Example:
      >>> import headrace as hr
      >>> head = b"GIF89a" + bytes([1, 0, 1, 0, 0x80, 0, 0, 1, 2, 3, 0, 0, 0])
      >>> frame = b"," + bytes([0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0])
      >>> hr.image.decode_gif(head + frame + b";").numpy().tolist()
      [[[[1, 2, 3]]]]
    """
    return scopes.builder(contents).make("DecodeGif", (contents,), {}, name)


def decode_bmp(contents: Any, channels: int = 0, name: str | None = None) -> Tensor:
    """Decodes an uncompressed bitmap to uint8, [height, width, channels].

    Args:
      contents: the content of the file: a string scalar.
      channels: 1, 3 or 4; 0 for the channels of the image.
      name: name of the operation; "DecodeBmp" if None.

    Source: TensorFlow's `tf.io.decode_bmp`. See `decode_png`.

    Example:
      >>> import headrace as hr, struct
      >>> head = struct.pack("<2sIIIIiiHHIIiiII", b"BM", 58, 0, 54, 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0)
      >>> hr.image.decode_bmp(head + bytes([3, 2, 1, 0])).numpy().tolist()
      [[[1, 2, 3]]]
    """
    return scopes.builder(contents).make("DecodeBmp", (contents,), {"channels": channels}, name)


def decode_webp(contents: Any, channels: int = 0, dtype: Any = dtypes.uint8, name: str | None = None) -> Tensor:
    """Decodes a WebP image or animation to [frames, height, width, channels].

    Args:
      contents: the content of the file: a string scalar.
      channels: 3 or 4, which must be the number of the image; 0 for that number.
      dtype: uint8.
      name: name of the operation; "DecodeWebP" if None.

    Source: TensorFlow's `tf.io.decode_webp`.

    Example:
      >>> import headrace as hr
      >>> red = bytes.fromhex("524946461c000000574542505650384c0f0000002f000000000710fd8ffe0722a2ff0100")
      >>> hr.image.decode_webp(red).numpy().tolist()
      [[[[255, 0, 0]]]]
    """
    attrs = {"channels": channels, "dtype": dtypes.as_dtype(dtype)}
    return scopes.builder(contents).make("DecodeWebP", (contents,), attrs, name)


def decode_image(
    contents: Any,
    channels: int | None = None,
    dtype: Any = dtypes.uint8,
    name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:
    """Decodes a PNG, JPEG, GIF, BMP or WebP image.

    Args:
      contents: the content of the file: a string scalar.
      channels: see `decode_png`; None for the channels of the image.
      dtype: uint8, uint16 or float32 (from 0 to 1).
      name: name of the operation; "DecodeImage" if None.
      expand_animations: whether the result has all frames of an animation, in a further first axis; otherwise only the
        first frame.

    Returns:
      [height, width, channels], or for GIF and WebP [frames, height, width, channels].

    Source: TensorFlow's `tf.io.decode_image`.

    Example:
      >>> import headrace as hr
      >>> image = hr.constant([[[255, 0, 0]]], hr.uint8)
      >>> hr.image.decode_image(hr.image.encode_png(image)).numpy().tolist()
      [[[255, 0, 0]]]
    """
    attrs = {"channels": channels or 0, "dtype": dtypes.as_dtype(dtype), "expand_animations": expand_animations}
    return scopes.builder(contents).make("DecodeImage", (contents,), attrs, name)


def encode_png(image: Any, compression: int = -1, name: str | None = None) -> Tensor:
    """Encodes images as PNG.

    Args:
      image: [..., height, width, channels] with 1 to 4 channels (grey, grey and alpha, RGB, RGBA), uint8 or uint16.
      compression: 0 to 9; -1 for zlib's default.
      name: name of the operation; "EncodePng" if None.

    Returns:
      A string for each image.

    Source: TensorFlow's `tf.io.encode_png`.

    Example:
      >>> import headrace as hr
      >>> image = hr.constant([[[255, 0, 0]]], hr.uint8)
      >>> hr.image.encode_png(image).numpy()[:4]
      b'\x89PNG'
    """
    return scopes.builder(image).make("EncodePng", (image,), {"compression": compression}, name)


def encode_jpeg(
    image: Any,
    format: str = "",
    quality: int = 95,
    progressive: bool = False,
    optimize_size: bool = False,
    chroma_downsampling: bool = True,
    density_unit: str = "in",
    x_density: int = 300,
    y_density: int = 300,
    xmp_metadata: str = "",
    name: str | None = None,
) -> Tensor:
    """Encodes an image as JPEG.

    Args:
      image: [height, width, 1 or 3], uint8.
      format: "grayscale", "rgb", or "" to follow the channels.
      quality: 0 to 100.
      progressive: whether the image is progressive, so that a part of the file gives a coarse image.
      optimize_size: whether to spend more time for a smaller file.
      chroma_downsampling: whether the resolution of colours is halved.
      density_unit, x_density, y_density: pixels per inch ("in") or per centimetre ("cm").
      xmp_metadata: metadata to store in the file.
      name: name of the operation; "EncodeJpeg" if None.

    Returns:
      A string scalar.

    Source: TensorFlow's `tf.io.encode_jpeg`.

    Example:
      >>> import headrace as hr
      >>> image = hr.constant([[[255, 0, 0]]], hr.uint8)
      >>> hr.image.encode_jpeg(image).numpy()[:2]
      b'\xff\xd8'
    """
    attrs = {
        "format": format,
        "quality": quality,
        "progressive": progressive,
        "optimize_size": optimize_size,
        "chroma_downsampling": chroma_downsampling,
        "density_unit": density_unit,
        "x_density": x_density,
        "y_density": y_density,
        "xmp_metadata": xmp_metadata,
    }
    return scopes.builder(image).make("EncodeJpeg", (image,), attrs, name)


def extract_jpeg_shape(contents: Any, output_type: Any = dtypes.int32, name: str | None = None) -> Tensor:
    """Returns height, width and channels of a JPEG image without decoding it.

    Args:
      contents: the content of the file: a string scalar.
      output_type: dtype of the result: int32 or int64.
      name: name of the operation; "ExtractJpegShape" if None.

    Source: TensorFlow's `tf.io.extract_jpeg_shape`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> data = hr.image.encode_jpeg(np.full((8, 4, 3), 7, np.uint8))
      >>> hr.image.extract_jpeg_shape(data).numpy()
      array([8, 4, 3], dtype=int32)
    """
    attrs = {"output_type": dtypes.as_dtype(output_type)}
    return scopes.builder(contents).make("ExtractJpegShape", (contents,), attrs, name)


def adjust_jpeg_quality(image: Any, jpeg_quality: Any, dct_method: str = "", name: str | None = None) -> Tensor:
    """Encodes an image as JPEG with a quality and decodes it again.

    Args:
      image: [height, width, channels] with 1 or 3 channels: floats from 0 to 1, or integers.
      jpeg_quality: from 0 to 100: an int or an int32 scalar.
      dct_method: as for `decode_jpeg`.
      name: name of the scope; "adjust_jpeg_quality" if None.

    Returns:
      An image of the same shape and dtype.

    Source: TensorFlow's `tf.image.adjust_jpeg_quality`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.image.adjust_jpeg_quality(np.full((8, 8, 3), 0.5, np.float32), 75).numpy()[0, 0].round(2).tolist()
      [0.5, 0.5, 0.5]
    """
    with scopes.name_scope(name, "adjust_jpeg_quality", [image]):
        x = scopes.builder(image).tensor(image, None, "image")
        channels = (x.shape[-1] or 0) if x.shape else 0
        b = scopes.builder(x)
        quality = jpeg_quality if is_tensor(jpeg_quality) else b.tensor(jpeg_quality, dtypes.int32)
        pixels = convert_image_dtype(x, dtypes.uint8, saturate=True)
        data = b.make("EncodeJpegVariableQuality", (pixels, quality), {})
        decoded = b.make("DecodeJpeg", (data,), {"channels": channels, "dct_method": dct_method})
        return convert_image_dtype(decoded, x.dtype, saturate=True)


def random_jpeg_quality(image: Any, min_jpeg_quality: int, max_jpeg_quality: int, seed: int | None = None) -> Tensor:
    """Encodes an image as JPEG with a random quality and decodes it again.

    Args:
      image: as for `adjust_jpeg_quality`.
      min_jpeg_quality, max_jpeg_quality: bounds of the quality, ints from 0 to 100; the upper one is excluded.
      seed: see `hr.random`.

    Raises:
      ValueError: a bound is not from 0 to 100, or the lower one is not below the upper one.

    Source: TensorFlow's `tf.image.random_jpeg_quality`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.image.random_jpeg_quality(np.zeros((8, 8, 3), np.uint8), 75, 95, seed=1).shape
      (8, 8, 3)
    """
    if not (0 <= min_jpeg_quality <= 100 and 0 <= max_jpeg_quality <= 100):
        raise ValueError(
            f"jpeg encoding range must be between 0 and 100, got {min_jpeg_quality!r} to {max_jpeg_quality!r}"
        )
    if min_jpeg_quality >= max_jpeg_quality:
        raise ValueError(
            f"`min_jpeg_quality` must be less than `max_jpeg_quality`, got {min_jpeg_quality!r} and "
            f"{max_jpeg_quality!r}"
        )
    quality = random.uniform((), min_jpeg_quality, max_jpeg_quality, dtypes.int32, seed=seed)
    return adjust_jpeg_quality(image, quality)
