"""Gradients through the loops and conditionals of recorded programs are TensorFlow's.

`gradients` describes the comparison. The known differences are listed in `gradients.txt`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.conformance.gradients import candidates, known

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = 6  # of the programs, each in a process of its own


@pytest.mark.rotated(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_gradients_are_tensorflows(part: int, run_python: Callable[[str], bytes]) -> None:
    out = json.loads(run_python(f"from tests.conformance import gradients; gradients.main(['{part}', '{PARTS}'])"))
    programs, gradients = out["programs"], out["gradients"]
    print(f"programs: {programs}, gradients: {gradients}")
    expected = known()
    assert {p: why for p, why in out["wrong"].items() if p not in expected} == {}
    mine = set(candidates()[part::PARTS])
    assert mine & set(expected) <= set(out["wrong"]), "these are right by now: take them off gradients.txt"
    assert programs["agree"] >= 8
    assert gradients["agree"] >= 20


def test_what_is_known_to_differ_is_there() -> None:
    assert set(known()) <= set(candidates())
