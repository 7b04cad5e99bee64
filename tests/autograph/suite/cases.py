"""The case: one function of the suite with the arguments of its calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.autograph.suite import spaces


@dataclass(frozen=True, eq=False)
class Case:
    """A function and the arguments of several calls.

    Attributes:
      name: the name of the test.
      function: a function of plain Python. Its numbers and arrays become tensors; its other arguments stay as they are.
      calls: the arguments of each call; types and shapes are equal among the calls.
      uses_space: whether the first parameter is a space of array functions, which is not among the arguments.
      smooth: whether the gradient is compared with differences of values.
    """

    name: str
    function: Callable[..., Any]
    calls: tuple[tuple[Any, ...], ...]
    uses_space: bool = False
    smooth: bool = True

    def of_numpy(self) -> Callable[..., Any]:
        """The function for numbers and numpy arrays."""
        return functools.partial(self.function, spaces.NUMPY) if self.uses_space else self.function

    def of_tensors(self, converted: Callable[..., Any]) -> Callable[..., Any]:
        """The converted function, for tensors."""
        return functools.partial(converted, spaces.TENSORS) if self.uses_space else converted
