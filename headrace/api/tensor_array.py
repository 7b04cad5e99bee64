"""`TensorArray`: an array of tensors that a loop reads or writes.

The array is a value: `write` returns a new array and leaves the old one unchanged. They share storage, so this costs
nothing. The array contains a tensor list (`ops.tensor_list`), the *flow*, which loops and branches carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.api.grouping import no_op
from headrace.dtypes import DType
from headrace.errors import ShapeError, SignatureError
from headrace.ir import tensor_type
from headrace.ir.builder import Builder
from headrace.ir.graph import Operation, Tensor
from headrace.ir.infer import constant_value
from headrace.ir.symbolic import seen
from headrace.shapes import Shape


class TensorArray(nest.Composite):
    """Array of tensors of one dtype, which are written and read by index.

    Args:
      dtype: the dtype of the elements.
      size: the number of elements, an int32 scalar. It can be omitted if `dynamic_size`.
      dynamic_size: whether a write behind the end makes the array longer.
      clear_after_read: ignored; an argument of TensorFlow. An element can be read any number of times.
      tensor_array_name: ignored; an argument of TensorFlow.
      handle: must be None; an argument of TensorFlow.
      flow: the list of an existing array, in place of a new one.
      infer_shape: whether all elements have the same static shape, which writes check and reads return.
      element_shape: the static shape of the elements, if known.
      colocate_with_first_write_call: ignored; an argument of TensorFlow.
      name: the name of the scope.

    Raises:
      ValueError: neither `size` nor `flow` is given, and the array is not dynamic.

    Source: TensorFlow's `tf.TensorArray`, in the form that TensorFlow 2 gives it.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     ta = hr.TensorArray(hr.int32, size=3)
      ...     _, ta = hr.while_loop(lambda i, _: i < 3, lambda i, ta: (i + 1, ta.write(i, i * i)), (0, ta))
      ...     squares = ta.stack()
      >>> hr.Session(graph=g).run(squares)
      array([0, 1, 4], dtype=int32)
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool | None = None,
        clear_after_read: bool | None = None,
        tensor_array_name: str | None = None,
        handle: None = None,
        flow: Any = None,
        infer_shape: bool = True,
        element_shape: Any = None,
        colocate_with_first_write_call: bool = True,
        name: str | None = None,
    ) -> None:
        if handle is not None:
            raise ValueError(f"'handle' must be None: this TensorArray has none, only a flow; got {handle!r}")
        if flow is not None and size is not None:
            raise ValueError("give either 'flow', an existing list, or 'size', not both")
        self._dtype = dtypes.as_dtype(dtype)
        self._dynamic_size = bool(dynamic_size)
        self._infer_shape = infer_shape
        self._element_shape = shapes.as_shape(element_shape)
        self._size: int | None = None
        self._flow: Any = flow
        if flow is not None:
            return
        if size is None:
            if not self._dynamic_size:
                raise ValueError("a TensorArray needs its 'size' (or dynamic_size=True, or an existing 'flow')")
            size = 0
        with scopes.name_scope(name, "TensorArray", [size]):
            b = scopes.builder(size)
            size = b.tensor(size, dtypes.int32, name="size")
            if not self._dynamic_size:
                self._size = _known(size)
            shape = self._shape_tensor(b)
            flow = b.TensorListReserve(shape, size, element_dtype=self._dtype, name="TensorListReserve")
            self._flow = self._made(b, flow, clear_after_read, tensor_array_name)

    # *** nest.Composite: loops and branches carry it ***

    def _flatten(self) -> list[Any]:
        return [self._flow]

    def _unflatten(self, parts: Sequence[Any]) -> TensorArray:
        return self._with(parts[0])

    def _key(self) -> str:
        return f"dtype {self._dtype.name}"

    def _merged(self, other: TensorArray) -> TensorArray:
        """Returns an array with the common static information of two states of the same array."""
        out = self._with(self._flow)
        if shapes.compatible(self._element_shape, other._element_shape):
            out._element_shape = shapes.merge(self._element_shape, other._element_shape)
        else:
            out._element_shape = shapes.join(self._element_shape, other._element_shape)
        out._size = self._size if self._size == other._size else None
        return out

    def _with(self, flow: Any, element_shape: Shape = None) -> TensorArray:
        out = object.__new__(type(self))
        out._dtype = self._dtype
        out._dynamic_size = self._dynamic_size
        out._infer_shape = self._infer_shape
        out._element_shape = self._element_shape if element_shape is None else element_shape
        out._size = self._size
        out._flow = flow
        return out

    # *** static information ***

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self._dtype

    @property
    def flow(self) -> Any:
        """Tensor list (dtype variant) that contains the elements."""
        return self._flow

    @property
    def handle(self) -> None:
        """None, for compatibility with TensorFlow's arrays."""
        return None

    @property
    def element_shape(self) -> Any:
        """Static shape of the elements."""
        return seen(self._element_shape, self._flow)

    @property
    def dynamic_size(self) -> bool:
        """Whether writes make the array longer."""
        return self._dynamic_size

    def __repr__(self) -> str:
        return f"<TensorArray dtype={self._dtype.name} element_shape={shapes.show(self._element_shape)}>"

    def size(self, name: str | None = None) -> tensor_type.Tensor:
        """Returns the number of elements, an int32 scalar."""
        return scopes.builder(self._flow).TensorListLength(self._flow, name=name or "TensorArraySize")

    # *** one element ***

    def read(self, index: Any, name: str | None = None) -> tensor_type.Tensor:
        """Returns the element at `index`; zeros for an unwritten element of known shape.

        Raises (when it runs):
          InvalidArgumentError: there is no element with that index.
        """
        with scopes.name_scope(name, "TensorArrayV2Read", [self._flow, index]):
            b = scopes.builder(self._flow, index)
            index, shape = self._index(b, index), self._shape_tensor(b)
            b = self._reading(b, index)
            return b.TensorListGetItem(self._flow, index, shape, element_dtype=self._dtype)

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Returns an array with `value` at `index`. This array does not change.

        Raises:
          SignatureError: the value has another dtype.
          ShapeError: its static shape differs from that of the elements.
        """
        with scopes.name_scope(name, "TensorArrayV2Write", [self._flow, index, value]):
            b = scopes.builder(self._flow, index, value)
            value = self._element(b, value)
            element_shape = self._checked(value.shape, "write", value)
            index = self._index(b, index)
            b = self._writing(b, index)
            flow = b.TensorListSetItem(self._flow, index, value, resize_if_index_out_of_bounds=self._dynamic_size)
            return self._with(flow, element_shape)

    # *** all elements ***

    def stack(self, name: str | None = None) -> tensor_type.Tensor:
        """Returns all elements as the rows of one tensor."""
        with scopes.name_scope(name, "TensorArrayV2Stack", [self._flow]):
            b = scopes.builder(self._flow)
            n = -1 if self._size is None or self._dynamic_size else self._size  # a write may have made it longer
            shape = self._shape_tensor(b)
            b = self._reading(b)
            return b.TensorListStack(self._flow, shape, element_dtype=self._dtype, num_elements=n)

    def gather(self, indices: Any, name: str | None = None) -> tensor_type.Tensor:
        """Returns the elements at `indices`, an int32 vector, as the rows of one tensor."""
        with scopes.name_scope(name, "TensorArrayV2Gather", [self._flow, indices]):
            b = scopes.builder(self._flow, indices)
            indices, shape = b.tensor(indices, dtypes.int32, name="indices"), self._shape_tensor(b)
            b = self._reading(b, indices)
            return b.TensorListGather(self._flow, indices, shape, element_dtype=self._dtype)

    def concat(self, name: str | None = None) -> tensor_type.Tensor:
        """Returns all elements, concatenated along their first dimension.

        The elements may differ in this dimension only.
        """
        with scopes.name_scope(name, "TensorArrayV2Concat", [self._flow]):
            b = scopes.builder(self._flow)
            shape = None if self._element_shape is None else (None, *self._element_shape[1:])
            shape, leading = _shape_tensor(b, shape), b.const(np.zeros(0, np.int64))
            b = self._reading(b)
            out, _ = b.TensorListConcatV2(self._flow, shape, leading, element_dtype=self._dtype)
            return out

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Returns an array of the rows of `value`, which replace all elements."""
        with scopes.name_scope(name, "TensorArrayUnstack", [value, self._flow]):
            b = scopes.builder(value, self._flow)
            value = self._element(b, value)
            shape = None if value.shape is None else tuple(value.shape[1:])
            element_shape = self._checked(shape, "unstack", value)
            flow = b.TensorListFromTensor(value, _shape_tensor(b, shape), element_dtype=self._dtype)
            out = self._with(self._refilled(b, flow), element_shape)
            rows = None if value.shape is None else value.shape[0]
            out._size = self._size if rows is None else rows
            return out

    def scatter(self, indices: Any, value: Any, name: str | None = None) -> TensorArray:
        """Returns an array with the rows of `value` at `indices`, an int32 vector."""
        with scopes.name_scope(name, "TensorArrayScatter", [value, indices, self._flow]):
            b = scopes.builder(value, indices, self._flow)
            value = self._element(b, value)
            shape = None if value.shape is None else tuple(value.shape[1:])
            element_shape = self._checked(shape, "scatter", value)
            indices = b.tensor(indices, dtypes.int32, name="indices")
            b = self._writing(b, indices)
            flow = b.TensorListScatterIntoExistingList(self._flow, value, indices, element_dtype=self._dtype)
            out = self._with(flow, element_shape)
            out._size = None
            return out

    def split(self, value: Any, lengths: Any, name: str | None = None) -> TensorArray:
        """Returns an array of consecutive pieces of `value` along its first dimension.

        Args:
          value: the tensor to split.
          lengths: the lengths of the pieces.
          name: the name of the scope.

        Returns:
          The array.
        """
        with scopes.name_scope(name, "TensorArraySplit", [value, lengths, self._flow]):
            b = scopes.builder(value, lengths, self._flow)
            value = self._element(b, value)
            lengths = _as_int64(b, lengths)
            known = constant_value(lengths) if isinstance(lengths, Tensor) else np.asarray(lengths)
            shape = None
            if value.shape is not None and len(value.shape):
                same = known is not None and known.size > 0 and bool(np.all(known == known.flat[0]))
                shape = (int(known.flat[0]) if same and known is not None else None, *value.shape[1:])
            element_shape = self._checked(shape, "split", value)
            flow = b.TensorListSplit(value, _shape_tensor(b, shape and (None, *shape[1:])), lengths)
            out = self._with(self._refilled(b, flow), element_shape)
            out._size = None if known is None else known.size
            return out

    # *** the rest ***

    def identity(self) -> TensorArray:
        """Returns the same array behind an Identity, which control dependencies can delay."""
        return self._with(scopes.builder(self._flow).Identity(self._flow))

    def grad(self, source: Any, flow: Any = None, name: str | None = None) -> TensorArray:
        """Raises an error, as in TensorFlow 2: gradients flow through the array automatically.

        Raises:
          NotImplementedError: always.
        """
        raise NotImplementedError("TensorArray.grad is not needed: gradients go through an array by themselves")

    def close(self, name: str | None = None) -> Operation | None:
        """Does nothing: an array's storage is freed with its last reference."""
        return no_op(name)

    # *** hooks of `headrace.v1`, whose array is one object with lists as its versions ***

    def _made(self, b: Any, flow: Any, clear_after_read: bool | None, name: str | None) -> Any:
        """Returns the list of a new array."""
        return flow

    def _refilled(self, b: Any, flow: Any) -> Any:
        """Returns the list of this array after its replacement by the new list `flow`."""
        return flow

    def _reading(self, b: Any, indices: Any = None) -> Any:
        """Returns a builder for a read of the elements at `indices`; None: all elements."""
        return b

    def _writing(self, b: Any, indices: Any) -> Any:
        """Returns a builder for a write of the elements at `indices`."""
        return b

    # *** within ***

    def _shape_tensor(self, b: Any) -> Any:
        return _shape_tensor(b, self._element_shape)

    def _index(self, b: Any, index: Any) -> Any:
        if getattr(index, "dtype", None) == dtypes.int64:
            return b.Cast(b.tensor(index), DstT=dtypes.int32)
        return b.tensor(index, dtypes.int32, name="index")

    def _element(self, b: Any, value: Any) -> Any:
        """Returns `value` as a tensor of the array's dtype."""
        try:
            return b.tensor(value, self._dtype, name="value")
        except TypeError as e:
            raise SignatureError(
                f"TensorArray dtype is {self._dtype.name}, but what is put into it is not: {e}, or make "
                "the array of its dtype"
            ) from e

    def _checked(self, shape: Shape, verb: str, value: Any) -> Shape:
        """Returns the static shape of the elements after one of the given shape is added.

        Raises:
          ShapeError: the shape contradicts that of the elements.
        """
        if shape is not None:
            shape = tuple(shape)
        if not shapes.compatible(shape, self._element_shape):
            what = f"'{value.name}'" if isinstance(value, Tensor) else "the value"
            raise ShapeError(
                f"Inconsistent shapes: saw {shapes.show(shape)} but expected {shapes.show(self._element_shape)} in "
                f"TensorArray.{verb} of {what}. With infer_shape=False the elements may have different shapes"
            )
        return shapes.merge(shape, self._element_shape) if self._infer_shape else self._element_shape


def _known(t: Any) -> int | None:
    value = constant_value(t) if isinstance(t, Tensor) else np.asarray(t)
    return None if value is None else int(value)


def _shape_tensor(b: Any, shape: Shape) -> Any:
    value = -1 if shape is None else [-1 if d is None else d for d in shape]
    return b.const(np.array(value, np.int32), name="element_shape")


def _as_int64(b: Any, lengths: Any) -> Any:
    if isinstance(b, Builder) and not isinstance(lengths, Tensor):
        lengths = b.tensor(lengths)
    if getattr(lengths, "dtype", None) == dtypes.int64:
        return lengths
    return b.Cast(b.tensor(lengths), DstT=dtypes.int64)
