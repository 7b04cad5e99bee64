"""A record of the ops that run eagerly, and the gradient through them.

While a `Recording` is active in a context, it records each eager op with its inputs and outputs. For a gradient, the
ops between the sources and the targets are created again in a graph, in which all other values are constants. The
reverse mode of graphs differentiates this graph. So all gradient rules apply, and Python's own control flow is that of
the recorded run.

Source: the tape of TensorFlow's eager mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.api import scopes
from headrace.api.recorder import Recorder
from headrace.errors import UnimplementedError
from headrace.grad import sums
from headrace.grad.gradients import gradients
from headrace.grad.zeros import carries

if TYPE_CHECKING:
    from headrace.api.recorder import Entry
    from headrace.eager.tensor import EagerTensor
    from headrace.ir.graph import Tensor


class Recording(Recorder):
    """Recorder of eager ops with the gradient through them.

    Example:
      >>> import numpy as np
      >>> import headrace as hr
      >>> with Recording() as record:
      ...     x = hr.constant(3.0)
      ...     y = x * x if float(x) > 0 else x
      >>> record.gradient([y], [x], [np.float32(1)])
      [np.float32(6.0)]
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def record(self, entry: Entry) -> None:
        self.entries.append(entry)

    def gradient(self, ys: Sequence[EagerTensor], xs: Sequence[EagerTensor], dys: Sequence[Any]) -> list[Any]:
        """Computes the gradient of `ys` with respect to `xs`.

        Args:
          ys: the targets.
          xs: the sources.
          dys: the gradients of the targets, as arrays.

        Returns:
          An array for each source; None for a source without a path to a target.

        Raises:
          LookupError: an op on the path has no gradient.
          UnimplementedError: an op on the path works on a resource.
        """
        with scopes.Graph() as graph:
            known: dict[int, Tensor] = {}
            fed: dict[Tensor, Any] = {}

            def source(x: EagerTensor) -> Tensor:
                b = scopes.builder()
                t: Tensor = b.Placeholder(dtype=x.dtype.base, shape=x.shape)
                fed[t] = x.numpy()
                return t

            for x in xs:
                known[id(x)] = source(x)
            for entry in self.entries:
                self._replay(entry, known)
            ends = [(known[id(y)], dy) for y, dy in zip(ys, dys, strict=True) if id(y) in known and carries(y.dtype)]
            starts = [known[id(x)] for x in xs]
            grads: list[Any] = [None] * len(xs)
            if ends:
                given = []
                for t, dy in ends:
                    d: Tensor = scopes.builder().Placeholder(dtype=t.dtype.base, shape=dy.shape)
                    fed[d] = dy
                    given.append(d)
                grads = gradients([t for t, _ in ends], starts, given)
            wanted = [sums.dense(scopes.builder(), g) for g in grads if g is not None]
        if not wanted:
            return grads
        with scopes.runtime().session(graph=graph) as session:
            found = iter(session.run(wanted, fed))
        return [None if g is None else next(found) for g in grads]

    def _replay(self, entry: Entry, known: dict[int, Tensor]) -> None:
        """Creates the op in the current graph if it may depend on a source."""
        inputs = entry.inputs
        makes_objects = any(t.dtype.base is dtypes.variant for t in entry.outputs)
        if not (makes_objects or any(id(t) in known and carries(t.dtype) for t in inputs)):
            return
        if any(t.dtype.base is dtypes.resource for t in (*inputs, *entry.outputs)):
            raise UnimplementedError("the gradient of an op that ran eagerly on a resource is not supported")
        b = scopes.builder()

        def own(t: EagerTensor) -> Tensor:
            found = known.get(id(t))
            made: Tensor = b.const(t.numpy(), t.dtype.base) if found is None else found
            return made

        for old, new in zip(entry.outputs, entry.create(b, list(map(own, inputs))), strict=True):
            known[id(old)] = new
