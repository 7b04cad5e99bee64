"""The programs of tests/v1/programs with TensorFlow itself, which prints the recorded results.

    HEADRACE_RECORD=1 pytest tests/conformance/test_v1_programs.py

records it again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.v1.programs import HERE, MODELS, PROGRAMS, difference, expected, printed, source

if TYPE_CHECKING:
    from collections.abc import Callable

# One process for all programs, each in a graph of its own.
RUNNER = """
import contextlib, io, json, logging, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
results = {{}}
for name, text in json.loads({programs!r}).items():
    tf.reset_default_graph()
    out = io.StringIO()
    with tempfile.TemporaryFile() as err:
        saved = os.dup(2)
        os.dup2(err.fileno(), 2)
        try:
            with contextlib.redirect_stdout(out):
                exec(compile(text, name + ".py", "exec"), {{"__name__": "__main__"}})
        finally:
            os.dup2(saved, 2)
        err.seek(0)
        results[name] = [out.getvalue(), err.read().decode(errors="replace")]
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outputs(request: pytest.FixtureRequest, server: Callable[[str], bytes]) -> dict[str, str]:
    """Outputs of the programs that the selected tests of this module name."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    programs = json.dumps({name: source(name) for name in (test.callspec.params["name"] for test in tests)})
    found = json.loads(server(RUNNER.format(programs=programs)).splitlines()[-1])
    return {name: printed(*both) for name, both in found.items()}


@pytest.mark.rotated(3)
@pytest.mark.parametrize("name", PROGRAMS + MODELS)
def test_tensorflow_prints_the_same(name: str, outputs: dict[str, str]) -> None:
    if os.environ.get("HEADRACE_RECORD") == "1":
        (HERE / f"{name}.txt").write_text(outputs[name], encoding="utf-8")
    if name in MODELS:
        assert difference(outputs[name], expected(name)) is None
    else:
        assert outputs[name] == expected(name)
