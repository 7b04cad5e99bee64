"""Functions of several areas for TensorFlow 1 or `headrace.v1`, by name.

python tests/v1/function_cases.py              # with TensorFlow: writes function_values.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).parent / "function_values.json"

BOXES = [[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]], [[0, 0, 1, 1], [0, 2, 1, 3], [0, 2, 1, 2.9]]]
SCORES = [[0.5, 0.9, 0.1], [0.3, 0.6, 0.7]]


def images(tf: Any) -> dict[str, Any]:
    """Functions of `tf.image`."""
    rng = np.random.default_rng(1)
    x = rng.random((2, 48, 45, 2), np.float32)
    y = np.clip(x + rng.normal(0, 0.1, x.shape), 0, 1).astype(np.float32)
    small = {"filter_size": 4, "filter_sigma": 1.0}
    pad = tf.image.non_max_suppression_padded
    flat = np.tile(np.array([120, 40, 200], np.uint8), (8, 8, 1))
    exact = "INTEGER_ACCURATE"  # the faster transforms of decoders round differently
    return {
        "ssim_multiscale": tf.image.ssim_multiscale(x, y, 1.0, power_factors=(0.2, 0.3, 0.5)),
        "ssim_multiscale of other windows": tf.image.ssim_multiscale(x, y, 2.0, (0.3, 0.3, 0.2, 0.2), **small),
        "ssim_multiscale of integers": tf.image.ssim_multiscale(
            (x * 255).astype(np.uint8), (y * 255).astype(np.uint8), 255, (0.5, 0.5)
        ),
        "padded": pad(tf.constant(BOXES[0]), tf.constant(SCORES[0]), 3),
        "padded to the size": pad(tf.constant(BOXES[0]), tf.constant(SCORES[0]), 4, pad_to_max_output_size=True),
        "padded batch": pad(tf.constant(BOXES), tf.constant(SCORES), 2, 0.5, pad_to_max_output_size=True),
        "adjust_jpeg_quality": tf.image.adjust_jpeg_quality(flat, 90, exact),
        "adjust_jpeg_quality of floats": tf.image.adjust_jpeg_quality(flat[:, :, :1] / np.float32(255), 40, exact),
        "random_jpeg_quality": tf.image.random_jpeg_quality(np.full((8, 8, 3), 128, np.uint8), 75, 95, seed=3),
    }


def networks(tf: Any) -> dict[str, Any]:
    """Functions of `tf.nn`."""
    rng = np.random.default_rng(2)
    x, w = rng.random((1, 7, 8, 2), np.float32), rng.random((3, 3, 2, 2), np.float32)
    volume = rng.random((1, 4, 4, 4, 1), np.float32)

    def convolved(y: Any, axes: int, padding: str) -> Any:
        return tf.nn.conv2d(y, w, [1, 1, 1, 1], padding)

    def pooled(y: Any, axes: int, padding: str) -> Any:
        return tf.nn.max_pool(y, [1, 1, 2, 1], [1, 1, 1, 1], padding)

    spread = tf.nn.with_space_to_batch
    return {
        "ctc_unique_labels": tf.nn.ctc_unique_labels([[3, 4, 4, 3], [1, 1, 0, 0]]),
        "with_space_to_batch": spread(x, [2, 3], "SAME", convolved, [3, 3]),
        "with_space_to_batch VALID": spread(x, [2, 1], "VALID", convolved),
        "with_space_to_batch of one axis": spread(x, [2], "SAME", pooled, [2], spatial_dims=[2]),
        "with_space_to_batch of rate 1": spread(x, [1, 1], "SAME", convolved, [3, 3]),
        "max_pool_v2 of sequences": tf.nn.max_pool_v2(x[0], 2, 1, "VALID"),
        "max_pool_v2 of volumes": tf.nn.max_pool_v2(volume, 2, 2, "SAME"),
        "avg_pool_v2 of sequences": tf.nn.avg_pool_v2(x[0], 2, 1, "VALID"),
        "avg_pool_v2 of volumes": tf.nn.avg_pool_v2(volume, 2, 2, "SAME"),
    }


def randomness(tf: Any) -> dict[str, Any]:
    """Functions of `tf.random`."""
    shuffled = tf.random.experimental.index_shuffle
    return {
        "index_shuffle": shuffled(tf.range(7), [5, 9], 6),
        "index_shuffle of a scalar": shuffled(2, [5, 9], 3),
    }


def sounds(tf: Any) -> dict[str, Any]:
    """Functions of `tf.audio`."""
    sound = np.array([[0.0, 0.5], [-1.0, 0.3], [2.0, -0.7]], np.float32)
    data = tf.audio.encode_wav(sound, 8000)
    return {
        "encode_wav": tf.decode_raw(data, tf.uint8),
        "decode_wav": list(tf.audio.decode_wav(data)),
        "decode_wav of one channel": tf.audio.decode_wav(data, desired_channels=1).audio,
        "decode_wav of more": tf.audio.decode_wav(data, 3, 5).audio,
        "decode_wav of fewer": tf.audio.decode_wav(data, desired_samples=1).audio,
    }


def texts(tf: Any) -> dict[str, Any]:
    """Splits of strings."""
    lines = ["a b  c", "", "de f"]
    return {
        "string_split": tf.string_split(lines, result_type="RaggedTensor"),
        "string_split with empty parts": tf.string_split(lines, " ", skip_empty=False, result_type="RaggedTensor"),
        "strings.split": tf.strings.split(lines, result_type="RaggedTensor"),
        "strings.split at most": tf.strings.split(lines, " ", 1, "RaggedTensor"),
    }


def _example(**lists: Any) -> str:
    """An example of integers in JSON."""
    features = {key: {"int64List": {"value": values}} for key, values in lists.items()}
    return json.dumps({"features": {"feature": features}})


def examples(tf: Any) -> dict[str, Any]:
    """Features of examples with rows of different lengths."""
    feature = tf.io.RaggedFeature
    parts = {
        "splits": [feature.RowSplits("splits")],
        "lengths": [feature.RowLengths("lengths")],
        "starts": [feature.RowStarts("starts")],
        "limits": [feature.RowLimits("limits")],
        "rows": [feature.ValueRowIds("rows")],
        "uniform": [feature.UniformRowLength(2)],
        "nested": [feature.RowLengths("outer"), feature.RowLengths("lengths")],
        "uniform outside": [feature.UniformRowLength(3), feature.RowLengths("lengths")],
    }
    one = _example(
        v=[3, 1, 4, 1, 5, 9], splits=[0, 2, 3, 6], lengths=[2, 1, 3], starts=[0, 2, 3], limits=[2, 3, 6],
        rows=[0, 0, 1, 2, 2, 2], outer=[2, 1],
    )  # fmt: skip
    two = _example(
        v=[2, 7], splits=[0, 0, 1, 2], lengths=[0, 1, 1], starts=[0, 0, 1], limits=[0, 1, 2], rows=[1, 2], outer=[3]
    )
    out: dict[str, Any] = {}
    wanted = {name: feature(tf.int64, "v", partitions) for name, partitions in parts.items()}
    wanted["v"] = feature(tf.int64)
    batch = tf.io.parse_example(tf.io.decode_json_example([one, two]), wanted)
    single = tf.io.parse_single_example(tf.io.decode_json_example(one), wanted)
    out |= {f"features of a batch, {name}": x for name, x in batch.items()}
    out |= {f"features of one, {name}": x for name, x in single.items()}
    return out


def build(tf: Any) -> dict[str, Any]:
    """Builds tensors of all areas in the default graph."""
    return {name: x for area in AREAS for name, x in area(tf).items()}


AREAS = (images, networks, randomness, sounds, texts, examples)


def plain(value: Any) -> Any:
    """Nested lists of a fetched value."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "to_list"):
        return [plain(x) for x in value]
    found = value.to_list() if hasattr(value, "to_list") else value.tolist()
    return [[text.decode() for text in row] for row in found] if value.dtype == object else found


if __name__ == "__main__":
    import importlib

    tensorflow: Any = importlib.import_module("tensorflow.compat.v1")
    tensorflow.disable_eager_execution()
    with tensorflow.Graph().as_default(), tensorflow.Session() as session:
        found = {k: plain(v) for k, v in session.run(build(tensorflow)).items()}
    VALUES.write_text(json.dumps(found) + "\n", encoding="utf-8")
