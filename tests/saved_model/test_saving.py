"""`hr.saved_model.save`: the messages that it writes, its errors, and the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import pb
from headrace.files import checkpoints
from headrace.interchange import saved_model
from headrace.pb.trackable_object_graph_pb2 import TrackableObjectGraph


class Module:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def scaling() -> Module:
    m = Module(w=hr.Variable([1.0, 2.0], name="w"), note="text", parts=[hr.Variable(3.0), 5])
    m.f = hr.jit(lambda x: x * m.w * m.parts[0], input_signature=[hr.TensorSpec((None, 2))])
    return m


def saved(obj: Any, folder: Path, signatures: Any = None) -> Any:
    """The MetaGraph of a saved object."""
    hr.saved_model.save(obj, folder / "model", signatures)
    (meta,) = saved_model.read(folder / "model").meta_graphs
    return meta


def child(meta: Any, path: str) -> Any:
    """The node of an object, by its path from the root."""
    node = meta.object_graph_def.nodes[0]
    for part in path.split("/"):
        node = meta.object_graph_def.nodes[{c.local_name: c.node_id for c in node.children}[part]]
    return node


def test_nodes_have_the_kinds_of_the_objects(tmp_path: Path) -> None:
    meta = saved(scaling(), tmp_path)
    assert child(meta, "w").variable.name == "w"
    assert child(meta, "parts").user_object.identifier == "trackable_list_wrapper"
    assert child(meta, "parts/0").variable.trainable
    assert child(meta, "signatures/serving_default").HasField("bare_concrete_function")
    assert {c.local_name for c in meta.object_graph_def.nodes[0].children} == {"w", "parts", "f", "signatures"}


def test_captured_variables_are_bound_inputs(tmp_path: Path) -> None:
    meta = saved(scaling(), tmp_path)
    (name,) = child(meta, "f").function.concrete_functions
    concrete = meta.object_graph_def.concrete_functions[name]
    bound = [meta.object_graph_def.nodes[i] for i in concrete.bound_inputs]
    assert sorted(node.variable.name for node in bound) == ["Variable", "w"]
    (args,) = concrete.canonicalized_input_signature.tuple_value.values[0].tuple_value.values
    assert (args.tensor_spec_value.name, args.tensor_spec_value.dtype) == ("x", pb.DT_FLOAT)


def test_the_checkpoint_has_the_values_and_the_object_graph(tmp_path: Path) -> None:
    saved(scaling(), tmp_path)
    reader = checkpoints.open(saved_model.variables_path(tmp_path / "model"))
    assert reader.read("w/.ATTRIBUTES/VARIABLE_VALUE").tolist() == [1.0, 2.0]
    assert reader.read("parts/0/.ATTRIBUTES/VARIABLE_VALUE") == np.float32(3.0)
    graph = TrackableObjectGraph.FromString(reader.read("_CHECKPOINTABLE_OBJECT_GRAPH").item())
    keys = {a.checkpoint_key for node in graph.nodes for a in node.attributes}
    assert keys == {"w/.ATTRIBUTES/VARIABLE_VALUE", "parts/0/.ATTRIBUTES/VARIABLE_VALUE"}


def test_every_trace_of_a_function_is_saved(tmp_path: Path) -> None:
    m = scaling()
    m.g = hr.jit(lambda x, twice=False: x * 2.0 if twice else x)
    m.g(hr.constant(1.0)), m.g(hr.constant([1.0])), m.g(hr.constant(1.0), twice=True)
    function = child(saved(m, tmp_path), "g").function
    assert len(function.concrete_functions) == 3
    spec = {p.key: p.value for p in function.function_spec.fullargspec.named_tuple_value.values}
    assert [v.string_value for v in spec["args"].list_value.values] == ["x", "twice"]
    assert [v.bool_value for v in spec["defaults"].tuple_value.values] == [False]


def test_loops_have_a_counter_and_a_limit(tmp_path: Path) -> None:
    @hr.jit
    def halved(x: Any) -> Any:
        while x > 1.0:
            x = x / 2.0
        return x

    halved(hr.constant(9.0))
    library = {f.signature.name: f for f in saved({"f": halved}, tmp_path).graph_def.library.function}
    (loop,) = [n for f in library.values() for n in f.node_def if n.op in ("While", "StatelessWhile")]
    assert list(loop.attr["T"].list.type[:2]) == [pb.DT_INT32, pb.DT_INT32]
    body = library[loop.attr["body"].func.name].signature
    assert [a.name for a in body.input_arg[:2]] == ["loop_counter", "maximum_iterations"]
    assert len(body.input_arg) == len(body.output_arg) == len(loop.input)


def test_variables_that_only_functions_know_are_saved(tmp_path: Path) -> None:
    w, count = hr.Variable(2.0, name="w"), hr.Variable(0, trainable=False, name="count")
    f = hr.jit(lambda x: x * w + hr.cast(count.assign_add(1), hr.float32), input_signature=[hr.TensorSpec(())])
    meta = saved(f, tmp_path)
    nodes = [child(meta, f"variables/{i}").variable for i in range(2)]
    assert {(v.name, v.trainable) for v in nodes} == {("w", True), ("count", False)}
    assert child(meta, "__call__").HasField("function")


def test_a_table_is_filled_by_a_function(tmp_path: Path) -> None:
    words = hr.lookup.KeyValueTensorInitializer(["a"], hr.constant([1], hr.int64))
    m = Module(table=hr.lookup.StaticHashTable(words, -1))
    m.f = hr.jit(lambda s: m.table.lookup(s), input_signature=[hr.TensorSpec((None,), hr.string)])
    meta = saved(m, tmp_path)
    assert child(meta, "table").HasField("resource")
    (name,) = child(meta, "table/_initialize").function.concrete_functions
    (function,) = [f for f in meta.graph_def.library.function if f.signature.name == name]
    assert "LookupTableImportV2" in {n.op for n in function.node_def}


def test_an_attribute_without_state_is_left_out_and_cycles_end(tmp_path: Path) -> None:
    m = scaling()
    m.me, m.empty, m.other = m, [1, {"k": 2}], Module(number=3)
    names = {c.local_name for c in saved(m, tmp_path).object_graph_def.nodes[0].children}
    assert names == {"w", "parts", "f", "me", "signatures"}


def test_a_layer_has_its_call_of_the_signature(tmp_path: Path) -> None:
    dense = hr.layers.Dense(3)
    meta = saved(dense, tmp_path, hr.jit(dense, input_signature=[hr.TensorSpec((None, 2))]))
    assert child(meta, "__call__").HasField("function")
    assert child(meta, "trainable_variables/0").variable.name.endswith("kernel")
    assert set(meta.signature_def["serving_default"].inputs) == {"inputs"}


def test_a_folder_that_is_not_empty_stays(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "file").write_text("mine")
    with pytest.raises(hr.errors.AlreadyExistsError, match="not an empty folder"):
        hr.saved_model.save(scaling(), tmp_path / "model")
    with pytest.raises(hr.errors.AlreadyExistsError, match="has no SavedModel"):
        hr.saved_model.save(scaling(), tmp_path / "model", overwrite=True)
    assert os.listdir(tmp_path) == ["model"]
    assert os.listdir(tmp_path / "model") == ["file"]


def test_overwriting_replaces_a_saved_model(tmp_path: Path) -> None:
    saved(scaling(), tmp_path)
    hr.saved_model.save({"v": hr.Variable(7.0)}, tmp_path / "model", overwrite=True)
    reader = checkpoints.open(saved_model.variables_path(tmp_path / "model"))
    assert reader.read("v/.ATTRIBUTES/VARIABLE_VALUE") == np.float32(7.0)
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize(
    ("obj", "signatures", "error", "text"),
    [
        (lambda: Module(n=1), None, hr.errors.GraphError, "nothing to save"),
        (lambda: [hr.Variable(1.0)], None, TypeError, "a dict gives names"),
        (lambda: {1: hr.Variable(1.0)}, None, TypeError, "must be text"),
        (lambda: {"v": hr.Variable(1.0)}, len, TypeError, "'serving_default' must be a function"),
        (lambda: {"v": hr.Variable(1.0)}, hr.jit(lambda x: x), hr.errors.GraphError, "has no traces"),
        (lambda: Module(v=hr.Variable(1.0), signatures=hr.Variable(1.0)), None, hr.errors.GraphError, "reserved"),
    ],
)
def test_errors_name_the_object_and_leave_no_folder(
    tmp_path: Path, obj: Any, signatures: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        hr.saved_model.save(obj(), tmp_path / "model", signatures)
    assert not os.listdir(tmp_path)


def test_an_untraced_function_is_left_out_with_a_warning(tmp_path: Path) -> None:
    with pytest.warns(match="was never called"):
        meta = saved({"v": hr.Variable(1.0), "f": hr.jit(lambda x: x)}, tmp_path)
    assert not child(meta, "f").function.concrete_functions


def test_an_operation_without_a_counterpart_names_the_function(tmp_path: Path) -> None:
    f = hr.jit(lambda x: hr.py_func(lambda v: v, [x], hr.float32), input_signature=[hr.TensorSpec(())])
    with pytest.raises(hr.errors.HeadraceError) as e:
        hr.saved_model.save(f, tmp_path / "model")
    assert "was saved" in "".join(e.value.__notes__)


def test_a_table_that_is_no_attribute_is_an_error(tmp_path: Path) -> None:
    table = hr.lookup.experimental.MutableHashTable(hr.string, hr.int64, -1)
    f = hr.jit(lambda s: table.lookup(s), input_signature=[hr.TensorSpec((None,), hr.string)])
    with pytest.raises(hr.errors.GraphError, match="make it an attribute"):
        hr.saved_model.save(f, tmp_path / "model")


def test_nested_results_need_no_default_signature_and_are_refused_as_one(tmp_path: Path) -> None:
    f = hr.jit(lambda x: {"a": [x]}, input_signature=[hr.TensorSpec(())])
    with pytest.raises(hr.errors.GraphError, match="a signature returns a tensor"):
        hr.saved_model.save(f, tmp_path / "model", f)
    assert "serving_default" not in saved(f, tmp_path).signature_def


def test_a_table_made_outside_of_graphs_works_in_a_function() -> None:
    table = hr.lookup.experimental.MutableHashTable(hr.string, hr.int64, -1)
    table.insert(hr.constant(["a"]), hr.constant([4], hr.int64))
    found = hr.jit(lambda s: table.lookup(s), input_signature=[hr.TensorSpec((None,), hr.string)])
    assert found.lower(hr.TensorSpec((None,), hr.string)).arguments[0].dtype is hr.string
    assert found(hr.constant(["a", "b"])).numpy().tolist() == [4, -1]
