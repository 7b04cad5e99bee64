"""Runs pipelines: a graph, its queue runners, and a tensor until the data ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from headrace.errors import OutOfRangeError
from headrace.train.coordinator import Coordinator
from headrace.train.input import start_queue_runners

GRACE = 30.0


def plain(x: Any) -> Any:
    """A value as lists and dicts of Python's own numbers."""
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [plain(v) for v in x]
    return np.asarray(x).tolist()


def taken(build: Callable[[], Any], most: int = 1000) -> list[Any]:
    """Values of the fetch `build()`, in a graph, step after step.

    It runs until the data ends or `most` values are taken.
    """
    with hr.Graph() as g:
        fetch = build()
    out: list[Any] = []
    with hr.Session(graph=g) as sess:
        if g.variables:
            sess.run(hr.variables_initializer(g.variables))
        coord = Coordinator()
        start_queue_runners(sess, coord)
        try:
            while len(out) < most and not coord.should_stop():
                out.append(plain(sess.run(fetch)))
        except OutOfRangeError:
            pass
        coord.request_stop()
        coord.join(stop_grace_period_secs=GRACE)
    return out
