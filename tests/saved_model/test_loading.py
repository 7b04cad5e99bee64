"""SavedModels of TensorFlow 2 load as objects; damaged ones raise errors."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, pb
from headrace.errors import DataLossError, GraphError, ResourceExhaustedError, SignatureError, UnimplementedError
from headrace.saved_model.decoding import OpaqueSpec, decode
from headrace.saved_model.describing import describe_model
from tests.saved_model import models

X = np.array([3, 4], np.float32)


def test_children_are_attributes_lists_and_tuples(tmp_path: Path) -> None:
    m = hr.saved_model.load(models.write(tmp_path))
    assert m.itself is m
    assert isinstance(m.v, hr.Variable)
    assert m.v.name == "v:0"
    assert m.v.trainable
    assert type(m.parts) is list
    assert type(m.parts[0]) is tuple
    assert m.parts[0][0] is m.v
    assert float(m.parts[1]) == 10
    assert m.variables == [m.v]
    assert m.trainable_variables == [m.v]
    with pytest.raises(AttributeError, match="has no 'w'; it has f, itself, parts"):
        _ = m.w


def test_items_of_a_list_that_are_no_objects_are_none(tmp_path: Path) -> None:
    given = models.message()
    given.meta_graphs[0].object_graph_def.nodes[5].children[1].local_name = "3"
    parts = hr.saved_model.load(models.write(tmp_path, given)).parts
    assert parts[1:3] == [None, None]
    assert float(parts[3]) == 10
    hr.saved_model.save({"parts": [5, hr.Variable(7.0)]}, tmp_path / "own")
    assert hr.saved_model.load(tmp_path / "own").parts[1].numpy() == 7


def test_functions_choose_a_signature_and_signatures_take_names(tmp_path: Path) -> None:
    m = hr.saved_model.load(models.write(tmp_path))
    call = m.signatures["serving_default"]
    results = m.f(X), m.f(hr.constant(X), double=False), m.f([3.0, 4.0]), call(x=X), call(X)
    for result in results:
        assert result["y"].numpy().tolist() == [13, 18]
    with pytest.raises(SignatureError, match="Could not find a matching concrete function of 'f'"):
        m.f(X, True)
    with pytest.raises(SignatureError, match="signatures:\n  \\(float32 \\[2\\], False\\)"):
        m.f(np.array([1], np.float32))
    with pytest.raises(TypeError, match="takes the arguments x; missing: x"):
        call()
    with pytest.raises(TypeError, match="unknown or given twice: z"):
        call(x=X, z=X)


def test_loaded_functions_are_differentiated_jitted_and_trained(tmp_path: Path) -> None:
    m = hr.saved_model.load(models.write(tmp_path))
    with hr.GradientTape() as tape:
        loss = hr.reduce_sum(m.f(X)["y"])
    (g,) = tape.gradient(loss, m.trainable_variables)
    assert g.numpy().tolist() == X.tolist()
    hr.train.SGD(0.5).apply_gradients([(g, m.v)])
    assert m.v.numpy().tolist() == [-0.5, 0]
    twice = hr.jit(lambda x: m.f(m.f(x)["y"])["y"])
    assert twice(X).numpy().tolist() == [10 - 0.5 * (10 - 1.5), 10]
    m.v.assign([0, 1])
    assert twice(X).numpy().tolist() == [10, 24]


def test_two_models_in_one_function_have_functions_of_their_own(tmp_path: Path) -> None:
    path = models.write(tmp_path)
    a, b = hr.saved_model.load(path), hr.saved_model.load(path)
    b.v.assign([100, 100])
    both = hr.jit(lambda x: (a.f(x)["y"], b.f(x)["y"]))
    assert [y.numpy().tolist() for y in both(X)] == [[13, 18], [310, 410]]


def test_a_description_needs_no_values(tmp_path: Path) -> None:
    path = models.write(tmp_path)
    shutil.rmtree(Path(path) / "variables")
    text = describe_model(path)
    assert "tags serve: objects of TensorFlow 2" in text
    assert "(float32 [2], False) -> {'y': float32 [2]}" in text
    assert "v: float32 [2]" in text


def test_tags_choose_the_graph(tmp_path: Path) -> None:
    given = models.message()
    given.meta_graphs.append(given.meta_graphs[0])
    given.meta_graphs[1].meta_info_def.tags[:] = ["train"]
    path = models.write(tmp_path, given)
    assert hr.saved_model.load(path, ["train"]).v.numpy().tolist() == [1, 2]
    assert hr.saved_model.load(path, "serve").v.numpy().tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="has 2 MetaGraphs; give tags= of one"):
        hr.saved_model.load(path)
    with pytest.raises(RuntimeError, match="tags \\['gpu'\\] could not be found"):
        hr.saved_model.load(path, ["gpu"])


def change(text: str) -> Callable[[Any], None]:
    """Returns a function that executes a statement on an object graph."""

    def changed(meta: Any) -> None:
        objects = meta.object_graph_def
        exec(text, {"o": objects, "n": objects.nodes, "f": objects.concrete_functions["__inference_f_1"], "meta": meta})

    return changed


@pytest.mark.parametrize(
    ("statement", "error", "text"),
    [
        ("n[0].children[0].node_id = 99", GraphError, "node 0 .* refers to node 99, of 8 nodes"),
        ("n[0].children[0].node_id = -1", GraphError, "refers to node -1"),
        ("f.bound_inputs[0] = 50", GraphError, "is bound to node 50"),
        ("f.bound_inputs[0] = 3", GraphError, "which is no tensor"),
        ("f.bound_inputs.append(1)", GraphError, "takes 0 tensors, and its signature has 1"),
        ("f.bound_inputs.extend([1, 1])", GraphError, "has 3 arguments, but 4 bound inputs"),
        ("n[2].function.concrete_functions[0] = 'g'", GraphError, "no concrete function 'g'"),
        ("o.concrete_functions['g'].bound_inputs.append(1)", GraphError, "has no function 'g'"),
        ("n[7].constant.operation = 'nothing'", GraphError, "no constant 'nothing'"),
        ("n[6].children[0].node_id = 6", GraphError, "a tuple that contains itself"),
        ("n[5].children[1].local_name = 'x'", GraphError, "a list or tuple with an item 'x'"),
        ("n[5].children[1].local_name = '9' * 9999", GraphError, "with an item '9999"),
        ("n[5].children[1].local_name = '9' * 7", GraphError, "more than 1000000 items that are not in the file"),
        ("n[1].variable.shape.dim[0].size = 3", DataLossError, "dtype float32 and shape \\[3\\]; its value has"),
        ("n[1].variable.dtype = 9", DataLossError, "has dtype int64"),
        ("n[1].variable.dtype = 1000", GraphError, "invalid DataType enum"),
        ("n[0].children[0].local_name = 'w'", DataLossError, "variable 'v' \\(node 1\\) has no value"),
        ("f.canonicalized_input_signature.Clear(); f.canonicalized_input_signature.bool_value = True",
         GraphError, "not a pair of arguments"),
        ("n[7].asset.asset_file_def_index = 5", GraphError, "asset 5, of 0 assets"),
        ("n[1].resource.device = ''", GraphError, "a resource without the function that creates it"),
        ("s = n[2].function.function_spec.fullargspec; s.named_tuple_value.values[0].value.string_value = 'x y'",
         GraphError, "parameters of the function .* are malformed"),
        ("meta.graph_def.library.function.append(meta.graph_def.library.function[0])", GraphError, "same name"),
        ("meta.asset_file_def.add(filename='../x').tensor_info.name = 'c:0'; n[7].asset.asset_file_def_index = 0",
         GraphError, "is outside of the folder"),
    ],
)  # fmt: skip
def test_malformed_objects_are_errors(tmp_path: Path, statement: str, error: type[Exception], text: str) -> None:
    given = models.message()
    change(statement)(given.meta_graphs[0])
    with pytest.raises(error, match=text):
        hr.saved_model.load(models.write(tmp_path, given))


def test_a_cycle_of_functions_is_an_error_of_the_call(tmp_path: Path) -> None:
    given = models.message()
    function = given.meta_graphs[0].graph_def.library.function[0]
    del function.node_def[1:]
    call = function.node_def.add(name="call", op="StatefulPartitionedCall", input=["x", "v", "c"])
    call.attr["f"].func.name = "__inference_f_1"
    call.attr["Tin"].list.type.extend([pb.DT_FLOAT, pb.DT_RESOURCE, pb.DT_FLOAT])
    call.attr["Tout"].list.type.append(pb.DT_FLOAT)
    function.ret["y"] = "call:output:0"
    m = hr.saved_model.load(models.write(tmp_path, given))
    with flags.override(CALL_DEPTH=100), pytest.raises(ResourceExhaustedError, match="HEADRACE_CALL_DEPTH"):
        m.f(X)


def test_an_unknown_op_type_is_an_error_of_the_call(tmp_path: Path) -> None:
    given = models.message()
    given.meta_graphs[0].graph_def.library.function[0].node_def[1].op = "Unheard"
    m = hr.saved_model.load(models.write(tmp_path, given))
    with pytest.raises(hr.errors.NotFoundError, match="Unheard"):
        m.f(X)


def test_structured_values_are_decoded() -> None:
    spec = pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=-1), pb.TensorShapeProto.Dim(size=3)])
    from headrace.pb.struct_pb2 import StructuredValue

    value = StructuredValue()
    pair = value.named_tuple_value
    pair.name = "Pair"
    pair.values.add(key="a").value.tensor_spec_value.shape.CopyFrom(spec)
    pair.values[0].value.tensor_spec_value.dtype = pb.DT_INT64
    ragged = pair.values.add(key="b").value.list_value.values.add().type_spec_value
    ragged.type_spec_class, ragged.num_flat_components = ragged.RAGGED_TENSOR_SPEC, 2
    found = decode(value)
    assert found.a == hr.TensorSpec((None, 3), hr.int64)
    assert found.b == [OpaqueSpec("RAGGED_TENSOR_SPEC", 2)]
    pair.values[1].key = "a"
    with pytest.raises(GraphError, match="named tuple 'Pair'"):
        decode(value)
    with pytest.raises(GraphError, match="no kind"):
        decode(StructuredValue())


def test_deep_structured_values_are_refused() -> None:
    from headrace.pb.struct_pb2 import StructuredValue

    value = inner = StructuredValue()
    for _ in range(70):
        inner = inner.list_value.values.add()
    inner.bool_value = True
    with pytest.raises(GraphError, match="more than 60 deep"):
        decode(value)


def test_functions_of_ragged_tensors_are_refused_at_the_call(tmp_path: Path) -> None:
    given = models.message()
    f = given.meta_graphs[0].object_graph_def.concrete_functions["__inference_f_1"]
    ragged = f.output_signature.type_spec_value
    ragged.type_spec_class, ragged.num_flat_components = ragged.RAGGED_TENSOR_SPEC, 1
    m = hr.saved_model.load(models.write(tmp_path, given))
    with pytest.raises(UnimplementedError, match="OpaqueSpec"):
        m.f(X)
