"""Random programs on TensorArrays follow the rules of TensorFlow 1 on each route."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import flags
from headrace.errors import InvalidArgumentError
from tests.v1.arrays import Plan, Refused, build, plan, simulate

ROUTES = [("interpret", "on"), ("auto", "on"), ("auto", "-array_marks"), ("auto", "off")]


def run(p: Plan, engine: str) -> list[Any] | None:
    """The results and their gradient; None if the array refuses."""
    with tf.Graph().as_default() as g:
        out = build(tf, p)
    with hr.Session(graph=g, engine=engine) as session:
        try:
            return session.run(out)
        except InvalidArgumentError:
            return None


def differences(seed: int) -> list[str]:
    """Returns the routes of one program that break the rules."""
    p = plan(seed)
    try:
        want = simulate(p)
    except Refused:
        want = None
    out, first = [], None
    for engine, passes in ROUTES:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(flags.OPTIMIZE, "value", passes)
            got = run(p, engine)
        first = first or got
        if (want is None) != (got is None):
            out.append(f"{seed} {engine} {passes}: {p} gives {got}, not {want}")
        elif want is not None and got is not None and first is not None:
            pairs = [*zip(got, want, strict=False), *zip(got, first, strict=True)]
            if not all(np.allclose(a, b) for a, b in pairs):
                out.append(f"{seed} {engine} {passes}: {p} gives {got}, not {want} or {first}")
    return out


@pytest.mark.one_engine
def test_a_few_programs_follow_the_rules() -> None:
    assert [line for seed in range(4) for line in differences(seed)] == []


@pytest.mark.matrix
@pytest.mark.one_engine
@pytest.mark.parametrize("block", [0, 1, 2, *(pytest.param(b, marks=pytest.mark.nightly) for b in (3, 4, 5))])
def test_random_programs_follow_the_rules(block: int) -> None:
    assert [line for seed in range(100 * block, 100 * (block + 1)) for line in differences(seed)] == []
