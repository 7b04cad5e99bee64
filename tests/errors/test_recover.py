"""Error texts about imported primitives that no loop or conditional could have made."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidArgumentError
from headrace.ir.text import from_text
from headrace.recover import recover
from tests.errors.table import check
from tests.recover.test_recover import CHOOSE, COUNT

VARIABLE = "Variable[shape=[], dtype=float32]"

ODD = [
    (
        COUNT + 'e2 = Enter[frame_name="w"](out)\n m2 = Merge(e2, next2)\n s2 = Switch(m2, cond)\n'
        "next2 = NextIteration(s2:1)\n out2 = Exit(s2)",
        "expected the results of a loop to be used only after it.*split it into two loops",
    ),
    (
        "i = Placeholder[dtype=int32, shape=[]]\n x = Placeholder[dtype=float32, shape=[]]\n"
        "a = _SwitchN[num_outs=2](x, i)\n b = _SwitchN[num_outs=3](x, i)\n y = Merge(a, a:1)\n z = Merge(b, b:1, b:2)",
        "'b' .*expected one kind of Switch for each predicate, but 'i:0' is the predicate of Switches.*copy it",
    ),
    (
        CHOOSE + f"v = {VARIABLE}\n w = {VARIABLE}\n a = RefSwitch(v, p)\n b = RefSwitch(w, p)\n r = RefMerge(a, b:1)",
        "'r' .*expected a conditional to return values, but it returns references; use a resource variable",
    ),
    (
        COUNT + f'v = {VARIABLE}\n w = {VARIABLE}\n re = RefEnter[frame_name="w"](v)\n rm = RefMerge(re, rn)\n'
        'rs = RefSwitch(rm, cond)\n rw = RefEnter[frame_name="w", is_constant=true](w)\n'
        "ri = RefIdentity(rw) ^i\n rn = RefNextIteration(ri)\n rx = RefExit(rs)",
        "'rm' .*expected a reference that is a loop variable to be equal in all iterations",
    ),
]


@pytest.mark.parametrize(("text", "says"), ODD)
def test_what_is_said(text: str, says: str) -> None:
    check(lambda: recover(from_text(text)), InvalidArgumentError, says)
