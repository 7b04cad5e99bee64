"""TensorFlow's linear operators: `tf.linalg.LinearOperator` and its classes.

`operator` is their base and `hints` has the hints of products. `diagonal`, `dense` and `circulant` have the operators
of tensors, `products` and `blocks` those of other operators. `conjugate_gradient` solves equations by products alone.
"""

from headrace.v1.linear_operators.blocks import LinearOperatorBlockDiag as LinearOperatorBlockDiag
from headrace.v1.linear_operators.blocks import (
    LinearOperatorBlockLowerTriangular as LinearOperatorBlockLowerTriangular,
)
from headrace.v1.linear_operators.circulant import LinearOperatorCirculant as LinearOperatorCirculant
from headrace.v1.linear_operators.circulant import LinearOperatorCirculant2D as LinearOperatorCirculant2D
from headrace.v1.linear_operators.circulant import LinearOperatorCirculant3D as LinearOperatorCirculant3D
from headrace.v1.linear_operators.circulant import LinearOperatorToeplitz as LinearOperatorToeplitz
from headrace.v1.linear_operators.conjugate_gradient import conjugate_gradient
from headrace.v1.linear_operators.dense import LinearOperatorFullMatrix as LinearOperatorFullMatrix
from headrace.v1.linear_operators.dense import LinearOperatorHouseholder as LinearOperatorHouseholder
from headrace.v1.linear_operators.dense import LinearOperatorLowerTriangular as LinearOperatorLowerTriangular
from headrace.v1.linear_operators.dense import LinearOperatorPermutation as LinearOperatorPermutation
from headrace.v1.linear_operators.dense import LinearOperatorTridiag as LinearOperatorTridiag
from headrace.v1.linear_operators.diagonal import LinearOperatorDiag as LinearOperatorDiag
from headrace.v1.linear_operators.diagonal import LinearOperatorIdentity as LinearOperatorIdentity
from headrace.v1.linear_operators.diagonal import LinearOperatorScaledIdentity as LinearOperatorScaledIdentity
from headrace.v1.linear_operators.diagonal import LinearOperatorZeros as LinearOperatorZeros
from headrace.v1.linear_operators.operator import LinearOperator as LinearOperator
from headrace.v1.linear_operators.products import LinearOperatorAdjoint as LinearOperatorAdjoint
from headrace.v1.linear_operators.products import LinearOperatorComposition as LinearOperatorComposition
from headrace.v1.linear_operators.products import LinearOperatorInversion as LinearOperatorInversion
from headrace.v1.linear_operators.products import LinearOperatorKronecker as LinearOperatorKronecker
from headrace.v1.linear_operators.products import LinearOperatorLowRankUpdate as LinearOperatorLowRankUpdate


class experimental:
    """TensorFlow's `tf.linalg.experimental`."""

    conjugate_gradient = staticmethod(conjugate_gradient)
