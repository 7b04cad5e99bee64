"""The ops that write and read checkpoints, as nodes of graphs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError, ShapeError
from headrace.files import checkpoints
from tests.ops.running import Program

SAVERS = ("SaveV2", "_SaveNative")


@pytest.fixture
def p() -> Program:
    return Program()


def save(p: Program, type: str, prefix: Any, values: dict[str, Any], specs: dict[str, str] | None = None) -> None:
    specs = specs or {}
    names = list(values)
    tensors = [v if isinstance(v, hr.SymbolicTensor) else p.b.const(v) for v in values.values()]
    p.run(p.b.make(type, (str(prefix), names, [specs.get(n, "") for n in names], tensors), {}))


def restore(p: Program, prefix: Any, wanted: dict[str, Any], specs: dict[str, str] | None = None) -> list[Any]:
    specs = specs or {}
    out = p.b.RestoreV2(
        str(prefix),
        list(wanted),
        [specs.get(n, "") for n in wanted],
        dtypes=tuple(map(dtypes.as_dtype, wanted.values())),
    )
    got: list[Any] = p.run(list(out) if len(wanted) > 1 else [out])
    return got


@pytest.mark.parametrize("type", SAVERS)
def test_what_is_saved_is_restored(tmp_path: Path, p: Program, type: str) -> None:
    values = {
        "w": np.float32([[1, 2], [3, 4]]),
        "step": np.int64(7),
        "words": np.array([b"a", b"\0"], object),
        "c": np.complex128([1j]),
    }
    save(p, type, tmp_path / "model", values)
    assert checkpoints.open(str(tmp_path / "model")).format == ("tensorflow" if type == "SaveV2" else "native")
    kinds = {"words": "string", "step": "int64", "w": "float32", "c": "complex128"}  # in another order
    got = restore(p, tmp_path / "model", kinds)
    for name, value in zip(kinds, got, strict=True):
        assert np.asarray(value).dtype == values[name].dtype
        assert np.asarray(value).tolist() == values[name].tolist()
    (one,) = restore(p, tmp_path / "model", {"w": "float32"})
    assert one.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("type", SAVERS)
def test_variables_of_both_kinds(tmp_path: Path, type: str) -> None:
    with hr.Graph() as g:
        v = hr.Variable(np.float32([1, 2]), name="v")
        ref = hr.raw_ops.VariableV2(shape=(2,), dtype=hr.float32)
        init = hr.raw_ops.Assign(ref=ref, value=np.float32([3, 4]))
        path = str(tmp_path / "model")
        with hr.control_dependencies([init]):
            saver = getattr(hr.raw_ops, type)(
                prefix=path, tensor_names=["v", "ref"], shape_and_slices=["", ""], tensors=[v, ref]
            )
        got = hr.raw_ops.RestoreV2(
            prefix=path, tensor_names=["ref", "v"], shape_and_slices=["", ""], dtypes=[hr.float32, hr.float32]
        )
    with hr.Session(graph=g) as session:
        session.run(v.initializer)
        session.run(saver)
        assert [x.tolist() for x in session.run(list(got))] == [[3, 4], [1, 2]]


def test_saving_comes_before_restoring_where_the_program_says_so(tmp_path: Path) -> None:
    """Both touch files, so they keep the order in which they are written down."""
    path = str(tmp_path / "model")
    with hr.Graph() as g:
        for i in range(5):
            hr.raw_ops._SaveNative(prefix=path, tensor_names=["a"], shape_and_slices=[""], tensors=[np.int32(i)])
        last = hr.raw_ops.RestoreV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[hr.int32])
        hr.raw_ops._SaveNative(prefix=path, tensor_names=["a"], shape_and_slices=[""], tensors=[np.int32(9)])
    with hr.Session(graph=g) as session:
        assert session.run([last, *[op for op in g.operations if op.type == "_SaveNative"]])[0] == 4
    assert checkpoints.open(path).read("a") == 9


def test_outside_a_graph_they_run_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "model")
    hr.raw_ops.SaveV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], tensors=[np.float32([5])])
    got = hr.raw_ops.RestoreV2(prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[hr.float32])
    assert np.asarray(got).tolist() == [5]


@pytest.mark.parametrize("type", SAVERS)
def test_parts(tmp_path: Path, p: Program, type: str) -> None:
    whole = np.arange(20, dtype=np.int32).reshape(4, 5)
    for i, (rows, spec) in enumerate(((whole[:1], "4 5 0,1:-"), (whole[1:], "4 5 1,3:-"))):
        save(p, type, tmp_path / f"parts/p{i}", {"w": rows, f"x{i}": np.float32(i)}, {"w": spec})
    merge = p.b.MergeV2Checkpoints([str(tmp_path / f"parts/p{i}") for i in range(2)], str(tmp_path / "model"))
    p.run(merge)
    assert sorted(os.listdir(tmp_path))[0].startswith("model.")
    assert not (tmp_path / "parts").exists()
    (got,) = restore(p, tmp_path / "model", {"w": "int32"})
    assert got.tolist() == whole.tolist()
    (got,) = restore(p, tmp_path / "model", {"w": "int32"}, {"w": "4 5 0,3:1,2"})
    assert got.tolist() == whole[:3, 1:3].tolist()
    assert restore(p, tmp_path / "model", {"x0": "float32", "x1": "float32"}) == [0, 1]
    out = p.b.RestoreV2("model", ["w", "w"], ["4 5 0,3:1,2", ""], dtypes=(dtypes.int32, dtypes.int32))
    assert [t.shape for t in out] == [(3, 2), None]


def test_merging_with_what_is_not_there(tmp_path: Path, p: Program) -> None:
    save(p, "SaveV2", tmp_path / "a/x", {"w": np.float32(1)})
    prefixes = [str(tmp_path / "a/x"), str(tmp_path / "b/x")]
    with p.fails(NotFoundError, "b/x"):
        p.run(p.b.MergeV2Checkpoints(prefixes, str(tmp_path / "m")))
    p.run(p.b.MergeV2Checkpoints(prefixes, str(tmp_path / "m"), delete_old_dirs=False, allow_missing_files=True))
    assert (tmp_path / "a").exists()
    assert restore(p, tmp_path / "m", {"w": "float32"}) == [1]


@pytest.mark.parametrize("type", SAVERS)
def test_restoring_what_the_checkpoint_lacks_is_refused(tmp_path: Path, p: Program, type: str) -> None:
    model = tmp_path / "model"
    save(p, type, model, {"w": np.zeros((2, 3), np.float32)})
    for wanted, specs, error, match in (
        ({"v": "float32"}, {}, NotFoundError, "Key v not found in checkpoint"),
        ({"w": "float64"}, {}, InvalidArgumentError, "tensor_name = w; expected dtype float64 does not equal original"),
        ({"w": "float32"}, {"w": "2 4 -:-"}, InvalidArgumentError, "does not match the shape stored in checkpoint"),
    ):
        with p.fails(error, match):
            restore(p, model, wanted, specs)
    with p.fails(NotFoundError, "Failed to find any matching files for .*no"):
        restore(p, tmp_path / "no", {"w": "float32"})
    with p.fails(ShapeError, "out of bounds"):
        restore(p, model, {"w": "float32"}, {"w": "2 3 1,2:-"})
    for inputs, match in (
        ((["a", "b"], ["w"], [""], [1.0]), "prefix should be a scalar"),
        (("a", "w", [""], [1.0]), "tensor_names should be a vector"),
        (("a", ["w", "v"], [""], [1.0]), "Got 2 tensor_names, but there are 1 tensors"),
        (("a", ["w"], ["", ""], [1.0]), "Got 2 shape_and_slices, but there are 1 tensors"),
        (("", ["w"], [""], [1.0]), "prefix '' names no file"),
        (("a/", ["w"], [""], [1.0]), "is a folder"),
        (("a\0", ["w"], [""], [1.0]), "has a zero byte"),
        ((str(tmp_path / "x"), ["w"], ["3 -"], [1.0]), "does not match the shape of the tensor to save"),
        ((str(tmp_path / "x"), ["w", "w"], ["", ""], [1.0, 2.0]), "Adding duplicate key: w"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(p.b.make(type, inputs, {}))
    handle = p.b.VarHandleOp(dtype=dtypes.float32, shape=())
    with p.fails(InvalidArgumentError, "tensor 'w' is a resource, which no checkpoint can hold"):
        save(p, type, tmp_path / "x", {"w": handle})
    assert not [n for n in os.listdir(tmp_path) if not n.startswith("model.")]
    data = Path(checkpoints.files_of(str(model))[1])
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    with p.fails(DataLossError, "Checksum does not match.*use an earlier checkpoint"):
        restore(p, model, {"w": "float32"})


@pytest.mark.parametrize("type", SAVERS)
def test_the_first_versions_ops(tmp_path: Path, p: Program, type: str) -> None:
    model = str(tmp_path / "model")
    save(p, type, model, {"w": np.arange(6, dtype=np.float32).reshape(3, 2)})
    assert p.run(p.b.Restore(model, "w", dt=dtypes.float32)).shape == (3, 2)
    got = p.run(p.b.RestoreSlice(model, "w", "3 2 1,1:-", dt=dtypes.float32))
    assert got.tolist() == [[2, 3]]
    with p.fails(InvalidArgumentError, "expected dtype int32 does not equal"):
        p.run(p.b.Restore(model, "w", dt=dtypes.int32))


def test_the_first_version_is_written(tmp_path: Path, p: Program) -> None:
    w = np.arange(6, dtype=np.float32).reshape(3, 2)
    plain, cut = str(tmp_path / "plain"), str(tmp_path / "cut")
    p.run(p.b.make("Save", (plain, ["w", "n"], [w, np.int64(7)]), {}))
    p.run(p.b.make("SaveSlices", (cut, ["w", "w"], ["3 2 0,1:-", "3 2 1,2:-"], [w[:1], w[1:]]), {}))
    assert sorted(os.listdir(tmp_path)) == ["cut", "plain"]
    for model in (plain, cut):
        assert p.run(p.b.Restore(model, "w", dt=dtypes.float32)).tolist() == w.tolist()
        assert p.run(p.b.RestoreSlice(model, "w", "3 2 0,2:1,1", dt=dtypes.float32)).tolist() == [[1], [3]]
        (got,) = restore(p, model, {"w": "float32"})
        assert got.tolist() == w.tolist()
    assert p.run(p.b.Restore(plain, "n", dt=dtypes.int64)) == 7
    with p.fails(InvalidArgumentError, "bfloat16, which TensorFlow's checkpoints of version 1 do not have"):
        p.run(p.b.make("Save", (plain, ["w"], [w.astype(dtypes.bfloat16.numpy)]), {}))
    with p.fails(InvalidArgumentError, "does not match the shape of the tensor to save"):
        p.run(p.b.make("SaveSlices", (cut, ["w"], ["3 2 0,2:-"], [w[:1]]), {}))


def test_names_of_files(p: Program) -> None:
    assert p.run(p.b.ShardedFilename("m", 1, 3)) == b"m-00001-of-00003"
    assert p.run(p.b.ShardedFilespec("m", 3)) == b"m-?????-of-00003"
