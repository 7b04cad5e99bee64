"""Requests and responses in TensorFlow Serving's REST format."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace.errors import InvalidArgumentError
from headrace.serve import ServingSignature, predict
from tests.serve.runners import ROWS, signature

TWO = signature({"x": ((None, 2), "float32"), "n": ((None,), "int64")}, {"y": ((None,), "float32")})


def arguments(body: Any, of: ServingSignature = ROWS) -> list[np.ndarray]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return predict.arguments(predict.parse(text), of)


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": [[1, 2], [3, 4]]},
        {"inputs": {"x": [[1, 2], [3, 4]]}},
        {"instances": [[1, 2], [3, 4.0]]},
        {"instances": [{"x": [1, 2]}, {"x": [3, 4]}], "signature_name": "serving_default"},
    ],
)
def test_columns_and_rows_are_the_same_arguments(body: Any) -> None:
    (x,) = arguments(body)
    assert x.dtype == np.float32
    assert x.tolist() == [[1, 2], [3, 4]]


def test_rows_of_two_arguments() -> None:
    x, n = arguments({"instances": [{"x": [1, 2], "n": 5}, {"n": -6, "x": [3, 4]}]}, TWO)
    assert (x.tolist(), n.tolist(), n.dtype) == ([[1, 2], [3, 4]], [5, -6], np.int64)


def test_numbers_that_only_python_parses() -> None:
    (x,) = arguments(b'{"inputs": [[NaN, -Infinity]]}')
    assert np.isnan(x[0, 0])
    assert x[0, 1] == -np.inf


def test_numbers_beyond_the_dtype_are_infinite() -> None:
    assert arguments({"inputs": [[1e300, -1e300]]})[0].tolist() == [[np.inf, -np.inf]]


def test_strings_and_bytes() -> None:
    of = signature({"s": ((None,), "string")}, {})
    (s,) = arguments({"inputs": ["aß", {"b64": "/w=="}]}, of)
    assert s.tolist() == ["aß".encode(), b"\xff"]
    (scalar,) = arguments({"inputs": "a"}, signature({"s": ((), "string")}, {}))
    assert scalar.shape == ()


@pytest.mark.parametrize(
    ("dtype", "given"),
    [("bool", [True, False]), ("uint8", [0, 255]), ("uint64", [1, 2**64 - 1]), ("bfloat16", [1, 2.5])],
)
def test_dtypes(dtype: str, given: list[Any]) -> None:
    (x,) = arguments({"inputs": given}, signature({"x": ((None,), dtype)}, {}))
    assert (x.dtype.name, x.tolist()) == (dtype, given)


def test_an_empty_list_has_the_dtype_of_the_signature() -> None:
    (x,) = arguments({"inputs": []}, signature({"x": ((None,), "int32")}, {}))
    assert (x.dtype, x.shape) == (np.int32, (0,))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "the body is no JSON"),
        (b'{"inputs": NaN', "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b'{"inputs": "\xff"}', "the body is no JSON"),
        ([1], 'expected a JSON object with "inputs" or "instances", got a list'),
        ({}, 'either "inputs" (arrays) or "instances" (rows)'),
        ({"inputs": [], "instances": []}, 'either "inputs" (arrays) or "instances" (rows)'),
        ({"inputs": [], "examples": []}, "unknown key 'examples'"),
        ({"inputs": [], "signature_name": 3}, "signature_name is a string, got 3"),
        ({"instances": []}, "at least one row"),
        ({"instances": 3}, "at least one row, got 3"),
        ({"instances": [[1, 2], {"x": [1, 2]}]}, "all rows have names, or none has"),
        ({"instances": [{"x": [1, 2]}, [1, 2]]}, "all rows have names, or none has"),
        ({"instances": [{"x": [1, 2]}, {"z": 1}]}, "instances[1] lacks x and has unknown z; the arguments are x"),
        ({"inputs": {"z": 1}}, "inputs lacks x and has unknown z"),
        ({"inputs": [[1, 2], [3]]}, "the argument 'x': at [1]: a list of 1, but one of 2 at [0]"),
        ({"inputs": [[1, 2], 3]}, "the argument 'x': at [1]: expected a list, as at [0], got 3"),
        ({"inputs": [[1, [2]]]}, "the argument 'x': at [0][1]: expected a number, got a list"),
        ({"inputs": [[1, "a"]]}, "expected float32, got 'a' at [0][1]"),
        ({"inputs": [[1, None]]}, "expected float32, got None at [0][1]"),
        ({"inputs": [[True, False]]}, "expected float32, got booleans"),
        ({"inputs": [1, 2]}, "the argument 'x' has shape [2]; the signature asks for [?,2]"),
    ],
)
def test_bad_requests(body: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as e:
        arguments(body)
    assert text in str(e.value)
    assert len(str(e.value)) < 300


@pytest.mark.parametrize(
    ("dtype", "given", "text"),
    [
        ("int32", [1.5], "expected int32, got a number with a decimal point or an exponent"),
        ("int8", [128], "a number is outside of int8: -128 to 127"),
        ("uint8", [-1], "a number is outside of uint8: 0 to 255"),
        ("int64", [2**64], "expected int64, got a number with a decimal point or an exponent"),
        ("int64", [1, 2**63], "a number is outside of int64"),
        ("bool", [1], "expected bool, got numbers"),
        ("complex64", [1], "complex64 has no form in JSON"),
        ("string", [1], 'expected a string or {"b64": "..."}, got 1'),
        ("string", [{"b64": "?"}], '"b64"'),
        ("string", ["a", ["b"]], 'expected a string or {"b64": "..."}, got a list'),
        ("string", [["a"], "b"], "at [1]: expected a list, as at [0], got 'b'"),
    ],
)
def test_bad_values(dtype: str, given: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as e:
        arguments({"inputs": given}, signature({"x": ((None,), dtype)}, {}))
    assert text in str(e.value)


def test_half_of_a_surrogate_pair() -> None:
    with pytest.raises(InvalidArgumentError):
        arguments(b'{"inputs": ["\\ud800"]}', signature({"x": ((None,), "string")}, {}))


def test_arguments_by_name_are_required_with_two() -> None:
    with pytest.raises(InvalidArgumentError, match="the signature has 2 arguments, give them by name"):
        arguments({"inputs": [1]}, TWO)


def respond(body: Any, outputs: dict[str, Any]) -> bytes:
    of = ServingSignature({}, dict.fromkeys(outputs))  # type: ignore[arg-type]
    return predict.response(predict.parse(json.dumps(body).encode()), of, list(outputs.values()))


def test_responses() -> None:
    y = np.float32([[0.1, 2], [3, 4]])
    assert respond({"inputs": 1}, {"y": y}) == b'{"outputs":[[0.1,2.0],[3.0,4.0]]}'
    assert respond({"instances": [1]}, {"y": y}) == b'{"predictions":[[0.1,2.0],[3.0,4.0]]}'
    n = np.array([1, 2])
    assert respond({"inputs": 1}, {"y": y, "n": n}) == b'{"outputs":{"y":[[0.1,2.0],[3.0,4.0]],"n":[1,2]}}'
    assert json.loads(respond({"instances": [1]}, {"y": y, "n": n})) == {
        "predictions": [{"y": [0.1, 2.0], "n": 1}, {"y": [3.0, 4.0], "n": 2}]
    }
    assert respond({"inputs": 1}, {"y": np.float64(3)}) == b'{"outputs":3.0}'


def test_responses_with_special_values() -> None:
    assert (
        respond({"inputs": 1}, {"y": np.float32([np.nan, np.inf, -np.inf])}) == b'{"outputs":[NaN,Infinity,-Infinity]}'
    )
    half = np.array([1.5, 2], ml_dtypes.bfloat16)
    assert respond({"inputs": 1}, {"y": half[::-1]}) == b'{"outputs":[2.0,1.5]}'
    text = np.array([[b"a", "ß".encode(), b"\xff"]], object)
    assert json.loads(respond({"inputs": 1}, {"y": text}))["outputs"] == [["a", "ß", {"b64": "/w=="}]]
    assert json.loads(respond({"inputs": 1}, {"y_bytes": text[0, :1]}))["outputs"] == [{"b64": "YQ=="}]


def test_results_without_common_rows_have_no_predictions() -> None:
    for outputs in ({"y": np.float32(1)}, {"y": np.zeros(2), "z": np.zeros(3)}):
        with pytest.raises(InvalidArgumentError, match='send "inputs" in place of "instances"'):
            respond({"instances": [1]}, outputs)
