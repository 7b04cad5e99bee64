"""Lowering of a whole graph for a file, with TensorFlow 1's and the user's names.

The primitive form of a step is run and discarded. A file is read by programs that feed and fetch by name. So here

* every operation keeps its name, even without consumers, and constants are not merged or moved;
* the results of conditionals and loops are "cond/Merge:0" and "while/Exit_1:0". A captured tensor of a loop has no
  Exit. If the graph's own tensors have such names (`Graph.shows_primitives`), an Identity gets the name;
* if they have names such as "cond:0", as in graphs that do not show primitives, an Identity of that name is added
  behind each structured operation and waits for all its effects. To run it has the same effects as to run `cond`
  itself. (In a graph that shows primitives, it is added if the operation has effects other than its results);
* frames have TensorFlow 1's names ("while/while_context");
* a `Case` becomes a chain of Switches by booleans, because `_SwitchN` is not an operation for files.

Operations in a branch or body that none of its results needs are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes
from headrace.ir.edit.editor import Editor
from headrace.ir.function import bodies, called
from headrace.ir.graph import FuncGraph
from headrace.ir.primitive_names import visible_name
from headrace.lower.lowering import Lowering, LoweringScope, Made, Shared

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class Whole(Lowering):
    """Lowering of one whole graph.

    Attributes:
      given: The user's graph.
    """

    def __init__(self, shared: Shared, given: Graph) -> None:
        super().__init__(shared)
        self.given = given
        self.graph.versions = given.versions
        self._tests: dict[tuple[Tensor, int], list[Tensor]] = {}
        self._copies: dict[tuple[Operation, str], Operation] = {}
        for op in given.operations:  # reserves the names of the user
            self.graph.unique_name(op.name)
            if "frame_name" in op.attrs:
                self.graph.unique_name(op.attrs["frame_name"])

    def name_of(self, op: Operation, place: LoweringScope) -> str:
        return op.name if op.graph is self.given else super().name_of(op, place)

    def is_read(self, t: Tensor) -> bool:
        # a reader of the file may fetch each loop variable, but not a captured tensor
        body = t.op.attrs.get("body")
        is_captured = isinstance(body, FuncGraph) and body.params[t.index] in body.captures.values()
        return not is_captured or super().is_read(t)

    def frame_name(self, name: str) -> str:
        return super().frame_name(f"{name}/while_context")

    def copy(
        self, place: LoweringScope, op: Operation, inputs: Sequence[Tensor | None], controls: Sequence[Operation]
    ) -> Operation:
        new = self._copies[op, place.prefix] = super().copy(place, op, inputs, controls)
        return new

    def finish(self) -> Graph:
        """Completes the graph and returns it."""
        self._colocate()
        self._add_functions()
        return self.graph

    def _colocate(self) -> None:
        """Rewrites the attributes `_class` to the new names, without operations that were omitted."""
        edit = Editor(self.graph)
        given = {new: (old, prefix) for (old, prefix), new in self._copies.items()}
        for op in self.graph.operations:
            if "_class" not in op.attrs:
                continue
            old, prefix = given.get(op, (None, ""))
            attrs = {k: v for k, v in op.attrs.items() if k != "_class"}
            beside = [self._beside(group, old, prefix) for group in op.attrs["_class"]] if old is not None else []
            if any(beside):
                attrs["_class"] = tuple(filter(None, beside))
            edit.set_attrs(op, attrs)

    def _beside(self, group: str, old: Operation, prefix: str) -> str:
        """An entry of the attribute `_class` of `old` for its copy; "" if none."""
        kind, mark, name = group.partition("@")
        if not mark:
            return group
        sibling = old.graph.find(name)
        new = self.graph.find(name) if sibling is None else self._copies.get((sibling, prefix))
        return f"{kind}@{new.name}" if new is not None else ""

    def _add_functions(self) -> None:
        """Adds the functions that the called functions call to the graph."""
        functions = self.graph.functions
        todo = list(functions.values())
        for graph in todo:
            for op, f in called(graph.operations):
                if f.name not in functions:
                    functions[f.name] = op.graph.function(f.name)
                    todo.append(functions[f.name])

    def constant(self, op: Operation, place: LoweringScope) -> Tensor:
        # the constant stays where it is used instead of entering the loop: TensorFlow infers shapes from constants, but
        # not through an Enter
        return self.copy(place, op, (), ()).outputs[0]

    def switch(
        self, place: LoweringScope, t: Tensor, selector: Tensor, sides: int, name: str, like: Operation
    ) -> Sequence[Tensor]:
        if selector.dtype.base is dtypes.bool_:
            return super().switch(place, t, selector, sides, name, like)
        attrs = {"T": t.dtype.base}
        if sides == 1:
            return self.emit(place, "Identity", [t], attrs, name, [selector.op], like).outputs
        out = []
        for is_it in self._tests_of(place, selector, sides, like):
            t, taken = self.emit(place, "Switch", [t, is_it], attrs, name, like=like).outputs
            out.append(taken)
        return [*out, t]

    def _tests_of(self, place: LoweringScope, selector: Tensor, sides: int, like: Operation) -> list[Tensor]:
        """Tests whether `selector` is 0, 1, ...; any other value means the last side."""
        key = (selector, sides)
        if key not in self._tests:
            tests = self._tests[key] = []
            for i in range(sides - 1):
                array = np.array(i, selector.dtype.base.numpy)
                attrs: dict[str, Any] = {"value": array, "dtype": selector.dtype.base}
                name = f"{place.prefix}{like.name}/is_{i}"
                number = self.emit(place, "Const", [], attrs, f"{name}/y", [selector.op], like, [()])
                attrs = {"T": selector.dtype.base}
                both = [selector, number.outputs[0]]
                tests.append(self.emit(place, "Equal", both, attrs, name, like=like, shapes=[()]).outputs[0])
        return self._tests[key]

    def structure(self, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope) -> Made:
        made, ends = super().structure(op, inputs, controls, place)
        if op.graph is not self.given or op.name in self.graph:  # a call of a recursive function stays under its name
            return made, ends
        visible = [visible_name(op.name, op.opdef.structured, t.index) for t in op.outputs]
        is_shown = op.graph.shows_primitives and op.name not in visible
        if is_shown:
            for name, t in zip(visible, made, strict=True):
                if name not in self.graph:
                    self._named(place, op, name, [t])
        does_more = any(graph.control_results for _, graph in bodies(op))
        if is_shown and not does_more:
            return made, ends
        waits = ends() if does_more or not made else ()
        behind = self._named(place, op, op.name, made, waits)
        if does_more:
            return list(behind.outputs), lambda: [behind]
        return made, ends

    def _named(
        self, place: LoweringScope, op: Operation, name: str, values: Sequence[Tensor], waits: Sequence[Operation] = ()
    ) -> Operation:
        """Adds an operation under the reserved `name` that forwards `values` after `waits`."""
        waits = self._gate(place, values, waits)
        types = tuple(t.dtype.base for t in values)
        attrs: dict[str, Any] = {} if not values else {"T": types[0] if len(values) == 1 else types}
        type = ("NoOp", "Identity")[len(values)] if len(values) < 2 else "IdentityN"
        new = self.graph.add_op(type, name, values, attrs, waits, op.device, op.source)
        for t, old in zip(new.outputs, values, strict=True):
            t.copy_static(old)
        place.gated.update(new.outputs)
        return new
