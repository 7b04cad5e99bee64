"""A file is replaced as a whole or not at all.

Files that killed writers leave are found again.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceExhaustedError,
)
from headrace.files import commit
from headrace.files.checksum import crc32c, mask, masked_crc32c, unmask


def test_a_file_is_there_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with commit.replacing(str(path)) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
        (temporary,) = set(os.listdir(tmp_path)) - {"a"}
        assert temporary.startswith(".a.")
        assert temporary.endswith(".headrace-tmp")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


def test_a_failing_block_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def fail() -> None:
        with commit.replacing(str(path)) as file:
            file.write(b"new")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]


def test_bytes_and_name_reach_the_disk_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fsync, replace = os.fsync, os.replace

    def noting(fd: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else f"{os.fstat(fd).st_size} bytes")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("rename"), replace(a, b)))
    with commit.replacing(str(tmp_path / "a")) as file:
        file.write(b"new")
    assert calls == ["3 bytes", "rename", "folder"]


def test_a_new_file_has_the_rights_that_any_new_file_has(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        with commit.replacing(str(tmp_path / "a")) as file:
            file.write(b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_what_the_system_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, error in (
        (tmp_path / "no/a", NotFoundError),
        (tmp_path / "file/a", FailedPreconditionError),
        ("", InvalidArgumentError),
        ("a\0b", InvalidArgumentError),
    ):
        with pytest.raises(error), commit.replacing(str(path)):
            raise AssertionError("there should be no file")
    (tmp_path / "folder").mkdir()
    with (
        pytest.raises(FailedPreconditionError, match=r"folder; Is a directory"),
        commit.replacing(str(tmp_path / "folder")) as file,
    ):
        file.write(b"x")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(ResourceExhaustedError, match=r"a; No space left"),
        commit.replacing(str(tmp_path / "a")) as file,
    ):
        file.write(b"x")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_one_may_not_write_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionDeniedError), commit.replacing(str(tmp_path / "a")):
            raise AssertionError("there should be no file")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.system
def test_sweeping_takes_what_the_dead_left_and_nothing_else(tmp_path: Path) -> None:
    killed = """
import os, signal, sys
from headrace.files import commit
with commit.replacing(sys.argv[1]) as file, commit.replacing(sys.argv[2]):
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
    paths = [str(tmp_path / name) for name in ("a", "b" * 200)]
    assert subprocess.run([sys.executable, "-c", killed, *paths], check=False).returncode == -9
    for name in ("mine.tmp", ".a.headrace-tmp", ".a.0123456789abcdef.tmp", ".x.0123456789abcdeg.headrace-tmp"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / ".dir.0123456789abcdef.headrace-tmp").mkdir()
    (tmp_path / ".link.0123456789abcdef.headrace-tmp").symlink_to(tmp_path / "mine.tmp")
    others = set(os.listdir(tmp_path))
    left = {n for n in others if n.startswith((".a.", ".bbb")) and len(n) > 30}
    assert len(left) == 2
    with commit.replacing(str(tmp_path / "a")) as file:
        file.write(b"living")
        file.flush()
        (living,) = set(os.listdir(tmp_path)) - others
        assert len(commit.sweep(str(tmp_path), "a")) == 1
        assert len(commit.sweep(str(tmp_path))) == 1
        assert set(os.listdir(tmp_path)) == others - left | {living}
    assert set(os.listdir(tmp_path)) == others - left | {"a"}
    with pytest.raises(NotFoundError):
        commit.sweep(str(tmp_path / "no"))


def test_checksums_are_crc32c() -> None:
    # of RFC 3720, B.4
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert masked_crc32c(bytes(32)) == mask(0x8A9136AA)
    for crc in (0, 1, 0x8A9136AA, 0xFFFFFFFF):
        assert unmask(mask(crc)) == crc
    data = os.urandom(2**23 + 5)  # in several pieces
    assert crc32c(data) == crc32c(data[2**21 :], crc32c(data[: 2**21])) == crc32c(bytearray(data))
