"""Notes: values, registration, copies, kernels, and their forms in files, text and plain data."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.errors import GraphError, TextError
from headrace.ir import kernel, notes
from headrace.ir.edit.copying import copy_into
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import Graph
from headrace.ir.notes import (
    NO_NOTES,
    ContiguousResult,
    FrameName,
    FusedKernel,
    JoinedElementShapes,
    NoBackProp,
    Note,
    Notes,
    RematerializedCall,
    RemovedElements,
    ResidualPop,
    ResidualPush,
    StandsFor,
    SwapMemory,
    note_from_data,
    notes_from_attrs,
)
from headrace.ir.serial.graphdef import export_graph_def, import_graph_def
from headrace.ir.text import from_text, to_text
from headrace.ir.weak_numbers import WeakNumbers

pytestmark = pytest.mark.one_engine

IN_FILES = [
    ResidualPush("'x:0' of loop 'w'"),
    ResidualPush("x", may_swap=True),
    ResidualPop(),
    SwapMemory(),
    NoBackProp(),
    FrameName("while/while_context"),
    RematerializedCall(),
    JoinedElementShapes(),
    RemovedElements(hr.bfloat16, (2, 3)),
    RemovedElements(hr.float32, ()),
]
ALL = [
    *IN_FILES,
    notes.CountedResidual(),
    ContiguousResult(),
    StandsFor(("x:0", "y:1")),
    StandsFor(()),
    notes.LoopVariable("h"),
    WeakNumbers((0, 2)),
]


def noted(*given: Note) -> Graph:
    g = Graph()
    g.add_op("NoOp", "n", notes=given)
    return g


def test_notes_are_a_set_with_one_of_each_class() -> None:
    some = Notes([ResidualPop(), FrameName("a")])
    assert some.get(FrameName) == some[FrameName] == FrameName("a")
    assert some.get(SwapMemory) is None
    assert FrameName in some
    assert list(some.added(FrameName("b"))) == [FrameName("b"), ResidualPop()]
    assert some.without(FrameName) == Notes([ResidualPop()])
    assert hash(some) == hash(Notes([FrameName("a"), ResidualPop()]))
    assert some != Notes([FrameName("b"), ResidualPop()])
    assert not NO_NOTES
    assert some.added(JoinedElementShapes()).that_change_values() == Notes([JoinedElementShapes()])


@pytest.mark.parametrize("note", ALL, ids=repr)
def test_data_of_a_note_survive_json(note: Note) -> None:
    data = json.loads(json.dumps(note.to_data()))
    assert note_from_data(type(note).__name__, data) == note


def test_every_registered_note_is_local_or_has_an_example() -> None:
    travelling = {n for n in notes.note_registry if not notes.note_registry.get(n).is_local}
    assert travelling == {type(n).__name__ for n in ALL}


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("Nonsense", {}, "'Nonsense' is no note"),
        ("FusedKernel", {"compute": 1}, "'FusedKernel' is no note"),
        ("FrameName", {}, r"has the fields \['name'\]"),
        ("FrameName", {"name": "a", "more": 1}, r"has the fields \['name'\]"),
        ("FrameName", [], r"has the fields \['name'\]"),
        ("FrameName", {"name": 3}, "'name' of the note 'FrameName' must be str, got 3"),
        ("StandsFor", {"names": "x"}, "must be tuple"),
        ("StandsFor", {"names": [1]}, "must be tuple"),
        ("RemovedElements", {"dtype": "float33", "shape": []}, "'dtype' of the note 'RemovedElements'"),
        ("RemovedElements", {"dtype": "float32", "shape": [True]}, "must be tuple"),
        ("ResidualPush", {"of": "x", "may_swap": 1}, "must be bool"),
    ],
)
def test_wrong_data_are_refused(name: str, data: Any, says: str) -> None:
    with pytest.raises(GraphError, match=says):
        note_from_data(name, data)


@pytest.mark.parametrize("note", IN_FILES, ids=repr)
def test_a_graph_def_states_these_notes_as_attributes(note: Note) -> None:
    message = export_graph_def(noted(note))
    assert dict(message.node[0].attr).keys() == note.to_attrs().keys()
    g = Graph()
    import_graph_def(message, g)
    assert (list(g.operations[0].notes), g.operations[0].attrs) == ([note], {})


def test_a_graph_def_does_not_contain_the_other_notes() -> None:
    message = export_graph_def(noted(ContiguousResult(), StandsFor(("x",)), notes.CountedResidual(), FusedKernel(len)))
    assert not message.node[0].attr


def test_attributes_of_another_kind_stay_attributes() -> None:
    attrs = {"_recompute": "yes", "_accumulates": 1, "_swap": True, "_back_prop": True, "_element_dtype": hr.int32}
    assert notes_from_attrs(attrs) == NO_NOTES
    assert len(attrs) == 5


@pytest.mark.parametrize("note", ALL, ids=repr)
def test_text_states_notes(note: Note) -> None:
    text = to_text(noted(note))
    again = from_text(text)
    assert list(again.operations[0].notes) == [note]
    assert to_text(again) == text


def test_text_of_several_notes() -> None:
    g = noted(ResidualPop(), FrameName("a"), FusedKernel(len))
    assert to_text(g) == 'n = NoOp{FrameName[name="a"], ResidualPop}\n'
    with pytest.raises(TextError, match="<text>:1:10: 'Nonsense' is no note"):
        from_text("n = NoOp{Nonsense}")


def test_copies_share_notes_and_editors_change_one_of_them() -> None:
    g, other = noted(ResidualPop()), Graph()
    copy = other.copy_op(g.operations[0], (), ())
    (third,) = copy_into(other, g.operations, {}).values()
    assert copy.notes == third.notes == g.operations[0].notes
    before = other.version
    Editor(other).add_note(copy, FrameName("a"))
    assert other.version > before
    assert copy.notes == Notes([ResidualPop(), FrameName("a")])
    assert third.notes == Notes([ResidualPop()])


@notes.note
@dataclasses.dataclass(frozen=True, slots=True)
class _Loud(Note):
    is_local: ClassVar[bool] = True

    by: int


def test_a_kernel_for_a_note_precedes_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_overrides", {})
    kernel.override("Neg", "CPU", notes=[_Loud])(lambda attrs, found: lambda x: -x * found[_Loud].by)
    kernel.override("Neg", "CPU", notes=[_Loud, ResidualPop])(lambda attrs, found: lambda x: x)
    g = from_text("x = Const[value=float32[]{2.0}, dtype=float32] | a = Neg(x)".replace(" | ", "\n"))
    a = g.get_operation_by_name("a")
    x = a.inputs
    results = []
    for given in [(), (ResidualPop(),), (_Loud(3),), (_Loud(3), ResidualPop())]:
        op = g.add_op("Neg", g.unique_name("b"), x, a.attrs, notes=given)
        found = kernel.find_kernel(op)
        assert found is not None
        results.append(float(kernel.made_for(op, found)(2.0)))
    assert results == [-2, -2, -6, 2]
    with pytest.raises(KeyError, match="with the note _Loud is registered already"):
        kernel.override("Neg", "CPU", notes=[_Loud])(lambda attrs, found: lambda x: x)
