"""File access of kernels: paths that lead out of a folder, and threads."""

from __future__ import annotations

import ast
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, InvalidArgumentError, NotFoundError, PermissionDeniedError
from headrace.execute.threads import Pool
from headrace.file_access import FileAccess, check, current, limited
from headrace.files import checkpoints, local, system
from headrace.resources.workers import Workers

PACKAGE = Path(__file__).parents[2] / "headrace"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for kernels, in the working folder, which has other files too."""
    inside = tmp_path / "inside"
    (inside / "sub").mkdir(parents=True)
    (inside / "a.txt").write_text("mine")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "inside-too").mkdir()
    (tmp_path / "inside-too" / "b.txt").write_text("secret")
    (inside / "link.txt").symlink_to(tmp_path / "secret.txt")
    (inside / "links").symlink_to(tmp_path / "inside-too")
    (inside / "dangling").symlink_to(tmp_path / "new.txt")
    (inside / "loop").symlink_to(inside / "loop")
    (inside / "within").symlink_to(inside / "a.txt")
    monkeypatch.chdir(tmp_path)
    return inside


INSIDE = [
    "{f}",
    "{f}/a.txt",
    "{f}/new",
    "{f}/sub/../a.txt",
    "{f}/sub/new/deep",
    "inside/a.txt",
    "{f}/within",
    "{f}//a.txt",
]
OUTSIDE = [
    "{f}/..",
    "{f}/../secret.txt",
    "{f}/sub/../../secret.txt",
    "{f}/nothing/../../secret.txt",
    "{f}/link.txt",
    "{f}/links/b.txt",
    "{f}/links/../secret.txt",
    "{f}/dangling",
    "{f}-too/b.txt",
    "secret.txt",
    "inside/../secret.txt",
    ".",
    "/",
    "/etc/passwd",
    "/proc/self/environ",
    "{F}/a.txt",  # another case
]


@pytest.mark.parametrize("path", INSIDE)
def test_a_path_inside_is_allowed(path: str, folder: Path) -> None:
    with limited(FileAccess(folder)):
        check(path.format(f=folder))
        check(path.format(f=os.path.relpath(folder)))


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_outside_is_denied(path: str, folder: Path) -> None:
    path = path.format(f=folder, F=str(folder).replace("inside", "INSIDE"))
    with limited(FileAccess(folder)):
        for use in (check, system.exists, system.lexists, system.isfile, system.isdir, system.stat, system.listdir,
                    system.unlink, system.rmdir, system.mkdir, system.makedirs, local.whole, local.opened):  # fmt: skip
            with pytest.raises(PermissionDeniedError, match=r"--files") as e:
                use(path)
            assert str(e.value).startswith(path)
        with pytest.raises(PermissionDeniedError):
            local.written(path, b"")
        with pytest.raises(PermissionDeniedError):
            system.replace(str(folder / "a.txt"), path)
        with pytest.raises(PermissionDeniedError):
            system.replace(path, str(folder / "c.txt"))
    assert (folder.parent / "secret.txt").read_text() == "secret"
    assert not (folder.parent / "new.txt").exists()


def test_without_a_folder_no_path_is_allowed(folder: Path) -> None:
    with limited(FileAccess()):
        for path in INSIDE:
            with pytest.raises(PermissionDeniedError, match=r"headrace worker --files FOLDER"):
                check(path.format(f=folder))
    check("/etc/passwd")  # outside of the block


def test_the_folder_itself_is_not_removed(folder: Path) -> None:
    with limited(FileAccess(folder / "sub")):
        assert system.listdir(str(folder / "sub")) == []
        with pytest.raises(PermissionDeniedError):
            system.rmdir(str(folder / "sub"))


def test_the_root_allows_all(folder: Path) -> None:
    with limited(FileAccess("/")):
        assert local.whole(folder.parent / "secret.txt") == b"secret"


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "/".join(["y" * 200] * 30)])
def test_a_path_that_no_file_can_have_is_an_error(path: str, folder: Path) -> None:
    with limited(FileAccess(folder)), pytest.raises((InvalidArgumentError, PermissionDeniedError)):
        check(path)
    with limited(FileAccess(folder)), pytest.raises(HeadraceError):
        local.opened(path)


def test_a_loop_of_links_is_an_error(folder: Path) -> None:
    with limited(FileAccess(folder)), pytest.raises(HeadraceError):
        local.whole(str(folder / "loop" / ".." / ".." / "secret.txt"))


def test_a_pattern_does_not_lead_out(folder: Path) -> None:
    def names(pattern: str) -> list[str]:
        return [os.path.relpath(p, folder) for p in local.matching(pattern)]

    with limited(FileAccess(folder)):
        assert names(f"{folder}/*") == ["a.txt", "loop", "sub", "within"]
        assert names(f"{folder}/*/*") == []
        assert names(f"{folder}/a.t?t") == names(f"{folder}/a.txt") == ["a.txt"]
        for pattern in (
            "*",
            "/etc/*",
            f"{folder}/../*",
            f"{folder}/links/*",
            f"{folder}/*/../../*",
            f"{folder}/l*/../*",
        ):
            with pytest.raises(PermissionDeniedError):
                local.matching(pattern)
    assert "links" in names(f"{folder}/*")


def test_a_missing_folder_is_no_file_access(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder"):
        FileAccess(tmp_path / "missing")


def test_checkpoints_stay_in_the_folder(folder: Path) -> None:
    import numpy as np

    checkpoints.write(str(folder.parent / "outer"), {"v": np.float32(1)})
    with limited(FileAccess(folder)):
        checkpoints.write(str(folder / "model"), {"v": np.float32(2)})
        checkpoints.write(str(folder / "new" / "model"), {"v": np.float32(3)}, "tensorflow")
        assert checkpoints.open(str(folder / "model")).read("v") == 2
        outer = str(folder / ".." / "outer")
        for use in (checkpoints.open, checkpoints.exists, checkpoints.check, checkpoints.remove, checkpoints.files_of):
            with pytest.raises(PermissionDeniedError):
                use(outer)
        with pytest.raises(PermissionDeniedError):
            checkpoints.merge([outer], str(folder / "merged"))
        with pytest.raises(PermissionDeniedError):
            checkpoints.merge([str(folder / "model")], outer)
        with pytest.raises(NotFoundError):
            checkpoints.open(str(folder / "nothing"))
    assert checkpoints.open(str(folder.parent / "outer")).read("v") == 1


@pytest.mark.system
def test_threads_that_a_kernel_uses_are_limited(folder: Path) -> None:
    access, found, done = FileAccess(folder), [], threading.Semaphore(0)

    def look() -> None:
        found.append(current())
        done.release()

    pool, workers = Pool(1, "test"), Workers("test")
    submits: tuple[Callable[[Callable[[], object]], None], ...] = (pool.submit, workers.submit)
    for submit in submits:
        with limited(access):
            submit(look)
        submit(look)
        with limited(access), limited(None):
            submit(look)
    for _ in range(6):
        assert done.acquire(timeout=20)
    pool.close()
    assert sorted(found, key=lambda a: a is None) == [access, access, None, None, None, None]


# *** the one module with system calls ***

CALLS = {
    "os": {
        "open", "listdir", "scandir", "stat", "lstat", "access", "mkdir", "makedirs", "rmdir", "removedirs", "remove",
        "unlink", "rename", "renames", "replace", "link", "symlink", "readlink", "truncate", "utime", "chmod", "chown",
        "walk", "fwalk", "statvfs", "mkfifo", "mknod", "chdir", "chroot", "popen", "system", "startfile",
    },
    "os.path": {
        "exists", "lexists", "isfile", "isdir", "islink", "ismount", "getsize", "getmtime", "realpath", "samefile",
    },
    "io": {"open", "open_code"},
    "np": {"load", "save", "savez", "savez_compressed", "memmap", "fromfile", "loadtxt", "genfromtxt", "savetxt"},
    "safetensors": {"safe_open"},
}  # fmt: skip
MODULES = {"glob", "shutil", "pathlib", "tempfile", "subprocess", "mmap", "fileinput", "linecache", "sqlite3"}
#: Calls without a path of a kernel, or after `RegularFile` has checked it.
EXPECTED = {
    "files/native.py": {"safetensors.safe_open"},
    "files/regular.py": {"mmap"},  # of an open file
    "files/sources.py": {"np.memmap"},  # of an open file
    "resources/datasets/queries.py": {"sqlite3"},  # of a path that `system` has checked
    "resources/spill.py": {"tempfile"},
}


def system_calls(source: str) -> set[str]:
    """Functions and modules in the source of a module that open files by their own."""
    tree = ast.parse(source)
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    out: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            out |= MODULES & {n.split(".")[0] for n in names}
            if isinstance(node, ast.ImportFrom) and node.module in CALLS:
                out |= {f"{node.module}.{a.name}" for a in node.names if a.name in CALLS[node.module]}
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if node.attr in CALLS.get(owner, ()):
                out.add(f"{owner}.{node.attr}")
            elif node.attr == "tofile":
                out.add("tofile")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            out |= {"open"} - own
    return out


@pytest.mark.matrix
def test_kernels_reach_files_by_one_module() -> None:
    found = {}
    for part in ("files", "ops", "opkit", "resources"):
        for path in (PACKAGE / part).rglob("*.py"):
            name = path.relative_to(PACKAGE).as_posix()
            if name != "files/system.py" and (calls := system_calls(path.read_text(encoding="utf-8"))):
                found[name] = calls
    assert found == EXPECTED, "use the functions of headrace/files/system.py, which check the file access"


@pytest.mark.parametrize(
    "source", ["open(p)", "os.listdir(p)", "os.path.exists(p)", "from os import unlink", "import glob", "x.tofile(p)"]
)
def test_a_system_call_is_found(source: str) -> None:
    assert system_calls(source)


def test_every_function_of_the_module_checks_its_paths() -> None:
    tree = ast.parse((PACKAGE / "files" / "system.py").read_text(encoding="utf-8"))
    for f in tree.body:
        if isinstance(f, ast.FunctionDef):
            called = {ast.unparse(n.func) for n in ast.walk(f) if isinstance(n, ast.Call)}
            assert "check" in called or f.name == "_without_waiting", f.name
