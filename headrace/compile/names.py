"""Names of tensors in the source: their values, their owners and their deletion."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace import dtypes
from headrace.compile.source import Source
from headrace.ir.infer import constant_value
from headrace.schedule.select import Selection

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.schedule.regions import Regions

INT: Final = "int"  # a Python int that stands for an int32 or int64 scalar


class Value(NamedTuple):
    """Representation of a tensor in the source.

    Attributes:
      text: A name, or an expression if the tensor is a scalar that only the next line reads.
      kind: "" for the representation of kernels; else `INT`, `LIST` or `ROWS`.
      is_natural: Whether an `INT` is certain not to be negative.
      is_fresh: Whether the value is an array that was made in this region for this tensor alone.
      is_global: Whether the value is a constant.
      `beside`: The name of the array of rank 0 of a scalar constant, which is faster as an operand with arrays.
    """

    text: str
    kind: str = ""
    is_natural: bool = False
    is_fresh: bool = False
    is_global: bool = False
    beside: str = ""

    def named(self, name: str) -> Value:
        """The same representation under another name."""
        return Value(name, self.kind, self.is_natural)


class Names:
    """The source in construction and the values of the tensors in it.

    Attributes:
      out: The source.
      values: The representation of each tensor.
      selection: The instructions of the step.
      lists: The representations of tensor lists.
      converted: For each open region, names of numpy scalars that were made of Python ints, by name and class.
      wanted: Preferred names of results of open regions: those of loop variables and of results of conditionals. A
        result that is written into its preferred name needs no assignment at the end of the region.
    """

    def __init__(self, regions: Regions) -> None:
        self.out = Source()
        self.values: dict[Tensor, Value] = {}
        self.selection = Selection(regions)
        self.lists = self.selection.lists
        self.converted: list[dict[tuple[str, type], str]] = [{}]
        self.wanted: dict[Tensor, str] = {}
        self._owned: dict[Tensor, str] = {}  # the name that a tensor shares; it is deleted with its last tensor
        self._shares: dict[str, int] = {}  # number of tensors that share a name

    # *** names ***

    def name_for(self, t: Tensor) -> str:
        """The name for a new value of `t`: its preferred name or a new one."""
        return self.wanted.pop(t, "") or self.out.new("t")

    def own(self, t: Tensor, value: Value) -> None:
        """Records that `value`, under a name that no other tensor has, represents `t`."""
        self.values[t] = value
        self._owned[t] = value.text
        self._shares[value.text] = 1

    def share(self, t: Tensor, other: Tensor, op: Operation) -> None:
        """Records that `t` has the value of `other` and shares its name."""
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
        """Records that parameter `p` of an inner region is `t`, which outlives the region."""
        if t.dtype.is_ref and not p.dtype.is_ref:
            self.share(p, t, op)
        else:
            value = self.values[t]
            self.values[p] = value._replace(is_fresh=False) if value.is_fresh else value

    def disown(self, t: Tensor) -> None:
        """Ends the share of `t` in its name; the name stays."""
        self._owned.pop(t, None)

    def drop(self, tensors: Iterable[Tensor]) -> None:
        """Deletes names that only `tensors` share, which have no later reader."""
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
        """Expression of `t` in the representation of kernels and users."""
        value = self.values.get(t)
        if value is None:  # a constant that no operation of the code computes
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
        """Binds a constant array and returns its value."""
        if array.ndim or array.dtype.kind not in "biufc":
            return Value(self.out.bind(array, "c"), is_global=True)
        beside = np.array(array)  # kernels give scalars
        beside.flags.writeable = False
        return Value(self.out.bind(array[()], "c"), is_global=True, beside=self.out.bind(beside, "c"))
