"""Error texts about devices on paper and in a session.

Also those about flags, and about names and numbers that stand for nothing.
"""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

import headrace as hr
from headrace import flags, shapes
from headrace.errors import InvalidArgumentError
from headrace.optimize.pipeline import options_from
from tests.errors.table import check

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


def simulated(fetch, **options):
    with hr.Graph() as g:
        hr.identity(hr.placeholder(hr.float32, (), name="x"), name="y")
    return hr.simulate(fetch(g), hr.Cluster([hr.DeviceModel(CPU + "0")]), **options)


ROWS = [
    (lambda: hr.Cluster([]), InvalidArgumentError, "a cluster needs at least one device"),
    (
        lambda: hr.Cluster([hr.DeviceModel(CPU + "0"), hr.DeviceModel(CPU + "0")]),
        InvalidArgumentError,
        f"two devices of a cluster have the same name: {CPU}0, {CPU}0",
    ),
    (
        lambda: hr.Cluster([hr.DeviceModel("/cpu:0")]),
        InvalidArgumentError,
        f"'/cpu:0' is not the full name of a device; '{CPU}0' is one",
    ),
    (
        lambda: simulated(lambda g: g.get_operation_by_name("y"), placement={"z": CPU + "0"}),
        InvalidArgumentError,
        "the placement has 'z', which the step does not",
    ),
    (
        lambda: simulated(lambda g: []),
        InvalidArgumentError,
        r"simulate needs a tensor or an operation among its fetches, to know which graph is meant; got \[\]",
    ),
    (
        lambda: hr.dtypes.from_numpy(np.dtype("datetime64[s]")),
        TypeError,
        r"numpy dtype datetime64\[s\] has no counterpart; headrace has .*float32",
    ),
    (lambda: hr.errors.exception_type_from_error_code(99), KeyError, "no error class has code 99"),
    (
        lambda: shapes.with_rank_at_most((1, 2), 1),
        ValueError,
        r"Shape must be at most rank 1 but is rank 2: \[1,2\]",
    ),
    (lambda: flags.override(SPEED=9).__enter__(), KeyError, "no flag 'SPEED'; there are ACCUMULATOR_LIMIT, "),
    (
        lambda: hr.explain(3),
        TypeError,
        r"cannot explain 3 \(int\): give what session.make_callable returned, or use session.explain",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), ROWS)
def test_what_is_said(how, error, says):
    check(how, error, says)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("ENGINE", "fast", "HEADRACE_ENGINE='fast' is not valid: .*interpret, compiled, or auto"),
        ("WAIT_LIMIT", "long", "HEADRACE_WAIT_LIMIT='long' is not valid: .*Seconds that a step may wait"),
    ],
)
def test_an_environment_variable(monkeypatch, name, value, says):
    """Read when headrace is imported: here by a second copy of the module."""
    monkeypatch.setenv(f"HEADRACE_{name}", value)
    spec = importlib.util.find_spec("headrace.flags")
    assert spec is not None
    assert spec.loader is not None
    check(lambda: spec.loader.exec_module(importlib.util.module_from_spec(spec)), ValueError, says)


def test_passes_in_the_environment(monkeypatch):
    """The names of passes are known once the passes are.

    The flag is checked again then.
    """
    monkeypatch.setenv("HEADRACE_OPTIMIZE", "-fols")
    spec = importlib.util.find_spec("headrace.flags")
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(copy)
    says = "the environment variable HEADRACE_OPTIMIZE is not valid: .*there is no pass 'fols'"
    check(lambda: copy.OPTIMIZE.also_check(options_from), ValueError, says)
