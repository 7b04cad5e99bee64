"""`arg_scope`: default values of arguments for the functions that are called in a scope."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

Scope: TypeAlias = dict[str, dict[str, Any]]  # key of a function -> values of its arguments

_KEY = "_key_op"  # attribute of decorated functions: the key in a scope

_current: contextvars.ContextVar[Scope] = contextvars.ContextVar("headrace_arg_scope")


def arg_scope_func_key(op: Callable[..., Any]) -> str:
    """Returns the key of a function in the result of `current_arg_scope`.

    Source: TensorFlow's `tf.contrib.framework.arg_scope_func_key`.
    """
    return getattr(op, _KEY, "") or f"{getattr(op, '__module__', '')}.{getattr(op, '__qualname__', repr(op))}"


def add_arg_scope(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorates a function, so that `arg_scope` may set its arguments.

    Source: TensorFlow's `tf.contrib.framework.add_arg_scope`.
    """
    key = arg_scope_func_key(func)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **{**current_arg_scope().get(key, {}), **kwargs})

    setattr(call, _KEY, key)
    return call


def has_arg_scope(func: Callable[..., Any]) -> bool:
    """Whether `func` is decorated with `add_arg_scope`.

    Source: TensorFlow's `tf.contrib.framework.has_arg_scope`.
    """
    return hasattr(func, _KEY)


def arg_scoped_arguments(func: Callable[..., Any]) -> list[str]:
    """Returns the arguments of a decorated function that `arg_scope` may set: those with a default.

    Raises:
      ValueError: the function is not decorated.

    Source: TensorFlow's `tf.contrib.framework.arg_scoped_arguments`.
    """
    _checked(func)
    parameters = inspect.signature(func).parameters.values()
    return [p.name for p in parameters if p.default is not inspect.Parameter.empty]


def current_arg_scope() -> Scope:
    """Returns the values of the scope: key of a function -> arguments.

    Source: TensorFlow's `tf.contrib.framework.current_arg_scope`.
    """
    return _current.get({})


@contextlib.contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[Scope]:
    """Sets default arguments of functions for the calls in a `with` block.

    Args:
      list_ops_or_scope: a list or tuple of functions decorated with `add_arg_scope`; or the scope that another
        `arg_scope` yielded, which is entered again.
      **kwargs: values of arguments. An inner scope overrides an outer one, and an argument of the call both.

    Yields:
      The scope.

    Raises:
      TypeError: the first argument is neither a list, a tuple nor a scope.
      ValueError: a function is not decorated; or a scope is entered again with arguments.

    Source: TensorFlow's `tf.contrib.framework.arg_scope`.

    Example:
      >>> import headrace.v1 as tf
      >>> slim = tf.contrib.slim
      >>> with tf.Graph().as_default(), slim.arg_scope([slim.fully_connected], activation_fn=None):
      ...     slim.fully_connected(tf.ones([1, 2]), 3).op.type
      'BiasAdd'
    """
    if isinstance(list_ops_or_scope, Mapping):
        if kwargs:
            raise ValueError("When attempting to re-use a scope by suppling a dictionary, kwargs must be empty.")
        scope: Scope = {key: dict(values) for key, values in list_ops_or_scope.items()}
    elif isinstance(list_ops_or_scope, (list, tuple)):
        scope = dict(current_arg_scope())
        for op in list_ops_or_scope:
            key = _checked(op)
            scope[key] = {**scope.get(key, {}), **kwargs}
    else:
        raise TypeError(
            f"list_ops_or_scope must either be a list/tuple or reused scope (i.e. dict), got {list_ops_or_scope!r}"
        )
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)


def _checked(op: Callable[..., Any]) -> str:
    if not has_arg_scope(op):
        raise ValueError(f"{arg_scope_func_key(op)} is not decorated with @add_arg_scope")
    return arg_scope_func_key(op)
