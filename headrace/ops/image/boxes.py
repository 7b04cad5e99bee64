"""Boxes: NonMaxSuppression in all its versions, CombinedNonMaxSuppression, DrawBoundingBoxes.

Source: TensorFlow's ops of the same names. Boxes are visited in the order of their scores (of equal scores the first
box first). A box is selected if it overlaps no selected box by more than the threshold. In the soft form (Bodla et al.,
"Soft-NMS", 2017) overlaps lower the score instead. Overlaps are computed in float32.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import DType, float16, float32, int32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Case, Facts, case, flops_per_element, flops_per_input, op, type_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.batch_rules import folding
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank

Array = np.ndarray
F32 = np.float32
Overlaps = Callable[[int, Any], Array]  # of one box with some others

# *** Suppression ***


def _overlaps(boxes: Array) -> Overlaps:
    """Intersection over union of boxes given by two corners, either way round."""
    corners = boxes.astype(F32).reshape(-1, 2, 2)
    low, high = corners.min(1), corners.max(1)
    area = np.prod(high - low, 1)

    def between(i: int, others: Any) -> Array:
        sides = np.minimum(high[i], high[others]) - np.maximum(low[i], low[others])
        shared = np.prod(np.maximum(sides, 0), 1)
        out: Array = np.where((area[i] <= 0) | (area[others] <= 0), F32(0), shared / (area[i] + area[others] - shared))
        return out

    return between


def _by_score(scores: Array, least: Any) -> Array:
    """The boxes with more than the least score, best first."""
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    return order[scores[order] > least]


def _selected(overlap: Overlaps, scores: Array, most: int, threshold: Any, least: Any) -> list[int]:
    left = _by_score(scores, least)
    found: list[int] = []
    while left.size and len(found) < most:
        best = int(left[0])
        found.append(best)
        left = left[1:]
        left = left[overlap(best, left).astype(scores.dtype) <= threshold]
    return found


def _softly_selected(
    overlap: Overlaps, scores: Array, most: int, least: Any, sigma: Any
) -> tuple[list[int], list[Any]]:
    """Selects boxes by soft non-maximum suppression.

    Each selected box lowers the scores of the boxes that overlap it. A score is updated when its box reaches the front
    of the queue. The box is selected if the score is unchanged; otherwise it goes back into the queue.
    """
    t = scores.dtype.type
    scale = t(-0.5) / sigma
    queue = [(-float(scores[i]), int(i), 0) for i in _by_score(scores, least)]
    found: list[int] = []
    kept: list[Any] = []
    while queue and len(found) < most:
        minus, i, seen = heapq.heappop(queue)
        before = score = t(-minus)
        if len(found) > seen:
            share = overlap(i, found[seen:])[::-1].astype(t)
            lowered = np.multiply.accumulate(np.concatenate(([score], np.exp(scale * share * share))), dtype=t)[1:]
            score = lowered[int(np.argmax(lowered <= least)) if (lowered <= least).any() else -1]
        if score == before:
            found.append(i)
            kept.append(score)
        elif score > least:
            heapq.heappush(queue, (-float(score), i, len(found)))
    return found, kept


def _require_scalars(scalars: Mapping[str, Any]) -> None:
    for name, x in scalars.items():
        if x.ndim:
            raise InvalidArgumentError(f"{name} must be 0-D, got shape {show(x.shape)}")


def _require_scores(scores: Array, boxes: int) -> None:
    if scores.ndim != 1:
        raise InvalidArgumentError(f"scores must be 1-D, got shape {show(scores.shape)}")
    if len(scores) != boxes:
        raise InvalidArgumentError(
            f"scores has incompatible shape (Dimensions must be equal, but are {boxes} and {len(scores)})"
        )


def _require_share(threshold: Any) -> None:
    if not 0 <= threshold <= 1:
        raise InvalidArgumentError(f"iou_threshold must be in [0, 1], got {threshold}")


def _require_count(most: int) -> None:
    if most < 0:
        raise InvalidArgumentError(f"output size must be non-negative, got {most}")


def _vector(values: Sequence[Any], t: Any, length: int) -> Array:
    """`values` and zeros up to `length`."""
    out = np.zeros(length, t)
    out[: len(values)] = values
    return out


def _suppression(version: int) -> Any:
    """The kernel of NonMaxSuppression and its versions, which have ever more inputs and outputs."""

    def factory(attrs: Mapping[str, Any]) -> Any:
        t = attrs.get("T", float32).numpy
        lowest = np.finfo(t).min

        def kernel(boxes: Array, scores: Array, most: Any, *more: Any) -> Any:
            names = ("max_output_size", "iou_threshold", "score_threshold", "soft_nms_sigma")
            _require_scalars(dict(zip(names, (most, *more), strict=False)))
            given: list[Any] = [x.astype(t) for x in more or [np.asarray(attrs["iou_threshold"])]]
            threshold, least, sigma = given + [lowest, t.type(0)][len(given) - 1 :]
            _require_share(threshold)
            if not sigma >= 0:
                raise InvalidArgumentError(f"soft_nms_sigma_val must be >= 0, got {sigma}")
            if boxes.ndim != 2:
                raise InvalidArgumentError(f"boxes must be 2-D, got shape {show(boxes.shape)}")
            if boxes.shape[1] != 4:
                raise InvalidArgumentError(f"boxes must have 4 columns (Dimension must be 4 but is {boxes.shape[1]})")
            _require_scores(scores, len(boxes))
            count = int(most)
            _require_count(count)
            if sigma > 0:
                found, kept = _softly_selected(_overlaps(boxes), scores, count, least, sigma)
            else:
                found = _selected(_overlaps(boxes), scores, count, threshold, least)
                kept = list(scores[found])
            valid = np.asarray(len(found), np.int32)
            length = count if attrs.get("pad_to_max_output_size") else len(found)
            check_size((length,), int32)
            chosen = _vector(found, np.int32, length)
            if version == 5:
                return chosen, _vector(kept, t, length), valid
            return (chosen, valid) if version == 4 else chosen

        return kernel

    return factory


def _by_overlaps(attrs: Mapping[str, Any]) -> Any:
    def kernel(overlaps: Array, scores: Array, most: Any, threshold: Any, least: Any) -> Array:
        _require_scalars({"max_output_size": most, "overlap_threshold": threshold, "score_threshold": least})
        if overlaps.ndim != 2:
            raise InvalidArgumentError(f"overlaps must be 2-D, got shape {show(overlaps.shape)}")
        if overlaps.shape[0] != overlaps.shape[1]:
            raise InvalidArgumentError(f"overlaps must be square, got shape {show(overlaps.shape)}")
        _require_scores(scores, len(overlaps))
        _require_count(int(most))
        # the table need not be symmetric: it is read in the row of the box that may be left out
        found = _selected(lambda i, others: overlaps[others, i], scores, int(most), threshold, least)
        return np.array(found, np.int32)

    return kernel


def _combined(attrs: Mapping[str, Any]) -> Any:
    pad_per_class, clip = attrs["pad_per_class"], attrs["clip_boxes"]

    def kernel(boxes: Array, scores: Array, per_class: Any, total: Any, threshold: Any, least: Any) -> Any:
        if boxes.ndim != 4:
            raise InvalidArgumentError(f"boxes must be 4-D [batch, num_boxes, q, 4], got shape {show(boxes.shape)}")
        if scores.ndim != 3:
            raise InvalidArgumentError(
                f"scores must be 3-D [batch, num_boxes, num_classes], got shape {show(scores.shape)}"
            )
        classes = scores.shape[2]
        if boxes.shape[2] not in (1, classes):
            raise InvalidArgumentError(
                f"third dimension of boxes must be either 1 or num classes ({classes}), got shape {show(boxes.shape)}"
            )
        if boxes.shape[3] != 4:
            raise InvalidArgumentError(f"boxes must have 4 columns, got shape {show(boxes.shape)}")
        if scores.shape[1] != boxes.shape[1]:
            raise InvalidArgumentError(f"scores has incompatible shape {show(scores.shape)} for {show(boxes.shape)}")
        if boxes.shape[0] != scores.shape[0]:
            raise InvalidArgumentError(
                f"boxes and scores must have same batch size, got {show(boxes.shape)} and {show(scores.shape)}"
            )
        _require_scalars(
            {
                "max_size_per_class": per_class,
                "max_total_size": total,
                "iou_threshold": threshold,
                "score_threshold": least,
            }
        )
        if per_class <= 0:
            raise InvalidArgumentError(f"max_size_per_class must be positive, got {per_class}")
        if total <= 0:
            raise InvalidArgumentError(f"max_total_size must be > 0, got {total}")
        _require_share(threshold)
        size = min(int(total), int(per_class) * classes) if pad_per_class else int(total)
        batch = len(boxes)
        check_size((batch, size, 4), float32)
        out = np.zeros((batch, size, 4), F32)
        values, names = np.zeros((batch, size), F32), np.zeros((batch, size), F32)
        valid = np.zeros(batch, np.int32)
        for n in range(batch):
            found = [
                (name, i)
                for name in range(classes)
                for i in _selected(
                    _overlaps(boxes[n, :, min(name, boxes.shape[2] - 1)]),
                    scores[n, :, name],
                    int(per_class),
                    threshold,
                    least,
                )
            ]
            best = sorted(found, key=lambda at, n=n: -scores[n, at[1], at[0]])[:size]  # type: ignore[misc]
            valid[n] = len(best)
            for k, (name, i) in enumerate(best):
                box = boxes[n, i, min(name, boxes.shape[2] - 1)]
                out[n, k] = np.clip(box, 0, 1) if clip else box
                values[n, k], names[n, k] = scores[n, i, name], name
        return out, values, names, valid

    return kernel


# *** Shapes ***


def _count(c: Inference, i: int) -> Dim:
    n = c.scalar(i)
    if n is not None and n < 0:
        raise ValueError(f"output size must be non-negative, got {n}")
    return n


def _suppressed_shape(c: Inference) -> Sequence[Shape]:
    boxes = with_rank(c.shapes[0], 2)
    merge_dim(boxes[0], with_rank(c.shapes[1], 1)[0])
    merge_dim(boxes[1], boxes[0] if c.op.type == "NonMaxSuppressionWithOverlaps" else 4)
    for scalar in c.shapes[2:]:
        with_rank(scalar, 0)
    length = _count(c, 2) if c.attrs.get("pad_to_max_output_size") else None
    return [(length,), *[(length,)] * (len(c.op.outputs) == 3), ()][: len(c.op.outputs)]


def _combined_shape(c: Inference) -> Sequence[Shape]:
    boxes, scores = with_rank(c.shapes[0], 4), with_rank(c.shapes[1], 3)
    batch = merge_dim(boxes[0], scores[0])
    merge_dim(boxes[1], scores[1])
    merge_dim(boxes[3], 4)
    if boxes[2] != 1:
        merge_dim(boxes[2], scores[2])
    for scalar in c.shapes[2:]:
        with_rank(scalar, 0)
    per_class, size = c.scalar(2), c.scalar(3)
    for n, name in ((per_class, "max_output_size_per_class"), (size, "max_total_size")):
        if n is not None and n <= 0:
            raise ValueError(f"{name} should be > 0, got {n}")
    if c.attrs["pad_per_class"]:
        known = per_class is not None and size is not None and scores[2] is not None
        size = min(size, per_class * scores[2]) if known else None  # type: ignore[operator, type-var]
    return [(batch, size, 4), (batch, size), (batch, size), (batch,)]


# *** Drawing ***

# Yellow, blue, red, lime, purple, olive, maroon, navy, aqua, fuchsia.
_COLORS = np.array(
    [
        [1, 1, 0, 1],
        [0, 0, 1, 1],
        [1, 0, 0, 1],
        [0, 1, 0, 1],
        [0.5, 0, 0.5, 1],
        [0.5, 0.5, 0, 1],
        [0.5, 0, 0, 1],
        [0, 0, 0.5, 1],
        [0, 1, 1, 1],
        [1, 0, 1, 1],
    ],
    F32,
)


def _draw_boxes(attrs: Mapping[str, Any]) -> Any:
    def kernel(images: Array, boxes: Array, colors: Any = None) -> Array:
        if images.ndim != 4:
            raise InvalidArgumentError(f"The rank of the images should be 4, got shape {show(images.shape)}")
        if boxes.ndim != 3:
            raise InvalidArgumentError(f"The rank of the boxes tensor should be 3, got shape {show(boxes.shape)}")
        if len(images) != len(boxes):
            raise InvalidArgumentError(f"The batch sizes should be the same, got {len(images)} and {len(boxes)}")
        height, width, depth = images.shape[1:]
        if depth not in (1, 3, 4):
            raise InvalidArgumentError(f"Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA), got {depth}")
        if boxes.shape[2] != 4:
            raise InvalidArgumentError(
                f"The size of the third dimension of the box must be 4. Received: {boxes.shape[2]}"
            )
        if colors is not None:
            if colors.ndim != 2:
                raise InvalidArgumentError(f"colors must be a 2-D matrix, got shape {show(colors.shape)}")
            if colors.shape[1] < depth:
                raise InvalidArgumentError(
                    f"colors must have equal or more channels than the image provided: {show(colors.shape)}"
                )
        if colors is None or not len(colors):
            colors = _COLORS if depth > 1 else np.ones_like(_COLORS)
        table = colors[:, :depth].astype(images.dtype)
        out = images.copy()
        last = np.array([height - 1, width - 1, height - 1, width - 1], F32)
        # corners beyond any image stay there; those that are no numbers are of boxes that are not drawn
        corners = np.clip(np.nan_to_num(boxes.astype(F32), nan=-np.inf) * last, -(2.0**40), 2.0**40).astype(np.int64)
        for image, found in zip(out, corners.tolist(), strict=True):
            for i, (top, left, bottom, right) in enumerate(found):
                if top > bottom or left > right or top >= height or bottom < 0 or left >= width or right < 0:
                    continue
                _outline(image, top, left, bottom, right, table[i % len(table)])
        return out

    return kernel


def _outline(image: Array, top: int, left: int, bottom: int, right: int, color: Array) -> None:
    """The sides of the box that are in the image."""
    height, width = image.shape[:2]
    rows, columns = slice(max(top, 0), bottom + 1), slice(max(left, 0), right + 1)
    if top >= 0:
        image[top, columns] = color
    if bottom < height:
        image[bottom, columns] = color
    if left >= 0:
        image[rows, left] = color
    if right < width:
        image[rows, right] = color


def _drawn_shape(c: Inference) -> Sequence[Shape]:
    boxes = with_rank(c.shapes[1], 3)
    merge_dim(boxes[2], 4)
    images = with_rank(c.shapes[0], 4)
    for colors in c.shapes[2:]:
        with_rank(colors, 2)
    return [images]


# *** Oracles and samples ***


def _share(a: Array, b: Array) -> float:
    (y, x, v, u), (p, q, r, s) = map(float, a), map(float, b)
    y, v, x, u, p, r, q, s = *sorted((y, v)), *sorted((x, u)), *sorted((p, r)), *sorted((q, s))
    shared = max(0.0, min(v, r) - max(y, p)) * max(0.0, min(u, s) - max(x, q))
    union = (v - y) * (u - x) + (r - p) * (s - q) - shared
    return shared / union if (v - y) * (u - x) > 0 and (r - p) * (s - q) > 0 else 0.0


def _greedy(
    similar: Callable[[int, int], float], scores: Array, most: int, threshold: float, least: float
) -> list[int]:
    found: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: (-float(scores[i]), i)):
        if scores[i] > least and len(found) < most and all(similar(i, j) <= threshold for j in found):
            found.append(i)
    return found


def _suppression_oracle(version: int) -> Any:
    def oracle(
        boxes: Array,
        scores: Array,
        most: Any,
        iou_threshold: Any = 0.5,
        least: Any = -np.inf,
        sigma: Any = 0.0,
        pad_to_max_output_size: bool = False,
    ) -> Any:
        left = {i: float(s) for i, s in enumerate(scores) if s > least}
        found: list[int] = []
        kept: list[float] = []
        while left and len(found) < most:
            best = max(left, key=lambda i: (left[i], -i))
            found.append(best)
            kept.append(left.pop(best))
            for i in list(left):
                share = _share(boxes[i], boxes[best])
                left[i] *= np.exp(-0.5 / sigma * share**2) if sigma > 0 else float(share <= iou_threshold)
                if left[i] <= least or not left[i]:
                    del left[i]
        extra = int(most) - len(found) if pad_to_max_output_size else 0
        out = np.array(found + [0] * extra, np.int32), np.array(kept + [0] * extra, scores.dtype)
        valid = np.array(len(found), np.int32)
        return {4: (out[0], valid), 5: (*out, valid)}.get(version, out[0])

    return oracle


def _overlaps_oracle(overlaps: Array, scores: Array, most: Any, threshold: Any, least: Any) -> Array:
    return np.array(_greedy(lambda i, j: overlaps[i, j], scores, int(most), threshold, least), np.int32)


def _combined_oracle(
    boxes: Array, scores: Array, per_class: Any, total: Any, iou: Any, least: Any, pad_per_class: bool, clip_boxes: bool
) -> Any:
    batch, _, classes = scores.shape
    size = min(int(total), int(per_class) * classes) if pad_per_class else int(total)
    out = [np.zeros((batch, size, 4), F32), np.zeros((batch, size), F32), np.zeros((batch, size), F32)]
    valid = np.zeros(batch, np.int32)
    for n in range(batch):
        found: list[Any] = []
        for k in range(classes):
            mine = boxes[n, :, k if boxes.shape[2] > 1 else 0]
            table = np.array([[_share(a, b) for b in mine] for a in mine])
            best = _greedy(lambda i, j, t=table: t[i, j], scores[n, :, k], int(per_class), iou, least)  # type: ignore[misc]
            found.extend((-scores[n, i, k], k, mine[i]) for i in best)
        found.sort(key=lambda f: f[0])
        for at, (minus, k, box) in enumerate(found[:size]):
            out[0][n, at] = [min(max(v, 0), 1) for v in box] if clip_boxes else box
            out[1][n, at], out[2][n, at] = -minus, k
            valid[n] += 1
    return *out, valid


def _draw_oracle(images: Array, boxes: Array, colors: Any = None) -> Array:
    out, depth = images.copy(), images.shape[3]
    table = _COLORS if colors is None else colors
    for n, y, x in np.ndindex(images.shape[:3]):
        for k, box in enumerate(boxes[n]):
            top, left, bottom, right = (int(v * (images.shape[1 + i % 2] - 1)) for i, v in enumerate(box))
            if top <= y <= bottom and left <= x <= right and (y in (top, bottom) or x in (left, right)):
                out[n, y, x] = table[k % len(table)][:depth]
    return out


def _boxes(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    """Boxes that overlap much."""
    corners = rng.integers(0, 8, (*shape, 4)) / 16
    return (corners + np.array([0.0, 0.0, 0.5, 0.5])).astype(dtype.numpy)


def _scores(rng: np.random.Generator, dtype: DType, *shape: int) -> Array:
    """Numbers that float16 has, all different."""
    n = int(np.prod(shape))
    return (rng.permutation(n).reshape(shape) / 16 + 0.0625).astype(dtype.numpy)


def _suppression_samples(version: int) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        out = []
        for most, share, least, sigma, pad in ((3, 0.3, 0.2, 0.0, True), (6, 0.6, 0.3, 0.5, False)):
            t = dtype.numpy.type
            more = [t(share), t(least), t(sigma)][: max(0, version - 1) if version < 4 else version - 2]
            inputs = (_boxes(rng, dtype, 6), _scores(rng, dtype, 6), np.int32(most))
            if version == 1:
                out.append(case(*inputs, iou_threshold=share))
            else:
                out.append(case(*inputs, *more, **({"pad_to_max_output_size": pad} if version > 3 else {})))
            if version == 5 and dtype is float16:
                break  # of lowered scores half precision keeps too little to compare
        return out

    return sample


def _overlaps_samples(rng: np.random.Generator, dtype: DType) -> list[Case]:
    table = rng.random((5, 5)).astype(F32)
    limits = np.float32(0.5), np.float32(0.1)
    return [case((table + table.T) / 2, _scores(rng, float32, 5), np.int32(n), *limits) for n in (2, 5)]


def _combined_samples(rng: np.random.Generator, dtype: DType) -> list[Case]:
    return [
        case(
            _boxes(rng, float32, 2, 5, q) * np.float32(1.25),
            _scores(rng, float32, 2, 5, 3),
            np.int32(2),
            np.int32(n),
            np.float32(0.4),
            np.float32(0.3),
            pad_per_class=pad,
            clip_boxes=pad,
        )
        for q, n, pad in ((1, 4, False), (3, 8, True))
    ]


def _draw_samples(colored: bool) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Case]:
        boxes = np.array([[[0.1, 0.2, 0.6, 0.9], [0.5, -0.5, 1.5, 0.5]], [[0.9, 0.1, 0.2, 0.3], [0, 0, 1, 1]]], F32)
        colors = [np.array([[0.25, 0.5, 0.75]], F32)] if colored else []
        return [case(draw(rng, dtype, (2, 5, 6, 3)), boxes, *colors)]

    return sample


# *** Records ***

_HALVES = type_attr({float16, float32}, float32)
_THRESHOLDS = ", iou_threshold: {0}, score_threshold: {0}, soft_nms_sigma: {0}"
_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(100))

# fmt: off
for _version, _thresholds, _outs, _attrs, _doc in (
    (1, "", "", {"iou_threshold": 0.5}, "Of boxes that overlap much the one of the best score."),
    (2, ", iou_threshold: T_threshold", "", {"T": _HALVES, "T_threshold": _HALVES},
     "NonMaxSuppression with the threshold as an input."),
    (3, ", iou_threshold: T_threshold, score_threshold: T_threshold", "", {"T": _HALVES, "T_threshold": _HALVES},
     "NonMaxSuppressionV2 of the boxes with more than a least score."),
    (4, ", iou_threshold: T_threshold, score_threshold: T_threshold", ", valid_outputs: int32",
     {"T": _HALVES, "T_threshold": _HALVES, "pad_to_max_output_size": False},
     "NonMaxSuppressionV3, padded with zeros if asked; and how many boxes that are."),
    (5, _THRESHOLDS.format("T"), ", selected_scores: T, valid_outputs: int32",
     {"T": _HALVES, "pad_to_max_output_size": False},
     "NonMaxSuppressionV4, where boxes that overlap may have their score lowered instead; and the scores."),
):
    op(
        f"NonMaxSuppression{f'V{_version}' if _version > 1 else ''}",
        ("boxes: T, scores: T" if _version > 1 else "boxes: float32, scores: float32")
        + f", max_output_size: int32{_thresholds}",
        f"selected_indices: int32{_outs}",
        _attrs,
        shape=_suppressed_shape,
        kernel=_suppression(_version),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=_FACTS,
        oracle=_suppression_oracle(_version),
        sample=_suppression_samples(_version),
        doc=_doc,
    )
# fmt: on
op(
    "NonMaxSuppressionWithOverlaps",
    "overlaps: float32, scores: float32, max_output_size: int32, overlap_threshold: float32, score_threshold: float32",
    "selected_indices: int32",
    shape=_suppressed_shape,
    kernel=_by_overlaps,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    oracle=_overlaps_oracle,
    sample=_overlaps_samples,
    doc="NonMaxSuppressionV3 with a table of how much any two boxes overlap.",
)
op(
    "CombinedNonMaxSuppression",
    "boxes: float32, scores: float32, max_output_size_per_class: int32, max_total_size: int32, "
    "iou_threshold: float32, score_threshold: float32",
    "nmsed_boxes: float32, nmsed_scores: float32, nmsed_classes: float32, valid_detections: int32",
    {"pad_per_class": False, "clip_boxes": True},
    shape=_combined_shape,
    kernel=_combined,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_FACTS,
    oracle=_combined_oracle,
    sample=_combined_samples,
    doc="For each image of a batch the best boxes of all classes, each class by its own NonMaxSuppression.",
)
for _suffix, _more, _colored in (("", "", False), ("V2", ", colors: float32", True)):
    op(
        f"DrawBoundingBoxes{_suffix}",
        f"images: T, boxes: float32{_more}",
        "output: T",
        {"T": _HALVES},
        shape=_drawn_shape,
        kernel=_draw_boxes,
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        batch=folding(0, 1),
        facts=Facts(cost=flops_per_element(1), fresh=True),
        oracle=_draw_oracle,
        sample=_draw_samples(_colored),
        doc="Images with boxes drawn into them" + (", in these colours by turns." if _colored else "."),
    )
