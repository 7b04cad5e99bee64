"""Functions that use the same variables in each call: `make_template`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from headrace.v1.variable_scopes import pure_scope, unique_scope_name, variable_scope


def make_template(
    name_: str,
    func_: Callable[..., Any],
    create_scope_now_: bool = False,
    unique_name_: str | None = None,
    custom_getter_: Callable[..., Any] | None = None,
    **kwargs: Any,
) -> Template:
    """A function that makes variables when it is called first, and finds them again later.

    Args:
      name_: the variable scope, made unique.
      func_: makes its variables with `get_variable`.
      create_scope_now_: whether the scope is below the one here and now, not the one of the first call.
      unique_name_: the variable scope, as it is.
      custom_getter_: see `variable_scope`.
      **kwargs: given to `func_` in each call.

    Source: TensorFlow's `tf.make_template`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     scale = tf.make_template("scale", lambda x: x * tf.get_variable("factor", []))
      ...     _ = scale(1.0), scale(2.0)
      ...     [v.name for v in tf.global_variables()]
      ['scale/factor:0']
    """
    f = functools.partial(func_, **kwargs) if kwargs else func_
    made = Template(name_, f, unique_name_, custom_getter_)
    if create_scope_now_:
        made.open()
    return made


class Template:
    """Function with shared variables, made by `make_template`."""

    def __init__(
        self, name: str, f: Callable[..., Any], unique_name: str | None, getter: Callable[..., Any] | None
    ) -> None:
        self._name, self._unique_name = name, unique_name
        self._f, self._getter = f, getter
        self._scope: Any = None
        self._is_called = False

    def open(self) -> None:
        """Makes the variable scope, below the current one."""
        name = self._unique_name or unique_scope_name(self._name)
        with pure_scope(name, name, custom_getter=self._getter) as scope:
            self._scope = scope

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function in its variable scope."""
        if self._scope is None:
            # the first call makes the variables, unless the scope around it says that they are there
            with variable_scope(self._unique_name, self._name, custom_getter=self._getter) as scope:
                self._scope = scope
                result = self._f(*args, **kwargs)
            self._is_called = True
            return result
        if not self._is_called:
            with variable_scope(self._scope):
                result = self._f(*args, **kwargs)
            self._is_called = True
            return result
        with variable_scope(self._scope, reuse=True):
            return self._f(*args, **kwargs)

    @property
    def variable_scope(self) -> Any:
        """The variable scope; None before the first call."""
        return self._scope

    @property
    def name(self) -> str:
        """The name that it was made with."""
        return self._name

    @property
    def variables(self) -> list[Any]:
        """The global variables that it has made."""
        return [] if self._scope is None else self._scope.global_variables()

    global_variables = variables

    @property
    def trainable_variables(self) -> list[Any]:
        """The trainable variables that it has made."""
        return [] if self._scope is None else self._scope.trainable_variables()

    @property
    def local_variables(self) -> list[Any]:
        """The local variables that it has made."""
        return [] if self._scope is None else self._scope.local_variables()
