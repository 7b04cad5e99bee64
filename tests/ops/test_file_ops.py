"""Files as strings, and their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "a"
    hr.io.write_file(str(path), b"\0one\r\n")
    assert path.read_bytes() == b"\0one\r\n" == hr.io.read_file(str(path)).numpy()
    hr.io.write_file(str(path), b"two")
    assert path.read_bytes() == b"two"


def test_in_a_graph_they_run_aside(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100)
    with hr.Graph() as g:
        sizes = [hr.strings.length(hr.io.read_file(str(tmp_path / "a"))) for _ in range(20)]
    assert hr.Session(graph=g).run(sizes) == [100] * 20


def test_what_cannot_be_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotFoundError, match="missing"):
        hr.io.read_file(str(tmp_path / "missing"))
    for name in ("", "pipe"):  # neither is waited for
        with pytest.raises(FailedPreconditionError):
            hr.io.read_file(str(tmp_path / name))
    with pytest.raises(InvalidArgumentError, match="zero byte"):
        hr.io.read_file(b"a\0b")
    with pytest.raises(InvalidArgumentError, match="must be scalar"):
        hr.io.read_file([["a"]])


def test_patterns(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt", ".d.csv", "sub/e.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")

    def found(*patterns: str) -> list[str]:
        got = hr.io.matching_files([f"{tmp_path}/{x}" for x in patterns]).numpy()
        return [os.path.relpath(x.decode(), tmp_path) for x in got]

    assert found("*.csv") == [".d.csv", "a.csv", "b.csv"]
    assert found("[ab].*", "c.t?t") == ["a.csv", "b.csv", "c.txt"]
    assert found("*/*") == ["sub/e.csv"]
    assert found("nothing*") == []
    assert found("**/e.csv") == ["sub/e.csv"]
    with pytest.raises(InvalidArgumentError, match="scalar or vector"):
        hr.io.matching_files([["a"]])
