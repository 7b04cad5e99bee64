"""Operators that converted code calls, as `ag__`.

Each receives values and functions for the operands and blocks that may not run. It does as Python does unless a
symbolic tensor decides; then it adds operations to the graph.
"""

from headrace.autograph.operators.branches import failure, if_, if_exp
from headrace.autograph.operators.comprehensions import gen_exp, list_comp
from headrace.autograph.operators.data import (
    augment_attribute,
    augment_item,
    augmented,
    delete_attribute,
    delete_item,
    item,
    of_attribute,
    of_value,
    rebound,
    set_attribute,
    set_item,
)
from headrace.autograph.operators.iterables import elements, unpack
from headrace.autograph.operators.journal import outer
from headrace.autograph.operators.logic import (
    and_,
    assert_,
    compare,
    decided,
    eq,
    in_,
    is_constant,
    ne,
    not_,
    not_in,
    or_,
)
from headrace.autograph.operators.loops import for_, while_
from headrace.autograph.operators.undefined import UNDEFINED, deleted, ld

__all__ = [
    "UNDEFINED",
    "and_",
    "assert_",
    "augment_attribute",
    "augment_item",
    "augmented",
    "compare",
    "decided",
    "delete_attribute",
    "delete_item",
    "deleted",
    "elements",
    "eq",
    "failure",
    "for_",
    "gen_exp",
    "if_",
    "if_exp",
    "in_",
    "is_constant",
    "item",
    "ld",
    "list_comp",
    "ne",
    "not_",
    "not_in",
    "of_attribute",
    "of_value",
    "or_",
    "outer",
    "rebound",
    "set_attribute",
    "set_item",
    "unpack",
    "while_",
]
