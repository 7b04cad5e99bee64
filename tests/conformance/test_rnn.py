"""Recurrent networks give what TensorFlow's give, with the same weights of the same names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = """
import sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, ".")
from tests.conformance import recurrent
recurrent.main()
"""


def test_networks_agree_with_tensorflow(run_python: Callable[[str], bytes]) -> None:
    """Outputs, states, gradients and variables of every cell in every kind of network."""
    n, differences = json.loads(run_python(PROGRAM))
    assert n >= 29
    assert not differences, "\n".join(differences)
