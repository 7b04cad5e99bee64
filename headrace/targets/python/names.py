"""Names of values in the source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.targets.python.source import Source

if TYPE_CHECKING:
    from headrace.schedule.program import Instr, Value


class Names:
    """The source in construction and the expressions of the values in it.

    Attributes:
      out: The source.
      texts: The expression of each value: a name, or an operator expression of a scalar that only the next line reads.
    """

    def __init__(self) -> None:
        self.out = Source()
        self.texts: dict[Value, str] = {}
        self._zero_rank: dict[Value, str] = {}  # names of the arrays of rank 0 of scalar constants

    def text(self, value: Value) -> str:
        """The expression of a value."""
        found = self.texts.get(value)
        if found is None and value.storage == "constant":
            found = self.texts[value] = self._constant(value)
        assert found is not None
        return found

    def operand(self, value: Value) -> str:
        """The expression of an operand: of a scalar constant, an array of rank 0."""
        text = self.text(value)
        return self._zero_rank.get(value, text)

    def name_for(self, value: Value, prefix: str = "t") -> str:
        """The name for a new value: that of its home or a new one."""
        home = value.home
        name = self.texts.get(home) if home is not None else None
        self.texts[value] = name = name or self.out.new(prefix)
        return name

    def assign(self, instr: Instr, text: str, inputs: tuple[str, ...] = ()) -> None:
        """Assigns an expression to the result of an instruction, if it is read."""
        target = "".join(f"{self.name_for(value)} = " for value in instr.made)
        self.out.line(f"{target}{text}", instr.op, inputs)

    def drop(self, values: Iterable[Value], more: Iterable[str] = (), kept: str = "") -> None:
        """Deletes the names of values that end, and more names, except the name `kept`."""
        names = dict.fromkeys(more)
        names.update((self.texts[v], None) for v in values if v.holds_much)
        names.pop(kept, None)
        if names:
            self.out.line(f"del {', '.join(names)}")

    def scalar_type(self, value: Value) -> str:
        """The name of the class of numpy scalars of a dtype."""
        return self.out.bind(value.dtype.numpy.type, "f")

    def _constant(self, value: Value) -> str:
        """Binds a constant array."""
        array: Any = value.constant
        if value.representation == "object" or array.ndim or array.dtype.kind not in "biufc":
            return self.out.bind(array, "c")
        zero_rank = np.array(array)  # kernels give scalars
        zero_rank.flags.writeable = False
        name = self.out.bind(array[()], "c")
        self._zero_rank[value] = self.out.bind(zero_rank, "c")
        return name
