"""The backend tests of the `onnx` package, and the page that counts them."""

from __future__ import annotations

import onnx
import pytest

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


def test_the_reasons_belong_to_tests_that_fail() -> None:
    failed = [r.name for r in cases.results() if r.error is not None]
    assert [part for part in cases.REASONS if not any(part in name for name in failed)] == []


def test_the_page_lists_the_operators_and_counts() -> None:
    """The counts are those of one version of the `onnx` package; the page of another one has other counts."""
    shown = page.PAGE.read_text(encoding="utf-8")
    if f"of onnx {onnx.__version__}." in shown:
        assert shown == page.text(), "run `python -m tests.onnx.page`"
