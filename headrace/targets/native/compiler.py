"""LLVM, by way of llvmlite: from text to object files.

    code = compiler().compile(text)

llvmlite is imported by the first call of `compiler`, because the import and the start of LLVM take 25 to 200 ms.

The text is parsed, optimized (`O2`) and written as an object file for the processor of this machine. Functions in final
form (`llvm_text`) have few passes, and loops of long modules are not unrolled. The support functions have no passes:
`O2` would take 110 ms of the first result of a process, and no call of an entry becomes measurably faster.

LLVM runs without the interpreter's lock. llvmlite has one lock for all of LLVM, so two threads compile one after the
other. A process that was forked while another thread compiled has that lock in the locked state for ever
(`is_broken`).
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from headrace import flags, forking, thresholds
from headrace.errors import HeadraceInternalError
from headrace.targets.native.llvm_text import FINAL

#: Versions of llvmlite whose LLVM reads the text that is printed here: at least the first, below the second.
VERSIONS: Final = ((0, 46), (0, 51))

FORKED: Final = "the process was forked while another thread compiled native code"


class UnavailableError(HeadraceInternalError):
    """Raised where native code cannot be compiled or run."""


def compiler() -> Compiler:
    """The compiler of this process.

    Raises:
      UnavailableError: LLVM does not work here.
    """
    global _compiler
    with _creating:
        if _compiler is None:
            _compiler = Compiler()
        return _compiler


def is_broken() -> bool:
    """Whether the process was forked while another thread was in LLVM."""
    return _compiler is not None and _compiler.is_broken


_compiler: Compiler | None = None
_creating = threading.RLock()


def _forked() -> None:
    global _creating
    _creating = threading.RLock()


forking.run_after_fork(_forked)


def unsupported(version: str) -> str:
    """The reason why a version of llvmlite is not supported; "" if it is."""
    low, high = VERSIONS
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if low <= found < high:
        return ""
    return f"llvmlite {version} is not supported: {low[0]}.{low[1]} to below {high[0]}.{high[1]} is"


class Compiler:
    """LLVM for the processor of this machine.

    Attributes:
      version: The versions of llvmlite and LLVM.
      cpu: LLVM's name of the processor.
      features: The features of the processor, as LLVM writes them.
      is_broken: Whether the process was forked while another thread was in LLVM.
    """

    def __init__(self) -> None:
        import llvmlite

        reason = unsupported(llvmlite.__version__)
        if reason:
            raise UnavailableError(reason)
        try:
            import llvmlite.binding as llvm

            llvm.check_jit_execution()
        except OSError as e:  # the library is missing a dependency, or the system forbids executable memory
            raise UnavailableError(f"llvmlite does not work here: {e}") from e
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
        self._jit: Any = None
        self._layout = str(self._machine.target_data)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self.is_broken = self.is_broken or self._lock.locked()
        self._lock = threading.Lock()

    def _new_machine(self, *, is_optimizing: bool = True) -> Any:
        target = self._llvm.Target.from_default_triple()
        return target.create_target_machine(
            cpu=self.cpu, features=self.features, opt=2 if is_optimizing else 0, reloc="pic", codemodel="small"
        )

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
        """Loads an object file by LLVM's linker; returns a handle with the addresses of `names`."""
        builder = self._llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in symbols.items():
            builder.import_symbol(name, address)
        for name in names:
            builder.export_symbol(name)
        with self._in_llvm():
            if self._jit is None:
                self._jit = self._llvm.create_lljit_compiler(
                    self._new_machine(), use_jit_link=True, suppress_errors=True
                )
            return builder.link(self._jit, f"headrace.{next(self._numbers)}")

    @contextlib.contextmanager
    def _in_llvm(self) -> Iterator[None]:
        if self.is_broken:
            raise UnavailableError(f"native code is not available: {FORKED}")
        with self._lock:
            try:
                yield
            except RuntimeError as e:
                raise HeadraceInternalError(f"LLVM does not accept a module of native code: {e}") from e

    @contextlib.contextmanager
    def _optimized(self, text: str) -> Iterator[Any]:
        """Parses and optimizes a module, which exists in the `with` block.

        LLVM's vectorizer of blocks of code (SLP) makes invalid modules of a few valid ones: in LLVM 22 a shuffle of
        half-precision numbers stands before its inputs. The code generator would end the process for such a module, so
        the result is verified, and made again without that vectorizer if it is invalid.
        """
        usual, _, final = text.partition(FINAL)
        with self._context() as context, contextlib.ExitStack() as modules:
            module = modules.enter_context(self._parsed(usual, context))
            self._run_passes(module, usual, vectorizes_blocks=True)
            if not _is_valid(module):
                module = modules.enter_context(self._parsed(usual, context))
                self._run_passes(module, usual, vectorizes_blocks=False)
                module.verify()
            if final:
                other = modules.enter_context(self._parsed(final, context))
                self._run_few_passes(other)
                module.link_in(other)
            yield module

    def _run_passes(self, module: Any, text: str, *, vectorizes_blocks: bool) -> None:
        with contextlib.closing(self._llvm.create_pipeline_tuning_options(2)) as options:
            options.loop_vectorization, options.slp_vectorization = True, vectorizes_blocks
            options.loop_unrolling = len(text) <= thresholds.NATIVE_UNROLLED_BYTES
            with (
                contextlib.closing(self._llvm.create_pass_builder(self._machine, options)) as builder,
                contextlib.closing(builder.getModulePassManager()) as passes,
            ):
                passes.run(module, builder)

    def _run_few_passes(self, module: Any) -> None:
        with (
            contextlib.closing(self._llvm.create_pipeline_tuning_options(2)) as options,
            contextlib.closing(self._llvm.create_pass_builder(self._machine, options)) as builder,
            contextlib.closing(self._llvm.create_new_module_pass_manager()) as passes,
        ):
            passes.add_sroa_pass()
            passes.add_instruction_combine_pass()
            passes.add_simplify_cfg_pass()
            passes.run(module, builder)

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


def _is_valid(module: Any) -> bool:
    try:
        module.verify()
    except RuntimeError:
        return False
    return True
