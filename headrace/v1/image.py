"""TensorFlow 1's `tf.image`, for the ops that headrace has."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import image, scopes, strings
from headrace.api.image import boxes, framing
from headrace.api.math import equal
from headrace.errors import SignatureError
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph

central_crop = in_default_graph(image.central_crop)
crop_to_bounding_box = in_default_graph(image.crop_to_bounding_box)
pad_to_bounding_box = in_default_graph(image.pad_to_bounding_box)
resize_image_with_crop_or_pad = resize_with_crop_or_pad = in_default_graph(image.resize_with_crop_or_pad)
random_crop = in_default_graph(image.random_crop)
flip_left_right = in_default_graph(image.flip_left_right)
flip_up_down = in_default_graph(image.flip_up_down)
random_flip_left_right = in_default_graph(image.random_flip_left_right)
random_flip_up_down = in_default_graph(image.random_flip_up_down)
rot90 = in_default_graph(image.rot90)
transpose = transpose_image = in_default_graph(image.transpose)

convert_image_dtype = in_default_graph(image.convert_image_dtype)
rgb_to_grayscale = in_default_graph(image.rgb_to_grayscale)
grayscale_to_rgb = in_default_graph(image.grayscale_to_rgb)
rgb_to_hsv = in_default_graph(image.rgb_to_hsv)
hsv_to_rgb = in_default_graph(image.hsv_to_rgb)
rgb_to_yiq = in_default_graph(image.rgb_to_yiq)
yiq_to_rgb = in_default_graph(image.yiq_to_rgb)
rgb_to_yuv = in_default_graph(image.rgb_to_yuv)
yuv_to_rgb = in_default_graph(image.yuv_to_rgb)
adjust_brightness = in_default_graph(image.adjust_brightness)
adjust_contrast = in_default_graph(image.adjust_contrast)
adjust_hue = in_default_graph(image.adjust_hue)
adjust_jpeg_quality = in_default_graph(image.adjust_jpeg_quality)
adjust_saturation = in_default_graph(image.adjust_saturation)
adjust_gamma = in_default_graph(image.adjust_gamma)
random_brightness = in_default_graph(image.random_brightness)
random_contrast = in_default_graph(image.random_contrast)
random_hue = in_default_graph(image.random_hue)
random_jpeg_quality = in_default_graph(image.random_jpeg_quality)
random_saturation = in_default_graph(image.random_saturation)
per_image_standardization = in_default_graph(image.per_image_standardization)

crop_and_resize = named(
    image.crop_and_resize,
    "image boxes box_ind=box_indices crop_size method extrapolation_value name box_indices",
)
non_max_suppression = in_default_graph(image.non_max_suppression)
non_max_suppression_with_scores = in_default_graph(image.non_max_suppression_with_scores)
non_max_suppression_padded = in_default_graph(image.non_max_suppression_padded)
non_max_suppression_overlaps = in_default_graph(image.non_max_suppression_overlaps)
combined_non_max_suppression = in_default_graph(image.combined_non_max_suppression)
draw_bounding_boxes = named(image.draw_bounding_boxes, "images boxes name colors")
stateless_sample_distorted_bounding_box = in_default_graph(image.stateless_sample_distorted_bounding_box)
extract_patches = in_default_graph(image.extract_patches)
extract_image_patches = named(
    image.extract_patches, "images ksizes=sizes strides rates padding name sizes", "extract_image_patches"
)

decode_and_crop_jpeg = in_default_graph(image.decode_and_crop_jpeg)
decode_bmp = in_default_graph(image.decode_bmp)
decode_gif = in_default_graph(image.decode_gif)
decode_image = in_default_graph(image.decode_image)
decode_jpeg = in_default_graph(image.decode_jpeg)
decode_png = in_default_graph(image.decode_png)
decode_webp = in_default_graph(image.decode_webp)
encode_jpeg = in_default_graph(image.encode_jpeg)
encode_png = in_default_graph(image.encode_png)
extract_jpeg_shape = in_default_graph(image.extract_jpeg_shape)

image_gradients = in_default_graph(image.image_gradients)
sobel_edges = in_default_graph(image.sobel_edges)
total_variation = in_default_graph(image.total_variation)
psnr = in_default_graph(image.psnr)
ssim = in_default_graph(image.ssim)
ssim_multiscale = in_default_graph(image.ssim_multiscale)


@in_default_graph
def is_jpeg(contents: Any, name: str | None = None) -> Any:
    """Whether the contents of a file (a string scalar) begin like a JPEG image.

    Source: TensorFlow's `tf.image.is_jpeg`.
    """
    with scopes.name_scope(name, "is_jpeg"):
        return equal(strings.substr(contents, 0, 3), b"\xff\xd8\xff")


class ResizeMethod:
    """The ways in which `resize_images` makes elements between those that there are.

    Source: TensorFlow's `tf.image.ResizeMethod`.
    """

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


def _resize_op(type: str, what: str) -> Any:
    @in_default_graph
    def function(
        images: Any, size: Any, align_corners: bool = False, name: str | None = None, half_pixel_centers: bool = False
    ) -> Any:
        attrs = {"align_corners": align_corners}
        if half_pixel_centers:
            attrs["half_pixel_centers"] = True
        return scopes.builder(images, size).make(type, (images, size), attrs, name)

    function.__name__ = function.__qualname__ = what
    function.__doc__ = f"""The operation {type}: a batch of images of another height and width.

    Source: TensorFlow's `tf.image.{what}`. See `headrace.image.resize`.
    """
    return function


resize_bilinear = _resize_op("ResizeBilinear", "resize_bilinear")
resize_nearest_neighbor = _resize_op("ResizeNearestNeighbor", "resize_nearest_neighbor")
resize_bicubic = _resize_op("ResizeBicubic", "resize_bicubic")
resize_area = _resize_op("ResizeArea", "resize_area")
_METHODS = (resize_bilinear, resize_nearest_neighbor, resize_bicubic, resize_area)
_NAMES = ("bilinear", "nearest", "bicubic", "area")


@in_default_graph
def resize_images(
    images: Any,
    size: Any,
    method: Any = ResizeMethod.BILINEAR,
    align_corners: bool = False,
    preserve_aspect_ratio: bool = False,
    name: str | None = None,
) -> Any:
    """Resizes images; images that have the size already are returned unchanged.

    Args:
      images: [batch, height, width, channels] or [height, width, channels], numbers.
      size: the new height and width: numbers, or an int32 vector.
      method: one of `ResizeMethod`, or its name.
      align_corners: whether the middles of the corners stay where they are; otherwise the upper left corner does.
      preserve_aspect_ratio: whether only as large as both fit without changing their ratio.
      name: name of the scope; "resize" if None.

    Raises:
      ValueError: there is no such method, or the shapes are others.

    Source: TensorFlow's `tf.image.resize_images`.
    """
    number = _NAMES.index(method) if method in _NAMES else method
    if number not in range(len(_METHODS)):
        raise SignatureError(f"resize method is not implemented: {method!r}")
    one = functools.partial(_METHODS[number], align_corners=align_corners)
    return framing.resized(images, size, one, preserve_aspect_ratio, name, keeps_same=True)


resize = resize_images


@in_default_graph
def resize_image_with_pad(
    image: Any, target_height: Any, target_width: Any, method: Any = ResizeMethod.BILINEAR, align_corners: bool = False
) -> Any:
    """Resizes images with their aspect ratio preserved, and pads them with zeros.

    Source: TensorFlow's `tf.image.resize_image_with_pad`. See `headrace.image.resize_with_pad`.
    """
    one = functools.partial(resize_images, method=method, align_corners=align_corners)
    return framing.resized_with_pad(image, target_height, target_width, one)


@in_default_graph
def extract_glimpse(
    input: Any,
    size: Any,
    offsets: Any,
    centered: bool = True,
    normalized: bool = True,
    uniform_noise: bool = True,
    name: str | None = None,
) -> Any:
    """Extracts a window around a point from each image, as ExtractGlimpse does.

    Source: TensorFlow's `tf.image.extract_glimpse`. See `headrace.image.extract_glimpse`.
    """
    attrs = {"centered": centered, "normalized": normalized, "uniform_noise": uniform_noise}
    return scopes.builder(input, offsets).make("ExtractGlimpse", (input, size, offsets), attrs, name)


@in_default_graph
def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: int | None = None,
    seed2: int | None = None,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> Any:
    """Samples a random bounding box that covers enough of an object, with explicit op seeds.

    Source: TensorFlow's `tf.image.sample_distorted_bounding_box`. See `headrace.image.sample_distorted_bounding_box`.
    """
    attrs = boxes.box_attrs(aspect_ratio_range, area_range, max_attempts, use_image_if_no_bounding_boxes)
    attrs |= {"seed": seed or 0, "seed2": seed2 or 0}
    return boxes.random_box(image_size, bounding_boxes, min_object_covered, attrs, name)


# fmt: off
__all__ = [
    "ResizeMethod", "adjust_brightness", "adjust_contrast", "adjust_gamma", "adjust_hue", "adjust_jpeg_quality",
    "adjust_saturation", "central_crop", "combined_non_max_suppression", "convert_image_dtype", "crop_and_resize",
    "crop_to_bounding_box", "decode_and_crop_jpeg", "decode_bmp", "decode_gif", "decode_image", "decode_jpeg",
    "decode_png", "decode_webp", "draw_bounding_boxes", "encode_jpeg", "encode_png", "extract_glimpse",
    "extract_image_patches", "extract_jpeg_shape", "extract_patches", "flip_left_right", "flip_up_down",
    "grayscale_to_rgb", "hsv_to_rgb", "image_gradients", "is_jpeg", "non_max_suppression",
    "non_max_suppression_overlaps", "non_max_suppression_padded", "non_max_suppression_with_scores",
    "pad_to_bounding_box", "per_image_standardization", "psnr", "random_brightness", "random_contrast", "random_crop",
    "random_flip_left_right", "random_flip_up_down", "random_hue", "random_jpeg_quality", "random_saturation", "resize",
    "resize_area", "resize_bicubic", "resize_bilinear", "resize_image_with_crop_or_pad", "resize_image_with_pad",
    "resize_images", "resize_nearest_neighbor", "resize_with_crop_or_pad", "rgb_to_grayscale", "rgb_to_hsv",
    "rgb_to_yiq", "rgb_to_yuv", "rot90", "sample_distorted_bounding_box", "sobel_edges", "ssim", "ssim_multiscale",
    "stateless_sample_distorted_bounding_box", "total_variation", "transpose", "transpose_image", "yiq_to_rgb",
    "yuv_to_rgb",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
