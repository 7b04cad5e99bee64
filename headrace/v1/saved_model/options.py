"""Options of TensorFlow 2's `tf.saved_model.save`, as data."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.errors import UnimplementedError


class VariablePolicy(enum.Enum):
    """Variables of several devices in a SavedModel.

    Source: TensorFlow's `tf.saved_model.experimental.VariablePolicy`.
    """

    NONE = None
    SAVE_VARIABLE_DEVICES = "save_variable_devices"
    EXPAND_DISTRIBUTED_VARIABLES = "expand_distributed_variables"

    @staticmethod
    def from_obj(obj: Any) -> VariablePolicy:
        """Returns the policy of a policy, its value as text, or None.

        Args:
          obj: the policy.

        Raises:
          ValueError: there is no such policy.
        """
        if isinstance(obj, VariablePolicy):
            return obj
        try:
            return VariablePolicy(None if obj is None else str(obj).lower())
        except ValueError:
            raise ValueError(f"Received invalid VariablePolicy value: {obj}.") from None


class SaveOptions:
    """Options of `tf.saved_model.save`, which headrace has not: the class keeps and checks them.

    Args:
      namespace_whitelist: names of namespaces of ops.
      save_debug_info: whether to save the places of operations in the program.
      function_aliases: further names of functions.
      experimental_debug_stripper: whether to leave out assertions.
      experimental_io_device: the device that writes the files.
      experimental_variable_policy: a `VariablePolicy` or its value.
      experimental_custom_gradients: whether to save custom gradients.
      experimental_image_format: not supported, as in TensorFlow's published builds.
      experimental_skip_saver: whether to leave out operations that save.
      experimental_sharding_callback: not supported.
      extra_tags: further tags of the graph.

    Raises:
      TypeError, ValueError: an option has an invalid value.

    Source: TensorFlow's `tf.saved_model.SaveOptions`.
    """

    def __init__(
        self,
        namespace_whitelist: list[str] | None = None,
        save_debug_info: bool = False,
        function_aliases: Mapping[str, Any] | None = None,
        experimental_debug_stripper: bool = False,
        experimental_io_device: str | None = None,
        experimental_variable_policy: Any = None,
        experimental_custom_gradients: bool = True,
        experimental_image_format: bool = False,
        experimental_skip_saver: bool = False,
        experimental_sharding_callback: Any = None,
        extra_tags: Iterable[str] | None = None,
    ) -> None:
        if namespace_whitelist is not None:
            if not isinstance(namespace_whitelist, list):
                raise TypeError(f"`namespace_whitelist` must be a list of strings. Got: {namespace_whitelist!r}.")
            for x in namespace_whitelist:
                if not isinstance(x, str):
                    raise ValueError(f"Whitelisted namespace must be a string. Got: {x!r} of type {type(x)}.")
        if experimental_image_format:
            raise ValueError("The option `experimental_image_format` is disabled in OSS.")
        if experimental_sharding_callback is not None:
            raise UnimplementedError("experimental_sharding_callback: `tf.train.Saver(sharded=True)` writes shards")
        self.namespace_whitelist = namespace_whitelist
        self.save_debug_info = save_debug_info
        self.function_aliases = function_aliases or {}
        self.experimental_debug_stripper = experimental_debug_stripper
        self.experimental_io_device = experimental_io_device
        self.experimental_variable_policy = VariablePolicy.from_obj(experimental_variable_policy)
        self.experimental_custom_gradients = experimental_custom_gradients
        self.experimental_image_format = experimental_image_format
        self.experimental_skip_saver = experimental_skip_saver
        self.experimental_sharding_callback = experimental_sharding_callback
        self.extra_tags = extra_tags
