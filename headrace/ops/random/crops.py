"""Random crops of images: SampleDistortedBoundingBox in its versions, and RandomCrop, with TensorFlow's numbers.

Source: TensorFlow's ops of the same names. A box is drawn until one covers enough of one of the given boxes: its aspect
ratio uniformly between the limits, its height uniformly within the limits that follow from those of the area, and its
position uniformly. The computation is in float32, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace.dtypes import INDEX, DType, float32, float64, int8, int16, int32, int64, uint8
from headrace.errors import FailedPreconditionError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Case, Facts, case, list_attr, op, type_attr
from headrace.ops.random.drawing import SEEDED, SEEDS, seed_shape, state_of, stream_of_seeds
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext
    from headrace.resources.philox import Stream

F32 = np.float32


class _Words:
    """The words of a stream, one after the other."""

    def __init__(self, stream: Stream) -> None:
        self._words = self._drawn(stream)

    def _drawn(self, stream: Stream) -> Iterator[int]:
        while True:
            yield from stream.blocks(4).ravel().tolist()
            stream = stream.skip(4)

    def word(self) -> int:
        return next(self._words)

    def real(self) -> Any:
        """In [0, 1)."""
        return F32((self.word() & 0x7FFFFF) / 2**23)

    def below(self, n: int) -> int:
        """Evenly in range(n): words that would make some numbers likelier are drawn again."""
        if n & (n - 1) == 0:
            return self.word() & (n - 1)
        least = (2**32 - 1) % n + 1
        word = self.word()
        while word < least:
            word = self.word()
        return word % n


# *** Boxes ***


class _Box(NamedTuple):
    top: int
    left: int
    bottom: int
    right: int

    @property
    def area(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    def shared(self, other: _Box) -> int:
        """The area of what both have."""
        height = min(self.bottom, other.bottom) - max(self.top, other.top)
        width = min(self.right, other.right) - max(self.left, other.left)
        return max(height, 0) * max(width, 0)


def _drawn_box(words: _Words, height: int, width: int, ratio: Any, areas: tuple[Any, Any]) -> _Box | None:
    """Draws a box of the aspect ratio with an area within limits, or returns None.

    The limits are fractions of the image's area. The result is None if no box fits.
    """
    if height <= 0 or width <= 0 or areas[0] > areas[1]:
        return None
    least, most = (a * F32(width) * F32(height) for a in areas)

    def across(h: int) -> int:
        return int(np.rint(F32(h) * ratio))

    h, limit = (int(np.rint(np.sqrt(a / ratio))) for a in (least, most))
    if across(limit) > width:
        limit = int((width + 0.5 - float(F32(1e-7))) / float(ratio))
        if across(limit) > width:
            limit -= 1
    limit = min(limit, height)
    if h >= limit:
        h = limit
    else:
        h += words.below(limit - h + 1)
    if F32(across(h) * h) < least:
        h += 1
    if F32(across(h) * h) > most:
        h -= 1
    w = across(h)
    if not least <= F32(w * h) <= most or w > width or h > height or w <= 0 or h <= 0:
        return None
    top = words.below(height - h) if h < height else 0
    left = words.below(width - w) if w < width else 0
    return _Box(top, left, top + h, left + w)


def _sampled(
    words: _Words, height: int, width: int, boxes: Sequence[_Box], covered: Any, attrs: Mapping[str, Any]
) -> _Box:
    """Draws a box that covers enough of one of `boxes`.

    It is the whole image if no attempt succeeds.
    """
    low, high = (F32(v) for v in attrs["aspect_ratio_range"])
    areas = F32(attrs["area_range"][0]), F32(attrs["area_range"][1])
    there = [b for b in boxes if b.area >= 1]
    for _ in range(attrs["max_attempts"]):
        box = _drawn_box(words, height, width, words.real() * (high - low) + low, areas)
        if box and box.area >= 1 and any(F32(box.shared(b)) / F32(b.area) >= covered for b in there):
            return box
    return _Box(0, 0, height, width)


def _require_ranges(attrs: Mapping[str, Any]) -> None:
    for name, what in (("aspect_ratio_range", "Aspect ratio range"), ("area_range", "Area range")):
        found = list(attrs[name])
        if len(found) != 2:
            raise InvalidArgumentError(f"{what} field must specify 2 dimensions, got {found}")
        if min(found) <= 0:
            raise InvalidArgumentError(f"{what} must be non-negative: {found}")
    if max(attrs["area_range"]) > 1:
        raise InvalidArgumentError(f"Area range must be less then or equal to 1.0: {list(attrs['area_range'])}")
    if attrs["max_attempts"] <= 0:
        raise InvalidArgumentError(f"Max attempts must be non-negative: {attrs['max_attempts']}")


def _sample(attrs: Mapping[str, Any], size: Any, boxes: Any, covered: Any, stream: Stream) -> Any:
    """The three outputs."""
    _require_ranges(attrs)
    if size.ndim != 1:
        raise InvalidArgumentError(f"image_size must be 1-dimensional, got {show(size.shape)}")
    if len(size) != 3:
        raise InvalidArgumentError(f"image_size must contain 3 elements, got {show(size.shape)}")
    height, width = (int(v) for v in size[:2])
    for name, length in (("height", height), ("width", width)):
        if not 0 <= length < 2**31 - 1:
            raise InvalidArgumentError(f"image {name} cannot be >= int32 max (or negative), got {length}")
    if boxes.ndim != 3:
        raise InvalidArgumentError(f"input boxes must be 3-dimensional [batch, num_boxes, coords]: {show(boxes.shape)}")
    if boxes.shape[2] != 4:
        raise InvalidArgumentError(f"bounding boxes must have shape [4] or [*, 4], got {show(boxes.shape)}")
    if covered.ndim:
        raise InvalidArgumentError(f"min_object_covered must be 0-D, got shape {show(covered.shape)}")
    if not covered >= 0:
        raise InvalidArgumentError(f"Min object covered must be non-negative: {covered}")
    if not ((boxes >= 0) & (boxes <= 1)).all():
        bad = boxes[~((boxes >= 0) & (boxes <= 1))][0]
        raise InvalidArgumentError(f"All bounding box coordinates must be in [0.0, 1.0]: {bad}")
    sides = np.array([height, width, height, width], F32)
    given = [_Box(*box) for box in (boxes.reshape(-1, 4) * sides).astype(np.int32).tolist()]
    if not given and not attrs["use_image_if_no_bounding_boxes"]:
        raise InvalidArgumentError(
            "No bounding boxes provided as input. One must enable use_image_if_no_bounding_boxes if you wish to not "
            "provide any bounding boxes."
        )
    words = _Words(stream)
    box = _sampled(words, height, width, given or [_Box(0, 0, height, width)], covered, attrs)
    t = attrs["T"].numpy
    begin = np.array([box.top, box.left, 0]).astype(t)
    extent = np.array([box.bottom - box.top, box.right - box.left, -1]).astype(t)
    return begin, extent, (np.array(box, F32) / sides).reshape(1, 1, 4)


def _sample_seeded(ctx: KernelContext, attrs: Mapping[str, Any]) -> Any:
    state = state_of(ctx, attrs)
    fixed = F32(attrs.get("min_object_covered", 0))

    def kernel(size: Any, boxes: Any, covered: Any = fixed) -> Any:
        return _sample(attrs, size, boxes, covered, state.reserve(max(0, attrs["max_attempts"])))

    return kernel


def _sample_stateless(attrs: Mapping[str, Any]) -> Any:
    def kernel(size: Any, boxes: Any, covered: Any, seed: Any) -> Any:
        return _sample(attrs, size, boxes, covered, stream_of_seeds(seed))

    return kernel


def _sampled_shape(c: Inference) -> Sequence[Shape]:
    merge_dim(with_rank(c.shapes[0], 1)[0], 3)
    merge_dim(with_rank(c.shapes[1], 3)[2], 4)
    if len(c.shapes) > 2:
        with_rank(c.shapes[2], 0)
    if len(c.shapes) > 3:
        seed_shape(c, 3)
    return [(3,), (3,), (1, 1, 4)]


# *** RandomCrop ***


def _crop(ctx: KernelContext, attrs: Mapping[str, Any]) -> Any:
    state = state_of(ctx, attrs)

    def kernel(image: Any, size: Any) -> Any:
        if image.ndim != 3:
            raise InvalidArgumentError(f"input must be 3-dimensional, got {show(image.shape)}")
        if size.ndim != 1:
            raise InvalidArgumentError(f"shape_t must be 1-dimensional, got {show(size.shape)}")
        if len(size) != 2:
            raise InvalidArgumentError(f"shape_t must have two elements, got {show(size.shape)}")
        wanted = size.tolist()
        if min(wanted) < 0:
            raise InvalidArgumentError(f"Dimension {min(wanted)} must be >= 0, got the size {wanted}")
        for name, length, target in (("width", image.shape[1], wanted[1]), ("height", image.shape[0], wanted[0])):
            if length < target:
                raise FailedPreconditionError(
                    f"{name} must be >= target_{name}: {name} = {length}, target_{name} = {target}"
                )
        words = _Words(state.reserve(1))
        left, top = (
            words.word() % (length - target + 1) if length > target else 0
            for length, target in ((image.shape[1], wanted[1]), (image.shape[0], wanted[0]))
        )
        return image[top : top + wanted[0], left : left + wanted[1]]

    return kernel


def _cropped_shape(c: Inference) -> Sequence[Shape]:
    image = with_rank(c.shapes[0], 3)
    merge_dim(with_rank(c.shapes[1], 1)[0], 2)
    size: Sequence[Dim] = with_rank(c.shape_value(1), 2)
    return [(size[0], size[1], image[2])]


# *** Records ***


def _stateless_samples(rng: np.random.Generator, dtype: DType) -> list[Case]:
    """Test cases with the results of TensorFlow 2.21."""
    size = np.array([40, 50, 3], dtype.numpy)
    boxes, covered = np.array([[[0.1, 0.2, 0.6, 0.7]]], F32), np.float32(0.1)
    return [
        case(
            size,
            boxes,
            covered,
            np.array(seeds, np.int32),
            aspect_ratio_range=(0.75, float(F32(1.33))),
            area_range=(float(F32(0.05)), 1.0),
            want=(
                np.array([top, left, 0]).astype(dtype.numpy),
                np.array([height, width, -1]).astype(dtype.numpy),
                (np.array([[[top, left, top + height, left + width]]], F32) / np.array([40, 50, 40, 50], F32)),
            ),
        )
        for seeds, (top, left, height, width) in (((0, 5), (1, 22, 17, 18)), ((1, 5), (11, 17, 24, 25)))
    ]


_SIZES = type_attr({uint8, int8, int16, int32, int64})
_LIMITS = {
    "aspect_ratio_range": list_attr("float", (0.75, 1.33)),
    "area_range": list_attr("float", (0.05, 1.0)),
    "max_attempts": 100,
    "use_image_if_no_bounding_boxes": False,
}
_OUTS = "begin: T, size: T, bboxes: float32"
for _suffix, _covered, _more in (("", "", {"min_object_covered": 0.1}), ("V2", ", min_object_covered: float32", {})):
    op(
        f"SampleDistortedBoundingBox{_suffix}",
        f"image_size: T, bounding_boxes: float32{_covered}",
        _OUTS,
        {"T": _SIZES} | SEEDS | _more | _LIMITS,
        shape=_sampled_shape,
        stateful=_sample_seeded,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(effect="random", writes=True),
        doc="A random part of an image that covers enough of one of the boxes: its begin and size, and as a box.",
    )
op(
    "StatelessSampleDistortedBoundingBox",
    "image_size: T, bounding_boxes: float32, min_object_covered: float32, seed: Tseed",
    _OUTS,
    {"T": _SIZES, "Tseed": INDEX} | _LIMITS,
    shape=_sampled_shape,
    kernel=_sample_stateless,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    sample=_stateless_samples,
    doc="SampleDistortedBoundingBoxV2 as two seeds have it, the same each time.",
)
op(
    "RandomCrop",
    "image: T, size: int64",
    "output: T",
    {"T": type_attr({uint8, int8, int16, int32, int64, float32, float64})} | SEEDS,
    shape=_cropped_shape,
    stateful=_crop,
    grad=NOT_DIFFERENTIABLE,
    facts=SEEDED,
    doc="A part of this size of an image, at a random place.",
)
