"""Makes graphs of one operation of any type on hostile arguments.

Hostile arguments are wrong ranks, empty tensors and absurd sizes.

A seed decides the result of `attempts`. Where a record has a sampler most attempts start from one of its
cases and spoil an input or two, so that checks behind the first are reached as well; the others are drawn from nothing
but the record's signature. Arguments are tensors of unknown shape, so that what a shape rule would have refused reaches
the kernel, or constants, so that the shape rule sees them.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.dtypes import DType
from headrace.ir.attr_values import REQUIRED, AttrSpec
from headrace.ir.builder import Builder
from headrace.ir.graph import Operation, Tensor
from headrace.ir.opdef import ArgSpec, OpDef
from tests.ops.cases import cases, first_types

SHAPES = ((), (0,), (1,), (2,), (3,), (2, 3), (0, 3), (3, 0), (1, 1), (1, 2, 3), (2, 3, 3, 1), (1, 2, 3, 3, 2))
INTEGERS = (0, 1, 2, 3, -1, -2, 7, 100, 2**31 - 1, -(2**31), 2**40, 2**62, -(2**63))
REALS = (0.0, 1.0, -1.0, 0.5, 3.0, 1e30, -1e30, np.inf, -np.inf, np.nan)
STRINGS = (b"", b"a", b"1", b"-3.5", b"a b", b"\xff\xfe", b"(", b"%d", b"x" * 70)


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An operation to make.

    Attributes:
      attrs: its attributes.
      args: one entry for each argument: an array, a list of arrays, or the name of something that has no array (see
        `thing`).
      is_static: whether the arguments are constants.
    """

    attrs: Mapping[str, Any]
    args: tuple[Any, ...]
    is_static: bool


def can_be_tried(record: OpDef) -> bool:
    """Whether an op type is tried here.

    Primitives of control flow, and ops that own functions, are not: their graphs have suites of their own.
    """
    specs = record.attrs.values()
    return not (record.primitive or record.structured or any(s.kind == "func" for s in specs))


def attempts(record: OpDef, n: int, seed: int = 0) -> Iterator[Attempt]:
    """`n` attempts at an op type, the same ones for the same seed."""
    rng = np.random.default_rng([seed, zlib.crc32(record.type.encode())])
    known = [c for d in first_types(record)[:4] for c in cases(record.type, d)[:4]]
    for _ in range(n):
        is_static = bool(rng.random() < 0.3)
        if known and rng.random() < 0.6:
            case = known[rng.integers(len(known))]
            yield Attempt(case.attrs, _spoilt(rng, case.inputs), is_static)
        else:
            attrs = _attrs(rng, record)
            yield Attempt(attrs, tuple(_argument(rng, a, attrs) for a in record.ins), is_static)


def make(b: Builder, record: OpDef, attempt: Attempt) -> Operation:
    """The operation, in the graph of `b`."""
    args = [_tensors(b, a, attempt.is_static) for a in attempt.args]
    made = b.make(record.type, args, dict(attempt.attrs))
    if isinstance(made, Operation):
        return made
    out: Operation = made.op if isinstance(made, Tensor) else made[0].op
    return out


def _tensors(b: Builder, arg: Any, is_static: bool) -> Any:
    if isinstance(arg, list):
        return [_tensors(b, a, is_static) for a in arg]
    if isinstance(arg, str):
        return thing(b, arg)
    constant = b.const(arg, dtypes.from_numpy(arg.dtype))
    return constant if is_static else b.PlaceholderWithDefault(constant, shape=None)


THINGS = ("variable", "queue", "stack", "list", "optional", "mutex", "array")


def thing(b: Builder, name: str) -> Any:
    """A tensor whose value is no array.

    It is a handle, a variant, or (`ref float32`) a variable without a value.
    """
    kind, _, dtype = name.partition(" ")
    if kind == "ref":
        return b.VariableV2(shape=(2,), dtype=dtypes.as_dtype(dtype))
    makers = {
        "variable": lambda: b.VarHandleOp(dtype=dtypes.float32, shape=(2, 3)),
        "queue": lambda: b.FIFOQueueV2(component_types=(dtypes.float32,), shapes=((),)),
        "stack": lambda: b.StackV2(b.const(3), elem_type=dtypes.float32),
        "list": lambda: b.EmptyTensorList(b.const([2]), b.const(4), element_dtype=dtypes.float32),
        "optional": lambda: b.OptionalNone(),
        "mutex": lambda: b.MutexV2(),
        "array": lambda: b.TensorArrayV3(b.const(2), dtype=dtypes.float32)[0],
    }
    return makers[kind]()


# *** inputs and attributes ***


def _spoilt(rng: np.random.Generator, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The inputs of a case, with one or two of them replaced.

    The replacement is another value of the same dtype.
    """
    out = [list(x) if isinstance(x, (list, tuple)) else np.asarray(x) for x in inputs]
    for _ in range(int(rng.integers(1, 3)) if out else 0):
        i = int(rng.integers(len(out)))
        many = out[i]
        if isinstance(many, list):
            if many:
                k = int(rng.integers(len(many)))
                many[k] = _like(rng, np.asarray(many[k]))
        else:
            out[i] = _like(rng, many)
    return tuple([np.asarray(x) for x in v] if isinstance(v, list) else v for v in out)


def _like(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Another array of the dtype of `x`.

    It has another shape, or the same shape with other elements.
    """
    dtype = dtypes.from_numpy(x.dtype)
    if rng.random() < 0.5:
        return _array(rng, dtype, x.shape)
    ways = (lambda: x[None], lambda: x[:0] if x.ndim else x, lambda: x[:1] if x.ndim else x[None])
    return ways[rng.integers(len(ways))]() if rng.random() < 0.6 else _array(rng, dtype)


def _array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...] | None = None) -> np.ndarray:
    if shape is None:
        shape = SHAPES[rng.integers(len(SHAPES))]
    if dtype is dtypes.string:
        out = np.empty(shape, object)
        out[...] = b""
        for i in np.ndindex(shape):
            out[i] = STRINGS[rng.integers(len(STRINGS))]
        return out
    if dtype is dtypes.bool_:
        return rng.integers(0, 2, shape) > 0
    few = rng.random() < 0.5  # one absurd number among modest ones, or nothing but any
    if dtype in dtypes.INTEGER:
        info = np.iinfo(dtype.numpy)
        numbers = [v for v in INTEGERS if info.min <= v <= info.max]
    else:
        numbers = list(REALS)
    picked = rng.integers(0, 4 if few else len(numbers), shape)
    values = np.array(numbers, dtype.numpy if dtype in dtypes.INTEGER else np.float64)[picked]
    if few and values.size and rng.random() < 0.5:
        flat = values.reshape(-1)
        flat[rng.integers(flat.size)] = numbers[rng.integers(len(numbers))]
        values = flat.reshape(shape)
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype.numpy)


def _argument(rng: np.random.Generator, arg: ArgSpec, attrs: Mapping[str, Any]) -> Any:
    found = [_value(rng, d) for d in arg.dtypes(attrs)]
    return found if arg.is_list else found[0]


def _value(rng: np.random.Generator, dtype: DType) -> Any:
    if dtype.is_ref:
        return f"ref {dtype.base.name}"
    if dtype in (dtypes.resource, dtypes.variant):
        return THINGS[rng.integers(len(THINGS))] if dtype is dtypes.resource else ("list", "optional")[rng.integers(2)]
    return _array(rng, dtype)


def _attrs(rng: np.random.Generator, record: OpDef) -> dict[str, Any]:
    """All its attributes; lists of arguments have at most three entries."""
    numbers = {a.number_attr for a in record.ins}
    out = {}
    for name, spec in record.attrs.items():
        if name in numbers:
            out[name] = max(spec.minimum or 0, int(rng.integers(0, 4)))
        elif spec.default is REQUIRED or rng.random() < 0.3:
            out[name] = _attr(rng, spec)
        else:
            out[name] = spec.default
    return out


def _attr(rng: np.random.Generator, spec: AttrSpec) -> Any:
    if spec.is_list:
        n = max(spec.minimum or 0, int(rng.integers(0, 4)))
        return tuple(_attr(rng, dataclasses.replace(spec, is_list=False, minimum=None)) for _ in range(n))
    if spec.kind == "type":
        allowed = sorted(dtypes.ALL if spec.allowed is None else spec.allowed, key=lambda d: d.number)
        return allowed[rng.integers(len(allowed))]
    if spec.allowed is not None:
        return sorted(spec.allowed)[rng.integers(len(spec.allowed))]
    least = -(2**60) if spec.minimum is None else spec.minimum
    draws: dict[str, Any] = {
        "int": lambda: max(
            (0, 1, 1, 2, 3, -1, 10**6, 2**40)[rng.integers(8)], least if spec.minimum is not None else -(2**60)
        ),
        "float": lambda: (0.0, 0.5, 1.0, -1.0, 1e30, float("nan"))[rng.integers(6)],
        "bool": lambda: bool(rng.integers(2)),
        "string": lambda: ("", "a", "NHWC", "mean", "\x01")[rng.integers(5)],
        "shape": lambda: (None, (), (2,), (None, 3), (0,), (2**40, 2**40))[rng.integers(6)],
        "tensor": lambda: _array(rng, dtypes.float32),
    }
    return draws[spec.kind]()
