"""Code variants: one compilation for each set of input shapes (see `optimize.specialize` for the benefit).

Variants are made of steps, for the shapes of the feeds, and of fused regions, for the shapes of their inputs.

A set of shapes gets its code at its first occurrence and never later. So the results for some values do not depend, to
the last bit, on earlier runs. At most `thresholds.SHAPE_VARIANTS` sets get code of their own; later ones run the code
for any shapes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from headrace import dtypes, forking, shapes, thresholds
from headrace.memo import Memo

if TYPE_CHECKING:
    from headrace.ir.graph import Tensor
    from headrace.shapes import Shape


T = TypeVar("T")


class Variants(Generic[T]):
    """Variants by set of input shapes. Thread safe.

    Args:
      inputs: The inputs in the graph.
      make: Makes the variant for shapes, given by the positions of their inputs. It returns None if it fails; then no
        further variant is made.

    Attributes:
      open: The positions of the inputs whose static shape is not full.
      made: The variants, the newest last. No variant is made for a full memo, so none is dropped.
    """

    def __init__(self, inputs: Sequence[Tensor], make: Callable[[Mapping[int, Shape]], T | None]) -> None:
        self.open = tuple(
            i for i, t in enumerate(inputs) if not shapes.is_full(t.shape) and t.dtype.base not in dtypes.OBJECT
        )
        self.made: Memo[tuple[Shape, ...], T] = Memo("shape variants", thresholds.SHAPE_VARIANTS)
        self._make = make
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def find(self, given: Sequence[Any]) -> T | None:
        """The variant for these values; None if the code for any shapes must run."""
        key = tuple([given[i].shape for i in self.open])
        return self.made.get(key) or self._add(key)

    def _add(self, key: tuple[Shape, ...]) -> T | None:
        with self._lock:
            if key in self.made:  # another thread has made it
                return self.made.get(key)
            if not self.open or len(self.made) == self.made.limit:
                return None
            made = self._make(dict(zip(self.open, key, strict=True)))
            if made is None:
                self.open = ()
            else:
                self.made.put(key, made)
            return made
