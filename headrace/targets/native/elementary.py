"""Elementary functions as LLVM: exponentials, logarithms, trigonometric and hyperbolic functions, erf.

`call` prints a call of a function and adds the function to the module. Functions that are not written here are those of
the C library, found by name when the code is loaded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from headrace.targets.native.llvm_text import Function

#: Names of the C library by the name of numpy's ufunc, without the suffix `f` of float32.
LIBRARY_NAMES: Final = {
    **{name: name for name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "hypot")},
    **{name: name for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "erf", "erfc")},
    **{f"arc{name}": f"a{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arctan2": "atan2",
    "power": "pow",
    "float_power": "pow",
}

#: Names of ufuncs of `scipy.special` that `call` takes, with the names of the functions.
SPECIAL_NAMES: Final = {"erf": "erf", "erfc": "erfc"}

#: Names of numpy's ufuncs that `call` takes.
NUMPY_NAMES: Final = tuple(name for name in LIBRARY_NAMES if name not in SPECIAL_NAMES)

_ATTRIBUTES: Final = "nounwind willreturn memory(none)"


def float_literal(value: float) -> str:
    """Returns a float as LLVM's constant, exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def rounded_literal(value: float, kind: str) -> str:
    """Returns a float, rounded to LLVM's type `kind`, as a constant."""
    return float_literal(float(np.float32(value)) if kind == "float" else value)


def intrinsic(f: Function, name: str, kind: str, *args: str) -> str:
    """Calls one of LLVM's intrinsics.

    Args:
      f: The function in construction.
      name: The name, such as `fabs`.
      kind: LLVM's type of the result and of arguments without a type.
      *args: The arguments; the text `i1 false` has its own type.
    """
    suffix = {"float": "f32", "double": "f64"}.get(kind, kind)
    typed = [a if " " in a else f"{kind} {a}" for a in args]
    target = f.module.declare(f"llvm.{name}.{suffix}", kind, [a.split(" ")[0] for a in typed])
    return f.op(f"call {kind} {target}({', '.join(typed)})")


def call(f: Function, name: str, kind: str, *args: str) -> str:
    """Calls an elementary function.

    Args:
      f: The function in construction.
      name: The name of the ufunc, such as `arctan2`.
      kind: LLVM's type of arguments and result: `float` or `double`.
      *args: The arguments.
    """
    target = f.module.declare(
        LIBRARY_NAMES[name] + ("f" if kind == "float" else ""), kind, [kind] * len(args), _ATTRIBUTES
    )
    return f.op(f"call {kind} {target}({', '.join(f'{kind} {a}' for a in args)})")
