"""Fields of operations, tensors and graphs are assigned only by the modules that own them.

A user's graph only grows, by the methods of `ir.graph`; a private copy changes by `ir.edit.editor.Editor`. A field that
another module assigned would leave the editor's index, `Graph.version` and the checks of those methods behind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.one_engine

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "headrace"

#: Modules and folders whose methods the others call.
OWNERS: Final = ("ir/graph.py", "ir/function.py", "ir/static_info.py", "ir/edit/")

#: Fields of operations, of tensors, and of graphs.
FIELDS: Final = frozenset(
    "attrs control_inputs device id inputs name notes opdef outputs type handle shape static_shape captures "
    "control_results originals params results _by_name _operations _taken".split()
)

#: Methods of lists, dicts and sets that change these.
MUTATORS: Final = frozenset(
    "add append clear discard extend insert pop popitem remove reverse setdefault sort update __delitem__ "
    "__setitem__".split()
)

#: Assignments outside of `OWNERS`, as "module: field of object", by the reason. The table only shrinks.
EXCEPTIONS: Final[dict[str, set[str]]] = {
    "the object is no operation, tensor or graph": {
        "eager/builder.py: op.name",
        "execute/plan.py: plan.device",
        "execute/step.py: out.id",
        "files/checkpoint_v1.py: kept.name",
        "ir/symbolic.py: Symbolic.shape",
        "ops/nn/argmax_pooling.py: c.attrs",
        "optimize/pipeline.py: context.notes",
    },
    "the object is a protocol buffer, or an entry of a file that is read": {
        "interchange/graph_scope.py: made.name",
        "interchange/meta_graph.py: info.name",
        "interchange/meta_graph.py: node.device",
        "interchange/op_defs.py: arg.type",
        "interchange/op_defs.py: out.type",
        "interchange/op_defs.py: values.type",
        "interchange/saved_model.py: info.name",
        "ir/serial/functiondef.py: list.shape",
        "ir/serial/functiondef.py: signature.name",
        "ir/serial/nodedefs.py: list.shape",
        "ir/serial/nodedefs.py: node.device",
        "ir/serial/nodedefs.py: node.inputs",
        "ir/serial/nodedefs.py: node.name",
        "ir/serial/snapshot.py: node.device",
        "ir/text/parse.py: entry.attrs",
        "partition_graphs.py: node.device",
        "onnx/graphs.py: attribute.name",
        "saved_model/encoding.py: named_tuple_value.name",
        "saved_model/encoding.py: tensor_spec_value.name",
        "saved_model/library.py: func.name",
        "saved_model/library.py: signature.name",
        "saved_model/loops.py: called.name",
        "saved_model/loops.py: list.shape",
        "saved_model/loops.py: list.type",
        "saved_model/loops.py: signature.name",
        "saved_model/main_graph.py: info.name",
        "saved_model/model.py: variable.name",
        "saved_model/signatures.py: signature.name",
        "saved_model/traces.py: func.name",
        "saved_model/traces.py: list.type",
        "saved_model/traces.py: signature.name",
        "v1/extension_types/messages.py: tensor_spec_value.name",
    },
    "a reader gives a new function the attributes of its definition": {
        "ir/serial/functiondef.py: graph.attrs",
        "ir/text/parse.py: graph.attrs",
    },
    "the device function of a scope looks at the new operation, below the editor's layer": {
        "ir/builder.py: op.device",
    },
    "a conditional under recovery names its new graphs": {
        "recover/regions.py: g.name",
    },
}


def writes(source: str) -> Iterator[tuple[int, str]]:
    """The assignments to fields, and calls that change their values, in a module.

    An object's own fields (`self.name = ...`) are not among them.

    Args:
      source: the text of the module.

    Yields:
      The line, and "object.field", of the object its last name.
    """
    for node in ast.walk(ast.parse(source)):
        targets: list[ast.expr] = []
        if isinstance(node, (ast.Assign, ast.Delete)):
            targets = list(node.targets)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For)):
            targets = [node.target]
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
                targets = [node.func.value]
            elif isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr"):
                owner, name = node.args[:2]
                if isinstance(name, ast.Constant) and name.value in FIELDS:
                    targets = [ast.Attribute(owner, name.value)]
        while targets:
            target = targets.pop()
            if isinstance(target, (ast.Tuple, ast.List)):
                targets += target.elts
                continue
            while isinstance(target, (ast.Subscript, ast.Starred)):
                target = target.value
            if isinstance(target, ast.Attribute) and target.attr in FIELDS:
                owner = _last(target.value)
                if owner not in ("self", "cls"):
                    yield node.lineno, f"{owner}.{target.attr}"


def _last(node: ast.expr) -> str:
    """The last name of an expression: "op" of `t.op`, "graph" of `self.graph`, "graphs" of `graphs[0]`."""
    while isinstance(node, (ast.Subscript, ast.Call)):
        node = node.value if isinstance(node, ast.Subscript) else node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else "?"


def found_in(package: Path) -> dict[str, list[int]]:
    """The lines of the writes in all modules but the owners, by "module: object.field"."""
    out: dict[str, list[int]] = {}
    for path in sorted(package.rglob("*.py")):
        module = path.relative_to(package).as_posix()
        if not module.startswith(OWNERS) and not module.endswith("_pb2.py"):
            for line, what in writes(path.read_text(encoding="utf-8")):
                out.setdefault(f"{module}: {what}", []).append(line)
    return out


@pytest.mark.system
def test_only_the_owners_of_a_graph_assign_its_fields() -> None:
    found = found_in(PACKAGE)
    allowed = set().union(*EXCEPTIONS.values())
    wrong = [f"headrace/{key} (line {', '.join(map(str, found[key]))})" for key in found.keys() - allowed]
    assert not wrong, "use ir.edit.editor.Editor, or a method of the graph or tensor:\n" + "\n".join(sorted(wrong))
    stale = allowed - found.keys()
    assert not stale, f"no exception is needed any more for {sorted(stale)}"


@pytest.mark.parametrize(
    ("source", "want"),
    [
        ("op.inputs[0] = t", ["op.inputs"]),
        ("op.inputs[:], other.x = a, b", ["op.inputs"]),
        ("self.graph.results += [t]", ["graph.results"]),
        ("del loop.op.attrs['x']", ["op.attrs"]),
        ("g, *op.control_inputs = made", ["op.control_inputs"]),
        ("graphs[0].params.append(p)", ["graphs.params"]),
        ("owned(op)[0].results[k]: Tensor = t", ["owned.results"]),
        ("setattr(op, 'device', '')", ["op.device"]),
        ("for op.id in range(3): pass", ["op.id"]),
        ("self.inputs = []\nself.name = op.name\nx = op.inputs[0]\nop.inputs.index(t)\nsetattr(op, name, 1)", []),
    ],
)
def test_writes_are_found(source: str, want: list[str]) -> None:
    assert [what for _, what in writes(source)] == want
