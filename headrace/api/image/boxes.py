"""Boxes in images: cropping, selection and drawing.

A box is [top, left, bottom, right], in fractions of the image's height and width unless stated otherwise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace import dtypes
from headrace.api import arrays, math, random, reductions, scopes
from headrace.api.functional import map_fn
from headrace.ir.tensor_type import Tensor


def crop_and_resize(
    image: Any,
    boxes: Any,
    box_indices: Any,
    crop_size: Any,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
    name: str | None = None,
) -> Tensor:
    """Crops boxes out of images and resizes them to one size.

    Args:
      image: numbers, [batch, height, width, channels].
      boxes: float32, [boxes, 4]; they may extend beyond the images, and be flipped.
      box_indices: int32, [boxes]: the index of the image of each box.
      crop_size: int32: height and width of the results.
      method: "bilinear" or "nearest".
      extrapolation_value: the value of elements beyond an image.
      name: name of the operation; "CropAndResize" if None.

    Returns:
      float32, [boxes, crop height, crop width, channels].

    Source: TensorFlow's `tf.image.crop_and_resize`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(4.0), (1, 2, 2, 1))
      >>> hr.image.crop_and_resize(image, [[0.0, 0.0, 1.0, 1.0]], [0], [1, 1]).numpy().item()
      1.5
    """
    attrs = {"method": method, "extrapolation_value": float(extrapolation_value)}
    b = scopes.builder(image, boxes, box_indices)
    return b.make("CropAndResize", (image, boxes, box_indices, crop_size), attrs, name)


def extract_glimpse(
    input: Any,
    size: Any,
    offsets: Any,
    centered: bool = True,
    normalized: bool = True,
    noise: str = "uniform",
    name: str | None = None,
) -> Tensor:
    """Extracts a window of each image around a point.

    Args:
      input: float32, [batch, height, width, channels].
      size: int32: height and width of the windows.
      offsets: float32, [batch, 2]: the points.
      centered: whether offsets are relative to the centre of the image; otherwise to its upper left corner.
      normalized: whether offsets are fractions of the height and width (of half of them, if centered); otherwise
        pixels.
      noise: the values of elements beyond an image: "uniform", "gaussian" or "zero".
      name: name of the operation; "ExtractGlimpseV2" if None.

    Source: TensorFlow's `tf.image.extract_glimpse`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(9.0), (1, 3, 3, 1))
      >>> hr.image.extract_glimpse(image, [1, 1], [[0.0, 0.0]]).numpy().item()
      4.0
    """
    attrs = {"centered": centered, "normalized": normalized, "noise": noise, "uniform_noise": False}
    return scopes.builder(input, offsets).make("ExtractGlimpseV2", (input, size, offsets), attrs, name)


# *** suppression of overlapping boxes ***


def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """Selects the boxes with the greatest scores that do not overlap a better one.

    Args:
      boxes: floats, [boxes, 4], in any coordinates.
      scores: floats, [boxes].
      max_output_size: the largest number of boxes to select, an int32 scalar.
      iou_threshold: the greatest allowed intersection over union of two selected boxes.
      score_threshold: boxes with a lower score are not selected.
      name: name of the scope; "non_max_suppression" if None.

    Returns:
      int32: indices of boxes, the best first.

    Source: TensorFlow's `tf.image.non_max_suppression`.

    Example:
      >>> import headrace as hr
      >>> boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9], [2.0, 2.0, 3.0, 3.0]]
      >>> hr.image.non_max_suppression(boxes, [0.5, 0.9, 0.1], 3).numpy().tolist()
      [1, 2]
    """
    with scopes.name_scope(name, "non_max_suppression", [boxes, scores]):
        b = scopes.builder(boxes, scores, max_output_size)
        limits = _thresholds(b, iou_threshold=iou_threshold, score_threshold=score_threshold)
        return b.make("NonMaxSuppressionV3", (boxes, scores, max_output_size, *limits), {})


def _thresholds(b: Any, **values: Any) -> list[Any]:
    """Converts numbers to float32 constants of these names; tensors are unchanged."""
    return [b.tensor(v, None if hasattr(v, "dtype") else dtypes.float32, name) for name, v in values.items()]


def non_max_suppression_with_scores(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    soft_nms_sigma: Any = 0.0,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Selects boxes as `non_max_suppression`, and returns their scores, too.

    Args:
      boxes, scores, max_output_size, iou_threshold, score_threshold: as for `non_max_suppression`.
      soft_nms_sigma: the width of the Gaussian by which overlaps lower scores (soft suppression); 0: scores are
        unchanged.
      name: name of the scope; "non_max_suppression_with_scores" if None.

    Returns:
      int32: indices of boxes, the best first; and their scores.

    Source: TensorFlow's `tf.image.non_max_suppression_with_scores`, and "Soft-NMS" (Bodla et al., 2017).

    Example:
      >>> import headrace as hr
      >>> boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9]]
      >>> chosen, scores = hr.image.non_max_suppression_with_scores(boxes, [0.6, 0.8], 2)
      >>> chosen.numpy().tolist()
      [1]
    """
    with scopes.name_scope(name, "non_max_suppression_with_scores", [boxes, scores]):
        b = scopes.builder(boxes, scores, max_output_size)
        limits = _thresholds(
            b, iou_threshold=iou_threshold, score_threshold=score_threshold, soft_nms_sigma=soft_nms_sigma
        )
        made = b.make("NonMaxSuppressionV5", (boxes, scores, max_output_size, *limits), {})
        return made[0], made[1]


def non_max_suppression_padded(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    pad_to_max_output_size: bool = False,
    name: str | None = None,
    sorted_input: bool = False,
    canonicalized_coordinates: bool = False,
    tile_size: int = 512,
) -> tuple[Tensor, Tensor]:
    """Selects boxes as `non_max_suppression`, and pads the indices with zeros.

    Args:
      boxes: floats, [..., boxes, 4]; with leading axes, `pad_to_max_output_size` is required.
      scores: floats, [..., boxes].
      max_output_size, iou_threshold, score_threshold: as for `non_max_suppression`.
      pad_to_max_output_size: whether there are `max_output_size` indices for each image.
      name: name of the scope; "non_max_suppression_padded" if None.
      sorted_input, canonicalized_coordinates, tile_size: hints without effect.

    Returns:
      int32: indices of boxes, the best first; and the number of selected boxes, one for each image.

    Raises:
      ValueError: `boxes` has leading axes and `pad_to_max_output_size` is False.

    Source: TensorFlow's `tf.image.non_max_suppression_padded`.

    Example:
      >>> import headrace as hr
      >>> boxes = [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 0.9]]
      >>> chosen, count = hr.image.non_max_suppression_padded(boxes, [0.6, 0.8], 3, pad_to_max_output_size=True)
      >>> chosen.numpy().tolist(), count.numpy().item()
      ([1, 0, 0], 1)
    """
    with scopes.name_scope(name, "non_max_suppression_padded", [boxes, scores]):
        b = scopes.builder(boxes, scores, max_output_size)
        boxes, scores = b.tensor(boxes, None, "boxes"), b.tensor(scores, None, "scores")
        limits = _thresholds(b, iou_threshold=iou_threshold, score_threshold=score_threshold)
        if boxes.shape is None or len(boxes.shape) == 2:
            attrs = {"pad_to_max_output_size": pad_to_max_output_size}
            made = b.make("NonMaxSuppressionV4", (boxes, scores, max_output_size, *limits), attrs)
            return made[0], made[1]
        if not pad_to_max_output_size:
            raise ValueError(f"'pad_to_max_output_size' must be True for batched input, got boxes {boxes!r}")
        batch = arrays.shape(boxes)[:-2]
        images = reductions.reduce_prod(batch)
        count = arrays.shape(boxes)[-2]

        def select(image: Any) -> Any:
            inputs = (image[0], image[1], max_output_size, *limits)
            made = scopes.builder(*inputs).make("NonMaxSuppressionV4", inputs, {"pad_to_max_output_size": True})
            return made[0], made[1]

        each = (arrays.reshape(boxes, [images, count, 4]), arrays.reshape(scores, [images, count]))
        found = map_fn(select, each, dtype=(dtypes.int32, dtypes.int32))
        room = arrays.reshape(math.cast(b.tensor(max_output_size), dtypes.int32), [1])
        return arrays.reshape(found[0], arrays.concat([batch, room], 0)), arrays.reshape(found[1], batch)


def non_max_suppression_overlaps(
    overlaps: Any,
    scores: Any,
    max_output_size: Any,
    overlap_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    name: str | None = None,
) -> Tensor:
    """Selects items by scores and a matrix of overlaps; see `non_max_suppression`.

    Args:
      overlaps: float32, [n, n]: the overlap of each pair of items.
      scores: float32, [n].
      max_output_size: the largest number of items to select, an int32 scalar.
      overlap_threshold: the greatest allowed overlap of two selected items.
      score_threshold: items with a lower score are not selected.
      name: name of the scope; "non_max_suppression_overlaps" if None.

    Source: TensorFlow's `tf.image.non_max_suppression_overlaps`.

    Example:
      >>> import headrace as hr
      >>> hr.image.non_max_suppression_overlaps([[1.0, 0.9], [0.9, 1.0]], [0.6, 0.8], 2).numpy()
      array([1], dtype=int32)
    """
    with scopes.name_scope(name, "non_max_suppression_overlaps", [overlaps, scores]):
        b = scopes.builder(overlaps, scores, max_output_size)
        (limit,) = _thresholds(b, overlap_threshold=overlap_threshold)
        inputs = (overlaps, scores, max_output_size, limit, score_threshold)
        return b.make("NonMaxSuppressionWithOverlaps", inputs, {})


class Suppressed(NamedTuple):
    """The results of `combined_non_max_suppression`."""

    nmsed_boxes: Tensor
    nmsed_scores: Tensor
    nmsed_classes: Tensor
    valid_detections: Tensor


def combined_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size_per_class: Any,
    max_total_size: Any,
    iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"),
    pad_per_class: bool = False,
    clip_boxes: bool = True,
    name: str | None = None,
) -> Suppressed:
    """Selects boxes of each class in each image of a batch; see `non_max_suppression`.

    Args:
      boxes: float32, [batch, boxes, classes, 4], or [batch, boxes, 1, 4] if all classes have the same boxes.
      scores: float32, [batch, boxes, classes].
      max_output_size_per_class, max_total_size: the largest numbers of boxes for a class and for an image.
      iou_threshold, score_threshold: as for `non_max_suppression`.
      pad_per_class: whether the results have min(max_total_size, max_output_size_per_class * classes) boxes; otherwise
        max_total_size.
      clip_boxes: whether the boxes are clipped to [0, 1].
      name: name of the scope; "combined_non_max_suppression" if None.

    Returns:
      For each image the boxes, scores and classes in descending order of scores, padded with zeros, and the number of
      valid ones.

    Source: TensorFlow's `tf.image.combined_non_max_suppression`.

    Example:
      >>> import headrace as hr
      >>> boxes = [[[[0.0, 0.0, 1.0, 1.0]], [[0.0, 0.0, 1.0, 0.9]]]]
      >>> found = hr.image.combined_non_max_suppression(boxes, [[[0.6], [0.8]]], 2, 2)
      >>> found[3].numpy()
      array([1], dtype=int32)
    """
    with scopes.name_scope(name, "combined_non_max_suppression", [boxes, scores]):
        b = scopes.builder(boxes, scores, max_output_size_per_class)
        limits = _thresholds(b, iou_threshold=iou_threshold, score_threshold=score_threshold)
        inputs = (boxes, scores, max_output_size_per_class, max_total_size, *limits)
        attrs = {"pad_per_class": pad_per_class, "clip_boxes": clip_boxes}
        return Suppressed(*b.make("CombinedNonMaxSuppression", inputs, attrs))


# *** drawn ***


def draw_bounding_boxes(images: Any, boxes: Any, colors: Any = None, name: str | None = None) -> Tensor:
    """Draws the outlines of boxes into images.

    Args:
      images: float32 or half, [batch, height, width, channels].
      boxes: float32, [batch, boxes, 4].
      colors: float32, [colors, channels]: the colours of the boxes in turn; None: a default palette.
      name: name of the operation; its type if None.

    Source: TensorFlow's `tf.image.draw_bounding_boxes`.

    Example:
      >>> import headrace as hr
      >>> drawn = hr.image.draw_bounding_boxes(hr.zeros((1, 3, 3, 1)), [[[0.0, 0.0, 1.0, 1.0]]], [[7.0]])
      >>> drawn.numpy()[0, :, :, 0].tolist()
      [[7.0, 7.0, 7.0], [7.0, 0.0, 7.0], [7.0, 7.0, 7.0]]
    """
    b = scopes.builder(images, boxes, colors)
    if colors is None:
        return b.make("DrawBoundingBoxes", (images, boxes), {}, name)
    return b.make("DrawBoundingBoxesV2", (images, boxes, colors), {}, name)


class RandomBox(NamedTuple):
    """The results of `sample_distorted_bounding_box`: `begin` and `size` as `hr.slice` takes them, and the box."""

    begin: Tensor
    size: Tensor
    bboxes: Tensor


def sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: int | None = 0,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> RandomBox:
    """Samples a random part of an image that contains enough of an object.

    Args:
      image_size: ints: height, width and channels.
      bounding_boxes: float32, [batch, boxes, 4]: the objects.
      seed: see `hr.random`; 0 (or None): no seed.
      min_object_covered: the least fraction of one of the objects that the part must contain.
      aspect_ratio_range: the least and greatest ratio of width and height; None: 0.75 to 1.33.
      area_range: the least and greatest fraction of the image's area; None: 0.05 to 1.
      max_attempts: number of attempts, after which the result is the whole image; None: 100.
      use_image_if_no_bounding_boxes: whether the whole image is the object if there are no boxes.
      name: name of the scope; "sample_distorted_bounding_box" if None.

    Source: TensorFlow's `tf.image.sample_distorted_bounding_box`.

    Example:
      >>> import headrace as hr
      >>> begin, size, box = hr.image.sample_distorted_bounding_box((9, 9, 3), [[[0.0, 0.0, 1.0, 1.0]]])
      >>> hr.slice(hr.zeros((9, 9, 3)), begin, size).shape[2], box.shape
      (3, (1, 1, 4))
    """
    attrs = random.seeds(seed or None)
    attrs |= box_attrs(aspect_ratio_range, area_range, max_attempts, use_image_if_no_bounding_boxes)
    return random_box(image_size, bounding_boxes, min_object_covered, attrs, name)


def random_box(
    image_size: Any, bounding_boxes: Any, covered: Any, attrs: dict[str, Any], name: str | None
) -> RandomBox:
    """Adds the operation of `sample_distorted_bounding_box` with given attributes."""
    with scopes.name_scope(name, "sample_distorted_bounding_box"):
        b = scopes.builder(image_size, bounding_boxes)
        return RandomBox(*b.make("SampleDistortedBoundingBoxV2", (image_size, bounding_boxes, covered), attrs))


def stateless_sample_distorted_bounding_box(
    image_size: Any,
    bounding_boxes: Any,
    seed: Any,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = None,
    area_range: Any = None,
    max_attempts: int | None = None,
    use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> RandomBox:
    """Samples a random part of an image as a function of a seed.

    Args:
      seed: two ints, which determine the result.
      Others: see `sample_distorted_bounding_box`.

    Source: TensorFlow's `tf.image.stateless_sample_distorted_bounding_box`.

    Example:
      >>> import headrace as hr
      >>> sample = hr.image.stateless_sample_distorted_bounding_box
      >>> one, two = (sample((9, 9, 3), [[[0.0, 0.0, 1.0, 1.0]]], seed=(1, 2)) for _ in range(2))
      >>> one.begin.numpy().tolist() == two.begin.numpy().tolist(), one.bboxes.shape
      (True, (1, 1, 4))
    """
    with scopes.name_scope(name, "stateless_sample_distorted_bounding_box"):
        attrs = box_attrs(aspect_ratio_range, area_range, max_attempts, use_image_if_no_bounding_boxes)
        b = scopes.builder(image_size, bounding_boxes, seed)
        inputs = (image_size, bounding_boxes, min_object_covered, seed)
        return RandomBox(*b.make("StatelessSampleDistortedBoundingBox", inputs, attrs))


def box_attrs(
    aspect_ratio_range: Any, area_range: Any, max_attempts: int | None, is_whole: bool | None
) -> dict[str, Any]:
    """Returns the attributes that are not None."""
    given = {
        "aspect_ratio_range": None if aspect_ratio_range is None else tuple(map(float, aspect_ratio_range)),
        "area_range": None if area_range is None else tuple(map(float, area_range)),
        "max_attempts": max_attempts,
        "use_image_if_no_bounding_boxes": is_whole,
    }
    return {name: value for name, value in given.items() if value is not None}
