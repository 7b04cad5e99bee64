"""TensorFlow 1's TensorArray: in the default graph, with elements that are written once."""

from __future__ import annotations

from typing import Any

from headrace.api import tensor_array
from headrace.ir.builder import Builder
from headrace.v1.graph import in_default_graph


class TensorArray(tensor_array.TensorArray):
    """Array of tensors of one dtype. See `headrace.TensorArray`.

    As in TensorFlow 1, all that `write`, `unstack` and the like return is the same array. When the step runs, each
    element may be written once, and not after it was read. `read`, `gather`, `stack` and `concat` clear the elements
    that they return, unless the array is made with `clear_after_read=False`. (Of an array in the function of a
    `py_function`, nothing is checked.)

    Raises (when it runs):
      InvalidArgumentError: an element is written twice, written after it was read, or read after it was cleared.

    Source: TensorFlow's `tf.TensorArray`.

    Example:
      >>> import headrace.v1 as tf
      >>> array = tf.TensorArray(tf.float32, size=2).unstack([1.0, 2.0])
      >>> both = [array.read(0), array.read(0)]
      >>> tf.Session().run(both)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      headrace.errors.InvalidArgumentError: ...Could not read index 0 twice because it was cleared after a previous ...
    """

    __init__ = in_default_graph(tensor_array.TensorArray.__init__)

    def _made(self, b: Any, flow: Any, clear_after_read: bool | None, name: str | None) -> Any:
        if not isinstance(b, Builder):
            return flow
        attrs = {"tensor_array_name": name or "", "clear_after_read": clear_after_read is not False}
        return b.make("_TensorArrayTrack", (flow,), attrs, "Track")

    def _refilled(self, b: Any, flow: Any) -> Any:
        return b.make("_TensorArrayRefill", (flow, self._flow), {}, "Refill") if isinstance(b, Builder) else flow

    def _reading(self, b: Any, indices: Any = None) -> Any:
        return self._marked(b, "Read", indices)

    def _writing(self, b: Any, indices: Any) -> Any:
        return self._marked(b, "Written", indices)

    def _marked(self, b: Any, how: str, indices: Any) -> Any:
        if not isinstance(b, Builder):
            return b
        at = b.const(0) if indices is None else indices
        return b.after(b.make(f"_TensorArrayMark{how}", (self._flow, at), {"all": indices is None}, f"Mark{how}"))
