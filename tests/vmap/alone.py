"""Comparison of a mapped function with the function of each example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from headrace import nest


def as_array(x: Any) -> np.ndarray:
    return x if isinstance(x, (np.ndarray, np.generic)) else np.asarray(hr.convert_to_tensor(x).numpy())


def of_each(f: Callable[..., Any], args: tuple[Any, ...], in_axes: tuple[Any, ...]) -> Any:
    """The results of `f` for each example, stacked."""
    sizes = {a.shape[axis] for a, axis in zip(args, in_axes, strict=True) if axis is not None}
    (n,) = sizes
    rows = [
        f(*[a if axis is None else np.take(a, i, axis) for a, axis in zip(args, in_axes, strict=True)])
        for i in range(n)
    ]
    stacked = [np.stack([as_array(x) for x in leaves]) for leaves in zip(*map(nest.flatten, rows), strict=True)]
    return nest.pack(rows[0], stacked)


def check(f: Callable[..., Any], *args: Any, in_axes: tuple[Any, ...] | None = None, rtol: float = 1e-5) -> None:
    """Compares `hr.vmap(f)` with each example alone.

    It is called outside of graphs, in a graph, and with unknown sizes.
    """
    given = tuple(np.asarray(a) for a in args)
    axes = (0,) * len(given) if in_axes is None else in_axes
    want = of_each(f, given, axes)
    mapped = hr.vmap(f, in_axes=axes)
    assert_equal(mapped(*given), want, rtol)
    for is_static in (True, False):
        with hr.Graph() as g:
            fed = []
            for a, axis in zip(given, axes, strict=True):
                shape = list(a.shape)
                if axis is not None and not is_static:
                    shape[axis] = None
                fed.append(hr.placeholder(hr.as_dtype(a.dtype), shape))
            out = mapped(*fed)
            with hr.Session(graph=g) as s:
                assert_equal(s.run(out, dict(zip(fed, given, strict=True))), want, rtol)


def assert_equal(got: Any, want: Any, rtol: float) -> None:
    found = nest.mismatch(want, got)
    assert found is None, str(found)
    for x, y in zip(nest.flatten(got), nest.flatten(want), strict=True):
        x = as_array(x)
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if y.dtype.kind in "fc":
            np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-6)
        else:
            assert x.tolist() == y.tolist()
