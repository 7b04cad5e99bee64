"""Kernels on PyTorch's tensors compute what the kernels for numpy compute.

Each runs on the cases of its op's record with tensors on the CPU. The extra cases of convolutions and poolings have the
layouts, groups and paddings that the cases of the records have not together.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.graph import Operation
from headrace.ir.kernel import find_kernel, has_kernel, host_inputs
from headrace.ir.opdef import Case, case, op_registry
from tests.ops.cases import assert_close, cases, constant_op, dtype_of, first_types, flat, open_op, run_kernel
from tests.ops.namespaces import Namespace, torch

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

MODULES = (
    "convolutions",
    "elementwise",
    "normalization",
    "pooling",
    "products",
    "rows",
    "sorting",
    "special_functions",
)

#: Op types with a case that PyTorch has no function for, and the case; numpy computes it.
LEFT_TO_NUMPY: Mapping[str, str] = {
    "Einsum": "a label twice in the output",
    "MaxPool": "windows along the channels",
    "MaxPoolV2": "windows along the channels",
    "UniqueV2": "slices along an axis",
    "UniqueWithCountsV2": "slices along an axis",
}


@pytest.fixture
def there() -> Namespace:
    """PyTorch's namespace; tests with it are skipped where PyTorch is not installed."""
    found = torch()
    importlib.import_module("headrace.devices.torch")  # registers the kernels
    return found


@pytest.fixture
def left(there: Namespace, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Op types whose kernels leave inputs to numpy, while the test runs.

    A kernel must have decided it itself.
    """
    registering = importlib.import_module("headrace.devices.torch.registering")
    found: list[str] = []
    compute = registering.by_reference

    def by_reference(op: str, attrs: Any, inputs: Any) -> Any:
        cause = sys.exc_info()[1]
        if not isinstance(cause, registering.Unsuited):
            assert cause is not None
            raise AssertionError(f"{op} {dict(attrs)}: PyTorch refused it") from cause
        found.append(op)
        return compute(op, attrs, inputs)

    monkeypatch.setattr(registering, "by_reference", by_reference)
    return found


def kernels_of(module: str) -> list[str]:
    """The op types of the kernels in a module of `headrace.devices.torch`."""
    importlib.import_module("headrace.devices.torch.kernels")
    registering = importlib.import_module("headrace.devices.torch.registering")
    name = f"headrace.devices.torch.{module}"
    return [op for op, factory in registering.registered.items() if factory.__module__ == name]


def run(op: Operation, args: list[np.ndarray], there: Namespace, host: Collection[int] = ()) -> tuple[Any, ...]:
    """The outputs of the kernel for PyTorch, with some inputs on the host."""
    kernel = find_kernel(op, "TORCH")
    assert kernel is not None
    given = [x if k in host else there.put(x) for k, x in enumerate(args)]
    out = kernel.factory(there.xp, op.attrs)(*given)
    for x, a in zip(given, args, strict=True):
        assert_close(there.get(x) if isinstance(x, there.array) else x, a, f"{op.type} changed an input")
    return (out,) if len(op.outputs) == 1 else tuple(out)


def check(type: str, given: Case, there: Namespace, where: str) -> None:
    """Compares the results of a kernel with those of the kernel for numpy."""
    op = constant_op(op_registry.get(type), given)
    args = flat(given.inputs)
    want = run_kernel(op, args)
    for host in dict.fromkeys((frozenset(), host_inputs(op.opdef, op.attrs))):
        got = run(op, args, there, host)
        assert len(got) == len(want), where
        for g, w in zip(got, want, strict=True):
            assert isinstance(g, there.array), f"{where}: {g!r} is no tensor"
            assert not g.requires_grad
            assert_close(there.get(g.resolve_conj()), np.asarray(w), where)


def suited(type: str, dtype: DType, there: Namespace) -> Iterator[tuple[int, Case]]:
    """The cases of an op whose attributes and element types a kernel for PyTorch has."""
    for i, given in enumerate(cases(type, dtype)):
        op = constant_op(op_registry.get(type), given)
        element_types = {*map(dtype_of, flat(given.inputs)), *(t.dtype for t in op.outputs)}
        if has_kernel(type, op.attrs, "TORCH") and element_types <= there.dtypes:
            yield i, given


@pytest.mark.parametrize("module", MODULES)
def test_kernels_compute_what_those_for_numpy_compute(module: str, there: Namespace, left: list[str]) -> None:
    for type in kernels_of(module):
        ran = 0
        for dtype in first_types(op_registry.get(type)):
            for i, given in suited(type, dtype, there):
                left.clear()
                check(type, given, there, f"case {i} of {type} {dtype} {dict(given.attrs)}")
                assert not left or type in LEFT_TO_NUMPY, f"case {i} of {type} {dtype} {dict(given.attrs)} is left"
                ran += not left
        assert ran, f"no case of {type} ran"


@pytest.mark.parametrize("module", ["normalization", "rows", "sorting"])
def test_kernels_that_do_not_look_at_their_inputs(
    module: str, there: Namespace, left: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the same kernels make no checks, and treat wrong places otherwise."""
    on_gpu(there, monkeypatch)
    for type in kernels_of(module):
        for dtype in first_types(op_registry.get(type)):
            for i, given in suited(type, dtype, there):
                if not any(x.dtype.kind == "f" and np.isnan(x).any() for x in flat(given.inputs)):
                    check(type, given, there, f"case {i} of {type} {dtype} {dict(given.attrs)}")


def on_gpu(there: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the kernels take tensors for tensors on a GPU."""
    monkeypatch.setattr(there.array, "is_cpu", False, raising=False)


# *** Convolutions and poolings ***

_RNG = np.random.default_rng(7)

# input and filter with the channels last, strides, dilations, padding
_IMAGES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, int], tuple[int, int], str], ...] = (
    ((2, 9, 8, 128), (3, 3, 128, 32), (1, 1), (1, 1), "SAME"),
    ((2, 9, 8, 32), (2, 4, 32, 16), (1, 1), (1, 1), "SAME"),  # more padding behind than before
    ((1, 9, 12, 4), (3, 2, 4, 6), (2, 3), (1, 1), "SAME"),
    ((1, 9, 12, 4), (2, 3, 2, 6), (1, 1), (2, 3), "SAME"),  # groups
    ((1, 9, 12, 4), (3, 3, 1, 8), (2, 1), (1, 2), "EXPLICIT"),
    ((1, 9, 12, 4), (3, 3, 4, 8), (4, 5), (1, 1), "VALID"),
    ((1, 7, 7, 3), (1, 1, 3, 5), (3, 3), (1, 1), "SAME"),
    ((0, 5, 5, 3), (2, 2, 3, 5), (1, 1), (1, 1), "SAME"),
)


def first(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with the channels second."""
    return (shape[0], shape[-1], *shape[1:-1])


def image_attrs(strides: tuple[int, int], dilations: tuple[int, int], padding: str, layout: str) -> dict[str, Any]:
    def four(h: int, w: int) -> list[int]:
        return [1, h, w, 1] if layout == "NHWC" else [1, 1, h, w]

    out = {"strides": four(*strides), "dilations": four(*dilations), "padding": padding, "data_format": layout}
    if padding == "EXPLICIT":
        out["explicit_paddings"] = [0, 0, 1, 0, 0, 2, 0, 0] if layout == "NHWC" else [0, 0, 0, 0, 1, 0, 0, 2]
    return out


def drawn(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    return _RNG.standard_normal(shape).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("number", range(len(_IMAGES)))
def test_convolution_of_images(number: int, layout: str, dtype: DType, there: Namespace, left: list[str]) -> None:
    x, w, strides, dilations, padding = _IMAGES[number]
    attrs = image_attrs(strides, dilations, padding, layout)
    images, weights = drawn(x if layout == "NHWC" else first(x), dtype), drawn(w, dtype)
    check("Conv2D", case(images, weights, **attrs), there, "Conv2D")
    (y,) = run_kernel(constant_op(op_registry.get("Conv2D"), case(images, weights, **attrs)), [images, weights])
    dy = drawn(y.shape, dtype)
    sizes = np.array(images.shape, np.int32)
    check("Conv2DBackpropInput", case(sizes, weights, dy, **attrs), there, "by input")
    check("Conv2DBackpropFilter", case(images, np.array(w, np.int32), dy, **attrs), there, "by filter")
    assert not left


@pytest.mark.parametrize("layout", ["NDHWC", "NCDHW"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_of_volumes(stride: int, padding: str, layout: str, there: Namespace, left: list[str]) -> None:
    d = dtypes.float32
    steps = [1, stride, 1, stride, 1] if layout == "NDHWC" else [1, 1, stride, 1, stride]
    attrs: dict[str, Any] = {"strides": steps, "padding": padding, "data_format": layout}
    x, w = (2, 5, 4, 6, 8), (2, 3, 3, 4, 6)
    images, weights = drawn(x if layout == "NDHWC" else first(x), d), drawn(w, d)
    check("Conv3D", case(images, weights, **attrs), there, "Conv3D")
    (y,) = run_kernel(constant_op(op_registry.get("Conv3D"), case(images, weights, **attrs)), [images, weights])
    dy = drawn(y.shape, d)
    sizes = np.array(images.shape, np.int32)
    check("Conv3DBackpropInputV2", case(sizes, weights, dy, **attrs), there, "by input")
    check("Conv3DBackpropFilterV2", case(images, np.array(w, np.int32), dy, **attrs), there, "by filter")
    assert not left


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_depthwise_convolution(padding: str, layout: str, there: Namespace, left: list[str]) -> None:
    d = dtypes.float32
    attrs = image_attrs((2, 2), (1, 1), padding, layout)
    x, w = (2, 9, 8, 16), (3, 2, 16, 2)
    images, weights = drawn(x if layout == "NHWC" else first(x), d), drawn(w, d)
    name = "DepthwiseConv2dNative"
    check(name, case(images, weights, **attrs), there, name)
    (y,) = run_kernel(constant_op(op_registry.get(name), case(images, weights, **attrs)), [images, weights])
    dy = drawn(y.shape, d)
    sizes = np.array(images.shape, np.int32)
    check(f"{name}BackpropInput", case(sizes, weights, dy, **attrs), there, "by input")
    check(f"{name}BackpropFilter", case(images, np.array(w, np.int32), dy, **attrs), there, "by filter")
    assert not left


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [(s, t, p) for s, t, p in itertools.product((1, 2, 3, 4), (1, 2, 3), ("SAME", "VALID"))],
)
def test_pooling_of_images(
    size: int, stride: int, padding: str, layout: str, there: Namespace, left: list[str]
) -> None:
    d = dtypes.float32
    of = (lambda n: [1, n, n, 1]) if layout == "NHWC" else (lambda n: [1, 1, n, n])
    attrs: dict[str, Any] = {"ksize": of(size), "strides": of(stride), "padding": padding, "data_format": layout}
    for h, w in ((7, 8), (4, 9)):
        x = (2, h, w, 5) if layout == "NHWC" else (2, 5, h, w)
        images = _RNG.integers(0, 4, x).astype(np.float32)  # with equal elements
        for type in ("MaxPool", "AvgPool"):
            check(type, case(images, **attrs), there, type)
        (y,) = run_kernel(constant_op(op_registry.get("MaxPool"), case(images, **attrs)), [images])
        g = drawn(y.shape, d)
        check("MaxPoolGrad", case(images, y, g, **attrs), there, "MaxPoolGrad")
        check("MaxPoolGradGrad", case(images, y, drawn(x, d), **attrs), there, "MaxPoolGradGrad")
        check("AvgPoolGrad", case(np.array(x, np.int32), g, **attrs), there, "AvgPoolGrad")
    assert not left


def test_a_result_carries_the_places_of_its_maxima(there: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient by the same array and windows does not search for them again."""
    pooling = importlib.import_module("headrace.devices.torch.pooling")
    registering = importlib.import_module("headrace.devices.torch.registering")
    searches: list[Any] = []
    search = pooling._MAX_WITH_INDICES[2]
    monkeypatch.setitem(pooling._MAX_WITH_INDICES, 2, lambda *args: searches.append(args) or search(*args))
    windows: dict[str, Any] = {"T": dtypes.float32, "ksize": (1, 2, 2, 1), "padding": "SAME", "data_format": "NHWC"}
    x, other = (there.put(_RNG.standard_normal((2, 5, 5, 3)).astype(np.float32)) for _ in range(2))

    def kernel(type: str, stride: int = 2) -> Any:
        return registering.registered[type](there.xp, {**windows, "strides": (1, stride, stride, 1)})

    y = kernel("MaxPool")(x)
    carried = kernel("MaxPoolGrad")(x, y, y)
    assert len(searches) == 1
    assert bool((carried == kernel("MaxPoolGrad")(x, y.clone(), y)).all())
    assert len(searches) == 2
    kernel("MaxPoolGrad")(other, y, y)
    assert len(searches) == 3
    kernel("MaxPoolGrad", 1)(x, there.put(np.ones((2, 5, 5, 3), np.float32)), x)
    assert len(searches) == 4
    searches.clear()  # a view of an array holds it
    del x
    assert y._places.x() is None


# *** Few of many ***


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.int32, dtypes.uint8])
def test_few_of_many_elements(dtype: DType, there: Namespace, left: list[str]) -> None:
    """Of equal elements the first one ranks first, in a sort and in `torch.topk`."""
    distinct = _RNG.permuted(np.tile(np.arange(100), (3, 1)), axis=1)
    for x in (distinct, distinct // 10, np.zeros((3, 100)), distinct[:0]):
        for k in (1, 4, 11, 50):
            check("TopKV2", case(x.astype(dtype.numpy), np.int32(k)), there, f"TopKV2 {k}")
    assert not left


def test_few_of_many_elements_with_nan(there: Namespace) -> None:
    x = _RNG.standard_normal((4, 60)).astype(np.float32)
    x[1:3, ::7] = np.nan
    for k in (1, 3, 40):
        check("TopKV2", case(x, np.int32(k)), there, f"TopKV2 {k}")


def test_extremes_of_nan(there: Namespace) -> None:
    """Elements that are not NaN are greater, in windows and along axes."""
    x = _RNG.standard_normal((2, 6, 6, 3)).astype(np.float32)
    x[0, ::2, 1] = np.nan
    windows: dict[str, Any] = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    check("MaxPool", case(x, **windows), there, "MaxPool")
    check("MaxPoolGrad", case(x, x[:, :3, :3], x[:, :3, 3:], **windows), there, "MaxPoolGrad")
    check("ArgMax", case(x, np.int32(2)), there, "ArgMax")
    check("ArgMin", case(x, np.int32(1)), there, "ArgMin")
    check("TensorScatterMax", case(x, np.array([[1], [0]], np.int32), x), there, "TensorScatterMax")
    check("UnsortedSegmentMax", case(x, np.array([1, 0], np.int32), np.int32(3)), there, "UnsortedSegmentMax")


# *** Inputs that are wrong ***

_MATRIX = np.ones((2, 3), np.float32)
_IMAGE = np.ones((1, 4, 4, 3), np.float32)
_ROWS = np.array([0, 5], np.int32)
_WINDOWS: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "VALID"}

_WRONG: tuple[tuple[str, list[Any], dict[str, Any]], ...] = (
    ("Conv2D", [_IMAGE, np.ones((2, 2, 2, 4), np.float32)], _WINDOWS),
    ("Conv2DBackpropInput", [np.array([1, 4, 4, 3], np.int32), np.ones((2, 2, 3, 1), np.float32), _IMAGE], _WINDOWS),
    ("MaxPoolGrad", [_IMAGE, _IMAGE, _IMAGE], {**_WINDOWS, "ksize": [1, 2, 2, 1]}),
    ("MatMul", [_MATRIX, _MATRIX], {}),
    ("BatchMatMulV2", [_MATRIX, _MATRIX], {}),
    ("BiasAdd", [_MATRIX, np.ones(2, np.float32)], {}),
    ("Softmax", [np.float32(1)], {}),
    ("SparseSoftmaxCrossEntropyWithLogits", [_MATRIX, _ROWS], {}),
    ("GatherV2", [_MATRIX, _ROWS, np.int32(0)], {}),
    ("GatherV2", [_MATRIX, np.array([[0, -1], [2, 1]], np.int32), np.int32(1)], {"batch_dims": 1}),
    ("GatherNd", [_MATRIX, np.array([[0, 3]], np.int32)], {}),
    ("ScatterNd", [_ROWS[:, None], _MATRIX, np.array([3, 3], np.int32)], {}),
    ("TensorScatterUpdate", [_MATRIX, np.array([[-1]], np.int32), _MATRIX[:1]], {}),
    ("SegmentSum", [_MATRIX, np.array([1, 0], np.int32)], {}),
    ("UnsortedSegmentSum", [_MATRIX, _ROWS, np.int32(3)], {}),
    ("SparseSegmentMean", [_MATRIX, _ROWS, np.array([0, 0], np.int32)], {}),
    ("TopKV2", [_MATRIX, np.int32(4)], {}),
    ("ArgMax", [_MATRIX, np.int32(2)], {}),
    ("Cumsum", [_MATRIX, np.int32(-3)], {}),
    ("Where", [np.float32(1)], {}),
    ("AddN", [[_MATRIX, _MATRIX[:1]]], {}),
    ("ReluGrad", [_MATRIX, _MATRIX[:1]], {}),
)


@pytest.mark.parametrize("number", range(len(_WRONG)))
def test_wrong_inputs_are_the_errors_of_the_kernels_for_numpy(number: int, there: Namespace) -> None:
    type, inputs, attrs = _WRONG[number]
    op = unknown_op(type, inputs, attrs)
    args = flat(inputs)
    with pytest.raises(InvalidArgumentError) as want:
        run_kernel(op, args)
    with pytest.raises(InvalidArgumentError) as got:
        run(op, args, there)
    assert str(got.value) == str(want.value)


def unknown_op(type: str, inputs: list[Any], attrs: Mapping[str, Any]) -> Operation:
    """An operation whose inputs have unknown shapes, so that only its kernel checks them."""
    return open_op(op_registry.get(type), case(*inputs, **attrs), lambda x: None)


def test_places_out_of_range_on_a_gpu(there: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read as 0, and what is written to them is dropped."""
    on_gpu(there, monkeypatch)
    matrix = np.array([[1, 2, 3], [4, 5, 6]], np.float32)

    def result(type: str, *inputs: Any, **attrs: Any) -> np.ndarray:
        return there.get(run(unknown_op(type, list(inputs), attrs), flat(inputs), there)[0])

    rows = np.array([1, 5, -1], np.int32)
    np.testing.assert_array_equal(result("GatherV2", matrix, rows, np.int32(0)), [[4, 5, 6], [0, 0, 0], [0, 0, 0]])
    places = np.array([[1, 2], [0, 3]], np.int32)
    np.testing.assert_array_equal(result("GatherNd", matrix, places), [6, 0])
    updates = np.ones((3, 3), np.float32)
    np.testing.assert_array_equal(result("TensorScatterAdd", matrix, rows[:, None], updates), [[1, 2, 3], [5, 6, 7]])
    np.testing.assert_array_equal(result("UnsortedSegmentSum", updates, rows, np.int32(2)), [[0, 0, 0], [1, 1, 1]])
    loss = result("SparseSoftmaxCrossEntropyWithLogits", matrix, rows[:2])
    assert np.isnan(loss).tolist() == [False, True]
