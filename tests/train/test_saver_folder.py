"""A folder of checkpoints: those kept, the newest, a damaged one.

Processes are killed while they save.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import pb
from headrace.errors import HeadraceWarning
from headrace.files import checkpoints, states
from headrace.train import saving


@pytest.fixture
def session() -> Iterator[hr.Session]:
    with hr.Graph() as g:
        v = hr.Variable(np.zeros(50, np.float32), name="v")
        v.assign_add(np.ones(50, np.float32), name="step")
    with hr.Session(graph=g) as s:
        s.run(v.initializer)
        yield s


def trained(session: hr.Session, saver: saving.Saver, prefix: Path, steps: range) -> None:
    for step in steps:
        session.run("step")
        saver.save(session, prefix, step)


def there(folder: Path) -> set[str]:
    """The checkpoints that a folder has."""
    return {p.name.removesuffix(".index.json").removesuffix(".index") for p in folder.glob("*.index*")}


def named(folder: Path) -> tuple[str, list[str]]:
    state = saving.get_checkpoint_state(folder)
    assert state is not None
    return Path(state.model_checkpoint_path).name, [Path(p).name for p in state.all_model_checkpoint_paths]


@pytest.mark.parametrize("format", ["native", "tensorflow"])
@pytest.mark.parametrize("sharded", [False, True])
def test_the_newest_few_are_kept(tmp_path: Path, session: hr.Session, format: str, sharded: bool) -> None:
    saver = saving.Saver(graph=session.graph, max_to_keep=2, format=format, sharded=sharded)  # type: ignore[arg-type]
    trained(session, saver, tmp_path / "m", range(1, 6))
    assert there(tmp_path) == {"m-4", "m-5"}
    assert {p.name.partition(".")[0] for p in tmp_path.iterdir()} == {"m-4", "m-5", "checkpoint"}
    assert named(tmp_path) == ("m-5", ["m-4", "m-5"])
    assert [Path(p).name for p in saver.last_checkpoints] == ["m-4", "m-5"]
    assert saving.latest_checkpoint(tmp_path) == str(tmp_path / "m-5")
    # one that is saved again is the newest of all
    saver.save(session, tmp_path / "m", 4)
    trained(session, saver, tmp_path / "m", range(6, 7))
    assert there(tmp_path) == {"m-4", "m-6"}


def test_all_are_kept_if_so_wanted(tmp_path: Path, session: hr.Session) -> None:
    saver = saving.Saver(graph=session.graph, max_to_keep=0)  # type: ignore[arg-type]
    trained(session, saver, tmp_path / "m", range(8))
    assert there(tmp_path) == {f"m-{i}" for i in range(8)}
    assert named(tmp_path) == ("m-7", ["m-7"])


def test_one_of_so_many_hours_is_kept_for_ever(tmp_path: Path, session: hr.Session) -> None:
    saver = saving.Saver(graph=session.graph, max_to_keep=1, keep_checkpoint_every_n_hours=1.0)  # type: ignore[arg-type]
    clock = iter([0.0, *(1800.0 * i for i in range(1, 20))])
    saver._retained.now = lambda: next(clock)  # type: ignore[method-assign]
    saver._retained.next_preserved = saver._retained.now() + 3600
    trained(session, saver, tmp_path / "m", range(1, 10))  # written at 0:30, 1:00, 1:30, ...
    assert there(tmp_path) == {"m-3", "m-5", "m-7", "m-9"}


def test_a_second_saver_takes_over(tmp_path: Path, session: hr.Session) -> None:
    first = saving.Saver(graph=session.graph, max_to_keep=3)  # type: ignore[arg-type]
    trained(session, first, tmp_path / "m", range(1, 4))
    second = saving.Saver(graph=session.graph, max_to_keep=3)  # type: ignore[arg-type]
    assert second.restore_latest(session, tmp_path) == str(tmp_path / "m-3")
    trained(session, second, tmp_path / "m", range(4, 6))
    assert there(tmp_path) == {"m-3", "m-4", "m-5"}
    third = saving.Saver(graph=session.graph, max_to_keep=2)  # type: ignore[arg-type]
    third.set_last_checkpoints(second.last_checkpoints)
    trained(session, third, tmp_path / "m", range(6, 7))
    assert "m-3" not in there(tmp_path)
    third.recover_last_checkpoints([str(tmp_path / "none"), str(tmp_path / "m-6")])
    assert third.last_checkpoints == [str(tmp_path / "m-6")]
    with pytest.raises(TypeError, match="list"):
        third.set_last_checkpoints("m-6")


def test_a_folder_can_be_moved(tmp_path: Path, session: hr.Session) -> None:
    saver = saving.Saver(graph=session.graph)  # type: ignore[arg-type]
    trained(session, saver, tmp_path / "a" / "m", range(1, 3))
    (tmp_path / "a").rename(tmp_path / "b")
    assert saving.latest_checkpoint(tmp_path / "b") == str(tmp_path / "b" / "m-2")
    saver.restore_latest(session, tmp_path / "b")
    assert session.run("v/Read/ReadVariableOp:0").tolist() == [2.0] * 50


def test_paths_are_written_as_tensorflow_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("dir")
    saving.update_checkpoint_state("dir", "dir/m-2", ["dir/m-1", "dir/m-2"])
    assert (tmp_path / "dir" / "checkpoint").read_text().splitlines() == [
        'model_checkpoint_path: "m-2"',
        'all_model_checkpoint_paths: "m-1"',
        'all_model_checkpoint_paths: "m-2"',
    ]
    state = saving.get_checkpoint_state("dir")
    assert state is not None
    assert list(state.all_model_checkpoint_paths) == ["dir/m-1", "dir/m-2"]
    whole = str(tmp_path / "dir" / "m-3")
    saving.update_checkpoint_state(tmp_path / "dir", whole, [whole], latest_filename="other")
    assert f'model_checkpoint_path: "{whole}"' in (tmp_path / "dir" / "other").read_text()
    saving.update_checkpoint_state(tmp_path / "dir", whole, None, "other", [1.5], 1.0, True)
    state = states.read(str(tmp_path / "dir"), "other")
    assert state is not None
    assert (state.model_checkpoint_path, list(state.all_model_checkpoint_timestamps)) == (whole, [1.5])
    assert '"m-3"' in (tmp_path / "dir" / "other").read_text()
    with pytest.raises(ValueError, match="1 timestamps for 2"):
        saving.update_checkpoint_state("dir", "dir/m-2", ["dir/m-1"], all_model_checkpoint_timestamps=[1.0])
    with pytest.raises(RuntimeError, match="has the name of the file"):
        saving.update_checkpoint_state("dir", "dir/checkpoint")


# *** damage ***


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0x10
    path.write_bytes(raw)


DAMAGES: dict[str, Any] = {
    "a flipped bit in the data": lambda p: flipped(Path(f"{p}.safetensors")),
    "a flipped bit in the index": lambda p: flipped(Path(f"{p}.index.json")),
    "half of the data": lambda p: os.truncate(f"{p}.safetensors", os.path.getsize(f"{p}.safetensors") // 2),
    "no data": lambda p: os.unlink(f"{p}.safetensors"),
    "no index": lambda p: os.unlink(f"{p}.index.json"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_checkpoint_is_told_and_the_one_before_it_is_used(
    tmp_path: Path, session: hr.Session, what: str
) -> None:
    saver = saving.Saver(graph=session.graph)  # type: ignore[arg-type]
    trained(session, saver, tmp_path / "m", range(1, 4))
    DAMAGES[what](tmp_path / "m-3")
    if what != "no index":
        assert saving.latest_checkpoint(tmp_path) == str(tmp_path / "m-3")  # its contents have not been read yet
    with pytest.warns(HeadraceWarning, match=r"m-3' cannot be used.*m-2' is used") as told:
        assert saver.restore_latest(session, tmp_path) == str(tmp_path / "m-2")
    assert len(told) == 1
    assert session.run("v/Read/ReadVariableOp:0").tolist() == [2.0] * 50


def test_nothing_whole_is_none_and_is_told(tmp_path: Path, session: hr.Session) -> None:
    saver = saving.Saver(graph=session.graph, max_to_keep=1)  # type: ignore[arg-type]
    assert saver.restore_latest(session, tmp_path) is None
    assert saving.latest_checkpoint(tmp_path / "none", verify=True) is None
    trained(session, saver, tmp_path / "m", range(1, 2))
    flipped(tmp_path / "m-1.safetensors")
    with pytest.warns(HeadraceWarning, match="there is no other"):
        assert saver.restore_latest(session, tmp_path) is None
    assert session.run("v/Read/ReadVariableOp:0").tolist() == [1.0] * 50


def test_a_lost_state_file_is_made_up_for_by_looking(tmp_path: Path, session: hr.Session) -> None:
    saver = saving.Saver(graph=session.graph)  # type: ignore[arg-type]
    trained(session, saver, tmp_path / "m", range(1, 4))
    for i in range(1, 4):
        os.utime(tmp_path / f"m-{i}.index.json", (i, i))
    for text in ("model_checkpoint_path: ", "", "\xff", "nonsense { {"):
        (tmp_path / "checkpoint").write_bytes(text.encode("latin-1"))
        with pytest.warns(HeadraceWarning, match="as if it were not there"):
            assert saving.latest_checkpoint(tmp_path) is None
        with pytest.warns(HeadraceWarning, match="as if it were not there"):
            assert saving.latest_checkpoint(tmp_path, verify=True) == str(tmp_path / "m-3")


def test_a_state_file_does_not_lead_out_of_its_folder(tmp_path: Path) -> None:
    secret = saving.save(tmp_path / "secret" / "m", {"v": 1})
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (secret, "../secret/m", "x/../../secret/m", "/etc/passwd", ""):
        state = pb.CheckpointState(model_checkpoint_path=path, all_model_checkpoint_paths=[path])
        (folder / "checkpoint").write_text(str(state))
        for verify in (False, True):
            with pytest.warns(HeadraceWarning):
                assert saving.latest_checkpoint(folder, verify=verify) is None


def test_what_killed_writers_left_is_swept(tmp_path: Path, session: hr.Session) -> None:
    left = tmp_path / ".m-1.safetensors.0123456789abcdef.headrace-tmp"
    left.write_bytes(b"half")
    saver = saving.Saver(graph=session.graph)  # type: ignore[arg-type]
    trained(session, saver, tmp_path / "m", range(1, 2))
    assert not left.exists()


def test_a_failed_save_leaves_what_was_there(
    tmp_path: Path, session: hr.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = saving.Saver(graph=session.graph, max_to_keep=1)  # type: ignore[arg-type]
    trained(session, saver, tmp_path / "m", range(1, 2))
    real = os.fsync

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(hr.errors.ResourceExhaustedError):
        saver.save(session, tmp_path / "m", 2)
    monkeypatch.setattr(os, "fsync", real)
    assert named(tmp_path) == ("m-1", ["m-1"])
    assert saving.latest_checkpoint(tmp_path, verify=True) == str(tmp_path / "m-1")
    assert not [p for p in tmp_path.iterdir() if "tmp" in p.name]


# *** killed while saving ***

# One process imports headrace and then forks a child for each round, which saves in a loop until it is killed: by
# itself, at a call of the operating system that was drawn, or by its parent, after a time that was drawn.
KILLED = """
import itertools, os, random, signal, sys, time
import numpy as np
import headrace as hr
from headrace.train import saving

def work(folder, seed, kill=True):
    rng = random.Random(seed)
    format, sharded = ("native", "tensorflow")[seed % 2], seed % 3 == 0
    with hr.Graph() as g:
        vs = [hr.Variable(np.zeros(4000, np.float32), name=f"v{i}") for i in range(3)]
        ops = [v.assign_add(np.ones(4000, np.float32), read_value=False) for v in vs]
        saver = saving.Saver(max_to_keep=2, format=format, sharded=sharded)
    session = hr.Session(graph=g)
    session.run([v.initializer for v in vs])
    for step in (1, 2):
        session.run(ops)
        saver.save(session, os.path.join(folder, "m"), step)
    if kill is None:
        return
    if seed % 5 == 4:  # its parent does it
        print("go", flush=True)
    else:
        names = rng.choice([("fsync", "replace"), ("fsync", "replace", "unlink", "open", "rmdir", "mkdir")])
        numbers, last, is_after = itertools.count(1), rng.randrange(1, 8 * len(names)), rng.random() < 0.5
        def counted(name):
            real = getattr(os, name)
            def call(*args, **kwargs):
                is_last = next(numbers) == last  # no other thread gets this number
                try:
                    if is_after or not is_last:
                        return real(*args, **kwargs)
                finally:  # it may well raise
                    if is_last:
                        os.kill(os.getpid(), signal.SIGKILL)
            setattr(os, name, call)
        for name in names:
            counted(name)
    for step in range(3, 10**6):
        session.run(ops)
        saver.save(session, os.path.join(folder, "m"), step)

import tempfile
for seed in (0, 1):  # so that what is imported late is there before the forks
    with tempfile.TemporaryDirectory() as folder:
        work(folder, seed, None)

for line in sys.stdin:
    folder, seed = line.split()
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # it should not take a second; whatever holds it up, it ends
        os.dup2(w, 1)
        try:
            work(folder, int(seed))
        except BaseException:
            import traceback
            traceback.print_exc()
        os._exit(3)
    os.close(w)
    with os.fdopen(r) as told:
        if told.readline():
            time.sleep(random.Random(int(seed)).random() * 0.05)
            os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else -1, flush=True)
"""


def killed_rounds(tmp_path: Path, seeds: range) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        for seed in seeds:
            folder = tmp_path / f"round{seed}"
            folder.mkdir()
            child.stdin.write(f"{folder} {seed}\n")
            child.stdin.flush()
            assert child.stdout.readline().strip() == str(int(signal.SIGKILL)), f"seed {seed}"
            newest = saving.latest_checkpoint(folder)
            assert newest is not None, f"seed {seed}"
            checkpoints.check(newest)
            assert saving.latest_checkpoint(folder, verify=True) == newest, f"seed {seed}"  # without a warning
            step = int(newest.rpartition("-")[2])
            for value in saving.load(newest).values():
                np.testing.assert_array_equal(value, np.full(4000, step, np.float32), err_msg=f"seed {seed}")
            state = saving.get_checkpoint_state(folder)
            assert state is not None
            for path in state.all_model_checkpoint_paths:  # the older one is whole, too
                checkpoints.check(path)
            assert len(there(folder)) <= 4, f"seed {seed}: {there(folder)}"
            hr.import_meta_graph(newest + ".meta", graph=hr.Graph())
            shutil.rmtree(folder)
    finally:
        child.stdin.close()
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        finally:
            child.stdout.close()


@pytest.mark.system
def test_killed_while_saving_there_is_always_a_whole_checkpoint(tmp_path: Path) -> None:
    killed_rounds(tmp_path, range(20))


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_killed_while_saving_many_times(tmp_path: Path) -> None:
    killed_rounds(tmp_path, range(20, 120))
