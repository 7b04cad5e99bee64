"""The `SavedModel` message of an object, and the values of its checkpoint.

The message has three views of the same object:

* the object graph (`SavedObjectGraph`): nodes and their children, and for each trace the nodes that its captured
  tensors are bound to. `tf.saved_model.load` of TensorFlow 2 reads it;
* the function library, which both views use;
* the main graph (`main_graph`), with signatures, which `tf.compat.v1.saved_model.load` and servers read.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, nest, notices
from headrace.api import scopes
from headrace.api.layers.base import Layer
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable
from headrace.errors import GraphError, HeadraceError
from headrace.interchange import saved_model
from headrace.interchange.object_graphs import OBJECT_GRAPH, VALUE
from headrace.ir.serial.attrs import encode_shape
from headrace.jit.concrete import ConcreteFunction
from headrace.jit.function import Function
from headrace.pb.trackable_object_graph_pb2 import TrackableObjectGraph
from headrace.saved_model import kinds, tables
from headrace.saved_model import signatures as signing
from headrace.saved_model.callables import CALLABLES, FUNCTIONS, VARIABLE, Callable, Traced, parameters_of, traces_of
from headrace.saved_model.encoding import encode, encode_parameters
from headrace.saved_model.main_graph import MainGraph
from headrace.saved_model.objects import LoadedObject
from headrace.saved_model.traces import functions_of, handle_of
from headrace.saved_model.tree import LEAVES, Item, Tree, children_of

if TYPE_CHECKING:
    from headrace.pb import FunctionDef

VARIABLES: Final = "variables"


class Model:
    """Message and values of an object.

    Args:
      obj, signatures, tags: see `save`.

    Attributes:
      message: the `SavedModel`.
      values: the arrays of the checkpoint by key.

    Raises:
      GraphError, TypeError: see `save`.
    """

    _is_portable = True  # whether TensorFlow can load it

    def __init__(self, obj: Any, signatures: Any, tags: Sequence[str]) -> None:
        children, given = _children_of_root(obj, signatures)
        self._traces: dict[Callable, list[Traced]] = {}
        self._names: dict[ConcreteFunction, str] = {}
        self._bound: dict[ConcreteFunction, list[int]] = {}
        self.message = saved_model.new()
        self._meta = self.message.meta_graphs.add()
        self._meta.meta_info_def.tags.extend([tags] if isinstance(tags, str) else tags)
        self._objects = self._meta.object_graph_def
        self._main = MainGraph(self._meta)
        signed = {name: self._signed(name, x) for name, x in given.items()}
        of = None if isinstance(obj, FUNCTIONS) else obj
        for _, f in Tree(Item(children, of)).leaves(FUNCTIONS):
            self._traces_of(f)
        children, _ = _children_of_root(obj, signatures)  # again, since a first trace makes the variables of layers
        self._tree = self._whole_tree(children, of, signed.values())
        self._add_nodes()
        self._add_functions()
        self._add_signatures(signed)
        self._main.finish()
        self.values = self._checkpoint()
        if len(self._objects.nodes) == 2:  # the root and its signatures
            raise GraphError(
                f"{nest.describe(obj)} has no variables, tables or functions under hr.jit with traces, so there is "
                "nothing to save; call the functions, or give them an input_signature"
            )

    # *** traces ***

    def _traces_of(self, f: Callable) -> list[Traced]:
        """Returns the traces of a function to be saved."""
        if f not in self._traces:
            self._traces[f] = traces_of(f)
        return self._traces[f]

    def _signed(self, name: str, f: Any) -> Traced:
        """Returns the trace of a signature."""
        if not isinstance(f, CALLABLES):
            raise TypeError(
                f"the signature {name!r} must be a function under hr.jit or one of its traces, got {nest.describe(f)}"
            )
        found = self._traces_of(f)
        if len(found) != 1:
            raise GraphError(
                f"{f!r}, the signature {name!r}, has {len(found) or 'no'} traces, and a signature is one; give it an "
                "input_signature, or give one trace: f.lower(hr.TensorSpec(...))"
            )
        return found[0]

    def _whole_tree(self, children: dict[str, Any], of: Any, signed: Any) -> Tree:
        """Returns the tree, with the variables that only functions refer to."""
        tree = Tree(Item(children, of))
        known = {handle_of(v.handle) for _, v in tree.leaves(Variable)}
        known |= {handle_of(t.resource_handle) for _, t in tree.leaves(tables.TABLES)}
        more: dict[int, Variable] = {}
        functions = [trace for _, f in tree.leaves(CALLABLES) for trace in self._traces_of(f)]
        for concrete in [trace.concrete for trace in (*functions, *signed)]:
            reads = {handle_of(v.handle): v for v in concrete.variables}
            for value in concrete.captured:
                if value.dtype.base is dtypes.resource and handle_of(value) not in known:
                    key = handle_of(value)
                    if key not in more:
                        more[key] = reads[key] if key in reads else _variable_of(value, concrete)
        if not more:
            return tree
        return Tree(Item({**children, VARIABLES: [*children.get(VARIABLES, ()), *more.values()]}, of))

    def _add_functions(self) -> None:
        handles: dict[int, int] = {handle_of(v.handle): i for i, v in self._tree.leaves(Variable)}
        handles |= {handle_of(t.resource_handle): i for i, t in self._tree.leaves(tables.TABLES)}
        self._handles = handles
        self._constants: dict[int, int] = {}
        for i, f in self._tree.leaves(CALLABLES):
            node = self._objects.nodes[i]
            traces = self._traces_of(f)
            if not isinstance(f, FUNCTIONS):
                node.bare_concrete_function.concrete_function_name = self._name_of(traces[0])
                node.bare_concrete_function.argument_keywords.extend(traces[0].keywords)
                node.bare_concrete_function.allowed_positional_arguments = len(traces[0].keywords)
                continue
            if not traces and isinstance(f, Function):
                notices.warn(
                    f"{f.title} was never called and has no input_signature, so it cannot be called when it is loaded"
                )
            parameters = parameters_of(f)
            if parameters is not None:
                node.function.function_spec.fullargspec.CopyFrom(encode_parameters(parameters))
            node.function.function_spec.input_signature.none_value.SetInParent()
            node.function.concrete_functions.extend(map(self._name_of, traces))
        for i, table in self._tree.leaves(tables.TABLES):
            self._add_table(i, table)

    def _name_of(self, trace: Traced) -> str:
        """Adds a trace to the library; returns its name."""
        concrete = trace.concrete
        name = self._names.get(concrete)
        if name is not None:
            return name
        plain = "".join(c if c.isascii() and c.isalnum() else "_" for c in trace.name)
        name = self._names[concrete] = f"__inference_{plain}_{len(self._names)}"
        try:
            functions = functions_of(concrete, name, self._is_portable)
            results = nest.map_leaves(lambda t: TensorSpec(t.shape, t.dtype.base), concrete.value)
            self._bound[concrete] = [self._node_of(value) for value in concrete.captured]
            self._add_concrete(functions, self._bound[concrete], trace.arguments, results)
        except HeadraceError as e:
            e.add_note(f"while {concrete!r} was saved")
            raise
        return name

    def _add_concrete(self, functions: list[FunctionDef], bound: list[int], arguments: Any, results: Any) -> None:
        """Adds a function, the first of `functions`, to the library and the object graph."""
        self._main.add_functions(functions)
        saved = self._objects.concrete_functions[functions[0].signature.name]
        saved.bound_inputs.extend(bound)
        saved.canonicalized_input_signature.CopyFrom(encode(arguments))
        saved.output_signature.CopyFrom(encode(results))

    def _node_of(self, value: Any) -> int:
        """Returns the node of a captured eager tensor."""
        if value.dtype.base is dtypes.resource:
            return self._handles[handle_of(value)]
        found = self._constants.get(id(value))
        if found is None:
            found = self._constants[id(value)] = len(self._objects.nodes)
            self._objects.nodes.add().constant.operation = self._main.add_constant(
                found, np.asarray(value), value.dtype
            )
        return found

    # *** nodes ***

    def _add_nodes(self) -> None:
        for i, x in enumerate(self._tree.nodes):
            node = self._objects.nodes.add()
            for name, number in self._tree.children[i].items():
                node.children.add(node_id=number, local_name=name)
            if isinstance(x, Variable):
                shape = encode_shape(x._shape)
                node.variable.dtype, node.variable.trainable = x.dtype.base.number, x.trainable  # type: ignore[assignment]
                node.variable.shape.CopyFrom(shape)
                node.variable.name = x.name.partition(":")[0]
                self._main.add_variable(i, node.variable, self._key(i))
            elif isinstance(x, tables.TABLES):
                node.resource.SetInParent()
            elif not isinstance(x, CALLABLES):
                node.user_object.identifier = _identifier(x)
                node.user_object.metadata = x.metadata if isinstance(x, Item) else ""
                node.user_object.version.producer = node.user_object.version.min_consumer = 1

    def _add_child(self, parent: int, name: str) -> Any:
        """Adds a node as a child of another one."""
        self._objects.nodes[parent].children.add(node_id=len(self._objects.nodes), local_name=name)
        return self._objects.nodes.add()

    def _add_table(self, i: int, table: tables.Table) -> None:
        create, initialize = tables.functions_of(table, f"__inference_table_{i}")
        self._main.add_table(i, create, initialize)
        for name, f, bound, result in (
            ("_create_resource", create, [], TensorSpec((), dtypes.resource)),
            ("_initialize", initialize, [i], TensorSpec((), dtypes.int32)),
        ):
            node = self._add_child(i, name).function
            node.concrete_functions.append(f.signature.name)
            node.function_spec.fullargspec.CopyFrom(encode_parameters(inspect.Signature()))
            node.function_spec.input_signature.none_value.SetInParent()
            self._add_concrete([f], bound, ((), {}), result)

    def _add_signatures(self, signed: dict[str, Traced]) -> None:
        signature_map = len(self._objects.nodes)
        node = self._add_child(0, kinds.SIGNATURES)
        node.user_object.identifier = "signature_map"
        node.user_object.version.producer = node.user_object.version.min_consumer = 1
        for name, trace in signed.items():
            concrete, inputs = trace.concrete, trace.inputs
            inner = self._main.functions[self._name_of(trace)]
            outputs = signing.named_results(name, concrete.value)
            positions = {k: i for k, (i, _) in outputs.items()}
            wrapper = signing.wrapper(f"__inference_signature_wrapper_{name}", inner, list(inputs), positions)
            bare = self._add_child(signature_map, name).bare_concrete_function
            bare.concrete_function_name = wrapper.signature.name
            bare.argument_keywords.extend(sorted(inputs))
            bound = self._bound[concrete]
            results = {k: TensorSpec(t.shape, t.dtype.base, k) for k, (_, t) in outputs.items()}
            self._add_concrete([wrapper], bound, ((), {k: inputs[k] for k in sorted(inputs)}), results)
            self._main.add_signature(name, wrapper, inputs, results, bound)

    # *** the checkpoint ***

    def _key(self, i: int) -> str:
        """Returns the key of the value of a node."""
        return f"{self._tree.paths[i]}/.ATTRIBUTES/{VALUE}"

    def _checkpoint(self) -> dict[str, Any]:
        graph = TrackableObjectGraph()
        values: dict[str, Any] = {}
        for i, saved in enumerate(self._objects.nodes):
            node = graph.nodes.add()
            node.children.extend(saved.children)
            node.has_checkpoint_values.value = True
            x = self._tree.nodes[i] if i < len(self._tree.nodes) else None
            value = x.numpy() if isinstance(x, Variable) else x.value if isinstance(x, Item) else None
            if value is not None:
                node.attributes.add(name=VALUE, full_name=saved.variable.name, checkpoint_key=self._key(i))
                values[self._key(i)] = value
        values[OBJECT_GRAPH] = np.array(graph.SerializeToString(deterministic=True), object)
        return values


def _identifier(x: Any) -> str:
    if isinstance(x, Item):
        return x.identifier
    if isinstance(x, (list, tuple)):
        return kinds.LIST
    return kinds.DICT if isinstance(x, Mapping) else kinds.OBJECT


def _children_of_root(obj: Any, signatures: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the children of the root, and the signatures by name."""
    if isinstance(obj, Item):
        return obj.children, {}
    is_function = isinstance(obj, FUNCTIONS)
    if (isinstance(obj, (list, tuple, *LEAVES)) and not is_function) or not (
        isinstance(obj, Mapping) or hasattr(obj, "__dict__")
    ):
        raise TypeError(
            "hr.saved_model.save takes a function under hr.jit, a layer, a dict with text keys or an object with "
            f"attributes, got {nest.describe(obj)}; a dict gives names to its values: {{'value': ...}}"
        )
    children = {kinds.CALL: obj} if is_function else children_of(obj)
    if isinstance(obj, Mapping) and len(children) < len(obj):
        raise TypeError("the keys of a dict that is saved must be text")
    if signatures is None and isinstance(obj, LoadedObject) and isinstance(children.get(kinds.SIGNATURES), dict):
        signatures = children[kinds.SIGNATURES]
    if isinstance(obj, LoadedObject):
        children = {name: x for name, x in children.items() if name != kinds.SIGNATURES}
    if signatures is None:
        default = signing.default_of(children)
        given = {} if default is None else {signing.DEFAULT: default}
    else:
        given = dict(signatures) if isinstance(signatures, Mapping) else {signing.DEFAULT: signatures}
    if isinstance(obj, Layer) and kinds.CALL not in children:
        calls = [f for f in given.values() if isinstance(f, Function) and f.python_function is obj]
        children |= {kinds.CALL: calls[0]} if calls else {}
    if kinds.SIGNATURES in children:
        raise GraphError(
            f"the attribute '{kinds.SIGNATURES}' of a saved object is reserved for its signatures; rename it"
        )
    return children, given


def _variable_of(handle: Any, concrete: ConcreteFunction) -> Variable:
    """Returns a variable object for the captured handle of a variable that is not trainable."""
    if handle.numpy().kind != VARIABLE:
        raise GraphError(
            f"{concrete!r} uses a table or another resource that is not below the saved object; make it an attribute"
        )
    with scopes.outside():
        found: Variable = Variable.of_handle(handle, trainable=False)
        return found
