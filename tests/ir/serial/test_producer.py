"""Graphs of a newer producer: unknown attributes, and op definitions that explain them."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

import headrace as hr
import headrace.v1 as tf
from headrace import pb
from headrace.errors import GraphError, HeadraceWarning
from headrace.ir.serial.nodedefs import GRAPH_DEF_VERSION
from headrace.ir.serial.producer import without_new_defaults

# Identity with two attributes that no Identity has: `depth`, 1 by default, and `mode`, which has no default.
GRAPH = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "Identity" input: "x" attr { key: "T" value { type: DT_FLOAT } } %s }
"""
OPS = pb.OpList()
text_format.Parse(
    """
    op { name: "Identity" input_arg { name: "input" type_attr: "T" } output_arg { name: "output" type_attr: "T" }
         attr { name: "T" type: "type" default_value { type: DT_FLOAT } }
         attr { name: "depth" type: "int" default_value { i: 1 } } attr { name: "mode" type: "string" } }
    op { name: "Unheard" attr { name: "a" type: "int" default_value { i: 1 } } }
    """,
    OPS,
)


def attr(name: str, value: str) -> str:
    return f'attr {{ key: "{name}" value {{ {value} }} }}'


def imported(text: str, **options: Any) -> hr.Graph:
    g = hr.Graph()
    hr.import_graph_def(text, graph=g, **options)
    return g


def test_attributes_of_anybody_are_kept() -> None:
    g = imported(GRAPH % attr("_mine", "i: 3"))
    assert g.get_operation_by_name("y").attrs["_mine"] == 3
    assert g.as_graph_def().node[1].attr["_mine"].i == 3


def test_an_attribute_that_is_not_known_is_ignored_with_a_warning() -> None:
    says = r"Node 'y': NodeDef mentions attr 'depth' not in Op<name=Identity; attr=T:type>: it is ignored\. No Tensor"
    for versions in ("", f"versions {{ producer: {GRAPH_DEF_VERSION} }}"):
        with pytest.warns(HeadraceWarning, match=says):
            g = imported(GRAPH % attr("depth", "i: 1") + versions)
        assert g.as_graph_def().node[1].attr["depth"].i == 1


def test_of_a_newer_producer_it_is_ignored_with_a_warning() -> None:
    text = GRAPH % attr("depth", "i: 1") + "versions { producer: 9999 }"
    text += (GRAPH % attr("depth", "i: 1")).replace('"y"', '"z"').splitlines()[2]
    with pytest.warns(HeadraceWarning, match=r"Node 'y': NodeDef mentions attr 'depth'.*it is ignored.*9999") as told:
        g = imported(text)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert g.graph_def_versions.producer == 9999
    assert g.as_graph_def().node[1].attr["depth"].i == 1  # for others that know it
    with hr.Session(graph=g) as sess:
        assert sess.run("y:0", {"x:0": 2.0}) == 2.0


@pytest.mark.parametrize("make", [lambda m: m, lambda m: m.SerializeToString()])
def test_it_is_left_out_where_it_is_the_producers_default(make: Any) -> None:
    g = imported(GRAPH % attr("depth", "i: 1"), producer_op_list=make(OPS))
    assert g.get_operation_by_name("y").attrs == {"T": hr.float32}
    with tf.Graph().as_default() as old:
        (y,) = tf.import_graph_def(GRAPH % attr("depth", "i: 1"), return_elements=["y"], producer_op_list=make(OPS))
        assert dict(y.attrs) == {"T": hr.float32}
        tf.import_graph_def(GRAPH % attr("depth", "i: 1"), name="", producer_op_list=make(OPS))
    assert len(old) == 4


@pytest.mark.parametrize("producer", [0, 9999])
@pytest.mark.parametrize(("name", "value"), [("depth", "i: 2"), ("depth", "f: 1"), ("mode", 's: "a"')])
def test_other_values_are_errors(name: str, value: str, producer: int) -> None:
    text = GRAPH % attr(name, value) + f"versions {{ producer: {producer} }}"
    says = f"Node 'y': NodeDef mentions attr '{name}' not in Op<name=Identity>, and its value is not the producer's"
    with pytest.raises(GraphError, match=says):
        imported(text, producer_op_list=OPS)


def test_attributes_that_the_producer_does_not_have_are_ignored_with_a_warning() -> None:
    with pytest.warns(HeadraceWarning, match=r"NodeDef mentions attr 'other'.*it is ignored"):
        imported(GRAPH % attr("other", "i: 1"), producer_op_list=OPS)


def test_attributes_that_are_known_stay() -> None:
    g = imported(GRAPH % "", producer_op_list=OPS)
    assert g.get_operation_by_name("y").attrs == {"T": hr.float32}


def test_functions_are_looked_through_too_and_the_file_is_not_changed() -> None:
    message = text_format.Parse(
        f"""library {{ function {{ signature {{ name: "f" input_arg {{ name: "a" type: DT_FLOAT }}
              output_arg {{ name: "b" type: DT_FLOAT }} }}
            node_def {{ name: "i" op: "Identity" input: "a" attr {{ key: "T" value {{ type: DT_FLOAT }} }}
              {attr("depth", "i: 1")} }} ret {{ key: "b" value: "i:output:0" }} }} }}
        node {{ name: "x" op: "Placeholder" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }} }}
        node {{ name: "y" op: "f" input: "x" }}""",
        pb.GraphDef(),
    )
    before = message.SerializeToString(deterministic=True)
    with hr.Session(graph=imported(message, producer_op_list=OPS)) as sess:  # type: ignore[arg-type]
        assert sess.run("y:0", {"x:0": 2.0}) == 2.0
    assert message.SerializeToString(deterministic=True) == before
    with hr.Session(graph=imported(message)) as sess, pytest.warns(HeadraceWarning, match="Node 'i': .*attr 'depth'"):
        # type: ignore[arg-type]
        sess.run("y:0", {"x:0": 2.0})


def test_what_needs_no_change_is_not_copied() -> None:
    message = text_format.Parse(GRAPH % "", pb.GraphDef())
    assert without_new_defaults(message, OPS) is message


def test_the_definitions_of_a_meta_graph_are_used() -> None:
    message = pb.MetaGraphDef()
    text_format.Parse(GRAPH % attr("depth", "i: 1"), message.graph_def)
    with pytest.warns(HeadraceWarning, match="attr 'depth'"):
        hr.import_meta_graph(message)
    message.meta_info_def.stripped_op_list.CopyFrom(OPS)
    assert len(hr.import_meta_graph(message).graph) == 2


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (b"\xff\xff", GraphError, "producer_op_list is not an OpList"),
        (["Identity"], TypeError, "producer_op_list must be an OpList message or its bytes, got list"),
    ],
)
def test_what_is_no_list_of_ops(given: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        imported(GRAPH % "", producer_op_list=given)


def test_versions_of_a_graph() -> None:
    g = hr.Graph()
    assert g.graph_def_versions == pb.VersionDef(producer=GRAPH_DEF_VERSION)
    hr.import_graph_def("versions { producer: 500 min_consumer: 12 }", graph=g)
    assert g.graph_def_versions == pb.VersionDef(producer=500, min_consumer=12)
    hr.import_graph_def("versions { producer: 400 }", graph=g)
    assert g.graph_def_versions == pb.VersionDef(producer=400, min_consumer=12)
