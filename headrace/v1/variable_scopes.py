"""Variable scopes: prefixes of variable names, and defaults of `get_variable`.

The current scope belongs to the thread (or task), and so does the count that makes default names unique, as in
TensorFlow 1. Only variable scopes, not name scopes, affect the names of variables.
"""

from __future__ import annotations

import contextlib
import contextvars
import enum
import functools
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from headrace import dtypes
from headrace.api import scopes
from headrace.dtypes import as_dtype
from headrace.ir.graph import Tensor
from headrace.v1.graph import Graph, GraphKeys, get_default_graph


class Reuse(enum.Enum):
    """Values of `reuse`: treatment of existing variables by a variable scope."""

    AUTO_REUSE = 1

    def __repr__(self) -> str:
        return "tf.AUTO_REUSE"


AUTO_REUSE = Reuse.AUTO_REUSE

Getter: TypeAlias = Callable[..., Any]

_INHERITED = ("initializer", "regularizer", "caching_device", "partitioner", "dtype", "use_resource")

_entered: contextvars.ContextVar[tuple[tuple[Graph, VariableScope], ...]] = contextvars.ContextVar(
    "headrace_variable_scopes", default=()
)


class VariableScope:
    """Variable scope: a prefix of variable names, and defaults of `get_variable`.

    Attributes:
      name: prefix ("" for the outermost scope).
      original_name_scope: the name scope that was opened when this scope was first entered.
      reuse: None or False: `get_variable` creates variables. True: it returns existing ones. AUTO_REUSE: it returns
        existing ones and creates others.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype, constraint: defaults of
        `get_variable`.

    Source: TensorFlow's `tf.VariableScope`.
    """

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Getter | None = None,
        name_scope: str = "",
        dtype: Any = dtypes.float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self.name, self.reuse = name, reuse
        self.initializer, self.regularizer, self.constraint = initializer, regularizer, constraint
        self.caching_device, self.partitioner, self.custom_getter = caching_device, partitioner, custom_getter
        self.original_name_scope = name_scope
        self.dtype = as_dtype(dtype)
        self.use_resource = use_resource

    def reuse_variables(self) -> None:
        """Sets `reuse` to True."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Sets the default initializer."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        """Sets the default regularizer."""
        self.regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        """Sets the default device for copies of the variables' values."""
        self.caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        """Sets the default partitioner.

        Args:
          partitioner: a function from shape and dtype to the number of parts along each axis, or None.
        """
        self.partitioner = partitioner

    def set_custom_getter(self, custom_getter: Getter | None) -> None:
        """Sets the function that wraps `get_variable`.

        Args:
          custom_getter: the function, or None.
        """
        self.custom_getter = custom_getter

    def set_use_resource(self, use_resource: bool | None) -> None:
        """Sets `use_resource`, the default of variables.

        Args:
          use_resource: a bool.
        """
        self.use_resource = use_resource

    def set_dtype(self, dtype: Any) -> None:
        """Sets the default dtype."""
        self.dtype = as_dtype(dtype)

    def get_collection(self, name: Any) -> list[Any]:
        """Returns the elements of a collection whose names are in this scope.

        Args:
          name: name of the collection.
        """
        return get_default_graph().get_collection(name, self.name + "/" if self.name else None)

    def global_variables(self) -> list[Any]:
        """Returns the global variables in this scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """Returns the local variables in this scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def trainable_variables(self) -> list[Any]:
        """Returns the trainable variables in this scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def __repr__(self) -> str:
        return f"<VariableScope {self.name!r} reuse={self.reuse!r}>"


class _Scopes(threading.local):
    """Variable scopes of a graph in one thread: root and entry counts."""

    def __init__(self) -> None:
        self.root = VariableScope(False)  # `reuse_variables` may change the root, too
        self.counts: dict[str, int] = {}


def _scopes_of(graph: Graph) -> _Scopes:
    if graph.variable_scopes is None:
        graph.variable_scopes = _Scopes()
    found: _Scopes = graph.variable_scopes
    return found


def get_variable_scope() -> VariableScope:
    """Returns the current variable scope.

    Source: TensorFlow's `tf.get_variable_scope`.
    """
    graph = get_default_graph()
    for g, scope in reversed(_entered.get()):
        if g is graph:
            return scope
    return _scopes_of(graph).root


# *** scopes ***


class pure_scope:
    """Enters a variable scope without a name scope.

    On exit, the counts of default names in the scope are reset.

    Args:
      name_or_scope: a name in the current scope, or a scope to enter again.
      name_scope: the original name scope of a new scope.
      reuse: see `variable_scope`.
      **settings: attributes of the scope. None: those of the outer scope, or of the scope that is entered again.
    """

    def __init__(
        self, name_or_scope: str | VariableScope, name_scope: str = "", reuse: Any = None, **settings: Any
    ) -> None:
        self._name_or_scope, self._name_scope = name_or_scope, name_scope
        self._reuse, self._settings = reuse, settings

    def __enter__(self) -> VariableScope:
        graph, outer = get_default_graph(), get_variable_scope()
        if isinstance(self._name_or_scope, VariableScope):
            base, name, opened = self._name_or_scope, self._name_or_scope.name, self._name_or_scope.original_name_scope
        else:
            base, opened = outer, self._name_scope
            name = f"{outer.name}/{self._name_or_scope}" if outer.name else self._name_or_scope
        # a constraint is no default of the scopes inside, as in TensorFlow
        settings = {k: getattr(base, k) for k in _INHERITED}
        settings.update((k, v) for k, v in self._settings.items() if v is not None)
        settings["custom_getter"] = _nested(base.custom_getter, self._settings.get("custom_getter"))
        scope = VariableScope(self._reuse or base.reuse, name, name_scope=opened, **settings)
        self._store = _scopes_of(graph)
        self._store.counts[name] = self._store.counts.get(name, 0) + 1
        self._counts = dict(self._store.counts)
        self._around, self._here = _entered.get(), (graph, scope)
        _entered.set((*self._around, self._here))
        return scope

    def __exit__(self, *_: Any) -> None:
        """Leaves the scope.

        Raises:
          RuntimeError: a scope that was entered later has not been left.
        """
        name = self._here[1].name
        if _entered.get()[-1:] != (self._here,):
            raise RuntimeError(f"Improper nesting of variable_scope: '{name}' is left before a scope entered later")
        _entered.set(self._around)
        counts = self._store.counts
        if isinstance(self._name_or_scope, VariableScope):
            self._store.counts = self._counts
        else:
            self._store.counts = {n: i for n, i in counts.items() if not n.startswith(name + "/")}


def unique_scope_name(prefix: str) -> str:
    """Returns `prefix`, with a number appended if the current scope already has such a scope."""
    graph, outer = get_default_graph(), get_variable_scope().name
    full = f"{outer}/{prefix}" if outer else prefix
    counts, i, name = _scopes_of(graph).counts, 0, prefix
    while counts.get(full if not i else f"{full}_{i}", 0):
        i += 1
        name = f"{prefix}_{i}"
    return name


class variable_scope:
    """Enters a variable scope, with a prefix of variable names and defaults of `get_variable`.

    The object is a context manager that yields the `VariableScope`. It also enters a name scope. If it is entered
    again, the variable scope is the same, and the name scope is new.

    Args:
      name_or_scope: a name in the current scope, or a scope to enter again.
      default_name: name that is used if `name_or_scope` is None. It is made unique.
      values: tensors whose graph is entered.
      initializer, regularizer, caching_device, partitioner, custom_getter, dtype: defaults of `get_variable`. None:
        those of the outer scope. A custom getter calls those of the outer scopes.
      reuse: True: `get_variable` returns existing variables, and fails for others. AUTO_REUSE: it returns existing
        variables and creates others. None or False: the value of the outer scope.
      use_resource: whether variables are resource variables. None: as in the outer scope.
      constraint: default of `get_variable` in this scope, but not in inner scopes.
      auxiliary_name_scope: whether to enter a name scope with the same name.

    Raises:
      TypeError: neither name is given, or a name has another type.
      ValueError: `reuse=True` is given with a default name.

    Source: TensorFlow's `tf.variable_scope`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     with tf.variable_scope("layer"):
      ...         v = tf.get_variable("v", [2])
      ...     with tf.variable_scope("layer", reuse=True):
      ...         v.name, tf.get_variable("v") is v
      ('layer/v:0', True)
    """

    def __init__(
        self,
        name_or_scope: str | VariableScope | None,
        default_name: str | None = None,
        values: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Getter | None = None,
        reuse: Any = None,
        dtype: Any = None,
        use_resource: bool | None = None,
        constraint: Any = None,
        auxiliary_name_scope: bool = True,
    ) -> None:
        if name_or_scope is None and default_name is None:
            raise TypeError("variable_scope needs a name_or_scope, or a default_name")
        if not any(reuse is known for known in (None, True, False, AUTO_REUSE)):
            raise ValueError(f"reuse must be True, False, None or tf.AUTO_REUSE, got {reuse!r}")
        if not isinstance(auxiliary_name_scope, bool):
            raise TypeError(f"auxiliary_name_scope must be True or False, got {auxiliary_name_scope!r}")
        self._name_or_scope, self._default_name = name_or_scope, default_name
        self._values, self._opens_name_scope = values, auxiliary_name_scope
        self._is_default = name_or_scope is None
        self._name_scope: str | None = None  # the first one opened, once entered
        self._settings = {
            "initializer": initializer, "regularizer": regularizer, "caching_device": caching_device,
            "partitioner": partitioner, "custom_getter": custom_getter, "reuse": reuse, "dtype": dtype,
            "use_resource": use_resource, "constraint": constraint,
        }  # fmt: skip
        self._open: list[contextlib.ExitStack] = []

    def __enter__(self) -> VariableScope:
        if self._is_default and self._settings["reuse"]:
            raise ValueError("reuse=True cannot be used without a name_or_scope: a default name is that of a new scope")
        with contextlib.ExitStack() as stack:
            graph = _graph_of(self._values)
            if graph is not None:
                stack.enter_context(graph)
            opened = self._enter_name_scope(stack)
            if self._name_or_scope is None:
                assert self._default_name is not None
                self._name_or_scope = unique_scope_name(self._default_name)
            self._name_scope = opened if self._name_scope is None else self._name_scope
            scope = stack.enter_context(pure_scope(self._name_or_scope, self._name_scope, **self._settings))
            self._open.append(stack.pop_all())
        return scope

    def __exit__(self, *error: Any) -> None:
        self._open.pop().__exit__(*error)

    def _enter_name_scope(self, stack: contextlib.ExitStack) -> str:
        """Enters the name scope. A default name is made unique separately from the variable scope."""
        given = self._name_or_scope
        if given is not None and not isinstance(given, (str, VariableScope)):
            raise TypeError(f"name_or_scope must be a string or a VariableScope, got {given!r}")
        if not self._opens_name_scope:
            current = get_default_graph().get_name_scope()
            return f"{current}/" if current else ""
        label = given.name.rpartition("/")[2] if isinstance(given, VariableScope) else given
        if self._is_default:
            label = self._default_name
        return stack.enter_context(scopes.name_scope(label)) if label else ""


def _graph_of(values: Any) -> Graph | None:
    """Returns the graph to enter, of `values` or the default one, or None."""
    for t in values or ():
        if isinstance(t, Tensor) and isinstance(t.graph, Graph):
            if t.graph is not get_default_graph():
                return t.graph
            break
    return get_default_graph() if scopes.is_outside() and not scopes.is_eager_call() else None


def _nested(outer: Getter | None, inner: Getter | None) -> Getter | None:
    """Returns a custom getter that calls the inner getter, which calls the outer one."""
    if outer is None or inner is None:
        return inner or outer

    def both(getter: Getter, *args: Any, **kwargs: Any) -> Any:
        return inner(functools.partial(outer, getter), *args, **kwargs)

    return both


def variable_op_scope(
    values: Any, name_or_scope: Any, default_name: str | None = None, *args: Any, **kwargs: Any
) -> Any:
    """Older name of `variable_scope`, with another order of arguments.

    Source: TensorFlow's `tf.variable_op_scope`.
    """
    return variable_scope(name_or_scope, default_name, values, *args, **kwargs)
