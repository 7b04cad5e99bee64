"""docs/reference/ops.md is what the registry says."""

import pytest

from headrace import dtypes
from headrace.ir.opdef import op_registry
from tests.ops import page

pytestmark = pytest.mark.one_engine


def test_the_page_is_current() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: python -m tests.ops.page"


def test_the_page_has_every_op_type() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert not [t for t in op_registry if f"| `{t}` |" not in text]


@pytest.mark.parametrize(
    ("allowed", "said"),
    [
        (dtypes.REAL, "real"),
        (dtypes.REAL - {dtypes.bfloat16}, "real but bfloat16"),
        (dtypes.NUMERIC | {dtypes.bool_}, "numeric, bool"),
        ({dtypes.int32, dtypes.int64}, "int32, int64"),
        (dtypes.ALL, "any"),
    ],
)
def test_dtypes_are_said_shortly(allowed: frozenset[dtypes.DType], said: str) -> None:
    assert page.of_dtypes(frozenset(allowed)) == said
