"""SavedModels of TensorFlow load in headrace, with equal results, gradients and training.

`loaded_models.py` has the models. Each program writes several of them, loads each in both systems and compares.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

KERAS = "keras_dense", "keras_lstm", "keras_subclassed"  # Keras takes ten seconds of CPU time to write one
GROUPS = {
    "control_flow": ("linear", "conditional", "loop", "polymorphic", "structures", "functions", "custom_gradient"),
    "state": ("several_signatures", "tables", "mutable_table", "nested_modules", "convolution", "dtypes_of_all_kinds"),
    **{name: (name,) for name in KERAS},
    "graphs": ("first_resources", "first_references", "first_tables", "first_functions", "first_structured"),
}

PROGRAM = """
from tests.conformance import loaded_models

for name in {names!r}:
    loaded_models.check(name)
assert set({all!r}) == loaded_models.CASES.keys()
"""


@pytest.mark.parametrize("group", [pytest.param(g, marks=pytest.mark.rotated(3)) if g in KERAS else g for g in GROUPS])
def test_loaded_models_compute_differentiate_and_train_as_in_tensorflow(
    group: str, run_python: Callable[[str], bytes]
) -> None:
    every = [name for names in GROUPS.values() for name in names]
    out = run_python(PROGRAM.format(names=GROUPS[group], all=every)).decode()
    assert [line.split()[0] for line in out.splitlines() if line.endswith("is equal")] == list(GROUPS[group])
