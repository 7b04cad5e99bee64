"""The tool that finds `raise` statements which no test expects."""

from __future__ import annotations

import ast
import builtins
import json
from pathlib import Path

import pytest

from tests.errors import reached

SOURCE = """
class Door:
    def open(self, key):
        if key is None: raise ValueError("no key")
        try:
            return {"a": 1}[key]
        except KeyError as e:
            if key == "again":
                raise
            raise LookupError(f"{key!r} opens nothing") from e

def close():
    raise NotImplementedError
"""


def test_what_is_found_and_what_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ast.parse(SOURCE)
    found = dict(reached.raises(tree, "door.py"))
    assert [(r.line, r.function, r.is_ours) for r in found.values()] == [
        (4, "Door.open", False),
        (10, "Door.open", False),
        (13, "close", True),
    ]
    names: list[str] = []
    monkeypatch.setattr(builtins, reached.MARK, names.append, raising=False)
    space: dict[str, type] = {}
    exec(compile(reached._Marking(found).visit(tree), "door.py", "exec"), space)
    door = space["Door"]()
    assert door.open("a") == 1
    for key in ("b", None, "again"):
        with pytest.raises((LookupError, ValueError)) as e:
            door.open(key)
        assert e.traceback[-1].lineno == {"b": 9, None: 3, "again": 5}[key]  # counted from 0: lines are where they were
    assert names == [
        """door.py::Door.open::raise LookupError(f'{key!r} opens nothing') from e""",
        "door.py::Door.open::raise ValueError('no key')",
    ]


@pytest.mark.matrix
def test_the_report(tmp_path: Path) -> None:
    data = tmp_path / "reached.json"
    assert reached.read(data) == {}
    some = next(r for r in reached.written() if r.file == "headrace/prune.py" and not r.is_ours)
    data.write_text(json.dumps({some.name: True}))
    assert some.text not in reached.report(reached.read(data), some.file, False)
    assert f"~ {some.line:4} {some.function}" in reached.report({some.name: False}, some.file, False)
    assert "0 expected by a test, 0 only reached" in reached.report({}, some.file, False)
