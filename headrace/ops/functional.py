"""Structured control flow: conditionals, loops and calls that own or name their graphs.

Source: TensorFlow's ops of the same names. None of them has a kernel: `lower/` defines them by the primitives of
`control`, and the compiler reads them directly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.attr_values import Func
from headrace.ir.function import known_function
from headrace.ir.graph import FuncGraph
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    Structured,
    case,
    func_attr,
    int_attr,
    list_attr,
    missing,
    op,
    shape_attr,
    type_attr,
)
from headrace.opkit.arrays import values_only, zeros
from headrace.opkit.namespaces import constant, is_standard
from headrace.shapes import Shape, show

# their gradient rules are in the table of `grad.structured`
_OF_ITS_GRAPHS = missing("hr.gradients builds its gradient from those of its graphs")
_TYPES = list_attr("type")
_OUTPUT_SHAPES = list_attr("shape", ())


def _results(c: Inference, f: Any) -> FuncGraph | None:
    """The graph of `f`, or None if it is incomplete or not yet decoded."""
    if isinstance(f, FuncGraph):
        return f
    return known_function(c.op.graph, f.name) if isinstance(f, Func) else None


def _joined(c: Inference, fs: Sequence[Any], loop: bool = False) -> Sequence[Shape]:
    """Shapes (and handles) that are compatible with the results of all functions `fs`."""
    n = len(c.op.outputs)
    stated = c.attrs.get("output_shapes", ())
    graphs = [_results(c, f) for f in fs]
    known = [g for g in graphs if g is not None and len(g.results) >= n]
    if len(known) < len(fs):
        return list(stated) if len(stated) == n else [None] * n
    out: list[Shape] = []
    for i in range(n):
        ends = [g.results[i] for g in known] + ([g.params[i] for g in known] if loop else [])
        shape = ends[0].static_shape
        for t in ends[1:]:
            shape = shapes.join(shape, t.static_shape)
        out.append(shape)
        handles = {t.handle for t in ends}
        if len(handles) == 1 and ends[0].handle is not None:
            c.set_handle(i, *ends[0].handle)
    return out


def _functional(name: str, ins: str, attrs: Mapping[str, Any], structured: Structured, shape: Any, doc: str) -> None:
    """Registers an op and its stateless form, with the prefix "Stateless"."""
    ends = "output: T" if "T" in attrs else "output: Tout"
    for prefix in ("", "Stateless"):
        op(
            prefix + name,
            ins,
            ends,
            attrs,
            shape=shape,
            structured=structured,
            grad=_OF_ITS_GRAPHS,
            facts=Facts(stateless=bool(prefix)),
            doc=doc + (" Its graphs are stateless." if prefix else ""),
        )


_functional(
    "If",
    "cond: Tcond, input: Tin",
    {
        "Tcond": type_attr(),
        "Tin": _TYPES,
        "Tout": _TYPES,
        "then_branch": func_attr(),
        "else_branch": func_attr(),
        "output_shapes": _OUTPUT_SHAPES,
    },
    "If",
    lambda c: _joined(c, [c.attrs["then_branch"], c.attrs["else_branch"]]),
    "The results of `then_branch(input)` if `cond` is true (nonzero, not empty), else of `else_branch(input)`.",
)
_functional(
    "Case",
    "branch_index: int32, input: Tin",
    {"Tin": _TYPES, "Tout": _TYPES, "branches": list_attr("func", minimum=1), "output_shapes": _OUTPUT_SHAPES},
    "Case",
    lambda c: _joined(c, c.attrs["branches"]),
    "The results of branch `branch_index` for `input`; those of the last branch if the index is out of range.",
)
_functional(
    "While",
    "input: T",
    {
        "T": _TYPES,
        "cond": func_attr(),
        "body": func_attr(),
        "output_shapes": _OUTPUT_SHAPES,
        "parallel_iterations": int_attr(10),
    },
    "While",
    lambda c: _joined(c, [c.attrs["body"]], loop=True),
    "The loop variables, from `input` on, after `body` has run as long as `cond` holds.",
)
op(
    "For",
    "start: int32, limit: int32, delta: int32, input: T",
    "output: T",
    {"T": _TYPES, "body": func_attr()},
    shape=lambda c: _joined(c, [c.attrs["body"]]),
    structured="For",
    grad=_OF_ITS_GRAPHS,
    doc="The loop variables, from `input` on, after `body(i, ...)` for each i of range(start, limit, delta).",
)


def _call_grad(b: Any, n: Any, *dys: Any) -> list[Any]:
    """The gradient of a call: a SymbolicGradient of the function."""
    grads = b.SymbolicGradient([*n.args, *dys], Tout=n.attrs["Tin"], f=n.attrs["f"])
    return nest.as_list(grads)


_CALL = {"Tin": _TYPES, "Tout": _TYPES, "f": func_attr(), "config": "", "config_proto": "", "executor_type": ""}
for _name, _is_stateless, _doc in (
    ("PartitionedCall", True, "Calls the function `f` with `args`."),
    ("StatefulPartitionedCall", False, "Calls the function `f` with `args`; the function may be stateful."),
):
    op(
        _name,
        "args: Tin",
        "output: Tout",
        _CALL,
        shape=lambda c: _joined(c, [c.attrs["f"]]),
        structured="Call",
        grad=_call_grad,
        facts=Facts(stateless=_is_stateless),
        doc=_doc,
    )
op(
    "RemoteCall",
    "target: string, args: Tin",
    "output: Tout",
    {"Tin": list_attr("type", minimum=1), "Tout": list_attr("type", minimum=1), "f": func_attr()},
    shape=lambda c: _joined(c, [c.attrs["f"]]),
    structured="RemoteCall",
    grad=_OF_ITS_GRAPHS,
    doc="Calls the function `f` with `args` on the device `target`.",
)
op(
    "SymbolicGradient",
    "input: Tin",
    "output: Tout",
    {"Tin": list_attr("type", minimum=1), "Tout": list_attr("type", minimum=1), "f": func_attr()},
    shape=lambda c: list(c.shapes[: len(c.op.outputs)]),
    structured="SymbolicGradient",
    grad=_OF_ITS_GRAPHS,
    facts=Facts(stateless=True),
    doc="The gradients of the arguments of `f`; `input` is the arguments and the gradients of the results.",
)


# *** operations other than primitives that lowering makes of conditionals and loops ***


def _to_bool(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if is_standard(xp):
        is_bool = attrs["T"].is_bool

        def portable(x: Any) -> Any:
            if x.ndim:
                return constant(xp, 0 not in x.shape, dtypes.bool_, x)
            return x if is_bool else x != 0

        return portable

    def kernel(x: Any) -> Any:
        if getattr(x, "ndim", 0):
            return np.bool_(x.size > 0)
        if isinstance(x, bytes):
            return np.bool_(len(x) > 0)
        if isinstance(x, np.ndarray):
            x = x[()]
        return np.bool_(len(x) > 0 if isinstance(x, bytes) else bool(x))

    return kernel


def _to_bool_sample(rng: Any, dtype: DType) -> list[Any]:
    if dtype in dtypes.OBJECT and dtype is not dtypes.string:
        return []
    scalars = (b"", b"no") if dtype is dtypes.string else (0, 1)
    return [case(np.array(v, dtype.numpy)) for v in (*scalars, [scalars[0]], [])]


def _nothing(xp: Any, attrs: Mapping[str, Any]) -> Any:
    """A broadcast view of one zero: a placeholder that loops store and no kernel reads."""
    shape = tuple(d or 0 for d in attrs["shape"] or ())
    if math.prod(shape) >= 2**63:
        raise InvalidArgumentError(f"Shape {show(shape)} would have more than 2**63 - 1 elements")
    value = xp.broadcast_to(zeros(xp, (), attrs["dtype"]), shape)
    return lambda: value


op(
    "ToBool",
    "input: T",
    "output: bool",
    {"T": type_attr()},
    shape=lambda c: [()],
    kernel=_to_bool,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    oracle=lambda x: np.bool_(x.size > 0 if x.ndim else bool(x[()])),
    sample=_to_bool_sample,
    doc="Whether a scalar is not zero (a string not empty); of other ranks, whether there are elements.",
)
op(
    "FakeParam",
    outs="output: dtype",
    attrs={"dtype": type_attr(), "shape": shape_attr()},
    shape=lambda c: [c.attrs["shape"]],
    kernel=_nothing,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(no_fold=True),
    oracle=lambda dtype, shape: np.full(shape, b"" if dtype is dtypes.string else 0, dtype.numpy),
    sample=values_only(lambda rng, dtype: [case(dtype=dtype, shape=(2, 3))]),
    doc="A placeholder for a result that a branch does not compute and no operation reads.",
)


def _switch_n_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    h = c.handle(0)
    n = c.attrs["num_outs"]
    if h is not None:
        for i in range(n):
            c.set_handle(i, *h)
    return [c.shapes[0]] * n


op(
    "_SwitchN",
    "data: T, output_index: int32",
    "outputs: num_outs * T",
    {"num_outs": int_attr(minimum=1), "T": type_attr()},
    shape=_switch_n_shape,
    primitive="SwitchN",
    grad=missing("loops and conditionals are differentiated in their structured form"),
    doc="Sends `data` to output `output_index`, or to the last one if it is out of range; the others are dead.",
)
