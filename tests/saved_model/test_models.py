"""`hr.save` and `hr.load`: variables of a model, files of earlier and later versions, and errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import DataLossError, GraphError, InvalidArgumentError, NotFoundError, UnimplementedError
from headrace.files import checkpoints
from headrace.interchange import saved_model


def _model() -> Any:
    model = hr.layers.Sequential([hr.layers.Dense(3, activation=hr.tanh), hr.layers.Dense(1)])
    model(hr.ones((1, 2)))
    return model


# *** variables of a given model ***


def test_a_layer_goes_into_another_one_of_the_same_making(tmp_path: Path) -> None:
    first, second = _model(), _model()
    x = np.float32([[1, 2], [3, 4]])
    assert hr.load(hr.save(tmp_path / "m", first), second) is second
    np.testing.assert_array_equal(first(x).numpy(), second(x).numpy())


def test_a_model_with_its_optimizer_trains_on(tmp_path: Path) -> None:
    def trained(model: Any, optimizer: Any, steps: int) -> list[Any]:
        for _ in range(steps):
            with hr.GradientTape() as tape:
                loss = hr.reduce_mean(hr.square(model(hr.ones((4, 2))) - 1.0))
            optimizer.apply_gradients(
                zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables, strict=True)
            )
        return [v.numpy() for v in model.variables]

    one, other = _model(), _model()
    a, b = hr.train.Adam(0.1), hr.train.Adam(0.1)
    trained(one, a, 3)
    trained(other, b, 1)  # its slots exist
    hr.load(hr.save(tmp_path / "m", {"model": one, "optimizer": a}), {"model": other, "optimizer": b})
    for x, y in zip(trained(one, a, 3), trained(other, b, 3), strict=True):
        np.testing.assert_array_equal(x, y)


def test_variables_of_a_graph_need_the_session(tmp_path: Path) -> None:
    with hr.Graph() as g:
        start = hr.constant([1.0, 2.0])
        variables = [hr.Variable(start, name="a"), hr.Variable(start, name="b"), hr.Variable(3, name="c")]
        change = [variables[0].assign([5.0, 6.0]).op, variables[2].assign(7).op]
    with hr.Session(graph=g) as one, hr.Session(graph=g) as other:
        one.run([v.initializer for v in variables])
        one.run(change)
        path = hr.save(tmp_path / "m", variables, one)
        hr.load(path, variables, other)
        a, b, c = other.run(variables)
        assert (a.tolist(), b.tolist(), c) == ([5, 6], [1, 2], 7)
        n = len(g.operations)
        hr.load(path, variables, other)
        assert len(g.operations) == n
        assert {k: v.tolist() for k, v in hr.load(path).items()} == {"a": [5, 6], "b": [1, 2], "c": 7}
        with pytest.raises(ValueError, match="'a:0' is a variable of a graph: give the session"):
            hr.save(tmp_path / "m", variables)
        with pytest.raises(ValueError, match="give the session"):
            hr.load(path, variables)
        with pytest.raises(InvalidArgumentError, match="no variables and no functions"):
            hr.save(tmp_path / "m", [], one)
        with pytest.raises(TypeError, match=r"the model\[1\] is a Session"):
            hr.save(tmp_path / "m", [variables[0], one], one)


def test_functions_and_variables_of_a_graph_are_not_saved_together(tmp_path: Path) -> None:
    f = hr.jit(lambda x: x, input_signature=[hr.TensorSpec(())])
    with hr.Graph() as g:
        v = hr.Variable(1.0, name="v")
    with hr.Session(graph=g) as session:
        session.run(v.initializer)
        with pytest.raises(GraphError, match="'v:0' belongs to a graph, and <Function"):
            hr.save(tmp_path / "m", [v, f], session)
    with hr.Graph(), pytest.raises(GraphError, match="outside of graphs"):
        hr.save(tmp_path / "m", f)


def test_a_variable_that_occurs_twice_is_written_once(tmp_path: Path) -> None:
    v = hr.Variable(1.0, name="v")
    path = hr.save(tmp_path / "m", [v, (v, {"again": v})])
    a, (b, c) = hr.load(path)
    assert a is b
    assert a is c["again"]
    assert [k for k in hr.train.load(path) if not k.startswith("_")] == ["v"]


def test_another_model_is_refused_as_a_whole(tmp_path: Path) -> None:
    v, w = hr.Variable([1.0, 2.0], name="v"), hr.Variable(3, name="w")
    path = hr.save(tmp_path / "m", [v, w])
    into = hr.Variable([0.0, 0.0], name="x"), hr.Variable(0.0, name="y")
    with pytest.raises(InvalidArgumentError, match=r"'y:0' has dtype float32 .*; .* of 'w', has dtype int32"):
        hr.load(path, into)
    assert into[0].numpy().tolist() == [0, 0]
    with pytest.raises(InvalidArgumentError, match="has the values of 2 variables and the model has 0"):
        hr.load(path, hr.layers.Dense(2))
    with pytest.raises(InvalidArgumentError, match="shape"):
        hr.load(path, [hr.Variable([1.0]), w])


def test_functions_and_objects_have_the_variables_that_they_use(tmp_path: Path) -> None:
    def made() -> Any:
        w, count = hr.Variable(2.0), hr.Variable(0, trainable=False)
        f = hr.jit(lambda x: x * w + hr.cast(count.assign_add(1), hr.float32), input_signature=[hr.TensorSpec(())])
        return f, w, count

    (f, w, _), (g, u, n) = made(), made()
    w.assign(5.0), f(1.0)
    assert hr.load(hr.save(tmp_path / "m", f), g) is g
    assert (u.numpy(), n.numpy(), g(1.0).numpy()) == (5, 1, 7)
    a, b = type("A", (), {})(), type("A", (), {})()
    a.parts, b.parts, a.note = [w, 3], [u, print], "text"
    hr.load(hr.save(tmp_path / "m", a), b).parts[0].assign_add(1.0)
    assert u.numpy() == 6


# *** files ***


def test_the_tensors_have_the_names_of_the_variables(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    dense = hr.layers.Dense(1, name="out")
    dense(hr.ones((1, 2)))
    hr.save(tmp_path / "m", {"a": dense, "b": hr.Variable([1.0]), "c": hr.Variable([2.0]), "mean": np.ones(3)})
    found = safetensors.load_file(tmp_path / "m.safetensors")
    names = {k for k in found if not k.startswith("_")}
    assert names == {"out/kernel", "out/bias", "Variable", "Variable_1", "model/mean"}
    assert found["Variable_1"].tolist() == [2.0]


def test_files_with_variables_alone_are_read(tmp_path: Path) -> None:
    hr.train.save(tmp_path / "old", {"names": ["v:0", "w:0"], "variables": [np.float32([1, 2]), np.int32(3)]})
    found = hr.load(tmp_path / "old")
    assert list(found) == ["v:0", "w:0"]
    assert found["v:0"].tolist() == [1, 2]
    v, w = hr.load(tmp_path / "old", (hr.Variable([0.0, 0.0]), hr.Variable(0)))
    assert (v.numpy().tolist(), w.numpy()) == ([1, 2], 3)
    hr.train.save(tmp_path / "values", {"names": 1})
    with pytest.raises(DataLossError, match=r"not a file of hr\.save; hr\.train\.load reads any checkpoint"):
        hr.load(tmp_path / "values")


def _rewritten(path: str, **changes: Any) -> str:
    """Replaces tensors of a file, by the ends of their names."""
    reader = checkpoints.open(path)
    content = {name: reader.read(name) for name in reader.entries}
    checkpoints.write(path, content | {f"_headrace/{k}": v for k, v in changes.items()})
    return path


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    path = hr.save(tmp_path / "m", hr.Variable(1.0))
    for model in (None, hr.Variable(0.0)):
        with pytest.raises(UnimplementedError, match="of version 2, and this headrace knows 1; use a later headrace"):
            hr.load(_rewritten(path, version=np.int64(2)), model)
        with pytest.raises(DataLossError, match="is not a file of"):
            hr.load(_rewritten(path, version=np.float32(1)), model)
    _rewritten(path, version=np.int64(1))
    with pytest.raises(DataLossError, match="is not a file of"):
        hr.load(_rewritten(path, variables=np.array([b"none"], object)), hr.Variable(0.0))
    with pytest.raises(DataLossError, match="is not a file of"):
        hr.load(_rewritten(path, variables=np.int32([1])), hr.Variable(0.0))


def test_damaged_files_are_errors(tmp_path: Path) -> None:
    path = hr.save(tmp_path / "m", hr.Variable(np.arange(100)))
    data = bytearray((tmp_path / "m.safetensors").read_bytes())
    data[data.index(np.arange(100).tobytes()) + 9] ^= 1
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(DataLossError, match="Checksum does not match"):
        hr.load(path)
    with pytest.raises(NotFoundError):
        hr.load(tmp_path / "none")


def test_a_failed_save_leaves_the_previous_file(tmp_path: Path) -> None:
    path = hr.save(tmp_path / "m", hr.Variable(1.0))
    with pytest.raises(GraphError):
        hr.save(path, [hr.Variable(2.0), hr.jit(lambda x: x)])
    assert hr.load(path).numpy() == 1


# *** hostile descriptions ***


def _changed(path: str, change: Callable[[Any, Any], None]) -> str:
    """Changes the message in a file; `change` takes nodes by their paths, and the MetaGraph."""
    message = saved_model.parsed(checkpoints.open(path).read("_headrace/model").item(), path)
    (meta,) = message.meta_graphs

    def node(names: str) -> Any:
        found = meta.object_graph_def.nodes[0]
        for name in names.split():
            numbers = {c.local_name: c.node_id for c in found.children}
            found = meta.object_graph_def.nodes[numbers[name]]
        return found

    change(node, meta)
    return _rewritten(path, model=np.array(message.SerializeToString(), object))


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file with all kinds of nodes."""
    dense = hr.layers.Dense(1, kernel_regularizer=hr.layers.l2(0.1))
    dense(hr.ones((1, 2)))
    optimizer = hr.train.Momentum(0.1)
    optimizer.apply_gradients([(hr.ones((2, 1)), dense.kernel)])
    pair = hr.layers.LSTMStateTuple(1, hr.constant(2.0))
    model = {"layer": dense, "opt": optimizer, "pair": pair, "n": 3, "keys": {1: 2}, "list": [1, 2]}
    return hr.save(tmp_path_factory.mktemp("models") / "m", model)


def _metadata(names: str, text: str) -> Callable[[Any, Any], None]:
    def change(node: Any, meta: Any) -> None:
        node(names).user_object.metadata = text

    return change


def _renamed(names: str, old: str, new: str) -> Callable[[Any, Any], None]:
    def change(node: Any, meta: Any) -> None:
        for c in node(names).children:
            c.local_name = new if c.local_name == old else c.local_name

    return change


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (_metadata("model n", "{"), GraphError, "is no JSON"),
        (_metadata("model n", "[" * 100_000), GraphError, "is no JSON"),
        (_metadata("model n", "[1]"), GraphError, "describes no value by '\\[1\\]'"),
        (_metadata("model n", '{"complex": [1, 2, 3]}'), GraphError, "describes no value"),
        (_metadata("model n", '{"dtype": "none"}'), GraphError, "describes no value"),
        (_metadata("model n", '{"module": "os"}'), GraphError, "may be of a later version"),
        (_metadata("model keys", '["1", "2"]'), GraphError, "a dict .* has other keys"),
        (_metadata("model keys", "[1]"), GraphError, "a dict .* has other keys"),
        (_metadata("model pair", '["P", "h"]'), GraphError, "a named tuple .* has 2 items"),
        (_metadata("model pair", '["P", "h", "h"]'), GraphError, "named tuple 'P'"),
        (_metadata("model pair", '["__import__(\'os\')", "a", "b"]'), GraphError, "cannot be made"),
        (_metadata("model pair 1", '["tensor", "none"]'), GraphError, "a tensor of dtype 'none'"),
        (_metadata("model pair 1", '["pickle", "float32"]'), GraphError, "describes no array"),
        (_metadata("model opt", '"Popen"'), GraphError, "an object of the class 'Popen'"),
        (_metadata("model opt", '["Adam"]'), GraphError, "not a JSON str"),
        (_metadata("model opt", '"ExponentialDecay"'), GraphError, "class ExponentialDecay .* is malformed"),
        (_metadata("model layer", '{"name": "a", "trainable": 1}'), GraphError, "a layer .* is malformed"),
        (_metadata("model layer", '{"name": "", "trainable": true, "dtype": "x"}'), GraphError, "a layer .* malformed"),
        (_renamed("model opt", "slots", "other"), GraphError, "class Momentum .* is malformed"),
        (_renamed("model opt arguments", "learning_rate", "rate"), GraphError, "class Momentum .* is malformed"),
        (_renamed("model list", "0", "-5"), GraphError, "a list or tuple with an item '-5'"),
        (_renamed("", "model", "other"), DataLossError, "has no value in the checkpoint"),
        (_renamed("", "constraints", "other"), DataLossError, "is not a file of"),
        (_renamed("model layer", "__own_losses__", "__own_variables__"), GraphError, "has \\[.*\\] as variables"),
    ],
)  # fmt: skip
def test_malformed_descriptions_are_errors(
    tmp_path: Path, described: str, change: Callable[[Any, Any], None], error: type[Exception], text: str
) -> None:
    for name in (".safetensors", ".index.json"):
        shutil.copy(f"{described}{name}", tmp_path)
    with pytest.raises(error, match=text):
        hr.load(_changed(str(tmp_path / "m"), change))


def test_a_message_that_is_none_is_an_error(tmp_path: Path) -> None:
    path = hr.save(tmp_path / "m", hr.Variable(1.0))
    for content, error in ((b"\xff\xff", GraphError), (b"", GraphError), (np.int32(3), DataLossError)):
        with pytest.raises(error):
            hr.load(_rewritten(path, model=np.array(content, object) if isinstance(content, bytes) else content))


# *** errors of models ***


@pytest.mark.parametrize(
    ("model", "error", "text"),
    [
        (lambda: hr.layers.Dense(2), InvalidArgumentError, "no variables and no functions to save; a layer has none"),
        (lambda: {"epoch": 3, "mean": np.ones(2)}, InvalidArgumentError, "no variables and no functions"),
        (lambda: [hr.Variable(1.0), {"f": print}], TypeError, r"the model\[1\]\['f'\] is the Python function print"),
        (lambda: (hr.Variable(1.0), {1, 2}), TypeError, r"the model\[1\] is a set; a model consists of"),
        (lambda: {(1, 2): hr.Variable(1.0)}, TypeError, "the model has a key that is no text, number or None"),
        (lambda: {"f": hr.jit(lambda x: x)}, GraphError, r"the model\['f'\], .*, was never called, .* input_signature"),
    ],
)
def test_models_that_cannot_be_saved(tmp_path: Path, model: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        hr.save(tmp_path / "m", model())
    assert not list(tmp_path.iterdir())


def test_an_endless_structure_is_an_error(tmp_path: Path) -> None:
    model: Any = hr.Variable(1.0)
    for _ in range(100_000):
        model = [model]
    with pytest.raises(ValueError, match="nested too deeply"):
        hr.save(tmp_path / "m", model)


def test_python_code_in_a_function_is_an_error(tmp_path: Path) -> None:
    f = hr.jit(lambda x: hr.py_func(lambda v: v, [x], hr.float32), input_signature=[hr.TensorSpec(())])
    with pytest.raises(GraphError, match="calls a Python function of this process"):
        hr.save(tmp_path / "m", f)
