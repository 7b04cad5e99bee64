"""Addresses of the BLAS library's matrix products, for compiled code.

NumPy has loaded the library, and its products are found by their names in Fortran. So no other package is imported,
and the threads of native products are those of NumPy's. Where the library is unknown or has other names, SciPy offers
one as capsules of C functions. Machine code calls the products by the names of `NAMES`; the engine gives LLVM the
addresses when it loads a module. The functions take matrices in column-major order, and integers by address: of 32
or 64 bits, of which a library of the former kind reads the low half.
"""

from __future__ import annotations

import ctypes
from typing import Final

#: The names of the functions for C += A B in compiled code, by dtype.
NAMES: Final = {"float32": "hr_sgemm", "float64": "hr_dgemm"}

#: Prefixes and suffixes of the names in libraries. Libraries of NumPy come first, because the choice must not depend on
#: whether SciPy has been imported.
_SPELLINGS: Final = (("scipy_", "_64_"), ("", "_64_"), ("scipy_", "_"), ("", "_"))


def symbols() -> dict[str, int]:
    """Returns the addresses of the functions, by their names in compiled code.

    Raises:
      ImportError: SciPy's functions have other parameters than expected.
    """
    return _of_numpy() or _of_scipy()


def _of_numpy() -> dict[str, int]:
    """The functions of a library that is loaded; empty if none has known names."""
    from threadpoolctl import ThreadpoolController

    libraries = [c.dynlib for c in ThreadpoolController().lib_controllers if c.user_api == "blas"]
    for prefix, suffix in _SPELLINGS:
        spelled = {name: prefix + name.removeprefix("hr_") + suffix for name in NAMES.values()}
        for library in libraries:
            if all(hasattr(library, each) for each in spelled.values()):
                return {name: _address(getattr(library, each)) for name, each in spelled.items()}
    return {}


def _address(function: ctypes._FuncPointer) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def _of_scipy() -> dict[str, int]:
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
