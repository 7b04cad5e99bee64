"""The recorded TensorFlow programs with every operation on a device with PyTorch's tensors.

A commit runs a share of them by its number; `python -m tests.devices.corpus` runs all.
"""

from __future__ import annotations

import pytest

import headrace as hr
from tests import tiers
from tests.devices.corpus import TYPE, OnDevice, corpus, declared_programs, replay

pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

SHARES = 12


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_programs_have_the_recorded_results(engine: str) -> None:
    hr.Session(graph=hr.Graph(), devices={TYPE: 1}).close()  # registers the kernels of the device
    programs = declared_programs()
    assert len(programs) > 2000
    failed = []
    chosen = tiers.rotated(programs, SHARES)
    for program in chosen:
        try:
            replay.execute(corpus.load(program), OnDevice(engine), replay.TOL)
        except Exception as e:
            failed.append(f"{program}: {type(e).__name__}: {e}"[:300])
    assert len(failed) <= 0.05 * len(chosen), "\n".join(failed)
