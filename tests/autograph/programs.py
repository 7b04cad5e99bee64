"""Running of converted functions in a graph, next to plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from headrace import autograph, nest


def in_graph(f: Callable[..., Any], *args: Any, unknown: bool = False) -> Any:
    """Returns the result of `f` in a graph whose placeholders get the arguments.

    Args:
      f: a function of arrays and numbers.
      args: its arguments.
      unknown: whether the placeholders have no static sizes.
    """
    with hr.Graph() as graph:
        given = [np.asarray(a) for a in args]
        fed = [
            hr.placeholder(hr.constant(a).dtype, [None] * g.ndim if unknown else g.shape)
            for a, g in zip(args, given, strict=True)
        ]
        result = autograph.convert(f)(*fed)
    with hr.Session(graph=graph) as session:
        leaves = nest.flatten(result)
        out = session.run([x for x in leaves if isinstance(x, hr.Tensor)], dict(zip(fed, given, strict=True)))
    rest = iter(out)
    return nest.pack(result, [next(rest) if isinstance(x, hr.Tensor) else x for x in leaves])


def check(f: Callable[..., Any], *args: Any, **options: Any) -> None:
    """Compares the results in a graph with those of plain Python on the same arguments."""
    expected = nest.flatten(f(*args))
    got = nest.flatten(in_graph(f, *args, **options))
    assert len(got) == len(expected)
    for x, y in zip(got, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
