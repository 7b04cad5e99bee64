"""Slices that are a whole tensor together become one split, and their gradients one concatenation."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.optimize.slice_merging import MergeSlices
from tests.optimize.loop_steps import Optimized, close, optimize
from tests.optimize.running import apply, unchanged

X = np.arange(24, dtype=np.float32).reshape(4, 6)


def step(build: Any, gradient: bool = False, passes: Any = None, dims: Any = (4, 6)) -> Optimized:
    """The step that computes `build`, or its gradient, after the pass."""
    with hr.Graph():
        x: Any = hr.placeholder(hr.float32, dims)
        made = build(x)
        ys = made if isinstance(made, list) else [made]
        if gradient:
            ys = hr.gradients(hr.add_n([hr.reduce_sum(hr.tanh(y)) for y in ys]), [x])
        return optimize([x], ys, [MergeSlices()] if passes is None else passes)


def types(made: Optimized) -> list[str]:
    return sorted(op.type for op in made.graph.operations if op.type not in ("Const", "_Arg", "_Retval"))


@pytest.mark.parametrize(
    ("build", "made"),
    [
        (lambda x: [x[:, :3], x[:, 3:]], "Split"),
        (lambda x: [x[:, 4:], x[:, :2], x[:, 2:4]], "Split"),
        (lambda x: [x[:1], x[1:]], "SplitV"),
        (lambda x: [hr.slice(x, [0, 0], [-1, 2]), x[..., 2:]], "SplitV"),
        (lambda x: [x[:, :3], x[:, 3:], x[:, 0:3]], "Split"),
    ],
)
def test_slices_that_are_a_whole_tensor_become_one_split(build: Any, made: str) -> None:
    got = step(build)
    assert types(got) == [made]
    close(got.run([X]), step(build, passes=()).run([X]), 0)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: [x[:, :3], x[:, 4:]],
        lambda x: [x[:, :3], x[:, 2:]],
        lambda x: [x[:, 1:3], x[:, 3:]],
        lambda x: [x[:, :3], x[:, 3:5]],
        lambda x: [x[:, :3], x[1:]],
        lambda x: [x[:, :]],
        lambda x: [x[:, :3], hr.identity(x)[:, 3:]],
    ],
)
def test_other_slices_stay(build: Any) -> None:
    assert not step(build).changed


def test_slices_along_each_of_two_dimensions_become_two_splits() -> None:
    assert types(step(lambda x: [x[:, :3], x[:1], x[:, 3:], x[1:]])) == ["Split", "SplitV"]


def test_slices_of_a_tensor_of_unknown_size_stay() -> None:
    assert not step(lambda x: [x[:1], x[1:]], dims=(None, 6)).changed
    assert types(step(lambda x: [x[:, :3], x[:, 3:]], dims=(None, 6))) == ["Split"]


_SLICES = """
x = _Arg[T=float32, index=0, shape=[6]]
zero = Const[value=int32[1]{0}, dtype=int32]
two = Const[value=int32[1]{2}, dtype=int32]
six = Const[value=int32[1]{6}, dtype=int32]
one = Const[value=int32[1]{1}, dtype=int32]
"""
_A = "a = StridedSlice(x, zero, two, one)\n"
_B = "b = StridedSlice(x, two, six, one)\n"
_ENDS = "ra = _Retval[index=0](a)\nrb = _Retval[index=1](b)\n"


@pytest.mark.parametrize(
    "lines",
    [
        _A + _B.replace(" one)", " one) ^a") + _ENDS,
        _A + "c = Neg(x) ^a\n" + _B + _ENDS + "rc = _Retval[index=2](c)",
        _A + _B.replace("one)", 'one) @"/device:CPU:1"') + _ENDS,
        _A.replace("Slice(", 'Slice[_class=("loc:@x")](') + _B + _ENDS,
        (_A + _B).replace("one)", 'one) @"/device:GPU:0"') + _ENDS,
    ],
)
def test_slices_that_wait_or_are_elsewhere_stay(lines: str) -> None:
    unchanged(MergeSlices(), _SLICES + lines)


def test_slices_of_one_device_become_a_split_there() -> None:
    got, _ = apply(MergeSlices(), _SLICES + (_A + _B).replace("one)", 'one) @"/device:CPU:1"') + _ENDS)
    assert re.search(r'SplitV.* @"/device:CPU:1"', got)


def test_a_target_stays() -> None:
    unchanged(MergeSlices(), _SLICES + _A + _B + _ENDS, preserved=["a"])


# *** gradients ***


@pytest.mark.parametrize(
    "build",
    [
        lambda x: [x[:, :3], x[:, 3:]],
        lambda x: [x[:, 4:] * 2.0, x[:, :2], x[:, 2:4]],
        lambda x: [x[:1], x[1:]],
        lambda x: [hr.slice(x, [0, 0], [-1, 2]), hr.slice(x, [0, 2], [-1, -1])],
    ],
)
def test_a_sum_of_gradients_of_slices_becomes_a_concatenation(build: Any) -> None:
    got = step(build, gradient=True)
    assert "ConcatV2" in types(got)
    assert not {"StridedSliceGrad", "Pad", "AddN"} & set(types(got))
    close(got.run([X]), step(build, gradient=True, passes=()).run([X]), 1e-6)


def test_the_other_terms_of_the_sum_stay() -> None:
    got = step(lambda x: [x[:, :3], x[:, 3:], x * 3.0], gradient=True)
    assert types(got).count("AddN") == 1
    assert types(got).count("StridedSliceGrad") == 0
    close(got.run([X]), step(lambda x: [x[:, :3], x[:, 3:], x * 3.0], True, ()).run([X]), 1e-6)


_GRADS = """
d = _Arg[T=float32, index=0, shape=[2]]
e = _Arg[T=float32, index=1, shape=[4]]
shape = Const[value=int32[1]{6}, dtype=int32]
zero = Const[value=int32[1]{0}, dtype=int32]
two = Const[value=int32[1]{2}, dtype=int32]
six = Const[value=int32[1]{6}, dtype=int32]
one = Const[value=int32[1]{1}, dtype=int32]
a = StridedSliceGrad(shape, zero, two, one, d)
b = StridedSliceGrad(shape, two, six, one, e)
y = AddV2(a, b)
r = _Retval[index=0](y)
"""


def test_a_sum_of_two_is_a_sum_as_well() -> None:
    got, context = apply(MergeSlices(), _GRADS)
    assert "= ConcatV2" in got
    assert [n.text for n in context.notes] == ["one concatenation replaces a sum of 2 gradients of slices"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("y = AddV2(a, b)", "y = AddV2(a, b) ^a"),
        ("b = StridedSliceGrad(shape, two, six, one, e)", "b = StridedSliceGrad(shape, two, six, one, e) ^a"),
        ("r = ", "s = _Retval[index=1](a)\nr = "),
        ("r = ", "s = _Retval[index=1](e) ^y\nr = "),
        ("y = AddV2(a, b)", 'y = AddV2(a, b) @"/device:CPU:1"'),
        ("y = AddV2(a, b)", "y = AddV2(a, a)"),
        ("shape, two, six, one, e)", "shape, zero, two, one, d)"),
    ],
)
def test_gradients_that_are_read_or_wait_stay(old: str, new: str) -> None:
    assert old in _GRADS
    unchanged(MergeSlices(), _GRADS.replace(old, new))
