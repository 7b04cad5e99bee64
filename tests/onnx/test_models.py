"""Loading of models: inputs, variables, gradients, external data, and damaged models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import headrace as hr
from headrace.errors import InvalidArgumentError, NotFoundError, SignatureError, UnimplementedError


def parsed(text: str, version: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {version}]>\n{text}')


def linear() -> onnx.ModelProto:
    return parsed("m (float[n, 2] x) => (float[n, 1] y) <float[2, 1] w = {2, 3}, float[1] b = {1}>"
                  "{ p = MatMul(x, w) y = Add(p, b) }")  # fmt: skip


LOOP = """m (float[n] x, int64 trips) => (float[m] y, float[k] all)
{
  yes = Constant <value = bool {1}> ()
  y, all = Loop (trips, yes, x) <body = b (int64 i, bool keep, float[a] h) => (bool go, float[c] grown, float s)
    { go = Identity(keep) grown = Concat <axis = 0> (h, x) s = ReduceSum <keepdims = 0> (grown) }>
}"""


def test_inputs_are_given_by_position_or_name() -> None:
    model = hr.onnx.load(linear())
    x = np.ones((1, 2), np.float32)
    assert model(x).numpy() == model(x=x).numpy() == 6
    assert [(i.name, i.dtype, i.shape) for i in model.inputs] == [("x", hr.float32, (None, 2))]
    with pytest.raises(SignatureError, match="'x' is missing"):
        model()
    with pytest.raises(SignatureError, match="no inputs \\['z'\\]"):
        model(x, z=1)
    with pytest.raises(InvalidArgumentError, match="'x' has shape \\(None, 2\\); the value given has shape \\(1, 3\\)"):
        model(np.ones((1, 3), np.float32))


def test_a_model_runs_in_jitted_functions_and_graphs() -> None:
    model = hr.onnx.load(linear())
    assert hr.jit(model)(np.ones((1, 2), np.float32)).numpy() == 6
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None, 2])
        y = model(x)
    assert hr.Session(graph=g).run(y, {x: [[0.0, 1.0]]}) == 4


def test_variables_of_a_model_are_trained() -> None:
    model = hr.onnx.load(linear(), trainable=True)
    assert [v.shape for v in model.variables] == [(2, 1), (1,)]
    with hr.GradientTape() as tape:
        loss = hr.reduce_sum(model([[4.0, 5.0]]))
    w, b = tape.gradient(loss, model.variables)
    assert w.numpy().tolist() == [[4.0], [5.0]]
    assert b.numpy().tolist() == [1.0]
    model.variables[1].assign([0.0])
    assert model([[1.0, 1.0]]).numpy() == 5
    assert [v.shape for v in hr.onnx.load(linear(), variables=["b"]).variables] == [(1,)]
    with pytest.raises(InvalidArgumentError, match="no initializers \\['q'\\]"):
        hr.onnx.load(linear(), variables=["q"])


@pytest.mark.parametrize("jitted", [False, True])
def test_loop_variables_may_grow(jitted: bool) -> None:
    model = hr.onnx.load(parsed(LOOP))
    f = hr.jit(model) if jitted else model
    y, sums = f(np.array([1, 2], np.float32), np.int64(2))
    assert y.numpy().tolist() == [1, 2, 1, 2, 1, 2]
    assert sums.numpy().tolist() == [6, 9]
    y, sums = f(np.array([1, 2], np.float32), np.int64(0))
    assert y.numpy().tolist() == [1, 2]
    assert sums.shape == (0,)


SCAN = """m (float[2] start, float[2, n] x) => (float[2] last, float[2, n] all)
{
  last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1], scan_output_axes = [1],
    scan_output_directions = [1], body = b (float[2] s, float[2] e) => (float[2] t, float[2] u)
    { t = Add(s, e) u = Identity(t) }> (start, x)
}"""


def test_a_scan_follows_axes_and_directions() -> None:
    model = hr.onnx.load(parsed(SCAN))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for f in (model, hr.jit(model)):
        last, sums = f(np.zeros(2, np.float32), x)
        assert last.numpy().tolist() == x.sum(1).tolist()
        # the columns are read from the last to the first, and their running sums are written likewise
        assert sums.numpy().tolist() == x[:, ::-1].cumsum(1)[:, ::-1].tolist()


def test_functions_of_the_model_are_expanded() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        m (float[n] x) => (float[n] y) { y = own.scaled <by = 3.0> (x) }
        <domain: "own", opset_import: ["" : 21]>
        scaled <by> (x) => (y) { c = Constant <value_float: float = @by> () y = Mul(x, c) }
    """)
    assert hr.onnx.load(model)([1.0, 2.0]).numpy().tolist() == [3, 6]


def test_an_unknown_operator_is_named_with_its_node() -> None:
    model = parsed("m (float[n] x) => (float[n] y) { y = Frobnicate(x) }")
    with pytest.raises(UnimplementedError, match=r"'Frobnicate' .*ai.onnx.*version 21, for the Frobnicate node 'y'"):
        hr.onnx.load(model)


def test_a_cycle_is_refused() -> None:
    nodes = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    vector = helper.make_tensor_value_info("b", TensorProto.FLOAT, [1])
    model = helper.make_model(helper.make_graph(nodes, "g", [], [vector]))
    with pytest.raises(InvalidArgumentError, match="reads 'b', which no node before it defines"):
        hr.onnx.load(model)


def test_a_function_that_calls_itself_is_refused() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        m (float[n] x) => (float[n] y) { y = own.f (x) }
        <domain: "own", opset_import: ["own" : 1]> f (x) => (y) { y = own.f (x) }
    """)
    with pytest.raises(InvalidArgumentError, match="more than 32 deep"):
        hr.onnx.load(model)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no model file"):
        hr.onnx.load(tmp_path / "none.onnx")
    for content in (b"", b"\xff\xff\xff", linear().SerializeToString()[:40]):
        with pytest.raises(InvalidArgumentError):
            hr.onnx.load(content)
    model = linear()
    model.graph.initializer[0].dims[0] = 1 << 40
    with pytest.raises(InvalidArgumentError, match=r"the tensor 'w' of shape .* is damaged"):
        hr.onnx.load(model)
    sparse = onnx.SparseTensorProto(dims=[1 << 20, 1 << 20])
    sparse.values.CopyFrom(onnx.numpy_helper.from_array(np.ones(1, np.float32), "s"))
    sparse.indices.CopyFrom(onnx.numpy_helper.from_array(np.zeros(1, np.int64)))
    model = linear()
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(InvalidArgumentError, match="sparse tensor 's' has the shape"):
        hr.onnx.load(model)


def external(folder: Path, location: str, **entries: str) -> Path:
    """A file with the linear model, whose weights are in another file."""
    model = linear()
    w = model.graph.initializer[0]
    w.ClearField("float_data")
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        w.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_are_read_from_the_folder(tmp_path: Path) -> None:
    np.array([9, 2, 3], np.float32).tofile(tmp_path / "w.bin")
    model = hr.onnx.load(external(tmp_path, "w.bin", offset="4", length="8"))
    assert model([[1.0, 1.0]]).numpy() == 6


@pytest.mark.parametrize(
    ("location", "entries", "text"),
    [
        ("../w.bin", {}, "not a file in the folder"),
        ("/etc/hosts", {}, "not a file in the folder"),
        ("link.bin", {}, "not a file in the folder"),
        ("none.bin", {}, "not a file in the folder"),
        ("w.bin", {"offset": "4"}, "needs 8 bytes from 4"),
        ("w.bin", {"offset": "-4"}, "needs 8 bytes from -4"),
        ("w.bin", {"length": "4"}, "length 4"),
        ("w.bin", {"offset": "x"}, "not a number"),
    ],
)
def test_external_data_outside_of_folder_and_file_are_refused(
    tmp_path: Path, location: str, entries: dict[str, str], text: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (folder / "w.bin", tmp_path / "w.bin"):
        np.array([2, 3], np.float32).tofile(file)
    (folder / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(InvalidArgumentError, match=text):
        hr.onnx.load(external(folder, location, **entries))
