"""A short stretch of the fuzzer; `make fuzz` runs it for longer."""

import pytest

from tests.fuzz import graphdef

pytestmark = pytest.mark.system


def test_damaged_graphs_do_no_damage(tmp_path, capsys):
    failed = graphdef.main(["--seed", "7", "--cases", "150", "--save", str(tmp_path)])
    assert not failed, capsys.readouterr().out
    assert "150 cases: " in capsys.readouterr().out


def test_one_case_runs_here(capsys):
    assert graphdef.main(["--case", "7:3"]) == 0
    assert "fetches" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("work", "says"),
    [
        ("import os; print('ready', flush=True); input(); os._exit(3)", "crash: the process ended with status 3"),
        ("import time; print('ready', flush=True); input(); time.sleep(60)", "hangs"),
    ],
)
def test_the_watchdog_sees_crashes_and_hangs(work, says, monkeypatch):
    monkeypatch.setattr(graphdef, "PATIENCE", 2.0)
    monkeypatch.setattr(graphdef, "COMMAND", ("-c", work))
    worker = graphdef.Worker(0)
    try:
        assert says in worker.run(0)["failure"]
        assert not worker.alive
    finally:
        worker.stop()


def test_what_should_not_be_raised_is_reported(monkeypatch):
    def broken(*args, **kwargs):
        raise KeyError("x")

    monkeypatch.setattr("headrace.ir.serial.graphdef.import_graph_def", broken)
    with pytest.raises(KeyError):
        graphdef.main(["--case", "7:3"])
