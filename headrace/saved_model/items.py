"""The objects of a model of `hr.save`, as items of an object graph.

A SavedModel loses what is no state: numbers, text, arrays, None, and that a list was a tuple. Items describe these,
too. A layer is described by traces of its call, for its first arguments with batches of any size; optimizers and
schedules of headrace are described by the arguments of their constructors.

Elements of lists, tuples and dicts must be of a kind that a file can contain. Attributes of objects need not: they are
left out, and a stand-in takes the place of such an element in a list that is an attribute. A method that was never
called is saved without traces.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headrace import nest, notices
from headrace.api.layers.base import Layer
from headrace.api.rnn.cells import RNNCell
from headrace.api.storage.lookup import StaticVocabularyTable
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable
from headrace.errors import GraphError
from headrace.jit.function import Function
from headrace.saved_model import kinds
from headrace.saved_model.callables import CALLABLES, traces_of, variables_of
from headrace.saved_model.objects import LoadedLayer, LoadedObject, Unsaved
from headrace.saved_model.traces import handle_of
from headrace.saved_model.tree import LEAVES, Item, children_of, is_node
from headrace.train.constructed import Constructed, arguments_of
from headrace.train.optimizers.base import Optimizer, kept_variables

_ALLOWED: Final = (
    "a model consists of functions under hr.jit, layers, optimizers, variables, arrays, numbers, text, None, objects "
    "with attributes, and lists, tuples and dicts of them"
)
_TRAINING: Final = "training"
_BASE: Final = frozenset(vars(Layer(name="layer")))  # attributes that every layer has


class Items:
    """Items of a model, each object once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Item]] = {}  # the objects are kept, so that their ids stay valid

    @nest.bounded
    def of(self, model: Any) -> Any:
        """Returns the item of a model.

        A variable, a function and a table stand for themselves.

        Raises:
          TypeError: a file cannot contain a part of the model; the text says which.
          GraphError: a function was never traced, or a layer cannot be traced.
          ValueError: the model is nested too deeply.
        """
        found = self._item(model, "the model", False)
        _leave_out_stateless(found)
        return found

    def _item(self, x: Any, path: str, is_within: bool) -> Any:
        """Returns the item of an object.

        Args:
          x: the object.
          path: the way to it, for messages.
          is_within: whether it is below an attribute, where a stand-in may take its place.
        """
        if isinstance(x, (StaticVocabularyTable, *LEAVES)):
            if not is_within:
                _check_traced(x, path)
            return x
        text = kinds.encode_value(x)
        if text is not None:
            return Item({}, identifier=kinds.VALUE, metadata=text)
        if id(x) in self._made:
            return self._made[id(x)][1]
        array = kinds.array_of(x)
        item = Item({}) if array is None else Item({}, identifier=kinds.ARRAY, metadata=array[0], value=array[1])
        self._made[id(x)] = x, item
        if array is None:
            self._describe(item, x, path, is_within)
        return item

    def _describe(self, item: Item, x: Any, path: str, is_within: bool) -> None:
        """Sets the kind and the children of an item."""
        if isinstance(x, Mapping):
            item.identifier = kinds.DICT
            keys = kinds.encode_keys(x)
            if keys is None:
                raise TypeError(f"{path} has a key that is no text, number or None; its keys are {list(x)!r}")
            item.metadata = keys[0]
            for key, name in zip(x, keys[1], strict=True):
                item.children[name] = self._item(x[key], f"{path}[{key!r}]", is_within)
        elif isinstance(x, (list, tuple)):
            item.identifier = kinds.TUPLE if isinstance(x, tuple) else kinds.LIST
            if hasattr(x, "_fields"):
                item.metadata = json.dumps([type(x).__name__, *x._fields])
            for i, part in enumerate(x):
                item.children[str(i)] = self._item(part, f"{path}[{i}]", is_within)
        elif isinstance(x, Layer):
            self._describe_layer(item, x, path)
        elif kinds.CLASSES.get(type(x).__name__) is type(x) and self._describe_constructed(item, x, path):
            pass
        elif isinstance(x, Optimizer) or (not (is_node(x) or isinstance(x, Constructed)) and hasattr(x, "variables")):
            if isinstance(x, Optimizer) and type(x) not in kinds.CLASSES.values():
                notices.warn(
                    f"{path} is {_title(x)}, no optimizer of headrace: hr.load(path) returns its variables only"
                )
            self._add_attributes(item, {"variables": variables_in(x)}, path)
        elif is_node(x) and not isinstance(x, (Constructed, Unsaved)):
            own = {"variables": variables_in(x)} if hasattr(x, "variables") and not isinstance(x, LoadedObject) else {}
            self._add_attributes(item, children_of(x) | own, path)
        elif is_within:
            item.identifier, item.metadata = kinds.UNSAVED, json.dumps(_title(x))
        else:
            raise TypeError(f"{path} is {_title(x)}; {_ALLOWED}")

    def _add_attributes(self, item: Item, attributes: Mapping[str, Any], path: str) -> None:
        """Adds the attributes that a file can contain as children."""
        for name, x in attributes.items():
            made = self._item(x, f"{path}.{name}", True)
            if not (isinstance(made, Item) and made.identifier == kinds.UNSAVED):
                item.children[name] = made

    # *** layers ***

    def _describe_layer(self, item: Item, layer: Layer, path: str) -> None:
        item.identifier = kinds.LAYER
        dtype = None if layer.dtype is None else layer.dtype.name
        item.metadata = json.dumps({"name": layer.name, "trainable": bool(layer.trainable), "dtype": dtype})
        methods = {k: v for k, v in children_of(layer).items() if isinstance(v, Function)}
        attributes = {k: v for k, v in (vars(layer) | methods).items() if k not in _BASE and not hasattr(Layer, k)}
        shown = {k: v for k, v in attributes.items() if not k.startswith("_") or _has_state(v)}
        self._add_attributes(item, shown, path)
        if layer.activity_regularizer is not None:
            notices.warn(f"{path} has an activity_regularizer, which is not saved: the loaded layer has no such loss")
        losses = {str(i): f for i, f in enumerate(_losses_of(layer))}
        own = {str(i): v for i, v in enumerate(layer._own_variables)}
        item.children[kinds.OWN_VARIABLES] = Item(own, identifier=kinds.LIST)
        item.children[kinds.OWN_LOSSES] = Item(losses, identifier=kinds.LIST)
        call = layer.call if isinstance(layer, LoadedLayer) else _traced_call(layer, path)
        if call is not None:
            item.children[kinds.CALL] = call

    # *** optimizers and schedules ***

    def _describe_constructed(self, item: Item, x: Constructed, path: str) -> bool:
        """Describes an optimizer or schedule; returns whether its arguments can be saved."""
        arguments = Item({}, identifier=kinds.DICT)
        given = arguments_of(x)
        self._add_attributes(arguments, given, path)
        left_out = given.keys() - arguments.children.keys()
        if left_out:
            notices.warn(
                f"{path} is saved without its arguments, since {', '.join(sorted(left_out))} cannot be saved: "
                f"hr.load(path) returns the variables of this {type(x).__name__} only, and hr.load(path, model) is not "
                "affected"
            )
            return False
        item.identifier, item.metadata = kinds.CONSTRUCTED, json.dumps(type(x).__name__)
        item.children[kinds.ARGUMENTS] = arguments
        if isinstance(x, Optimizer):
            slots, counters = kept_variables(x)
            item.children[kinds.SLOTS] = self._item(slots, path, False)
            item.children[kinds.COUNTERS] = self._item(counters, path, False)
        return True


def _leave_out_stateless(root: Any) -> None:
    """Removes attributes that are objects without a variable, function or table below.

    Such an object may lead to anything: the state of a program, tables of other packages.
    """
    found = [root]
    seen = {id(root)}
    parents: dict[int, list[Any]] = {}
    for x in found:
        for child in x.children.values() if isinstance(x, Item) else ():
            parents.setdefault(id(child), []).append(x)
            if id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    todo = [x for x in found if isinstance(x, LEAVES)]
    needed = {id(x) for x in todo}
    while todo:
        more = [x for x in parents.get(id(todo.pop()), ()) if id(x) not in needed]
        needed.update(map(id, more))
        todo += more
    for x in found:
        if isinstance(x, Item) and x.identifier in (kinds.OBJECT, kinds.LAYER):
            x.children = {
                k: v
                for k, v in x.children.items()
                if id(v) in needed or not (isinstance(v, Item) and v.identifier == kinds.OBJECT)
            }


def _title(x: Any) -> str:
    if isinstance(x, Unsaved):
        return x.title
    return f"the Python function {x.__qualname__}" if inspect.isroutine(x) else nest.describe(x)


def _check_traced(x: Any, path: str) -> None:
    if isinstance(x, Function) and x.input_signature is None and not x.traces.all() and not x.names:
        raise GraphError(
            f"{path}, {x.title}, was never called, so it has no graph to save; call it once, or give it an "
            "input_signature"
        )


def _has_state(x: Any) -> bool:
    """Whether a structure contains variables or layers."""
    leaves = nest.flatten(x, is_leaf=lambda part: not isinstance(part, (list, tuple, dict)))
    return any(isinstance(leaf, (Variable, Layer)) for leaf in leaves)


def _losses_of(layer: Layer) -> Iterator[Any]:
    """Yields the functions of the losses of a layer's own variables."""
    for loss in layer._own_losses:
        if isinstance(loss, tuple):
            regularizer, variable = loss
            yield Function(functools.partial(regularizer, variable), (), name="loss")
        elif isinstance(loss, LEAVES):
            yield loss
        elif callable(loss):
            yield Function(loss, (), name="loss")


def _traced_call(layer: Layer, path: str) -> Function | None:
    """Returns the call of a layer with its traces; None before its first call."""
    if layer._first_call is None:
        return None
    # a copy with the same variables, so that the losses of the layer's last call stay
    call = Function(_Call(layer._copied({})), name="call", converts=False)
    given = list(_variants(layer, call.python_function))
    try:
        try:
            for args, kwargs in [nest.map_leaves(_with_any_batch, pair) for pair in given]:
                call.lower(*args, **kwargs)
        except Exception as e:
            for args, kwargs in given:  # raises the error of the layer itself, if it has one
                call.lower(*args, **kwargs)
            notices.warn(
                f"the call of {path} is saved for batches of the size of its first call, since it cannot be traced "
                f"for others ({type(e).__name__}: {e}); use hr.shape(x) in place of x.shape for dimensions that vary"
            )
    except Exception as e:
        e.add_note(f"while the call of {path}, {layer!r}, was traced to be saved")
        raise
    return call


def _with_any_batch(x: Any) -> Any:
    return TensorSpec((None, *x.shape[1:]), x.dtype) if isinstance(x, TensorSpec) and x.shape else x


class _Call:
    """Call of a layer, with the parameters of the layer's class.

    Args:
      layer: the layer.
    """

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        has_own = type(layer).__call__ not in (Layer.__call__, RNNCell.__call__)
        functools.update_wrapper(self, layer.__call__ if has_own else layer.call, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._layer(*args, **kwargs)


def _variants(layer: Layer, call: Callable[..., Any]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yields the arguments of the traces: those of the first call, with and without training."""
    assert layer._first_call is not None
    args, kwargs = layer._first_call
    yield args, kwargs
    if _TRAINING in inspect.signature(layer.call).parameters:
        bound = inspect.signature(call).bind(*args, **kwargs)
        bound.apply_defaults()
        for value in (False, True):
            if _TRAINING not in bound.arguments:
                yield args, {**kwargs, _TRAINING: value}
            elif bound.arguments[_TRAINING] is not value:
                bound.arguments[_TRAINING] = value
                yield bound.args, bound.kwargs


# *** variables ***


@nest.bounded
def variables_in(model: Any) -> list[Variable]:
    """Returns the different variables of a model, in their order.

    Raises:
      TypeError: a part of the model has no variables by its kind.
      GraphError: the model has functions, and variables of a graph.
      ValueError: the model is nested too deeply.
    """
    found: dict[int, Variable] = {}
    functions: list[Any] = []
    for v, f in _walk(model, "the model", set(), False):
        functions += [] if f is None else [f]
        if v is not None:
            key = id(v) if v.graph is not None else handle_of(v.handle)
            if f is None or key not in found:  # a function may know another object of the same variable
                found[key] = v
    of_graph = next((v for v in found.values() if v.graph is not None), None)
    if of_graph is not None and functions:
        raise GraphError(
            f"the variable {of_graph.name!r} belongs to a graph, and {functions[0]!r} uses variables outside of "
            "graphs; save the variables of the graph by themselves"
        )
    return list(found.values())


def _sorted_keys(x: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(x)
    except TypeError:  # keys of several kinds
        return list(x)


def _walk(x: Any, path: str, seen: set[int], is_within: bool) -> Iterator[tuple[Variable | None, Any]]:
    """Yields pairs of a variable and a function.

    A variable that a function captures comes with the function, another one with None, and a function itself with None
    in the place of the variable.
    """
    if isinstance(x, Variable):
        yield x, None
        return
    if isinstance(x, CALLABLES):
        yield None, x
        for trace in traces_of(x):
            yield from ((v, x) for v in variables_of(trace.concrete))
        return
    if isinstance(x, LEAVES) or kinds.encode_value(x) is not None or kinds.array_of(x) or id(x) in seen:
        return
    seen.add(id(x))
    parts: Mapping[Any, Any]
    if isinstance(x, Mapping):
        parts = {repr(key): x[key] for key in _sorted_keys(x)}
    elif isinstance(x, (list, tuple)):
        parts = dict(enumerate(x))
    elif hasattr(x, "variables") and (not isinstance(x, LoadedObject) or "variables" in vars(x)):
        parts = dict(enumerate(x.variables() if callable(x.variables) else x.variables))
    elif is_node(x):
        parts, is_within = children_of(x), True
    elif is_within or isinstance(x, Constructed):
        parts = {}
    else:
        raise TypeError(f"{path} is {_title(x)}; {_ALLOWED}")
    for key, part in parts.items():
        yield from _walk(part, f"{path}[{key}]", seen, is_within)
