"""Random programs of nested `Loop`, `If` and `Scan` nodes, by seed."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper


class Programs:
    """Generator of one program.

    Values are float32 vectors of three elements. Inner graphs read the names of outer ones.

    Args:
      seed: the seed of the choices.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.count = 0

    def model(self) -> onnx.ModelProto:
        """Returns a model from vectors x and y to a vector and a matrix."""
        nodes: list[onnx.NodeProto] = []
        names = ["x", "y"]
        for _ in range(3):
            names.append(self.node(nodes, names, 2))
        scanned = self.scanned(nodes, names, 1)
        outputs = [_vector(names[-1]), helper.make_tensor_value_info(scanned, TensorProto.FLOAT, [None, 3])]
        graph = helper.make_graph(nodes, "program", [_vector("x"), _vector("y")], outputs)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        onnx.checker.check_model(model)
        return model

    def name(self) -> str:
        """Returns a name that is new in the program."""
        self.count += 1
        return f"v{self.count}"

    def node(self, nodes: list[onnx.NodeProto], names: list[str], depth: int) -> str:
        """Adds the nodes of one vector, and returns its name."""
        kind = self.random.integers(0, 5 if depth else 2)
        if kind < 2:
            return self.arithmetic(nodes, names)
        if kind == 2:
            return self.conditional(nodes, names, depth - 1)
        if kind == 3:
            return self.loop(nodes, names, depth - 1)[0]
        stacked = self.scanned(nodes, names, depth - 1)
        out = self.name()
        axes = self.constant(nodes, np.array([0], np.int64))
        nodes.append(helper.make_node("ReduceMean", [stacked, axes], [out], keepdims=0))
        return out

    def constant(self, nodes: list[onnx.NodeProto], value: np.ndarray) -> str:
        """Adds a constant, and returns its name."""
        out = self.name()
        nodes.append(helper.make_node("Constant", [], [out], value=onnx.numpy_helper.from_array(value)))
        return out

    def arithmetic(self, nodes: list[onnx.NodeProto], names: list[str]) -> str:
        """Adds an operation on two vectors whose results stay small."""
        x, y = [str(self.random.choice(names)) for _ in range(2)]
        whole, out = self.name(), self.name()
        nodes.append(helper.make_node(str(self.random.choice(["Add", "Sub", "Mul", "Max"])), [x, y], [whole]))
        nodes.append(helper.make_node("Tanh", [whole], [out]))
        return out

    def condition(self, nodes: list[onnx.NodeProto], names: list[str], limit: float) -> str:
        """Adds a comparison of a vector's sum, and returns its name."""
        total, out = self.name(), self.name()
        nodes.append(helper.make_node("ReduceSum", [str(self.random.choice(names))], [total], keepdims=0))
        nodes.append(helper.make_node("Less", [total, self.constant(nodes, np.array(limit, np.float32))], [out]))
        return out

    def conditional(self, nodes: list[onnx.NodeProto], names: list[str], depth: int) -> str:
        """Adds an `If` whose branches read outer names."""
        condition = self.condition(nodes, names, 0.0)
        branches = []
        for _ in range(2):
            own: list[onnx.NodeProto] = []
            result = self.node(own, names, depth)
            branches.append(helper.make_graph(own, self.name(), [], [_vector(result)]))
        out = self.name()
        nodes.append(helper.make_node("If", [condition], [out], then_branch=branches[0], else_branch=branches[1]))
        return out

    def loop(self, nodes: list[onnx.NodeProto], names: list[str], depth: int) -> tuple[str, str]:
        """Adds a `Loop` with one carried vector and one scan output, and returns their names."""
        i, keep, carried = self.name(), self.name(), self.name()
        own: list[onnx.NodeProto] = []
        result = self.node(own, [*names, carried], depth)
        # the limit is seldom reached, so that the first iteration runs and scan outputs have elements
        goes_on = self.condition(own, [result], 1.5)
        shown = self.arithmetic(own, [result, carried])
        body = helper.make_graph(
            own,
            self.name(),
            [
                helper.make_tensor_value_info(i, TensorProto.INT64, []),
                helper.make_tensor_value_info(keep, TensorProto.BOOL, []),
                _vector(carried),
            ],
            [helper.make_tensor_value_info(goes_on, TensorProto.BOOL, []), _vector(result), _vector(shown)],
        )
        trips = self.constant(nodes, np.array(self.random.integers(1, 4), np.int64))
        start = self.constant(nodes, np.array(True))
        out, stacked = self.name(), self.name()
        first = str(self.random.choice(names))
        nodes.append(helper.make_node("Loop", [trips, start, first], [out, stacked], body=body))
        return out, stacked

    def scanned(self, nodes: list[onnx.NodeProto], names: list[str], depth: int) -> str:
        """Adds a `Scan` over rows of a `Loop`, and returns its matrix."""
        _, stacked = self.loop(nodes, names, depth)
        state, row = self.name(), self.name()
        own: list[onnx.NodeProto] = []
        result = self.node(own, [*names, state, row], depth)
        shown = self.arithmetic(own, [result, row])
        body = helper.make_graph(own, self.name(), [_vector(state), _vector(row)], [_vector(result), _vector(shown)])
        out, matrix = self.name(), self.name()
        nodes.append(
            helper.make_node(
                "Scan",
                [str(self.random.choice(names)), stacked],
                [out, matrix],
                body=body,
                num_scan_inputs=1,
            )
        )
        return matrix


def _vector(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])
