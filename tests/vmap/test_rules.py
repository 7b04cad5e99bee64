"""Batching rules of all op records, compared with the ops applied to each example alone.

The examples are the cases of the records, and variants of them: elements in another order. Every choice of inputs that
differ between the examples is tried, with a known and an unknown number of examples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import OpError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Tensor
from headrace.ir.opdef import Case, OpDef, op_registry
from headrace.opkit.batch_node import BatchNode, Independent, NoBatchRule, SameForAll
from headrace.opkit.batch_rules import rule_of
from tests.ops.cases import assert_close, cases, dtype_of, evaluate, flat, make, placeholder, records, sampled

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

DTYPES: dict[str, list[DType]] = {}
for _type, _dtype in sampled():
    if callable(rule_of(op_registry.get(_type))) and op_registry.get(_type).is_pure:
        DTYPES.setdefault(_type, []).append(_dtype)

EXAMPLES = 3


def test_most_op_types_of_functions_have_a_rule() -> None:
    with_rule = [r.type for r in records() if callable(rule_of(r))]
    figure = f"{len(with_rule)} of the {len(records()):,} op types"
    print(f"{figure} have a batching rule")
    page = Path(__file__).parent.parent.parent / "docs" / "learn" / "vmap.md"
    assert figure in page.read_text(encoding="utf-8")
    assert len(with_rule) >= 400


def variants(case: Case, kinds: str) -> list[list[np.ndarray]]:
    """Inputs of several examples: those of a case, with the elements in other orders."""
    first = flat(case.inputs)
    return [[np.roll(x, k) if x.dtype.kind in kinds else x for x in first] for k in range(EXAMPLES)]


def chosen(n: int) -> Iterator[tuple[bool, ...]]:
    """Sets of inputs that differ between the examples."""
    if n <= 4:
        yield from (flags for flags in itertools.product((False, True), repeat=n) if any(flags))
        return
    yield (True,) * n
    for i in range(n):
        yield tuple(k == i for k in range(n))


def of_examples(record: OpDef, case: Case, examples: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """The outputs for each example alone."""
    out = []
    for inputs in examples:
        b = Builder(Graph())
        op = make(b, record, case, [b.const(x, dtype_of(y)) for x, y in zip(inputs, flat(case.inputs), strict=True)])
        with np.errstate(all="ignore"):
            out.append(evaluate(op.outputs, {}))
    return out


def check(record: OpDef, case: Case, flags: Sequence[bool], is_static: bool) -> str:
    """Compares the rule with each example alone.

    Returns:
      The reason why the rule does not apply, or "".
    """
    given = flat(case.inputs)
    wants: list[list[np.ndarray]] = []
    for kinds in ("fcVbiuO", "fcVb", ""):  # an order of the integers may be no valid input, or give other shapes
        examples = [
            [x if is_batched else y for x, y, is_batched in zip(inputs, given, flags, strict=True)]
            for inputs in variants(case, kinds)
        ]
        try:
            wants = of_examples(record, case, examples)
        except (OpError, ValueError, IndexError):
            continue
        if all(x.shape == y.shape for want in wants for x, y in zip(want, wants[0], strict=True)):
            break
    one = Builder(Graph())
    op = make(one, record, case, [one.const(x, dtype_of(x)) for x in given])
    b = Builder(Graph())
    fed: dict[Tensor, np.ndarray] = {}
    inputs: list[Tensor] = []
    for i, (x, is_batched) in enumerate(zip(given, flags, strict=True)):
        if not is_batched:
            inputs.append(b.const(x, dtype_of(x)))
            continue
        rows = np.stack([np.asarray(e[i]) for e in examples])
        t = placeholder(b, x, (EXAMPLES if is_static else None, *x.shape))
        inputs.append(t)
        fed[t] = rows
    size: Any = EXAMPLES
    if not is_static:
        size = b.Placeholder(dtype=dtypes.int32, shape=())
        fed[size] = np.int32(EXAMPLES)
    node = BatchNode(b, op, inputs, flags, size)
    rule: Any = rule_of(record)
    try:
        made = list(rule(b, node))
    except NoBatchRule as e:
        return str(e)
    where = f"{record.type} {[f'{x.dtype}{x.shape}' for x in given]} {dict(case.attrs)} {flags} {is_static}"
    assert len(made) == len(op.outputs), where
    found = evaluate([b.tensor(t) for t in made], fed)
    for k, value in enumerate(found):
        if isinstance(rule, SameForAll):
            for want in wants:
                assert_close(value, want[k], where)
        else:
            assert_close(value, np.stack([want[k] for want in wants]), where)
    return ""


def some(found: list[DType]) -> list[DType]:
    """At most three dtypes, of different kinds."""
    usual = [d for d in found if d in (dtypes.float32, dtypes.int32, dtypes.complex64)]
    return usual or found[:2]


@pytest.mark.parametrize("type", DTYPES)
def test_rule_gives_what_each_example_alone_gives(type: str) -> None:
    record = op_registry.get(type)
    applied = 0
    for dtype in some(DTYPES[type]):
        for case in cases(type, dtype)[:8]:
            if isinstance(rule_of(record), Independent) or any(x.size == 0 for x in flat(case.inputs)):
                continue
            for flags in chosen(len(flat(case.inputs))):
                for is_static in (True, False):
                    applied += not check(record, case, flags, is_static)
    assert applied, f"the rule of {type} applies to no case"
