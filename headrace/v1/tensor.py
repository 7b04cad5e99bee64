"""TensorFlow 1's tensors, whose static shape is a `TensorShape`.

`headrace` itself reads `shape` as a plain tuple, also of the tensors of a `headrace.v1` graph: functions of both build
on the same modules. So the property depends on the calling module: a module of the package gets the tuple, every other
module a `TensorShape`. A step runs on a copy of the graph, whose tensors are plain ones.
"""

from __future__ import annotations

import sys
from typing import Any

from headrace.ir import graph as ir_graph
from headrace.ir.source import is_ours
from headrace.shapes import Shape
from headrace.v1 import slices
from headrace.v1.tensor_shape import TensorShape


class Tensor(ir_graph.Tensor):
    """One output of an operation of a `headrace.v1` graph. See `headrace.Tensor`.

    Source: TensorFlow's `tf.Tensor`.
    """

    __slots__ = ()

    @property
    def shape(self) -> Any:
        """Static shape, a `TensorShape`."""
        shape = self.static_shape
        return shape if is_ours(sys._getframe(1).f_code.co_filename) else TensorShape(shape)

    @shape.setter
    def shape(self, shape: Shape) -> None:
        self.static_shape = shape

    def __str__(self) -> str:
        shape = "" if self.static_shape is None else f", shape={TensorShape(self.static_shape)}"
        device = f", device={self.device}" if self.device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}{device})'

    def __getattr__(self, name: str) -> Any:
        """Assignments to a slice of a variable, as in `v[1:3].assign(x)`; other tensors lack these attributes."""
        if name in ("assign", "assign_add", "assign_sub"):
            return slices.assignment(self, name)
        return super().__getattr__(name)

    @staticmethod
    def as_seen(shape: Shape) -> Any:
        """A static shape as the caller of the property that calls `ir.symbolic.seen` is given it."""
        caller = sys._getframe(3)  # of the property; 1 is `seen`
        return shape if is_ours(caller.f_code.co_filename) else TensorShape(shape)
