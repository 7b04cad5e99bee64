"""Op types, kernels and types of devices that other packages define.

    import headrace as hr
    from headrace.dtypes import FLOATING
    from headrace.extend import same_as

    cube = hr.register_op(
        "Cube", "x: T", "y: T", {"T": FLOATING},
        shape=same_as(0),
        kernel=lambda attrs: lambda x: x * x * x,
        grad=lambda b, n, dy: [b.Mul(dy, b.Mul(3.0, b.Square(n.x)))],
    )
    cube(2.0)

This module also has the building blocks of such definitions. `headrace docs how-to/extending` has worked examples and
the requirements on a device; `headrace docs how-to/adding_ops` explains the fields of a record.

**A registration is permanent.** Graphs hold the records of their ops; sessions and compiled steps hold the kernels. A
registered op type is part of the program, like a class. Register it once, at import.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes
from headrace.api import scopes
from headrace.errors import GraphError, InvalidArgumentError, NotFoundError
from headrace.execute.devices import LocalDevice, check_type, register_device
from headrace.ir import kernel as kernels
from headrace.ir.attr_values import check_attr
from headrace.ir.device import DeviceSpec
from headrace.ir.kernel import CPU, KernelContext
from headrace.ir.op_roles import ListRole, SplitRole
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    SYMMETRIC,
    Facts,
    Missing,
    bool_attr,
    case,
    float_attr,
    flops_per_element,
    flops_per_input,
    int_attr,
    list_attr,
    missing,
    op,
    op_registry,
    shape_attr,
    string_attr,
    tensor_attr,
    type_attr,
)
from headrace.opkit.batch_node import BatchNode, NoBatchRule
from headrace.opkit.batch_rules import first_in_step, folding, in_step
from headrace.opkit.jvp_rules import linear, multilinear, passed
from headrace.opkit.shape_rules import broadcast, fixed, nothing, same_as, scalars, unbroadcast, unknown
from headrace.plugins import PluginError, load_plugins
from headrace.registry import DuplicateError

if TYPE_CHECKING:
    from headrace.ir.attr_values import AttrSpec
    from headrace.ir.infer import Inference
    from headrace.ir.opdef import BatchRule, GradRule, JvpRule, KernelFactory, OpDef, Sample, ShapeRule
    from headrace.shapes import Shape

__all__ = [
    "NOT_DIFFERENTIABLE",
    "SYMMETRIC",
    "BatchNode",
    "DeviceSpec",
    "DuplicateError",
    "Facts",
    "KernelContext",
    "ListRole",
    "LocalDevice",
    "NoBatchRule",
    "PluginError",
    "SplitRole",
    "bool_attr",
    "broadcast",
    "case",
    "first_in_step",
    "fixed",
    "float_attr",
    "flops_per_element",
    "flops_per_input",
    "folding",
    "in_step",
    "int_attr",
    "linear",
    "list_attr",
    "load_plugins",
    "missing",
    "multilinear",
    "nothing",
    "passed",
    "register_device",
    "register_kernel",
    "register_op",
    "same_as",
    "scalars",
    "shape_attr",
    "string_attr",
    "tensor_attr",
    "type_attr",
    "unbroadcast",
    "unknown",
]

FORMS: Final = ("pure", "stateful", "async")

_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_]*\Z")
_NO_FACTS: Final = Facts()
_ARGUMENT: Final = re.compile(r"([A-Za-z_]\w*)\s*:\s*(?:(\w+)\s*\*\s*)?(?:Ref\((\w+)\)|(\w+))\Z")
_DTYPES: Final = frozenset({d.name for d in dtypes.ALL} | {"float", "double", "half"})


def register_op(
    type: str,
    ins: str = "",
    outs: str = "",
    attrs: Mapping[str, Any] | None = None,
    *,
    shape: ShapeRule | None = None,
    kernel: KernelFactory | None = None,
    xp: bool = False,
    host: tuple[str, ...] = (),
    stateful: KernelFactory | None = None,
    async_: KernelFactory | None = None,
    grad: GradRule | None = None,
    jvp: JvpRule = None,
    batch: BatchRule = None,
    facts: Facts = _NO_FACTS,
    shape_value: Callable[[Inference], Shape] | None = None,
    oracle: Callable[..., Any] | None = None,
    sample: Sample | None = None,
    doc: str = "",
) -> Callable[..., Any]:
    """Adds an op type.

    From then on it is used like any other: graphs contain it and are written and read with it, passes use its facts,
    gradients its rule, and `hr.raw_ops` and every `Builder` have it by its name.

    Args:
      type: the name in CamelCase. Other systems identify ops by these names, so choose a unique one.
      ins: the inputs in the notation of TensorFlow's registry: "x: T, y: T", "values: N * T", "handle: resource".
      outs: the outputs in the same notation.
      attrs: name → `type_attr(...)`, `int_attr(...)`, ..., or, as a short form, a set of dtypes or a default value.
      shape: `rule(c) -> [shape of each output]`, where `c` is an `ir.infer.Inference`: `c.shapes`, `c.attrs`, ...
      kernel: the kernel of a pure op: `(attrs) -> f(*arrays)`. `f` returns the array if the op has one output, else a
        tuple.
      xp: whether the kernel is `(xp, attrs) -> f(*arrays)` and computes in any namespace `xp` of the Python array API
        standard, so that devices of other libraries than numpy run the op.
      host: the names of the inputs whose elements the kernel reads (axes, sizes), which devices take from the host.
      stateful: the kernel of an op with effects: `(ctx, attrs) -> f(*arrays)`, made once a step; `ctx` is a
        `KernelContext`.
      async_: the kernel of an op that may wait: `(ctx, attrs) -> f(*arrays, done)`. Exactly one of the three kernels is
        given.
      grad: `rule(b, n, *dys) -> [gradient or None for each input]`, `NOT_DIFFERENTIABLE`, or `missing("why")`.
      jvp: a rule for tangents; None: it is derived from `grad`.
      batch: a rule for `hr.vmap`: `rule(b, n) -> [tensor of each output]`, with the examples in dimension 0 (`in_step`,
        `first_in_step(...)`, `folding(...)`), or `missing("why")`; None: each example is computed alone, except for
        elementwise ops.
      facts: the properties on which passes rely.
      shape_value: `rule(c)`: output 0, an integer vector, read as a shape.
      oracle: an independent implementation on arrays, for tests.
      sample: cases to test with.
      doc: a sentence for readers.

    Returns:
      A function that adds the op to the current graph, and outside a graph runs it at once. It takes the op's inputs in
      order or by name, attributes by name, and `name`. It returns the tensor, or a tuple if there are several outputs.
      If there are none it returns the operation in a graph, and None outside.

    Raises:
      InvalidArgumentError: `type` is not a valid name of an op type, or `ins` or `outs` does not describe arguments.
      TypeError: `shape` or `grad` is missing, a function argument is not callable, the number of kernels is not one, or
        `facts` or `host` contradict the arguments.
      DuplicateError: an op type of this name exists (also a KeyError); the text names the line that registered it.

    Example:
      >>> import headrace as hr
      >>> from headrace.dtypes import FLOATING
      >>> from headrace.extend import same_as
      >>> halve = hr.register_op(
      ...     "DocHalve", "x: T", "y: T", {"T": FLOATING}, shape=same_as(0),
      ...     kernel=lambda xp, attrs: lambda x: xp.multiply(x, 0.5), xp=True,
      ...     grad=lambda b, n, dy: [b.DocHalve(dy)])
      >>> float(halve(3.0))
      1.5
      >>> float(hr.grad(halve)(3.0))
      0.5

    Source: TensorFlow's REGISTER_OP, shape functions, kernels and gradients included.
    """
    if not isinstance(type, str) or not _NAME.match(type):
        raise InvalidArgumentError(
            f"{type!r} is no name of an op type: expected letters, digits and '_', a capital first, as in 'AddV2'"
        )
    if grad is None:
        raise TypeError(
            f"{type}: say what its gradient is: grad=rule, NOT_DIFFERENTIABLE if gradients stop here by its nature, or "
            "missing('why there is none yet')"
        )
    if shape is None:
        raise TypeError(f"{type}: say which shapes its outputs have: shape=rule (`same_as(0)`, `unknown`, ...)")
    forms = [f"{k}=" for k, f in (("kernel", kernel), ("stateful", stateful), ("async_", async_)) if f is not None]
    if len(forms) != 1:
        got = " and ".join(forms) or "none"
        raise TypeError(f"{type}: give exactly one of kernel=, stateful= and async_=, got {got}")
    functions = {"shape": shape, "kernel": kernel, "stateful": stateful, "async_": async_, "shape_value": shape_value}
    for name, f in (functions | {"oracle": oracle, "sample": sample}).items():
        if f is not None and not callable(f):
            raise TypeError(f"{type}: {name}= must be a function, got {f!r}")
    for name, rule, word in (("grad", grad, NOT_DIFFERENTIABLE), ("jvp", jvp, SYMMETRIC), ("batch", batch, None)):
        if not (rule is None or rule is word or callable(rule) or isinstance(rule, Missing)):
            words = "a function" if word is None else f"a function, {word}"
            raise TypeError(f"{type}: {name}= must be {words} or missing('why'), got {rule!r}")
    if kernel is not None:
        _check_factory(f"{type}: kernel=", kernel, xp)
    _check_arguments(type, [*ins.split(","), *outs.split(",")], attrs or {})
    record = op(
        type,
        ins,
        outs,
        attrs,
        shape=shape,
        kernel=kernel,
        xp=xp,
        host=host,
        stateful=stateful,
        async_=async_,
        grad=grad,
        jvp=jvp,
        batch=batch,
        facts=facts,
        shape_value=shape_value,
        oracle=oracle,
        sample=sample,
        doc=doc,
        depth=2,
    )
    return _function(record)


def _check_factory(what: str, factory: KernelFactory, xp: bool) -> None:
    """Raises `TypeError` if a factory cannot be called with `(xp, attrs)`, or with `(attrs)` without `xp`."""
    try:
        inspect.signature(factory).bind(*(("xp", "attrs") if xp else ("attrs",)))
    except TypeError as e:
        raise TypeError(
            f"{what} must be a function of {'(xp, attrs), since xp=True' if xp else '(attrs)'}, got {factory!r}: {e}. "
            "A kernel receives the namespace of its arrays, (xp, attrs), if it declares xp=True"
        ) from None
    except ValueError:  # a function without a signature
        return


def _check_arguments(type: str, parts: Iterable[str], attrs: Mapping[str, Any]) -> None:
    """Raises `InvalidArgumentError` unless `parts` describe arguments, each with a name of its own."""
    seen: set[str] = set()
    for part in filter(None, map(str.strip, parts)):
        found = _ARGUMENT.match(part)
        if found is None:
            raise InvalidArgumentError(
                f"{type}: {part!r} describes no argument: expected 'name: T', 'name: N * T' or 'name: float32'"
            )
        name, number, ref, plain = found.groups()
        kind = ref or plain
        if name in seen:
            raise InvalidArgumentError(f"{type}: two arguments have the name {name!r}")
        seen.add(name)
        for attr in (number, kind if kind not in _DTYPES else None):
            if attr is not None and attr not in attrs:
                raise InvalidArgumentError(
                    f"{type}: the argument {part!r} names {attr!r}, which is no dtype and not among the attributes "
                    f"({', '.join(attrs) or 'there are none'})"
                )


def _function(record: OpDef) -> Callable[..., Any]:
    """Returns a function that makes ops of the type of `record`."""
    names = [a.name for a in record.ins]

    def function(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False))
        attrs = {k: v for k, v in kwargs.items() if k not in names}
        unknown = [k for k in attrs if k not in record.attrs and not k.startswith("_")]
        twice = [k for k in kwargs if k in given]
        given |= {k: v for k, v in kwargs.items() if k in names}
        lacking = [k for k in names if k not in given]
        if len(args) > len(names) or unknown or twice or lacking:
            wrong = (
                f"{len(args)} inputs are given"
                if len(args) > len(names)
                else f"there is no {unknown[0]!r}"
                if unknown
                else f"{twice[0]!r} is given twice"
                if twice
                else f"{lacking[0]!r} is missing"
            )
            raise TypeError(f"{record.type} takes the inputs {names} and the attributes {list(record.attrs)}; {wrong}")
        inputs = [given[k] for k in names]
        return scopes.builder(*inputs).make(record.type, inputs, attrs, name)

    function.__name__ = function.__qualname__ = record.type
    function.__doc__ = record.doc or f"The op {record.type}."
    return function


def register_kernel(
    op: str, device: str = CPU, constraints: Mapping[str, Any] | None = None, form: str = "pure", xp: bool = False
) -> Callable[[KernelFactory], KernelFactory]:
    """Decorates a factory of kernels for an existing op type.

    On a device of another type than CPU, the kernel makes the op available: operations are placed only on devices with
    a kernel for them. On the CPU it replaces the kernel of the op, for all attributes or for some, in all places:
    eagerly, in the token machine, in compiled steps and in constant folding. The op's record (its facts, shapes,
    gradient) must stay true for the new kernel.

    A step has the kernels that existed at its first run. The device type may be registered later.

    Args:
      op: an op type.
      device: a type of devices, such as "CPU" or "DLP".
      constraints: attribute → the value or values to which the kernel applies: {"T": (hr.float32, "float16")}.
      form: "pure": `factory(attrs) -> f(*values)`; "stateful": `factory(ctx, attrs) -> f(*values)`, made once a step;
        "async": `factory(ctx, attrs) -> f(*values, done)`. On devices of other types the values are the results of the
        device's `put`.
      xp: whether the factory of a pure kernel is `factory(xp, attrs)`, with the namespace of the device's arrays: numpy
        on the CPU.

    Example:
      >>> import headrace as hr, numpy as np
      >>> @hr.register_kernel("Rint", "DocDevice", {"T": hr.float32})
      ... def rint(attrs):
      ...     return np.rint

    Source: TensorFlow's REGISTER_KERNEL_BUILDER with its TypeConstraint.
    """
    try:
        record = op_registry.get(op)
    except LookupError as e:
        raise NotFoundError(f"a kernel cannot be registered for '{op}': {e}") from e.__cause__
    check_type(device)
    if form not in FORMS:
        raise InvalidArgumentError(f"kernel of {op}: form must be one of {', '.join(map(repr, FORMS))}, got {form!r}")
    if record.primitive or record.structured or op.startswith("_"):
        raise InvalidArgumentError(f"{op} has no kernels: the token machine itself does what it means")
    if any(a.dtype is dtypes.variant for a in (*record.ins, *record.outs)):
        raise InvalidArgumentError(
            f"{op} works on variants (tensor lists), which have a form of headrace's own: its kernel cannot be replaced"
        )
    allowed = {name: _allowed(record, name, values) for name, values in (constraints or {}).items()}
    decorate = kernels.override(op, device, allowed, form, depth=2, xp=xp)

    def register(factory: KernelFactory) -> KernelFactory:
        if not callable(factory):
            takes = "ctx, attrs" if form != "pure" else "xp, attrs" if xp else "attrs"
            raise TypeError(f"kernel of {op} on {device}: expected a factory, a function of ({takes}), got {factory!r}")
        if form == "pure":
            _check_factory(f"kernel of {op} on {device}", factory, xp)
        decorate(factory)
        scopes.runtime().eager.forget_kernels()
        return factory

    return register


def _allowed(record: OpDef, name: str, values: Any) -> frozenset[Any]:
    """Returns the values of attribute `name` that a constraint allows, checked."""
    spec: AttrSpec | None = record.attrs.get(name)
    if spec is None:
        raise InvalidArgumentError(
            f"kernel of {record.type}: there is no attribute {name!r} to constrain; {record.type} has "
            f"{', '.join(record.attrs) or 'none'}"
        )
    if spec.kind in ("tensor", "func"):
        raise InvalidArgumentError(f"kernel of {record.type}: {name!r} is a {spec.kind}, which cannot be a constraint")
    given = [values] if _is_value(spec, values) else list(values)
    if not given:
        raise InvalidArgumentError(f"kernel of {record.type}: the constraint on {name!r} leaves no value")
    complete = []
    for value in given:
        try:
            complete.append(check_attr(record.type, name, spec, value))
        except GraphError as e:
            raise InvalidArgumentError(f"kernel of {record.type}: it would never run: {e}") from e
    return frozenset(complete)


def _is_value(spec: AttrSpec, given: Any) -> bool:
    """Whether `given` is a single value of an attribute."""
    if isinstance(given, (str, bytes, dtypes.DType, np.dtype, type)) or not isinstance(given, Iterable):
        return True
    is_sequence = spec.is_list or spec.kind == "shape"
    return is_sequence and not any(isinstance(v, (list, tuple)) for v in given)
