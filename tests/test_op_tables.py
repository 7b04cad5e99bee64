"""Tables of op types outside of the records, with their reasons.

A property of an op type belongs to its record (`headrace.ir.opdef.Facts`), where an extension package can state it too.
A table of types elsewhere holds rules or code of one module for these types, or a property that has no field yet.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from headrace.ir.opdef import op_registry
from tests.test_layers import PACKAGE, modules

# Parts of the package that define ops, or whose subject is the names of ops.
FREE = ("ops/", "v1/")

# Modules with a table of op types, and the reason.
MAKES = "names of the ops that functions of the interface make"
SUMS = "sums of two tensors, AddN among them"
DEVICE = "kernels of the device, some of which a loop registers for several op types"
VIEW = "operations of the lowered form that a view of a running step hides or names by their loop"
SLICES = "a rule for each op that reads a slice, or writes one into zeros"
OBSERVE = ("paused", "profile_events", "watchable")
TABLES: dict[str, str] = {
    "api/image/framing.py": MAKES,
    "api/math.py": "the docstrings of comparisons, which are written while the module is imported",
    "api/initial_value.py": "the two ops that read a variable for an initial value",
    "recover/late_reads.py": "the ops whose output shares TensorFlow's buffer of the input, without being it",
    "recover/references.py": "the counterparts of ops on references, by name",
    "api/reference.py": "the two ops that make reference variables",
    "compile/fused_regions.py": "the two ops that it makes of regions",
    "devices/torch/randomness.py": "random ops whose numbers are drawn on the host, for all devices of PyTorch",
    "devices/torch/rows.py": DEVICE,
    "devices/torch/special_functions.py": DEVICE,
    "grad/graph.py": "zeros and ones of the shape of a tensor, which it makes as a Fill",
    "inspect/dot.py": "shapes of the boxes of a drawing",
    "inspect/program_document.py": VIEW,
    "interchange/portable.py": "a rewriting rule for each op that TensorFlow does not have",
    "ir/analysis/value_range.py": "interval arithmetic, a rule for each op",
    "lower/collectives.py": "an expansion for each collective",
    "metadata/step_stats.py": "the leaves know records of runs, which have names of types, and no registry",
    **dict.fromkeys((f"observe/{m}.py" for m in OBSERVE), VIEW),
    "onnx/elementwise.py": "names of ONNX's operators, some of which are TensorFlow's",
    "opkit/tensor_lists.py": "the marks of TensorFlow 1's arrays",
    "optimize/algebraic_simplification.py": "a rewriting rule for each op; follows with the schedule",
    "optimize/batch_norm_folding.py": "the filter of each convolution has another layout, which the rule scales",
    "optimize/batching_rules.py": "a batching rule for each op; follows with the schedule",
    "optimize/list_flow.py": "ops that make a new version of a list without an element; AddN and ZerosLike compute it",
    "optimize/loop_branch_sums.py": SUMS,
    "optimize/loop_product_fission.py": SUMS,
    "optimize/loop_reduction_sinking.py": SUMS,
    "optimize/loop_row_reads.py": "ops that join rows without computing",
    "optimize/loop_rows.py": SLICES,
    "optimize/loop_sinking.py": SUMS,
    "optimize/queries.py": "ops without effects that are not functions of inputs",
    "optimize/selections.py": SLICES,
    "optimize/slice_merging.py": SLICES,
    "partition/joined.py": "the kinds of structured ops, and the two copies that it makes",
    "partition/shape_vectors.py": "the two ops whose outputs are shapes",
    "recover/handles.py": "a translation for each op on stacks and tensor arrays",
    "saved_model/graph_models.py": "the ops whose output is fed, which are no resources of the model",
    "saved_model/library.py": "calls in messages, whose functions no graph has yet",
    "saved_model/tables.py": "the kinds of tables whose contents a function of the file can fill",
    "targets/native/grown.py": "a rule for each op on arrays of unknown length; forms of records have static shapes",
    "targets/native/tuples.py": "the ops that make and read optionals, which no other record of an op tells apart",
    "train/device_setter.py": "the default list of types of an argument of TensorFlow",
    "train/saving/nodes.py": MAKES,
    "train/scaffold.py": "the ops of tables and summaries that a session runs at its start",
    "train/supervisor.py": "the ops that make variables, which TensorFlow's check of their devices names",
}


def op_types() -> frozenset[str]:
    """The registered types, without the names of primitives and of structured kinds."""
    records = [op_registry.get(type) for type in op_registry]
    return frozenset(r.type for r in records) - {r.primitive for r in records} - {r.structured for r in records}


def displays(tree: ast.AST) -> Iterator[ast.expr]:
    """Constants of modules and classes, operands of `in` and dicts that are searched."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for each in node.body:
                if isinstance(each, (ast.Assign, ast.AnnAssign)) and each.value is not None:
                    targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                    if [ast.unparse(t) for t in targets] != ["__all__"]:
                        yield each.value
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Dict):
            yield node.value
        elif isinstance(node, ast.Compare):
            yield from (c for op, c in zip(node.ops, node.comparators) if isinstance(op, (ast.In, ast.NotIn)))


def has_table(tree: ast.AST, types: frozenset[str]) -> bool:
    """Whether a module has a table: a collection display with two op types or more."""
    for value in displays(tree):
        for node in ast.walk(value):
            parts: list[ast.expr] = []
            if isinstance(node, (ast.Set, ast.List, ast.Tuple)):
                parts = node.elts
            elif isinstance(node, ast.Dict):
                parts = [*filter(None, node.keys), *node.values]
            if sum(isinstance(p, ast.Constant) and p.value in types for p in parts) >= 2:
                return True
    return False


@pytest.mark.system
@pytest.mark.one_engine
def test_tables_of_op_types_are_those_with_a_reason() -> None:
    types = op_types()
    paths = [p for p in modules() if not p.startswith(FREE)]
    found = {p for p in paths if has_table(ast.parse((PACKAGE / p).read_text(encoding="utf-8")), types)}
    new = sorted(found - TABLES.keys())
    assert not new, f"new tables of op types; state the fact in the records (headrace.ir.opdef.Facts): {new}"
    gone = sorted(TABLES.keys() - found)
    assert not gone, f"modules without a table of op types, to be removed from TABLES: {gone}"
    assert all(TABLES.values())


@pytest.mark.parametrize(
    "source",
    [
        "_A = {'Neg', 'Square'}",
        "_A: Final = frozenset({'Neg', 'Square'})",
        "_A = {'Neg': f, 'Square': g}",
        "_A = {'sum': 'Neg', 'max': 'Square'}",
        "class C:\n  A = ('Neg', 'Square')",
        "def f(op):\n  return op.type in ('Neg', 'Square')",
        "def f(op):\n  return {'Neg': -1, 'Square': 2}.get(op.type)",
        "def f(op):\n  return {'Neg': -1, 'Square': 2}[op.type]",
        "def f(op):\n  return op.type not in ['Neg', 'Square', 'x']",
    ],
)
def test_a_table_is_found(source: str) -> None:
    assert has_table(ast.parse(source), frozenset({"Neg", "Square"}))


@pytest.mark.parametrize(
    "source",
    [
        "_A = 'Neg'",
        "__all__ = ['Neg', 'Square']",
        "neg = make('Neg', 'Square')",
        "def f(op):\n  return op.type in ('Neg', 'x')",
        "def f(b):\n  return [b.make(t) for t in ('Neg', 'Square')]",
    ],
)
def test_names_of_ops_to_make_are_no_table(source: str) -> None:
    assert not has_table(ast.parse(source), frozenset({"Neg", "Square"}))
