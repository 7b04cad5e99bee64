"""Gradients with respect to variables in eager execution.

In eager execution a loss is a function, and its operations on variables run immediately. To differentiate it, the
optimizer calls it in a new graph. During the call each variable has the attributes of a substitute in that graph, so
that reads, gathers and assignments become operations. Then the graph runs with the variables' values, and the variables
get their own attributes back. Assignments of the loss are applied to the variables afterwards.

A variable can be in one such graph at a time, so two threads must not differentiate with respect to the same variable
at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace import nest
from headrace.api import scopes
from headrace.api.variable import Variable
from headrace.grad.gradients import make_gradients
from headrace.ir.graph import Tensor
from headrace.ir.indexed_slices import IndexedSlices


def eager_gradients(loss: Callable[[], Any], variables: Sequence[Variable], grad_loss: Any = None) -> list[Any]:
    """Computes the gradients of the result of `loss()` with respect to eager variables.

    Args:
      loss: function without arguments that returns a floating point tensor.
      variables: all variables that the function uses. It may read them, gather from them and assign to them.
      grad_loss: gradient of the result, a tensor of its shape. None: ones.

    Returns:
      For each variable an eager tensor, an `IndexedSlices` of eager tensors, or None. The gradient is None for a
      variable that is not trainable, or on which the result does not depend.
    """
    graph = scopes.Graph()
    values = [v.value() for v in variables]
    with graph:
        firsts = [_placeholder(value) for value in values]
        stand_ins = [
            Variable(first, shape=v.shape, validate_shape=v.shape is not None, constraint=v.constraint)
            for first, v in zip(firsts, variables, strict=True)
        ]
        for first, v in zip(firsts, stand_ins, strict=True):
            v.assign(first, read_value=False)  # automatic order: reads of the variable run this assignment first
        count = len(graph.operations)
        with _lent(variables, stand_ins):
            y = scopes.builder().tensor(loss())
        # an operation in a branch or a loop body may assign to a variable, too
        writes = any(op.opdef.facts.writes or op.opdef.structured for op in graph.operations[count:])
        trained = [other for other, v in zip(stand_ins, variables, strict=True) if v.trainable]
        of = iter(make_gradients(y, trained, grad_loss, None, "none", "gradients", allows_integers=True))
        grads = [next(of) if v.trainable else None for v in variables]
        after = [v.read_value() for v in stand_ins] if writes else []
    leaves = [t for t in nest.flatten([_parts(g) for g in grads]) if isinstance(t, Tensor)]
    with scopes.runtime().session(graph=graph) as session:
        feeds = dict(zip(firsts, [x.numpy() for x in values], strict=True))
        found, changed = session.run([leaves, after], feeds)
    for v, new in zip(variables, changed, strict=False):
        v.assign(new)
    make = scopes.runtime().eager.const
    eager = {t: make(x, t.dtype.base) for t, x in zip(leaves, found, strict=True)}
    return [_like(g, eager) for g in grads]


def _placeholder(like: Any) -> Any:
    return scopes.builder().make("Placeholder", (), {"dtype": like.dtype, "shape": like.shape}, "value")


def _parts(grad: Any) -> list[Any]:
    return [grad.values, grad.indices, grad.dense_shape] if isinstance(grad, IndexedSlices) else [grad]


def _like(grad: Any, eager: dict[Tensor, Any]) -> Any:
    if isinstance(grad, IndexedSlices):
        shape = None if grad.dense_shape is None else eager[grad.dense_shape]
        return IndexedSlices(eager[grad.values], eager[grad.indices], shape)
    return None if grad is None else eager[grad]


@contextlib.contextmanager
def _lent(variables: Sequence[Variable], stand_ins: Sequence[Variable]) -> Iterator[None]:
    """Gives each variable the attributes of its stand-in, within the context."""
    own = [dict(vars(v)) for v in variables]
    try:
        for v, other in zip(variables, stand_ins, strict=True):
            vars(v).update({**vars(other), "trainable": v.trainable})
        yield
    finally:
        for v, attributes in zip(variables, own, strict=True):
            vars(v).clear()
            vars(v).update(attributes)
