"""Error texts of a session about its arguments, its feeds and its fetches."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.errors import CancelledError, FeedError
from tests.errors.table import check


def closed_meanwhile():
    """A session that the step's listener closes before any operation has run."""
    with hr.Graph() as g:
        y = hr.constant(1) + 1
    session = hr.Session(graph=g)
    session.run(y, options=hr.RunOptions(listener=lambda event: session.close()))


def ready_of_one_device():
    with hr.Graph() as g:
        with hr.device("/cpu:0"):
            a = hr.placeholder(hr.float32, ())
            b = hr.sin(a)
        with hr.device("/cpu:1"):
            c = hr.sin(b)
    with hr.Session(graph=g, devices={"CPU": 2}) as session:
        session.run(c, {a: 1.0}, options=hr.RunOptions(ready=[]))


def fed(dtype, value):
    with hr.Graph() as g:
        x = hr.placeholder(dtype, (), name="x")
    with hr.Session(graph=g) as session:
        session.run(x, {x: value})


ROWS = [
    (lambda: hr.Session(graph=hr.Graph(), engine="fast"), ValueError, "no engine 'fast'; there are 'auto', "),
    (lambda: hr.Session(graph=hr.Graph(), memory_limit=0), ValueError, "memory_limit must be at least 1 byte, got 0"),
    (closed_meanwhile, CancelledError, "the session was closed before the run began"),
    (ready_of_one_device, ValueError, r"runs on several devices: give RunOptions\(ready=...\) a function of their n"),
    (lambda: fed(hr.uint8, 300), FeedError, "the value fed to 'x:0'.* does not fit uint8: "),
]


@pytest.mark.parametrize(("how", "error", "says"), ROWS)
def test_what_is_said(how, error, says):
    check(how, error, says)
