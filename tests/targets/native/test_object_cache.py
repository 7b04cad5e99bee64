"""The object cache: its files, the files that it refuses, and faults."""

from __future__ import annotations

import ctypes
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import flags, thresholds
from headrace.targets.native import object_cache

pytestmark = pytest.mark.one_engine

KEY = object_cache.key("text", "version", "cpu", "features")
CODE = bytes(range(256)) * 10


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with flags.override(CACHE=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def file_of(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_an_object_is_found_again(folder: Path) -> None:
    assert object_cache.load(KEY) is None
    object_cache.save(KEY, CODE)
    assert object_cache.load(KEY) == CODE
    assert object_cache.load(object_cache.key("text", "version", "cpu", "other")) is None


def test_each_part_of_the_key_counts() -> None:
    keys = {object_cache.key(*parts) for parts in (("a", "b"), ("ab", ""), ("", "ab"), ("a", "b", ""), ("b", "a"))}
    assert len(keys) == 5


def test_folder_and_file_are_the_owners(folder: Path) -> None:
    old = os.umask(0)
    try:
        object_cache.save(KEY, CODE)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file_of(folder).stat().st_mode) == 0o600


@pytest.mark.parametrize("at", [0, 10, 17, 20, 48, 49, 60, 80, 81, 82, 200, -1])
def test_a_changed_byte_is_found(folder: Path, at: int) -> None:
    object_cache.save(KEY, CODE)
    content = bytearray(file_of(folder).read_bytes())
    content[at] ^= 1
    file_of(folder).write_bytes(content)
    assert object_cache.load(KEY) is None
    object_cache.save(KEY, CODE)
    assert object_cache.load(KEY) == CODE


@pytest.mark.parametrize("size", [0, 1, 17, 81, 82, 100])
def test_a_cut_file_is_found(folder: Path, size: int) -> None:
    object_cache.save(KEY, CODE)
    file_of(folder).write_bytes(file_of(folder).read_bytes()[:size])
    assert object_cache.load(KEY) is None


def test_a_longer_file_is_found(folder: Path) -> None:
    object_cache.save(KEY, CODE)
    file_of(folder).write_bytes(file_of(folder).read_bytes() + b"x")
    assert object_cache.load(KEY) is None


def test_the_file_of_another_key_is_found(folder: Path) -> None:
    other = object_cache.key("other")
    object_cache.save(other, CODE)
    file_of(folder).rename(folder / f"{KEY.hex()}.object")
    assert object_cache.load(KEY) is None


def test_links_and_files_that_others_may_write_are_not_loaded(folder: Path, tmp_path: Path) -> None:
    object_cache.save(KEY, CODE)
    path = file_of(folder)
    path.chmod(0o620)
    assert object_cache.load(KEY) is None
    path.chmod(0o600)
    assert object_cache.load(KEY) == CODE
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert object_cache.load(KEY) is None
    path.unlink()
    os.mkfifo(path)  # to open it must not wait
    assert object_cache.load(KEY) is None


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
def test_a_folder_that_others_may_write_is_not_used(folder: Path, mode: int) -> None:
    object_cache.save(KEY, CODE)
    folder.chmod(mode)
    assert object_cache.load(KEY) is None
    object_cache.save(object_cache.key("other"), CODE)
    assert len(list(folder.iterdir())) == 1


def test_a_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    object_cache.save(KEY, CODE)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert object_cache.load(KEY) is None
    object_cache.save(object_cache.key("other"), CODE)
    assert len(list(folder.iterdir())) == 1


def test_a_link_in_place_of_the_folder_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "real")
    object_cache.save(KEY, CODE)
    assert list((tmp_path / "real").iterdir()) == []


def test_a_folder_that_cannot_be_made_breaks_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with flags.override(CACHE=str(tmp_path / "file" / "cache")):
        object_cache.save(KEY, CODE)
        assert object_cache.load(KEY) is None
    with flags.override(CACHE=str(tmp_path / "file")):
        object_cache.save(KEY, CODE)
        assert object_cache.load(KEY) is None


def test_the_flag_turns_the_cache_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with flags.override(CACHE="off"):
        object_cache.save(KEY, CODE)
        assert object_cache.load(KEY) is None
        assert flags.cache_folder() == ""
    assert list(tmp_path.iterdir()) == []


def test_the_default_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with flags.override(CACHE=""):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert flags.cache_folder() == str(tmp_path / "headrace")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        for relative in ("", "some/folder"):
            monkeypatch.setenv("XDG_CACHE_HOME", relative)
            assert flags.cache_folder() == str(tmp_path / "home" / ".cache" / "headrace")


def test_a_write_that_fails_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError("no space")

    object_cache.save(object_cache.key("other"), CODE)
    monkeypatch.setattr(os, "replace", refuse)
    object_cache.save(KEY, CODE)
    assert len(list(folder.iterdir())) == 1


def test_the_objects_used_least_recently_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "OBJECT_CACHE_BYTES", 4 * (len(CODE) + 100))
    keys = [object_cache.key(str(i)) for i in range(6)]
    for i, key in enumerate(keys[:4]):
        object_cache.save(key, CODE)
        path = folder / f"{key.hex()}.object"
        os.utime(path, (i + 1, i + 1))
    assert object_cache.load(keys[0]) == CODE  # the first one was used now
    object_cache.save(keys[4], CODE)
    object_cache.save(keys[5], CODE)
    assert [object_cache.load(key) is not None for key in keys] == [True, False, False, True, True, True]


def test_files_of_writers_that_died_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "OBJECT_CACHE_BYTES", len(CODE) + 100)
    object_cache.save(KEY, CODE)
    dead, alive = folder / "a.unfinished", folder / "b.unfinished"
    for path in (dead, alive):
        path.write_bytes(CODE)
    day_ago = time.time() - 86_400
    os.utime(dead, (day_ago, day_ago))
    object_cache.save(KEY, CODE)
    assert not dead.exists()
    assert alive.exists()


def test_large_objects_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "CACHED_OBJECT_BYTES", len(CODE) - 1)
    object_cache.save(KEY, CODE)
    assert not folder.exists()


def test_a_library_is_loaded_from_the_cache(folder: Path) -> None:
    pytest.importorskip("llvmlite")
    from headrace.targets.native import engine

    text = "define i64 @f() {\n  ret i64 77\n}\n"
    first, second = (engine.compile_module(text, ["f"]) for _ in range(2))
    assert (first.is_cached, second.is_cached) == (False, True)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(second.address("f"))() == 77


def test_a_file_with_a_valid_head_that_is_no_object_is_compiled_again(folder: Path) -> None:
    pytest.importorskip("llvmlite")
    from headrace.targets.native import engine

    text = "define i64 @f() {\n  ret i64 78\n}\n"
    native = engine._engine()
    object_cache.save(native.key(text), b"no object")
    library = engine.compile_module(text, ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("f"))() == 78
    assert not library.is_cached
    assert engine.compile_module(text, ["f"]).is_cached
