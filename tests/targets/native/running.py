"""Runs generated LLVM in tests: a loop over arrays around a printed scalar expression."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from headrace.schedule.scalar_expressions import Apply, Input
from headrace.targets.native import scalars
from headrace.targets.native.llvm_text import FINAL, Function, Module

Writer = Callable[[Function, Sequence[str]], str]

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


class Compiled:
    """Machine code of a module.

    Args:
      text: The module as LLVM reads it.
      level: The level of optimization.

    Attributes:
      optimized: The optimized module.
    """

    def __init__(self, text: str, level: int = 2) -> None:
        usual, _, final = text.partition(FINAL)
        module = llvm.parse_assembly(usual)
        module.link_in(llvm.parse_assembly(final))
        module.verify()
        features = llvm.get_host_cpu_features().flatten()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=features, opt=level
        )
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        tuning = llvm.create_pipeline_tuning_options(speed_level=level)
        tuning.loop_vectorization = tuning.slp_vectorization = level > 1
        passes = llvm.create_pass_builder(machine, tuning)
        passes.getModulePassManager().run(module, passes)
        self.optimized = str(module)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()

    def function(self, name: str, *kinds: Any) -> Any:
        """A function without a result, by name and types of its parameters."""
        return ctypes.CFUNCTYPE(None, *kinds)(self._engine.get_function_address(name))


def add_loop(module: Module, name: str, write: Writer, inputs: Sequence[np.dtype], output: np.dtype) -> None:
    """Adds the function `name(count, inputs..., output)`, a loop over contiguous arrays."""
    params = [("i64", "count"), *(("ptr noalias", f"in{i}") for i in range(len(inputs))), ("ptr noalias", "out")]
    f = module.function(name, "void", params, "nounwind")
    with f.loop("0", "%count") as i:
        values = []
        for k, dtype in enumerate(inputs):
            at = f.op(f"getelementptr inbounds {scalars.memory_type(dtype)}, ptr %in{k}, i64 {i}")
            values.append(scalars.load(f, dtype, at))
        value = write(f, values)
        at = f.op(f"getelementptr inbounds {scalars.memory_type(output)}, ptr %out, i64 {i}")
        scalars.store(f, output, value, at)
    f.line("ret void")


class Elementwise:
    """Compiled function on arrays of equal shape.

    Args:
      compiled: The module of the function.
      name: The name of the function, which `add_loop` has added.
      count: The number of inputs.
      output: The dtype of the result.

    Attributes:
      optimized: The optimized module.
    """

    def __init__(self, compiled: Compiled, name: str, count: int, output: np.dtype) -> None:
        self._output = output
        self.compiled = compiled
        self.optimized = compiled.optimized
        self.run = compiled.function(name, ctypes.c_int64, *[ctypes.c_void_p] * (count + 1))

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        arrays = tuple(map(np.ascontiguousarray, arrays))
        out = np.empty(arrays[0].shape, self._output)
        self.run(out.size, *(a.ctypes.data for a in arrays), out.ctypes.data)
        return out


def of_expression(node: Apply, inputs: Sequence[np.dtype], level: int = 2) -> Elementwise:
    """The compiled scalar expression `node`."""
    return of_expressions([(node, inputs)], level)[0]


def of_expressions(nodes: Sequence[tuple[Apply, Sequence[np.dtype]]], level: int = 2) -> list[Elementwise]:
    """The scalar expressions with the dtypes of their inputs, compiled as one module."""
    module = Module()
    for i, (node, inputs) in enumerate(nodes):
        assert scalars.why_not(node, inputs) == ""
        write = lambda f, values, node=node, inputs=inputs: scalars.expression(f, node, values, inputs)
        add_loop(module, f"run{i}", write, inputs, node.dtype)
    compiled = Compiled(module.text(), level)
    return [Elementwise(compiled, f"run{i}", len(inputs), node.dtype) for i, (node, inputs) in enumerate(nodes)]


def of_ufunc(ufunc: np.ufunc, inputs: Sequence[np.dtype], level: int = 2) -> Elementwise:
    """The compiled ufunc."""
    return of_expression(apply(ufunc, inputs), inputs, level)


def apply(ufunc: np.ufunc, inputs: Sequence[np.dtype]) -> Apply:
    """The expression that applies a ufunc to all inputs."""
    args = tuple(map(Input, range(len(inputs))))
    return Apply(ufunc, args, ufunc.resolve_dtypes((*inputs, None))[-1], None)
