"""Base class that refuses to copy or pickle tensors, operations and graphs.

These objects are compared by identity, so a copy would equal none of a program's objects.
"""

from __future__ import annotations

from typing import ClassVar, NoReturn


class Uncopyable:
    """Base class whose objects raise `TypeError` when they are copied or pickled.

    Attributes:
      _refusal: the start of the error's text ("a Tensor belongs to its graph and").
      _instead: the end of the error's text, with the alternative.
    """

    __slots__ = ()

    _refusal: ClassVar[str]
    _instead: ClassVar[str] = "use graph.as_graph_def()"

    def __copy__(self) -> NoReturn:
        raise TypeError(f"{self._refusal} cannot be copied; {self._instead}")

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__copy__()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self._refusal} cannot be pickled; {self._instead}")
