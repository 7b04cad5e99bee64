"""Native convolutions equal the kernels and stay inside of their buffers."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from headrace.opkit.windows import Axis
from headrace.ops.nn.convolving import by_filter, by_input, convolved, in_groups
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.registers import Registers
from headrace.targets.native.windows import convolution as native
from headrace.targets.native.windows.convolution import Convolution, Kind
from tests.targets.native.windows.running import drawn_axis, run

_HALF = Registers(32, 16)


def _arrays(rng: np.random.Generator, spec: Convolution, images: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Input, filter and gradient by the result, of small integers.

    Their products and sums are exact in any order."""
    shapes = (
        (images, *(a.length for a in spec.axes), spec.channels),
        (*(a.size for a in spec.axes), spec.channels // spec.groups, spec.outputs),
        (images, *(a.count for a in spec.axes), spec.outputs),
    )
    x, w, dy = (rng.integers(-4, 5, shape).astype(spec.dtype) for shape in shapes)
    return x, w, dy


def _check(spec: Convolution, images: int, seed: int = 0, registers: Registers | None = None) -> None:
    x, w, dy = _arrays(np.random.default_rng(seed), spec, images)
    for kind, f, a, b, shape in (
        (Kind.FORWARD, convolved, x, w, dy.shape),
        (Kind.BY_INPUT, by_input, w, dy, x.shape),
        (Kind.BY_FILTER, by_filter, x, dy, w.shape),
    ):
        mine, module = dataclasses.replace(spec, kind=kind), Module()
        native.convolution(module, mine, "f", registers)
        first, second = (dy, w) if kind is Kind.BY_INPUT else (a, b)
        scratch = native.scratch_bytes(mine)
        batch = images if spec.batch is None else None
        found = run(module, "f", shape, spec.dtype, [first, second, scratch], batch)
        np.testing.assert_array_equal(found, in_groups(f, a, b, spec.groups, spec.axes), str(mine))


def _drawn(rng: np.random.Generator) -> tuple[Convolution, int]:
    dimensions = int(rng.integers(1, 4))
    axes = tuple(drawn_axis(rng, 9 if dimensions < 3 else 5) for _ in range(dimensions))
    groups = int(rng.choice([1, 1, 2, 3]))
    channels, outputs = (groups * int(rng.choice([1, 2, 3, 5, 8, 17, 40])) for _ in range(2))
    images = int(rng.integers(1, 4))
    dtype = np.dtype(rng.choice([np.float32, np.float64]))
    batch = None if rng.integers(2) else images
    return Convolution(Kind.FORWARD, axes, channels, outputs, groups, dtype, batch), images


@pytest.mark.matrix
@pytest.mark.rotated(2)
@pytest.mark.parametrize("seed", range(60))
def test_random_geometries_give_the_results_of_the_kernels(seed):
    rng = np.random.default_rng(seed)
    spec, images = _drawn(rng)
    _check(spec, images, seed, _HALF if seed % 3 == 0 else None)


_SAME = Axis(7, 7, 3, 1, 1, 1)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("axes", "channels", "outputs", "groups"),
    [
        ((_SAME, _SAME), 20, 37, 1),
        ((_SAME, _SAME), 6, 6, 6),
        ((_SAME, _SAME), 3, 64, 1),
        ((Axis(40, 40, 3, 1, 1, 1),), 7, 5, 1),  # several tiles, with both borders
        ((Axis(30, 30, 20, 1, 1, 9),), 2, 3, 1),  # more taps than are written out
        ((Axis(9, 3, 1, 4, 1, 0), _SAME), 4, 4, 1),  # elements that no window has
        ((Axis(5, 2, 2, 2, 1, -1), _SAME), 4, 4, 1),  # the first window begins behind the first element
        ((Axis(12, 4, 3, 3, 2, 1), Axis(11, 6, 4, 2, 4, 6)), 3, 5, 1),  # dilations with and without common factors
        ((_SAME, Axis(6, 0, 7, 1, 1, 0)), 3, 5, 1),  # no windows
    ],
)
def test_a_geometry_gives_the_results_of_the_kernels(axes, channels, outputs, groups):
    _check(Convolution(Kind.FORWARD, axes, channels, outputs, groups), 2)


@pytest.mark.matrix
def test_no_images_give_an_empty_result_and_a_filter_gradient_of_zeros():
    _check(Convolution(Kind.FORWARD, (_SAME, _SAME), 4, 5), 0)
    _check(Convolution(Kind.FORWARD, (_SAME, _SAME), 4, 5, batch=0), 0)


@pytest.mark.matrix
def test_inputs_are_taken_in_chunks_if_the_filter_exceeds_the_cache(monkeypatch):
    from headrace import thresholds

    monkeypatch.setattr(thresholds, "WINDOW_WEIGHTS", 2000)
    _check(Convolution(Kind.FORWARD, (_SAME, _SAME), 21, 35), 2)


@pytest.mark.matrix
def test_positions_are_taken_in_parts_by_the_gradient_by_the_filter(monkeypatch):
    from headrace import thresholds

    for positions in (1, 5, 20):
        monkeypatch.setattr(thresholds, "WINDOW_POSITIONS", positions)
        _check(Convolution(Kind.FORWARD, (_SAME, Axis(9, 5, 3, 2, 1, 1)), 3, 4), 2)
        _check(Convolution(Kind.FORWARD, (_SAME, Axis(9, 5, 3, 2, 1, 1)), 33, 4), 2)


def test_a_function_is_small_enough_to_compile_in_a_tenth_of_a_second():
    # LLVM takes about a millisecond for two kilobytes
    axis = Axis(56, 56, 3, 1, 1, 1)
    for kind in Kind:
        module = Module()
        native.convolution(module, Convolution(kind, (axis, axis), 64, 64), "f", Registers(64, 32))
        assert len(module.text()) < 120_000


def test_only_the_gradient_by_the_input_has_a_scratch_buffer():
    spec = Convolution(Kind.BY_INPUT, (_SAME, _SAME), 6, 8, 2, np.dtype(np.float64))
    assert native.scratch_bytes(spec) == 3 * 3 * 3 * 8 * 8
    for kind in (Kind.FORWARD, Kind.BY_FILTER):
        assert not native.scratch_bytes(dataclasses.replace(spec, kind=kind))


def test_a_convolution_of_one_element_is_a_product():
    one = Axis(1, 1, 1, 1, 1, 0)
    module = Module()
    native.convolution(module, Convolution(Kind.FORWARD, (one,), 1, 1), "f")
    x = np.full((1, 1, 1), 3, np.float32)
    found = run(module, "f", (1, 1, 1), x.dtype, [x, x + 2, 0], 1)
    assert found.item() == math.prod((3, 5))
