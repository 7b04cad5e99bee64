"""Values of a function in construction: numbers and vectors, with operators.

    x = Value(f, "float", "%x")
    y = (x + 1) * x

Instructions are added to the function in the order in which Python evaluates the operators.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Function


def float_literal(value: float) -> str:
    """Returns a float as LLVM's constant, exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def rounded_literal(value: float, kind: str) -> str:
    """Returns a float, rounded to LLVM's type `kind`, as a constant."""
    return float_literal(float(np.float32(value)) if kind == "float" else value)


class Format(NamedTuple):
    """Format of a binary float.

    Attributes:
      kind: LLVM's type.
      integer: LLVM's type of an integer of the same size.
      mantissa: The number of stored bits of the mantissa.
      bias: The bias of the exponent.
      magic: The number whose sum with a float rounds it to an integer.
      highest: A number whose exponential is infinite.
      lowest: A number whose exponential is 0.
      log2: log(2) in two parts; products of the first one with an exponent are exact.
    """

    kind: str
    integer: str
    mantissa: int
    bias: int
    magic: float
    highest: float
    lowest: float
    log2: tuple[float, float]


SINGLE: Final = Format("float", "i32", 23, 127, 1.5 * 2**23, 89.0, -105.0, (0.693359375, -0.00021219444005469057))
DOUBLE: Final = Format(
    "double",
    *("i64", 52, 1023, 1.5 * 2**52, 710.0, -746.0),
    (float.fromhex("0x1.62e42feep-1"), float.fromhex("0x1.a39ef35793c76p-33")),
)
FORMATS: Final = {"float": SINGLE, "double": DOUBLE}


class Value:
    """Value of a function in construction, with the operators of its type.

    Args:
      f: The function.
      kind: LLVM's type: `float`, `double`, an integer type, or a vector type such as `<8 x double>`.
      name: The value as LLVM writes it.
    """

    __slots__ = ("f", "kind", "name")

    def __init__(self, f: Function, kind: str, name: str) -> None:
        self.f = f
        self.kind = kind
        self.name = name

    @property
    def element(self) -> str:
        """The type of the elements of a vector; the type itself of a scalar."""
        return self.kind.strip("<>").split(" ")[-1]

    @property
    def format(self) -> Format:
        """The format of a float."""
        return FORMATS[self.element]

    def of(self, element: str) -> str:
        """The type with other elements."""
        return self.kind.replace(self.element, element)

    def constant(self, number: float) -> Value:
        """A constant of this type."""
        is_float = self.element in FORMATS
        text = rounded_literal(number, self.element) if is_float else str(int(number))
        return Value(self.f, self.kind, text if self.kind == self.element else f"splat ({self.element} {text})")

    def _operand(self, other: Value | float) -> str:
        return other.name if isinstance(other, Value) else self.constant(other).name

    def _binary(self, name: str, other: Value | float) -> Value:
        text = name if self.element not in FORMATS or name.startswith("f") else f"f{name}"
        return Value(self.f, self.kind, self.f.op(f"{text} {self.kind} {self.name}, {self._operand(other)}"))

    def __add__(self, other: Value | float) -> Value:
        return self._binary("add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._binary("sub", other)

    def __rsub__(self, other: float) -> Value:
        return self.constant(other) - self

    def __mul__(self, other: Value | float) -> Value:
        return self._binary("mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Value:
        return self.constant(other) / self

    def __mod__(self, other: int) -> Value:
        """The remainder of an integer of at least 0."""
        return self._binary("urem", other)

    def __and__(self, other: Value | int) -> Value:
        return self._binary("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, bits: int) -> Value:
        return self._binary("shl", bits)

    def __rshift__(self, bits: int) -> Value:
        """The shift that keeps the sign."""
        return self._binary("ashr", bits)

    def __neg__(self) -> Value:
        return Value(self.f, self.kind, self.f.op(f"fneg {self.kind} {self.name}"))

    def __abs__(self) -> Value:
        return self.intrinsic("fabs")

    def dropped(self, bits: int) -> Value:
        """The shift to the right that fills with zeros."""
        return self._binary("lshr", bits)

    def fma(self, factor: Value | float, addend: Value | float) -> Value:
        """The product with `factor` plus `addend`, rounded once or twice, as is faster."""
        return self.intrinsic("fmuladd", factor, addend)

    def reordered_sum(self, other: Value) -> Value:
        """A sum of floats that LLVM may reorder, so that a loop's sums become vectors."""
        return self._binary("fadd reassoc", other)

    def intrinsic(self, name: str, *others: Value | float) -> Value:
        """The result of one of LLVM's intrinsics with arguments of this type."""
        suffix = {"float": "f32", "double": "f64"}.get(self.element, self.element)
        if self.kind != self.element:
            suffix = f"v{self.kind.strip('<').split(' ')[0]}{suffix}"
        args = [self.name, *map(self._operand, others)]
        target = self.f.module.declare(f"llvm.{name}.{suffix}", self.kind, [self.kind] * len(args))
        text = f"call {self.kind} {target}({', '.join(f'{self.kind} {a}' for a in args)})"
        return Value(self.f, self.kind, self.f.op(text))

    def compare(self, condition: str, other: Value | float) -> Value:
        """A comparison, such as `olt`."""
        name = "fcmp" if self.element in FORMATS else "icmp"
        text = f"{name} {condition} {self.kind} {self.name}, {self._operand(other)}"
        return Value(self.f, self.of("i1"), self.f.op(text))

    def choose(self, then: Value, other: Value | float) -> Value:
        """`then` where this condition holds, else `other`."""
        text = f"select {self.kind} {self.name}, {then.kind} {then.name}, {then.kind} {then._operand(other)}"
        return Value(self.f, then.kind, self.f.op(text))

    def to(self, instruction: str, element: str) -> Value:
        """A conversion by one of LLVM's instructions, such as `fpext`."""
        kind = self.of(element)
        return Value(self.f, kind, self.f.op(f"{instruction} {self.kind} {self.name} to {kind}"))

    def bits(self) -> Value:
        """The bits of a float as an integer."""
        return self.to("bitcast", self.format.integer)

    def signed_as(self, other: Value) -> Value:
        """The absolute value with the sign of `other`."""
        return self.intrinsic("copysign", other)
