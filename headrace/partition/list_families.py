"""Families of tensor lists, which keep their elements in one place.

An element of a list may be read from each list that an operation makes of it, and each loop variable, parameter and
result that the list is passed to. Such lists form a *family*. An element that is a list belongs to the family of the
list that contains it. So all arrays in the lists of a family are on the host, or all are in the memory of a device.

The elements of a family can be on a device if all of its operations are known to leave them there: operations with a
role on lists, and other pure operations whose kernels compute in any namespace. The lists of other families, such as
those that are fetched or put into a queue, have elements on the host.

In the token machine, all elements are on the host. So `with_lists_on_host` places the operations on lists there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace import dtypes
from headrace.disjoint_sets import DisjointSets
from headrace.ir.device import DeviceSpec
from headrace.ir.function import nested, owned, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.kernel import CPU, has_namespace, keeps_elements

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.ir.opdef import ArgSpec


class ListFamilies:
    """The families of the lists of a structured graph.

    The elements are on the host at first.

    Args:
      graph: The graph. Its structured operations own their graphs.
    """

    def __init__(self, graph: Graph) -> None:
        self._sets: DisjointSets[Tensor] = DisjointSets()
        self._there: set[Tensor] = set()  # roots of the families on the device
        self._elements: list[Tensor] = []  # those that operations read
        held: list[Tensor] = []  # lists whose elements stay on the host
        self._connect(graph, held)
        for _, inner in nested(graph.operations):
            self._connect(inner, held)
        self._held = {self._sets.root(t) for t in held}

    def is_there(self, t: Tensor) -> bool:
        """Whether the elements of a list are on the device."""
        return self._sets.root(t) in self._there

    def move(self, t: Tensor) -> None:
        """Moves the family of a list to the device, if its elements can be there."""
        root = self._sets.root(t)
        if root not in self._held:
            self._there.add(root)

    @property
    def moved(self) -> int:
        """The number of families on the device."""
        return len(self._there)

    @property
    def read(self) -> Collection[tuple[Tensor, Sequence[Tensor]]]:
        """A list of each family that can still move, and the elements that operations read."""
        found: dict[Tensor, list[Tensor]] = {}
        for t in self._elements:
            root = self._sets.root(t.op.inputs[0])
            if root not in self._held and root not in self._there:
                found.setdefault(root, []).append(t)
        return found.items()

    def _connect(self, graph: Graph, held: list[Tensor]) -> None:
        for op in graph.operations:
            kind = op.opdef.structured
            if kind:
                self._pass(op)
                continue
            lists = [t for t in (*op.inputs, *op.outputs) if is_list(t)]
            for t in lists:
                self._sets.join(lists[0], t)
            if lists and not keeps_elements(op) and not (op.type == "_Arg" and isinstance(graph, FuncGraph)):
                held += lists
            if lists:
                self._elements += [op.outputs[i] for i in element_outputs(op) if not is_list(op.outputs[i])]

    def _pass(self, op: Operation) -> None:
        """Joins the lists that an operation passes to its graphs, and gets from them."""
        offset = 0 if op.opdef.structured == "While" else param_offset(op)
        for g in owned(op):
            self._pair(op.inputs[offset:], g.params)
            if op.opdef.structured != "While" or g is op.attrs["body"]:
                self._pair(g.results, op.outputs)
        if op.opdef.structured == "While":
            self._pair(op.inputs, op.outputs)

    def _pair(self, some: Sequence[Tensor], others: Sequence[Tensor]) -> None:
        for a, b in zip(some, others, strict=True):
            if is_list(a):
                self._sets.join(a, b)


def with_lists_on_host(ops: Iterable[Operation], of: Mapping[Operation, str]) -> dict[Operation, str]:
    """The devices of operations, with those on lists on the host.

    The host is the first CPU of the process of a device. In a function with a frame of its own all operations stay on
    its device, which computes those on lists on copies.
    """
    out = dict(of)
    for op in ops:
        spec = DeviceSpec.from_string(of[op])
        is_there = has_namespace(spec.type or CPU) and any(map(is_list, (*op.inputs, *op.outputs)))
        if is_there and (op.opdef.primitive or keeps_elements(op)):
            out[op] = str(dataclasses.replace(spec, type=CPU, index=0))
    return out


def is_list(t: Tensor) -> bool:
    """Whether the value of a tensor may be a list."""
    return t.dtype.base is dtypes.variant


def element_inputs(op: Operation) -> Sequence[int]:
    """The positions of inputs that are put into the list that output 0 is."""
    return _of_element_dtype(op, op.opdef.ins) if op.outputs and is_list(op.outputs[0]) else ()


def element_outputs(op: Operation) -> Sequence[int]:
    """The positions of outputs that are made of elements of a list."""
    return _of_element_dtype(op, op.opdef.outs) if op.inputs and is_list(op.inputs[0]) else ()


def _of_element_dtype(op: Operation, args: Sequence[ArgSpec]) -> Sequence[int]:
    if "element_dtype" not in op.attrs:
        return ()
    return [i for i, a in enumerate(args) if a.type_attr == "element_dtype"]
