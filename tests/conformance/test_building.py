"""The functions that make ops against TensorFlow's: the same names, graphs and values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.conformance.building import EXPRESSIONS

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_graphs_are_tensorflows(run_python: Callable[[str], bytes]) -> None:
    out = json.loads(run_python("from tests.conformance import building; building.main()"))
    assert out["differ"] == {}
    assert out["compared"] == len(EXPRESSIONS.read_text(encoding="utf-8").splitlines()) > 500
