"""Gradient rules of single operations, to which the operations refer by name.

`hr.custom_gradient` makes such a rule for each call in a graph. `grad` reads them, and `vmap` makes one for a batch.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

OVERRIDE: Final = "_gradient_op_type"  # the attribute that names another gradient than that of the op type
CUSTOM: Final = "CustomGradient-"  # the prefix of the names of `Custom` gradients


class Custom:
    """Gradient rule of a single operation (`custom_gradient`).

    The operation refers to the rule by name. The graph of the operation keeps this object alive.

    Args:
      rule: a gradient rule like that of an op record.

    Attributes:
      name: the name in the operation's attribute.
      rule: the gradient rule.
    """

    def __init__(self, rule: Callable[..., Sequence[Any]]) -> None:
        self.name = f"{CUSTOM}{next(_numbers)}"
        self.rule = rule
        _customs[self.name] = self


_numbers = itertools.count(1)
_customs: Final[weakref.WeakValueDictionary[str, Custom]] = weakref.WeakValueDictionary()


def custom_of(op: Operation) -> Custom | None:
    """Returns the `Custom` rule to which `op` refers, or None."""
    name = op.attrs.get(OVERRIDE)
    return None if name is None else _customs.get(name)
