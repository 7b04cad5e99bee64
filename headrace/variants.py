"""Steps compiled for the shapes that they are fed (see `optimize.specialize` for what that is good for).

Each set of shapes has its own code, from the first run on that is fed it: never later, so what a step makes of what it
is fed does not depend, to the last bit, on what it was fed before. `MOST` sets have code of their own; a step that is
fed more of them than that is compiled once more, for any shapes, and that code runs what is new.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import dtypes, forking, shapes

if TYPE_CHECKING:
    from headrace.compile import Compiled
    from headrace.ir.graph import Tensor
    from headrace.optimize.base import Context
    from headrace.shapes import Shape

MOST: Final = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What compiling a step gave.

    Attributes:
      compiled: the step as one Python function; None: the token machine runs it.
      reasons: why it is not compiled, a line for each operation that stands against it.
      report: what the passes did before it was compiled.
    """

    compiled: Compiled | None = None
    reasons: tuple[str, ...] = ()
    report: Context | None = None


class Variants:
    """The code of one step. Thread safe.

    Args:
      feeds: what is fed, as it stands in the graph.
      make: compiles for shapes, by the position of the feed that has them.

    Attributes:
      open: the positions of the feeds whose shapes are not known before.
      made: what there is for each set of shapes, the newest last.
    """

    def __init__(self, feeds: Sequence[Tensor], make: Callable[[Mapping[int, Shape]], Outcome]) -> None:
        self.open = tuple(
            i for i, t in enumerate(feeds) if not shapes.is_full(t.shape) and t.dtype.base not in dtypes.OBJECT
        )
        self.made: dict[tuple[Shape, ...], Outcome] = {}
        self._code: dict[tuple[Shape, ...], Compiled] = {}
        self._make = make
        self._lock = threading.Lock()
        forking.follow(self)

    def _forked(self) -> None:
        """See `forking`."""
        self._lock = threading.Lock()

    def find(self, fed: Sequence[Any]) -> Compiled | None:
        """The code for what is fed; None: there is none, and the one for any shapes has to do."""
        key = tuple([fed[i].shape for i in self.open])
        return self._code.get(key) or self._add(key)

    def _add(self, key: tuple[Shape, ...]) -> Compiled | None:
        with self._lock:
            if len(self.made) < MOST and key not in self.made:
                outcome = self._make(dict(zip(self.open, key, strict=True)))
                if outcome.compiled is None:
                    self.open = ()
                else:
                    self.made[key], self._code[key] = outcome, outcome.compiled
            return self._code.get(key)
