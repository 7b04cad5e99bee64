"""The method of conjugate gradients, which solves equations of a linear operator by products alone."""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace import dtypes
from headrace.v1 import array_ops, control_flow, math_ops
from headrace.v1.linear_operators.operator import LinearOperator
from headrace.v1.scoping import name_scope


class CGState(NamedTuple):
    """The result of `conjugate_gradient`.

    Attributes:
      i: number of iterations, int32.
      x: the solution.
      r: the rest of the right side.
      p: the last direction.
      gamma: product of `r` with the preconditioned `r`.
    """

    i: Any
    x: Any
    r: Any
    p: Any
    gamma: Any


def _dot(x: Any, y: Any) -> Any:
    return math_ops.reduce_sum(math_ops.conj(x) * y, axis=-1)


def conjugate_gradient(
    operator: LinearOperator,
    rhs: Any,
    preconditioner: LinearOperator | None = None,
    x: Any = None,
    tol: float = 1e-5,
    max_iter: int = 20,
    name: str = "conjugate_gradient",
) -> CGState:
    """Solves equations of a self-adjoint, positive definite operator by the method of conjugate gradients.

    Args:
      operator: the operator, whose hints say so.
      rhs: right sides, [..., n].
      preconditioner: an operator that approximates the inverse; None: the identity.
      x: the first guess, [..., n]; None: zeros.
      tol: the iterations end if the norm of the rest is at most so many times that of `rhs`.
      max_iter: the greatest number of iterations.
      name: name of the scope.

    Raises:
      ValueError: hints do not state that the operator is self-adjoint and positive definite.

    Source: TensorFlow's `tf.linalg.experimental.conjugate_gradient`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     diag = tf.linalg.LinearOperatorDiag([1.0, 2.0], is_positive_definite=True)
      ...     found = sess.run(tf.linalg.experimental.conjugate_gradient(diag, tf.constant([3.0, 4.0])))
      ...     found.i, found.x.round(3).tolist()
      (np.int32(2), [3.0, 2.0])
    """
    if not (operator.is_self_adjoint and operator.is_positive_definite):
        raise ValueError("Expected a self-adjoint, positive definite operator.")
    with name_scope(name):
        rhs = array_ops.convert_to_tensor(rhs, name="rhs")
        batch = array_ops.broadcast_dynamic_shape(array_ops.shape(rhs)[:-1], operator._batch_shape_tensor())
        if preconditioner is not None:
            batch = array_ops.broadcast_dynamic_shape(batch, preconditioner._batch_shape_tensor())
        rest = array_ops.broadcast_to(rhs, array_ops.concat([batch, array_ops.shape(rhs)[-1:]], 0))
        limit = tol * math_ops.norm(rest, axis=-1)
        if x is None:
            x = array_ops.zeros_like(rest)
        else:
            x = array_ops.convert_to_tensor(x, rhs.dtype)
            rest = rhs - operator.matvec(x)

        def improved(r: Any) -> Any:
            return r if preconditioner is None else preconditioner.matvec(r)

        def goes_on(state: CGState) -> Any:
            is_far = math_ops.reduce_any(math_ops.norm(state.r, axis=-1) > limit)
            return math_ops.logical_and(state.i < max_iter, is_far)

        def step(state: CGState) -> tuple[CGState]:
            z = operator.matvec(state.p)
            # a system of the batch that is solved exactly stays as it is: 0 / 0
            alpha = math_ops.div_no_nan(state.gamma, _dot(state.p, z))[..., None]
            r = state.r - alpha * z
            q = improved(r)
            gamma = _dot(r, q)
            p = q + math_ops.div_no_nan(gamma, state.gamma)[..., None] * state.p
            return (CGState(state.i + 1, state.x + alpha * state.p, r, p, gamma),)

        first = improved(rest)
        start = CGState(array_ops.constant(0, dtypes.int32), x, rest, first, _dot(rest, first))
        found: tuple[CGState] = control_flow.while_loop(goes_on, step, [start])
        return found[0]
