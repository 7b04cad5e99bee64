"""Backend tests of the `onnx` package: models, inputs and expected outputs, run eagerly by `headrace.onnx.backend`."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from headrace.errors import UnimplementedError
from headrace.onnx import backend, operators
from headrace.onnx.element_types import array_of

#: Kinds of tests whose models are in the package, without a download.
KINDS: Final = ("node", "simple", "pytorch-converted", "pytorch-operator")

#: Tests that fail although all of their operators are there, by a part of their names, and the reasons.
REASONS: Final = {
    "e8m0": "headrace has no dtype float8_e8m0",
    "training_dropout": "the expected values are those of numpy's generator of random numbers",
    "attention_4d_causal_fp16": "two of 192 elements differ in the last places of float16",
}


class Result(NamedTuple):
    """Outcome of a test.

    Attributes:
      kind: the kind of the test.
      name: its name.
      operators: domain and name of the operators of its main graph.
      error: the error of a failure, or None.
    """

    kind: str
    name: str
    operators: frozenset[tuple[str, str]]
    error: BaseException | None


@functools.cache
def tests_of(kind: str) -> tuple[Any, ...]:
    """Returns the tests of a kind, whose expected values are computed here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of the functions that make the expected values
        return tuple(load_model_tests(kind=kind))


@functools.cache
def results() -> tuple[Result, ...]:
    """Runs all tests, once in a process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, of overflows that the tests ask for
        return tuple(_result(kind, case) for kind in KINDS for case in tests_of(kind))


def model_of(case: Any) -> onnx.ModelProto:
    """Returns the model of a test."""
    return case.model if case.model is not None else onnx.load(os.path.join(case.model_dir, "model.onnx"))


def _result(kind: str, case: Any) -> Result:
    model = model_of(case)
    used = frozenset(("" if n.domain == "ai.onnx" else n.domain, n.op_type) for n in model.graph.node)
    try:
        prepared = backend.prepare(model)
        for inputs, expected in _data(case, model):
            check_similar(expected, prepared.run(inputs), case)
    except Exception as e:
        return Result(kind, case.name, used, e.with_traceback(None))
    return Result(kind, case.name, used, None)


def _data(case: Any, model: onnx.ModelProto) -> Iterator[tuple[list[Any], list[Any]]]:
    """Inputs and expected outputs."""
    if case.data_sets is not None:
        yield from case.data_sets
        return
    for folder in sorted(Path(case.model_dir).glob("test_data_set*")):
        yield _read(folder, "input", model.graph.input), _read(folder, "output", model.graph.output)


def _read(folder: Path, which: str, infos: Any) -> list[Any]:
    files = [folder / f"{which}_{i}.pb" for i in range(len(infos))]
    return [array_of(onnx.TensorProto.FromString(f.read_bytes())) for f in files if f.exists()]


def check_similar(expected: Any, found: Any, case: Any) -> None:
    """Compares outputs with the tolerances of a test; elements of sequences one by one.

    Raises:
      AssertionError: they differ.
    """
    assert len(expected) == len(found)
    for a, b in zip(expected, found, strict=True):
        wanted = array_of(a) if isinstance(a, onnx.TensorProto) else a
        if isinstance(wanted, list):
            check_similar(wanted, b, case)
        elif wanted is None:
            assert b is None
        elif np.asarray(wanted).dtype.kind in "OSU":
            texts = [x.decode() if isinstance(x, bytes) else x for x in np.asarray(wanted, object).reshape(-1)]
            assert np.shape(wanted) == b.shape
            assert texts == list(b.reshape(-1))
        else:
            Runner.assert_similar_outputs([np.asarray(wanted)], [b], rtol=case.rtol, atol=case.atol)


def is_missing(error: BaseException | None) -> bool:
    """Whether an error says that headrace lacks an operator."""
    return isinstance(error, UnimplementedError) and "headrace has no operator" in str(error)


def reason(result: Result) -> str | None:
    """Returns the reason for which a test fails that is in `REASONS`, or None."""
    return next((text for part, text in REASONS.items() if part in result.name), None)


def has(domain: str, name: str, version: int) -> bool:
    """Whether the table has an operator."""
    return operators.find(domain, name, version) is not None
