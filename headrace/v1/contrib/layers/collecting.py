"""Collections of the layers' variables and outputs, and aliases of outputs; `tf.contrib.layers.utils`."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headrace.api import cond, tensors
from headrace.api.variable import Variable
from headrace.v1.contrib.framework.variables import model_variable
from headrace.v1.graph import Graph, get_default_graph, in_default_graph

# aliases of the tensors of a graph, by the tensors' names
_aliases: weakref.WeakKeyDictionary[Graph, dict[str, list[str]]] = weakref.WeakKeyDictionary()


def append_tensor_alias(tensor: Any, alias: str) -> Any:
    """Gives a tensor a further name for `convert_collection_to_dict`, and returns it.

    Source: TensorFlow's `tf.contrib.layers.utils.append_tensor_alias`.
    """
    _aliases.setdefault(tensor.graph, {}).setdefault(tensor.name, []).append(alias.rstrip("/"))
    return tensor


def get_tensor_aliases(tensor: Any) -> list[str]:
    """Returns the aliases of a tensor; its own name if it has none.

    Source: TensorFlow's `tf.contrib.layers.utils.get_tensor_aliases`.
    """
    name: str = tensor.name
    return _aliases.get(tensor.graph, {}).get(name) or [name.removesuffix(":0")]


def collect_named_outputs(collections: Any, alias: str, outputs: Any) -> Any:
    """Adds the outputs of a layer to collections under an alias, and returns them.

    Source: TensorFlow's `tf.contrib.layers.utils.collect_named_outputs`.
    """
    if collections:
        names = [collections] if isinstance(collections, str) else collections
        get_default_graph().add_to_collections(names, append_tensor_alias(outputs, alias))
    return outputs


def convert_collection_to_dict(collection: Any, clear_collection: bool = False) -> OrderedDict[str, Any]:
    """Returns the tensors of a collection by their aliases.

    Args:
      collection: name of the collection.
      clear_collection: whether the collection becomes empty.

    Source: TensorFlow's `tf.contrib.layers.utils.convert_collection_to_dict`.
    """
    graph = get_default_graph()
    found = OrderedDict((alias, t) for t in graph.get_collection(collection) for alias in get_tensor_aliases(t))
    if clear_collection:
        graph.clear_collection(collection)
    return found


def gather_tensors_aliases(tensors: Sequence[Any]) -> list[str]:
    """Returns the aliases of all tensors.

    Source: TensorFlow's `tf.contrib.layers.utils.gather_tensors_aliases`.
    """
    return [alias for t in tensors for alias in get_tensor_aliases(t)]


def collections_of(given: Any, kind: str) -> list[Any]:
    """Returns the collections for a kind of variables, such as "weights".

    Args:
      given: collections for all variables, or a dict from kinds to collections, or None.
      kind: the kind.
    """
    if isinstance(given, Mapping):
        given = given.get(kind)
    return [] if not given else [given] if isinstance(given, str) else list(given)


def getter_of(renamed: Mapping[str, str], given: Any = None) -> Callable[..., Any]:
    """Returns a custom getter that makes model variables under other names.

    Args:
      renamed: last part of a variable's name -> the part to use instead.
      given: the argument `variables_collections` of a layer.
    """

    def getter(get: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        path, _, last = name.rpartition("/")
        last = renamed.get(last, last)
        kept = [*(kwargs.pop("collections", None) or ()), *collections_of(given, last)]
        reuse, constraint = kwargs.pop("reuse", None), kwargs.pop("constraint", None)
        kwargs.pop("validate_shape", None)

        def made(name: str, **arguments: Any) -> Any:
            return get(name, reuse=reuse, constraint=constraint, **arguments)

        return model_variable(f"{path}/{last}" if path else last, *args, collections=kept, custom_getter=made, **kwargs)

    return getter


def constant_value(value_or_tensor_or_var: Any, dtype: Any = None) -> Any:
    """Returns the value of an argument that the graph determines, else None.

    Source: TensorFlow's `tf.contrib.layers.utils.constant_value`.
    """
    x = value_or_tensor_or_var
    if x is None:
        raise ValueError("value_or_tensor_or_var cannot be None")
    if isinstance(x, Variable):
        return None
    return tensors.constant_value(x) if tensors.is_tensor(x) else x


def static_cond(pred: Any, fn1: Callable[[], Any], fn2: Callable[[], Any]) -> Any:
    """Returns `fn1()` or `fn2()`, by a predicate that is known when the graph is built.

    Source: TensorFlow's `tf.contrib.layers.utils.static_cond`.
    """
    return fn1() if pred else fn2()


@in_default_graph
def smart_cond(pred: Any, fn1: Callable[[], Any], fn2: Callable[[], Any], name: str | None = None) -> Any:
    """Returns `fn1()` or `fn2()`, by a conditional only if the predicate is unknown.

    Source: TensorFlow's `tf.contrib.layers.utils.smart_cond`.
    """
    known = constant_value(pred)
    return cond.cond(pred, fn1, fn2, name=name) if known is None else static_cond(known, fn1, fn2)


def first_dimension(shape: Any, min_rank: int = 1) -> int | None:
    """Returns the first dimension of a shape, None if unknown.

    Source: TensorFlow's `tf.contrib.layers.utils.first_dimension`.
    """
    return _dimension(shape, 0, min_rank)


def last_dimension(shape: Any, min_rank: int = 1) -> int | None:
    """Returns the last dimension of a shape, None if unknown.

    Source: TensorFlow's `tf.contrib.layers.utils.last_dimension`.
    """
    return _dimension(shape, -1, min_rank)


def _dimension(shape: Any, at: int, min_rank: int) -> int | None:
    dims = list(shape)
    if len(dims) < min_rank:
        raise ValueError(f"rank of shape must be at least {min_rank} not: {len(dims)}")
    found = getattr(dims[at], "value", dims[at])
    return None if found is None else int(found)


def two_element_tuple(int_or_tuple: Any) -> tuple[int, int]:
    """Returns a pair of numbers for one number or two.

    Raises:
      ValueError: there are not one or two numbers.

    Source: TensorFlow's `tf.contrib.layers.utils.two_element_tuple`.
    """
    if hasattr(int_or_tuple, "__index__"):
        return int(int_or_tuple), int(int_or_tuple)
    found = [int(getattr(n, "value", n)) for n in int_or_tuple]
    if len(found) != 2:
        raise ValueError(f"Must be a list with 2 elements: {int_or_tuple}")
    return found[0], found[1]
