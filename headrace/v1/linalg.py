"""TensorFlow 1's `tf.linalg`."""

# ruff: noqa: F401 - the names are for importers of this module

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api import linalg
from headrace.v1.graph import in_default_graph
from headrace.v1.math_ops import adjoint as adjoint
from headrace.v1.math_ops import cholesky as cholesky
from headrace.v1.math_ops import cholesky_solve as cholesky_solve
from headrace.v1.math_ops import cross as cross
from headrace.v1.math_ops import einsum as einsum
from headrace.v1.math_ops import eye as eye
from headrace.v1.math_ops import global_norm as global_norm
from headrace.v1.math_ops import l2_normalize as l2_normalize
from headrace.v1.math_ops import matmul as matmul
from headrace.v1.math_ops import matrix_band_part as band_part
from headrace.v1.math_ops import matrix_determinant as det
from headrace.v1.math_ops import matrix_diag as diag
from headrace.v1.math_ops import matrix_diag_part as diag_part
from headrace.v1.math_ops import matrix_inverse as inv
from headrace.v1.math_ops import matrix_set_diag as set_diag
from headrace.v1.math_ops import matrix_solve as solve
from headrace.v1.math_ops import matrix_solve_ls as lstsq
from headrace.v1.math_ops import matrix_square_root as sqrtm
from headrace.v1.math_ops import matrix_transpose as matrix_transpose
from headrace.v1.math_ops import matrix_transpose as transpose
from headrace.v1.math_ops import matrix_triangular_solve as triangular_solve
from headrace.v1.math_ops import matvec as matvec
from headrace.v1.math_ops import norm as norm
from headrace.v1.math_ops import qr as qr
from headrace.v1.math_ops import self_adjoint_eig as eigh
from headrace.v1.math_ops import self_adjoint_eigvals as eigvalsh
from headrace.v1.math_ops import svd as svd
from headrace.v1.math_ops import tensor_diag as tensor_diag
from headrace.v1.math_ops import tensor_diag_part as tensor_diag_part
from headrace.v1.math_ops import tensordot as tensordot
from headrace.v1.math_ops import trace as trace

# *** equations ***

expm = in_default_graph(linalg.expm)
logdet = in_default_graph(linalg.logdet)
logm = in_default_graph(linalg.logm)
tridiagonal_matmul = in_default_graph(linalg.tridiagonal_matmul)
tridiagonal_solve = in_default_graph(linalg.tridiagonal_solve)

# *** decompositions ***

eigh_tridiagonal = in_default_graph(linalg.eigh_tridiagonal)
lu = in_default_graph(linalg.lu)
lu_matrix_inverse = in_default_graph(linalg.lu_matrix_inverse)
lu_reconstruct = in_default_graph(linalg.lu_reconstruct)
lu_solve = in_default_graph(linalg.lu_solve)
matrix_rank = in_default_graph(linalg.matrix_rank)
normalize = in_default_graph(linalg.normalize)
pinv = in_default_graph(linalg.pinv)
slogdet = in_default_graph(linalg.slogdet)

_OPERATORS = (
    "LinearOperator",
    "LinearOperatorAdjoint",
    "LinearOperatorBlockDiag",
    "LinearOperatorBlockLowerTriangular",
    "LinearOperatorCirculant",
    "LinearOperatorCirculant2D",
    "LinearOperatorCirculant3D",
    "LinearOperatorComposition",
    "LinearOperatorDiag",
    "LinearOperatorFullMatrix",
    "LinearOperatorHouseholder",
    "LinearOperatorIdentity",
    "LinearOperatorInversion",
    "LinearOperatorKronecker",
    "LinearOperatorLowRankUpdate",
    "LinearOperatorLowerTriangular",
    "LinearOperatorPermutation",
    "LinearOperatorScaledIdentity",
    "LinearOperatorToeplitz",
    "LinearOperatorTridiag",
    "LinearOperatorZeros",
)

# Imported on first use.
_LATER = {name: f"headrace.v1.linear_operators:{name}" for name in _OPERATORS} | {
    "experimental": "headrace.v1.linear_operators:experimental"
}

if TYPE_CHECKING:
    from headrace.v1.linear_operators import (
        LinearOperator,
        LinearOperatorAdjoint,
        LinearOperatorBlockDiag,
        LinearOperatorBlockLowerTriangular,
        LinearOperatorCirculant,
        LinearOperatorCirculant2D,
        LinearOperatorCirculant3D,
        LinearOperatorComposition,
        LinearOperatorDiag,
        LinearOperatorFullMatrix,
        LinearOperatorHouseholder,
        LinearOperatorIdentity,
        LinearOperatorInversion,
        LinearOperatorKronecker,
        LinearOperatorLowerTriangular,
        LinearOperatorLowRankUpdate,
        LinearOperatorPermutation,
        LinearOperatorScaledIdentity,
        LinearOperatorToeplitz,
        LinearOperatorTridiag,
        LinearOperatorZeros,
        experimental,
    )

# fmt: off
__all__ = [
    "LinearOperator", "LinearOperatorAdjoint", "LinearOperatorBlockDiag", "LinearOperatorBlockLowerTriangular",
    "LinearOperatorCirculant", "LinearOperatorCirculant2D", "LinearOperatorCirculant3D", "LinearOperatorComposition",
    "LinearOperatorDiag", "LinearOperatorFullMatrix", "LinearOperatorHouseholder", "LinearOperatorIdentity",
    "LinearOperatorInversion", "LinearOperatorKronecker", "LinearOperatorLowRankUpdate",
    "LinearOperatorLowerTriangular", "LinearOperatorPermutation", "LinearOperatorScaledIdentity",
    "LinearOperatorToeplitz", "LinearOperatorTridiag", "LinearOperatorZeros", "adjoint", "cholesky", "cholesky_solve",
    "cross", "eigh_tridiagonal", "einsum", "experimental", "expm", "eye", "global_norm", "l2_normalize", "logdet",
    "logm", "lu", "lu_matrix_inverse", "lu_reconstruct", "lu_solve", "matmul", "matrix_rank", "matrix_transpose",
    "matvec", "norm", "normalize", "pinv", "qr", "slogdet", "svd", "tensor_diag", "tensor_diag_part", "tensordot",
    "trace", "tridiagonal_matmul", "tridiagonal_solve",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
