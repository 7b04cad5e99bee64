"""Table of operators: functions by domain, name and first version.

An operator's function takes a `Call`, which has the node's attributes, and the node's inputs; an input that the node
leaves out is None. It returns the output or a tuple of outputs. A function is valid from its version of the operator
set up to the next function of the same name. `load_tables` imports the modules that fill the table.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np

from headrace.api.tensors import constant_value
from headrace.errors import InvalidArgumentError
from headrace.registry import DuplicateError

if TYPE_CHECKING:
    from headrace.ir.tensor_type import Tensor

#: Modules with the functions of operators.
TABLES: Final = (
    "arrays",
    "control_flow",
    "elementwise",
    "indexing",
    "normalization",
    "products",
    "quantization",
    "recurrent",
    "reductions",
    "resizing",
    "sequences",
    "strings",
    "windows",
)

Operator: TypeAlias = Callable[..., Any]
F = TypeVar("F", bound=Operator)

_table: dict[tuple[str, str], dict[int, Operator]] = {}
#: Operators whose results differ from call to call, or which own graphs: they are never computed while tracing.
_not_folded: set[tuple[str, str]] = set()


class Call:
    """Node in execution: its attributes with the defaults of the standard, and its graphs.

    Args:
      node: description of the node for messages, "Conv node 'a/b'".
      type: the name of the operator.
      version: the version of the operator that the model's operator set has.
      attributes: values by name.
      bodies: the graphs among the attributes as functions (`graphs.Body`), which may use the values around the node.
      outputs: for each output, whether it is used.
      opset: the versions of operator sets by domain.
    """

    __slots__ = ("attributes", "bodies", "node", "opset", "outputs", "type", "version")

    def __init__(
        self,
        node: str,
        type: str,
        version: int,
        attributes: Mapping[str, Any],
        bodies: Mapping[str, Any],
        outputs: tuple[bool, ...],
        opset: Mapping[str, int],
    ) -> None:
        self.node = node
        self.type = type
        self.version = version
        self.attributes = attributes
        self.bodies = bodies
        self.outputs = outputs
        self.opset = opset

    def __getitem__(self, name: str) -> Any:
        try:
            return self.attributes[name]
        except KeyError:
            raise InvalidArgumentError(f"the {self.node} lacks the attribute {name!r}") from None

    def get(self, name: str, default: Any = None) -> Any:
        """Returns an attribute, or `default` where the node does not have it."""
        return self.attributes.get(name, default)

    def static(self, x: Any, what: str) -> np.ndarray:
        """Returns the value of an input that must be known when the model is called.

        Raises:
          InvalidArgumentError: the value is known only when the graph runs.
        """
        value = constant_value(x)
        if value is None:
            raise InvalidArgumentError(
                f"the {self.node} needs the value of {what!r} before the graph runs: make it a constant, or "
                "call the model outside of graphs"
            )
        return value

    def ints(self, name: str, x: Any = None) -> list[int] | None:
        """Returns integers that are an attribute in some versions and an input in others.

        Args:
          name: the name of both.
          x: the input; None in versions without it.

        Returns:
          The integers, or None if the node has neither.
        """
        if x is not None:
            return [int(i) for i in self.static(x, name).reshape(-1)]
        found = self.get(name)
        return None if found is None else [int(i) for i in np.asarray(found).reshape(-1)]

    def rank(self, x: Tensor) -> int:
        """Returns the number of axes of a tensor.

        Raises:
          InvalidArgumentError: the number is known only when the graph runs.
        """
        if x.shape is None:
            raise InvalidArgumentError(
                f"the {self.node} needs an input of known rank: give the model's inputs their shapes"
            )
        return len(x.shape)

    def axis(self, x: Tensor, name: str = "axis") -> int:
        """Returns the attribute `axis`, counted from the front."""
        rank, axis = self.rank(x), int(self[name])
        if not -max(rank, 1) <= axis <= rank:
            raise InvalidArgumentError(f"the {self.node} has {name} {axis}, and its input has {rank} axes")
        return axis + rank if axis < 0 else axis


def operator(name: str, since: int = 1, domain: str = "", folds: bool = True) -> Callable[[F], F]:
    """Returns a decorator that adds a function to the table.

    Args:
      name: the operator's name.
      since: the first version of the operator set for which the function is valid.
      domain: the operator set.
      folds: whether a call on constants may be computed while a graph is traced.
    """

    def add(function: F) -> F:
        versions = _table.setdefault((domain, name), {})
        if since in versions:
            raise DuplicateError(f"the operator {name} of version {since} is in the table already")
        versions[since] = function
        if not folds:
            _not_folded.add((domain, name))
        return function

    return add


def folds(domain: str, name: str) -> bool:
    """Whether calls of an operator on constants may be computed during tracing."""
    return (domain, name) not in _not_folded


@functools.cache
def load_tables() -> None:
    """Imports the modules that fill the table."""
    for module in TABLES:
        importlib.import_module(f"headrace.onnx.{module}")


def find(domain: str, name: str, version: int) -> Operator | None:
    """Returns the function of an operator for a version of it, or None."""
    load_tables()
    versions = _table.get((domain, name), {})
    since = max((v for v in versions if v <= version), default=None)
    return None if since is None else versions[since]


def names() -> list[tuple[str, str]]:
    """Returns domain and name of all operators in the table, sorted."""
    load_tables()
    return sorted(_table)
