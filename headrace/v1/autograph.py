"""TensorFlow 1's `tf.autograph`: source conversion of Python functions; see `headrace.autograph`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

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


class experimental:
    """Marks of functions for the conversion; TensorFlow's `tf.autograph.experimental`."""

    do_not_convert = staticmethod(do_not_convert)


__all__ = ["experimental", "set_verbosity", "to_code", "to_graph"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
