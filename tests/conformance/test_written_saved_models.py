"""SavedModels that `hr.saved_model.save` writes compute, differentiate and train in TensorFlow as here."""

from __future__ import annotations

from collections.abc import Callable

PROGRAM = """
from tests.conformance import written_saved_models as written

assert len(written.MODELS) >= 20
written.check_models()
written.check_signatures()
print("fine")
"""


def test_saved_objects_compute_differentiate_and_train_in_tensorflow(run_python: Callable[[str], bytes]) -> None:
    assert run_python(PROGRAM).endswith(b"fine\n")
