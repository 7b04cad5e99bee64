"""What is compiled anew for each set of shapes that it is given (see `optimize.specialize` for what that is good for):
a step for those of what is fed, a cluster for those of what enters it.

Each set of shapes has its own code, from the first time on that it comes: never later, so what is made of some values
does not depend, to the last bit, on what came before. `MOST` sets have code of their own; what is new after that is run
by code for any shapes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace import dtypes, forking, shapes

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor
    from headrace.shapes import Shape

MOST: Final = 32

T = TypeVar("T")


class Variants(Generic[T]):
    """What there is for each set of shapes. Thread safe.

    Args:
      inputs: what is given, as it stands in the graph.
      make: makes it for shapes, by the position of the input that has them; None: it cannot be made, for no shapes.

    Attributes:
      open: the positions of the inputs whose shapes are not known before.
      made: what there is, the newest last.
    """

    def __init__(self, inputs: Sequence[Tensor], make: Callable[[Mapping[int, Shape]], T | None]) -> None:
        self.open = tuple(
            i for i, t in enumerate(inputs) if not shapes.is_full(t.shape) and t.dtype.base not in dtypes.OBJECT
        )
        self.made: dict[tuple[Shape, ...], T] = {}
        self._make = make
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`."""
        self._lock = threading.Lock()

    def find(self, given: Sequence[Any]) -> T | None:
        """What there is for these values; None: nothing, and what is for any shapes has to do."""
        key = tuple([given[i].shape for i in self.open])
        return self.made.get(key) or self._add(key)

    def _add(self, key: tuple[Shape, ...]) -> T | None:
        with self._lock:
            if len(self.made) < MOST and key not in self.made:
                made = self._make(dict(zip(self.open, key, strict=True)))
                if made is None:
                    self.open = ()
                else:
                    self.made[key] = made
            return self.made.get(key)
