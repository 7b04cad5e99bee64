"""MetaGraphs: exported contents are imported again, in `headrace` and `headrace.v1`.

Errors of malformed files state the fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import any_pb2, text_format

import headrace as hr
import headrace.v1 as tf
from headrace import pb
from headrace.api.reference import ReferenceVariable
from headrace.errors import GraphError, HeadraceError, HeadraceWarning, NotFoundError, UnimplementedError
from headrace.interchange import op_defs
from headrace.ir.opdef import op_registry

X = np.float32([[1, 2], [3, 4]])


# *** headrace ***


class Model:
    """A graph with a loop, two variables, and a step that changes one.

    One variable starts from the other.
    """

    def __init__(self) -> None:
        with hr.Graph() as self.graph:
            self.x = hr.placeholder(hr.float32, (None,), name="x")
            self.w = hr.Variable(2.0, name="w")
            self.b = hr.Variable(lambda: self.w * 3.0, trainable=False, name="b")
            self.y = hr.while_loop(
                lambda i, a: i < 3, lambda i, a: (i + 1, a * self.w + self.b), (0, self.x), name="loop"
            )[1]
            self.step = self.w.assign_add(1.0).op
            self.init = hr.variables_initializer()

    def signature(self) -> hr.Signature:
        return hr.Signature({"x": self.x}, {"y": self.y, "w": self.w}, "predict")


def used(m: hr.MetaGraph) -> list[Any]:
    """Values of an import of the model.

    They are y after a step, the variables, and the result of a new step of gradient descent.
    """
    call = m.signatures["call"]
    with m.graph:
        init = hr.variables_initializer()
        (gradient,) = hr.gradients(call.outputs["y"], [m.variables[0]])
        down = m.variables[0].assign_sub(gradient).op
    with hr.Session(graph=m.graph) as sess:
        sess.run(init)
        sess.run(m.collections["train_op"][0])
        y = sess.run(call.outputs["y"], {call.inputs["x"]: [1.0]})
        before = sess.run(m.variables)
        sess.run(down, {call.inputs["x"]: [1.0]})
        return [y.tolist(), *map(float, before), *map(float, sess.run(m.variables))]


EXPECTED = [[105.0], 3.0, 6.0, 3.0 - 69.0, 6.0]


@pytest.mark.parametrize("form", ["structured", "primitive"])
@pytest.mark.parametrize("scope", ["", "in", "in/"])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_graph_with_its_variables_comes_back(tmp_path: Path, form: str, scope: str, as_text: bool) -> None:
    model = Model()
    path = tmp_path / "m.meta"
    message = hr.export_meta_graph(
        model.graph,
        path,
        signatures={"call": model.signature()},
        collections={"train_op": [model.step], "results": [model.y, model.w]},
        tags=["serve", "old"],
        form=form,
        as_text=as_text,
    )
    m = hr.import_meta_graph(path, scope=scope)
    prefix = "in/" if scope else ""
    assert [v.name for v in m.variables] == [f"{prefix}w:0", f"{prefix}b:0"]
    assert m.graph.variables == m.variables
    assert [v.trainable for v in m.variables] == [True, False]
    assert [v.shape for v in m.variables] == [(), ()]
    assert m.collections["trainable_variables"][0] is m.collections["variables"][0] is m.variables[0]
    assert m.collections["results"][0] is m.signatures["call"].outputs["y"]
    assert m.collections["results"][1] is m.variables[0]
    assert m.tags == ("serve", "old")
    assert m.signatures["call"].method_name == "predict"
    assert used(m) == EXPECTED
    assert message == hr.export_meta_graph(
        model.graph,
        signatures={"call": model.signature()},
        collections={"train_op": [model.step], "results": [model.y, model.w]},
        tags=["serve", "old"],
        form=form,
    )


def test_an_import_can_be_exported_again() -> None:
    model = Model()
    lists = {"train_op": [model.step], "hyper": [0.5], "n": [1, 2], "text": ["a", b"\xff"]}
    first = hr.export_meta_graph(model.graph, signatures={"call": model.signature()}, collections=lists)
    m = hr.import_meta_graph(first)
    assert m.collections["hyper"] == [0.5]
    assert m.collections["n"] == [1, 2]
    assert m.collections["text"] == [b"a", b"\xff"]
    second = hr.export_meta_graph(m.graph, signatures=m.signatures, collections=m.collections)
    assert second.collection_def == first.collection_def
    assert second.signature_def == first.signature_def
    assert used(hr.import_meta_graph(second)) == EXPECTED


def test_it_goes_into_the_graph_that_is_entered_or_named() -> None:
    message = hr.export_meta_graph(Model().graph)
    with hr.Graph() as g:
        assert hr.import_meta_graph(message).graph is g
        other = hr.Graph()
        assert hr.import_meta_graph(message, graph=other).graph is other
        with pytest.raises(GraphError, match=r"cannot be imported into the true branch of 'cond'.*hr.Graph"):
            hr.cond(hr.constant(True), lambda: hr.import_meta_graph(message), lambda: 1)


def test_names_are_those_of_the_file_whatever_the_graph_has() -> None:
    message = hr.export_meta_graph(Model().graph, collections={"mine": []})
    with hr.Graph() as g:
        hr.Variable(7.0, name="w")
        (v, _) = hr.import_meta_graph(message).variables
        assert [u.name for u in g.variables] == ["w:0", "w_1:0", "b:0"]
        init = hr.variables_initializer()
    with hr.Session(graph=g) as sess:
        sess.run(init)
        assert sess.run(v) == 2.0


def test_inputs_can_be_mapped() -> None:
    model = Model()
    message = hr.export_meta_graph(
        model.graph, signatures={"call": model.signature()}, collections={"train_op": [model.step]}
    )
    with hr.Graph() as g:
        m = hr.import_meta_graph(message, input_map={"x:0": hr.constant([1.0])})
    with hr.Session(graph=g) as sess:
        sess.run(m.collections["train_op"][0].graph.get_operation_by_name("init"))
        assert sess.run(m.signatures["call"].outputs["y"]).tolist() == [50.0]


@pytest.mark.parametrize("where", ["out", "in"])
def test_devices_can_be_cleared(where: str) -> None:
    with hr.Graph() as g, hr.device("/device:CPU:1"):
        hr.constant(1.0, name="c")
    message = hr.export_meta_graph(g, clear_devices=where == "out")
    m = hr.import_meta_graph(message, clear_devices=where == "in")
    assert m.graph.get_operation_by_name("c").device == ""
    assert message.graph_def.node[0].device == ("" if where == "out" else "/device:CPU:1")


def test_what_a_meta_graph_says_of_the_graph() -> None:
    message = hr.export_meta_graph(Model().graph)
    about = message.meta_info_def
    assert about.tensorflow_version == "2.21.0"
    assert not about.stripped_default_attrs
    assert {d.name for d in about.stripped_op_list.op} == {
        n.op for nodes in (message.graph_def, *message.graph_def.library.function) for n in
        (nodes.node if isinstance(nodes, pb.GraphDef) else nodes.node_def)
    }  # fmt: skip


def test_default_attrs_can_be_left_out() -> None:
    full, stripped = (hr.export_meta_graph(Model().graph, strip_default_attrs=s) for s in (False, True))
    assert "parallel_iterations" in next(n for n in full.graph_def.node if n.op == "While").attr
    loop = next(n for n in stripped.graph_def.node if n.op == "While")
    assert "parallel_iterations" not in loop.attr
    assert "cond" in loop.attr
    assert stripped.meta_info_def.stripped_default_attrs
    for m in map(hr.import_meta_graph, (full, stripped)):
        assert m.graph.get_operation_by_name("loop").attrs["parallel_iterations"] == 10


def test_every_record_has_an_op_def() -> None:
    assert all(op_defs.op_def(op_registry.get(t)).name == t for t in op_registry)


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ({"a": [object()]}, "the collection 'a' cannot be written: <object.*is no tensor or operation of the graph"),
        ({"a": [1, "b"]}, "the collection 'a' cannot be written.*of one kind"),
        ({"a": ["b", 1]}, "the collection 'a' cannot be written.*of one kind"),
        ({"a": [1 << 70]}, "the collection 'a' cannot be written"),
        ({"variables": [1]}, "the collection 'variables' cannot be written.*what its name says"),
    ],
)
def test_collections_that_cannot_be_written(lists: dict[str, list[Any]], says: str) -> None:
    with pytest.raises(GraphError, match=says):
        hr.export_meta_graph(hr.Graph(), collections=lists)


def test_what_belongs_to_another_graph_is_refused() -> None:
    model = Model()
    with pytest.raises(GraphError, match="the collection 'y' cannot be written: 'loop:1' belongs to"):
        hr.export_meta_graph(hr.Graph(), collections={"y": [model.y]})
    with pytest.raises(GraphError, match="input 'x' of the signature 's': 'x:0' belongs to"):
        hr.export_meta_graph(hr.Graph(), signatures={"s": model.signature()})
    with pytest.raises(TypeError, match=r"takes an hr.Graph, got 3"):
        hr.export_meta_graph(3)  # type: ignore[arg-type]


# *** reading what others wrote ***

# A resource variable, a reference variable, and what TensorFlow says of them.
FILE = """
graph_def {
  node { name: "v" op: "VarHandleOp" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape { } } } attr { key: "shared_name" value { s: "v" } } }
  node { name: "v/0" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 4 } } } }
  node { name: "v/Assign" op: "AssignVariableOp" input: "v" input: "v/0"
         attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "v/Read/ReadVariableOp" op: "ReadVariableOp" input: "v"
         attr { key: "dtype" value { type: DT_FLOAT } } }
  node { name: "r" op: "VariableV2" attr { key: "dtype" value { type: DT_FLOAT } }
         attr { key: "shape" value { shape { dim { size: 2 } } } } }
  node { name: "r/0" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } } attr { key: "value" value {
         tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1 float_val: 2 } } } }
  node { name: "r/Assign" op: "Assign" input: "r" input: "r/0" attr { key: "T" value { type: DT_FLOAT } } }
  node { name: "r/read" op: "Identity" input: "r" attr { key: "T" value { type: DT_FLOAT } } }
}
"""
RESOURCE = pb.VariableDef(
    variable_name="v:0",
    initializer_name="v/Assign",
    snapshot_name="v/Read/ReadVariableOp:0",
    is_resource=True,
    trainable=True,
)
REFERENCE = pb.VariableDef(
    variable_name="r:0", initializer_name="r/Assign", snapshot_name="r/read:0", initial_value_name="r/0:0"
)


def a_file(**lists: list[pb.VariableDef]) -> pb.MetaGraphDef:
    message = text_format.Parse(FILE, pb.MetaGraphDef())
    for name, items in lists.items():
        message.collection_def[name].bytes_list.value.extend(x.SerializeToString() for x in items)
    return message


def changed(proto: pb.VariableDef, **fields: Any) -> pb.VariableDef:
    out = pb.VariableDef()
    out.CopyFrom(proto)
    for name, value in fields.items():
        setattr(out, name, value)
    return out


def run(graph: Any, *fetches: Any) -> list[Any]:
    """The values of `fetches`, one after the other, after the initializers."""
    with hr.Session(graph=graph) as sess:
        sess.run([v.initializer for v in graph.variables])
        return [np.asarray(sess.run(f)).tolist() for f in fetches]


def test_reference_variables_are_used_as_others() -> None:
    # where nothing is ordered, for each of what follows is to run by itself
    m = hr.import_meta_graph(a_file(variables=[REFERENCE, RESOURCE]), graph=hr.Graph(ordered=False))
    r, v = m.variables
    assert isinstance(r, ReferenceVariable)
    assert not isinstance(v, ReferenceVariable)
    assert (r.shape, r.dtype.name, r.name, v.shape) == ((2,), "float32_ref", "r:0", ())
    with m.graph:
        steps = [
            r * v,
            r.assign_add([1.0, 1.0]),
            r.assign_sub([0.5, 0.5], read_value=False),
            r,
            r.read_value(),
            r.scatter_add([1], [10.0]),
            r.sparse_read([1, 1]),
            r.assign([8.0, 9.0]),
            r.is_initialized(),
            r.initialized_value(),
        ]
        (gradient,) = hr.gradients(hr.reduce_sum(r * r), [r])
    got = run(m.graph, *steps, gradient)
    assert got[:2] == [[4.0, 8.0], [2.0, 3.0]]
    assert got[3:6] == [[1.5, 2.5], [1.5, 2.5], [1.5, 12.5]]
    assert got[6:] == [[12.5, 12.5], [8.0, 9.0], True, [8.0, 9.0], [16.0, 18.0]]


def test_counting_by_reference() -> None:
    data = FILE.replace("DT_FLOAT", "DT_INT64").replace("float_val: 1 float_val: 2", "int64_val: 3")
    data = data.replace("float_val: 4", "int64_val: 4").replace("dim { size: 2 }", "")
    message = text_format.Parse(data, pb.MetaGraphDef())
    message.collection_def["variables"].bytes_list.value.append(REFERENCE.SerializeToString())
    m = hr.import_meta_graph(message)
    with m.graph:
        count = m.variables[0].count_up_to(5)
    assert run(m.graph, count, count) == [3, 4]


@pytest.mark.parametrize(
    ("version", "trainable"), [("1.8.0", [True, False]), ("1.9.0", [False, False]), ("", [False] * 2)]
)
def test_old_files_say_by_the_collection_what_is_trainable(version: str, trainable: list[bool]) -> None:
    resource = changed(RESOURCE, trainable=False)
    message = a_file(variables=[REFERENCE, resource], trainable_variables=[resource])
    message.meta_info_def.tensorflow_version = version
    v, r = hr.import_meta_graph(message).variables[::-1]
    found = {v.name: v.trainable, r.name: r.trainable}
    assert [found["v:0"], found["r:0"]] == trainable


def test_what_is_not_known_is_kept() -> None:
    message = a_file()
    message.collection_def["odd"].bytes_list.value.extend([b"\x00\xff", b""])
    message.collection_def["any"].any_list.value.add(type_url="t", value=b"v")
    message.collection_def["while_context"].bytes_list.value.append(b"context")
    m = hr.import_meta_graph(message)
    assert m.collections["odd"] == [b"\x00\xff", b""]
    assert m.collections["any"] == [any_pb2.Any(type_url="t", value=b"v")]
    assert hr.export_meta_graph(m.graph, collections=m.collections).collection_def == message.collection_def
    # names of things in the file would be wrong under another name
    assert "while_context" not in hr.import_meta_graph(message, scope="s").collections


def test_what_is_said_of_saving_is_written_again() -> None:
    message = a_file(variables=[REFERENCE])
    assert hr.import_meta_graph(message).graph.saver_def is None
    message.saver_def.CopyFrom(
        pb.SaverDef(filename_tensor_name="v/0:0", restore_op_name="r/Assign", max_to_keep=5, version="V2")
    )
    message.saver_def.save_tensor_name = "r/read:0"
    m = hr.import_meta_graph(message, scope="s")
    again = hr.export_meta_graph(m.graph).saver_def
    assert (again.filename_tensor_name, again.restore_op_name) == ("s/v/0:0", "s/r/Assign")
    assert (again.save_tensor_name, again.max_to_keep, again.version) == ("s/r/read:0", 5, pb.SaverDef.V2)


def test_checkpoint_operations_are_read() -> None:
    g = hr.Graph()
    text = "".join(
        f'node {{ name: "{n}" op: "Const" attr {{ key: "dtype" value {{ type: DT_STRING }} }} attr {{ key: "value" '
        f'value {{ tensor {{ dtype: DT_STRING tensor_shape {{ {shape} }} string_val: "{n[:-1]}" }} }} }} }}'
        for n, shape in (("path_", ""), ("names_", "dim { size: 1 }"), ("s", "dim { size: 1 }"))
    )
    text += """node { name: "restore" op: "RestoreV2" input: "path_" input: "names_" input: "s"
        attr { key: "dtypes" value { list { type: DT_FLOAT } } } }
        node { name: "save" op: "SaveV2" input: "path_" input: "names_" input: "s" input: "restore"
        attr { key: "dtypes" value { list { type: DT_FLOAT } } } }"""
    hr.import_graph_def(text, graph=g)
    assert g.get_tensor_by_name("restore:0").shape is None
    with hr.Session(graph=g) as sess, pytest.raises(NotFoundError, match="path"):
        sess.run("restore:0")


DAMAGE: dict[str, tuple[Callable[[pb.MetaGraphDef], Any], str]] = {
    "a name that is not there": (
        lambda m: m.collection_def["c"].node_list.value.extend(["v", "w:0"]),
        "item 1 of the collection 'c': 'w:0' is not in the graph",
    ),
    "an output that is not there": (
        lambda m: m.collection_def["c"].node_list.value.append("v:7"),
        r"item 0 of the collection 'c': 'v:7' is not in the graph: 'v' \(VarHandleOp\) has 1 outputs",
    ),
    "an empty name": (
        lambda m: m.collection_def["c"].node_list.value.append(""),
        "item 0 of the collection 'c': '' is not in the graph",
    ),
    "a collection of no kind": (
        lambda m: m.collection_def["c"].SetInParent(),
        "the collection 'c' is of no kind that headrace knows",
    ),
    "no variable": (
        lambda m: m.collection_def["variables"].bytes_list.value.append(b"\xff\xff"),
        "item 0 of the collection 'variables': not a VariableDef",
    ),
    "an empty variable": (
        lambda m: m.collection_def["variables"].bytes_list.value.append(b""),
        "item 0 of the collection 'variables': '' is not in the graph",
    ),
    "a variable of an operation": (
        lambda m: m.collection_def["variables"].bytes_list.value.append(
            changed(RESOURCE, variable_name="v").SerializeToString()
        ),
        "'variables': 'v' names an operation, not a tensor",
    ),
    "a variable of something else": (
        lambda m: m.collection_def["variables"].bytes_list.value.append(
            changed(RESOURCE, variable_name="v/0:0").SerializeToString()
        ),
        r"'variables': 'v/0:0' \(Const\) is no handle of a variable",
    ),
    "a resource for a reference": (
        lambda m: m.collection_def["variables"].bytes_list.value.append(
            changed(RESOURCE, is_resource=False).SerializeToString()
        ),
        r"'v:0' \(VarHandleOp\) is no handle of a variable",
    ),
    "an initializer that is a tensor": (
        lambda m: m.collection_def["variables"].bytes_list.value.append(
            changed(RESOURCE, initializer_name="v/0:0").SerializeToString()
        ),
        "the initializer 'v/0:0' is no operation",
    ),
    "a value of another dtype": (
        lambda m: m.collection_def["variables"].bytes_list.value.append(
            changed(RESOURCE, snapshot_name="v:0").SerializeToString()
        ),
        "'v:0' is resource, so not a value of 'v'",
    ),
    "a saver of nothing": (
        lambda m: setattr(m.saver_def, "restore_op_name", "save/restore_all"),
        "restore_op_name of the saver_def: 'save/restore_all' is not in the graph",
    ),
    "a signature of nothing": (
        lambda m: setattr(m.signature_def["s"].inputs["x"], "name", "x:0"),
        "input 'x' of the signature 's': 'x:0' is not in the graph",
    ),
    "a signature of another dtype": (
        lambda m: m.signature_def["s"].outputs["y"].MergeFrom(pb.TensorInfo(name="v/0:0", dtype=pb.DT_INT32)),
        "output 'y' of the signature 's': 'v/0:0' is float32, not int32",
    ),
    "a signature of no dtype": (
        lambda m: m.signature_def["s"].outputs["y"].MergeFrom(pb.TensorInfo(name="v/0:0", dtype=999)),
        "output 'y' of the signature 's': .*999",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_malformed_files_say_what_is_wrong(what: str) -> None:
    message = a_file()
    damage, says = DAMAGE[what]
    damage(message)
    with hr.Graph() as g:
        kept = hr.constant(1.0)
        with pytest.raises(GraphError, match=says):
            hr.import_meta_graph(message)
    assert g.get_operations() == [kept.op]
    assert (g.variables, g.saver_def) == ([], None)
    with tf.Graph().as_default() as old:
        if "signature" not in what:  # which TensorFlow's function does not look at, either
            with pytest.raises(GraphError, match=says):
                tf.train.import_meta_graph(message)
            assert old.get_operations() == []
            assert old.get_all_collection_keys() == []


def test_sparse_signatures_are_refused() -> None:
    message = a_file()
    message.signature_def["s"].inputs["x"].coo_sparse.values_tensor_name = "v/0:0"
    with pytest.raises(UnimplementedError, match="input 'x' of the signature 's': only dense tensors"):
        hr.import_meta_graph(message)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (b"\xff\xff\xff", GraphError, "not a MetaGraphDef"),
        (3, TypeError, "a MetaGraphDef must be a message or its bytes, got 3"),
        (pb.SaverDef(restore_op_name="not UTF-8 of a message"), GraphError, "not a MetaGraphDef"),
    ],
)
def test_what_is_no_meta_graph(given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        hr.import_meta_graph(given)


def test_files_that_are_no_meta_graphs(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hr.import_meta_graph(tmp_path / "none.meta")
    for data in (b"\xff\xfe prose", b"\x00\x01", b"prose"):
        (tmp_path / "m").write_bytes(data)
        with pytest.raises(GraphError, match="m' is no MetaGraph"):
            hr.import_meta_graph(str(tmp_path / "m"))


@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_damaged_bytes_raise_our_errors_only() -> None:
    message = a_file(variables=[REFERENCE, RESOURCE])
    message.collection_def["c"].node_list.value.extend(["v:0", "r/read"])
    message.signature_def["s"].inputs["x"].name = "v/0:0"
    good = message.SerializeToString(deterministic=True)
    rng = random.Random(7)
    refused = 0
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        g = hr.Graph()
        try:
            hr.import_meta_graph(bytes(data), graph=g)
        except HeadraceError:
            refused += 1
            assert not g.operations
            assert not g.variables
    assert refused > 100


# *** headrace.v1 ***


def v1_model() -> tf.Graph:
    with tf.Graph().as_default() as g:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
        n = tf.Variable(0, trainable=False, name="n", collections=["variables", "global_step"])
        y = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * 2.0), (0, tf.matmul(x, w)))[1]
        loss = tf.reduce_mean(tf.square(y - 1.0))
        (gradient,) = tf.gradients(loss, [w])
        step = tf.group(w.assign_sub(0.01 * gradient), n.assign_add(1))
        for name, thing in (("train_op", step), ("x", x), ("loss", loss), ("y", y)):
            tf.add_to_collection(name, thing)
        tf.add_to_collection("rate", 0.01)
    return g


def v1_trained(g: tf.Graph) -> list[Any]:
    with g.as_default(), tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        feeds = {g.get_collection("x")[0]: X}
        for _ in range(3):
            sess.run(g.get_collection("train_op")[0], feeds)
        values = sess.run([*tf.global_variables(), g.get_collection("loss")[0], g.get_collection("y")[0]], feeds)
        return [np.asarray(v).tolist() for v in values]


@pytest.mark.parametrize("scope", [None, "s"])
@pytest.mark.parametrize("as_text", [False, True])
def test_a_program_of_v1_goes_on_in_another_graph(tmp_path: Path, scope: str | None, as_text: bool) -> None:
    first = v1_model()
    path = str(tmp_path / "m.meta")
    with first.as_default():
        tf.train.export_meta_graph(path, as_text=as_text)
    with tf.Graph().as_default() as g:
        saver = tf.train.import_meta_graph(path, import_scope=scope)  # a new one, for the file has none
        assert saver is not None
        assert saver.saver_def is None  # it adds its operations when it is used
        prefix = f"{scope}/" if scope else ""
        assert [v.name for v in tf.global_variables()] == [f"{prefix}w:0", f"{prefix}n:0"]
        assert [v.name for v in tf.trainable_variables()] == [f"{prefix}w:0"]
        assert tf.trainable_variables()[0] is tf.global_variables()[0]
        assert tf.get_collection("global_step") == [tf.global_variables()[1]]
        assert tf.get_collection("rate") == [pytest.approx(0.01)]  # the file has single precision
        assert isinstance(tf.global_variables()[0], tf.Variable)
    assert set(g.get_all_collection_keys()) == set(first.get_all_collection_keys())
    assert v1_trained(g) == v1_trained(first)


def test_only_some_collections_are_wanted() -> None:
    g = v1_model()
    message = tf.train.export_meta_graph(graph=g, collection_list=["loss", "rate"])
    assert set(message.collection_def) == {"loss", "rate"}
    message = tf.train.export_meta_graph(graph=g)
    with tf.Graph().as_default() as new:
        tf.train.import_meta_graph(message, restore_collections_predicate=lambda key: key != "variables")
        assert tf.global_variables() == []
        assert {v.name for v in new.variables} == {"n:0", "w:0"}


def test_collections_that_cannot_be_written_are_told_of() -> None:
    with tf.Graph().as_default() as g:
        tf.add_to_collection("good", tf.constant(1.0))
        tf.add_to_collection("bad", object())
        tf.add_to_collection(("a", "tuple"), 1)
        with pytest.warns(HeadraceWarning) as told:
            message = tf.train.export_meta_graph()
    assert set(message.collection_def) == {"good"}
    texts = sorted(str(w.message) for w in told)
    assert texts[0].startswith("not exported: the collection 'bad' cannot be written")
    assert texts[1] == "the collection ('a', 'tuple') is not exported: its name is no text"
    assert {w.filename for w in told} == {__file__}
    assert g.get_all_collection_keys() == ["good", "bad", ("a", "tuple")]


def test_queue_runners_come_back() -> None:
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(3, tf.int32, name="q")
        runner = tf.train.QueueRunner(queue, [queue.enqueue(7)] * 2)
        tf.train.add_queue_runner(runner)
        queue.dequeue(name="out")
        message = tf.train.export_meta_graph()
    with tf.Graph().as_default() as g:
        tf.train.import_meta_graph(message, import_scope="s")
        (again,) = g.get_collection("queue_runners")
        assert again.name == "s/q"
        assert (
            again.to_proto().SerializeToString()
            == tf.train.QueueRunner.from_proto(runner.to_proto(), import_scope="s").to_proto().SerializeToString()
        )
        with tf.Session() as sess:
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess, coord)
            assert len(threads) == 3
            assert sess.run("s/out:0") == 7
            coord.request_stop()
            coord.join(threads)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"queue_name": "zz"}, "item 0 of the collection 'queue_runners': 'zz' is not in the graph"),
        ({"enqueue_op_name": []}, "without operations that enqueue"),
        ({"close_op_name": "zz"}, "'zz' is not in the graph"),
        ({"queue_closed_exception_types": [99]}, "an error code that there is not"),
    ],
)
def test_queue_runners_that_are_malformed(change: dict[str, Any], says: str) -> None:
    with tf.Graph().as_default():
        queue = tf.FIFOQueue(3, tf.int32, name="q")
        tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(7)]))
        message = tf.train.export_meta_graph()
    proto = pb.QueueRunnerDef.FromString(message.collection_def["queue_runners"].bytes_list.value[0])
    for name, value in change.items():
        proto.ClearField(name)  # type: ignore[arg-type]
        (getattr(proto, name).extend if isinstance(value, list) else lambda v, n=name: setattr(proto, n, v))(value)
    message.collection_def["queue_runners"].bytes_list.value[0] = proto.SerializeToString()
    with tf.Graph().as_default(), pytest.raises(GraphError, match=says):
        tf.train.import_meta_graph(message)


def test_a_saver_of_an_import_is_what_the_file_says() -> None:
    message = a_file(variables=[REFERENCE, RESOURCE])
    message.saver_def.restore_op_name = "r/Assign"
    with tf.Graph().as_default() as g:
        with pytest.raises(GraphError, match="a SaverDef without filename_tensor_name"):
            tf.train.import_meta_graph(message)
        assert g.get_operations() == []
        message.saver_def.filename_tensor_name = message.saver_def.save_tensor_name = "r/read:0"
        saver = tf.train.import_meta_graph(message)
        assert saver is not None
        assert saver.as_saver_def() == g.saver_def == message.saver_def
        assert tf.train.export_meta_graph().saver_def == message.saver_def
    message.saver_def.save_tensor_name = "r/Assign"
    with tf.Graph().as_default(), pytest.raises(GraphError, match="should name a tensor"):
        tf.train.import_meta_graph(message)


def test_variables_of_protos() -> None:
    with tf.Graph().as_default():
        tf.train.import_meta_graph(a_file())
        assert tf.global_variables() == []
        r, v = tf.Variable.from_proto(REFERENCE), tf.Variable(variable_def=RESOURCE)
        assert isinstance(r, ReferenceVariable)
        assert isinstance(r, tf.Variable)
        assert r.get_shape().as_list() == [2]
        assert changed(v.to_proto(), initial_value_name="") == RESOURCE
        assert r.to_proto() == REFERENCE
        with tf.Session() as sess:
            sess.run([r.initializer, v.initializer])
            r.load([5.0, 6.0], sess)
            assert r.eval().tolist() == [5.0, 6.0]
            assert sess.run(tf.assign_add(r, [1.0, 1.0])).tolist() == [6.0, 7.0]
            assert v.eval() == 4.0
        with pytest.raises(ValueError, match="mutually exclusive"):
            tf.Variable(1.0, variable_def=RESOURCE)
        with pytest.raises(KeyError, match="s/v"):
            tf.Variable.from_proto(RESOURCE, import_scope="s")


def test_slices_of_partitioned_variables_are_kept() -> None:
    proto = changed(RESOURCE)
    proto.save_slice_info_def.CopyFrom(pb.SaveSliceInfoDef(full_name="big", full_shape=[4], var_offset=[2]))
    with tf.Graph().as_default():
        tf.train.import_meta_graph(a_file(variables=[proto]))
        assert tf.global_variables()[0].to_proto().save_slice_info_def == proto.save_slice_info_def


def test_what_is_said_besides() -> None:
    about = pb.MetaGraphDef.MetaInfoDef(tags=["t"], meta_graph_version="v7")
    g = v1_model()
    message = tf.train.export_meta_graph(graph=g, meta_info_def=about, graph_def=hr.Graph().as_graph_def())
    assert (list(message.meta_info_def.tags), message.meta_info_def.meta_graph_version) == (["t"], "v7")
    assert len(message.graph_def.node) == 0
    assert tf.MetaGraphDef is type(message)
    assert tf.train.SaverDef is type(message.saver_def)
    with pytest.raises(TypeError, match=r"graph must be a tf.Graph"):
        tf.train.export_meta_graph(graph=hr.Graph())  # type: ignore[arg-type]
