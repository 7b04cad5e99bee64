"""SavedModels of TensorFlow 2 that are damaged or made to harm.

They are loaded, described, and given to `headrace inspect` and `headrace run`.
`tests/interchange/test_hostile_saved_models.py` is about SavedModels of TensorFlow 1, and states what holds for both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import cli, flags, pb
from headrace.files import checkpoints
from headrace.interchange import saved_model
from headrace.interchange.object_graphs import OBJECT_GRAPH
from headrace.pb.trackable_object_graph_pb2 import TrackableObjectGraph
from headrace.saved_model.describing import describe_model
from tests.saved_model import models
from tests.saved_model.hostile import bounded, change, check_flipped_bits, refusal_of

pytestmark = pytest.mark.matrix

X = np.array([3, 4], np.float32)
VALUES = ("variables/variables.index", "variables/variables.data-00000-of-00001")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound SavedModel, to be damaged."""
    return Path(models.write(tmp_path))


def call(folder: Path) -> list[float] | None:
    """The result of the signature; None for a model without it."""
    found = getattr(hr.saved_model.load(folder), "signatures", None)
    if not isinstance(found, dict) or "serving_default" not in found:
        return None
    out: list[float] = found["serving_default"](X)["y"].numpy().tolist()
    return out


def refusal(folder: Path) -> str:
    """The error of a load and call."""
    return refusal_of(call, folder) or ""


def test_the_sound_model_loads(folder: Path) -> None:
    assert call(folder) == [13, 18]


# *** object graphs ***


def add(meta: pb.MetaGraphDef, parent: int, name: str) -> Any:
    """Adds a node to the objects, as a child."""
    nodes = meta.object_graph_def.nodes
    nodes[parent].children.add(node_id=len(nodes), local_name=name)
    return nodes.add()


def chain(meta: pb.MetaGraphDef, kind: str, names: list[str], count: int) -> None:
    """Adds objects, each of which has the next one as its children of these names."""
    nodes = meta.object_graph_def.nodes
    nodes[0].children.add(node_id=len(nodes), local_name="first")
    for i in range(count):
        node = nodes.add()
        node.user_object.identifier = kind
        for name in names if i < count - 1 else []:
            node.children.add(node_id=len(nodes), local_name=name)


@pytest.mark.parametrize("kind", ["_generic_user_object", "trackable_tuple_wrapper", "trackable_list_wrapper"])
def test_long_chains_of_objects_are_read(folder: Path, kind: str) -> None:
    change(folder, lambda meta: chain(meta, kind, ["0", "1"], 1500))  # with 2**1500 paths
    with bounded():
        assert call(folder) == [13, 18]
        assert len(hr.saved_model.load(folder).variables) == 1
        describe_model(folder, None)


def test_long_paths_are_cut(folder: Path) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        chain(meta, "_generic_user_object", ["n" * 500], 3000)
        for node in list(meta.object_graph_def.nodes[8:]):
            node.children.add(node_id=1, local_name="same")
        variable = add(meta, 3007, "last").variable
        variable.dtype, variable.name = pb.DT_FLOAT, "v"

    change(folder, edit)
    with bounded():
        text = describe_model(folder)
    assert f"\n    ...{'n' * 195}.last (v): float32 [], not trainable\n" in text


def test_values_of_nested_tuples_are_no_tensors(folder: Path) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        chain(meta, "trackable_tuple_wrapper", ["0", "1"], 100)
        meta.object_graph_def.concrete_functions["__inference_f_1"].bound_inputs[0] = 8

    change(folder, edit)
    with bounded():
        assert "is bound to node 8, a tuple, which is no tensor" in refusal(folder)


def test_numbers_of_nodes_are_checked(folder: Path) -> None:
    def damage(node: Any, number: int) -> list[Callable[[], object]]:
        return [
            lambda: node.children.add(node_id=number, local_name="a"),
            lambda: node.dependencies.add(node_id=number, local_name="a"),
            lambda: node.slot_variables.add(original_variable_node_id=number),
            lambda: node.slot_variables.add(slot_variable_node_id=number),
            lambda: node.saveable_objects.get_or_create("a").MergeFrom(
                pb.saved_object_graph_pb2.SaveableObject(save_function=number)
            ),
        ]

    for i in range(5):
        for number in (8, 2**31 - 1, -1, -(2**31)):
            path = Path(models.write(folder / f"{i} {number}"))
            change(path, lambda meta: damage(meta.object_graph_def.nodes[0], number)[i]())  # noqa: B023
            assert f"refers to node {number}, of 8 nodes" in refusal(path)


# *** resources ***


def resource(meta: pb.MetaGraphDef, callees: list[list[int]]) -> None:
    """Adds a resource that the function "f0" creates; "f0", "f1", ... call the numbered ones."""
    for i, called in enumerate(callees):
        function = meta.graph_def.library.function.add()
        function.signature.name = f"f{i}"
        function.signature.output_arg.add(name="y", type=pb.DT_RESOURCE)
        for k, j in enumerate(called):
            node = function.node_def.add(name=f"c{k}", op="PartitionedCall")
            node.attr["f"].func.name = f"f{j}"
            node.attr["Tin"].list.SetInParent()
            node.attr["Tout"].list.type.append(pb.DT_RESOURCE)
        if not called:
            node = function.node_def.add(name="c0", op="HashTableV2")
            node.attr["key_dtype"].type = pb.DT_STRING
            node.attr["value_dtype"].type = pb.DT_INT64
        count = len(called) or 1
        result = "output" if called else "table_handle"
        pick = function.node_def.add(name="pick", op="IdentityN", input=[f"c{k}:{result}:0" for k in range(count)])
        pick.attr["T"].list.type.extend([pb.DT_RESOURCE] * count)
        function.ret["y"] = "pick:output:0"
    add(meta, 0, "table").resource.SetInParent()
    create = add(meta, 8, "_create_resource").function
    create.concrete_functions.append("f0")
    result = meta.object_graph_def.concrete_functions["f0"].output_signature.tensor_spec_value
    result.dtype = pb.DT_RESOURCE


def test_a_resource_is_created_by_nested_calls(folder: Path) -> None:
    change(folder, lambda meta: resource(meta, [[1], [2], []]))
    assert call(folder) == [13, 18]


@pytest.mark.parametrize(
    "callees", [[[0]], [[1], [0]], [*([i, i] for i in range(1, 40)), []]], ids=["itself", "each other", "2**39 calls"]
)
def test_calls_without_end_that_create_a_resource_are_refused(folder: Path, callees: list[list[int]]) -> None:
    change(folder, lambda meta: resource(meta, callees))
    with bounded():
        assert "which creates a resource, makes more than 50 calls" in refusal(folder)


def test_an_initializer_of_a_resource_is_a_function(folder: Path) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        resource(meta, [[]])
        add(meta, 8, "_initialize").user_object.identifier = "_generic_user_object"
        meta.object_graph_def.nodes[10].children.add(node_id=10, local_name="__call__")

    change(folder, edit)
    assert "node 10 of the SavedModel's objects is a CallableObject, not a function" in refusal(folder)


@pytest.mark.parametrize("result", ["none_value", "bool_value", "dict_value", "list_value"])
def test_functions_that_save_tables_return_names(folder: Path, result: str) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        resource(meta, [[]])
        meta.object_graph_def.nodes[8].saveable_objects["VARIABLE_VALUE"].save_function = 10
        f = meta.graph_def.library.function.add()
        f.signature.name = "save"
        f.signature.input_arg.add(name="key", type=pb.DT_STRING)
        meta.object_graph_def.nodes.add().function.concrete_functions.append("save")
        saved = meta.object_graph_def.concrete_functions["save"]
        given, _ = (saved.canonicalized_input_signature.tuple_value.values.add() for _ in range(2))
        given.tuple_value.values.add().tensor_spec_value.dtype = pb.DT_STRING
        saved.canonicalized_input_signature.tuple_value.values[1].dict_value.SetInParent()
        value = saved.output_signature
        if result == "list_value":
            value.list_value.values.add().int64_value = 3
        elif result == "bool_value":
            value.bool_value = True
        else:
            getattr(value, result).SetInParent()
            if result == "dict_value":
                value.dict_value.fields["a"].int64_value = 3

    change(folder, edit)
    graph = TrackableObjectGraph()
    graph.nodes.add().children.add(node_id=1, local_name="v")
    graph.nodes[0].children.add(node_id=2, local_name="table")
    for name in ("v", "table"):
        graph.nodes.add().attributes.add(name="VARIABLE_VALUE", checkpoint_key=name)
    store(folder, graph, v=np.float32([1, 2]), table=np.float32([1, 2]))
    assert "GraphError: a function that saves a table returned" in refusal(folder)


# *** values ***


def store(folder: Path, graph: TrackableObjectGraph | bytes, **values: np.ndarray) -> None:
    """Replaces the checkpoint."""
    data = graph if isinstance(graph, bytes) else graph.SerializeToString()
    checkpoints.write(
        saved_model.variables_path(folder), {OBJECT_GRAPH: np.array(data, object), **values}, "tensorflow"
    )


@pytest.mark.parametrize("n", [2, -1, 2**31 - 1])
def test_numbers_in_the_object_graph_of_the_checkpoint_are_checked(folder: Path, n: int) -> None:
    graph = TrackableObjectGraph()
    graph.nodes.add().children.add(node_id=n, local_name="v")
    graph.nodes.add()
    store(folder, graph)
    assert "DataLossError: the object graph of a checkpoint refers to a node that it does not have" in refusal(folder)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x0a" * 1000, "3"])
def test_object_graphs_that_are_none_are_refused(folder: Path, data: Any) -> None:
    store(folder, data.encode() if isinstance(data, str) else data)
    assert "DataLossError: the object graph of a checkpoint" in refusal(folder)


def test_an_object_graph_that_is_a_number_is_refused(folder: Path) -> None:
    checkpoints.write(saved_model.variables_path(folder), {OBJECT_GRAPH: np.float32(3)}, "tensorflow")
    assert "DataLossError: " in refusal(folder)


def test_loops_in_the_object_graph_of_the_checkpoint_end(folder: Path) -> None:
    graph = TrackableObjectGraph()
    for _ in range(2):
        node = graph.nodes.add()
        for name in ("v", "f", "itself", "0"):
            node.children.add(node_id=0, local_name=name)
    store(folder, graph)
    assert "DataLossError: the variable 'v' (node 1) has no value" in refusal(folder)


@pytest.mark.parametrize("shape", [[1 << 40], [1 << 62], [1 << 62, 4], [-5], [3], [2, 1], []])
def test_variables_of_other_shapes_are_refused(folder: Path, shape: list[int]) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        found = meta.object_graph_def.nodes[1].variable.shape
        found.Clear()
        found.dim.extend([pb.TensorShapeProto.Dim(size=n) for n in shape])

    change(folder, edit)
    with bounded():
        assert refusal(folder).startswith(("DataLossError: ", "GraphError: "))


def test_a_constant_of_an_absurd_shape_is_refused(folder: Path) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        meta.graph_def.node[0].attr["value"].tensor.tensor_shape.dim.add(size=1 << 40)

    change(folder, edit)
    with bounded():
        assert "Incompatible shapes: [2] vs. [1099511627776]" in refusal(folder)


def test_a_constant_of_another_dtype_is_refused(folder: Path) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        value = meta.graph_def.node[0].attr["value"].tensor
        value.dtype = pb.DT_STRING

    change(folder, edit)
    assert (
        "the argument 'c' of the function '__inference_f_1' has dtype float32, but the SavedModel gives it string"
        in (refusal(folder))
    )


# *** functions ***


@pytest.mark.parametrize("name", ["", " ", "a b", "x", "class", "1", "*", "é" * 10**5])
def test_parameters_have_names(folder: Path, name: str) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        spec = meta.object_graph_def.nodes[2].function.function_spec.fullargspec.named_tuple_value
        spec.values[0].value.list_value.values[1].string_value = name

    change(folder, edit)
    assert name[:1] == "é" or "the parameters of the function '__inference_f_1' are malformed" in refusal(folder)


@pytest.mark.parametrize("fields", [["a"] * 2, ["_a"], ["def"], ["a\nb"], ["a=1"], ["__import__('os')"]])
def test_fields_of_named_tuples_are_names(folder: Path, fields: list[str]) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        f = meta.object_graph_def.concrete_functions["__inference_f_1"]
        f.output_signature.Clear()
        for name in fields:
            value = f.output_signature.named_tuple_value.values.add(key=name).value
            value.tensor_spec_value.dtype = pb.DT_FLOAT
        f.output_signature.named_tuple_value.name = "T"

    change(folder, edit)
    assert "GraphError: the named tuple 'T' of a structured value cannot be made" in refusal(folder)


@pytest.mark.parametrize("kind", ["none_value", "bool_value", "list_value"])
def test_signatures_are_pairs_of_arguments(folder: Path, kind: str) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        given = meta.object_graph_def.concrete_functions["__inference_f_1"].canonicalized_input_signature
        positional = given.tuple_value.values[0]
        positional.Clear()
        if kind == "bool_value":
            positional.bool_value = True
        else:
            getattr(positional, kind).SetInParent()

    change(folder, edit)
    assert "GraphError: the " in refusal(folder)
    if kind != "list_value":
        assert "not a pair of arguments" in (refusal_of(describe_model, folder) or "")


def test_a_function_that_calls_itself_without_end_is_refused(folder: Path) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        function = meta.graph_def.library.function[0]
        del function.node_def[1:]
        again = function.node_def.add(name="call", op="StatefulPartitionedCall", input=["x", "v", "c"])
        again.attr["f"].func.name = "__inference_f_1"
        again.attr["Tin"].list.type.extend([pb.DT_FLOAT, pb.DT_RESOURCE, pb.DT_FLOAT])
        again.attr["Tout"].list.type.append(pb.DT_FLOAT)
        function.ret["y"] = "call:output:0"

    change(folder, edit)
    with flags.override(CALL_DEPTH=100):
        assert refusal(folder).startswith("ResourceExhaustedError: ")


# *** texts and the command ***


def test_what_does_not_print_is_spelled_out(folder: Path) -> None:
    def edit(meta: pb.MetaGraphDef) -> None:
        meta.meta_info_def.tags.append("\x1b[2J")
        meta.meta_info_def.tensorflow_version = "\x1b]0;owned\x07"
        meta.object_graph_def.nodes[1].variable.name = "v\nassets\u202e"
        meta.asset_file_def.add(filename="\x1b[31m").tensor_info.name = "c:0"
        meta.signature_def["s\x1b"].inputs["\x1bk"].dtype = pb.DT_FLOAT

    change(folder, edit)
    text = describe_model(folder)
    assert all(line.isprintable() for line in text.split("\n"))
    assert "v (v\\nassets\\u202e): float32 [2]" in text
    assert "written by \\x1b]0;owned\\x07" in text


def test_commands_end_with_the_error(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(folder), "--feed", "x=3,4"]) == 0
    assert cli.main(["inspect", str(folder)]) == 0
    change(folder, lambda meta: setattr(meta.object_graph_def.nodes[0].children[0], "node_id", 99))
    for command in (["run", str(folder), "--feed", "x=3,4"], ["inspect", str(folder)]):
        capfd.readouterr()
        assert cli.main(command) == cli.BAD_USAGE
        assert "refers to node 99, of 8 nodes" in capfd.readouterr().err


@pytest.mark.parametrize("number", [0, 1, 2, 5, 6, 7])
def test_signatures_that_are_none_are_refused(folder: Path, number: int, capfd: pytest.CaptureFixture[str]) -> None:
    """The child `signatures` of the root, or a signature, is another object."""
    path = Path(models.write(folder / "other"))
    change(folder, lambda meta: setattr(meta.object_graph_def.nodes[0].children[2], "node_id", number))
    change(path, lambda meta: setattr(meta.object_graph_def.nodes[3].children[0], "node_id", number))
    for damaged in (folder, path):
        assert cli.main(["run", str(damaged), "--feed", "x=3,4"]) == cli.BAD_USAGE
        assert "has no signature 'serving_default'" in capfd.readouterr().err


# *** damage ***


@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")  # of attributes whose names changed
@pytest.mark.parametrize("seed", range(3))
def test_flipped_bits_are_refused_or_without_effect(folder: Path, seed: int) -> None:
    def refused(damaged: Path) -> str | None:
        refusal_of(describe_model, damaged)
        return refusal(damaged)

    check_flipped_bits(folder, (saved_model.BINARY, *VALUES), seed, 15, refused)


def test_files_cut_short_are_refused(folder: Path) -> None:
    for name in (saved_model.BINARY, *VALUES):
        data = (folder / name).read_bytes()
        for size in {0, 1, 4, 8, 12, len(data) // 4, len(data) // 2, len(data) - 48, len(data) - 8, len(data) - 1}:
            if 0 <= size < len(data):
                (folder / name).write_bytes(data[:size])
                assert refusal(folder), (name, size)
        (folder / name).unlink()
        assert refusal_of(call, folder), name
        (folder / name).write_bytes(data)
    assert call(folder) == [13, 18]
