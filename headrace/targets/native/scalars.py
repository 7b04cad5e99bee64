"""Scalar expressions as LLVM: numbers in memory and registers, conversions, and ufuncs.

A number has two forms. In memory it is as numpy stores it. In a register a bool is an `i1`, a float16 or bfloat16
is a `float` whose value is one of the narrower type, and a complex number is a structure (`complex_scalars`).

The results of arithmetic, comparisons, conversions and integers are those of numpy bit for bit, except the bits of NaN.
Elementary functions have the errors of `elementary`. Each ufunc of a narrow float is computed in float32 and rounded,
to nearest and ties to even, as numpy and `ml_dtypes` do. No instruction has fast-math flags.

`expression` prints a tree of `schedule.scalar_expressions` with numpy's promotion of dtypes. `why_not` tells which
trees it cannot print. Besides ufuncs a tree may contain the functions `np.where`, `np.astype` for the conversion of the
op `Cast`, `np.real`, `np.imag`, and `complex`, which makes a complex number of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace import dtypes
from headrace.schedule.scalar_expressions import Apply, Input
from headrace.targets.native import complex_scalars, elementary
from headrace.targets.native.complex_scalars import PARTS
from headrace.targets.native.values import float_literal, rounded_literal

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Function

_BOOL: Final = np.dtype(bool)
_HALF: Final = dtypes.float16.numpy
_BFLOAT: Final = dtypes.bfloat16.numpy
_SINGLE: Final = np.dtype(np.float32)
_DOUBLE: Final = np.dtype(np.float64)
_FLOATS: Final = (_HALF, _BFLOAT, _SINGLE, _DOUBLE)


# *** Numbers ***


def is_number(dtype: np.dtype) -> bool:
    """Whether numbers of `dtype` have a form in LLVM.

    Those of bools, integers, floats and complex floats in native byte order have one.
    """
    return dtype in _FLOATS or dtype in PARTS or (dtype.kind in "biu" and dtype.isnative)


def memory_type(dtype: np.dtype) -> str:
    """Returns LLVM's type of a number of `dtype` in memory.

    Raises:
      ValueError: The dtype has no form in LLVM.
    """
    if dtype == _HALF:
        return "half"
    if dtype == _BFLOAT:
        return "i16"
    return "i8" if dtype == _BOOL else register_type(dtype)


def register_type(dtype: np.dtype) -> str:
    """Returns LLVM's type of a number of `dtype` in a register.

    Raises:
      ValueError: The dtype has no form in LLVM.
    """
    if not is_number(dtype):
        raise ValueError(f"numbers of {dtype} have no form in LLVM")
    if dtype == _BOOL:
        return "i1"
    if dtype in PARTS:
        return complex_scalars.register_type(dtype)
    if dtype in _FLOATS:
        return "double" if dtype == _DOUBLE else "float"
    return f"i{8 * dtype.itemsize}"


def load(f: Function, dtype: np.dtype, pointer: str, metadata: str = "") -> str:
    """Loads a number.

    Args:
      f: The function in construction.
      dtype: The dtype.
      pointer: The address, which is a multiple of the size of the dtype, or of a part.
      metadata: Metadata of the instruction, such as `, !llvm.access.group !1`.

    Returns:
      The number in its register form.
    """
    if dtype in PARTS:
        part = PARTS[dtype]
        found = [load(f, part, at, metadata) for at in _parts_at(f, dtype, pointer)]
        return complex_scalars.joined(f, found, dtype)
    value = f.op(f"load {memory_type(dtype)}, ptr {pointer}, align {dtype.itemsize}{metadata}")
    if dtype == _BOOL:
        return f.op(f"icmp ne i8 {value}, 0")
    if dtype == _HALF:
        return f.op(f"fpext half {value} to float")
    if dtype == _BFLOAT:
        wide = f.op(f"zext i16 {value} to i32")
        return f.op(f"bitcast i32 {f.op(f'shl i32 {wide}, 16')} to float")
    return value


def store(f: Function, dtype: np.dtype, value: str, pointer: str, metadata: str = "") -> None:
    """Stores a number.

    Args:
      f: The function in construction.
      dtype: The dtype.
      value: The number in its register form.
      pointer: The address, which is a multiple of the size of the dtype, or of a part.
      metadata: Metadata of the instruction.
    """
    if dtype in PARTS:
        for part, at in zip(complex_scalars.parts_of(f, value, dtype), _parts_at(f, dtype, pointer), strict=True):
            store(f, PARTS[dtype], part.name, at, metadata)
        return
    if dtype == _BOOL:
        value = f.op(f"zext i1 {value} to i8")
    elif dtype == _HALF:
        value = f.op(f"fptrunc float {value} to half")
    elif dtype == _BFLOAT:
        bits = f.op(f"bitcast float {value} to i32")
        value = f.op(f"trunc i32 {f.op(f'lshr i32 {bits}, 16')} to i16")
    f.line(f"store {memory_type(dtype)} {value}, ptr {pointer}, align {dtype.itemsize}{metadata}")


def _parts_at(f: Function, dtype: np.dtype, pointer: str) -> tuple[str, str]:
    """The addresses of the parts of a complex number."""
    return pointer, f.op(f"getelementptr inbounds i8, ptr {pointer}, i64 {PARTS[dtype].itemsize}", "imag")


def literal(number: Any, dtype: np.dtype) -> str:
    """Returns a number as a constant of the register form of `dtype`.

    Args:
      number: A Python number or numpy scalar.
      dtype: The dtype, to which the number is rounded if it is a float.

    Raises:
      OverflowError: The number is out of the range of an integer dtype.
    """
    if dtype == _BOOL:
        return "true" if number else "false"
    if dtype in _FLOATS:
        with np.errstate(all="ignore"):
            return float_literal(float(dtype.type(number)))
    if dtype in PARTS:
        with np.errstate(all="ignore"):
            whole = dtype.type(number)
        return complex_scalars.literal([literal(part, PARTS[dtype]) for part in (whole.real, whole.imag)], dtype)
    whole, range_ = int(number), np.iinfo(dtype)
    if not range_.min <= whole <= range_.max:
        raise OverflowError(f"{number} is out of the range of {dtype}")
    return str(whole - (1 << 8 * dtype.itemsize) if whole > range_.max >> (dtype.kind == "u") else whole)


# *** Conversions ***


def convert(f: Function, value: str, source: np.dtype, target: np.dtype) -> str:
    """Converts a number as the op `Cast` does.

    Floats lose their fraction. Floats out of the range of an integer dtype, NaN among them, become the lowest int32 or
    int64, of which narrower integers are the low bits. For unsigned integers of 32 and 64 bits it is int64, but floats
    in the range of uint64 are converted to uint64. Complex numbers lose their imaginary part, but bools are true if
    either part is not zero.

    Args:
      f: The function in construction.
      value: The number in its register form.
      source: Its dtype.
      target: The dtype of the result.

    Returns:
      The result in its register form.
    """
    if source == target:
        return value
    if source in PARTS or target in PARTS:
        return _convert_complex(f, value, source, target)
    before, after = register_type(source), register_type(target)
    if target == _BOOL:
        test = f"fcmp une {before} {value}, 0.0" if source in _FLOATS else f"icmp ne {before} {value}, 0"
        return f.op(test)
    if target in _FLOATS:
        if source not in _FLOATS:
            name = "sitofp" if source.kind == "i" else "uitofp"
            return rounded(f, f.op(f"{name} {before} {value} to {after}"), target)
        if source == _DOUBLE:
            return _of_double(f, value, target)
        if target == _DOUBLE:
            return f.op(f"fpext float {value} to double")
        return rounded(f, value, target)
    if source in _FLOATS:
        return _to_integer(f, value, before, target)
    return _resized(f, value, source.kind == "i", before, after)


def _convert_complex(f: Function, value: str, source: np.dtype, target: np.dtype) -> str:
    """The conversion of or to a complex number."""
    if source not in PARTS:
        part = PARTS[target]
        return complex_scalars.joined(f, [convert(f, value, source, part), literal(0, part)], target)
    parts = complex_scalars.parts_of(f, value, source)
    if target == _BOOL:
        return complex_scalars.is_true(parts).name
    if target not in PARTS:
        return convert(f, parts.real.name, PARTS[source], target)
    return complex_scalars.joined(f, [convert(f, x.name, PARTS[source], PARTS[target]) for x in parts], target)


def choose(f: Function, condition: str, dtype: np.dtype, x: str, y: str) -> str:
    """Prints the choice of `x` where the i1 `condition` holds, else `y`."""
    if dtype in PARTS:
        return complex_scalars.choose(f, condition, dtype, x, y)
    kind = register_type(dtype)
    return f.op(f"select i1 {condition}, {kind} {x}, {kind} {y}")


def plus_turned(f: Function, dtype: np.dtype, x: str, y: str) -> str:
    """Prints x + i · y for complex numbers."""
    (a, b), (c, d) = (complex_scalars.parts_of(f, number, dtype) for number in (x, y))
    return complex_scalars.joined(f, [(a - d).name, (b + c).name], dtype)


def _resized(f: Function, value: str, is_signed: bool, before: str, after: str) -> str:
    """The conversion of an integer to another width."""
    bits, wanted = int(before[1:]), int(after[1:])
    if bits == wanted:
        return value
    name = "trunc" if wanted < bits else "sext" if is_signed else "zext"
    return f.op(f"{name} {before} {value} to {after}")


def _to_integer(f: Function, value: str, kind: str, target: np.dtype) -> str:
    """The conversion of a float to an integer.

    LLVM's instruction has no result for numbers out of range, so those are replaced first.
    """
    bits = 32 if target.itemsize < 4 or target == np.int32 else 64
    limit = 2.0 ** (bits - 1)
    size = absolute(f, value, kind)
    fits = f.op(f"fcmp olt {kind} {size}, {float_literal(limit)}")
    safe = f.op(f"select i1 {fits}, {kind} {value}, {kind} {float_literal(-limit)}")
    found = f.op(f"fptosi {kind} {safe} to i{bits}")
    if target != np.uint64:
        return _resized(f, found, True, f"i{bits}", register_type(target))
    above = f.op(f"fcmp oge {kind} {value}, {float_literal(limit)}")
    below = f.op(f"fcmp olt {kind} {value}, {float_literal(2 * limit)}")
    upper = f.op(f"and i1 {above}, {below}")
    lowered = f.op(f"fsub {kind} {value}, {float_literal(limit)}")  # exact
    safe = f.op(f"select i1 {upper}, {kind} {lowered}, {kind} 0.0")
    flipped = f.op(f"xor i64 {f.op(f'fptosi {kind} {safe} to i64')}, {-(1 << 63)}")
    return f.op(f"select i1 {upper}, i64 {flipped}, i64 {found}")


def _of_double(f: Function, value: str, target: np.dtype) -> str:
    """The conversion of a double to a narrower float."""
    single = f.op(f"fptrunc double {value} to float")
    if target != _HALF:  # bfloat16 is rounded twice, as `ml_dtypes` does
        return rounded(f, single, target)
    # A second rounding is harmless if the first one rounds to odd: inexact results have a last bit of 1.
    bits = f.op(f"bitcast float {single} to i32")
    wide = f.op(f"fpext float {single} to double")
    larger = f.op(f"fcmp ogt double {absolute(f, wide, 'double')}, {absolute(f, value, 'double')}")
    down = f.op(f"add i32 {bits}, {f.op(f'sext i1 {larger} to i32')}")
    odd = f.op(f"or i32 {down}, 1")
    inexact = f.op(f"fcmp one double {wide}, {value}")
    bits = f.op(f"select i1 {inexact}, i32 {odd}, i32 {bits}")
    return rounded(f, f.op(f"bitcast i32 {bits} to float"), target)


def rounded(f: Function, value: str, dtype: np.dtype) -> str:
    """Rounds a float to a number of `dtype`, to nearest and ties to even.

    Numbers of float32 and float64 stay as they are.
    """
    if dtype == _HALF:
        return f.op(f"fpext half {f.op(f'fptrunc float {value} to half')} to float")
    if dtype != _BFLOAT:
        return value
    # Not LLVM's type bfloat, whose conversions may flush denormals.
    bits = f.op(f"bitcast float {value} to i32")
    last = f.op(f"and i32 {f.op(f'lshr i32 {bits}, 16')}, 1")
    up = f.op(f"add i32 {f.op(f'add i32 {bits}, 32767')}, {last}")
    nan = f.op(f"or i32 {bits}, {0x400000}")
    is_nan = f.op(f"fcmp uno float {value}, 0.0")
    chosen = f.op(f"select i1 {is_nan}, i32 {nan}, i32 {up}")
    return f.op(f"bitcast i32 {f.op(f'and i32 {chosen}, {-65536}')} to float")


def absolute(f: Function, value: str, kind: str) -> str:
    """The absolute value of a float of LLVM's type `kind`."""
    return elementary.intrinsic(f, "fabs", kind, value)


# *** Ufuncs ***


class _Operand(NamedTuple):
    """Type of the arguments of a ufunc's loop.

    Attributes:
      dtype: The dtype of the first argument.
      kind: LLVM's type of it in a register.
    """

    dtype: np.dtype
    kind: str

    @property
    def is_float(self) -> bool:
        return self.dtype in _FLOATS

    @property
    def is_signed(self) -> bool:
        return self.dtype.kind == "i"

    @property
    def bits(self) -> int:
        return 8 * self.dtype.itemsize


#: Writes a ufunc: the function in construction, the type of the arguments, the arguments.
Writer = Callable[["Function", _Operand, Sequence[str]], str]


def _plain(name: str) -> Writer:
    """An instruction of two arguments of one type."""
    return lambda f, t, a: f.op(f"{name} {t.kind} {a[0]}, {a[1]}")


def _by_class(floats: Writer | None, integers: Writer | None, bools: Writer | None = None) -> dict[str, Writer]:
    """The writers of a ufunc for floats, integers and bools."""
    by_class = {"f": floats, "i": integers, "b": bools}
    return {kind: writer for kind, writer in by_class.items() if writer is not None}


def _same(f: Function, t: _Operand, a: Sequence[str]) -> str:
    return a[0]


def _comparison(name: str) -> dict[str, Writer]:
    unequal = name == "ne"

    def integers(f: Function, t: _Operand, a: Sequence[str]) -> str:
        sign = "" if name in ("eq", "ne") else "s" if t.is_signed else "u"
        return f.op(f"icmp {sign}{name} {t.kind} {a[0]}, {a[1]}")

    return _by_class(_plain(f"fcmp {'u' if unequal else 'o'}{name}"), integers, integers)


def _intrinsic(name: str) -> Writer:
    return lambda f, t, a: elementary.intrinsic(f, name, t.kind, *a)


def _function(name: str) -> Writer:
    return lambda f, t, a: elementary.call(f, name, t.kind, *a)


def _is(f: Function, t: _Operand, value: str) -> str:
    """Whether a number is not zero."""
    return convert(f, value, t.dtype, _BOOL)


def _logical(name: str) -> dict[str, Writer]:
    def writer(f: Function, t: _Operand, a: Sequence[str]) -> str:
        return f.op(f"{name} i1 {_is(f, t, a[0])}, {_is(f, t, a[1])}")

    return _by_class(writer, writer, writer)


def _logical_not(f: Function, t: _Operand, a: Sequence[str]) -> str:
    return f.op(f"xor i1 {_is(f, t, a[0])}, true")


def _precedes(f: Function, t: _Operand, order: str, x: str, y: str) -> str:
    """Whether `x` is the extremum.

    Of zeros of both signs numpy takes the second one, but in float16 the first one.
    """
    return f.op(f"fcmp o{order[0]}{_bound(t)} {t.kind} {x}, {y}")


def _bound(t: _Operand) -> str:
    """The end of the name of the comparison that finds an extremum."""
    return "e" if t.dtype == _HALF else "t"


def _extremum(order: str) -> dict[str, Writer]:
    """Maximum (`order` is "gt") or minimum ("lt")."""

    def floats(f: Function, t: _Operand, a: Sequence[str]) -> str:
        # NaN of either argument is the result.
        x, y = a
        if elementary.is_known(y):  # one instruction in place of three, unless it is zero
            other = f.op(f"fcmp u{order[0]}{_bound(t)} {t.kind} {x}, {y}")
            return f.op(f"select i1 {other}, {t.kind} {x}, {t.kind} {y}")
        first = _precedes(f, t, order, x, y)
        larger = f.op(f"select i1 {first}, {t.kind} {x}, {t.kind} {y}")
        return f.op(f"select i1 {f.op(f'fcmp uno {t.kind} {x}, 0.0')}, {t.kind} {x}, {t.kind} {larger}")

    def integers(f: Function, t: _Operand, a: Sequence[str]) -> str:
        name = f"{'s' if t.is_signed else 'u'}{'max' if order == 'gt' else 'min'}"
        return elementary.intrinsic(f, name, t.kind, *a)

    return _by_class(floats, integers, _plain("or" if order == "gt" else "and"))


def _other_than_nan(order: str) -> Writer:
    """`fmax` or `fmin`: NaN is the result only if both arguments are."""

    def writer(f: Function, t: _Operand, a: Sequence[str]) -> str:
        x, y = a
        first = _precedes(f, t, order, x, y)
        alone = f.op(f"fcmp uno {t.kind} {y}, 0.0")
        return f.op(f"select i1 {f.op(f'or i1 {first}, {alone}')}, {t.kind} {x}, {t.kind} {y}")

    return writer


def _sign_of_float(f: Function, t: _Operand, a: Sequence[str]) -> str:
    x, k = a[0], t.kind
    below = f.op(f"select i1 {f.op(f'fcmp olt {k} {x}, 0.0')}, {k} -1.0, {k} {x}")
    both = f.op(f"select i1 {f.op(f'fcmp ogt {k} {x}, 0.0')}, {k} 1.0, {k} {below}")
    if t.dtype == _BFLOAT:  # `ml_dtypes` keeps the sign of zero
        return both
    return f.op(f"select i1 {f.op(f'fcmp oeq {k} {x}, 0.0')}, {k} 0.0, {k} {both}")


def _sign_of_integer(f: Function, t: _Operand, a: Sequence[str]) -> str:
    nonzero = f.op(f"zext i1 {_is(f, t, a[0])} to {t.kind}")
    if not t.is_signed:
        return nonzero
    return f.op(f"or {t.kind} {nonzero}, {f.op(f'ashr {t.kind} {a[0]}, {t.bits - 1}')}")


def _absolute_integer(f: Function, t: _Operand, a: Sequence[str]) -> str:
    return elementary.intrinsic(f, "abs", t.kind, a[0], "i1 false") if t.is_signed else a[0]


def _shift(name: str) -> Writer:
    """A shift of integers.

    Shifts by the width or more, or by negative numbers, leave no bit, or copies of the sign.
    """

    def writer(f: Function, t: _Operand, a: Sequence[str]) -> str:
        x, by = a
        k, last = t.kind, t.bits - 1
        name_here = "shl" if name == "left" else "ashr" if t.is_signed else "lshr"
        least = elementary.intrinsic(f, "umin", k, by, str(last))
        found = f.op(f"{name_here} {k} {x}, {least}")
        if name_here == "ashr":
            return found
        return f.op(f"select i1 {f.op(f'icmp ugt {k} {by}, {last}')}, {k} 0, {k} {found}")

    return writer


def _safe_divisor(f: Function, t: _Operand, x: str, y: str) -> tuple[str, str]:
    """A divisor without exceptions, and whether it replaces one of zero.

    The processor traps on division by zero and of the lowest integer by -1. The divisor 1 takes their place. The
    quotient of the latter is the lowest integer and its remainder 0, as in numpy.
    """
    k = t.kind
    zero = f.op(f"icmp eq {k} {y}, 0")
    unsafe = zero
    if t.is_signed:
        lowest = f.op(f"icmp eq {k} {x}, {-(1 << (t.bits - 1))}")
        overflows = f.op(f"and i1 {lowest}, {f.op(f'icmp eq {k} {y}, -1')}")
        unsafe = f.op(f"or i1 {zero}, {overflows}")
    return f.op(f"select i1 {unsafe}, {k} 1, {k} {y}"), zero


def _floor_divide_integers(f: Function, t: _Operand, a: Sequence[str]) -> str:
    x, y, k = *a, t.kind
    safe, zero = _safe_divisor(f, t, x, y)
    if not t.is_signed:
        return f.op(f"select i1 {zero}, {k} 0, {k} {f.op(f'udiv {k} {x}, {safe}')}")
    quotient = f.op(f"sdiv {k} {x}, {safe}")
    rest = f.op(f"sub {k} {x}, {f.op(f'mul {k} {quotient}, {safe}')}")
    lowered = f.op(f"add {k} {quotient}, {f.op(f'sext i1 {_is_wrong(f, k, rest, safe)} to {k}')}")
    return f.op(f"select i1 {zero}, {k} 0, {k} {lowered}")


def _is_wrong(f: Function, k: str, rest: str, divisor: str) -> str:
    """Whether the remainder of a truncated division has not the sign of the divisor."""
    differ = f.op(f"icmp slt {k} {f.op(f'xor {k} {rest}, {divisor}')}, 0")
    return f.op(f"and i1 {differ}, {f.op(f'icmp ne {k} {rest}, 0')}")


def _remainder_of_integers(is_floored: bool) -> Writer:
    def writer(f: Function, t: _Operand, a: Sequence[str]) -> str:
        x, y, k = *a, t.kind
        safe, zero = _safe_divisor(f, t, x, y)
        rest = f.op(f"{'srem' if t.is_signed else 'urem'} {k} {x}, {safe}")
        if t.is_signed and is_floored:
            more = f.op(f"select i1 {_is_wrong(f, k, rest, safe)}, {k} {safe}, {k} 0")
            rest = f.op(f"add {k} {rest}, {more}")
        return f.op(f"select i1 {zero}, {k} 0, {k} {rest}")

    return writer


def _remainder_of_floats(f: Function, t: _Operand, a: Sequence[str]) -> str:
    x, y, k = *a, t.kind
    rest = f.op(f"frem {k} {x}, {y}")
    zero = elementary.intrinsic(f, "copysign", k, "0.0", y)
    lower = f.op(f"fcmp olt {k} {rest}, 0.0")
    differ = f.op(f"xor i1 {lower}, {f.op(f'fcmp olt {k} {y}, 0.0')}")
    moved = f.op(f"select i1 {differ}, {k} {f.op(f'fadd {k} {rest}, {y}')}, {k} {rest}")
    return f.op(f"select i1 {f.op(f'fcmp oeq {k} {rest}, 0.0')}, {k} {zero}, {k} {moved}")


def _floor_divide_floats(f: Function, t: _Operand, a: Sequence[str]) -> str:
    x, y, k = *a, t.kind
    rest = f.op(f"frem {k} {x}, {y}")
    quotient = f.op(f"fdiv {k} {f.op(f'fsub {k} {x}, {rest}')}, {y}")
    differ = f.op(f"xor i1 {f.op(f'fcmp olt {k} {rest}, 0.0')}, {f.op(f'fcmp olt {k} {y}, 0.0')}")
    wrong = f.op(f"and i1 {differ}, {f.op(f'fcmp une {k} {rest}, 0.0')}")
    lowered = f.op(f"select i1 {wrong}, {k} {f.op(f'fsub {k} {quotient}, 1.0')}, {k} {quotient}")
    floor = elementary.intrinsic(f, "floor", k, lowered)
    far = f.op(f"fcmp ogt {k} {f.op(f'fsub {k} {lowered}, {floor}')}, 0.5")
    nearest = f.op(f"select i1 {far}, {k} {f.op(f'fadd {k} {floor}, 1.0')}, {k} {floor}")
    plain = f.op(f"fdiv {k} {x}, {y}")
    zero = elementary.intrinsic(f, "copysign", k, "0.0", plain)
    found = f.op(f"select i1 {f.op(f'fcmp une {k} {lowered}, 0.0')}, {k} {nearest}, {k} {zero}")
    return f.op(f"select i1 {f.op(f'fcmp oeq {k} {y}, 0.0')}, {k} {plain}, {k} {found}")


def _is_class(test: Callable[[str, str], str]) -> dict[str, Writer]:
    """A test of floats, by its text from the type and the absolute value.

    Integers are finite.
    """

    def floats(f: Function, t: _Operand, a: Sequence[str]) -> str:
        return f.op(test(t.kind, absolute(f, a[0], t.kind)))

    constant = "true" if "olt" in test("", "") else "false"
    return _by_class(floats, lambda f, t, a: constant, lambda f, t, a: constant)


_INFINITY: Final = float_literal(math.inf)


def _sign_bit(f: Function, t: _Operand, a: Sequence[str]) -> str:
    bits = 64 if t.kind == "double" else 32
    return f.op(f"icmp slt i{bits} {f.op(f'bitcast {t.kind} {a[0]} to i{bits}')}, 0")


def _log_of_sum(f: Function, t: _Operand, a: Sequence[str]) -> str:
    """`logaddexp`: the greater argument plus log(1 + exp(-|x - y|))."""
    x, y, k = *a, t.kind
    difference = f.op(f"fsub {k} {x}, {y}")
    greater = f.op(f"select i1 {f.op(f'fcmp ogt {k} {x}, {y}')}, {k} {x}, {k} {y}")
    less = f.op(f"fneg {k} {absolute(f, difference, k)}")
    found = f.op(f"fadd {k} {greater}, {elementary.call(f, 'log1p', k, elementary.call(f, 'exp', k, less))}")
    of_equal = f.op(f"fadd {k} {x}, {rounded_literal(math.log(2), k)}")  # infinities too
    return f.op(f"select i1 {f.op(f'fcmp oeq {k} {x}, {y}')}, {k} {of_equal}, {k} {found}")


def _count_bits(f: Function, t: _Operand, a: Sequence[str]) -> str:
    count = elementary.intrinsic(f, "ctpop", t.kind, _absolute_integer(f, t, a))
    return count if t.bits == 8 else f.op(f"trunc {t.kind} {count} to i8")


def _next_after(f: Function, t: _Operand, a: Sequence[str]) -> str:
    x, y, k = *a, t.kind
    i = "i64" if k == "double" else "i32"
    bits = f.op(f"bitcast {k} {x} to {i}")
    grows = f.op(f"xor i1 {f.op(f'fcmp olt {k} {y}, {x}')}, {f.op(f'fcmp olt {k} {x}, 0.0')}")
    stepped = f.op(f"select i1 {grows}, {i} -1, {i} 1")
    moved = f.op(f"bitcast {i} {f.op(f'add {i} {bits}, {stepped}')} to {k}")
    least = elementary.intrinsic(f, "copysign", k, f.op(f"bitcast {i} 1 to {k}"), y)
    moved = f.op(f"select i1 {f.op(f'fcmp oeq {k} {x}, 0.0')}, {k} {least}, {k} {moved}")
    moved = f.op(f"select i1 {f.op(f'fcmp oeq {k} {x}, {y}')}, {k} {y}, {k} {moved}")
    either = f.op(f"fadd {k} {x}, {y}")
    return f.op(f"select i1 {f.op(f'fcmp uno {k} {x}, {y}')}, {k} {either}, {k} {moved}")


_ADD_BOOLS: Final = _plain("or")  # numpy's sum and product of bools
_XOR: Final = _plain("xor")


def _invert(f: Function, t: _Operand, a: Sequence[str]) -> str:
    return f.op(f"xor {t.kind} {a[0]}, {'true' if t.kind == 'i1' else -1}")


def _rounding(name: str) -> dict[str, Writer]:
    """Integers and bools are whole."""
    return _by_class(_intrinsic(name), _same, _same)


_UFUNCS: Final[dict[np.ufunc, dict[str, Writer]]] = {
    np.add: _by_class(_plain("fadd"), _plain("add"), _ADD_BOOLS),
    np.subtract: _by_class(_plain("fsub"), _plain("sub")),
    np.multiply: _by_class(_plain("fmul"), _plain("mul"), _plain("and")),
    np.divide: _by_class(_plain("fdiv"), None),
    np.negative: _by_class(
        lambda f, t, a: f.op(f"fneg {t.kind} {a[0]}"), lambda f, t, a: f.op(f"sub {t.kind} 0, {a[0]}")
    ),
    np.positive: _by_class(_same, _same),
    np.conjugate: _by_class(_same, _same),
    np.absolute: _by_class(_intrinsic("fabs"), _absolute_integer, _same),
    np.fabs: _by_class(_intrinsic("fabs"), None),
    np.sign: _by_class(_sign_of_float, _sign_of_integer),
    np.square: _by_class(
        lambda f, t, a: f.op(f"fmul {t.kind} {a[0]}, {a[0]}"), lambda f, t, a: f.op(f"mul {t.kind} {a[0]}, {a[0]}")
    ),
    np.sqrt: _by_class(_intrinsic("sqrt"), None),
    np.reciprocal: _by_class(lambda f, t, a: f.op(f"fdiv {t.kind} 1.0, {a[0]}"), None),
    np.copysign: _by_class(_intrinsic("copysign"), None),
    np.nextafter: _by_class(_next_after, None),
    np.maximum: _extremum("gt"),
    np.minimum: _extremum("lt"),
    np.fmax: _by_class(_other_than_nan("gt"), _extremum("gt")["i"], _extremum("gt")["b"]),
    np.fmin: _by_class(_other_than_nan("lt"), _extremum("lt")["i"], _extremum("lt")["b"]),
    np.floor: _rounding("floor"),
    np.ceil: _rounding("ceil"),
    np.trunc: _rounding("trunc"),
    np.rint: _by_class(_intrinsic("roundeven"), None),
    np.less: _comparison("lt"),
    np.less_equal: _comparison("le"),
    np.greater: _comparison("gt"),
    np.greater_equal: _comparison("ge"),
    np.equal: _comparison("eq"),
    np.not_equal: _comparison("ne"),
    np.logical_and: _logical("and"),
    np.logical_or: _logical("or"),
    np.logical_xor: _logical("xor"),
    np.logical_not: _by_class(_logical_not, _logical_not, _logical_not),
    np.isnan: _is_class(lambda k, x: f"fcmp uno {k} {x}, 0.0"),
    np.isinf: _is_class(lambda k, x: f"fcmp oeq {k} {x}, {_INFINITY}"),
    np.isfinite: _is_class(lambda k, x: f"fcmp olt {k} {x}, {_INFINITY}"),
    np.signbit: _by_class(_sign_bit, None),
    np.bitwise_and: _by_class(None, _plain("and"), _plain("and")),
    np.bitwise_or: _by_class(None, _plain("or"), _plain("or")),
    np.bitwise_xor: _by_class(None, _XOR, _XOR),
    np.invert: _by_class(None, _invert, _invert),
    np.left_shift: _by_class(None, _shift("left")),
    np.right_shift: _by_class(None, _shift("right")),
    np.bitwise_count: _by_class(None, _count_bits),
    np.floor_divide: _by_class(_floor_divide_floats, _floor_divide_integers),
    np.remainder: _by_class(_remainder_of_floats, _remainder_of_integers(is_floored=True)),
    np.fmod: _by_class(_plain("frem"), _remainder_of_integers(is_floored=False)),
    np.logaddexp: _by_class(_log_of_sum, None),
}
_UFUNCS.update({getattr(np, name): _by_class(_function(name), None) for name in elementary.NUMPY_NAMES})


# *** Expressions ***


def is_known(expression: Apply, input_dtypes: Sequence[np.dtype]) -> bool:
    """Whether `expression` can be printed; see `why_not`."""
    return not why_not(expression, input_dtypes)


def why_not(expression: Apply, input_dtypes: Sequence[np.dtype]) -> str:
    """The reason why an expression cannot be printed; empty if it can.

    Args:
      expression: The expression.
      input_dtypes: The dtypes of the inputs, by position.
    """
    checked: set[int] = set()

    def reason(node: Any) -> str:
        if isinstance(node, Input):
            dtype = input_dtypes[node.index]
            return "" if is_number(dtype) else f"numbers of {dtype} have no form in LLVM"
        if not isinstance(node, Apply) or id(node) in checked:
            return ""
        checked.add(id(node))
        return next(filter(None, map(reason, node.args)), "") or _reason(node, input_dtypes)

    return reason(expression)


def _reason(node: Apply, input_dtypes: Sequence[np.dtype]) -> str:
    """The reason why a ufunc cannot be printed, if its arguments can."""
    name = node.ufunc.__name__
    if not is_number(node.dtype):
        return f"numbers of {node.dtype} have no form in LLVM"
    kinds = [_kind(a, input_dtypes) for a in node.args]
    try:
        takes, gives = _loop(node, kinds)
        for a, dtype in zip(node.args, takes, strict=True):
            if not isinstance(a, Apply | Input):
                literal(a, dtype)
    except (TypeError, ValueError, OverflowError) as e:
        return f"{name}: {e}"
    if gives != node.dtype:
        return f"{name} of {', '.join(map(str, takes))} gives {gives}, not {node.dtype}"
    if not all(map(is_number, takes)):
        return f"{name} of {', '.join(map(str, takes))} has no form in LLVM"
    if _is_function(node):
        return ""
    if _writer(node.ufunc, takes[0]) is None:
        return f"{name} of {takes[0]} has no form in LLVM"
    return ""


def is_elementary(node: Apply) -> bool:
    """Whether a node applies an elementary function."""
    return node.ufunc.__name__ in elementary.LIBRARY_NAMES or node.ufunc is np.logaddexp


def _is_function(node: Apply) -> bool:
    """Whether a node applies a function that is no ufunc."""
    function: Any = node.ufunc
    return function in _FUNCTIONS


#: Functions in expressions that are no ufuncs.
_FUNCTIONS: Final[tuple[Any, ...]] = (np.where, np.astype, np.real, np.imag, complex)


def _kind(node: Any, input_dtypes: Sequence[np.dtype]) -> Any:
    """The dtype of an argument, or the type of a Python number."""
    if isinstance(node, Apply):
        return node.dtype
    if isinstance(node, Input):
        return input_dtypes[node.index]
    if isinstance(node, bool):
        return _BOOL
    return node.dtype if isinstance(node, np.generic) else type(node)


def _loop(node: Apply, kinds: Sequence[Any]) -> tuple[tuple[np.dtype, ...], np.dtype]:
    """The dtypes of the arguments and of the result with which numpy computes a node."""
    if _is_function(node):
        if len(kinds) == 1:
            return (kinds[0],), node.dtype
        if len(kinds) == 2:
            return (PARTS[node.dtype],) * 2, node.dtype
        return (_BOOL, node.dtype, node.dtype), node.dtype
    found = node.ufunc.resolve_dtypes((*kinds, None))
    return found[:-1], found[-1]


def _writer(ufunc: np.ufunc, dtype: np.dtype) -> Writer | None:
    if ufunc is np.nextafter and dtype not in (_SINGLE, _DOUBLE):
        return None  # registers hold narrow floats as float32
    if dtype in PARTS:
        of_parts = complex_scalars.writer(ufunc, dtype)
        return None if of_parts is None else lambda f, t, a: of_parts(f, a)
    kind = "b" if dtype == _BOOL else "f" if dtype in _FLOATS else "i"
    found = _UFUNCS.get(ufunc, {}).get(kind)
    if found is None and kind == "f":
        name = ufunc.__name__ if ufunc.__name__ in elementary.SPECIAL_NAMES else None
        return None if name is None else _function(name)
    return found


def expression(
    f: Function,
    node: Apply,
    inputs: Sequence[str],
    input_dtypes: Sequence[np.dtype],
    known: Mapping[Apply, str] = MappingProxyType({}),
) -> str:
    """Prints an expression that `is_known`.

    Args:
      f: The function in construction.
      node: The expression.
      inputs: The inputs in their register form, by position.
      input_dtypes: Their dtypes.
      known: Parts of the expression that have been computed, in their register form.

    Returns:
      The result, in the register form of `node.dtype`.
    """
    done = {id(part): value for part, value in known.items()}

    def printed(node: Apply) -> str:
        found = done.get(id(node))
        if found is not None:
            return found
        kinds = [_kind(a, input_dtypes) for a in node.args]
        takes, gives = _loop(node, kinds)
        args = []
        for a, kind, dtype in zip(node.args, kinds, takes, strict=True):
            if isinstance(a, Apply):
                args.append(convert(f, printed(a), kind, dtype))
            elif isinstance(a, Input):
                args.append(convert(f, inputs[a.index], kind, dtype))
            else:
                args.append(literal(a, dtype))
        if not _is_function(node):
            writer = _writer(node.ufunc, takes[0])
            assert writer is not None
            value = writer(f, _Operand(takes[0], register_type(takes[0])), args)
            found = rounded(f, value, gives) if gives in _FLOATS else value
        else:
            found = _applied(f, node.ufunc, args, takes[0], gives)
        done[id(node)] = found
        return found

    return printed(node)


def _applied(f: Function, function: Any, args: Sequence[str], takes: np.dtype, gives: np.dtype) -> str:
    """Prints a function that is no ufunc."""
    if function is np.where:
        return choose(f, args[0], gives, args[1], args[2])
    if function is complex:
        return complex_scalars.joined(f, args, gives)
    if function is np.astype:
        return convert(f, args[0], takes, gives)
    parts = complex_scalars.parts_of(f, args[0], takes)
    return (parts.real if function is np.real else parts.imag).name
