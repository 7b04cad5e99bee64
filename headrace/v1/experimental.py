"""TensorFlow 1's `tf.experimental`, of which most belongs to TensorFlow 2."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.dtypes import experimental as _numbers

float8_e5m2 = _numbers.float8_e5m2
float8_e4m3fn = _numbers.float8_e4m3fn
float8_e4m3fnuz = _numbers.float8_e4m3fnuz
float8_e4m3b11fnuz = _numbers.float8_e4m3b11fnuz
float8_e5m2fnuz = _numbers.float8_e5m2fnuz
float4_e2m1fn = _numbers.float4_e2m1fn
int4, uint4, int2, uint2 = _numbers.int4, _numbers.uint4, _numbers.int2, _numbers.uint2


@contextlib.contextmanager
def async_scope() -> Iterator[None]:
    """Context of eager operations that may run later, whose errors it raises at its end.

    Every operation has run when its call returns, and has raised its own error.

    Source: TensorFlow's `tf.experimental.async_scope`.
    """
    yield


def async_clear_error() -> None:
    """Forgets the errors of operations that run later; none do.

    Source: TensorFlow's `tf.experimental.async_clear_error`.
    """


def enable_strict_mode() -> None:
    """Makes an error of every later warning about a deprecated name.

    Source: TensorFlow's `tf.experimental.enable_strict_mode`.
    """
    warnings.simplefilter("error", DeprecationWarning)


@contextlib.contextmanager
def function_executor_type(executor_type: str | None) -> Iterator[None]:
    """Context of functions that run on an executor of that kind.

    The choice has no effect on results; headrace chooses the engine of a step, which `hr.explain` names.

    Args:
      executor_type: "SINGLE_THREADED_EXECUTOR", "" or None.

    Source: TensorFlow's `tf.experimental.function_executor_type`.
    """
    yield


def output_all_intermediates(state: bool | None) -> None:
    """Does nothing: gradients keep the values of conditionals and loops that they need.

    Args:
      state: accepted as in TensorFlow.

    Source: TensorFlow's `tf.experimental.output_all_intermediates`.
    """


if TYPE_CHECKING:
    from headrace.v1 import extension_types as extension_type
    from headrace.v1.data.experimental import Optional
    from headrace.v1.dispatch import (
        dispatch_for_api,
        dispatch_for_binary_elementwise_apis,
        dispatch_for_binary_elementwise_assert_apis,
        dispatch_for_unary_elementwise_apis,
        unregister_dispatch_for,
    )
    from headrace.v1.extension_types.batching import ExtensionTypeBatchEncoder
    from headrace.v1.extension_types.extension_type import BatchableExtensionType, ExtensionType
    from headrace.v1.extension_types.specs import ExtensionTypeSpec
    from headrace.v1.ragged.dynamic_shape import DynamicRaggedShape
    from headrace.v1.ragged.row_partition import RowPartition
    from headrace.v1.structured_tensor import StructuredTensor

# Imported on first use, with data sets.
_LATER = {
    "BatchableExtensionType": "headrace.v1.extension_types.extension_type:BatchableExtensionType",
    "DynamicRaggedShape": "headrace.v1.ragged.dynamic_shape:DynamicRaggedShape",
    "ExtensionType": "headrace.v1.extension_types.extension_type:ExtensionType",
    "ExtensionTypeBatchEncoder": "headrace.v1.extension_types.batching:ExtensionTypeBatchEncoder",
    "ExtensionTypeSpec": "headrace.v1.extension_types.specs:ExtensionTypeSpec",
    "Optional": "headrace.v1.data.experimental:Optional",
    "RowPartition": "headrace.v1.ragged.row_partition:RowPartition",
    "StructuredTensor": "headrace.v1.structured_tensor:StructuredTensor",
    "extension_type": "headrace.v1.extension_types",
} | {
    name: f"headrace.v1.dispatch:{name}"
    for name in (
        "dispatch_for_api",
        "dispatch_for_binary_elementwise_apis",
        "dispatch_for_binary_elementwise_assert_apis",
        "dispatch_for_unary_elementwise_apis",
        "unregister_dispatch_for",
    )
}

# fmt: off
__all__ = [
    "BatchableExtensionType", "DynamicRaggedShape", "ExtensionType", "ExtensionTypeBatchEncoder", "ExtensionTypeSpec",
    "Optional", "RowPartition", "StructuredTensor", "async_clear_error", "async_scope", "dispatch_for_api",
    "dispatch_for_binary_elementwise_apis", "dispatch_for_binary_elementwise_assert_apis",
    "dispatch_for_unary_elementwise_apis", "enable_strict_mode", "extension_type", "float4_e2m1fn",
    "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
    "function_executor_type", "int2", "int4", "output_all_intermediates", "uint2", "uint4", "unregister_dispatch_for",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
