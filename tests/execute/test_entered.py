"""The state of a thread within a step (`execute.entered`)."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

from headrace import denormals
from headrace.execute.entered import entered

pytestmark = pytest.mark.one_engine

QUIET = {"divide": "ignore", "over": "ignore", "under": "ignore", "invalid": "ignore"}


def test_numpy_reports_no_errors_within_the_block_and_as_before_after_it() -> None:
    with np.errstate(divide="raise", over="warn"):
        before = np.geterr()
        with warnings.catch_warnings(), entered():
            warnings.simplefilter("error")
            assert np.geterr() == QUIET
            assert np.isinf(np.float32(1) / np.float32(0))
        assert np.geterr() == before
        with pytest.raises(FloatingPointError):
            np.float32(1) / np.float32(0)


def test_blocks_nest_with_each_other_and_with_numpys_own() -> None:
    before = np.geterr()
    with entered():
        with np.errstate(divide="raise"):
            with entered(flushes=True):
                assert np.geterr() == QUIET
            assert np.geterr()["divide"] == "raise"
        assert np.geterr() == QUIET
    assert np.geterr() == before


def test_an_error_ends_the_block() -> None:
    before = np.geterr()
    with pytest.raises(ZeroDivisionError), entered(flushes=True, blas_threads=1):
        1 / 0
    assert np.geterr() == before


def test_other_threads_are_not_affected() -> None:
    seen = []
    with entered():
        thread = threading.Thread(target=lambda: seen.append(np.geterr()))
        thread.start()
        thread.join()
    assert seen != [QUIET]


@pytest.mark.skipif(not denormals._is_known, reason="this platform's register is not known")
def test_denormal_numbers_are_flushed_if_the_step_asks_for_it() -> None:
    tiny = np.float32([1e-39])
    for flushes in (False, True):
        with entered(flushes):
            assert ((tiny / 2)[0] == 0) == flushes
        assert (tiny / 2)[0] > 0
