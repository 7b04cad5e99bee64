"""Addresses of the BLAS library's matrix products, for compiled code.

SciPy offers its library to compiled code as capsules of C functions. Machine code calls them by the names of `NAMES`;
the engine gives LLVM the addresses when it loads a module. The functions take 32-bit integers by address, and matrices
in column-major order.
"""

from __future__ import annotations

import ctypes
from typing import Final

#: The names of the functions for C += A B in compiled code, by dtype.
NAMES: Final = {"float32": "hr_sgemm", "float64": "hr_dgemm"}


def symbols() -> dict[str, int]:
    """Returns the addresses of the functions, by their names in compiled code.

    Raises:
      ImportError: SciPy's functions have other parameters than expected.
    """
    from scipy.linalg import cython_blas

    capsule_name, capsule_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    capsule_name.restype, capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    capsule_pointer.restype, capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    found = {}
    for name in NAMES.values():
        capsule = cython_blas.__pyx_capi__[name.removeprefix("hr_")]
        signature = capsule_name(capsule)
        kinds = [kind.strip() for kind in signature.decode().partition("(")[2].rstrip(")").split(",")]
        if len(kinds) != 13 or any(kinds[at] != "int *" for at in (2, 3, 4, 7, 9, 12)):
            raise ImportError(f"scipy.linalg.cython_blas: {name} has the signature {signature.decode()}")
        found[name] = capsule_pointer(capsule, signature)
    return found
