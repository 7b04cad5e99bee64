"""Requests of loops and conditionals that one device runs whole."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import headrace as hr

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize("soft", [True, False])
def test_a_conditional_in_a_loop_reads_variables_of_two_devices(soft: bool) -> None:
    with hr.Graph() as g:
        with hr.device("/cpu:0"):
            a = hr.Variable(1.5)
        with hr.device("/cpu:1"):
            b = hr.Variable(2.5)

        def body(i: Any, s: Any) -> Any:
            return i + 1, hr.cond(i < 2, lambda: s + a.read_value(), lambda: s * b.read_value())

        s = hr.while_loop(lambda i, s: i < 3, body, (0, 1.0))[1]
        fetches = [s, *hr.gradients(s, [a, b])]
    session = hr.Session(graph=g, devices={"CPU": 2}, engine="auto", config={"allow_soft_placement": soft})
    session.run([a.initializer, b.initializer])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a failed stage
        assert session.run(fetches) == [10.0, 5.0, 4.0]


def test_partial_requests_inside_a_whole_loop_are_combined() -> None:
    with hr.Graph() as g:

        def body(i: Any, s: Any) -> Any:
            with hr.device("/cpu:1"):
                t = s * 2.0
            with hr.device("/job:localhost"):
                return i + 1, t + 1.0

        x = hr.placeholder(hr.float32, ())
        with hr.device("/cpu:0"):
            y = x + 1.0
        s = hr.while_loop(lambda i, s: i < 3, body, (0, y))[1]
    session = hr.Session(graph=g, devices={"CPU": 2}, engine="auto")
    assert session.run(s, {x: 0.0}) == 15.0
    found = session.explain(s, [x])
    assert [d[-5:] for d, names in found.devices if "while" in names] == ["CPU:1"]
    assert not found.moved
