"""TensorFlow 1's messages for sessions and runs: their fields that sessions of headrace understand.

The messages are those of `headrace.pb`, with all of TensorFlow's fields, so that programs that set them run. These
fields have an effect:

- `ConfigProto`: `device_count`, `allow_soft_placement`, `log_device_placement`, `operation_timeout_in_ms`,
  `device_filters`, the two numbers of threads, and of `graph_options` the fields `enable_recv_scheduling` and
  `enable_bfloat16_sendrecv`.
- `RunOptions`: `timeout_in_ms` and `trace_level`. (`hr.RunOptions` has more, and every session takes it.)
- `RunMetadata`: a run with a trace fills `step_stats`. (`hr.RunMetadata` has more, and every session fills it.)

Example:
  >>> import headrace.v1 as tf
  >>> config = tf.ConfigProto(allow_soft_placement=True)
  >>> config.gpu_options.allow_growth = True
  >>> config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
  >>> print(str(config).rstrip())
  gpu_options {
    allow_growth: true
  }
  allow_soft_placement: true
  graph_options {
    optimizer_options {
      global_jit_level: ON_1
    }
  }
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pb import ConfigProto

_FIELDS: Final = (
    "operation_timeout_in_ms", "allow_soft_placement", "log_device_placement", "inter_op_parallelism_threads",
    "intra_op_parallelism_threads",
)  # fmt: skip
_FIELDS_OF_GRAPHS: Final = ("enable_bfloat16_sendrecv", "enable_recv_scheduling")


def settings(config: ConfigProto | None) -> dict[str, Any]:
    """Returns the config of `headrace.Session` with the effect of a message.

    Args:
      config: headrace's message or TensorFlow's; None: one without fields.

    Raises:
      TypeError: an argument that is no such message.
    """
    if config is None:
        return {"allow_soft_placement": False}  # without the messages, which take long to load
    if getattr(getattr(config, "DESCRIPTOR", None), "name", None) != "ConfigProto":
        raise TypeError(f"config must be a tf.ConfigProto, got {config!r} ({type(config).__name__})")
    given = {name: getattr(config, name) for name in _FIELDS}
    of_graphs = {name: getattr(config.graph_options, name) for name in _FIELDS_OF_GRAPHS}
    lists = {"device_count": _device_count(config.device_count), "device_filters": list(config.device_filters)}
    return {**given, **of_graphs, **lists}


def _device_count(given: Mapping[str, int]) -> dict[str, int]:
    """Returns the numbers of devices of the registered types; TensorFlow ignores other types."""
    found = dict(given)
    if set(found) - {"CPU"}:
        from headrace import plugins
        from headrace.execute.devices import device_types

        plugins.load()
        found = {type: n for type, n in found.items() if type in device_types}
    return found
