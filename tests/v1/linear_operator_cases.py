"""Linear operators for TensorFlow 1 or `headrace.v1`, by name.

python tests/v1/linear_operator_cases.py              # with TensorFlow: writes linear_operator_values.json
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).parent / "linear_operator_values.json"
METHODS = (
    "to_dense", "diag_part", "trace", "determinant", "log_abs_determinant", "cond", "eigvals", "shape_tensor",
    "batch_shape_tensor", "tensor_rank_tensor", "domain_dimension_tensor", "range_dimension_tensor",
)  # fmt: skip


def _positive(rng: Any, *shape: int) -> Any:
    x = rng.normal(size=shape)
    return x @ np.swapaxes(x, -1, -2) + 2 * np.eye(shape[-1])


def operators(tf: Any) -> dict[str, Callable[[], Any]]:
    """Functions that make operators, by name."""
    op = tf.linalg
    rng = np.random.default_rng(3)
    square, batch, positive = rng.normal(size=(3, 3)), rng.normal(size=(2, 3, 3)), _positive(rng, 3, 3)
    wide, small = rng.normal(size=(2, 3)), _positive(rng, 2, 2)
    diag, col, row = rng.normal(size=(2, 3)), rng.normal(size=(2, 4)), rng.normal(size=(4,))
    row[0] = col[0, 0] = col[1, 0] = 1.5
    u, v = rng.normal(size=(3, 2)), rng.normal(size=(3, 2))
    complex_square = square + 1j * rng.normal(size=(3, 3))
    spectrum = np.fft.fft(rng.normal(size=(2, 4))).astype(np.complex64)
    spd = {"is_self_adjoint": True, "is_positive_definite": True}

    def full(x: Any, **hints: Any) -> Any:
        return op.LinearOperatorFullMatrix(x, **hints)

    return {
        "full": lambda: full(square),
        "full positive": lambda: full(positive, **spd),
        "full batch": lambda: full(batch),
        "full complex": lambda: full(complex_square),
        "full wide": lambda: full(wide),
        "diag": lambda: op.LinearOperatorDiag(diag),
        "diag positive": lambda: op.LinearOperatorDiag(diag**2 + 1, is_positive_definite=True),
        "diag complex": lambda: op.LinearOperatorDiag(diag + 1j),
        "identity": lambda: op.LinearOperatorIdentity(3, dtype="float64"),
        "identity batch": lambda: op.LinearOperatorIdentity(3, [2], "float64"),
        "scaled": lambda: op.LinearOperatorScaledIdentity(3, np.array([2.0, -3.0])),
        "zeros": lambda: op.LinearOperatorZeros(3, dtype="float64"),
        "lower": lambda: op.LinearOperatorLowerTriangular(batch),
        "tridiag": lambda: op.LinearOperatorTridiag(square),
        "tridiag batch": lambda: op.LinearOperatorTridiag(batch, "compact"),
        "tridiag sequence": lambda: op.LinearOperatorTridiag([diag, diag + 3, diag - 1], "sequence"),
        "tridiag matrix": lambda: op.LinearOperatorTridiag(
            np.triu(np.tril(batch, 1), -1), "matrix"
        ),
        "householder": lambda: op.LinearOperatorHouseholder(diag),
        "permutation": lambda: op.LinearOperatorPermutation([2, 0, 1], "float64"),
        "permutation batch": lambda: op.LinearOperatorPermutation([[2, 0, 1], [1, 0, 2]], "float64"),
        "toeplitz": lambda: op.LinearOperatorToeplitz(col[0], row),
        "toeplitz batch": lambda: op.LinearOperatorToeplitz(col, row),
        "circulant": lambda: op.LinearOperatorCirculant(spectrum),
        "circulant of reals": lambda: op.LinearOperatorCirculant(np.fft.fft(col[0]), "float64"),
        "circulant self-adjoint": lambda: op.LinearOperatorCirculant(diag**2 + 1, "complex128"),
        "circulant 2D": lambda: op.LinearOperatorCirculant2D((np.fft.fft2(wide) + 4).astype(np.complex64)),
        "circulant 3D": lambda: op.LinearOperatorCirculant3D((np.fft.fftn(wide[None]) + 4).astype(np.complex64)),
        "adjoint": lambda: op.LinearOperatorAdjoint(full(complex_square)),
        "inversion": lambda: op.LinearOperatorInversion(full(square)),
        "composition": lambda: op.LinearOperatorComposition([full(square), full(batch), full(positive)]),
        "composition wide": lambda: op.LinearOperatorComposition([full(wide), full(batch)]),
        "kronecker": lambda: op.LinearOperatorKronecker([full(batch), full(small), full(square)]),
        "kronecker positive": lambda: op.LinearOperatorKronecker([full(positive, **spd), full(small, **spd)]),
        "kronecker wide": lambda: op.LinearOperatorKronecker([full(wide), full(square)]),
        "low rank": lambda: op.LinearOperatorLowRankUpdate(full(positive, **spd), u),
        "low rank of diagonals": lambda: op.LinearOperatorLowRankUpdate(
            op.LinearOperatorDiag(diag**2 + 1, is_positive_definite=True), u, np.array([1.0, -2.0]), v
        ),
        "block diag": lambda: op.LinearOperatorBlockDiag([full(batch), full(small)]),
        "block diag positive": lambda: op.LinearOperatorBlockDiag([full(positive, **spd), full(small, **spd)]),
        "block lower": lambda: op.LinearOperatorBlockLowerTriangular([[full(square)], [full(wide), full(small)]]),
    }  # fmt: skip


def results(tf: Any, operator: Any) -> dict[str, Any]:
    """Results of the methods of an operator, and its hints."""
    rng = np.random.default_rng(4)
    rows, columns = operator.shape[-2:]
    dtype = operator.dtype.as_numpy_dtype

    def some(*shape: Any) -> Any:
        return rng.normal(size=tuple(int(n) for n in shape)).astype(dtype)

    found: dict[str, Any] = {}

    def attempt(name: str, f: Callable[[], Any]) -> None:
        try:
            found[name] = f()
        except (ValueError, NotImplementedError, TypeError) as e:
            found[name] = type(e).__name__

    for method in METHODS:
        attempt(method, getattr(operator, method))
    x, y = some(columns, 2), some(rows, 2)
    attempt("matmul", lambda: operator.matmul(x))
    attempt("matmul of a batch", lambda: operator.matmul(np.stack([x, -x])))
    attempt("matmul adjoint", lambda: operator.matmul(y, adjoint=True))
    attempt("matmul adjoint_arg", lambda: operator.matmul(x.T, adjoint_arg=True))
    attempt("matvec", lambda: operator.matvec(x[:, 0]))
    attempt("matvec adjoint", lambda: operator.matvec(y[:, 0], adjoint=True))
    attempt("solve", lambda: operator.solve(y))
    attempt("solve of a batch", lambda: operator.solve(np.stack([y, -y])))
    attempt("solve adjoint", lambda: operator.solve(x, adjoint=True))
    attempt("solve adjoint_arg", lambda: operator.solve(y.T, adjoint_arg=True))
    attempt("solvevec", lambda: operator.solvevec(y[:, 0]))
    attempt("add_to_tensor", lambda: operator.add_to_tensor(some(rows, columns)))
    attempt("adjoint", lambda: operator.adjoint().to_dense())
    attempt("inverse", lambda: operator.inverse().to_dense())
    attempt("cholesky", lambda: operator.cholesky().to_dense())
    attempt("square", lambda: operator.matmul(operator).to_dense())
    attempt("quotient", lambda: operator.solve(operator).to_dense())
    for hint in ("is_square", "is_non_singular", "is_self_adjoint", "is_positive_definite"):
        found[hint] = str(getattr(operator, hint))
    found["shape"] = str(operator.shape.as_list())
    return found


def checks(tf: Any) -> dict[str, Callable[[], Any]]:
    """Functions that make the operations of checks, by name."""
    op = tf.linalg
    singular, skew = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[0.0, 1.0], [-1.0, 0.0]])
    return {
        "singular": lambda: op.LinearOperatorFullMatrix(singular).assert_non_singular(),
        "regular": lambda: op.LinearOperatorFullMatrix(skew).assert_non_singular(),
        "indefinite": lambda: op.LinearOperatorDiag([1.0, -1.0]).assert_positive_definite(),
        "definite": lambda: op.LinearOperatorDiag([1.0, 2.0]).assert_positive_definite(),
        "skew": lambda: op.LinearOperatorFullMatrix(skew).assert_self_adjoint(),
        "symmetric": lambda: op.LinearOperatorFullMatrix(singular).assert_self_adjoint(),
        "zero on the diagonal": lambda: op.LinearOperatorLowerTriangular([[0.0, 0], [1, 1]]).assert_non_singular(),
        "zeros": lambda: op.LinearOperatorZeros(2).assert_non_singular(),
        "kronecker": lambda: op.LinearOperatorKronecker(
            [op.LinearOperatorDiag([1.0, 0.0]), op.LinearOperatorDiag([1.0])]
        ).assert_non_singular(),
    }  # fmt: skip


def plain(value: Any) -> Any:
    """Lists of a fetched value; complex numbers are pairs."""
    if isinstance(value, (str, list)):
        return value
    x = np.asarray(value)
    return [x.real.tolist(), x.imag.tolist()] if x.dtype.kind == "c" else x.tolist()


def outcome(tf: Any, session: Any, make: Callable[[], Any]) -> str:
    """Name of the error of a check, or ""."""
    try:
        session.run(make())
    except (tf.errors.InvalidArgumentError, ValueError, NotImplementedError) as e:
        return type(e).__name__
    return ""


def computed(tf: Any, session: Any, make: Callable[[], Any]) -> dict[str, Any]:
    """Values of `results`; the names of errors, and hints, are as they are."""
    found = results(tf, make())
    tensors = {k: tf.convert_to_tensor(x) for k, x in found.items() if not isinstance(x, str)}
    return found | session.run(tensors)


if __name__ == "__main__":
    import importlib

    tensorflow: Any = importlib.import_module("tensorflow.compat.v1")
    tensorflow.disable_eager_execution()
    with tensorflow.Graph().as_default(), tensorflow.Session() as s:
        values = {
            name: {k: plain(x) for k, x in computed(tensorflow, s, make).items()}
            for name, make in operators(tensorflow).items()
        }
        values["checks"] = {name: outcome(tensorflow, s, make) for name, make in checks(tensorflow).items()}
    VALUES.write_text(json.dumps(values) + "\n", encoding="utf-8")
