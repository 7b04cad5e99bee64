"""TensorFlow 1's `tf.quantization`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api import quantization
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph
from headrace.v1.plain_ops import quantized_concat as quantized_concat

quantize = in_default_graph(quantization.quantize)
quantize_v2 = named(
    quantization.quantize,
    "input min_range max_range T mode name round_mode narrow_range axis ensure_minimum_range",
    "quantize_v2",
)
dequantize = in_default_graph(quantization.dequantize)
quantize_and_dequantize = in_default_graph(quantization.quantize_and_dequantize)
quantize_and_dequantize_v2 = in_default_graph(quantization.quantize_and_dequantize_v2)
fake_quant_with_min_max_args = in_default_graph(quantization.fake_quant_with_min_max_args)
fake_quant_with_min_max_args_gradient = in_default_graph(quantization.fake_quant_with_min_max_args_gradient)
fake_quant_with_min_max_vars = in_default_graph(quantization.fake_quant_with_min_max_vars)
fake_quant_with_min_max_vars_gradient = in_default_graph(quantization.fake_quant_with_min_max_vars_gradient)
fake_quant_with_min_max_vars_per_channel = in_default_graph(quantization.fake_quant_with_min_max_vars_per_channel)
fake_quant_with_min_max_vars_per_channel_gradient = in_default_graph(
    quantization.fake_quant_with_min_max_vars_per_channel_gradient
)

# fmt: off
__all__ = [
    "dequantize", "fake_quant_with_min_max_args", "fake_quant_with_min_max_args_gradient",
    "fake_quant_with_min_max_vars", "fake_quant_with_min_max_vars_gradient", "fake_quant_with_min_max_vars_per_channel",
    "fake_quant_with_min_max_vars_per_channel_gradient", "quantize", "quantize_and_dequantize",
    "quantize_and_dequantize_v2", "quantize_v2", "quantized_concat",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
