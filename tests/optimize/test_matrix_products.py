"""Sums of products over one dimension become products of matrices."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.optimize.matrix_products import MultiplyMatrices
from tests.optimize.loop_steps import Optimized, close, optimize
from tests.optimize.running import apply, unchanged

RNG = np.random.default_rng(0)


def einsum(equation: str, *dims: Any, passes: Any = None) -> Optimized:
    with hr.Graph():
        xs = [hr.placeholder(hr.float32, d) for d in dims]
        return optimize(
            xs, [scopes.builder().Einsum(xs, equation=equation)], [MultiplyMatrices()] if passes is None else passes
        )


def types(made: Optimized) -> collections.Counter[str]:
    return collections.Counter(op.type for op in made.graph.operations if op.type not in ("Const", "_Arg", "_Retval"))


@pytest.mark.parametrize(
    ("equation", "dims", "reshapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)], 0),
        ("ij,kj->ik", [(2, 3), (4, 3)], 0),
        ("ji,jk->ik", [(3, 2), (3, 4)], 0),
        ("ji,kj->ki", [(3, 2), (4, 3)], 0),
        ("ij,jk->ki", [(2, 3), (3, 4)], 0),
        ("bti,ij->btj", [(2, 5, 3), (3, 4)], 2),
        ("btj,ij->bti", [(2, 5, 3), (4, 3)], 2),
        ("ij,jkl->ikl", [(2, 3), (3, 4, 5)], 2),
        ("jab,cdj->cdab", [(3, 2, 4), (5, 1, 3)], 3),
    ],
)
def test_an_einsum_over_one_dimension_is_a_product_of_matrices(equation: str, dims: Any, reshapes: int) -> None:
    made = einsum(equation, *dims)
    assert types(made) == {"MatMul": 1, **({"Reshape": reshapes} if reshapes else {})}
    values = [RNG.standard_normal(d).astype(np.float32) for d in dims]
    (result,) = made.run(values)
    assert result.shape == np.einsum(equation, *values).shape
    close([result], einsum(equation, *dims, passes=()).run(values), 1e-6)


@pytest.mark.parametrize(
    ("equation", "dims", "made"),
    [
        ("ij,jk->i", [(2, 3), (3, 4)], {}),
        ("ij,ij->ij", [(2, 3), (2, 3)], {"Mul": 1}),
        ("ij,ij->i", [(2, 3), (2, 3)], {"Mul": 1, "Sum": 1}),
        ("ij,ji->", [(2, 3), (3, 2)], {"Mul": 1, "Sum": 1, "Transpose": 1}),
        ("ij,j->i", [(2, 3), (3,)], {"MatMul": 1, "Reshape": 2}),
        ("i,j->ij", [(2,), (3,)], {"Mul": 1, "Reshape": 2}),
        ("i,j->ji", [(2,), (3,)], {"Mul": 1, "Reshape": 2}),
        ("bi,bj->bij", [(2, 3), (2, 4)], {"Mul": 1, "Reshape": 2}),
        ("bij,bjk->bik", [(2, 2, 3), (2, 3, 4)], {"BatchMatMulV2": 1}),
        ("bji,bkj->bki", [(2, 3, 2), (2, 4, 3)], {"BatchMatMulV2": 1}),
        ("abij,abjk->abik", [(2, 3, 2, 3), (2, 3, 3, 4)], {"BatchMatMulV2": 1}),
        ("tbh,bh->bt", [(5, 2, 3), (2, 3)], {"BatchMatMulV2": 1, "Reshape": 2, "Transpose": 1}),
        ("bt,tbh->bh", [(2, 5), (5, 2, 3)], {"BatchMatMulV2": 1, "Reshape": 2, "Transpose": 1}),
        ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)], {"BatchMatMulV2": 1}),
        ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)], {"BatchMatMulV2": 1, "Transpose": 2}),
        ("ajb,jk->abk", [(2, 3, 4), (3, 5)], {"MatMul": 1, "Reshape": 2, "Transpose": 1}),
        ("abj,jk->bak", [(2, 4, 3), (3, 5)], {"MatMul": 1, "Reshape": 2, "Transpose": 1}),
        ("aij,ijk->ak", [(2, 4, 3), (4, 3, 5)], {"MatMul": 1, "Reshape": 2}),
        ("aij,jik->ak", [(2, 4, 3), (3, 4, 5)], {"MatMul": 1, "Reshape": 2, "Transpose": 1}),
    ],
)
def test_other_sums_of_products(equation: str, dims: Any, made: dict[str, int]) -> None:
    found = einsum(equation, *dims)
    assert types(found) == (made or {"Einsum": 1})
    values = [RNG.standard_normal(d).astype(np.float32) for d in dims]
    (result,) = found.run(values)
    assert result.shape == np.einsum(equation, *values).shape
    close([result], einsum(equation, *dims, passes=()).run(values), 1e-6)


@pytest.mark.parametrize(
    ("equation", "dims"),
    [
        ("ij->ji", [(2, 3)]),
        ("ii,ij->j", [(3, 3), (3, 4)]),
        ("...j,jk->...k", [(2, 4, 3), (3, 5)]),
        ("ij,jk->ik", [(2, 0), (0, 4)]),
        ("ij,jk->ik", [(None, 3), (3, 4)]),
        ("ij,jk->ik", [None, (3, 4)]),
    ],
)
def test_other_sums_stay(equation: str, dims: Any) -> None:
    assert not einsum(equation, *dims).changed


TEXT = """
x = Placeholder[dtype=float32, shape=[2,3]]
y = Placeholder[dtype=float32, shape=[3,2]]
z = Einsum[equation="ij,jk->ik"](x, y)
r = _Retval[index=0](z)
"""


def test_the_product_has_the_scope_of_the_name_and_the_report_the_equation() -> None:
    after, context = apply(MultiplyMatrices(), TEXT)
    assert "z/product = MatMul" in after
    assert [n.text for n in context.notes] == ["'ij,jk->ik' is a product of matrices"]


@pytest.mark.parametrize("more", [" ^x", ' @"/device:GPU:0"'])
def test_an_einsum_that_waits_or_asks_for_another_device_stays(more: str) -> None:
    unchanged(MultiplyMatrices(), TEXT.replace("(x, y)", "(x, y)" + more))


def test_a_colocated_einsum_and_a_target_stay() -> None:
    unchanged(MultiplyMatrices(), TEXT.replace('ik"]', 'ik", _class=("loc:@x")]'))
    unchanged(MultiplyMatrices(), TEXT, preserved=["z"])
