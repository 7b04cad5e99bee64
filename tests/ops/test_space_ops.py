"""Moves between space, batch and depth, and layouts.

Errors and shapes are as TensorFlow 2.21 has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, ShapeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from tests.ops.test_math_ops import array, run

pytestmark = pytest.mark.one_engine

I32, F32 = np.int32, np.float32
IMAGES = np.arange(16, dtype=F32).reshape(1, 4, 4, 1)
BATCH = np.tile(IMAGES, (4, 1, 1, 1))
NONE = [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("type", "args", "match"),
    [
        ("SpaceToBatchND", (IMAGES[0, 0, 0], [2, 2], NONE), "input rank should be >= 3 instead of 1"),
        ("SpaceToBatchND", (IMAGES, [[2, 2]], NONE), "block_shape rank should be 1 instead of 2"),
        (
            "SpaceToBatchND",
            (IMAGES, [2, 2], [[0, 0, 0]] * 2),
            r"paddings should have shape \[2, 2\] instead of \[2,3\]",
        ),
        ("SpaceToBatchND", (IMAGES, [2, 2], [[0, -2], [0, 0]]), "Paddings must be non-negative"),
        ("SpaceToBatchND", (IMAGES, [0, 2], NONE), "All values in block_shape must be positive"),
        ("SpaceToBatchND", (IMAGES, [3, 2], NONE), r"padded_shape\[0\]=4 is not divisible by block_shape\[0\]=3"),
        ("BatchToSpaceND", (IMAGES, [2, 2], NONE), r"batch dimension \(1\) is not divisible by product of block sizes"),
        ("BatchToSpaceND", (BATCH, [2, 2], [[0, -1], [0, 0]]), "Crops must be non-negative"),
        ("BatchToSpaceND", (BATCH, [2, 2], [[5, 5], [0, 0]]), r"cropped_shape\[0\]=-2 must be non-negative"),
        ("BatchToSpaceND", (BATCH, [-1, 2], NONE), "must be positive"),
    ],
)
def test_what_cannot_be_moved(type: str, args: tuple[Any, ...], match: str) -> None:
    x, *rest = args
    with pytest.raises(InvalidArgumentError, match=match):
        run(type, x, *map(array, rest))


def test_more_blocks_than_64_bits_count() -> None:
    blocks = np.array([2**31, 2**33], np.int64)
    with pytest.raises(InvalidArgumentError, match="Product of block sizes"):
        run("SpaceToBatchND", IMAGES, blocks, array(NONE))


def test_the_ops_for_images_take_images() -> None:
    for type in ("SpaceToBatch", "BatchToSpace"):
        with pytest.raises(InvalidArgumentError, match="Input rank should be: 4"):
            run(type, IMAGES[0], array(NONE), block_size=2)
    with pytest.raises(InvalidArgumentError, match="paddings should have shape"):
        run("SpaceToBatch", IMAGES, array([[0, 0]]), block_size=2)


def test_everything_may_be_cropped() -> None:
    assert run("BatchToSpaceND", BATCH, array([2, 2]), array([[4, 4], [0, 0]])).shape == (1, 0, 8, 1)


@pytest.mark.parametrize("type", ["SpaceToDepth", "DepthToSpace"])
def test_depth_has_one_layout_on_the_cpu(type: str) -> None:
    x = np.ones((1, 4, 2, 2), F32)
    with pytest.raises(InvalidArgumentError, match="No OpKernel was registered"):
        run(type, x, block_size=2, data_format="NCHW")
    with pytest.raises(InvalidArgumentError, match="No OpKernel was registered"):
        run(type, x[..., None], block_size=2, data_format="NCHW_VECT_C")
    with pytest.raises(InvalidArgumentError, match="Input rank should be 4"):
        run(type, x[0], block_size=2)


def test_what_does_not_divide() -> None:
    with pytest.raises(InvalidArgumentError, match="Image width 2 and height 3 should be divisible by block_size: 2"):
        run("SpaceToDepth", np.ones((1, 3, 2, 2), F32), block_size=2)
    with pytest.raises(InvalidArgumentError, match="Input depth dimension 2 should be divisible by: 4"):
        run("DepthToSpace", np.ones((1, 3, 2, 2), F32), block_size=2)


def test_strings_move_too() -> None:
    x = np.array([b"a", b"b", b"c", b"d"], object).reshape(1, 2, 2, 1)
    assert run("SpaceToDepth", x, block_size=2).ravel().tolist() == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("type", "x", "attrs", "match"),
    [
        ("DataFormatDimMap", [1], {"src_format": "12345678"}, "Source format must be of length 4 or 5"),
        ("DataFormatDimMap", [1], {"dst_format": "123456"}, "Destination format must be of length 4 or 5"),
        ("DataFormatDimMap", [1], {"src_format": "NHWW", "dst_format": "NHWW"}, "must determine a permutation"),
        ("DataFormatDimMap", [1], {"dst_format": "NCDHW"}, "must determine a permutation"),
        ("DataFormatVecPermute", [1, 2, 3], {}, "1D input must be of size 2 or 4"),
        ("DataFormatVecPermute", [[1, 2]] * 3, {}, "First dimension of 2D input must be of size 2 or 4"),
        ("DataFormatVecPermute", [[1, 2, 3]] * 4, {}, "Second dimension of 2D input must be of size 2"),
        ("DataFormatVecPermute", 1, {}, "input must be a vector or 2D tensor"),
        ("DataFormatVecPermute", [1, 2], {"src_format": "1234", "dst_format": "4321"}, "must contain H and W"),
    ],
)
def test_layouts_that_there_are_not(type: str, x: Any, attrs: dict[str, str], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        run(type, array(x), **attrs)


def test_partly_known_shapes() -> None:
    b = Builder(Graph())
    x = b.Placeholder(dtype=dtypes.float32, shape=(None, 4, None, 3))
    moved = b.SpaceToBatchND(x, [2, 2], [[0, 2], [1, 1]])
    assert moved.shape == (None, 3, None, 3)
    assert b.BatchToSpaceND(moved, [2, 2], [[0, 2], [1, 1]]).shape == (None, 4, None, 3)
    blocks = b.Placeholder(dtype=dtypes.int32, shape=(2,))
    assert b.SpaceToBatchND(x, blocks, [[0, 2], [1, 1]]).shape == (None, None, None, 3)
    assert b.SpaceToBatch(x, [[0, 0], [1, 1]], block_size=2).shape == (None, 2, None, 3)
    assert b.SpaceToDepth(x, block_size=2).shape == (None, 2, None, 12)
    assert b.DepthToSpace(
        b.Placeholder(dtype=dtypes.float32, shape=(1, 8, 2, None)), block_size=2, data_format="NCHW"
    ).shape == (
        1,
        2,
        4,
        None,
    )
    with pytest.raises(ShapeError, match="evenly divisible by 3 but is 4"):
        b.SpaceToBatchND(x, [3], [[0, 0]])
    with pytest.raises(ShapeError, match="must be rank 1 or 2"):
        b.DataFormatVecPermute(b.Placeholder(dtype=dtypes.int32, shape=()))
