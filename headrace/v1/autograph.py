"""TensorFlow 1's `tf.autograph`: source conversion of Python functions; see `headrace.autograph`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace import public_names
from headrace.autograph import convert, do_not_convert
from headrace.autograph import to_code as _to_code


def to_graph(entity: Callable[..., Any], recursive: bool = True, **options: Any) -> Callable[..., Any]:
    """Returns the converted form of a function, which builds graphs.

    Args:
      entity: the function.
      recursive: accepted as in TensorFlow; functions that it calls are always converted.
      options: accepted as in TensorFlow, without effect.

    Raises:
      AutographError: there is no source, or a construct has no conversion.

    Source: TensorFlow's `tf.autograph.to_graph`.
    """
    return convert(entity)


def to_code(entity: Callable[..., Any], recursive: bool = True, **options: Any) -> str:
    """Returns the converted form of a function as text.

    Args:
      entity, recursive, options: see `to_graph`.

    Source: TensorFlow's `tf.autograph.to_code`.
    """
    return _to_code(entity)


def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """Does nothing: the conversion writes no log.

    Args:
      level, alsologtostdout: accepted as in TensorFlow.

    Source: TensorFlow's `tf.autograph.set_verbosity`.
    """


def trace(*args: Any) -> None:
    """Prints values while a function is converted; tensors have no value then.

    Args:
      args: the values.

    Source: TensorFlow's `tf.autograph.trace`.
    """
    print(*args)


def _do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """Returns a function that stays as it is when a converted function calls it.

    Args:
      func: the function; None: a decorator is returned.

    Source: TensorFlow's `tf.autograph.experimental.do_not_convert`.
    """
    return do_not_convert if func is None else do_not_convert(func)


_UNSPECIFIED: Final[Any] = object()


def _set_loop_options(
    parallel_iterations: int = _UNSPECIFIED,
    swap_memory: bool = _UNSPECIFIED,
    maximum_iterations: Any = _UNSPECIFIED,
    shape_invariants: Any = _UNSPECIFIED,
) -> None:
    """Sets arguments of the loop around the call, if it becomes one of a graph.

    Args:
      parallel_iterations, swap_memory, maximum_iterations: see `headrace.while_loop`.
      shape_invariants: pairs of a variable of the loop and a shape that covers those of all iterations.

    Raises:
      AutographError: `shape_invariants` has a tensor that is no variable of the loop.

    Source: TensorFlow's `tf.autograph.experimental.set_loop_options`.
    """
    from headrace.autograph.operators.loops import set_loop_options  # those of the conversion are loaded by it

    given = {
        "parallel_iterations": parallel_iterations,
        "swap_memory": swap_memory,
        "maximum_iterations": maximum_iterations,
        "shape_invariants": shape_invariants,
    }
    set_loop_options(**{name: x for name, x in given.items() if x is not _UNSPECIFIED})


class experimental:
    """Marks of functions for the conversion; TensorFlow's `tf.autograph.experimental`."""

    do_not_convert = staticmethod(_do_not_convert)
    set_loop_options = staticmethod(_set_loop_options)

    class Feature(enum.Enum):
        """Parts of the conversion, of which headrace always has all.

        Source: TensorFlow's `tf.autograph.experimental.Feature`.
        """

        ALL = "ALL"
        AUTO_CONTROL_DEPS = "AUTO_CONTROL_DEPS"
        ASSERT_STATEMENTS = "ASSERT_STATEMENTS"
        BUILTIN_FUNCTIONS = "BUILTIN_FUNCTIONS"
        EQUALITY_OPERATORS = "EQUALITY_OPERATORS"
        LISTS = "LISTS"
        NAME_SCOPES = "NAME_SCOPES"

        @classmethod
        def all(cls) -> tuple[experimental.Feature, ...]:
            """Returns all parts."""
            return tuple(cls)

        @classmethod
        def all_but(cls, exclude: Any) -> tuple[experimental.Feature, ...]:
            """Returns all parts but some.

            Args:
              exclude: a part, or several.
            """
            left = {exclude} if isinstance(exclude, cls) else set(exclude)
            return tuple(set(cls) - left - {cls.ALL})


__all__ = ["experimental", "set_verbosity", "to_code", "to_graph", "trace"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
