"""The command `headrace serve --grpc`: address, end by a signal, wrong arguments."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from headrace import cli
from headrace.master_service import Server
from tests.master_service.clients import Client, doubling

pytestmark = pytest.mark.system


def test_the_command_serves_until_a_signal() -> None:
    command = [sys.executable, "-m", "headrace", "serve", "--grpc", "0", "--device", "CPU=2", "--idle", "60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.startswith("headrace: TensorFlow's clients connect to grpc://localhost:")
            client = Client(line.split()[-1], doubling())
            assert client.run(["y:0"], {"x:0": np.float32(2)}) == [4.0]
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            client.close()
        finally:
            process.kill()


def test_a_port_in_use_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        assert cli.main(["serve", "--grpc", str(server.port)]) == cli.FAILED
    assert f"cannot listen on 127.0.0.1:{server.port}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[], ["--grpc", "70000"], ["--grpc", "0", "--largest-message", "1"], ["--grpc", "0", "--idle", "-1"]]
)
def test_wrong_arguments_are_bad_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", *arguments]) == cli.BAD_USAGE
    assert "serve" in capsys.readouterr().err
