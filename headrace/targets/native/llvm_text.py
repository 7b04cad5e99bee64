"""LLVM's assembly language in construction: modules, functions, basic blocks and counted loops.

The text form is built in place of llvmlite's objects because it takes a tenth of the time. Types are written as LLVM
writes them: `float`, `i64`, `ptr`, `<8 x float>`.

    module = Module()
    f = module.function("double", "float", [("float", "x")])
    f.line(f"ret float {f.op('fadd float %x, %x')}")
    module.text()

A function in *final form* has its vectors and unrolled loops already. LLVM would spend most of its time on passes that
find nothing to do there, so these functions are a part of the text of their own, behind the line `FINAL`, and `engine`
runs few passes on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

#: Line of a module's text before the functions in final form.
FINAL: Final = "; *** final form ***"


class Module:
    """Module: functions, declarations of external functions, and globals."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._declared: dict[str, str] = {}
        self._globals: dict[str, str] = {}
        self._metadata: list[str] = []

    def function(
        self,
        name: str,
        result: str,
        params: Sequence[tuple[str, str]],
        attributes: str = "",
        linkage: str = "",
        *,
        is_final: bool = False,
    ) -> Function:
        """A new function.

        Args:
          name: Its name, without `@`.
          result: The type of its result.
          params: Types (with attributes, such as `ptr noalias`) and names (without `%`) of its parameters.
          attributes: Attributes of the function, such as `nounwind`.
          linkage: The linkage, such as `internal`.
          is_final: Whether the function is in final form. It uses no globals, and of the module's functions only
            others in final form.

        Returns:
          The function, whose entry block is open.
        """
        if name in self._functions:
            raise ValueError(f"the module has a function @{name}")
        if is_final:
            linkage = "hidden"  # the functions of the other part call it
        made = self._functions[name] = Function(self, name, result, params, attributes, linkage)
        made.is_final = is_final
        return made

    def has(self, name: str) -> bool:
        """Whether the module defines the function `name`."""
        return name in self._functions

    def unused(self, name: str) -> str:
        """`name` with the first number that makes it the name of no function."""
        number = 0
        while self.has(f"{name}.{number}"):
            number += 1
        return f"{name}.{number}"

    def declare(self, name: str, result: str, params: Sequence[str], attributes: str = "") -> str:
        """Declares an external function once; returns `@name`."""
        self._declared[name] = f"declare {result} @{name}({', '.join(params)}) {attributes}".rstrip()
        return f"@{name}"

    def add_global(self, name: str, definition: str) -> str:
        """Defines a global once, such as `private constant [2 x float] [...]`; returns `@name`."""
        self._globals[name] = f"@{name} = {definition}"
        return f"@{name}"

    def metadata(self, definition: str) -> str:
        """Defines a metadata node; returns `!number`.

        Args:
          definition: The node, such as `distinct !{}`. `SELF` stands for the node itself.
        """
        name = f"!{len(self._metadata)}"
        self._metadata.append(f"{name} = {definition.replace('SELF', name)}")
        return name

    def text(self) -> str:
        """The module as LLVM reads it, or two modules with the line `FINAL` between them."""
        external = {name: text for name, text in self._declared.items() if name not in self._functions}
        final = [f for f in self._functions.values() if f.is_final]
        usual = [f.text() for f in self._functions.values() if not f.is_final]
        shared = [*self._globals.values(), *(f.declaration() for f in final)]
        if not final:
            return "\n".join([*shared, *external.values(), *usual, *self._metadata]) + "\n"
        first, second = "\n".join(usual), "\n".join(f.text() for f in final)
        called, other = ([text for name, text in external.items() if f"@{name}(" in code] for code in (first, second))
        parts = [*shared, *called, first, *self._metadata, FINAL, *other, second, *self._metadata]
        return "\n".join(parts) + "\n"


class Function:
    """Function in construction; instructions are added to the open basic block.

    Args:
      module: Its module.
      name: Its name, without `@`.
      result: The type of its result.
      params: Types and names of its parameters.
      attributes: Attributes of the function.
      linkage: The linkage.

    Attributes:
      module: Its module.
      name: Its name, without `@`.
      current: The label of the open basic block, for phi instructions.
      is_final: Whether the function is in final form.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        result: str,
        params: Sequence[tuple[str, str]],
        attributes: str = "",
        linkage: str = "",
    ) -> None:
        self.module = module
        self.name = name
        self.current = "entry"
        self.is_final = False
        head = ", ".join(f"{kind} %{param}" for kind, param in params)
        self._declaration = f"declare {linkage} {result} @{name}({', '.join(kind for kind, _ in params)}) {attributes}"
        self._header = f"define {linkage + ' ' if linkage else ''}{result} @{name}({head}) {attributes}".rstrip()
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def new(self, hint: str) -> str:
        """A new name with `hint`, without `%`."""
        self._count += 1
        return f"{hint}.{self._count}"

    def op(self, text: str, hint: str = "v") -> str:
        """Adds an instruction with a result; returns the name of the result, with `%`."""
        name = f"%{self.new(hint)}"
        self._lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        """Adds an instruction without a result."""
        self._lines.append(f"  {text}")

    def alloca(self, kind: str, align: int = 0) -> str:
        """A variable on the stack, allocated once in the entry block; returns its address."""
        name = f"%{self.new('slot')}"
        self._allocas.append(f"  {name} = alloca {kind}{f', align {align}' if align else ''}")
        return name

    def begin(self, label: str) -> None:
        """Begins the basic block `label`; the block before must have ended with a branch."""
        self._lines.append(f"{label}:")
        self.current = label

    def jump(self, label: str) -> None:
        """Ends the open block with a branch to `label`."""
        self.line(f"br label %{label}")

    def branch(self, condition: str, then: str, other: str) -> None:
        """Ends the open block with a branch on the i1 `condition`."""
        self.line(f"br i1 {condition}, label %{then}, label %{other}")

    @contextlib.contextmanager
    def loop(self, first: str, stop: str, step: int = 1, metadata: str = "") -> Iterator[str]:
        """A loop over i64 numbers; yields the name of the number.

        Args:
          first: The first number: a name or a literal.
          stop: The bound, a name or a literal.
          step: The step, positive.
          metadata: Metadata of the branch back, such as `, !llvm.loop !0`.
        """
        head, body, end = self.new("head"), self.new("body"), self.new("end")
        before = self.current
        self.jump(head)
        self.begin(head)
        number, following = f"%{self.new('i')}", f"%{self.new('next')}"
        phi = len(self._lines)
        self._lines.append("")
        self.branch(self.op(f"icmp slt i64 {number}, {stop}"), body, end)
        self.begin(body)
        yield number
        self.line(f"{following} = add nsw i64 {number}, {step}")
        self._lines[phi] = f"  {number} = phi i64 [ {first}, %{before} ], [ {following}, %{self.current} ]"
        self.line(f"br label %{head}{metadata}")
        self.begin(end)

    def declaration(self) -> str:
        """The declaration for another module."""
        return self._declaration.rstrip()

    def text(self) -> str:
        """The definition as LLVM reads it."""
        return "\n".join([f"{self._header} {{", "entry:", *self._allocas, *self._lines, "}"])
