"""Compiler of LLVM's assembly language, by way of llvmlite.

    library = compile_module(module.text(), ["double"])
    address = library.address("double")

`available` says whether the machine and its packages can do it. llvmlite is imported by the first call of a function of
this module, because the import takes 0.1 to 0.2 seconds.

**From text to code.** The text is parsed, optimized (`O2`) and written as an object file for the processor of this
machine, in memory or in the object cache. Functions in final form (`llvm_text`) have few passes. The support functions
have none: `O2` would take 110 ms of the first result of a process, and no call of an entry becomes measurably faster.
The linker of LLVM (JITLink) loads the object file. Code and constants of a library are one block of memory, and calls
of other functions go through a table, so the small code model of normal programs suffices.

**External functions.** The text has names in place of addresses, since object files outlive the process. Names are
resolved when the object file is loaded: in the table that the caller gives, among those of Python and numpy that
`entry` and `state` use, and in the process (the C and mathematics libraries).

**Threads.** LLVM runs without the interpreter's lock. llvmlite has one lock for all of LLVM, so two threads compile one
after the other. A process that was forked while another thread compiled has that lock in the locked state for ever;
there `available` says no.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import itertools
import platform
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace import flags, forking, intra_op, memo, thresholds
from headrace.errors import HeadraceInternalError
from headrace.targets.native import object_cache, object_layout, state, support, threads
from headrace.targets.native.llvm_text import FINAL

#: Versions of llvmlite whose LLVM reads the text that is printed here: at least the first, below the second.
VERSIONS: Final = ((0, 46), (0, 51))

_FORKED: Final = "the process was forked while another thread compiled native code"
_PROCESSORS: Final = {"x86_64", "aarch64", "arm64"}


class Library:
    """Machine code of a module, loaded into this process while the object exists.

    Args:
      text: The module's text.
      tracker: LLVM's handle of the loaded code.
      is_cached: Whether the object file was in the object cache.

    Attributes:
      text: The module's text.
      is_cached: Whether the object file was in the object cache.
    """

    __slots__ = ("__weakref__", "_tracker", "is_cached", "text")

    def __init__(self, text: str, tracker: Any, is_cached: bool) -> None:
        self.text = text
        self.is_cached = is_cached
        self._tracker = tracker  # drops the code when it is freed

    def address(self, name: str) -> int:
        """Address of a function among the names that were given to `compile_module`."""
        found: int = self._tracker[name]
        return found

    def optimized(self) -> str:
        """The module's text after optimization. The module is optimized again."""
        return _engine().optimized(self.text)

    def assembly(self) -> str:
        """The processor's assembly language. The module is compiled again."""
        return _engine().assembly(self.text)


def available() -> str:
    """The reason why native code is not available; "" if it is."""
    if flags.NATIVE.value == "off":
        return "the flag NATIVE is off"
    return _unsupported() or (_FORKED if _engine().is_broken else "")


def compile_seconds(text: str) -> float:
    """Estimated duration of the compilation of a module, which depends on its text alone.

    Most of it is for the loops that LLVM vectorizes, which state that their accesses are parallel, and for the
    elementary functions in them. The time for a function without such loops grows with the square of its length, and
    that for functions in final form with their length.
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


def entry_address() -> int:
    """Address of the machine code that all entries share (`support`)."""
    return _engine().entry


def team() -> threads.Team:
    """The threads of this process that help with parts."""
    return _engine().team


@memo.cached(1, "native availability")
def _unsupported() -> str:
    """The reason why this machine cannot run native code; "" if it can."""
    if sys.platform not in ("linux", "darwin") or platform.machine() not in _PROCESSORS or sys.maxsize < 2**63 - 1:
        return f"native code does not support {sys.platform} on {platform.machine()}"
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "native code needs CPython with its global lock"
    if importlib.util.find_spec("llvmlite") is None:
        return "llvmlite is not installed"
    import llvmlite

    low, high = VERSIONS
    found = tuple(int(part) for part in llvmlite.__version__.split(".")[:2] if part.isdecimal())
    if not low <= found < high:
        return f"llvmlite {llvmlite.__version__} is not supported: {low[0]}.{low[1]} to below {high[0]}.{high[1]} is"
    try:
        import llvmlite.binding as llvm

        llvm.check_jit_execution()
    except OSError as e:  # the library is missing a dependency, or the system forbids executable memory
        return f"llvmlite does not work here: {e}"
    return object_layout.difference()


def _engine() -> _Engine:
    with _creating:  # one engine for ever: libraries of a second one would call the first one's
        return _created()


@memo.cached(1, "native engines")
def _created() -> _Engine:
    reason = _unsupported()
    if reason:
        raise HeadraceInternalError(f"native code is not available: {reason}")
    return _Engine()


_creating = threading.RLock()


def _forked() -> None:
    global _creating
    _creating = threading.RLock()


forking.run_after_fork(_forked)


class _Engine:
    """LLVM for the processor of this machine.

    Attributes:
      version: The versions of llvmlite and LLVM.
      cpu: LLVM's name of the processor.
      features: The features of the processor, as LLVM writes them.
      entry: The address of the machine code of entries.
      is_broken: Whether the process was forked while another thread was in LLVM.
      team: The threads that help with parts.
    """

    def __init__(self) -> None:
        import llvmlite
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.version = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}"
        self.cpu = llvm.get_host_cpu_name()
        features = llvm.get_host_cpu_features()
        if llvm.llvm_version_info[0] == 22:
            # Its pass CompressEVEX replaces vpmovd2m and kmov by vmovmskps, although a following kshift reads the mask
            # and overwrites it: some elements of `x < 0` are wrong. The instructions belong to this feature.
            features["avx512dq"] = False
        self.features = features.flatten()
        self.is_broken = False
        self._llvm = llvm
        self._machine = self._new_machine()
        self._jit = llvm.create_lljit_compiler(self._new_machine(), use_jit_link=True, suppress_errors=True)
        self._layout = str(self._machine.target_data)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        forking.register_at_fork(self)
        self._symbols = {name: _address_in_python(name) for name in support.PYTHON}
        self._symbols |= {"headrace_pool": state.pool().address, **object_layout.symbols()}
        self.team = threads.Team()
        self._symbols |= {"headrace_team": self.team.address, "headrace_threads": intra_op.ADDRESS}
        self._support = self.load(support.text(), support.NAMES, {}, is_optimized=False)
        self._symbols |= {name: self._support.address(name) for name in support.NAMES}
        self.entry = self._support.address("headrace_call")
        self.team.begin(*map(self._support.address, ("headrace_found_team", "headrace_end_team")))

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self.is_broken = self.is_broken or self._lock.locked()
        self._lock = threading.Lock()

    def _new_machine(self, *, is_optimizing: bool = True) -> Any:
        target = self._llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=2 if is_optimizing else 0, reloc="pic", codemodel="small"
        )

    def load(
        self, text: str, names: Sequence[str], symbols: Mapping[str, int], *, is_optimized: bool = True
    ) -> Library:
        """Loads a module from the object cache, or compiles it; see `compile_module`."""
        key = object_cache.key(text, self.version, self.cpu, self.features, "" if is_optimized else "not optimized")
        code = object_cache.load(key)
        if code is not None:
            with contextlib.suppress(HeadraceInternalError):  # no object file in spite of its digest
                return Library(text, self.link(code, names, symbols), True)
        code = self.compile(text, is_optimized=is_optimized)
        tracker = self.link(code, names, symbols)
        object_cache.save(key, code)
        return Library(text, tracker, False)

    def compile(self, text: str, *, is_optimized: bool = True) -> bytes:
        """The object file of a module."""
        code: bytes
        if is_optimized:
            with self._optimized(text) as module:
                code = self._machine.emit_object(module)
        else:
            with self._context() as context, self._parsed(text, context) as module:
                code = self._new_machine(is_optimizing=False).emit_object(module)
        return code

    def optimized(self, text: str) -> str:
        """The text of a module after optimization."""
        with self._optimized(text) as module:
            return str(module)

    def assembly(self, text: str) -> str:
        """The assembly language of a module."""
        with self._optimized(text) as module:
            printed: str = self._machine.emit_assembly(module)
            return printed

    def link(self, code: bytes, names: Sequence[str], symbols: Mapping[str, int]) -> Any:
        """Loads an object file; returns LLVM's handle, which has the addresses of `names`."""
        builder = self._llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in {**self._symbols, **symbols}.items():
            builder.import_symbol(name, address)
        for name in names:
            builder.export_symbol(name)
        with self._in_llvm():
            return builder.link(self._jit, f"headrace.{next(self._numbers)}")

    @contextlib.contextmanager
    def _in_llvm(self) -> Iterator[None]:
        if self.is_broken:
            raise HeadraceInternalError(f"native code is not available: {_FORKED}")
        with self._lock:
            try:
                yield
            except RuntimeError as e:
                raise HeadraceInternalError(f"LLVM does not accept a module of native code: {e}") from e

    @contextlib.contextmanager
    def _optimized(self, text: str) -> Iterator[Any]:
        """Parses and optimizes a module, which exists in the `with` block."""
        llvm = self._llvm
        usual, _, final = text.partition(FINAL)
        with (
            self._context() as context,
            self._parsed(usual, context) as module,
            self._parsed(final, context) as other,
            contextlib.closing(llvm.create_pipeline_tuning_options(2)) as options,
        ):
            options.loop_vectorization = options.slp_vectorization = True
            with (
                contextlib.closing(llvm.create_pass_builder(self._machine, options)) as builder,
                contextlib.closing(builder.getModulePassManager()) as passes,
                contextlib.closing(llvm.create_new_module_pass_manager()) as few_passes,
            ):
                passes.run(module, builder)
                if final:
                    few_passes.add_sroa_pass()
                    few_passes.add_instruction_combine_pass()
                    few_passes.add_simplify_cfg_pass()
                    few_passes.run(other, builder)
                    module.link_in(other)
            yield module

    @contextlib.contextmanager
    def _context(self) -> Iterator[Any]:
        """Enters LLVM with a new context, which exists in the `with` block."""
        with self._in_llvm(), contextlib.closing(self._llvm.create_context()) as context:
            yield context

    @contextlib.contextmanager
    def _parsed(self, text: str, context: Any) -> Iterator[Any]:
        """Parses a module, which exists in the `with` block.

        LLVM's objects are freed in order: the garbage collector, to which an exception's frames may leave them, could
        free the context before the module.
        """
        with contextlib.closing(self._llvm.parse_assembly(text, context)) as module:
            module.triple, module.data_layout = self._machine.triple, self._layout
            if flags.VERIFY.value:
                module.verify()
            yield module


def _address_in_python(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    if address is None:
        raise HeadraceInternalError(f"Python's C interface has no {name}")
    return address
