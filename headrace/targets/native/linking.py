"""Loader of object files of x86-64 into this process.

    code = link(content, {"given": address})
    code["core"]

LLVM's own linker does this too, but the import of llvmlite and the start of LLVM take longer than all else of a first
result whose machine code is in the object cache. The object files of this package need little: code and constants,
jumps and addresses relative to the instruction, and a table of the addresses of external names. `link` returns None for
a file with anything else, which LLVM then loads.

**Memory.** Sections lie in one mapping, at their order in the file. Behind them is an entry for each external name: its
address, and a jump to it for calls, since the process may be far away. The mapping is written first and executable
afterwards, never both.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Mapping
from typing import Final

from headrace.errors import HeadraceInternalError

_HEAD: Final = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")

_RELOCATABLE, _X86_64 = 1, 62
_CONTENT, _SYMBOLS, _RELOCATIONS, _UNWINDING = 1, 2, 4, 0x70000001  # kinds of sections
_LOADED, _CODE = 0x2, 0x4  # flags of sections that take part, and of those with code
_READ_ONLY: Final = _LOADED | _CODE | 0x10 | 0x20  # with flags for code, and for constants that a linker may merge
_RELATIVE, _CALL, _ADDRESS = 2, 4, {9, 41, 42}  # kinds of relocations

_ENTRY: Final = struct.Struct("<Q8s")
_JUMP: Final = b"\xff\x25" + struct.pack("<i", -14)  # to the address in the 8 bytes before


class Code:
    """Machine code in memory, as long as the object exists.

    Args:
      memory: The mapping.
      addresses: The addresses of the functions by name.
    """

    __slots__ = ("_addresses", "_memory")

    def __init__(self, memory: mmap.mmap, addresses: Mapping[str, int]) -> None:
        self._memory = memory
        self._addresses = addresses

    def __getitem__(self, name: str) -> int:
        return self._addresses[name]


def link(content: bytes, symbols: Mapping[str, int]) -> Code | None:
    """Loads an object file.

    Args:
      content: The file.
      symbols: Addresses of external names, in addition to those of the process.

    Returns:
      The code with all global functions; None if the file has anything that this module does not know.

    Raises:
      HeadraceInternalError: An external name is unknown.
      OSError: The system has no memory, or forbids executable memory.
    """
    try:
        return _Object(content).load(symbols)
    except (_UnknownError, struct.error, KeyError, IndexError):
        return None


class _UnknownError(Exception):
    """Raised for a file with another content than expected."""


class _Object:
    """Object file in memory, to be loaded.

    Args:
      content: The file.
    """

    def __init__(self, content: bytes) -> None:
        magic, bits, order, _, kind, machine, _, _, _, at, _, _, _, _, _, count, _ = _HEAD.unpack_from(content)
        if (magic, bits, order, kind, machine) != (b"\x7fELF", 2, 1, _RELOCATABLE, _X86_64):
            raise _UnknownError
        self._content = content
        self._sections = [_SECTION.unpack_from(content, at + _SECTION.size * k) for k in range(count)]
        self._starts: dict[int, int] = {}  # places in memory by section
        self._image = bytearray()
        for k, (_, kind, flags, _, _, _, _, _, alignment, _) in enumerate(self._sections):
            if flags & _LOADED and kind != _UNWINDING:  # no exception of C++ passes through
                if kind != _CONTENT or flags & ~_READ_ONLY:
                    raise _UnknownError
                self._extend(alignment)
                self._starts[k] = len(self._image)
                self._image += self._bytes(k)
        self._extend(_ENTRY.size)
        (table,) = [k for k, section in enumerate(self._sections) if section[1] == _SYMBOLS] or [0]
        self._symbols = list(_SYMBOL.iter_unpack(self._bytes(table)))
        self._names = self._bytes(self._sections[table][6])
        self._entries: dict[int, int] = {}  # places in memory by symbol

    def load(self, symbols: Mapping[str, int]) -> Code:
        """Loads the file; see `link`."""
        for section in self._sections:
            if section[1] == _RELOCATIONS and section[7] in self._starts:
                self._relocate(self._starts[section[7]], self._content[section[4] : section[4] + section[5]])
        memory = mmap.mmap(-1, len(self._image), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # not executable yet
        base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for symbol, at in self._entries.items():
            name, section = self._name(symbol), self._symbols[symbol][3]
            address = base + self._place(symbol) if section else symbols.get(name) or _in_process(name)
            _ENTRY.pack_into(self._image, at, address, _JUMP)
        memory[:] = bytes(self._image)
        _make_executable(base, len(self._image))
        found = [k for k, (_, about, _, section, *_) in enumerate(self._symbols) if section and about >> 4]
        return Code(memory, {self._name(k): base + self._place(k) for k in found})

    def _relocate(self, start: int, table: bytes) -> None:
        """Writes the distances of one section."""
        for offset, about, addend in _RELOCATION.iter_unpack(table):
            symbol, kind = about >> 32, about & 0xFFFFFFFF
            if kind in _ADDRESS:
                to = self._entry(symbol)
            elif kind in (_RELATIVE, _CALL) and self._symbols[symbol][3]:
                to = self._place(symbol)
            elif kind == _CALL:
                to = self._entry(symbol) + 8
            else:
                raise _UnknownError
            struct.pack_into("<i", self._image, start + offset, to + addend - (start + offset))

    def _place(self, symbol: int) -> int:
        """Place in memory of a symbol of the file."""
        _, _, _, section, value, _ = self._symbols[symbol]
        place: int = self._starts[section] + value
        return place

    def _entry(self, symbol: int) -> int:
        """Place of the entry of a symbol."""
        if symbol not in self._entries:
            self._entries[symbol] = len(self._image)
            self._image += bytes(_ENTRY.size)
        return self._entries[symbol]

    def _extend(self, alignment: int) -> None:
        self._image += bytes(-len(self._image) % max(1, alignment))

    def _bytes(self, section: int) -> bytes:
        _, _, _, _, at, size, *_ = self._sections[section]
        return self._content[at : at + size]

    def _name(self, symbol: int) -> str:
        start = self._symbols[symbol][0]
        return self._names[start : self._names.index(b"\0", start)].decode()


_process: Final = ctypes.CDLL(None, use_errno=True)


def _in_process(name: str) -> int:
    function = getattr(_process, name, None)
    if function is None:
        raise HeadraceInternalError(f"native code needs {name}, which this process does not have")
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _make_executable(address: int, size: int) -> None:
    if _process.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC):
        error = ctypes.get_errno()
        raise OSError(error, f"memory with machine code: {os.strerror(error)}")
