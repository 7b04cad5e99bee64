"""Forward mode: tangents of ys from tangents of xs.

A *tangent* of a tensor is a tensor of the same shape: its rate of change along one direction of the xs. The walk visits
operations in topological order, and asks each for the tangents of its outputs, given those of its inputs. So tangents
are computed together with the values, and nothing is stored for later. Forward mode needs the memory for one
derivative, while reverse mode needs that for all intermediate values. In return, it computes the derivatives of all ys
in one direction only.

The record of an operation gives its rule in one of three ways.

1. `jvp=rule`. For most operations the rule is the operation itself, applied to the tangents (`opkit.jvp_rules`).
2. `jvp=SYMMETRIC`. Let J be the Jacobian. Reverse mode has a rule for the product with its transpose: the rule `grad`
   maps a vector u to Jᵀu. An elementwise function has J = Jᵀ if its arguments are first broadcast to the shape of the
   result. So its gradient rule, applied to the tangent in place of u, returns the tangent.
3. Neither: the transpose of the transpose. Jᵀu is linear in u, so its derivative with respect to u is Jᵀ for every u.
   The reverse walk through the operations of the gradient rule starts with the tangent dx and ends at u with
   (Jᵀ)ᵀdx = J dx. All of this happens while the graph is made. At run time, operations of the gradient rule are
   computed only if the tangent needs them. Gradients of users (`RegisterGradient`, `custom_gradient`) get tangents in
   this way.

Conditionals, loops and calls are extended in place (`grad.structured`, `forward_loops`).

Source: the third way is that of J. Townsend, "A new trick for calculating Jacobian vector products" (2017).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import shapes
from headrace.errors import GraphError
from headrace.grad import registered
from headrace.grad.activity import Activity
from headrace.grad.backward import backward
from headrace.grad.structured import STRUCTURED
from headrace.grad.sums import dense
from headrace.grad.walks import ForwardWalks
from headrace.grad.zeros import carries, gradient_dtype, gradient_shape, zeros_for
from headrace.ir import walk
from headrace.ir.custom_rules import OVERRIDE
from headrace.ir.grad_node import GradNode
from headrace.ir.opdef import SYMMETRIC, Missing
from headrace.opkit.elementwise import alike
from headrace.opkit.jvp_rules import stretched

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Operation, Tensor


def forward(
    b: Builder, xs: Sequence[Tensor], dxs: Sequence[Tensor | None], ys: Sequence[Tensor]
) -> list[Tensor | None]:
    """Returns the tangents of `ys` for the tangents `dxs` of `xs`; None without a path.

    Args:
      b: the builder of the tangents, in the graph of `xs` and `ys` or in a nested one, which the `dxs` may belong to.
        Conditionals and loops on a path are extended in place.
      xs: tensors to differentiate by. If one of them lies on the path of another, its tangent is added to the one that
        reaches it.
      dxs: the tangent of each x, or None. It has the dtype and shape of x; for the handle of a variable, those of the
        variable's value.
      ys: tensors of the same graph.

    Raises:
      LookupError: an operation on a path has no derivative; the text says why, and how to continue.
      GraphError: a rule returned a tangent of another dtype or shape.
    """
    parts: dict[Tensor, Tensor] = {}
    for x, dx in zip(xs, dxs, strict=True):
        if dx is not None and carries(x.dtype):
            parts[x] = _plus(b, parts.get(x), _fitting(b, x.op, x, dx))
    wanted = _leading_to(ys)
    walks = ForwardWalks(Activity(), backward, forward)
    for op in walk.in_order({t.op for t in wanted}):
        given = [parts.get(t) for t in op.inputs]
        asked = [t in wanted and carries(t.dtype) for t in op.outputs]
        if any(asked) and any(dx is not None for dx in given):
            at = b.within(f"{op.name}_tangent", op.source)
            for y, dy, ask in zip(op.outputs, _of_operation(at, op, given, asked, walks), asked, strict=True):
                if dy is not None and ask:
                    parts[y] = _plus(at, parts.get(y), _fitting(at, op, y, dy))
    return [parts.get(y) for y in ys]


def _leading_to(ys: Sequence[Tensor]) -> set[Tensor]:
    """Tensors with possible tangents from which `ys` are computed, and `ys`."""
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
    b: Builder, op: Operation, dxs: Sequence[Tensor | None], wanted: Sequence[bool], walks: ForwardWalks
) -> Sequence[Tensor | None]:
    """Returns the tangent of each output of `op`, given the tangents `dxs` of its inputs."""
    structured = STRUCTURED.get(op.opdef.structured)
    if structured is not None:
        return structured.tangents(b, op, dxs, wanted, walks)
    jvp = op.opdef.jvp
    if OVERRIDE in op.attrs:
        return _transposed(b, op, dxs, wanted)
    if isinstance(jvp, Missing):
        raise LookupError(f"operation {registered.title(op)} has no tangent (forward mode): {jvp.why}")
    if jvp is SYMMETRIC and not any(t.dtype.is_complex for t in (*op.inputs, *op.outputs)):
        return _symmetric(b, op, dxs)
    if not callable(jvp):
        return _transposed(b, op, dxs, wanted)
    out = jvp(b, GradNode(op), *dxs)
    if len(out) != len(op.outputs):
        raise GraphError(
            f"the tangent rule of {registered.title(op)} gave {len(out)} entries for {len(op.outputs)} outputs"
        )
    return out


def _symmetric(b: Builder, op: Operation, dxs: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Returns the tangent of an operation with a symmetric Jacobian, by its gradient rule."""
    y = op.outputs[0]
    of_one_shape = len(op.inputs) == 1 or op.opdef.shape is alike
    broadcast: dict[Tensor, Tensor] = {y: y}

    def whole(t: Tensor) -> Tensor:
        if not of_one_shape and t not in broadcast:
            broadcast[t] = stretched(b, t, y)
        return broadcast.get(t, t)

    total: Tensor | None = None
    for i, dx in enumerate(dxs):
        if dx is not None:
            only = [k == i for k in range(len(dxs))]
            u = dx if of_one_shape else stretched(b, dx, y)
            term = registered.input_gradients(b, op, [u], only, view=whole)[i]
            if term is not None:
                total = _plus(b, total, term)
    return [total]


def _transposed(b: Builder, op: Operation, dxs: Sequence[Tensor | None], wanted: Sequence[bool]) -> list[Tensor | None]:
    """Returns the wanted tangents of an operation by transposing its gradient rule.

    The head of the module describes the method.

    Raises:
      LookupError: the operation has no gradient, or one that is not linear in the gradients of its outputs.
    """
    us = [zeros_for(b, t) if carries(t.dtype) else None for t in op.outputs]
    grads = registered.input_gradients(b, op, us, [dx is not None for dx in dxs], wanted)
    pairs = [(dense(b, g), dx) for g, dx in zip(grads, dxs, strict=True) if g is not None and dx is not None]
    there = [u for u, want in zip(us, wanted, strict=True) if u is not None and want]
    fixed = {*op.inputs, *op.outputs, *(dx for dx in dxs if dx is not None)}
    ends = backward(b, [g for g, _ in pairs], [dx for _, dx in pairs], there, fixed)
    found = iter([None if g is None else dense(b, g) for g in ends])
    out = [next(found) if u is not None and want else None for u, want in zip(us, wanted, strict=True)]
    if _depend([t for t in out if t is not None], there):
        raise LookupError(
            f"operation {registered.title(op)} has no tangent (forward mode): its gradient is not linear "
            "in the gradient of the result, so no tangent can be derived from it. Use reverse mode (hr.gradients, "
            "hr.vjp), or let derivatives stop there (hr.stop_gradient)"
        )
    return out


def _depend(ts: Sequence[Tensor], us: Sequence[Tensor]) -> bool:
    """Whether `ts` depend on values, not only shapes, of `us`, except through structured operations."""
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
    """Returns the tangent `dy` in the graph of `b`, with the shape of `y`.

    Raises:
      GraphError: it has another dtype or shape.
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
