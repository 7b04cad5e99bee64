"""TensorFlow 1's `tf.contrib.image`: projective transformations of images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.api import arrays, linalg, math, scopes
from headrace.errors import ShapeError
from headrace.v1.contrib import equivalents
from headrace.v1.graph import in_default_graph


def _rows(x: Any, columns: int | None) -> Any:
    """Returns transformations or angles as rows of float32, for all images or for each."""
    x = math.cast(scopes.builder(x).tensor(x), dtypes.float32)
    rank = None if x.shape is None else len(x.shape)
    if columns is None:
        return arrays.expand_dims(x, 0) if rank == 0 else x
    return arrays.expand_dims(x, 0) if rank == 1 else x


@in_default_graph
def transform(
    images: Any, transforms: Any, interpolation: str = "NEAREST", output_shape: Any = None, name: str | None = None
) -> Any:
    """Transforms images by projections.

    The pixel (x, y) of the result is the pixel ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k) of the image.

    Args:
      images: [batch, height, width, channels], [height, width, channels] or [height, width].
      transforms: [8] or [batch, 8]: a0, a1, a2, b0, b1, b2, c0, c1, with k = c0 x + c1 y + 1.
      interpolation: "NEAREST" or "BILINEAR".
      output_shape: height and width of the result; None: those of the images.
      name: name of the scope.

    Raises:
      ValueError: the images have another rank.

    Source: TensorFlow's `tf.contrib.image.transform`.
    """
    with scopes.name_scope(name, "transform", [images, transforms]):
        images = scopes.builder(images).tensor(images, None, "images")
        rank = None if images.shape is None else len(images.shape)
        if rank not in (2, 3, 4):
            raise ShapeError(f"images should have rank between 2 and 4, got {images!r}")
        whole = images
        if rank == 3:
            whole = arrays.expand_dims(images, 0)
        elif rank == 2:
            whole = arrays.expand_dims(arrays.expand_dims(images, 0), -1)
        size = arrays.shape(whole)[1:3] if output_shape is None else output_shape
        b = scopes.builder(whole)
        made = b.make(
            "ImageProjectiveTransformV2", (whole, _rows(transforms, 8), b.tensor(size, dtypes.int32)),
            {"interpolation": interpolation.upper()},
        )  # fmt: skip
        return made if rank == 4 else made[0] if rank == 3 else made[0, :, :, 0]


@in_default_graph
def angles_to_projective_transforms(angles: Any, image_height: Any, image_width: Any, name: str | None = None) -> Any:
    """Returns the transformations that rotate images by angles (radians) about their centers: [n, 8].

    Source: TensorFlow's `tf.contrib.image.angles_to_projective_transforms`.
    """
    with scopes.name_scope(name, "angles_to_projective_transforms", [angles]):
        angles = _rows(angles, None)
        height, width = (math.cast(n, dtypes.float32) - 1.0 for n in (image_height, image_width))
        cos, sin = math.cos(angles), math.sin(angles)
        x = (width - (cos * width - sin * height)) / 2.0
        y = (height - (sin * width + cos * height)) / 2.0
        zeros = arrays.zeros_like(angles)
        return arrays.stack([cos, -sin, x, sin, cos, y, zeros, zeros], 1)


@in_default_graph
def rotate(images: Any, angles: Any, interpolation: str = "NEAREST", name: str | None = None) -> Any:
    """Rotates images counterclockwise by angles (radians): a scalar, or one for each image.

    Source: TensorFlow's `tf.contrib.image.rotate`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Session() as sess:
      ...     sess.run(tf.contrib.image.rotate(tf.constant([[1, 2], [3, 4]]), 3.14159265 / 2))
      array([[2, 4],
             [1, 3]], dtype=int32)
    """
    with scopes.name_scope(name, "rotate", [images, angles]):
        images = scopes.builder(images).tensor(images, None, "images")
        if images.shape is None or len(images.shape) not in (2, 3, 4):
            raise ShapeError(f"images should have rank between 2 and 4, got {images!r}")
        at = 1 if len(images.shape) == 4 else 0
        size = arrays.shape(images)
        moves = angles_to_projective_transforms(angles, size[at], size[at + 1])
        return transform(images, moves, interpolation)


@in_default_graph
def translations_to_projective_transforms(translations: Any, name: str | None = None) -> Any:
    """Returns the transformations that move images by vectors [dx, dy]: [n, 8].

    Source: TensorFlow's `tf.contrib.image.translations_to_projective_transforms`.
    """
    with scopes.name_scope(name, "translations_to_projective_transforms", [translations]):
        moves = _rows(translations, 2)
        one, zero = arrays.ones_like(moves[:, 0]), arrays.zeros_like(moves[:, 0])
        return arrays.stack([one, zero, -moves[:, 0], zero, one, -moves[:, 1], zero, zero], 1)


@in_default_graph
def translate(images: Any, translations: Any, interpolation: str = "NEAREST", name: str | None = None) -> Any:
    """Moves images by vectors [dx, dy]: one for all images, or one for each.

    Source: TensorFlow's `tf.contrib.image.translate`.
    """
    with scopes.name_scope(name, "translate", [images, translations]):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


@in_default_graph
def compose_transforms(*transforms: Any) -> Any:
    """Returns the transformation of several ones after each other: [n, 8].

    Raises:
      ValueError: there are no transformations.

    Source: TensorFlow's `tf.contrib.image.compose_transforms`.
    """
    if not transforms:
        raise ValueError("transforms cannot be empty")
    with scopes.name_scope("compose_transforms"):
        found = _matrices(_rows(transforms[0], 8))
        for other in transforms[1:]:
            found = linalg.matmul(found, _matrices(_rows(other, 8)))
        flat = arrays.reshape(found, [-1, 9])
        return (flat / flat[:, 8:])[:, :8]


def _matrices(rows: Any) -> Any:
    return arrays.reshape(arrays.concat([rows, arrays.ones_like(rows[:, :1])], 1), [-1, 3, 3])


__all__ = [
    "angles_to_projective_transforms", "compose_transforms", "rotate", "transform", "translate",
    "translations_to_projective_transforms",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
