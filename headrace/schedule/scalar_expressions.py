"""Scalar expressions: the ufuncs of an elementwise kernel, found by running it on symbols.

A kernel is made for an array namespace, `factory(xp, attrs)`, and numpy is only one such namespace. This module runs
the kernel with a namespace that records ufuncs, on symbols instead of arrays. So a kernel like
`lambda xp, y, dy: dy * (1 - y * y)` yields its scalar expression: three ufuncs, each on arguments of known dtype and
shape. A code generator writes it as operators on scalars, or as calls that put their results into existing buffers.

A kernel that uses more than ufuncs (a reduction, an element, a decision that depends on values) has no scalar
expression and is called as it is. A scalar expression of more than `DEEPEST` nested ufuncs, such as a sum of many
tensors, is not used either.

Such a kernel may have a `formula` nevertheless. There expressions may choose (`np.where`), convert (`np.astype`), take
complex numbers apart and make them (`np.real`, `np.imag`, `complex`), and use ufuncs of other libraries and narrow
floats, and a kernel may require conditions of the elements. Machine code
computes formulas. Python code would make a new array for each of these steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace import shapes
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.shapes import Shape


# Nested ufuncs of a scalar expression. The writers of scalar expressions recurse, and one of scalars is written as one
# expression: Python's tokenizer refuses 200 nested parentheses, and inputs of up to `thresholds.INLINE_EXPRESSION`
# characters add their own. Scalar expressions of records have fewer than ten; only sums of many tensors have more, and
# their kernel is as fast.
DEEPEST: Final = 32


class NotScalarExpression(AttributeError):
    """Raised on symbols if a kernel does more than to apply ufuncs to its arguments."""


@record(eq=False, frozen=True, slots=True)
class Apply:
    """Application of a ufunc to arguments: other applications, inputs (`Input`) or numbers.

    Attributes:
      ufunc: The ufunc; in a `formula` also a function that is no ufunc.
      args: Its arguments.
      dtype: The dtype of the result.
      shape: The shape of the result; None if it is not static.
    """

    ufunc: np.ufunc
    args: tuple[Any, ...]
    dtype: np.dtype
    shape: tuple[int, ...] | None


@record(frozen=True, slots=True)
class Input:
    """Input of the operation.

    Attributes:
      index: The position of the input.
    """

    index: int


_INPUTS: Final = tuple(map(Input, range(8)))  # more than any ufunc has


class _Symbol:
    """Stand-in for an array while a kernel runs in order to find its scalar expression."""

    __slots__ = ("depth", "dtype", "node", "static")
    __array_ufunc__ = None

    def __init__(self, node: Apply | Input, dtype: np.dtype, static: tuple[int, ...] | None, depth: int = 0) -> None:
        self.node = node
        self.dtype = dtype
        self.static = static
        self.depth = depth  # number of nested ufuncs in `node`

    @property
    def shape(self) -> tuple[int, ...]:
        if self.static is None:
            raise NotScalarExpression
        return self.static

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        size = shapes.size(self.shape)
        assert size is not None
        return size

    def __getattr__(self, name: str) -> Any:
        raise NotScalarExpression

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise NotScalarExpression

    def __bool__(self) -> bool:
        raise NotScalarExpression

    def __getitem__(self, key: object) -> Any:
        raise NotScalarExpression

    def __iter__(self) -> Any:
        raise NotScalarExpression

    def __eq__(self, other: object) -> Any:
        return _apply(np.equal, self, other)

    def __ne__(self, other: object) -> Any:
        return _apply(np.not_equal, self, other)

    __hash__ = None  # type: ignore[assignment]


def _operator(ufunc: np.ufunc, swapped: bool = False) -> Callable[..., Any]:
    if ufunc.nin == 1:
        return lambda self: _apply(ufunc, self)
    if swapped:
        return lambda self, other: _apply(ufunc, other, self)
    return lambda self, other: _apply(ufunc, self, other)


_binary: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_others: dict[str, np.ufunc] = {
    "neg": np.negative,
    "abs": np.absolute,
    "invert": np.invert,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
for _name, _ufunc in _binary.items():
    setattr(_Symbol, f"__{_name}__", _operator(_ufunc))
    setattr(_Symbol, f"__r{_name}__", _operator(_ufunc, swapped=True))
for _name, _ufunc in _others.items():
    setattr(_Symbol, f"__{_name}__", _operator(_ufunc))


def _apply(ufunc: np.ufunc, *args: Any) -> _Symbol:
    if ufunc.nout != 1 or ufunc.nin != len(args) or ufunc.signature is not None:
        raise NotScalarExpression
    return _applied(ufunc, args, None)


def _applied(ufunc: Any, args: Sequence[Any], dtype: np.dtype | None) -> _Symbol:
    """The symbol of a function that is applied to arguments.

    The dtype of the result follows from the ufunc if it is None.
    """
    kinds: list[Any] = []
    static: tuple[int, ...] | None = ()
    depth = 1
    for a in args:
        if isinstance(a, _Symbol):
            kinds.append(a.dtype)
            depth = max(depth, a.depth + 1)
            if static is not None:
                static = None if a.static is None else np.broadcast_shapes(static, a.static)
        elif type(a) in (int, float, complex, bool):
            kinds.append(type(a) if type(a) is not bool else np.dtype(bool))
        elif isinstance(a, np.generic):
            kinds.append(a.dtype)
        else:
            raise NotScalarExpression
    if depth > DEEPEST:
        raise NotScalarExpression
    if dtype is None:
        try:
            dtype = ufunc.resolve_dtypes((*kinds, None))[-1]
        except TypeError as e:
            raise NotScalarExpression from e
    nodes = tuple(a.node if isinstance(a, _Symbol) else a for a in args)
    symbol = next((type(a) for a in args if isinstance(a, _Symbol)), _Symbol)
    return symbol(Apply(ufunc, nodes, dtype, static), dtype, static, depth)


class _Namespace:
    """Array namespace that records the ufuncs that a kernel calls."""

    def __getattr__(self, name: str) -> Any:
        f = getattr(np, name, None)
        if isinstance(f, np.ufunc):
            return lambda *args: _apply(f, *args)
        if isinstance(f, type) and issubclass(f, np.generic):
            return f
        raise NotScalarExpression


_namespace = _Namespace()


def scalar_expression(op: Operation, factory: Callable[[Any, Mapping[str, Any]], Any], kernel: Any) -> Apply | None:
    """The scalar expression of the pure kernel of an operation.

    Args:
      op: An operation with one output.
      factory: The factory of its kernel.
      kernel: The kernel that the factory makes for numpy.

    Returns:
      The scalar expression; None if the kernel has none.
    """
    if isinstance(kernel, np.ufunc) and kernel.nout == 1 and kernel.nin == len(op.inputs):
        out_dtype = op.outputs[0].dtype.base.numpy
        if not is_plain(out_dtype) or not all(is_plain(t.dtype.base.numpy) for t in op.inputs):
            return None
        return Apply(kernel, _INPUTS[: kernel.nin], out_dtype, _static(op.outputs[0].shape))
    if op.opdef.facts.cost is None:  # the kernel moves or inspects elements
        return None
    ins = []
    for i, t in enumerate(op.inputs):
        dtype = t.dtype.base.numpy
        if not is_plain(dtype):
            return None
        ins.append(_Symbol(Input(i), dtype, _static(t.shape)))
    try:
        out = factory(_namespace, op.attrs)(*ins)
    except Exception:  # a failure on symbols does not imply a failure on arrays
        return None
    if not isinstance(out, _Symbol) or not isinstance(out.node, Apply) or out.dtype != op.outputs[0].dtype.numpy:
        return None
    return out.node


# *** Formulas ***


@record(eq=False, frozen=True, slots=True)
class Check:
    """Condition that holds for all elements, or the operation fails.

    Attributes:
      condition: The condition, an expression of dtype bool.
      error: The class of the error.
      message: Its message.
    """

    condition: Apply
    error: type[Exception]
    message: str


@record(eq=False, frozen=True, slots=True)
class Formula:
    """Elementwise operation in full.

    Attributes:
      expression: The expression. Other than a scalar expression it may contain `np.where`, `np.astype`, `np.real`,
        `np.imag` and `complex` in the place of ufuncs, ufuncs of other libraries than numpy, and float16 and bfloat16.
      checks: The checks of its inputs.
    """

    expression: Apply
    checks: tuple[Check, ...]


class _FormulaSymbol(_Symbol):
    """Symbol that records conversions, and ufuncs that are called on it directly."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> _Symbol:  # type: ignore[override]
        if method != "__call__" or options:
            raise NotScalarExpression
        return _apply(ufunc, *args)

    def astype(self, dtype: Any, copy: bool = True) -> _Symbol:
        """The conversion to `dtype`."""
        wanted = np.dtype(dtype)
        return self if wanted == self.dtype else _applied(np.astype, [self], wanted)

    @property
    def real(self) -> _Symbol:
        """The real part."""
        return self._part(np.real)

    @property
    def imag(self) -> _Symbol:
        """The imaginary part."""
        return self._part(np.imag)

    def _part(self, function: Any) -> _Symbol:
        if self.dtype.kind != "c":
            raise NotScalarExpression
        return _applied(function, [self], np.dtype(f"f{self.dtype.itemsize // 2}"))


class _FormulaNamespace(_Namespace):
    """Array namespace that records choices and checks as well."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def where(self, condition: Any, x: Any, y: Any) -> _Symbol:
        """A choice between two numbers."""
        if not isinstance(condition, _Symbol) or condition.dtype != bool:
            raise NotScalarExpression
        dtype = np.result_type(*(a.dtype if isinstance(a, (_Symbol, np.generic)) else a for a in (x, y)))
        return _applied(np.where, [condition, x, y], dtype)

    def complex_of(self, real: Any, imag: Any, dtype: np.dtype) -> _Symbol:
        """A complex number of its parts."""
        return _applied(complex, [real, imag], dtype)

    def fail_unless(self, condition: Any, error: type[Exception], message: str) -> None:
        """Adds a check; kernels call this in place of a test of their arrays."""
        self.checks.append(Check(condition.node, error, message))


def formula(op: Operation, factory: Callable[[Any, Mapping[str, Any]], Any]) -> Formula | None:
    """The formula of the pure kernel of an operation.

    Args:
      op: An operation with one output.
      factory: The factory of its kernel.

    Returns:
      The formula; None if the kernel has none.
    """
    if op.opdef.facts.cost is None:  # the kernel moves or inspects elements
        return None
    inputs = [(t.dtype.base.numpy, _static(t.shape)) for t in op.inputs]
    return formula_of(factory, op.attrs, inputs, op.outputs[0].dtype.numpy, _static(op.outputs[0].shape))


def formula_of(
    factory: Callable[[Any, Mapping[str, Any]], Any],
    attrs: Mapping[str, Any],
    inputs: Sequence[tuple[np.dtype, tuple[int, ...] | None]],
    dtype: np.dtype,
    shape: tuple[int, ...] | None,
) -> Formula | None:
    """The formula of a pure kernel with one result.

    Args:
      factory: The factory of the kernel.
      attrs: The attributes of the operation.
      inputs: The dtype and the shape of each input; None for a shape that is not static.
      dtype: The dtype of the result.
      shape: The shape of the result; None if it is not static.

    Returns:
      The formula; None if the kernel has none.
    """
    if any(d.kind == "O" for d, _ in inputs):
        return None
    ins = [_FormulaSymbol(Input(i), *each) for i, each in enumerate(inputs)]
    namespace = _FormulaNamespace()
    try:
        out = factory(namespace, attrs)(*ins)
    except Exception:  # a failure on symbols does not imply a failure on arrays
        return None
    if not isinstance(out, _Symbol) or not isinstance(out.node, Apply) or out.dtype != dtype:
        return None
    if None not in (shape, out.static) and shape != out.static:
        return None
    return Formula(out.node, tuple(namespace.checks))


# *** Formulas of rows ***


class Reduction(NamedTuple):
    """Reduction of each row of an expression.

    Attributes:
      ufunc: The ufunc, `np.add` or `np.maximum`.
      expression: The expression.
    """

    ufunc: np.ufunc
    expression: Apply | Input


class RowResult(NamedTuple):
    """Result of an operation on rows.

    Attributes:
      expression: The expression.
      dtype: The dtype.
      shape: The shape: that of the inputs, or one with a number for each row.
    """

    expression: Apply | Input
    dtype: np.dtype
    shape: tuple[int, ...]


class RowFormula(NamedTuple):
    """Elementwise operation with reductions of rows, along the last dimension.

    Attributes:
      reductions: The reductions. The result of the first one is the input behind those of the operation, and so on.
      results: The results.
    """

    reductions: tuple[Reduction, ...]
    results: tuple[RowResult, ...]

    @property
    def expressions(self) -> list[Apply | Input]:
        """The expressions of the reductions and of the results."""
        return [*(r.expression for r in self.reductions), *(r.expression for r in self.results)]


class _RowNamespace(_FormulaNamespace):
    """Array namespace that records reductions of rows as well.

    Args:
      shape: The shape of the inputs.
      inputs: The number of inputs.
    """

    def __init__(self, shape: tuple[int, ...], inputs: int) -> None:
        super().__init__()
        self.reductions: list[Reduction] = []
        self._shape, self._inputs = shape, inputs

    def max(self, x: Any, axis: int, keepdims: bool = False, initial: float = -np.inf) -> _Symbol:
        """The greatest number of each row."""
        if initial != -np.inf:
            raise NotScalarExpression
        return self._reduced(np.maximum, x, axis, keepdims)

    def sum(self, x: Any, axis: int, keepdims: bool = False) -> _Symbol:
        """The sum of each row."""
        return self._reduced(np.add, x, axis, keepdims)

    def _reduced(self, ufunc: np.ufunc, x: Any, axis: int, keepdims: bool) -> _Symbol:
        if not isinstance(x, _Symbol) or x.static != self._shape or axis != -1 or x.dtype.kind != "f":
            raise NotScalarExpression
        self.reductions.append(Reduction(ufunc, x.node))
        shape = (*self._shape[:-1], 1) if keepdims else self._shape[:-1]
        return _FormulaSymbol(Input(self._inputs + len(self.reductions) - 1), x.dtype, shape)


def row_formula_of(
    factory: Callable[[Any, Mapping[str, Any]], Any],
    attrs: Mapping[str, Any],
    inputs: Sequence[np.dtype],
    shape: tuple[int, ...],
    dtypes: Sequence[np.dtype],
) -> RowFormula | None:
    """The formula of rows of a pure kernel.

    Args:
      factory: The factory of the kernel.
      attrs: The attributes of the operation.
      inputs: The dtypes of the inputs.
      shape: The shape of each input, with at least two numbers in a row.
      dtypes: The dtypes of the results.

    Returns:
      The formula; None if the kernel has none.
    """
    if not shape or shape[-1] < 2 or any(d.kind == "O" for d in inputs):
        return None
    namespace = _RowNamespace(shape, len(inputs))
    try:
        made = factory(namespace, attrs)(*[_FormulaSymbol(Input(i), d, shape) for i, d in enumerate(inputs)])
    except Exception:  # a failure on symbols does not imply a failure on arrays
        return None
    results = made if isinstance(made, tuple) else (made,)
    if namespace.checks or not namespace.reductions or not all(isinstance(r, _Symbol) for r in results):
        return None
    if [r.dtype for r in results] != list(dtypes):
        return None
    return RowFormula(tuple(namespace.reductions), tuple([RowResult(r.node, r.dtype, r.shape) for r in results]))


def nodes_of(expressions: Sequence[Any]) -> list[Apply]:
    """The ufuncs of expressions, arguments first."""
    found: dict[Apply, None] = {}

    def visit(node: Any) -> None:
        if isinstance(node, Apply) and node not in found:
            for a in node.args:
                visit(a)
            found[node] = None

    for each in expressions:
        visit(each)
    return list(found)


def digest(expressions: Sequence[Any]) -> tuple[Any, ...]:
    """A key of expressions: equal ones compute the same."""
    nodes = nodes_of(expressions)
    numbers = {node: k for k, node in enumerate(nodes)}

    def of(arg: Any) -> Any:
        if isinstance(arg, Apply):
            return numbers[arg]
        return arg if isinstance(arg, Input) else repr(arg)

    return *((node.ufunc, node.dtype, *map(of, node.args)) for node in nodes), tuple(map(of, expressions))


def is_plain(dtype: np.dtype) -> bool:
    """Whether numpy computes in `dtype` itself, and not in float32 as for narrower floats."""
    return dtype.kind in "biuc" or (dtype.kind == "f" and dtype.itemsize > 2)


def _static(shape: Shape) -> tuple[int, ...] | None:
    if shape is None or None in shape:
        return None
    return shape  # type: ignore[return-value]
