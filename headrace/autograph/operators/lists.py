"""Lists whose length only the graph knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.autograph.operators import journal, values
from headrace.dtypes import DType
from headrace.errors import AutographError
from headrace.records import record
from headrace.shapes import Shape


@record(frozen=True, slots=True)
class ListSpec:
    """Description of the elements of a tensor list.

    Attributes:
      dtype: their dtype.
      shape: a shape that covers theirs.
      weak: whether they are numbers of Python.
    """

    dtype: DType
    shape: Shape
    weak: bool = False


@record(frozen=True, slots=True)
class StructSpec:
    """Description of the elements of a list of structures, such as pairs.

    Attributes:
      template: one of the structures.
      specs: the descriptions of its leaves.
    """

    template: Any
    specs: tuple[ListSpec, ...]


Spec: TypeAlias = "ListSpec | StructSpec"


def list_spec(label: str, elements: Sequence[Any]) -> Spec | None:
    """Returns the description of elements, if a list of a graph can have them.

    An element may also be a list of a graph, for its elements.

    Raises:
      AutographError: the dtypes differ.
    """
    nested = [x for x in elements if isinstance(x, StructuredList) or (nest.is_nested(x) and x is not None)]
    if not nested:
        return _flat_spec(label, elements)
    if len(nested) < len(elements):
        return None
    first = nested[0]
    template = first.template if isinstance(first, StructuredList) else first
    rows: list[list[Any]] = []
    for x in nested:
        if isinstance(x, StructuredList):
            rows.append(list(x.lists))
        elif nest.mismatch(template, x) is None:
            rows.append(nest.flatten(x))
        else:
            return None
    columns = [_flat_spec(label, column) for column in zip(*rows, strict=True)]
    specs = tuple(c for c in columns if c is not None)
    return StructSpec(template, specs) if specs and len(specs) == len(columns) else None


def _flat_spec(label: str, elements: Sequence[Any]) -> ListSpec | None:
    found: ListSpec | None = None
    for x in elements:
        if isinstance(x, TensorList):
            one = x.spec
        elif values.is_tensor_like(x):
            one = _spec_of(x)
        else:
            return None
        wide = one if found is None else _joined(found, one)
        if wide is None:
            assert found is not None
            raise AutographError(
                f"the elements of the list '{label}' have the dtypes {found.dtype.name} and {one.dtype.name}, but in a "
                "graph a list whose length tensors decide has one dtype; cast the elements (hr.cast)"
            )
        found = wide
    return found


def _spec_of(x: Any) -> ListSpec:
    return ListSpec(values.dtype_of(x), values.shape_of(x), values.is_weak_value(x))


def _joined(first: ListSpec, second: ListSpec) -> ListSpec | None:
    """Returns a description that covers both; None if the dtypes differ."""
    found = values.joined(first.dtype, first.weak, second.dtype, second.weak)
    return found and ListSpec(found[0], shapes.join(first.shape, second.shape), found[1])


def made(items: Sequence[Any], spec: Spec) -> TensorList:
    """Returns a list of a graph with the elements of a Python list."""
    if isinstance(spec, ListSpec):
        return TensorList.of(items, spec)
    rows = [nest.flatten(x) for x in items]
    lists = [TensorList.of([row[k] for row in rows], one) for k, one in enumerate(spec.specs)]
    return StructuredList(lists, spec)


def widened(spec: Spec, part: ListSpec, wide: ListSpec) -> Spec | None:
    """Returns a description with one wider part; None without the part."""
    if spec is part:
        return wide
    if isinstance(spec, ListSpec) or not any(one is part for one in spec.specs):
        return None
    return StructSpec(spec.template, tuple(wide if one is part else one for one in spec.specs))


_OTHER_METHODS: Final = frozenset(("count", "index", "insert", "remove", "reverse", "sort"))


class TensorList:
    """List of a graph: elements of one dtype and a length known at run time.

    Converted code makes one of a Python list that grows or shrinks in a loop or conditional that a tensor decides. It
    has the methods of lists that change the end, and element access.

    Attributes:
      flow: the tensor list.
      spec: the description of the elements.
    """

    def __init__(self, flow: Any, spec: ListSpec) -> None:
        self.flow = flow
        self.spec = spec

    @classmethod
    def of(cls, items: Sequence[Any], spec: ListSpec) -> TensorList:
        """Returns a tensor list with the elements of a Python list."""
        b = scopes.builder(*items)
        flow = b.EmptyTensorList(_shape(b, spec), -1, element_dtype=spec.dtype)
        for x in items:
            flow = b.TensorListPushBack(flow, values.converted(x, spec.dtype), element_dtype=spec.dtype)
        return cls(flow, spec)

    def __repr__(self) -> str:
        return f"<TensorList of {self.spec.dtype.name} {shapes.show(self.spec.shape)}>"

    def __getattr__(self, name: str) -> Any:
        if name in _OTHER_METHODS:
            raise AutographError(
                f"{name}() of a list whose length tensors decide is not converted; such a list has append, extend, "
                "pop, clear, copy, len() and elements. Stack it (hr.stack) and use operations of tensors"
            )
        raise AttributeError(f"'{type(self).__name__}' object has no attribute {name!r}")

    def _set(self, flow: Any) -> None:
        journal.touch(self, "flow")
        self.flow = flow

    def _element(self, x: Any) -> Any:
        if not values.is_tensor_like(x):
            x = scopes.builder(self.flow).tensor(x, self.spec.dtype)
        self._cover(_spec_of(x), x)
        return values.converted(x, self.spec.dtype)

    def _cover(self, one: ListSpec, x: Any) -> None:
        """Checks that the description covers that of elements to add.

        Raises:
          AutographError: the dtypes differ.
          WiderElement: a wider description does.
        """
        wide = _joined(self.spec, one)
        if wide is None:
            raise AutographError(
                f"a list of {self.spec.dtype.name} got {values.described(x)}; in a graph a list has elements of one "
                "dtype, so cast it (hr.cast)"
            )
        if wide != self.spec:
            raise WiderElement(self, wide)

    def append(self, x: Any) -> None:
        """Adds an element at the end."""
        x = self._element(x)
        self._set(scopes.builder(self.flow).TensorListPushBack(self.flow, x, element_dtype=self.spec.dtype))

    def extend(self, items: Any) -> None:
        """Adds the elements of a list or the rows of a tensor."""
        if isinstance(items, (list, tuple)):
            for x in items:
                self.append(x)
            return
        b = scopes.builder(self.flow, items)
        if isinstance(items, TensorList):
            one = items.spec
        else:
            one = _spec_of(items)
            one = ListSpec(one.dtype, None if one.shape is None else one.shape[1:], one.weak)
        self._cover(one, items)
        if isinstance(items, TensorList) and one.dtype is self.spec.dtype:
            flow = items.flow
        else:
            rows = values.converted(items.rows() if isinstance(items, TensorList) else items, self.spec.dtype)
            flow = b.TensorListFromTensor(rows, _shape(b, self.spec), element_dtype=self.spec.dtype)
        self._set(b.TensorListConcatLists(self.flow, flow, element_dtype=self.spec.dtype))

    def pop(self, index: Any = -1) -> Any:
        """Removes and returns the last element.

        Raises:
          AutographError: `index` is not -1.
        """
        if values.is_symbolic(index) or index != -1:
            raise AutographError("pop() of a list in a graph takes the last element; read another one by its index")
        b = scopes.builder(self.flow)
        flow, x = b.TensorListPopBack(self.flow, _shape(b, self.spec), element_dtype=self.spec.dtype)
        self._set(flow)
        return _refined(x, self.spec)

    def clear(self) -> None:
        """Removes all elements."""
        self._set(TensorList.of([], self.spec).flow)

    def copy(self) -> TensorList:
        """Returns a list with the same elements."""
        return TensorList(self.flow, self.spec)

    def described(self) -> Spec:
        """Returns the description of the elements."""
        return self.spec

    def parts(self) -> list[TensorList]:
        """Returns the lists of the leaves of the elements: this one."""
        return [self]

    def length(self) -> Any:
        """Returns the number of elements, an int32 scalar."""
        return scopes.builder(self.flow).TensorListLength(self.flow)

    def _index(self, i: Any) -> Any:
        b = scopes.builder(self.flow, i)
        if values.is_symbolic(i):
            i = i if i.dtype.base is dtypes.int32 else b.Cast(i, DstT=dtypes.int32)
            return b.SelectV2(b.Less(i, 0), b.AddV2(i, self.length()), i)
        i = int(i)
        return i if i >= 0 else b.AddV2(self.length(), i)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, (slice, tuple)):
            return self.stack()[i]
        b = scopes.builder(self.flow)
        got = b.TensorListGetItem(self.flow, self._index(i), _shape(b, self.spec), element_dtype=self.spec.dtype)
        return _refined(got, self.spec)

    def __setitem__(self, i: Any, x: Any) -> None:
        b = scopes.builder(self.flow)
        x = self._element(x)
        self._set(b.TensorListSetItem(self.flow, self._index(i), x, element_dtype=self.spec.dtype))

    def __add__(self, other: Any) -> TensorList:
        out = self.copy()
        out.extend(other)
        return out

    def __iadd__(self, other: Any) -> TensorList:
        self.extend(other)
        return self

    def stack(self) -> Any:
        """Returns the elements as rows of one tensor, which may have no rows.

        Floats of Python become float32, as they do in a tensor of them.
        """
        rows = self.rows()
        narrows = self.spec.weak and self.spec.dtype is dtypes.float64
        return scopes.builder(rows).Cast(rows, DstT=dtypes.float32) if narrows else rows

    def rows(self) -> Any:
        """Returns the elements as rows of one tensor of their dtype."""
        b = scopes.builder(self.flow)
        out = b.TensorListStack(self.flow, _shape(b, self.spec), element_dtype=self.spec.dtype, num_elements=-1)
        if self.spec.shape is not None and values.is_symbolic(out):
            out.refine((None, *self.spec.shape))
        return out

    def as_tensor(self, b: Any) -> Any:
        """Returns the stacked elements for the builder `b`."""
        return b.own(self.stack())

    @property
    def dtype(self) -> DType:
        """Dtype of the elements."""
        return self.spec.dtype


class StructuredList(TensorList):
    """List of a graph whose elements are structures: a list for each leaf.

    Attributes:
      lists: the lists.
      template: a structure like the elements.
    """

    def __init__(self, lists: Sequence[TensorList], spec: StructSpec) -> None:
        super().__init__(lists[0].flow, lists[0].spec)
        self.lists = tuple(lists)
        self.template = spec.template
        self._spec = spec

    def parts(self) -> list[TensorList]:
        """Returns the lists of the leaves of the elements."""
        return list(self.lists)

    def described(self) -> Spec:
        """Returns the description of the elements."""
        return self._spec

    def append(self, x: Any) -> None:
        """Adds a structure at the end.

        Raises:
          AutographError: it is unlike the elements.
        """
        found = nest.mismatch(self.template, x)
        if found is not None:
            raise AutographError(f"the elements of a list in a graph have one structure; got different ones{found}")
        for one, leaf in zip(self.lists, nest.flatten(x), strict=True):
            one.append(leaf)

    def extend(self, items: Any) -> None:
        """Adds the structures of a list."""
        if isinstance(items, StructuredList):
            for one, other in zip(self.lists, items.lists, strict=True):
                one.extend(other)
            return
        for x in items:
            self.append(x)

    def pop(self, index: Any = -1) -> Any:
        """Removes and returns the last structure."""
        return nest.pack(self.template, [one.pop(index) for one in self.lists])

    def clear(self) -> None:
        """Removes all elements."""
        for one in self.lists:
            one.clear()

    def copy(self) -> TensorList:
        """Returns a list with the same elements."""
        return StructuredList([one.copy() for one in self.lists], self._spec)

    def length(self) -> Any:
        """Returns the number of elements, an int32 scalar."""
        return self.lists[0].length()

    def __getitem__(self, i: Any) -> Any:
        return nest.pack(self.template, [one[i] for one in self.lists])

    def __setitem__(self, i: Any, x: Any) -> None:
        for one, leaf in zip(self.lists, nest.flatten(x), strict=True):
            one[i] = leaf

    def stack(self) -> Any:
        """Returns the elements, of equal leaves, as rows of one tensor."""
        return scopes.builder(self.lists[0].flow).Pack([one.stack() for one in self.lists], axis=1)


class WiderElement(AutographError):
    """An element has a shape or a dtype that its list does not cover.

    The loop is traced again with a wider list.
    """

    def __init__(self, of: TensorList, wide: ListSpec) -> None:
        super().__init__(
            f"a list of elements of dtype {of.spec.dtype.name} and shape {shapes.show(of.spec.shape)} gets one of "
            f"dtype {wide.dtype.name} and shape {shapes.show(wide.shape)}; let it have an element of this kind before"
        )
        self.of = of
        self.wide = wide


def decider(x: Any) -> Any:
    """Returns the value that decides a condition: of a list of the graph, its length."""
    return x.length() if isinstance(x, TensorList) else x


def _shape(b: Any, spec: ListSpec) -> Any:
    shape = spec.shape
    value = -1 if shape is None else [-1 if d is None else d for d in shape]
    return b.const(np.array(value, np.int32), name="element_shape")


def _refined(x: Any, spec: ListSpec) -> Any:
    if spec.shape is not None and values.is_symbolic(x):
        x.refine(spec.shape)
    return values.weak(x) if spec.weak and values.is_symbolic(x) else x
