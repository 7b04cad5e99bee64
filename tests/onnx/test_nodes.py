"""The backend tests of the `onnx` package, and the page that counts them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import headrace as hr
from tests.onnx import cases, page

pytestmark = pytest.mark.matrix

#: Operators of which all tests pass, as the import's purpose is their loops and conditionals.
CONTROL_FLOW = {"If", "Loop", "Scan", "SequenceMap"}


@pytest.mark.parametrize("kind", cases.KINDS)
def test_backend_tests_pass_but_for_missing_operators(kind: str) -> None:
    ran = [r for r in cases.results() if r.kind == kind]
    assert ran
    wrong = [
        (r.name, repr(r.error)[:300])
        for r in ran
        if r.error is not None and not cases.is_missing(r.error) and cases.reason(r) is None
    ]
    assert wrong == []


def test_all_tests_of_control_flow_pass() -> None:
    ran = [r for r in cases.results() if CONTROL_FLOW & {name for _, name in r.operators}]
    assert len(ran) > 40
    assert [(r.name, repr(r.error)[:300]) for r in ran if r.error is not None] == []


def test_tests_of_control_flow_pass_in_jitted_functions() -> None:
    """Jitted functions take arrays. The expansion of `AffineGrid` needs its size as a constant."""
    wrong, ran = [], 0
    for case in cases.tests_of("node"):
        model = cases.model_of(case)
        used = {n.op_type for n in model.graph.node}
        inputs, expected = (case.data_sets or ())[0]
        given_as_arrays = all(isinstance(x, (np.ndarray, np.generic)) for x in [*inputs, *expected])
        if not CONTROL_FLOW & used or "affine_grid" in case.name or not given_as_arrays:
            continue
        ran += 1
        found = hr.jit(hr.onnx.load(model))(*inputs)
        found = [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]
        try:
            cases.check_similar(expected, [np.asarray(x) for x in found], case)
        except AssertionError as e:
            wrong.append((case.name, str(e)[:300]))
    assert wrong == []
    assert ran > 20


def test_the_reasons_belong_to_tests_that_fail() -> None:
    failed = [r.name for r in cases.results() if r.error is not None]
    assert [part for part in cases.REASONS if not any(part in name for name in failed)] == []


def test_the_page_lists_the_operators_and_counts() -> None:
    """The counts belong to the version of the `onnx` package that the page names."""
    shown = page.PAGE.read_text(encoding="utf-8")
    if f"of onnx {onnx.__version__}." in shown:
        assert shown == page.text(), "run `python -m tests.onnx.page`"
