"""Values in checkpoints without a saver: saving, loading, inspecting, and restoring the ones that fit."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.files import checkpoints
from headrace.train import saving
from headrace.train.saving.values import MOST_LEVELS

FORMATS = ["native", "tensorflow"]


class Pair(NamedTuple):
    w: Any
    b: Any


@dataclasses.dataclass
class State:
    step: Any
    layers: list[Any]


def equal(a: Any, b: Any) -> None:
    """`a`, which was loaded, is `b` with arrays for leaves, of the same dtypes."""
    if isinstance(b, dict):
        assert isinstance(a, dict)
        assert list(a) == list(b)
        for k in b:
            equal(a[k], b[k])
    elif isinstance(b, (list, tuple)):
        assert type(a) is type(b)
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            equal(x, y)
    elif b is None:
        assert a is None
    else:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("format", FORMATS)
def test_a_structure_comes_back_as_it_was(tmp_path: Path, format: str) -> None:
    w = np.arange(6, dtype=np.float64).reshape(2, 3)
    given = {"z": [w, (np.float16(1.5), np.array([], np.int8))], "a": {"b/c": np.bool_(True)}, "none": None, "e": []}
    path = saving.save(tmp_path / "deep" / "m", given, format=format)
    assert checkpoints.open(path).format == format
    equal(saving.load(path), given)
    assert set(checkpoints.open(path).entries) == {"z/0", "z/1/0", "z/1/1", "a/b/c", "_structure"}


@pytest.mark.parametrize("format", FORMATS)
def test_python_values_and_text_are_what_tensors_of_them_are(tmp_path: Path, format: str) -> None:
    path = saving.save(tmp_path / "m", {"f": 0.5, "i": 3, "t": "é", "many": np.array(["a", "b"])}, format=format)
    loaded = saving.load(path)
    assert (type(loaded["f"]), type(loaded["i"])) == (np.float32, np.int32)
    assert loaded["t"] == "é".encode()
    assert loaded["many"].tolist() == [b"a", b"b"]
    assert set(checkpoints.open(path).entries) == {"f", "i", "t", "many"}  # a flat dict needs no more


def test_variables_eager_tensors_and_records(tmp_path: Path) -> None:
    v = hr.Variable([1.0, 2.0])
    state = State(hr.constant(4), [Pair(v, hr.Variable(3))])
    path = saving.save(tmp_path / "m", state)
    v.assign([7.0, 7.0])
    equal(saving.load(path), {"step": np.int32(4), "layers": [{"w": np.float32([1, 2]), "b": np.int32(3)}]})
    again = saving.load(path, like=State(0, [Pair(0, 0)]))
    assert isinstance(again, State)
    assert isinstance(again.layers[0], Pair)
    assert (again.step, again.layers[0].w.tolist(), again.layers[0].b) == (4, [1.0, 2.0], 3)
    with pytest.raises(NotFoundError, match="'layers/1/w'"):
        saving.load(path, like=State(0, [Pair(0, 0), Pair(0, 0)]))


def test_the_order_of_a_dict_does_not_mix_values_up(tmp_path: Path) -> None:
    path = saving.save(tmp_path / "m", {"b": [1], "a": [2]})
    assert saving.load(path, like={"a": [0], "b": [0]}) == {"a": [2], "b": [1]}
    assert saving.load(path, like={"b": [0], "a": [0]}) == {"a": [2], "b": [1]}


def test_a_single_value(tmp_path: Path) -> None:
    assert saving.load(saving.save(tmp_path / "m", np.int64(9))) == 9


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({}, InvalidArgumentError, "nothing to save"),
        ({"a": {"b": 1}, "a/b": 2}, InvalidArgumentError, "the name 'a/b'"),
        ({1: 2}, TypeError, "must be text"),
        ({"a": object()}, TypeError, "tensor"),
        ({"_structure": [1]}, None, ""),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, values: Any, error: Any, says: str) -> None:
    if error is None:
        assert saving.load(saving.save(tmp_path / "m", values)) == values
        return
    with pytest.raises(error, match=says):
        saving.save(tmp_path / "m", values)
    assert not list(tmp_path.iterdir())


def test_structures_may_have_500_levels(tmp_path: Path) -> None:
    deep: Any = np.int32(1)
    for i in range(MOST_LEVELS):
        deep = [deep] if i % 2 else {"a": deep}
    loaded = (saving.load(saving.save(tmp_path / "m", deep)), saving.load(tmp_path / "m", like=deep))
    for x in loaded:
        levels = 0
        while isinstance(x, (list, dict)):
            x, levels = x[0] if isinstance(x, list) else x["a"], levels + 1
        assert (x, levels) == (1, MOST_LEVELS)
    cyclic: list[Any] = [1]
    cyclic.append(cyclic)
    for x in ([deep], cyclic):
        with pytest.raises(InvalidArgumentError, match="more than 500 levels, or one that contains itself"):
            saving.save(tmp_path / "n", x)


def test_a_structure_is_text_that_is_checked(tmp_path: Path) -> None:
    deep = '{"list":[' * 501 + '"w"' + "]}" * 501
    for text in ("{", "3", '{"list": 3}', '{"dict": ["w"]}', '"x"', '{"set": []}', "[" * 100000, deep, "\xff"):
        checkpoints.write(
            str(tmp_path / "m"), {"w": np.int32(1), "_structure": np.array(text.encode("latin-1"), object)}
        )
        with pytest.raises(DataLossError, match="structure"):
            saving.load(tmp_path / "m")


def test_in_a_graph_it_is_an_operation_in_its_place(tmp_path: Path) -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0, name="v")

        def body(i: Any) -> Any:
            v.assign_add(1.0)
            path = hr.strings.join([str(tmp_path / "step-"), hr.strings.as_string(i)])
            saving.save(path, {"v": v, "i": i})
            v.assign_add(10.0)
            return i + 1

        n = hr.while_loop(lambda i: i < 3, body, (0,))
    for engine in ("interpret", "auto"):
        with hr.Session(graph=g, engine=engine) as session:
            session.run(v.initializer)
            session.run(n)
        for i in range(3):
            assert saving.load(tmp_path / f"step-{i}") == {"v": 2 + 11 * i, "i": i}
            saving.remove_checkpoint(tmp_path / f"step-{i}")


# *** looking in ***


@pytest.mark.parametrize("format", FORMATS)
def test_a_reader_tells_what_there_is(tmp_path: Path, format: str) -> None:
    path = saving.save(tmp_path / "m", {"w": np.zeros((2, 3), np.float16), "n": 3, "s": "x"}, format=format)
    saving.update_checkpoint_state(tmp_path, path)
    for where in (path, tmp_path, Path(path)):
        reader = saving.load_checkpoint(where)
        assert reader.get_variable_to_shape_map() == {"n": [], "s": [], "w": [2, 3]}
        assert reader.get_variable_to_dtype_map() == {"n": hr.int32, "s": hr.string, "w": hr.float16}
        assert saving.list_variables(where) == [("n", []), ("s", []), ("w", [2, 3])]
    assert reader.has_tensor("w")
    assert not reader.has_tensor("v")
    assert "w (DT_FLOAT16) [2,3]" in reader.debug_string().splitlines()
    assert reader.get_tensor("n") == 3
    assert reader.get_tensor("s") == b"x"
    assert saving.load_variable(path, "w:0").shape == (2, 3)
    with pytest.raises(NotFoundError, match="v"):
        saving.load_variable(path, "v")
    with pytest.raises(NotFoundError, match="none"):
        saving.load_checkpoint(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotFoundError, match="empty"):
        saving.list_variables(tmp_path / "empty")


# *** taking what fits ***


def old(tmp_path: Path) -> str:
    values = {"old/w": np.float32([1, 2]), "old/b": np.float32(3), "head": np.float32([[4]]), "step": np.int64(5)}
    return str(saving.save(tmp_path / "old", values))


def test_partial_restore_reports_what_it_did(tmp_path: Path) -> None:
    path = old(tmp_path)
    with hr.Graph() as g:
        w = hr.Variable([0.0, 0.0], name="new/w")
        b = hr.Variable(0.0, name="new/b")
        head = hr.Variable([[0.0, 0.0]], name="head")
        step = hr.Variable(0, name="step")
        extra = hr.Variable(0.0, name="new/extra")
        kept = hr.Variable(-1.0, name="kept")
    names = {"new/": "old/", "new/b": "old/b", "kept": None}
    with hr.Session(graph=g) as session:
        session.run([v.initializer for v in g.variables])
        size = len(g)
        report = saving.restore(session, path, rename=names)
        assert len(g) == size  # nothing is added to the graph
        assert report.restored == {"new/w": "old/w", "new/b": "old/b"}
        assert report.missing == {"new/extra": "old/extra"}
        assert set(report.mismatched) == {"head", "step"}
        assert "float32[1,1]" in report.mismatched["head"]
        assert "int64[]" in report.mismatched["step"]
        assert (report.skipped, report.unused, report.is_complete) == (["kept"], ["head", "step"], False)
        assert "old/extra" in str(report)
        values = session.run([w, b, head, step, extra, kept])
        assert [np.asarray(x).tolist() for x in values] == [[1, 2], 3, [[0, 0]], 0, 0, -1]
        session.run(w.initializer)
        with pytest.raises(NotFoundError, match="new/extra"):
            saving.restore(session, path, rename=names, strict=True)
        with pytest.raises(InvalidArgumentError, match="nothing was restored"):
            saving.restore(session, path, [w, head], rename=names, strict=True)
        assert session.run(w).tolist() == [0, 0]
        done = saving.restore(session, path, {"old/w": w}, strict=True)
        assert done.is_complete
        assert session.run(w).tolist() == [1, 2]
        assert saving.restore(session, path, [w], rename=lambda n: "old/" + n[4:]).is_complete


def test_a_restore_that_restores_nothing_is_an_error(tmp_path: Path) -> None:
    path = old(tmp_path)
    head = hr.Variable([[0.0, 0.0]], name="head")
    with pytest.raises(InvalidArgumentError, match=r"head: 'head' is float32\[1,1\] .* the variable float32\[1,2\]"):
        saving.restore(None, path, [head])
    with pytest.raises(InvalidArgumentError, match="there is no 'other'"):
        saving.restore(None, path, [head, hr.Variable(0.0, name="other")])
    with pytest.raises(NotFoundError, match=r"there is no 'w' in it\n .*: head, old/b, old/w, step"):
        saving.restore(None, path, [hr.Variable([0.0, 0.0], name="w")])
    assert head.numpy().tolist() == [[0.0, 0.0]]
    assert saving.restore(None, path, [head], rename={"head": None}).skipped == ["head"]  # as asked for
    assert saving.restore(None, path, []).is_complete


def test_variables_outside_of_graphs_are_restored_without_a_session(tmp_path: Path) -> None:
    path = old(tmp_path)
    w = hr.Variable([0.0, 0.0], name="old/w")
    assert saving.restore(None, path, w).restored == {"old/w": "old/w"}
    assert w.numpy().tolist() == [1, 2]
    with pytest.raises(ValueError, match="give variables="):
        saving.restore(None, path)
    with hr.Graph():
        v = hr.Variable(1.0, name="v")
    with pytest.raises(ValueError, match="session of that graph"):
        saving.restore(None, path, [v])
    with pytest.raises(TypeError, match="must be variables"):
        saving.restore(None, path, [3])


def test_nothing_is_assigned_from_a_damaged_checkpoint(tmp_path: Path) -> None:
    path = str(saving.save(tmp_path / "m", {"a": np.zeros(100, np.float32), "b": np.ones(100, np.float32)}))
    data = next(p for p in map(Path, checkpoints.files_of(path)) if p.suffix == ".safetensors")
    raw = bytearray(data.read_bytes())
    raw[-1] ^= 1
    data.write_bytes(raw)
    a, b = hr.Variable(np.full(100, 5, np.float32), name="a"), hr.Variable(np.full(100, 5, np.float32), name="b")
    with pytest.raises(DataLossError):
        saving.restore(None, path, [a, b])
    assert set(a.numpy().tolist()) | set(b.numpy().tolist()) == {5.0}
