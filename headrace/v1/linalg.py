"""TensorFlow 1's `tf.linalg`, as far as there are ops for it."""

# ruff: noqa: F401 - the names are for whoever imports this

from headrace.v1.math_ops import adjoint as adjoint
from headrace.v1.math_ops import cross as cross
from headrace.v1.math_ops import einsum as einsum
from headrace.v1.math_ops import eye as eye
from headrace.v1.math_ops import global_norm as global_norm
from headrace.v1.math_ops import l2_normalize as l2_normalize
from headrace.v1.math_ops import matmul as matmul
from headrace.v1.math_ops import matrix_band_part as band_part
from headrace.v1.math_ops import matrix_diag as diag
from headrace.v1.math_ops import matrix_diag_part as diag_part
from headrace.v1.math_ops import matrix_set_diag as set_diag
from headrace.v1.math_ops import matrix_transpose as matrix_transpose
from headrace.v1.math_ops import matrix_transpose as transpose
from headrace.v1.math_ops import matvec as matvec
from headrace.v1.math_ops import norm as norm
from headrace.v1.math_ops import tensor_diag as tensor_diag
from headrace.v1.math_ops import tensor_diag_part as tensor_diag_part
from headrace.v1.math_ops import tensordot as tensordot
from headrace.v1.math_ops import trace as trace
