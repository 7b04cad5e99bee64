"""The objects of a SavedModel or of a model of `hr.save`, made from its `SavedObjectGraph`.

A node of the graph is an object with a kind and named children. The graph has cycles, so objects are made in two
passes: each without its children, then the children are set. Only tuples need their items first, and layers and
optimizers are completed last.

Nodes of tables have three functions: `_create_resource` makes the table, `_initialize` fills it, and
`_destroy_resource` is not needed, since a handle keeps its table alive. Contents that change are in the checkpoint, and
a function restores them.

Source: TensorFlow's `saved_model/load.py`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import shapes
from headrace.api import scopes
from headrace.api.variable import Variable
from headrace.errors import DataLossError, GraphError
from headrace.interchange import saved_model
from headrace.ir.attr_values import BadTensor
from headrace.ir.serial.attrs import decode_dtype, decode_shape, decode_tensor
from headrace.saved_model import kinds
from headrace.saved_model.custom_gradients import register_gradients
from headrace.saved_model.functions import ConcreteFunction, Function, Unbound
from headrace.saved_model.library import Library
from headrace.saved_model.objects import Asset, CallableObject, LoadedLayer, LoadedObject, Resource, Unsaved
from headrace.saved_model.resources import run_function
from headrace.saved_model.traces import handle_of
from headrace.saved_model.values import Values
from headrace.train.constructed import Constructed

if TYPE_CHECKING:
    from headrace.pb import MetaGraphDef
    from headrace.pb.saved_object_graph_pb2 import SavedFunction, SavedObject

_CONTAINERS: Final[dict[str, type]] = {kinds.LIST: list, kinds.DICT: dict, "signature_map": dict}
_MOST_GAPS: Final = 1_000_000  # items of lists that are no objects, in a file
_LATER: Final = object()  # in the place of a tuple, which needs its items first


class ObjectGraph:
    """Objects of one MetaGraph of a SavedModel.

    Args:
      meta: the MetaGraph.
      folder: the folder of the assets.
      prefix: the prefix of the checkpoint.

    Attributes:
      root: the object that was saved.

    Raises:
      GraphError: the object graph is malformed.
      DataLossError: a value is missing or damaged.
    """

    def __init__(self, meta: MetaGraphDef, folder: str | os.PathLike[str], prefix: str) -> None:
        self._meta = meta
        self._folder = folder
        self._saved = meta.object_graph_def
        self._check_numbers()
        self._check_items()
        self._library = Library(meta.graph_def.library)
        self._values = Values(prefix, self._saved)
        self._asset_paths: list[str] | None = None
        self._constants: dict[str, Any] | None = None
        self._attributes = {c.node_id: c.local_name for node in self._saved.nodes for c in node.children}
        self._concrete: dict[str, ConcreteFunction] = {}
        for name in self._saved.concrete_functions:
            self._concrete[name] = ConcreteFunction(self._library, name, self._saved.concrete_functions[name])
        self._made: list[Any] = [self._make(i, node) for i, node in enumerate(self._saved.nodes)]
        self._make_tuples()
        for i in range(len(self._made)):
            self._set_children(i)
        for i in range(len(self._made)):
            self._complete(i)
        self._make_resources()
        self._bind()
        register_gradients(self._library, self._concrete, self._saved)
        self._restore_tables()
        for i in self._resources():
            initialize = self._named(i).get("_initialize")
            if initialize is not None:
                self._only(initialize).call([])
        self.root = self._made[0]

    def _check_numbers(self) -> None:
        count = len(self._saved.nodes)
        if not count:
            raise GraphError("the object graph of the SavedModel has no nodes")
        for i, node in enumerate(self._saved.nodes):
            numbers = [c.node_id for c in (*node.children, *node.dependencies)]
            numbers += [n for s in node.slot_variables for n in (s.original_variable_node_id, s.slot_variable_node_id)]
            for table in node.saveable_objects.values():
                numbers += [table.save_function, table.restore_function]
            for n in numbers:
                if not 0 <= n < count:
                    raise GraphError(f"node {i} of the SavedModel's objects refers to node {n}, of {count} nodes")
        for name, f in self._saved.concrete_functions.items():
            for n in f.bound_inputs:
                if not 0 <= n < count:
                    raise GraphError(f"the function {name!r} of the SavedModel is bound to node {n}, of {count} nodes")

    def _check_items(self) -> None:
        """Checks the numbers of the items of lists and tuples.

        Raises:
          GraphError: an item has no number, or an absurd one.
        """
        room = _MOST_GAPS
        for i, node in enumerate(self._saved.nodes):
            if node.user_object.identifier in (kinds.LIST, kinds.TUPLE):
                for c in node.children:
                    if not c.local_name.isdecimal() or len(c.local_name) > len(str(_MOST_GAPS)):
                        raise GraphError(
                            f"node {i} of the SavedModel is a list or tuple with an item {c.local_name[:99]!r}"
                        )
                room -= max((int(c.local_name) for c in node.children), default=-1) + 1 - len(node.children)
        if room < 0:
            raise GraphError(f"lists in the SavedModel have more than {_MOST_GAPS} items that are not in the file")

    def _named(self, i: int) -> dict[str, int]:
        """Numbers of the children of a node by name."""
        return {c.local_name: c.node_id for c in self._saved.nodes[i].children}

    def _child(self, i: int, name: str) -> Any:
        number = self._named(i).get(name)
        return None if number is None else self._made[number]

    # *** objects ***

    def _make(self, i: int, node: SavedObject) -> Any:
        """Returns the object of a node without its children; `_LATER` for a tuple."""
        kind = node.WhichOneof("kind")
        if kind == "variable":
            return self._variable(i, node)
        if kind == "function":
            return self._function(i, node.function)
        if kind == "bare_concrete_function":
            return self._bare(node)
        if kind == "constant":
            return self._constant(node.constant.operation)
        if kind == "asset":
            return self._asset(i, node.asset.asset_file_def_index)
        if kind == "resource":
            return Resource()
        if kind == "captured_tensor":
            return Unbound(
                f"a function of the SavedModel captures {node.captured_tensor.name!r}, an intermediate value of "
                f"{node.captured_tensor.concrete_function!r}; only the gradient of that function can use it"
            )
        if kind == "user_object":
            return self._user_object(i, node.user_object.identifier, node.user_object.metadata)
        return self._object(i)

    def _user_object(self, i: int, identifier: str, metadata: str) -> Any:
        if identifier in _CONTAINERS:
            return _CONTAINERS[identifier]()
        if identifier == kinds.TUPLE:
            return _LATER
        if identifier == kinds.VALUE:
            return kinds.decode_value(metadata)
        if identifier == kinds.ARRAY:
            return kinds.decode_array(metadata, self._values.variable(i, f"node {i}"))
        if identifier == kinds.LAYER:
            return kinds.new_layer(metadata)
        if identifier == kinds.CONSTRUCTED:
            return kinds.new_constructed(metadata)
        return Unsaved(kinds.decode_json(metadata, str)) if identifier == kinds.UNSAVED else self._object(i)

    def _object(self, i: int) -> Any:
        named = self._named(i)
        if "_create_resource" in named:
            return Resource()
        return CallableObject() if kinds.CALL in named else LoadedObject()

    def _variable(self, i: int, node: SavedObject) -> Variable:
        saved = node.variable
        name = saved.name or f"variable_{i}"
        dtype, shape = decode_dtype(saved.dtype), decode_shape(saved.shape)
        value = self._values.variable(i, name)
        found = scopes.runtime().eager.const(value)
        if found.dtype.base is not dtype.base or not shapes.fits(found.shape, shape):
            raise DataLossError(
                f"the variable {name!r} of the SavedModel has dtype {dtype.base.name} and shape {shapes.show(shape)}; "
                f"its value has dtype {found.dtype.base.name} and shape {shapes.show(found.shape)}"
            )
        return Variable(found, saved.trainable, name, shape=shape)

    def _concrete_function(self, name: str) -> ConcreteFunction:
        found = self._concrete.get(name)
        if found is None:
            raise GraphError(f"the SavedModel describes no concrete function {name!r}, which one of its objects names")
        return found

    def _function(self, i: int, saved: SavedFunction) -> Function:
        concrete = [self._concrete_function(name) for name in saved.concrete_functions]
        return Function(
            concrete[0].name if concrete else self._attributes.get(i, f"node {i}"), concrete, saved.function_spec
        )

    def _bare(self, node: SavedObject) -> ConcreteFunction:
        saved = node.bare_concrete_function
        found = self._concrete_function(saved.concrete_function_name)
        if len(saved.argument_keywords) == len(found.inputs):
            found.keywords = list(saved.argument_keywords)
            found.positional = min(max(saved.allowed_positional_arguments, 0), len(found.keywords))
        return found

    def _constant(self, name: str) -> Any:
        if self._constants is None:
            self._constants = {node.name: node for node in self._meta.graph_def.node if node.op == "Const"}
        node = self._constants.get(name)
        if node is None or "value" not in node.attr:
            raise GraphError(f"the SavedModel has no constant {name!r}, which one of its objects names")
        value = decode_tensor(node.attr["value"].tensor)
        if isinstance(value, BadTensor):
            raise GraphError(f"the constant {name!r} of the SavedModel: {value}")
        return scopes.runtime().eager.const(value, decode_dtype(node.attr["value"].tensor.dtype))

    def _asset(self, i: int, index: int) -> Asset:
        if self._asset_paths is None:
            self._asset_paths = saved_model.asset_paths(self._meta, self._folder)
        if not 0 <= index < len(self._asset_paths):
            raise GraphError(f"node {i} of the SavedModel is the asset {index}, of {len(self._asset_paths)} assets")
        return Asset(scopes.runtime().eager.const(self._asset_paths[index]))

    # *** children ***

    def _make_tuples(self) -> None:
        """Makes the tuples, innermost first.

        Raises:
          GraphError: a tuple contains itself.
        """
        inside: dict[int, list[int]] = {}  # number of a tuple -> the tuples that it is an item of
        missing = {}  # number of a tuple -> how many of its items are tuples that are not made
        for i, x in enumerate(self._made):
            if x is _LATER:
                items = {n for n in self._named(i).values() if self._made[n] is _LATER}
                missing[i] = len(items)
                for n in items:
                    inside.setdefault(n, []).append(i)
        todo = [i for i, n in missing.items() if not n]
        for i in todo:
            self._made[i] = kinds.new_tuple(self._saved.nodes[i].user_object.metadata, self._items(i))
            for j in inside.get(i, ()):
                missing[j] -= 1
                if not missing[j]:
                    todo.append(j)
        if len(todo) < len(missing):
            first = next(i for i, n in missing.items() if n)
            raise GraphError(f"node {first} of the SavedModel's objects is a tuple that contains itself")

    def _items(self, i: int) -> list[Any]:
        """Returns the items of a list or tuple.

        Items that are not in the file are None, as in TensorFlow.
        """
        named = {int(name): n for name, n in self._named(i).items()}
        return [self._made[named[k]] if k in named else None for k in range(max(named, default=-1) + 1)]

    def _set_children(self, i: int) -> None:
        x = self._made[i]
        if isinstance(x, list):
            x += self._items(i)
        elif isinstance(x, dict):
            named = self._named(i)
            for key, name in kinds.decode_keys(self._saved.nodes[i].user_object.metadata, named):
                x[key] = self._made[named[name]]
        elif isinstance(x, LoadedObject):
            for name, n in self._named(i).items():
                vars(x)[name] = self._made[n]

    def _complete(self, i: int) -> None:
        """Gives layers, optimizers and schedules their parts, whose children are set."""
        x = self._made[i]
        if isinstance(x, (LoadedLayer, Constructed)):
            parts = {name: self._made[n] for name, n in self._named(i).items()}
            kinds.set_parts(x, parts) if isinstance(x, LoadedLayer) else kinds.set_arguments(x, parts)

    # *** resources and bound inputs ***

    def _resources(self) -> list[int]:
        return [i for i, x in enumerate(self._made) if isinstance(x, Resource)]

    def _make_resources(self) -> None:
        home = scopes.Graph()
        for i in self._resources():
            create = self._child(i, "_create_resource")
            if not isinstance(create, Function) or not create.concrete_functions:
                raise GraphError(f"node {i} of the SavedModel is a resource without the function that creates it")
            f = create.concrete_functions[0]
            made_by: dict[int, Any] = {}
            made = run_function(home.function(self._library.add_to(home, f.name)), home, made_by)
            if not made:
                raise GraphError(f"the function {f.name!r}, which creates a resource, returns nothing")
            self._made[i].resource_handle, self._made[i].made_by = (
                made[0],
                made_by.get(handle_of(made[0]), ("", (), {})),
            )

    def _bind(self) -> None:
        for name, f in self._concrete.items():
            f.bind([self._bound(n, name) for n in self._saved.concrete_functions[name].bound_inputs])

    def _bound(self, n: int, function: str) -> Any:
        x = self._made[n]
        if isinstance(x, Resource):
            return x.resource_handle
        if isinstance(x, Asset):
            return x.asset_path
        if isinstance(x, (Variable, Unbound, scopes.runtime().eager.tensor_type)):
            return x
        raise GraphError(
            f"the function {function!r} of the SavedModel is bound to node {n}, a {type(x).__name__}, which is no "
            "tensor"
        )

    def _restore_tables(self) -> None:
        """Restores the contents of tables that change.

        The function that saves a table returns the keys of the values in the checkpoint, and another one takes them.
        """
        for i, node in enumerate(self._saved.nodes):
            for name, table in node.saveable_objects.items():
                key = self._values.keys(i).get(name)
                if key is not None and isinstance(self._made[i], Resource):
                    stored = self._only(table.save_function).call([key])
                    values = [self._values.read(key) for key in _keys(stored)]
                    self._only(table.restore_function).call(values)

    def _only(self, i: int) -> ConcreteFunction:
        """Returns the concrete function of a node that is a function with one trace."""
        f = self._made[i]
        if isinstance(f, Function) and f.concrete_functions:
            f = f.concrete_functions[0]
        if not isinstance(f, ConcreteFunction):
            raise GraphError(
                f"node {i} of the SavedModel's objects is a {type(f).__name__}, not a function with a trace"
            )
        return f


def _keys(stored: Any) -> list[str]:
    """Returns the keys of values from the result of a function that saves."""
    try:
        return [str(np.asarray(spec["name"].numpy(), object).item().decode()) for spec in stored]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:
        raise GraphError(f"a function that saves a table returned {stored!r}, without the names of values") from e
