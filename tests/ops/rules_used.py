"""Pytest plugin that records the op types whose gradient rules each test uses.

Only passing tests, and only rules of the op's own, are recorded, as JSON in `$RULES_USED`.

RULES_USED=used.json python -m pytest -p tests.ops.rules_used tests/ops/test_tensor_list_ops.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.grad import registered

used: dict[str, set[str]] = {}
_now: set[str] = set()
_lookup = registered.lookup


def lookup(op: Any) -> Any:
    rule = _lookup(op)
    if rule is op.opdef.grad:
        _now.add(op.type)
    return rule


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _now.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registered, "lookup", lookup)
        result = yield
    node = item.nodeid.partition("[")[0]
    for type in _now:
        used.setdefault(type, set()).add(node)
    return result


def pytest_sessionfinish() -> None:
    Path(os.environ["RULES_USED"]).write_text(json.dumps({t: sorted(used[t]) for t in sorted(used)}), encoding="utf-8")
