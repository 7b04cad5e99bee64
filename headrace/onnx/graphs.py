"""Graphs of a model, ready to run: nodes with their operators, values by name.

A graph is checked completely when the model is loaded: every name that a node reads is defined before it, in its graph
or in a graph around it, so there are no cycles. The depth of nested graphs and functions is limited. Running a graph
calls the operators in order. Names of the graphs around a nested graph are found through the chain of scopes; the
conditionals and loops of headrace capture their tensors.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace.api import scopes, tensors
from headrace.documentation import cite
from headrace.dtypes import DType
from headrace.eager.tensor import EagerTensor
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.onnx import operators
from headrace.onnx.element_types import NUMBERS, array_of, dtype_of, sparse_array_of
from headrace.onnx.operators import Call
from headrace.onnx.values import Optional, Sequence, Value

if TYPE_CHECKING:
    import onnx

#: Largest depth of graphs in attributes and of calls of functions.
DEEPEST: Final = 32

PAGE: Final = cite("reference/onnx")


class ValueInfo(NamedTuple):
    """Name and static type of an input or output.

    Attributes:
      name: its name in the model.
      dtype: the dtype of the tensor or of the elements; None if the model does not say.
      shape: the static shape of a tensor, with None for each unknown dimension; None for an unknown rank.
      kind: "tensor", "sequence", "optional" or "optional sequence".

    Example:
      >>> import headrace as hr
      >>> hr.onnx.ValueInfo("x", hr.float32, (None, 2)).kind
      'tensor'
    """

    name: str
    dtype: DType | None
    shape: tuple[int | None, ...] | None
    kind: str = "tensor"


class Model(NamedTuple):
    """Functions and versions of operator sets, which all graphs of a model share."""

    functions: Mapping[tuple[str, str], onnx.FunctionProto]
    opset: Mapping[str, int]


class Body(NamedTuple):
    """Graph of an attribute with the scope of its node; a call runs it."""

    graph: Graph
    scope: MutableMapping[str, Value]

    def __call__(self, *values: Value) -> list[Any]:
        return self.graph.run(values, self.scope)


def value_info(info: onnx.ValueInfoProto) -> ValueInfo:
    """Returns name and type of an input or output."""
    kind, type_ = "", info.type
    if type_.HasField("optional_type"):
        kind, type_ = "optional", type_.optional_type.elem_type
    if type_.HasField("sequence_type"):
        kind, type_ = f"{kind} sequence".strip(), type_.sequence_type.elem_type
    shape: tuple[int | None, ...] | None = None
    if type_.HasField("sparse_tensor_type") or type_.HasField("map_type"):
        raise UnimplementedError(f"{info.name!r} is a sparse tensor or a map, which headrace does not import")
    dtype = dtype_of(type_.tensor_type.elem_type, repr(info.name)) if type_.tensor_type.elem_type else None
    if type_.tensor_type.HasField("shape"):
        dims = type_.tensor_type.shape.dim
        shape = tuple([d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims])
    return ValueInfo(info.name, dtype, shape, kind or "tensor")


class Graph:
    """Graph, or body of a function, ready to run.

    Args:
      model: the functions and versions that all graphs share.
      nodes: its nodes, in an order in which each follows its inputs.
      inputs: names of the inputs.
      outputs: names of the outputs.
      constants: names of its initializers, or of all names around the graph.
      outer: names that graphs around it define.
      depth: number of graphs and functions around it.
      opset: the versions of operator sets by domain.
      references: attributes of the call of a function, for nodes that refer to them.
      infos: types of the outputs, where the model gives them.
      is_function: whether outputs may be undefined, as those of the standard's functions that a node leaves out.

    Raises:
      InvalidArgumentError: a name is used before it is defined or defined twice, or the graph is nested too deeply.
      UnimplementedError: headrace has no such operator or element type.
    """

    def __init__(
        self,
        model: Model,
        nodes: Iterable[onnx.NodeProto],
        inputs: Seq[str],
        outputs: Seq[str],
        constants: Mapping[str, np.ndarray],
        outer: frozenset[str],
        depth: int,
        opset: Mapping[str, int],
        references: Mapping[str, onnx.AttributeProto] | None = None,
        infos: Seq[ValueInfo] = (),
        is_function: bool = False,
    ) -> None:
        if depth > DEEPEST:
            raise InvalidArgumentError(f"the model nests graphs and functions more than {DEEPEST} deep")
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.infos = tuple(infos)
        self._constants = {name: _eager(value) for name, value in constants.items()}
        defined = {*self.inputs, *constants}
        self.nodes: list[Node] = []
        for node in nodes:
            for name in node.input:
                if name and name not in defined and name not in outer:
                    raise InvalidArgumentError(
                        f"the {_described(node)} reads {name!r}, which no node before it defines; the nodes of a graph "
                        "are in topological order"
                    )
            self.nodes.append(Node(model, node, outer | defined, depth, opset, references or {}))
            for name in node.output:
                if name and name in defined:
                    raise InvalidArgumentError(f"the {_described(node)} defines {name!r}, which is defined already")
                defined.add(name)
        if is_function:
            self.outputs = tuple([name if name in defined else "" for name in self.outputs])
        for name in self.outputs:
            if name and name not in defined and name not in outer:
                raise InvalidArgumentError(f"no node defines the output {name!r}")
        self._released = self._last_uses()

    @classmethod
    def of(
        cls,
        model: Model,
        graph: onnx.GraphProto,
        outer: frozenset[str],
        depth: int,
        opset: Mapping[str, int],
        references: Mapping[str, onnx.AttributeProto] | None = None,
        constants: Mapping[str, np.ndarray] | None = None,
    ) -> Graph:
        """Returns the graph of a message."""
        if constants is None:
            constants = initializers_of(graph)
        infos = [value_info(o) for o in graph.output]
        inputs = [i.name for i in graph.input]
        return cls(
            model, graph.node, inputs, [i.name for i in infos], constants, outer, depth, opset, references, infos
        )

    def run(self, values: Seq[Value], outer: MutableMapping[str, Value] | None = None) -> list[Any]:
        """Returns the outputs for inputs in their order.

        Args:
          values: the inputs; fewer than the graph has if the others have initializers of their names.
          outer: values of the names around the graph.
        """
        scope: MutableMapping[str, Value] = ChainMap({}, *([] if outer is None else _maps(outer)))
        scope.update(self._constants)
        scope.update(zip(self.inputs, values, strict=False))
        for node, released in zip(self.nodes, self._released, strict=True):
            node.run(scope)
            for name in released:
                del scope[name]
        return [scope[name] if name else None for name in self.outputs]

    def _last_uses(self) -> list[tuple[str, ...]]:
        """For each node, the names of this graph that no later node reads."""
        own = {name for node in self.nodes for name in node.outputs if name}
        kept, out = set(self.outputs), []
        for node in reversed(self.nodes):
            reads = {*node.inputs, *node.captured, *node.outputs} - {""}
            out.append(tuple(sorted((reads - kept) & own)))
            kept |= reads
        return out[::-1]

    def reads(self) -> set[str]:
        """Returns the names that the graph reads from graphs around it, and perhaps its own."""
        return {*self.outputs}.union(*[{*n.inputs, *n.captured} for n in self.nodes])


class Node:
    """Node with its operator's function, its attributes and its graphs."""

    def __init__(
        self,
        model: Model,
        node: onnx.NodeProto,
        names: frozenset[str] | set[str],
        depth: int,
        opset: Mapping[str, int],
        references: Mapping[str, onnx.AttributeProto],
    ) -> None:
        import onnx

        self.described = _described(node)
        self.inputs = tuple(node.input)
        self.outputs = tuple(node.output)
        self.captured: set[str] = set()
        self.opset = opset
        self._model, self._depth, self._message = model, depth, node
        domain = domain_of(node.domain)
        self._attributes: dict[str, Any] = {}
        self._graphs: dict[str, Graph] = {}
        self._given: dict[str, onnx.AttributeProto] = {}
        for attribute in node.attribute:
            found = references.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if found is None:
                continue
            self._given[attribute.name] = found
            if found.type == onnx.AttributeProto.GRAPH:
                graph = Graph.of(model, found.g, frozenset(names), depth + 1, opset, references)
                self._graphs[attribute.name] = graph
                self.captured |= graph.reads()
            else:
                self._attributes[attribute.name] = attribute_value(found)
        self._expansions: dict[Any, Graph] = {}
        self._expand: Callable[[Seq[Value]], Graph] | None = None
        self._function: operators.Operator | None = None
        self._folds = operators.folds(domain, node.op_type) and not self._graphs
        self.version = opset.get(domain, 1)
        function = model.functions.get((domain, node.op_type))
        if function is not None:
            self._expand = lambda values: self._function_graph(function, _opset(function, opset))
            self._expand(())
            return
        schema = _schema(domain, node.op_type, self.version)
        if schema is None:
            raise UnimplementedError(
                f"headrace has no operator {node.op_type!r} of the domain {domain or 'ai.onnx'!r}, version "
                f"{self.version}, for the {self.described}; see {PAGE}"
            )
        self.version = schema.since_version
        self._attributes = _defaults(schema) | self._attributes
        self._function = operators.find(domain, node.op_type, self.version)
        if self._function is None:
            if not (schema.has_function or schema.has_context_dependent_function):
                raise UnimplementedError(
                    f"headrace has no operator {node.op_type!r} of the domain {domain or 'ai.onnx'!r}, version "
                    f"{self.version}, for the {self.described}, and the standard defines it by no function; see {PAGE}"
                )
            self._expand = lambda values: self._standard_function(schema, values)

    def run(self, scope: MutableMapping[str, Value]) -> None:
        """Computes the outputs in a scope and adds them to it."""
        values = [scope[name] if name else None for name in self.inputs]
        while values and values[-1] is None:
            values.pop()
        if self._folds and not scopes.is_outside() and all(v is None or isinstance(v, EagerTensor) for v in values):
            with scopes.outside():
                results = self._results(values, scope)
        else:
            results = self._results(values, scope)
        for name, value in zip(self.outputs, results, strict=False):
            if name:
                scope[name] = value

    def _results(self, values: list[Value], scope: MutableMapping[str, Value]) -> Seq[Value]:
        if self._expand is not None:
            graph = self._expand(values)
            values += [None] * (len(graph.inputs) - len(values))
            return graph.run(values)
        assert self._function is not None
        bodies = {name: Body(graph, scope) for name, graph in self._graphs.items()}
        used = tuple(map(bool, self.outputs))
        call = Call(self.described, self._message.op_type, self.version, self._attributes, bodies, used, self.opset)
        try:
            results = self._function(call, *values)
        except Exception as e:
            e.add_note(f"in the {self.described} of an ONNX model")
            raise
        return results if isinstance(results, (tuple, list)) else (results,)

    def _standard_function(self, schema: Any, values: Seq[Value]) -> Graph:
        """The body of the standard's function for inputs of these types."""
        import onnx

        if None in self._expansions:  # a body that does not depend on the types
            return self._expansions[None]
        wanted = max(self.opset.get(schema.domain, 1), schema.since_version)
        key: Any = None
        if schema.has_function:
            version = max([v for v in schema.function_opset_versions if v <= wanted], default=0)
            text = schema.get_function_with_opset_version(version) if version else None
        else:
            text = None
        if text is None and schema.has_context_dependent_function:
            types = [_type_of(v) for v in values]
            key = tuple(types)
            if key in self._expansions:
                return self._expansions[key]
            version = max([v for v in schema.context_dependent_function_opset_versions if v <= wanted], default=0)
            node = onnx.NodeProto()
            node.CopyFrom(self._message)
            del node.attribute[:]
            for name, given in self._given.items():
                node.attribute.add().CopyFrom(given)
                node.attribute[-1].name = name
            text = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        if not text:
            raise UnimplementedError(f"the standard defines no function for the {self.described}; see {PAGE}")
        function = onnx.FunctionProto.FromString(text)
        return self._function_graph(function, {**self.opset, **_opset(function, self.opset)}, key)

    def _function_graph(self, function: onnx.FunctionProto, opset: Mapping[str, int], key: Any = None) -> Graph:
        if key not in self._expansions:
            # attributes of the standard's functions have the defaults of the schema, and of the model's their own
            references = {a.name: a for a in function.attribute_proto} | self._given
            schema = _schema(function.domain, function.name, self.version)
            if schema is not None:
                for name, attribute in schema.attributes.items():
                    if name not in references and attribute.default_value.type:
                        references[name] = attribute.default_value
            self._expansions[key] = Graph(
                self._model,
                function.node,
                tuple(function.input),
                tuple(function.output),
                {},
                frozenset(),
                self._depth + 1,
                opset,
                references,
                is_function=True,
            )
        return self._expansions[key]


def initializers_of(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Returns the arrays of a graph's initializers by name."""
    out = {t.name: array_of(t) for t in graph.initializer}
    return out | {t.values.name: sparse_array_of(t) for t in graph.sparse_initializer}


def attribute_value(attribute: onnx.AttributeProto) -> Any:
    """Returns the value of an attribute: a number, text, array, list or type."""
    import onnx

    kinds = onnx.AttributeProto
    if attribute.type == kinds.TENSOR:
        return array_of(attribute.t)
    if attribute.type == kinds.SPARSE_TENSOR:
        return sparse_array_of(attribute.sparse_tensor)
    if attribute.type == kinds.TENSORS:
        return [array_of(t) for t in attribute.tensors]
    if attribute.type == kinds.STRING:
        return attribute.s.decode("utf-8", "replace")
    if attribute.type == kinds.STRINGS:
        return [s.decode("utf-8", "replace") for s in attribute.strings]
    return onnx.helper.get_attribute_value(attribute)


def _eager(value: np.ndarray) -> Any:
    with scopes.outside():
        return tensors.convert_to_tensor(value)


def _maps(scope: MutableMapping[str, Value]) -> list[MutableMapping[str, Value]]:
    return scope.maps if isinstance(scope, ChainMap) else [scope]


def _described(node: onnx.NodeProto) -> str:
    return f"{node.op_type} node {node.name or ', '.join(node.output)!r}"


def domain_of(name: str) -> str:
    """Returns the name of an operator set, "" for both names of the standard's."""
    return "" if name == "ai.onnx" else name


def versions_of(message: onnx.ModelProto | onnx.FunctionProto) -> dict[str, int]:
    """Returns the versions of operator sets that a model or function imports, by domain."""
    return {domain_of(o.domain): o.version for o in message.opset_import}


def _opset(function: onnx.FunctionProto, outer: Mapping[str, int]) -> dict[str, int]:
    return versions_of(function) or dict(outer)


def _schema(domain: str, name: str, version: int) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(name, max_inclusive_version=version, domain=domain)
    except onnx.defs.SchemaError:  # no such operator in this version
        return None


def _defaults(schema: onnx.defs.OpSchema) -> dict[str, Any]:
    return {name: attribute_value(a.default_value) for name, a in schema.attributes.items() if a.default_value.type}


def _type_of(value: Value) -> bytes:
    """The message of a value's type, which functions of the standard may depend on."""
    import onnx

    if value is None:
        return b""
    if isinstance(value, Optional):
        value = value.value
    if isinstance(value, Sequence):
        element = onnx.helper.make_tensor_type_proto(NUMBERS[value.dtype], None)
        return onnx.helper.make_sequence_type_proto(element).SerializeToString()
    shape = value.shape
    return onnx.helper.make_tensor_type_proto(
        NUMBERS[value.dtype.base], None if shape is None else list(shape)
    ).SerializeToString()
