"""Resident memory of the arenas of native calls."""

from __future__ import annotations

import ctypes
import mmap

from headrace.targets.native import state


def kept_bytes() -> int:
    """Bytes of the arenas' pages that are resident, of all states of the process."""
    found = 0
    for each in state.pool().states.values():
        for start, size in each.arenas():
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            pages = (ctypes.c_ubyte * -(-(start + size - first) // mmap.PAGESIZE))()
            status = ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(start + size - first), pages)
            assert status == 0
            found += sum(flag & 1 for flag in pages) * mmap.PAGESIZE
    return found
