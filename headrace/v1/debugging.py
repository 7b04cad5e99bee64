"""TensorFlow 1's `tf.debugging`."""

# ruff: noqa: F401 - the names are for importers of this module

from typing import TYPE_CHECKING, Any

from headrace import flags, public_names
from headrace.v1 import session
from headrace.v1.check_ops import Assert as Assert
from headrace.v1.check_ops import assert_equal as assert_equal
from headrace.v1.check_ops import assert_greater as assert_greater
from headrace.v1.check_ops import assert_greater_equal as assert_greater_equal
from headrace.v1.check_ops import assert_integer as assert_integer
from headrace.v1.check_ops import assert_less as assert_less
from headrace.v1.check_ops import assert_less_equal as assert_less_equal
from headrace.v1.check_ops import assert_near as assert_near
from headrace.v1.check_ops import assert_negative as assert_negative
from headrace.v1.check_ops import assert_non_negative as assert_non_negative
from headrace.v1.check_ops import assert_non_positive as assert_non_positive
from headrace.v1.check_ops import assert_none_equal as assert_none_equal
from headrace.v1.check_ops import assert_positive as assert_positive
from headrace.v1.check_ops import assert_proper_iterable as assert_proper_iterable
from headrace.v1.check_ops import assert_rank as assert_rank
from headrace.v1.check_ops import assert_rank_at_least as assert_rank_at_least
from headrace.v1.check_ops import assert_rank_in as assert_rank_in
from headrace.v1.check_ops import assert_same_float_dtype as assert_same_float_dtype
from headrace.v1.check_ops import assert_scalar as assert_scalar
from headrace.v1.check_ops import assert_type as assert_type
from headrace.v1.check_ops import check_numerics as check_numerics
from headrace.v1.check_ops import is_non_decreasing as is_non_decreasing
from headrace.v1.check_ops import is_numeric_tensor as is_numeric_tensor
from headrace.v1.check_ops import is_strictly_increasing as is_strictly_increasing
from headrace.v1.check_ops import verify_tensor_all_finite as assert_all_finite
from headrace.v1.math_ops import is_finite as is_finite
from headrace.v1.math_ops import is_inf as is_inf
from headrace.v1.math_ops import is_nan as is_nan
from headrace.v1.session import defaults
from headrace.v1.shape_checks import assert_shapes as assert_shapes


def get_log_device_placement() -> Any:
    """Whether later sessions log the devices of operations. Source: `tf.debugging.get_log_device_placement`."""
    return bool(defaults.get("log_device_placement", False))


def set_log_device_placement(enabled: Any) -> None:
    """Sets whether later sessions log the devices of operations.

    Args:
      enabled: whether they do.

    Source: TensorFlow's `tf.debugging.set_log_device_placement`.
    """
    defaults["log_device_placement"] = enabled is True


def enable_check_numerics(stack_height_limit: int = 30, path_length_limit: int = 50) -> None:
    """Makes every run stop at the first result with a NaN or infinity.

    The operations may be older than the call.

    Args:
      stack_height_limit, path_length_limit: accepted as in TensorFlow; errors name the user's line.

    Source: TensorFlow's `tf.debugging.enable_check_numerics`.

    Example:
      >>> import headrace.v1 as tf
      >>> tf.debugging.enable_check_numerics()
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.log(tf.placeholder_with_default(-1.0, [])) * 2.0)  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      headrace.errors.InvalidArgumentError: ...
      >>> tf.debugging.disable_check_numerics()
    """
    session.BaseSession.run = _checked_run  # type: ignore[method-assign]


def disable_check_numerics() -> None:
    """Reverses `enable_check_numerics`. Source: TensorFlow's `tf.debugging.disable_check_numerics`."""
    if "run" in vars(session.BaseSession):
        del session.BaseSession.run


def _checked_run(self: Any, *args: Any, **kwargs: Any) -> Any:
    return super(session.BaseSession, self).run(*args, **{"check_numerics": True, **kwargs})


def is_traceback_filtering_enabled() -> Any:
    """Whether tracebacks leave out headrace's lines. Source: `tf.debugging.is_traceback_filtering_enabled`."""
    return flags.TRACEBACK.value == "short"


def enable_traceback_filtering() -> None:
    """Leaves headrace's lines out of tracebacks. Source: `tf.debugging.enable_traceback_filtering`."""
    flags.TRACEBACK.value = "short"


def disable_traceback_filtering() -> None:
    """Shows headrace's lines in tracebacks. Source: TensorFlow's `tf.debugging.disable_traceback_filtering`."""
    flags.TRACEBACK.value = "full"


# fmt: off
__all__ = [
    "Assert", "assert_equal", "assert_greater", "assert_greater_equal", "assert_integer", "assert_less",
    "assert_less_equal", "assert_near", "assert_negative", "assert_non_negative", "assert_non_positive",
    "assert_none_equal", "assert_positive", "assert_proper_iterable", "assert_rank", "assert_rank_at_least",
    "assert_rank_in", "assert_same_float_dtype", "assert_scalar", "assert_shapes", "assert_type", "check_numerics",
    "disable_check_numerics", "disable_traceback_filtering", "enable_check_numerics", "enable_traceback_filtering",
    "get_log_device_placement", "is_finite", "is_inf", "is_nan", "is_non_decreasing", "is_numeric_tensor",
    "is_strictly_increasing", "is_traceback_filtering_enabled", "set_log_device_placement",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
