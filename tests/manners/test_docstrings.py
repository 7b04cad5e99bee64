"""Faults of the blocks `Args:` and `Attributes:` of docstrings.

The checker finds them, and no file has damaged blocks.
"""

from __future__ import annotations

import ast

import pytest

from tests.manners import docstrings, prose
from tests.manners.docstrings import DAMAGED, MISSING, Entry

pytestmark = pytest.mark.one_engine

DOC = """Computes it.

Args:
  x, y: two
    tensors.
  *names: names; see `f`.
  units (seconds): a number.
  a, b,
    c: more: of it.

Returns:
  z: nothing.
"""


def test_entries_of_a_block() -> None:
    assert docstrings.entries(DOC, "Args") == [
        Entry(("x", "y"), "two tensors."),
        Entry(("names",), "names; see `f`."),
        Entry(("units",), "a number."),
        Entry(("a", "b", "c"), "more: of it."),
    ]
    assert docstrings.entries(DOC, "Attributes") is None


def _function(parameters: str, args: str, name: str = "f") -> str:
    return f'def {name}({parameters}):\n    """Computes it.\n\n    Args:\n      {args}\n    """\n'


def _class(body: str, attributes: str, bases: str = "") -> str:
    return f'class C{bases}:\n    """It.\n\n    Attributes:\n      {attributes}\n    """\n\n    {body}\n'


@pytest.mark.parametrize(
    ("source", "patterns"),
    [
        (_function("x", "x: a tensor."), []),
        (_function("self, x, *, y=1", "x: a tensor.\n      y: a number."), []),
        (_function("x, *rest, **more", "x, *rest, **more: all."), []),
        (_function("x, y, z", "x: a tensor.\n      Others: see `g`."), []),
        (_function("x", "x: is it a tensor?"), []),
        (_function("x, _hidden", "x: a tensor."), []),
        (_function("x, y", "x: a tensor.", "_private"), []),
        (_function("x", "x: an example\n        >>> f(1)\n        2"), []),
        (_function("x", "x: a tensor, without"), [DAMAGED]),
        (_function("x", "x: a tensor.\n      y: gone."), [DAMAGED]),
        (_function("x, y", "x: a tensor."), [MISSING]),
        (_function("x, y", "x: a tensor\n      of values. y: a number."), [DAMAGED, DAMAGED, MISSING]),
        (_class("x: int = 0", "x: a number."), []),
        (_class('__slots__ = ("x",)', "x: a number."), []),
        (_class('__slots__ = (*("x",),)', "x: a number."), []),
        (_class("x = 1", "x: a number."), []),
        (_class("@property\n    def x(self): ...", "x: a number."), []),
        (_class("def __init__(self):\n        self.x, self.y = 1, 2", "x, y: numbers."), []),
        (_class("x: ClassVar[int] = 0\n    _y: int = 0\n    z: int = 1", "z: a number."), []),
        (_class("pass", "x: inherited.", "(other.Base)"), []),
        (_class("pass", "x: gone."), [DAMAGED]),
        (_class("def f(self):\n        other.x = 1", "x: of another object."), [DAMAGED]),
        (_class("x: int = 0", "x: a number; see"), [DAMAGED]),
        (_class("x: int = 0\n    y: int = 0", "x: a number."), [MISSING]),
        (
            _class("y = 1", "y: a number.") + _class("z = 1", "y, z: numbers.", "(C)").replace("class C(", "class D("),
            [],
        ),
    ],
)
def test_faults(source: str, patterns: list[str]) -> None:
    assert sorted(f.pattern for f in docstrings.faults(ast.parse(source))) == sorted(patterns)


def test_a_class_with_args_is_compared_with_its_constructor() -> None:
    head = 'class C:\n    """It.\n\n    Args:\n      x: a number.\n    """\n\n'
    (fault,) = docstrings.faults(ast.parse(head + "    def __init__(self, x, y): ...\n"))
    assert fault == (1, MISSING, "C: parameter 'y' is not in Args")


def test_damaged_docstrings_are_offences() -> None:
    source = '"""Module."""\n\n\n' + _function("x", "x: a tensor, without")
    assert [(o.line, o.pattern) for o in prose.check_python(source)] == [(4, DAMAGED)]


def test_no_file_may_have_damaged_docstrings() -> None:
    baseline = prose.read_baseline(prose.BASELINE.read_text(encoding="utf-8"))
    assert [path for path, pattern in baseline if pattern == DAMAGED] == []
