"""TensorFlow 1's `tf.test`: checks of gradients, and the test cases of `testing`.

See also `headrace.check_gradients`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, public_names
from headrace.api import scopes
from headrace.grad import sums
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from headrace.v1.gradient_ops import gradients
from headrace.v1.session import get_default_session

_DIFFERENTIABLE = dtypes.FLOATING | dtypes.COMPLEX


def compute_gradient(
    x: Any,
    x_shape: Any,
    y: Tensor,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Any = None,
) -> Any:
    """Computes the Jacobian by the gradient and by differences, in the default session.

    Args:
      x: a tensor, which is fed, or a list of such.
      x_shape: its shape; for a list, a list of shapes.
      y: a tensor.
      y_shape: its shape.
      x_init_value: the array at which to differentiate, or a list of them; None: random numbers in [0, 1).
      delta: how far the differences reach, to either side.
      init_targets: operations that are run first.
      extra_feed_dict: further feeds.

    Returns:
      Two matrices with a row for each element of x and a column for each of y, of the dtype of x; a list of such pairs
      for a list. A complex number counts as two, its real part and its imaginary part.

    Raises:
      ValueError: there is no default session; an initial value is not of the shape given; y does not depend on x.
      TypeError: x or y has no gradients.

    Source: TensorFlow 1's `tf.test.compute_gradient`.
    """
    session = get_default_session()
    if session is None:
        raise ValueError("compute_gradient runs in the default session, and there is none: `with tf.Session():`")
    for target in init_targets or ():
        session.run(target)
    many = isinstance(x, list)
    xs, shapes = (x, x_shape) if many else ([x], [x_shape])
    values = x_init_value if many and x_init_value is not None else [x_init_value] * len(xs)
    feed = dict(extra_feed_dict or {})
    pairs = []
    for one, shape, value in zip(xs, shapes, values, strict=True):
        for t, what in ((one, "x"), (y, "y")):
            if t.dtype.base not in _DIFFERENTIABLE:
                raise TypeError(f"compute_gradient: {what} {t!r} has no gradients; it must be a float or complex")
        at = _initial(one, _sizes(shape), value)
        by_gradient = _by_gradient(session, one, at, y, _sizes(y_shape), feed)
        pairs.append((by_gradient, _by_differences(session, one, at, y, delta, feed)))
    return pairs if many else pairs[0]


def compute_gradient_error(
    x: Any,
    x_shape: Any,
    y: Tensor,
    y_shape: Any,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: Any = None,
) -> Any:
    """The greatest difference between the two matrices that `compute_gradient` gives, whose arguments it has.

    Source: TensorFlow 1's `tf.test.compute_gradient_error`.
    """
    found = compute_gradient(x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict)
    pairs = found if isinstance(found, list) else [found]
    return max((np.abs(a - b).max() for a, b in pairs if a.size), default=0)


def _sizes(shape: Any) -> tuple[int, ...]:
    return (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(d) for d in shape)


def _initial(x: Tensor, shape: Sequence[int], value: Any) -> np.ndarray:
    numpy = x.dtype.base.numpy
    if value is None:
        value = np.random.random_sample(shape)
        if x.dtype.is_complex:
            value = value + 1j * np.random.random_sample(shape)
    elif np.shape(value) != tuple(shape):
        raise ValueError(f"x_init_value has the shape {np.shape(value)}, but x_shape = {tuple(shape)}")
    return np.array(value, numpy)


def _reals(array: Any) -> np.ndarray:
    """The numbers in an array, in a row; of complex ones both parts."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype)


def _by_gradient(
    session: Any, x: Tensor, at: np.ndarray, y: Tensor, y_shape: Sequence[int], feed: dict[Any, Any]
) -> np.ndarray:
    with scopes.entered(Builder(x.graph)) as b:
        dy = b.make("Placeholder", (), {"dtype": y.dtype.base, "shape": tuple(y_shape)}, "dy")
        (dx,) = gradients(y, x, dy)
    if dx is None:
        raise ValueError(f"compute_gradient: {y!r} does not depend on {x!r}")
    b = Builder(x.graph)
    dx = b.Identity(sums.dense(b, dx))  # it may be dy itself, which is fed
    weight = np.zeros(y_shape, y.dtype.base.numpy)
    parts = _reals(weight)
    out = np.zeros((_reals(at).size, parts.size), _reals(at).dtype)
    for j in range(parts.size):
        parts[j] = 1
        out[:, j] = _reals(session.run(dx, {**feed, x: at, dy: parts.view(weight.dtype).reshape(y_shape)}))
        parts[j] = 0
    return out


def _by_differences(
    session: Any, x: Tensor, at: np.ndarray, y: Tensor, delta: float, feed: dict[Any, Any]
) -> np.ndarray:
    rows = []
    for i in range(_reals(at).size):
        ends = []
        for sign in (1, -1):
            parts = _reals(at).copy()
            parts[i] += sign * delta
            ends.append(_reals(session.run(y, {**feed, x: parts.view(at.dtype).reshape(at.shape)})))
        rows.append((ends[0] - ends[1]) / (2 * delta))
    return np.array(rows, _reals(at).dtype).reshape(_reals(at).size, -1)


# Imported on first use: `unittest` and what stands on it.
_LATER = {
    name: f"headrace.v1.testing:{name}"
    for name in (
        "TestCase", "assert_equal_graph_def", "create_local_cluster", "get_temp_dir", "gpu_device_name",
        "is_built_with_cuda", "is_built_with_gpu_support", "is_built_with_rocm", "is_built_with_xla",
        "is_gpu_available", "main", "test_src_dir_path", "StubOutForTesting", "disable_with_predicate", "experimental",
        "is_cpu_target_available", "with_eager_op_as_function",
    )
} | {
    name: f"headrace.v1.test_benchmark:{name}" for name in ("Benchmark", "benchmark_config")
} | {"mock": "unittest.mock"}  # fmt: skip

if TYPE_CHECKING:
    from unittest import mock

    from headrace.v1.test_benchmark import Benchmark, benchmark_config
    from headrace.v1.testing import (
        StubOutForTesting,
        TestCase,
        assert_equal_graph_def,
        create_local_cluster,
        disable_with_predicate,
        experimental,
        get_temp_dir,
        gpu_device_name,
        is_built_with_cuda,
        is_built_with_gpu_support,
        is_built_with_rocm,
        is_built_with_xla,
        is_cpu_target_available,
        is_gpu_available,
        main,
        test_src_dir_path,
        with_eager_op_as_function,
    )

# fmt: off
__all__ = [
    "Benchmark", "StubOutForTesting", "TestCase", "assert_equal_graph_def", "benchmark_config", "compute_gradient",
    "compute_gradient_error", "create_local_cluster", "disable_with_predicate", "experimental", "get_temp_dir",
    "gpu_device_name", "is_built_with_cuda", "is_built_with_gpu_support", "is_built_with_rocm", "is_built_with_xla",
    "is_cpu_target_available", "is_gpu_available", "main", "mock", "test_src_dir_path", "with_eager_op_as_function",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
