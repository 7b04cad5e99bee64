"""What stands for tensors in the source: names, whose they are, and when they go."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace import dtypes
from headrace.compile.lists import Lists
from headrace.compile.source import Source
from headrace.ir.infer import constant_value

if TYPE_CHECKING:
    from headrace.compile.regions import Regions
    from headrace.ir.graph import Operation, Tensor

INT: Final = "int"  # a Python int that stands for an int32 or int64 scalar


class Value(NamedTuple):
    """What stands for a tensor in the source.

    Attributes:
      text: a name; of a scalar that only the next line reads, an expression.
      kind: "" for what kernels know; `INT`, `LIST` or `ROWS`.
      is_natural: of an `INT`: it is not negative.
      is_fresh: an array that was made here for this tensor alone.
      is_global: a constant.
      beside: of a constant of rank 0, the name of the array that is better beside arrays.
    """

    text: str
    kind: str = ""
    is_natural: bool = False
    is_fresh: bool = False
    is_global: bool = False
    beside: str = ""

    def named(self, name: str) -> Value:
        """The same by another name."""
        return Value(name, self.kind, self.is_natural)


class Names:
    """The source that is being written, and what stands in it for each tensor.

    Attributes:
      out: the source.
      values: what stands for each tensor.
      lists: what stands for tensor lists.
      converted: for each open block, which Python ints have been made scalars of a dtype there.
      wanted: names that results of open blocks had better have: of loop variables, of results of conditionals. What is
        written into such a name at once need not be given it at the end of the block.
    """

    def __init__(self, blocks: Regions) -> None:
        self.out = Source()
        self.values: dict[Tensor, Value] = {}
        self.lists = Lists(blocks)
        self.converted: list[dict[tuple[str, type], str]] = [{}]
        self.wanted: dict[Tensor, str] = {}
        self._owned: dict[Tensor, str] = {}  # tensors that have a part in a name, which goes with the last of them
        self._shares: dict[str, int] = {}

    # *** names ***

    def name_for(self, t: Tensor) -> str:
        """The name of what is made for `t`: the one it had better have, or a new one."""
        return self.wanted.pop(t, "") or self.out.new("t")

    def own(self, t: Tensor, value: Value) -> None:
        """`t` is `value`, whose name nothing else has."""
        self.values[t] = value
        self._owned[t] = value.text
        self._shares[value.text] = 1

    def share(self, t: Tensor, other: Tensor, op: Operation) -> None:
        """`t` is what `other` is."""
        if other.dtype.is_ref and not t.dtype.is_ref:
            name = self.out.new("t")
            self.out.line(f"{name} = {self.plain(other, op)}", op)
            self.own(t, Value(name))
            return
        value = self.values[t] = self.values[other]
        name = self._owned.get(other, "")
        if name:
            self._owned[t] = name
            self._shares[name] += 1
        elif value.is_fresh:
            self.values[t] = value._replace(is_fresh=False)

    def alias(self, p: Tensor, t: Tensor, op: Operation) -> None:
        """The parameter `p` of an inner block is `t`, which stays at least as long."""
        if t.dtype.is_ref and not p.dtype.is_ref:
            self.share(p, t, op)
        else:
            value = self.values[t]
            self.values[p] = value._replace(is_fresh=False) if value.is_fresh else value

    def disown(self, t: Tensor) -> None:
        """`t` has no part in its name any more; the name stays."""
        self._owned.pop(t, None)

    def drop(self, tensors: Iterable[Tensor]) -> None:
        """Nobody reads `tensors` any more: names that stood for them alone go."""
        gone = []
        for t in tensors:
            name = self._owned.pop(t, None)
            if name is not None:
                self._shares[name] -= 1
                if not self._shares[name] and (t.shape != () or t.dtype.base in dtypes.OBJECT):
                    gone.append(name)
        if gone:
            self.out.line(f"del {', '.join(gone)}")

    # *** values ***

    def plain(self, t: Tensor, op: Operation, wants_ref: bool = False) -> str:
        """`t` as kernels and users know it."""
        value = self.values.get(t)
        if value is None:  # a constant that nobody makes
            value = self.values[t] = self.constant(constant_value(t))
        if value.kind == INT:
            return self._as_scalar(value, t)
        if t.dtype.is_ref and not wants_ref:
            return f"{value.text}.read()"
        return value.text

    def scalar_type(self, t: Tensor) -> str:
        """The name of the class of numpy scalars of the dtype of `t`."""
        return self.out.bind(t.dtype.base.numpy.type, "f")

    def _as_scalar(self, value: Value, t: Tensor) -> str:
        kind = t.dtype.base.numpy.type
        for known in reversed(self.converted):
            name = known.get((value.text, kind))
            if name is not None:
                return name
        name = self.out.new("c")
        self.out.line(f"{name} = {self.scalar_type(t)}({value.text})")
        self.converted[-1][value.text, kind] = name
        return name

    def constant(self, array: Any) -> Value:
        """A constant."""
        if array.ndim or array.dtype.kind not in "biufc":
            return Value(self.out.bind(array, "c"), is_global=True)
        beside = np.array(array)  # kernels give scalars
        beside.flags.writeable = False
        return Value(self.out.bind(array[()], "c"), is_global=True, beside=self.out.bind(beside, "c"))
