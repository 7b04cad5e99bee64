"""The examples of docstrings and the programs in the pages of the documentation run."""

from __future__ import annotations

import contextlib
import doctest
import functools
import importlib
import io
import pkgutil
import re
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from tests.extending.registering import forgotten

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/learn/tutorial.md",
    "docs/learn/from_tensorflow.md",
    "docs/learn/from_jax.md",
    "docs/learn/from_pytorch.md",
    "docs/learn/structured.md",
    "docs/learn/gradients.md",
    "docs/how-to/graphs.md",
    "docs/reference/recovery.md",
    "docs/learn/eager.md",
    "docs/learn/types.md",
    "docs/learn/jit.md",
    "docs/learn/autograph.md",
    "docs/learn/vmap.md",
    "docs/reference/compiling.md",
    "docs/reference/flags.md",
    "docs/how-to/memory.md",
    "docs/how-to/recording.md",
    "docs/how-to/devices.md",
    "docs/how-to/accelerators.md",
    "docs/how-to/placement.md",
    "docs/how-to/collectives.md",
    "docs/how-to/summaries.md",
    "docs/learn/training.md",
    "docs/how-to/layers.md",
    "docs/how-to/extension_types.md",
    "docs/how-to/rnn.md",
    "docs/how-to/optimizers.md",
    "docs/how-to/saving.md",
    "docs/reference/checkpoints.md",
    "docs/how-to/monitored.md",
    "docs/how-to/estimators.md",
    "docs/how-to/linear_operators.md",
    "docs/how-to/input.md",
    "docs/how-to/inspecting.md",
    "docs/how-to/onnx.md",
    "docs/how-to/tensorflow_clients.md",
    "docs/how-to/serving.md",
    "docs/how-to/counters.md",
    "docs/how-to/profiling.md",
    "docs/how-to/extending.md",
)
#: Packages of extras without which the programs of a page, or the modules of a package, do not run.
NEEDED = {
    "docs/how-to/accelerators.md": "torch",
    "headrace.devices": "torch",
    "headrace.devices.torch": "torch",
}
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL | doctest.NORMALIZE_WHITESPACE


@functools.cache
def _packages() -> dict[str, list[str]]:
    """The modules by the package that they are in."""
    out: dict[str, list[str]] = {}
    for m in pkgutil.walk_packages(headrace.__path__, "headrace."):
        if not m.name.endswith(("_pb2", "__main__")):
            out.setdefault(m.name if m.ispkg else m.name.rpartition(".")[0], []).append(m.name)
    return out


def _examples(module: types.ModuleType) -> list[doctest.DocTest]:
    return [t for t in doctest.DocTestFinder().find(module) if t.examples]


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Forgets the registrations of examples after each test."""
    with forgotten():
        yield


@pytest.mark.system
@pytest.mark.parametrize("package", _packages())
def test_examples_in_docstrings(package: str) -> None:
    """All examples of the modules of a package run.

    A failure lists each example whose output differs from the output shown.
    """
    if package in NEEDED:
        pytest.importorskip(NEEDED[package])
    runner, out = doctest.DocTestRunner(optionflags=OPTIONS), io.StringIO()
    for name in _packages()[package]:
        for test in _examples(importlib.import_module(name)):
            runner.run(test, out=out.write)
    assert not runner.failures, out.getvalue()


@pytest.mark.system
@pytest.mark.parametrize("page", PAGES)
def test_programs_in_pages(page: str, tmp_path: Path) -> None:
    """Each program of a page runs, in order.

    The output of `print(...)  # x` is the one that the comment shows.
    """
    if page in NEEDED:
        pytest.importorskip(NEEDED[page])
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    assert blocks
    names: dict[str, object] = {}
    for i, block in enumerate(blocks):
        if "open(" in block:  # a file that the reader has
            continue
        file = tmp_path / f"program{i}.py"  # the conversion of functions reads their source
        file.write_text(block, encoding="utf-8")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, str(file), "exec"), names)
        assert out.getvalue().splitlines() == re.findall(r"^ *print\(.*\)  +# (.*)$", block, flags=re.M)
