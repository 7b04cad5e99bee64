"""Machine code of texts in LLVM's assembly language: compiled, or loaded from the object cache.

    library = compile_module(module.text(), ["double"])
    address = library.address("double")

`available` says whether the machine and its packages can do it. LLVM (`compiler`) is loaded for the first text whose
object file is not in the object cache.

**From text to code.** The object file of a module is compiled or found in the object cache, and then loaded: on x86-64
by `linking`, elsewhere by the linker of LLVM (JITLink). Code and constants of a library are one block of memory, and
calls of other functions go through a table, so the small code model of normal programs suffices.

**External functions.** The text has names in place of addresses, since object files outlive the process. Names are
resolved when the object file is loaded: in the table that the caller gives, among those of Python and numpy that
`entry` and `state` use, and in the process (the C and mathematics libraries).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import platform
import re
import sys
import sysconfig
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from headrace import flags, forking, intra_op, memo, thresholds
from headrace.errors import HeadraceInternalError
from headrace.targets.native import (
    cached_steps,
    linking,
    object_cache,
    object_layout,
    processor,
    state,
    support,
    threads,
)
from headrace.targets.native.compiler import FORKED, UnavailableError, compiler, is_broken, unsupported
from headrace.targets.native.llvm_text import FINAL

#: Number of the form of object files: another compilation of the same text needs another number.
_FORM: Final = "2"
#: Head of a product that LLVM inserts into its callers.
_INLINED: Final = re.compile(r"internal void (@product_[^(]*)\([^\n]* alwaysinline")
_PROCESSORS: Final = {"x86_64", "aarch64", "arm64"}


class Library:
    """Machine code of a module, loaded into this process while the object exists.

    Args:
      text: A function that returns the module's text.
      code: The loaded code: the addresses of functions by name.
      key: The key of the object file in the object cache.
      is_cached: Whether the object file was in the object cache.

    Attributes:
      key: The argument.
      is_cached: The argument.
    """

    __slots__ = ("__weakref__", "_code", "_text", "is_cached", "key")

    def __init__(self, text: Callable[[], str], code: Any, key: bytes, is_cached: bool) -> None:
        self.key = key
        self.is_cached = is_cached
        self._text = text
        self._code = code  # which unloads the code when it is freed

    @property
    def text(self) -> str:
        """The module's text."""
        return self._text()

    def address(self, name: str) -> int:
        """Address of a function among the names that were given to `compile_module`."""
        found: int = self._code[name]
        return found

    def optimized(self) -> str:
        """The module's text after optimization. The module is optimized again."""
        return compiler().optimized(self.text)

    def assembly(self) -> str:
        """The processor's assembly language. The module is compiled again."""
        return compiler().assembly(self.text)


def available() -> str:
    """The reason why native code is not available; "" if it is."""
    if flags.NATIVE.value == "off":
        return "the flag NATIVE is off"
    return _unsupported() or (FORKED if is_broken() else "")


def compile_seconds(text: str) -> float:
    """Estimated duration of the compilation of a module, which depends on its text alone.

    Most of it is for the loops that LLVM vectorizes, which state that their accesses are parallel, and for the
    elementary functions in them. The time for a function without such loops grows with the square of its length, and
    that for functions in final form, and for copies of products in their callers, with their length.
    """
    text, _, final = text.partition(FINAL)
    total = len(final) / thresholds.NATIVE_FINAL_BYTES
    total += thresholds.NATIVE_LOOP_SECONDS * text.count('"llvm.loop.parallel_accesses"')
    for part in text.split("\ndefine "):
        if "!llvm.access.group" in part:
            total += thresholds.NATIVE_ELEMENTARY_SECONDS * part.count("@headrace.")
            total += len(part) / thresholds.NATIVE_VECTORIZED_BYTES
        else:
            size = len(part) / thresholds.NATIVE_COMPILED_BYTES
            total += size + size * size / 2
        product = _INLINED.match(part)
        if product is not None:
            copies = len(re.findall(rf"call void {product[1]}\([^\n]*\)$", text, re.MULTILINE))
            total += copies * len(part) / thresholds.NATIVE_VECTORIZED_BYTES
    return total


def too_large(text: str) -> bool:
    """Whether the compilation of a module would take longer than a step may."""
    return compile_seconds(text) > thresholds.NATIVE_COMPILE_SECONDS


def compile_module(text: str, names: Sequence[str], symbols: Mapping[str, int] | None = None) -> Library:
    """Compiles and loads a module, or loads it from the object cache.

    Args:
      text: The module in LLVM's assembly language.
      names: The functions whose addresses are wanted.
      symbols: Addresses of external functions and variables by name, in addition to those of the process.

    Returns:
      The library.

    Raises:
      HeadraceInternalError: LLVM does not accept the module, or an external name is unknown.
    """
    return _engine().load(text, names, symbols or {})


def stored_module(
    key: bytes, text: Callable[[], str], names: Sequence[str], symbols: Mapping[str, int] | None = None
) -> Library | None:
    """Loads a module from the object cache.

    Args:
      key: The key of the object file: `Library.key` of an earlier process.
      text: A function that returns the text of the module.
      names: The functions whose addresses are wanted.
      symbols: Addresses of external functions and variables.

    Returns:
      The library; None if the cache does not have it.
    """
    return _engine().stored(key, text, names, symbols or {})


def identity() -> str:
    """A text about LLVM and the processor, which determine the code of a module."""
    return _engine().identity


def entry_address() -> int:
    """Address of the machine code that all entries share (`support`)."""
    return _engine().entry


def team() -> threads.Team:
    """The threads of this process that help with parts."""
    return _engine().team


@memo.cached(1, "native availability")
def _unsupported() -> str:
    """The reason why this process cannot run native code; "" if it can."""
    try:
        _engine()
    except UnavailableError as e:
        return str(e)
    return ""


def _impossible() -> str:
    """The reason why this platform has no native code; "" if it may have."""
    if sys.platform not in ("linux", "darwin") or platform.machine() not in _PROCESSORS or sys.maxsize < 2**63 - 1:
        return f"native code does not support {sys.platform} on {platform.machine()}"
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "native code needs CPython with its global lock"
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    return object_layout.difference()


def _identity() -> str:
    """A text about LLVM and the processor, which determine the code of a module.

    It is found without LLVM, if the package tells its version in the usual file and Linux describes the processor.
    """
    spec = importlib.util.find_spec("llvmlite")
    about = processor.description()
    if spec is not None and spec.origin is not None and about:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            with open(os.path.join(os.path.dirname(spec.origin), "_version.py"), encoding="utf-8") as file:
                text = file.read(1 << 12)
            version = re.search(r"^version_version = '([\d.]+)'$", text, re.MULTILINE)
            if version is not None and not unsupported(version[1]):
                return f"{text}\n{about}"
    found = compiler()
    return f"{found.version}\n{found.cpu}\n{found.features}"


def _engine() -> _Engine:
    with _creating:  # one engine for ever: libraries of a second one would call the first one's
        return _created()


@memo.cached(1, "native engines")
def _created() -> _Engine:
    reason = _impossible()
    if reason:
        raise UnavailableError(reason)
    return _Engine()


_creating = threading.RLock()


def _forked() -> None:
    global _creating
    _creating = threading.RLock()


forking.run_after_fork(_forked)


class _Engine:
    """Loader of machine code for the processor of this machine.

    Attributes:
      identity: The text of `_identity`.
      entry: The address of the machine code of entries.
      team: The threads that help with parts.
    """

    def __init__(self) -> None:
        self.identity = _identity()
        self._symbols = {name: _address_in_python(name) for name in support.PYTHON}
        self._symbols |= {"headrace_pool": state.pool().address, **object_layout.symbols()}
        self.team = threads.Team()
        self._symbols |= {"headrace_team": self.team.address, "headrace_threads": intra_op.ADDRESS}
        self._support = self._load_support()
        self._symbols |= {name: self._support.address(name) for name in support.NAMES}
        self.entry = self._support.address("headrace_call")
        self.team.begin(*map(self._support.address, ("headrace_found_team", "headrace_end_team")))

    def key(self, text: str) -> bytes:
        """The key of a module in the object cache."""
        return object_cache.key(_FORM, text, self.identity, "")

    def load(self, text: str, names: Sequence[str], symbols: Mapping[str, int]) -> Library:
        """Loads a module from the object cache, or compiles it; see `compile_module`."""
        return self._load(self.key(text), lambda: text, names, symbols)

    def stored(
        self, key: bytes, text: Callable[[], str], names: Sequence[str], symbols: Mapping[str, int]
    ) -> Library | None:
        """Loads a module from the object cache; see `stored_module`."""
        content = object_cache.load(key)
        if content is not None:
            with contextlib.suppress(HeadraceInternalError):  # no object file in spite of its digest
                return Library(text, self.link(content, names, symbols), key, True)
        return None

    def _load(
        self,
        key: bytes,
        text: Callable[[], str],
        names: Sequence[str],
        symbols: Mapping[str, int],
        is_optimized: bool = True,
    ) -> Library:
        found = self.stored(key, text, names, symbols)
        if found is not None:
            return found
        content = compiler().compile(text(), is_optimized=is_optimized)
        code = self.link(content, names, symbols)
        object_cache.save(key, content)
        return Library(text, code, key, False)

    def _load_support(self) -> Library:
        """The library of `support`, which is printed only if the cache lacks it."""
        files = cached_steps.sources()
        key = object_cache.key(_FORM, files or support.text(), self.identity, "not optimized")
        return self._load(key, support.text, support.NAMES, {}, is_optimized=False)

    def link(self, content: bytes, names: Sequence[str], symbols: Mapping[str, int]) -> Any:
        """Loads an object file; the result has the addresses of `names`."""
        known = {**self._symbols, **symbols}
        try:
            code = linking.link(content, known)
        except OSError as e:
            raise UnavailableError(f"the system does not run new machine code: {e}") from e
        return compiler().link(content, names, known) if code is None else code


def _address_in_python(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    if address is None:
        raise HeadraceInternalError(f"Python's C interface has no {name}")
    return address
