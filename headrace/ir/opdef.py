"""Records of op types: arguments, attributes, rules, kernel and properties.

One call of `op(...)` creates a record, in a file of `headrace/ops/` or, through `headrace.extend`, in an extension
package. A record contains the arguments, attributes, shape rule, CPU kernel, gradient and tangent rules, the properties
that passes rely on (`Facts`), and the cases that tests run.

Rules for single op types are also outside of the records: kernels for other devices or attributes (`ir.kernel`) and
rewrite rules of passes. `tests/test_op_tables.py` lists all modules below `v1/` with a table of op types, each with its
reason.

`headrace docs how-to/adding_ops` explains records field by field. Arguments are written as in TensorFlow's op registry:
`"x: T, y: T"`, `"values: N * T"`, `"components: Tcomponents"` (a list of types), `"ref: Ref(T)"`, `"handle: resource"`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from headrace import dtypes, thresholds
from headrace.dtypes import DType
from headrace.errors import GraphError, SignatureError
from headrace.ir.attr_values import REQUIRED, AttrSpec, check_attr, describe_attr
from headrace.ir.op_roles import LIST_SIGNATURES, MIRRORED, ListKind, ListRole, Relation, SplitRole
from headrace.records import record
from headrace.registry import Registry

if TYPE_CHECKING:
    from headrace.shapes import Shape

_absent: Final = object()


def type_attr(allowed: Iterable[DType] | None = None, default: Any = REQUIRED) -> AttrSpec:
    """Declares a dtype.

    Example:
      >>> import headrace as hr
      >>> hr.extend.type_attr().kind
      'type'
    """
    return AttrSpec("type", default=default, allowed=None if allowed is None else frozenset(allowed))


def int_attr(default: Any = REQUIRED, minimum: int | None = None) -> AttrSpec:
    """Declares an integer.

    Example:
      >>> import headrace as hr
      >>> hr.extend.int_attr(3).default
      3
    """
    return AttrSpec("int", default=default, minimum=minimum)


def float_attr(default: Any = REQUIRED) -> AttrSpec:
    """Declares a float.

    Example:
      >>> import headrace as hr
      >>> hr.extend.float_attr(0.5).default
      0.5
    """
    return AttrSpec("float", default=default)


def bool_attr(default: Any = REQUIRED) -> AttrSpec:
    """Declares a bool.

    Example:
      >>> import headrace as hr
      >>> hr.extend.bool_attr(False).default
      False
    """
    return AttrSpec("bool", default=default)


def string_attr(default: Any = REQUIRED, allowed: Iterable[str] | None = None) -> AttrSpec:
    """Declares a string: a Python `str`. Bytes that are not UTF-8 become surrogate escapes.

    Example:
      >>> import headrace as hr
      >>> hr.extend.string_attr("SAME", allowed=("SAME", "VALID")).default
      'SAME'
    """
    return AttrSpec("string", default=default, allowed=None if allowed is None else frozenset(allowed))


def shape_attr(default: Any = REQUIRED) -> AttrSpec:
    """Declares a shape: a tuple of ints and Nones, or None for an unknown rank.

    Example:
      >>> import headrace as hr
      >>> hr.extend.shape_attr(None).kind
      'shape'
    """
    return AttrSpec("shape", default=default)


def tensor_attr(default: Any = REQUIRED) -> AttrSpec:
    """Declares a tensor: a numpy array.

    Example:
      >>> import headrace as hr
      >>> hr.extend.tensor_attr().kind
      'tensor'
    """
    return AttrSpec("tensor", default=default)


def func_attr(default: Any = REQUIRED) -> AttrSpec:
    """Declares a function: a library name (`Func`) or an owned `FuncGraph`."""
    return AttrSpec("func", default=default)


def list_attr(kind: str, default: Any = REQUIRED, minimum: int = 0, allowed: Iterable[Any] | None = None) -> AttrSpec:
    """Declares a list of `kind`: a Python tuple.

    Example:
      >>> import headrace as hr
      >>> hr.extend.list_attr("int", minimum=1).minimum
      1
    """
    return AttrSpec(kind, True, default, None if allowed is None else frozenset(allowed), minimum)


def _attr_spec(value: Any) -> AttrSpec:
    """Returns the declaration for a short form of `op(attrs=...)`: dtypes, or a default."""
    if isinstance(value, AttrSpec):
        return value
    if isinstance(value, (set, frozenset)):
        return type_attr(value)
    if isinstance(value, DType):
        return type_attr(default=value)
    for t, make in ((bool, bool_attr), (int, int_attr), (float, float_attr), (str, string_attr)):
        if isinstance(value, t):
            return make(value)
    raise TypeError(f"{value!r} describes no attribute")


MOST_TENSORS: Final = 2**16  # in one argument: an imported graph may declare any number


@record(frozen=True, slots=True)
class ArgSpec:
    """Named argument of an op type.

    It is a single tensor, `number_attr` tensors of one type, or one tensor for each type of a list attribute.

    Attributes:
      name: the name.
      dtype: the fixed dtype, or None.
      type_attr: the attribute that contains the dtype, or None.
      number_attr: the attribute that contains the number of tensors, or None.
      type_list_attr: the attribute that contains the list of dtypes, or None.
      is_ref: whether the argument carries a variable.
      is_list: whether a call passes a list for the argument.
    """

    name: str
    dtype: DType | None = None
    type_attr: str | None = None
    number_attr: str | None = None
    type_list_attr: str | None = None
    is_ref: bool = False
    is_list: bool = dataclasses.field(init=False, repr=False)  # cached because every call of the op type reads it

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_list", self.number_attr is not None or self.type_list_attr is not None)

    def dtypes(self, attrs: Mapping[str, Any]) -> list[DType]:
        """Returns the dtypes of the argument's tensors under `attrs`."""
        if self.type_list_attr is not None:
            return list(attrs[self.type_list_attr])
        d: DType = self.dtype if self.dtype is not None else attrs[self.type_attr or ""]
        if self.is_ref:
            d = d.ref
        if self.number_attr is None:
            return [d]
        n: int = attrs[self.number_attr]
        if n > MOST_TENSORS:
            raise GraphError(f"the argument {self.name!r} would be {n} tensors; at most {MOST_TENSORS} can be")
        return [d] * n


def _parse_args(text: str, attrs: Mapping[str, AttrSpec]) -> tuple[ArgSpec, ...]:
    out = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, typ = (s.strip() for s in part.partition(":"))
        number = None
        if "*" in typ:
            number, typ = (s.strip() for s in typ.split("*"))
        is_ref = typ.startswith("Ref(")
        if is_ref:
            typ = typ[4:-1].strip()
        spec = attrs.get(typ)
        if spec is None:
            out.append(ArgSpec(name, dtype=dtypes.as_dtype(typ), number_attr=number, is_ref=is_ref))
        elif spec.is_list:
            out.append(ArgSpec(name, type_list_attr=typ))
        else:
            out.append(ArgSpec(name, type_attr=typ, number_attr=number, is_ref=is_ref))
    return tuple(out)


Cost: TypeAlias = "Callable[[Sequence[Shape], Sequence[Shape]], float | None]"


@record(frozen=True, slots=True)
class PerElement:
    """Cost of an elementwise op: `flops` for each element of output 0.

    Attributes:
      flops: the flops for each element.
    """

    flops: float

    def __call__(self, ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
        n = _elements(outs[0]) if outs else _elements(ins[0])
        return None if n is None else self.flops * n


def flops_per_element(k: float) -> PerElement:
    """Returns the cost of an elementwise op: `k` flops for each element of output 0.

    Example:
      >>> import headrace as hr
      >>> hr.extend.flops_per_element(2)([(3,), (3,)], [(3,)])
      6
    """
    return PerElement(k)


def flops_per_input(k: float) -> Cost:
    """Returns the cost of a reduction: `k` flops for each element of input 0.

    Example:
      >>> import headrace as hr
      >>> hr.extend.flops_per_input(1)([(3, 4)], [(3,)])
      12
    """

    def cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
        n = _elements(ins[0])
        return None if n is None else k * n

    return cost


def _elements(shape: Shape) -> int | None:
    if shape is None:
        return None
    n = 1
    for d in shape:
        if d is None:
            return None
        n *= d
    return n


@record(frozen=True, slots=True)
class Facts:
    """Properties of an op type that passes and the executor rely on.

    Attributes:
      commutative: whether the result stays the same if the two inputs are exchanged.
      forwards: the number of the input whose value output 0 has unchanged (Identity, StopGradient, ...), or None.
      shape_only: whether the kernel reads only the shapes of its inputs, never their elements; for a list input: only
        its length and the shapes of its elements.
      no_fold: whether constant folding must not evaluate the op, although it is pure.
      dynamic_shape: whether the output's shape depends on input *values*, so that inference may leave it open.
      effect: the state that a stateful op touches apart from its inputs: "resource", "random", "stdout", "python",
        "step", or "".
      writes: whether the op changes this state.
      blocking: whether the kernel calls a Python function of the user, which may block the thread (`execute.blocking`).
      waits: whether the op uses an object on which ops wait (a queue, a barrier), so that it is never ordered by
        creation (`ir.order`).
      cost: function from input and output shapes to the estimated flops of one firing. Its result None means unknown;
        the field None means negligible.
      blas: whether the kernel may call the BLAS library, so that limiting its number of threads has an effect.
      total: the names of the arguments (axes, sizes) that must be constants, checked by the shape rule, for the op to
        succeed on all input values of fitting shapes (`ir.analysis.speculatable`); None: the op may fail.
      total_for: the dtypes `T` for which `total` holds; None: all dtypes. (Integers cannot be divided by zero.)
      checks: whether the op exists to fail on a wrong input, so that it runs even if only its output's shape is needed.
      fresh: whether output 0 is a new array, which shares no memory with another one.
      rounds_once: whether the kernel computes half precision in float32 and rounds each result once, so that it is the
        same operation of float32 between conversions (`optimize.half_precision`).
      within: the bounds of a real element of output 0, NaN excepted; None: no bounds are known.
      slope: for the gradient op of a function in terms of its result, `op(y, dy) = dy * slope(b, y)`: the function that
        builds this factor; None otherwise.
      placeholder: whether the caller may or must feed output 0.
      stateless: whether a structured op calls functions without effects.
      graph_end: whether the op is a parameter or a result of a graph.
      sum_sign: 1 if output 0 is the sum of the inputs, element by element; -1 if it is input 0 minus input 1; else 0.
      compares: the relation between input 0 and input 1 that output 0 states for each element, or None.
      split: the role of an op that cuts an input into consecutive pieces, or None.
      list_role: the role of an op on tensor lists, or None.
      suspends: whether the stateful kernel is a `collections.deque`, of which each firing takes the first value, and
        compiled code is suspended while it is empty (`compile.Compiled.begin`).
      begins: whether the op begins work that goes on while others run, so that it should run early.
      awaits: whether the op waits for such work, so that it should run late.

    Example:
      >>> import headrace as hr
      >>> facts = hr.extend.Facts(commutative=True, cost=hr.extend.flops_per_element(2))
      >>> facts.commutative, facts.effect, facts.cost([(3,), (3,)], [(3,)])
      (True, '', 6)
    """

    commutative: bool = False
    forwards: int | None = None
    shape_only: bool = False
    no_fold: bool = False
    dynamic_shape: bool = False
    effect: str = ""
    writes: bool = False
    blocking: bool = False
    waits: bool = False
    cost: Cost | None = None
    blas: bool = False
    total: tuple[str, ...] | None = None
    total_for: frozenset[DType] | None = None
    checks: bool = False
    fresh: bool = False
    rounds_once: bool = False
    within: tuple[float, float] | None = None
    slope: Callable[[Any, Any], Any] | None = None
    placeholder: bool = False
    stateless: bool = False
    graph_end: bool = False
    sum_sign: Literal[-1, 0, 1] = 0
    compares: Relation | None = None
    split: SplitRole | None = None
    list_role: ListRole | None = None
    suspends: bool = False
    begins: bool = False
    awaits: bool = False


class NotDifferentiable:
    """Type of `NOT_DIFFERENTIABLE`: gradients stop at the op, which has no derivative by nature."""

    def __repr__(self) -> str:
        return "NOT_DIFFERENTIABLE"


NOT_DIFFERENTIABLE: Final = NotDifferentiable()


@record(frozen=True, slots=True)
class Missing:
    """Gradient rule that could exist and does not.

    Attributes:
      why: the text of the error.
    """

    why: str


def missing(why: str) -> Missing:
    """Returns the value of `op(grad=...)` for an op without a rule, with the reason.

    Example:
      >>> import headrace as hr, numpy as np
      >>> median = hr.register_op(
      ...     "DocMedian", "x: T", "y: T", {"T": {hr.float32}}, shape=hr.extend.scalars,
      ...     kernel=lambda attrs: np.median, grad=hr.extend.missing("the rule is not written yet"))
      >>> hr.grad(median)([1.0, 2.0, 9.0])
      Traceback (most recent call last):
      LookupError: operation 'DocMedian' (DocMedian, made at ...) has no gradient: the rule is not written yet. ...
    """
    return Missing(why)


@record(frozen=True)
class Case:
    """Inputs and attributes with which tests run an op.

    Attributes:
      inputs: an array for each argument (a list of arrays for a list argument).
      attrs: the attributes that do not follow from the inputs' dtypes.
      want: the expected outputs, if the op has no oracle for this case.
    """

    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    want: Any = None


def case(*inputs: Any, want: Any = None, **attrs: Any) -> Case:
    """Returns `Case(inputs, attrs, want)`.

    Example:
      >>> import headrace as hr
      >>> hr.extend.case(1, 2).inputs
      (1, 2)
    """
    return Case(inputs, attrs, want)


class Symmetric:
    """Type of `SYMMETRIC`: the derivative is its own transpose."""

    def __repr__(self) -> str:
        return "SYMMETRIC"


SYMMETRIC: Final = Symmetric()


# Control-flow primitives that the token machine executes, and kinds of ops that own or call functions; "" is neither.
Primitive: TypeAlias = Literal[
    "", "Switch", "SwitchN", "Merge", "Enter", "Exit", "NextIteration", "ControlTrigger", "Send", "Recv"
]
Structured: TypeAlias = Literal["", "If", "Case", "While", "For", "Call", "RemoteCall", "SymbolicGradient"]
Sample: TypeAlias = "Callable[[np.random.Generator, DType], Iterable[Case]]"
KernelFactory: TypeAlias = Callable[..., Callable[..., Any]]
# Arguments and results of rules have types of modules that import this one: `b` is an `ir.builder.Builder`, `n` an
# `ir.grad_node.GradNode`, `c` an `ir.infer.Inference`, a gradient a `Tensor`, an `IndexedSlices` or None.
GradRule: TypeAlias = "Callable[..., Sequence[Any]] | NotDifferentiable | Missing"
BatchRule: TypeAlias = "Callable[..., Sequence[Any]] | Missing | None"
JvpRule: TypeAlias = "Callable[..., Sequence[Any]] | Symmetric | Missing | None"
ShapeRule: TypeAlias = "Callable[[Any], Sequence[Shape]]"


@record(frozen=True, slots=True)
class OpDef:
    """Record of one op type; see `op` for the fields."""

    type: str
    ins: tuple[ArgSpec, ...]
    outs: tuple[ArgSpec, ...]
    attrs: Mapping[str, AttrSpec]
    shape: ShapeRule
    kernel: KernelFactory | None
    stateful: KernelFactory | None
    async_: KernelFactory | None
    primitive: Primitive
    structured: Structured
    grad: GradRule
    jvp: JvpRule
    batch: BatchRule
    facts: Facts
    shape_value: Callable[[Any], Shape] | None
    form: Callable[[Any], Any] | None
    oracle: Callable[..., Any] | None
    sample: Sample | None
    doc: str
    differs: str
    xp: bool
    host: tuple[str, ...]

    @property
    def is_pure(self) -> bool:
        """Whether equal inputs give equal outputs, without any effect."""
        return self.kernel is not None and not self.facts.effect

    @property
    def is_effectful(self) -> bool:
        """Whether the op does more than compute outputs, such as read a variable or wait."""
        if self.structured:
            return not self.facts.stateless
        return bool(self.facts.effect) or self.async_ is not None

    @property
    def list_kind(self) -> ListKind | None:
        """Kind of the op's operation on tensor lists, `ListRole.kind`; None without such a role."""
        role = self.facts.list_role
        return None if role is None else role.kind

    @property
    def is_cheap(self) -> bool:
        """Whether the op is pure and takes at most `CHEAP_FLOPS` flops for each element.

        Computing such an op again is about as fast as keeping its output.
        """
        if not self.is_pure or self.facts.no_fold or self.facts.blas:
            return False
        cost = self.facts.cost
        return cost is None or (isinstance(cost, PerElement) and cost.flops <= thresholds.CHEAP_FLOPS)

    def output_dtypes(self, attrs: Mapping[str, Any]) -> list[DType]:
        """Returns the dtypes of the flat outputs under complete attributes."""
        return _flat_dtypes(self.outs, attrs)

    def input_dtypes(self, attrs: Mapping[str, Any]) -> list[DType]:
        """Returns the dtypes of the flat inputs under complete attributes."""
        return _flat_dtypes(self.ins, attrs)

    def spans(self, attrs: Mapping[str, Any], outputs: bool = False) -> dict[str, slice]:
        """Returns argument name → positions of its tensors in the flat inputs (or outputs)."""
        out, at = {}, 0
        for a in self.outs if outputs else self.ins:
            n = len(a.dtypes(attrs))
            out[a.name] = slice(at, at + n)
            at += n
        return out

    def complete_attrs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns `given` with checked values and with defaults for missing attributes.

        Attributes that the record does not declare are kept.

        Raises:
          GraphError: an attribute is missing, of the wrong kind or not among the allowed values.
        """
        out = dict(given)
        for name, spec in self.attrs.items():
            value = out.get(name, _absent)
            if value is _absent:
                if spec.default is REQUIRED:
                    raise GraphError(
                        f"{self.type} needs the attribute {name!r} ({describe_attr(spec)}), which is missing"
                    )
                out[name] = spec.default
            elif type(value) is not DType or spec.allowed is None or value not in spec.allowed:
                out[name] = check_attr(self.type, name, spec, value)
        return out

    def extend_attrs(self, old: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns complete attributes: `old`, updated by `given`.

        If a list only became longer, only its new elements are checked.

        Raises:
          GraphError: a value is of the wrong kind or not among the allowed ones.
        """
        out = {**old, **given}
        for name, value in given.items():
            spec, had = self.attrs.get(name), old.get(name)
            if spec is None:
                continue
            if spec.is_list and isinstance(had, tuple) and isinstance(value, tuple) and value[: len(had)] == had:
                end = check_attr(self.type, name, dataclasses.replace(spec, minimum=None), value[len(had) :])
                out[name] = had + end
            else:
                out[name] = check_attr(self.type, name, spec, value)
        return out

    def infer_attrs(self, args: Sequence[Sequence[DType]], given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns complete attributes, some inferred from the dtypes and numbers of the inputs.

        Args:
          args: the dtypes of the tensors of each argument.
          given: the attributes that the caller stated.

        Raises:
          GraphError: an attribute is missing, of the wrong kind or not among the allowed values.
        """
        out: dict[str, Any] = {}
        for spec, ds in zip(self.ins, args, strict=True):
            if spec.number_attr is not None:
                out.setdefault(spec.number_attr, len(ds))
            if spec.type_list_attr is not None:
                out.setdefault(spec.type_list_attr, tuple(d.base for d in ds))
            elif spec.type_attr is not None and ds:
                out.setdefault(spec.type_attr, ds[0].base)
        if given:
            out.update(given)
        return self.complete_attrs(out)

    def check_inputs(self, attrs: Mapping[str, Any], got: Sequence[DType], first: int = 0) -> None:
        """Raises an error unless the op accepts inputs of the dtypes `got`.

        Args:
          attrs: the complete attributes.
          got: the dtypes of the inputs from number `first` on.
          first: the number of the first input to check.

        Raises:
          GraphError: the number of inputs is wrong, or an input is a value where a reference is expected.
          SignatureError: an input has the wrong dtype.
        """
        want = self.input_dtypes(attrs)[first:]
        if want == got:
            return
        if len(want) != len(got):
            n, m = first + len(want), first + len(got)
            raise GraphError(f"{self.type} takes {n} inputs under its attributes, got {m}")
        for i, (w, g) in enumerate(zip(want, got, strict=True), first):
            if w == g or (not w.is_ref and w == g.base):
                continue
            if w.is_ref and w.base == g.base:
                raise GraphError(
                    f"Input {i} of {self.type} must be a reference ({w}, a variable), got {g}, which is a value"
                )
            raise SignatureError(f"Input {i} of {self.type} was passed {g}, incompatible with expected {w}")


def _flat_dtypes(args: Iterable[ArgSpec], attrs: Mapping[str, Any]) -> list[DType]:
    out: list[DType] = []
    for a in args:
        out += a.dtypes(attrs)
    return out


op_registry: Final[Registry[OpDef]] = Registry("op type")

_NO_FACTS: Final = Facts()


def op(
    type: str,
    ins: str = "",
    outs: str = "",
    attrs: Mapping[str, Any] | None = None,
    *,
    shape: ShapeRule,
    kernel: KernelFactory | None = None,
    xp: bool = False,
    host: tuple[str, ...] = (),
    stateful: KernelFactory | None = None,
    async_: KernelFactory | None = None,
    primitive: Primitive = "",
    structured: Structured = "",
    grad: GradRule,
    jvp: JvpRule = None,
    batch: BatchRule = None,
    facts: Facts = _NO_FACTS,
    shape_value: Callable[[Any], Shape] | None = None,
    form: Callable[[Any], Any] | None = None,
    oracle: Callable[..., Any] | None = None,
    sample: Sample | None = None,
    doc: str = "",
    differs: str = "",
    depth: int = 1,
) -> OpDef:
    """Registers an op type and returns its record.

    Args:
      type: TensorFlow's op name.
      ins, outs: the arguments, in the notation of TensorFlow's registry.
      attrs: name → `AttrSpec`, or the short form: a set of dtypes or a default value.
      shape: the shape rule, `rule(c) -> [shape of each flat output]`; `c` is an `ir.infer.Inference`.
      kernel: for pure ops: `(attrs) -> f(*arrays)`. `f` returns the array if the op has one output, else a tuple.
      xp: whether the kernel computes in any namespace of the array API standard. It is then `(xp, attrs) ->
        f(*arrays)`, and devices with other arrays than numpy's can run the op (`opkit.namespaces`). A stateful kernel
        with `xp=True` also takes values in the memory of a device (`device_arrays`).
      host: the names of the arguments whose elements the kernels read to know what to do (axes, sizes, seeds). A device
        takes them from the host, because a read of its own memory would wait for the work that it has queued.
      stateful: `(ctx, attrs) -> f(*arrays)`, called once for each step; see `ir.kernel.KernelContext`.
      async_: `(ctx, attrs) -> f(*arrays, done)`, for kernels that may wait; `done` takes the result or an exception.
      primitive: the name of a control-flow primitive, which the executor itself runs.
      structured: the kind of an op that owns or calls functions ("If", "While", "Case", "Call", ...); `lower/` defines
        its meaning.
      grad: `rule(b, n, *dys) -> [gradient or None for each flat input]`, `NOT_DIFFERENTIABLE` or `missing(why)`.
      jvp: `rule(b, n, *dxs) -> [tangent or None for each flat output]`, where the dxs are the tangents of the flat
        inputs (None: zero); `SYMMETRIC` if the derivative is its own transpose, so that `grad` is the rule for tangents
        too; `missing(why)`; None: the rule is derived from `grad` (`grad.forward`).
      batch: `rule(b, n) -> [tensor for each flat output]`, with the batch in dimension 0; `n` is an
        `opkit.batch_node.BatchNode`. `missing(why)`; None: the rule is derived for elementwise ops, and each example is
        computed alone for others (`vmap`).
      facts: the properties that passes rely on.
      shape_value: `rule(c)`: the output `c.output`, an integer vector or scalar, as a partly known shape.
      form: `rule(op)`: the data movement, reduction or product that an operation with static parameters is, an
        `opkit.forms.Form`, or None. The compiler writes it instead of a call of the kernel.
      oracle: an independent implementation on numpy arrays: `oracle(*inputs, **attrs of the case)`.
      sample: `(rng, dtype) -> cases`: the cases of the tests that run over the registry.
      doc: a description of one sentence.
      differs: the differences from TensorFlow's op on the CPU, one or two sentences for `headrace docs reference/ops`.
      depth: the number of stack frames between this function and the line that counts as the record's home.

    Returns:
      The record.

    Raises:
      TypeError: not exactly one of kernel, stateful, async_, primitive and structured is given, or `facts` or `host`
        contradict the arguments.
      DuplicateError: the type is registered already.
    """
    given = [f for f in (kernel, stateful, async_, primitive or None, structured or None) if f is not None]
    if len(given) != 1:
        raise TypeError(
            f"{type}: give exactly one of kernel=, stateful=, async_=, primitive= and structured=, got {len(given)}"
        )
    if grad is None:
        raise TypeError(f"{type}: grad= must be a rule, NOT_DIFFERENTIABLE or missing('why')")
    specs = {k: _attr_spec(v) for k, v in (attrs or {}).items()}
    record = OpDef(
        type,
        _parse_args(ins, specs),
        _parse_args(outs, specs),
        specs,
        shape,
        kernel if kernel is None or xp else with_namespace(kernel),
        stateful,
        async_,
        primitive,
        structured,
        grad,
        jvp,
        batch,
        facts,
        shape_value,
        form,
        oracle,
        sample,
        doc,
        differs,
        xp,
        host,
    )
    wrong = _wrong_role(record)
    if wrong:
        raise TypeError(f"{type}: {wrong}")
    op_registry.register(type, record, depth=depth + 1)
    return record


def with_namespace(factory: Callable[..., Callable[..., Any]]) -> KernelFactory:
    """Returns a factory `(xp, attrs, ...)` for one that receives no namespace."""
    return lambda xp, *others: factory(*others)


def _wrong_role(record: OpDef) -> str:
    """Returns the contradiction between a record's arguments and its roles, or ""."""
    facts, ins, outs = record.facts, record.ins, record.outs
    absent = [name for name in record.host if name not in {a.name for a in ins}]
    if absent:
        return f"host= names {absent[0]!r}, which is no argument; there are {[a.name for a in ins]}"
    if facts.stateless and not record.structured:
        return "facts.stateless= is for ops that call functions"
    if facts.placeholder and len(outs) != 1:
        return f"facts.placeholder= is for ops with one output, and there are {len(outs)}"
    if facts.sum_sign and (len(ins) != 2 or len(outs) != 1 or len({a.type_attr for a in (*ins, *outs)}) != 1):
        return f"facts.sum_sign={facts.sum_sign} is for ops with two inputs and one output, all of one type"
    if facts.compares is not None and (
        facts.compares not in MIRRORED or len(ins) != 2 or [a.dtype for a in outs] != [dtypes.bool_]
    ):
        return (
            f"facts.compares={facts.compares!r} is for ops with two inputs and one bool output; known: {list(MIRRORED)}"
        )
    if facts.split is not None:
        value, axis = (ins[k] if k in range(len(ins)) else None for k in (facts.split.value, facts.split.axis))
        if value is None or axis is None or value is axis or any(a.is_list for a in ins):
            return f"facts.split={facts.split} names two inputs, each a single tensor; there are {len(ins)} arguments"
        if value.type_attr is None or [(a.is_list, a.type_attr) for a in outs] != [(True, value.type_attr)]:
            return f"facts.split={facts.split}: the output is a list of tensors of the type attribute of input 'value'"
    return "" if facts.list_role is None else _wrong_list_role(record, facts.list_role)


def _wrong_list_role(record: OpDef, role: ListRole) -> str:
    """Returns the contradiction between a record's arguments and its list role, or ""."""
    ins, outs = record.ins, record.outs
    if role.kind not in LIST_SIGNATURES:
        return f"facts.list_role: {role.kind!r} is no kind of operation on lists; there are {list(LIST_SIGNATURES)}"
    n_ins, n_outs, attrs = LIST_SIGNATURES[role.kind]
    if (len(ins), len(outs)) != (n_ins, n_outs) or any(a.is_list for a in (*ins, *outs)):
        return f"facts.list_role: an op of the kind {role.kind!r} has {n_ins} inputs and {n_outs} outputs"
    if not (role.makes or ins[0].dtype is dtypes.variant) or not (role.reads or outs[0].dtype is dtypes.variant):
        return f"facts.list_role: the list of an op of the kind {role.kind!r} is input 0 or output 0, of dtype variant"
    absent = [name for name in attrs if name not in record.attrs]
    if absent:
        return f"facts.list_role: an op of the kind {role.kind!r} has the attribute {absent[0]!r}"
    at = role.element_input
    if (at is not None) is not (role.kind in ("push", "set")):
        return "facts.list_role: element_input= is for the kinds 'push' and 'set'"
    if at is not None and (at not in range(1, n_ins) or ins[at].type_attr != "element_dtype"):
        return f"facts.list_role: element_input={at} is no input of type element_dtype"
    at = role.shape_input
    if (at is not None) is not (role.kind in ("pop", "get", "stack", "gather", "concat")):
        return "facts.list_role: shape_input= is for the kinds that read elements"
    if at is not None and at not in range(1, n_ins):
        return f"facts.list_role: shape_input={at} is no input"
    return ""
