"""Paths of the service, their methods and errors, without a network."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import errors
from headrace.serve import Limits
from headrace.serve.application import Application, status_of
from headrace.serve.models import Model
from tests.serve.runners import ROWS, FakeRunner, signature

PREDICT = "/v1/models/m:predict"
BODY = b'{"inputs": [[1, 2]]}'


def answer(
    folder: Path,
    runner: FakeRunner,
    path: str,
    body: bytes | Sequence[bytes] = b"",
    method: str | None = None,
    limits: Limits | None = None,
    headers: Sequence[tuple[bytes, bytes]] = (),
    is_ending: bool = False,
) -> tuple[int, Any, dict[bytes, bytes]]:
    """Returns the status, the content and the headers of a response."""
    limits = limits or Limits()
    chunks = [body] if isinstance(body, bytes) else list(body)
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": chunks.pop(0), "more_body": bool(chunks)}

    async def send(message: Any) -> None:
        sent.append(message)

    async def main() -> None:
        with ThreadPoolExecutor(1) as executor:
            model = Model("m", folder, lambda path: runner)
            await model.update(limits, executor)
            application = Application({"m": model}, limits)
            application.is_ending = is_ending
            verb = method or ("POST" if ":" in path else "GET")
            scope = {"type": "http", "path": path, "method": verb, "headers": list(headers)}
            await asyncio.wait_for(application(scope, receive, send), 20)

    asyncio.run(main())
    start, end = sent
    found = dict(start["headers"])
    assert int(found[b"content-length"]) == len(end["body"])
    return start["status"], json.loads(end["body"]), found


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., tuple[int, Any, dict[bytes, bytes]]]:
    """`answer` for a folder with version 7."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "saved_model.pb").write_bytes(b"")
    return functools.partial(answer, tmp_path)


def test_predict(call: Any) -> None:
    for path in (PREDICT, "/v1/models/m/versions/7:predict"):
        status, content, headers = call(FakeRunner(), path, BODY)
        assert (status, content) == (200, {"outputs": [[2.0, 4.0]]})
        assert headers[b"content-type"] == b"application/json"
        assert b"connection" not in headers


def test_a_body_in_parts(call: Any) -> None:
    assert call(FakeRunner(), PREDICT, [BODY[:5], b"", BODY[5:]])[:2] == (200, {"outputs": [[2.0, 4.0]]})


def test_state_and_metadata(call: Any) -> None:
    status, content, _ = call(FakeRunner(), "/v1/models/m")
    assert status == 200
    assert content["model_version_status"] == [
        {"version": "7", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    ]
    of = signature({"x": ((None, 2), "float32")}, {"y": (None, "string")})
    status, content, _ = call(FakeRunner(signature=of), "/v1/models/m/versions/7/metadata")
    assert status == 200
    assert content["model_spec"]["version"] == "7"
    signatures = content["metadata"]["signature_def"]["signature_def"]
    sizes = [{"size": "-1", "name": ""}, {"size": "2", "name": ""}]
    assert signatures["serving_default"]["inputs"]["x"] == {
        "dtype": "DT_FLOAT", "tensor_shape": {"dim": sizes, "unknown_rank": False}, "name": "x"
    }  # fmt: skip
    assert signatures["serving_default"]["outputs"]["y"]["tensor_shape"] == {"dim": [], "unknown_rank": True}


@pytest.mark.parametrize(
    ("path", "method", "status", "text"),
    [
        ("/", "GET", 404, "expected /v1/models/NAME"),
        ("/v1/models/m:run", "POST", 404, "expected /v1/models/NAME"),
        ("/v1/models/../m:predict", "POST", 404, "expected /v1/models/NAME"),
        ("/v1/models/other:predict", "POST", 404, "no model 'other'; the models are m"),
        ("/v1/models/m/versions/8:predict", "POST", 404, "version 8 of the model 'm' is not loaded; 7 is"),
        ("/v1/models/m/versions/8", "GET", 404, "version 8 of the model 'm' is not loaded"),
        (PREDICT, "GET", 405, "use POST"),
        ("/v1/models/m/metadata", "POST", 405, "use GET"),
        ("/v1/models/m:classify", "POST", 501, "'classify' is not served"),
    ],
)
def test_wrong_paths(call: Any, path: str, method: str, status: int, text: str) -> None:
    found, content, _ = call(FakeRunner(), path, BODY, method)
    assert found == status
    assert text in content["error"]


def test_a_wrong_signature_and_a_wrong_body(call: Any) -> None:
    status, content, _ = call(FakeRunner(), PREDICT, b'{"inputs": 1, "signature_name": "other"}')
    assert (status, content["error"]) == (404, "the model has no signature 'other'; it has serving_default")
    status, content, _ = call(FakeRunner(), PREDICT, b"{")
    assert status == 400
    assert "the body is no JSON" in content["error"]


def test_large_bodies_are_refused(call: Any) -> None:
    limits, runner = Limits(body_bytes=30), FakeRunner()
    status, content, headers = call(runner, PREDICT, b"", limits=limits, headers=[(b"content-length", b"31")])
    assert (status, content["error"]) == (413, "the body has 31 bytes; the limit is 30")
    assert headers[b"connection"] == b"close"
    status, content, _ = call(runner, PREDICT, [b"[" * 20, b"[" * 20], limits=limits)
    assert (status, content["error"]) == (413, "the body has more than 30 bytes, the limit")
    assert call(runner, PREDICT, BODY, limits=limits)[0] == 200


def test_errors_of_a_model_have_their_status(call: Any) -> None:
    def fail(x: np.ndarray) -> list[Any]:
        raise errors.InvalidArgumentError("assertion failed")

    assert call(FakeRunner(fail), PREDICT, BODY)[:2] == (400, {"error": "assertion failed"})


def test_internal_errors_do_not_leave_the_server(call: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fail(x: np.ndarray) -> list[Any]:
        raise ZeroDivisionError("secret")

    with caplog.at_level(logging.ERROR, "headrace.serve"):
        status, content, _ = call(FakeRunner(fail), PREDICT, BODY)
    assert (status, content) == (500, {"error": "internal error of the server; its log has the cause"})
    assert "secret" in caplog.text


def test_at_the_end_responses_close_their_connections(call: Any) -> None:
    assert call(FakeRunner(), PREDICT, BODY, is_ending=True)[2][b"connection"] == b"close"


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.NotFoundError, 404),
        (errors.ResourceExhaustedError, 429),
        (errors.UnavailableError, 503),
        (errors.DeadlineExceededError, 504),
        (errors.FailedPreconditionError, 400),
        (errors.DataLossError, 500),
    ],
)
def test_statuses(kind: type[errors.OpError], status: int) -> None:
    assert status_of(kind("text")) == status
    assert status_of(ValueError()) == 500


def test_rows_of_a_request_are_those_of_a_step(call: Any) -> None:
    runner = FakeRunner(signature=ROWS)
    assert call(runner, PREDICT, b'{"instances": [[1, 2], [3, 4], [5, 6]]}')[1] == {
        "predictions": [[2.0, 4.0], [6.0, 8.0], [10.0, 12.0]]
    }
    assert runner.calls == [(3, 2)]
