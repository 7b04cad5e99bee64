"""Forward mode: from how the xs move to how the ys move with them.

A *tangent* of a tensor is a tensor of the same shape: how it changes per step along some direction. The walk goes with
the edges, each operation after those it depends on, and asks each for the tangents of its outputs, those of its inputs
being known. So tangents are computed beside the values, and nothing has to be kept for later: forward mode needs the
memory of one derivative where reverse mode needs that of the whole computation. In return it gives the derivatives of
all ys in one direction only.

An operation's rule comes from its record, in one of three ways.

1. `jvp=rule`. For most operations that is the operation itself, applied to the tangents (`opkit.jvp_rules`).
2. `jvp=SYMMETRIC`. Let J be the matrix of the derivatives. Reverse mode knows the product with its transpose: the rule
   `grad` makes of u the vector Jᵀu. An elementwise function has J = Jᵀ, if its arguments are first broadcast to the
   shape of the result; so its gradient rule, given the tangent for u, gives the tangent.
3. Neither: the transpose of the transpose. Jᵀu is linear in u, whatever u is, so its derivative with respect to u is
   Jᵀ itself, and the reverse walk through what the gradient rule made, begun with the tangent dx, ends at u with
   (Jᵀ)ᵀdx = J dx. All of this happens while the graph is made; what the gradient rule made is not even computed, except
   what the tangent needs of it. Gradients of users (`RegisterGradient`, `custom_gradient`) get tangents in this way.

Conditionals, loops and calls grow (`forward_loops`).

Source: the third way is that of J. Townsend, "A new trick for calculating Jacobian vector products" (2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import shapes
from headrace.errors import GraphError
from headrace.grad import forward_loops, registered
from headrace.grad.activity import carries
from headrace.grad.backward import backward
from headrace.grad.sums import dense
from headrace.grad.zeros import gradient_dtype, gradient_shape, zeros_for
from headrace.ir import walk
from headrace.ir.grad_node import GradNode
from headrace.ir.opdef import SYMMETRIC, Missing
from headrace.opkit.elementwise import alike
from headrace.opkit.jvp_rules import stretched

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor

# A kind of structured operation -> what makes its tangents; see `forward_loops.of_branches`.
_STRUCTURED: dict[str, Callable[..., list[Tensor | None]]] = {
    "If": forward_loops.of_branches,
    "Case": forward_loops.of_branches,
    "RemoteCall": forward_loops.of_branches,
    "While": forward_loops.of_loop,
    "Call": forward_loops.of_call,
    "For": forward_loops.of_for,
    "SymbolicGradient": forward_loops.of_symbolic,
}


def forward(
    b: Builder, xs: Sequence[Tensor], dxs: Sequence[Tensor | None], ys: Sequence[Tensor]
) -> list[Tensor | None]:
    """The tangents of `ys`, where those of `xs` are `dxs`; None where nothing leads from one to the other.

    Args:
      b: makes the operations, in the graph of `xs` and `ys` or in one inside it, where the `dxs` may be. Conditionals
        and loops on the way grow.
      xs, dxs: tensors, and the tangent of each (None: none): of its dtype and shape; for the handle of a variable, of
        those of its value. If one of `xs` lies on the way from another, its tangent comes to what flows there.
      ys: tensors of the same graph.

    Raises:
      LookupError: an operation on the way has no derivative; the text says why, and what to do.
      GraphError: a rule gave what does not fit.
    """
    parts: dict[Tensor, Tensor] = {}
    for x, dx in zip(xs, dxs, strict=True):
        if dx is not None and carries(x.dtype):
            parts[x] = _plus(b, parts.get(x), _fitting(b, x.op, x, dx))
    wanted = _leading_to(ys)
    for op in walk.in_order({t.op for t in wanted}):
        given = [parts.get(t) for t in op.inputs]
        asked = [t in wanted and carries(t.dtype) for t in op.outputs]
        if any(asked) and any(dx is not None for dx in given):
            at = b.within(f"{op.name}_tangent", op.source)
            for y, dy, ask in zip(op.outputs, _of_operation(at, op, given, asked), asked, strict=True):
                if dy is not None and ask:
                    parts[y] = _plus(at, parts.get(y), _fitting(at, op, y, dy))
    return [parts.get(y) for y in ys]


def _leading_to(ys: Sequence[Tensor]) -> set[Tensor]:
    """The tensors that `ys` are computed from, and that may have tangents; and `ys`."""
    seen: set[Tensor] = set()
    todo = [y for y in ys if carries(y.dtype)]
    while todo:
        t = todo.pop()
        if t not in seen:
            seen.add(t)
            todo += [x for x in t.op.inputs if carries(x.dtype)]
    return seen


def _plus(b: Builder, a: Tensor | None, c: Tensor) -> Tensor:
    out: Tensor = c if a is None else b.AddN([a, c])
    return out


def _of_operation(
    b: Builder, op: Operation, dxs: Sequence[Tensor | None], wanted: Sequence[bool]
) -> Sequence[Tensor | None]:
    """The tangent of each output of `op`, those of its inputs being `dxs`."""
    structured = _STRUCTURED.get(op.opdef.structured)
    if structured is not None:
        return structured(b, op, dxs, wanted, forward)
    jvp = op.opdef.jvp
    if registered.OVERRIDE in op.attrs:
        return _transposed(b, op, dxs)
    if isinstance(jvp, Missing):
        raise LookupError(f"operation {registered.title(op)} has no tangent (forward mode): {jvp.why}")
    if jvp is SYMMETRIC and not any(t.dtype.is_complex for t in (*op.inputs, *op.outputs)):
        return _symmetric(b, op, dxs)
    if not callable(jvp):
        return _transposed(b, op, dxs)
    out = jvp(b, GradNode(op), *dxs)
    if len(out) != len(op.outputs):
        raise GraphError(
            f"the tangent rule of {registered.title(op)} gave {len(out)} entries for {len(op.outputs)} outputs"
        )
    return out


def _symmetric(b: Builder, op: Operation, dxs: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The tangent of an operation whose gradient rule is its own transpose, once its arguments are broadcast."""
    y = op.outputs[0]
    of_one_shape = len(op.inputs) == 1 or op.opdef.shape is alike
    broadcast: dict[Tensor, Tensor] = {y: y}

    def whole(t: Tensor) -> Tensor:
        if not of_one_shape and t not in broadcast:
            broadcast[t] = stretched(b, t, y)
        return broadcast.get(t, t)

    rule, node = registered.lookup(op), GradNode(op, whole)
    given = [(i, dx) for i, dx in enumerate(dxs) if dx is not None]
    terms = [rule(b, node, dx if of_one_shape else stretched(b, dx, y))[i] for i, dx in given]
    total: Tensor | None = None
    for term in terms:
        if term is not None:
            total = _plus(b, total, term)
    return [total]


def _transposed(b: Builder, op: Operation, dxs: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The tangents of an operation by its gradient rule, which is transposed; see the module's text.

    Raises:
      LookupError: it has no gradient, or one that is not linear in the gradients of its outputs.
    """
    rule = registered.lookup(op)
    us = [zeros_for(b, t) if carries(t.dtype) else None for t in op.outputs]
    grads: Sequence[Any] = rule(b, GradNode(op), *us)
    pairs = [(dense(b, g), dx) for g, dx in zip(grads, dxs, strict=True) if g is not None and dx is not None]
    there = [u for u in us if u is not None]
    fixed = {*op.inputs, *op.outputs, *(dx for dx in dxs if dx is not None)}
    ends = backward(b, [g for g, _ in pairs], [dx for _, dx in pairs], there, fixed)
    found = iter([None if g is None else dense(b, g) for g in ends])
    out = [None if u is None else next(found) for u in us]
    if _depend([t for t in out if t is not None], there):
        raise LookupError(
            f"operation {registered.title(op)} has no tangent (forward mode): it would follow from its gradient, if "
            "that were linear in the gradient of the result, which it is not. Use reverse mode (hr.gradients, hr.vjp), "
            "or let derivatives stop there (hr.stop_gradient)"
        )
    return out


def _depend(ts: Sequence[Tensor], us: Sequence[Tensor]) -> bool:
    """Whether some of the values of `us`, not just their shapes, matter for `ts` (loops and conditionals aside)."""
    first = min(u.op.id for u in us)
    sources = {u.op for u in us}
    seen: set[Operation] = set()
    todo = [t.op for t in ts if t.op.graph is us[0].graph]
    while todo:
        op = todo.pop()
        if op in sources:
            return True
        if op not in seen and op.id > first and not op.opdef.facts.shape_only and not op.opdef.structured:
            seen.add(op)
            todo += [t.op for t in op.inputs]
    return False


def _fitting(b: Builder, op: Operation, y: Tensor, dy: Tensor) -> Tensor:
    """What is given as tangent of `y`, in the graph of `b`; it has the static shape of `y` too.

    Raises:
      GraphError: it is of another dtype or shape.
    """
    dy = b.tensor(dy)
    want, static = gradient_dtype(y), gradient_shape(y)
    if dy.dtype.base is not want or not shapes.compatible(dy.shape, static):
        raise GraphError(
            f"the tangent of '{y.name}', of {registered.title(op)}, is {dy.dtype.base.name}{shapes.show(dy.shape)}; "
            f"like that it must be {want.name}{shapes.show(static)}"
        )
    dy.refine(static, y.handle if dy.handle is None else None)
    return dy
