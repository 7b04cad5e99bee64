"""Servers of models over real connections: predictions, reload, orderly end, bad clients."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import cli
from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.serve import Limits, SavedModelRunner, Server
from tests.serve.clients import SECONDS, Load, exchanged, request
from tests.serve.runners import FakeRunner

pytestmark = pytest.mark.system

PATH = "/v1/models/m:predict"
BODY = b'{"instances": [[1, 2]]}'
QUICK = Limits(
    request_seconds=0.4, response_seconds=0.4, idle_seconds=0.4, poll_seconds=0.02, drain_seconds=0.2, body_bytes=10_000
)
POST = b"POST %b HTTP/1.1\r\nhost: h\r\n" % PATH.encode()


def save(folder: Path, factor: float) -> Path:
    """Saves a model of TensorFlow 1 that multiplies by a variable."""
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        w = tf.get_variable("w", initializer=factor)
        y = x * w
        sess.run(w.initializer)
        tf.saved_model.simple_save(sess, str(folder), {"x": x}, {"y": y})
    return folder


def publish(folder: Path, number: int, factor: float) -> None:
    """Adds a version to a folder, complete at once."""
    save(folder.parent / f"new{number}", factor)
    (folder.parent / f"new{number}").rename(folder / str(number))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "models").mkdir()
    publish(tmp_path / "models", 1, 2.0)
    with Server({"m": tmp_path / "models"}, limits=QUICK) as running:
        yield running


def test_predictions_of_a_saved_model(server: Server) -> None:
    assert request(server.port, PATH, BODY) == (200, {"predictions": [[2.0, 4.0]]})
    assert request(server.port, PATH, b'{"inputs": {"x": [[1, 2], [3, 4]]}}') == (
        200,
        {"outputs": [[2.0, 4.0], [6.0, 8.0]]},
    )
    status, content = request(server.port, "/v1/models/m/metadata")
    assert status == 200
    assert list(content["metadata"]["signature_def"]["signature_def"]) == ["serving_default"]


def test_a_model_of_functions_with_loops_strings_and_several_signatures(tmp_path: Path) -> None:
    class Model:
        def __init__(self) -> None:
            self.total = hr.Variable(0.0)

        @hr.jit(input_signature=[hr.TensorSpec((None,), hr.float32)])
        def power(self, x: Any) -> Any:
            return {"y": hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), (0, hr.ones_like(x)))[1]}

        @hr.jit(input_signature=[hr.TensorSpec((None,), hr.string)])
        def greet(self, name: Any) -> Any:
            return {"text": hr.strings.join([hr.constant("hello "), name])}

        @hr.jit(input_signature=[hr.TensorSpec((), hr.float32)])
        def add(self, x: Any) -> Any:
            return {"total": self.total.assign_add(x)}

    model = Model()
    signatures = {"serving_default": model.power, "greet": model.greet, "add": model.add}
    hr.saved_model.save(model, tmp_path / "m", signatures)
    with Server({"m": tmp_path / "m"}) as server:
        assert request(server.port, PATH, b'{"instances": [2, 3]}') == (200, {"predictions": [8.0, 27.0]})
        body = b'{"inputs": ["ann", "bob"], "signature_name": "greet"}'
        assert request(server.port, PATH, body) == (200, {"outputs": ["hello ann", "hello bob"]})
        for k in (1, 2, 3):  # a call with an effect runs once, alone
            body = b'{"inputs": 1.5, "signature_name": "add"}'
            assert request(server.port, PATH, body) == (200, {"outputs": 1.5 * k})


def test_results_under_load_are_those_of_single_requests(server: Server) -> None:
    with Load(server.port, PATH, BODY) as a, Load(server.port, PATH, b'{"instances": [[3, 4], [5, 6]]}') as b:
        a.wait(200)
        b.wait(200)
    assert not a.lost + b.lost
    assert set(a.answers) == {'{"predictions":[[2.0,4.0]]}'}
    assert set(b.answers) == {'{"predictions":[[6.0,8.0],[10.0,12.0]]}'}


def test_a_malformed_request_under_load_fails_alone(server: Server) -> None:
    with Load(server.port, PATH, BODY) as load:
        for body in (
            b"{",
            b'{"instances": [[1]]}',
            b'{"instances": [["a", 1]]}',
            b'{"inputs": 1, "signature_name": "x"}',
        ):
            load.wait(20)
            status, content = request(server.port, PATH, body)
            assert status in (400, 404)
            assert content["error"]
    assert not load.lost


def test_no_request_is_lost_when_versions_are_replaced(server: Server, tmp_path: Path) -> None:
    with Load(server.port, PATH, BODY) as load:
        for number in (2, 3, 4):
            load.wait(50)
            publish(tmp_path / "models", number, 2.0 * number)
            wait_until(lambda number=number: server.models["m"].version.number == number)
        load.wait(50)
    assert not load.lost
    assert set(load.answers) == {f'{{"predictions":[[{2.0 * k},{4.0 * k}]]}}' for k in (1, 2, 3, 4)}
    assert request(server.port, "/v1/models/m")[1]["model_version_status"][0]["version"] == "4"


def test_a_version_that_cannot_be_loaded_leaves_the_old_one(server: Server, tmp_path: Path) -> None:
    bad = tmp_path / "models" / "2"
    bad.mkdir()
    (bad / "saved_model.pb").write_bytes(b"no message")
    wait_until(lambda: 2 in server.models["m"].failures)
    assert request(server.port, PATH, BODY) == (200, {"predictions": [[2.0, 4.0]]})
    states = request(server.port, "/v1/models/m")[1]["model_version_status"]
    assert [(s["version"], s["state"]) for s in states] == [("2", "END"), ("1", "AVAILABLE")]
    assert "saved_model.pb" in states[0]["status"]["error_message"]
    publish(tmp_path / "models", 3, 5.0)
    wait_until(lambda: server.models["m"].version.number == 3)


def test_no_request_is_lost_when_the_server_stops(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    publish(tmp_path / "models", 1, 2.0)
    with Server({"m": tmp_path / "models"}, limits=QUICK) as server:
        load = Load(server.port, PATH, BODY)
        load.__enter__()
        load.wait(200)
    load.join()
    assert not load.lost
    assert set(load.answers) == {'{"predictions":[[2.0,4.0]]}'}


def test_a_running_step_is_finished_when_the_server_stops(tmp_path: Path) -> None:
    def slow(x: np.ndarray) -> list[np.ndarray]:
        time.sleep(0.8)
        return [x]

    with fake(tmp_path, FakeRunner(slow), QUICK) as server, Load(server.port, PATH, BODY, clients=1) as load:
        time.sleep(0.3)
        server.stop()
        load.join()
    assert (load.answers, load.lost) == (['{"predictions":[[1.0,2.0]]}'], [])


def fake(tmp_path: Path, runner: FakeRunner, limits: Limits) -> Server:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "saved_model.pb").write_bytes(b"")
    return Server({"m": tmp_path / "fake"}, limits=limits, load=lambda path: runner)


def wait_until(condition: Any) -> None:
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


# *** bad clients ***


@pytest.mark.parametrize(
    ("parts", "answer"),
    [
        ((b"nonsense\r\n\r\n",), b"400"),
        ((b"GET / HTTP/1.1\r\nhost: h\r\nx: \x00\r\n\r\n",), b"400"),
        ((POST + b"content-length: -1\r\n\r\n",), b"400"),
        ((POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{",), b"400"),
        ((POST + b"content-length: 10001\r\n\r\n",), b"413"),
        ((POST + b"content-length: 99999999999999999999999\r\n\r\n",), b"400"),
        ((POST + b"transfer-encoding: chunked\r\n\r\n2711\r\n" + b" " * 10_001 + b"\r\n0\r\n\r\n",), b"413"),
        ((POST + b"transfer-encoding: chunked\r\n\r\n-1\r\n",), b"400"),
        ((b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",), b"4"),
        ((POST, *[b"x-%d: " % k + b"a" * 10_000 + b"\r\n" for k in range(10)]), b"400"),
    ],
)
def test_malformed_and_oversized_requests_are_refused(server: Server, parts: tuple[bytes, ...], answer: bytes) -> None:
    with Load(server.port, PATH, BODY, clients=2) as load:
        found = exchanged(server.port, *parts)
        load.wait(20)
    assert found.startswith(b"HTTP/1.1 " + answer), found[:200]
    assert not load.lost


@pytest.mark.parametrize(
    "parts",
    [
        (b"",),
        (b"\r\n",),
        (b"PO",),
        [b"P", b"O", b"S", b"T", b" "] * 2,
        (POST + b"content-length: 100\r\n\r\n", *[b"["] * 8),
        (POST + b"transfer-encoding: chunked\r\n\r\n", *[b"1\r\n[\r\n"] * 8),
        (POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY, b"\r\n"),
    ],
)
def test_slow_requests_end_after_their_time(server: Server, parts: tuple[bytes, ...]) -> None:
    began = time.monotonic()
    with Load(server.port, PATH, BODY, clients=2) as load:
        exchanged(server.port, *parts, pause=0.1)
        load.wait(20)
    assert time.monotonic() - began < 5
    assert not load.lost


def test_a_late_body_is_told(server: Server) -> None:
    found = exchanged(server.port, POST + b"content-length: 100\r\n\r\n[")
    assert found.startswith(b"HTTP/1.1 408")
    assert b'{"error":"the request did not arrive in time"}' in found


def test_a_client_that_does_not_read_is_cut(tmp_path: Path) -> None:
    runner = FakeRunner(lambda x: [np.zeros((1, 4_000_000), np.float32)])
    with fake(tmp_path, runner, QUICK) as server:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(SECONDS)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(POST + b"content-length: %d\r\n\r\n" % len(BODY) + BODY)
            time.sleep(1.5)
            size = 0
            with contextlib.suppress(ConnectionResetError):
                while found := connection.recv(1 << 16):
                    size += len(found)
            assert size < 8_000_000
        assert request(server.port, "/v1/models/m")[0] == 200


def test_connections_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with fake(tmp_path, FakeRunner(), Limits(connections=3)) as server:
        held = [socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS) for _ in range(3)]
        time.sleep(0.2)
        assert exchanged(server.port, b"GET /v1/models/m HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").startswith(
            b"HTTP/1.1 503"
        )
        for connection in held:
            connection.close()
        time.sleep(0.2)
        assert request(server.port, PATH, BODY)[0] == 200


def test_a_step_without_end_is_stopped(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None, 2])
        y = tf.while_loop(lambda a: tf.reduce_sum(a) >= 0, lambda a: a * 0.5, [x])
        tf.saved_model.simple_save(sess, str(tmp_path / "m"), {"x": x}, {"y": y})
    with Server({"m": tmp_path / "m"}, limits=Limits(step_seconds=0.5)) as server:
        status, content = request(server.port, PATH, BODY)
        assert (status, bool(content["error"])) == (504, True)
        assert request(server.port, PATH, b'{"instances": [[-1, 0]]}')[0] == 200


def test_a_long_step_after_short_ones_does_not_delay_others(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        n = tf.placeholder(tf.int32, [])
        y = tf.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 0.5 + tf.sin(a)), [0, 1.0])[1]
        tf.saved_model.simple_save(sess, str(tmp_path / "loop"), {"n": n}, {"y": y})
    save(tmp_path / "m", 2.0)
    models = {"m": tmp_path / "m", "loop": tmp_path / "loop"}
    with Server(models, limits=Limits(step_seconds=2.0)) as server:
        path = "/v1/models/loop:predict"
        with Load(server.port, path, b'{"inputs": 1}', clients=1) as short:
            short.wait(200)
        with Load(server.port, PATH, BODY, clients=1) as load:
            load.wait(50)
            long = threading.Thread(
                target=lambda: answers.append(request(server.port, path, b'{"inputs": 2000000000}'))
            )
            answers: list[Any] = []
            long.start()
            slowest = 0.0
            while long.is_alive():
                began = time.monotonic()
                load.wait(1)
                slowest = max(slowest, time.monotonic() - began)
            long.join()
    assert answers[0][0] == 504
    assert slowest < 1.0
    assert not load.lost


# *** start ***


def test_the_command_serves_until_a_signal_and_loses_no_request(tmp_path: Path) -> None:
    save(tmp_path / "double", 2.0)
    command = [sys.executable, "-m", "headrace", "serve", str(tmp_path / "double"), f"m={tmp_path / 'double'}"]
    with subprocess.Popen([*command, "--port", "0", "--batch", "16"], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            text = ""
            while " (Ctrl-C ends the server)" not in text:
                text = process.stderr.readline()
                assert text, "the command has ended"
            port = int(re.findall(r":(\d+)/v1/models/double", text)[0])
            with Load(port, PATH, BODY) as load:
                load.wait(200)
                process.send_signal(signal.SIGTERM)
                load.join()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
    assert not load.lost
    assert set(load.answers) == {'{"predictions":[[2.0,4.0]]}'}


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        ([], cli.BAD_USAGE, "give folders of models for HTTP, or --grpc PORT"),
        (["m", "--grpc", "0"], cli.BAD_USAGE, "give folders of models for HTTP, or --grpc PORT"),
        (["m", "--sessions", "3"], cli.BAD_USAGE, "--sessions is an option for --grpc"),
        (["--grpc", "0", "--batch", "3"], cli.BAD_USAGE, "--batch is an option for folders of models"),
        (["m", "--port", "70000"], cli.BAD_USAGE, "--port"),
        (["none"], cli.FAILED, "none is no folder"),
        (["a=m", "a=n"], cli.FAILED, "two models have the name 'a'"),
        (["a/b=m"], cli.FAILED, "'a/b' cannot be the name of a model"),
        (["m", "--batch", "-1"], cli.FAILED, "batch_rows is at least 0, got -1"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], status: int, text: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    save(tmp_path / "m", 2.0)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["serve", *arguments]) == status
    assert text in capsys.readouterr().err


def test_a_server_without_a_loadable_version_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"no message")
    with pytest.raises(NotFoundError, match="no version of the model 'm' can be loaded:\n1: "), Server({"m": tmp_path}):
        raise AssertionError
    with pytest.raises(InvalidArgumentError, match="no model"):
        Server({})


def test_a_port_in_use(tmp_path: Path) -> None:
    with fake(tmp_path, FakeRunner(), Limits()) as server, pytest.raises(OSError):
        Server({"m": tmp_path / "fake"}, server.port)


def test_runners_of_damaged_models(tmp_path: Path) -> None:
    save(tmp_path / "m", 2.0)
    shutil.copytree(tmp_path / "m", tmp_path / "n")
    for path in (tmp_path / "n" / "variables").glob("*.data*"):
        path.write_bytes(b"\1" * path.stat().st_size)
    with pytest.raises(hr.errors.DataLossError):
        SavedModelRunner(tmp_path / "n")
    os.remove(tmp_path / "m" / "saved_model.pb")
    with pytest.raises(FileNotFoundError):
        SavedModelRunner(tmp_path / "m")


def test_the_metadata_is_json_with_every_dtype(server: Server) -> None:
    content = request(server.port, "/v1/models/m/metadata")[1]
    assert json.loads(json.dumps(content)) == content
