"""`tf.experimental.RowPartition` and `DynamicRaggedShape`, compared with results of TensorFlow 2.21."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace.v1 as tf
from tests.v1.row_partition_cases import KINDS, VALUES, results


@pytest.mark.system
@pytest.mark.filterwarnings("ignore:the graph grows")  # each case adds operations and runs them
@pytest.mark.parametrize("kind", KINDS)
def test_partitions_and_ragged_shapes_have_tensorflows_values(kind: str) -> None:
    recorded = json.loads(VALUES.read_text(encoding="utf-8"))
    wanted = {k.removeprefix(f"{kind}: "): v for k, v in recorded.items() if k.startswith(f"{kind}: ")}
    found = results(tf, KINDS[kind])
    differing: dict[str, Any] = {}
    for name, want in wanted.items():
        is_error = isinstance(want, dict) and "error" in want
        got = found[name]
        same = isinstance(got, dict) and want["error"][0] in got.get("error", ()) if is_error else got == want
        if not same:
            differing[name] = (want, got)
    assert differing == {}
    assert found.keys() == wanted.keys()
