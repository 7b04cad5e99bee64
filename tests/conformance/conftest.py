"""Finds TensorFlow for the tests of this folder, without importing it into the test process.

TensorFlow takes seconds to import, warns while it does (warnings are errors here) and would change what a later test
sees in `sys.modules`; so each test that wants it starts a process.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run_python() -> Callable[[str], bytes]:
    """Runs a program in a new interpreter and returns what it wrote; skips where there is no TensorFlow.

    With `HEADRACE_CONFORMANCE=1` in the environment (CI) a missing TensorFlow is a failure.
    """
    if importlib.util.find_spec("tensorflow") is None:
        reason = "tensorflow is not installed (pip install -e '.[conformance]')"
        if os.environ.get("HEADRACE_CONFORMANCE") == "1":
            pytest.fail(reason)
        pytest.skip(reason)

    def run(program: str) -> bytes:
        # layers and recurrent cells of TensorFlow 1 are in tf_keras by now
        env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", TF_USE_LEGACY_KERAS="1")
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout

    return run
