"""`hr.linalg`: linear algebra.

`matrices` has products and diagonals, `norms` has norms, `equations` has solvers, inverses and matrix functions, and
`decompositions` has factorizations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api.linalg.decompositions import (
    LU,
    QR,
    SignAndLog,
    cholesky,
    eig,
    eigh,
    eigh_tridiagonal,
    eigvals,
    eigvalsh,
    lu,
    lu_matrix_inverse,
    lu_reconstruct,
    lu_solve,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    svd,
)
from headrace.api.linalg.equations import (
    banded_triangular_solve,
    cholesky_solve,
    det,
    expm,
    inv,
    logdet,
    logm,
    lstsq,
    solve,
    sqrtm,
    triangular_solve,
    tridiagonal_matmul,
    tridiagonal_solve,
)
from headrace.api.linalg.matrices import (
    adjoint,
    band_part,
    cross,
    diag,
    diag_part,
    einsum,
    eye,
    matmul,
    matrix_transpose,
    matvec,
    set_diag,
    tensor_diag,
    tensor_diag_part,
    tensordot,
    trace,
)
from headrace.api.linalg.norms import clip_by_global_norm, clip_by_norm, global_norm, l2_normalize, norm, normalize

__all__ = [
    "LU", "QR", "SignAndLog", "adjoint", "band_part", "banded_triangular_solve", "cholesky", "cholesky_solve",
    "clip_by_global_norm", "clip_by_norm", "cross", "det", "diag", "diag_part", "eig", "eigh", "eigh_tridiagonal",
    "eigvals", "eigvalsh", "einsum", "expm", "eye", "global_norm", "inv", "l2_normalize", "logdet", "logm", "lstsq",
    "lu", "lu_matrix_inverse", "lu_reconstruct", "lu_solve", "matmul", "matrix_rank", "matrix_transpose", "matvec",
    "norm", "normalize", "pinv", "qr", "set_diag", "slogdet", "solve", "sqrtm", "svd", "tensor_diag",
    "tensor_diag_part", "tensordot", "trace", "triangular_solve", "tridiagonal_matmul", "tridiagonal_solve",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
