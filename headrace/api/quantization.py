"""`hr.quantization`: real numbers with few bits.

`quantize` returns tensors of the quantized dtypes (`hr.qint8`, `hr.quint8`, ...), and `dequantize` converts them back.
*Fake* quantization keeps floats and rounds them to the values that such a dtype can represent, so that a model can be
trained for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from headrace import dtypes
from headrace.api import scopes


class Quantized(NamedTuple):
    """What `quantize` gives: the numbers, and the range that they stand for."""

    output: Any
    output_min: Any
    output_max: Any


def quantize(
    input: Any,
    min_range: Any,
    max_range: Any,
    T: Any,
    mode: str = "MIN_COMBINED",
    round_mode: str = "HALF_AWAY_FROM_ZERO",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
    ensure_minimum_range: float = 0.01,
) -> Quantized:
    """Floats as numbers of few bits.

    Args:
      input: float32.
      min_range, max_range: what the least and greatest number stand for: scalars, or with `axis` vectors of its length.
      T: the dtype: qint8, quint8, qint16, quint16 or qint32.
      mode: "MIN_COMBINED", "MIN_FIRST" or "SCALED" (0 stays 0).
      round_mode: "HALF_AWAY_FROM_ZERO" or, with "SCALED", "HALF_TO_EVEN".
      name: name of the operation; "QuantizeV2" if None.
      narrow_range: with "SCALED": whether the least number is not used.
      axis: the axis whose slices have ranges of their own; None: there is one range.
      ensure_minimum_range: a range that is smaller is widened to that.

    Returns:
      `Quantized`: the numbers and the range.

    Raises:
      InvalidArgumentError: in a run, if `max_range` is less than `min_range`.

    Source: TensorFlow's `tf.quantization.quantize`.

    Example:
      >>> import headrace as hr
      >>> q = hr.quantization.quantize([-1.0, 0.0, 1.0], -1.0, 1.0, hr.qint8, "SCALED")
      >>> hr.quantization.dequantize(*q, "SCALED").dtype
      headrace.float32
    """
    attrs = {
        "T": dtypes.as_dtype(T),
        "mode": mode,
        "round_mode": round_mode,
        "narrow_range": narrow_range,
        "axis": -1 if axis is None else axis,
        "ensure_minimum_range": ensure_minimum_range,
    }
    args = (input, min_range, max_range)
    return Quantized(*scopes.builder(*args).make("QuantizeV2", args, attrs, name))


def dequantize(
    input: Any,
    min_range: Any,
    max_range: Any,
    mode: str = "MIN_COMBINED",
    name: str | None = None,
    axis: int | None = None,
    narrow_range: bool = False,
    dtype: Any = dtypes.float32,
) -> Any:
    """The floats that numbers of few bits stand for.

    Args:
      input: of a quantized dtype.
      min_range, max_range, mode, axis, narrow_range: as for `quantize`.
      name: name of the operation; "Dequantize" if None.
      dtype: float32 or (with "MIN_COMBINED") bfloat16.

    Source: TensorFlow's `tf.quantization.dequantize`.
    """
    attrs = {
        "mode": mode,
        "narrow_range": narrow_range,
        "axis": -1 if axis is None else axis,
        "dtype": dtypes.as_dtype(dtype),
    }
    args = (input, min_range, max_range)
    return scopes.builder(*args).make("Dequantize", args, attrs, name)


def _through(
    op: str, input: Any, input_min: Any, input_max: Any, attrs: dict[str, Any], axis: int | None, name: str | None
) -> Any:
    """An op that quantizes and takes back at once."""
    b = scopes.builder(input, input_min, input_max)
    x = b.tensor(input, None, "input")
    if axis is not None and axis < 0 and x.shape is not None:
        axis += len(x.shape)
    attrs["axis"] = -1 if axis is None else axis
    return b.make(op, (x, input_min, input_max), attrs, name)


def quantize_and_dequantize(
    input: Any,
    input_min: Any,
    input_max: Any,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Any:
    """Floats, rounded to what `num_bits` bits can tell apart. The gradient is handed on wherever it comes from.

    Args: see `quantize_and_dequantize_v2`; `name` is "QuantizeAndDequantizeV2" if None.

    Source: TensorFlow's `tf.quantization.quantize_and_dequantize`.
    """
    attrs = {
        "signed_input": signed_input,
        "num_bits": num_bits,
        "range_given": range_given,
        "round_mode": round_mode,
        "narrow_range": narrow_range,
    }
    return _through("QuantizeAndDequantizeV2", input, input_min, input_max, attrs, axis, name)


def quantize_and_dequantize_v2(
    input: Any,
    input_min: Any,
    input_max: Any,
    signed_input: bool = True,
    num_bits: int = 8,
    range_given: bool = False,
    round_mode: str = "HALF_TO_EVEN",
    name: str | None = None,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Any:
    """Floats, rounded to what `num_bits` bits can tell apart. The gradient is 0 where they are out of the range.

    Args:
      input: floats.
      input_min, input_max: the range, if `range_given`: scalars, or with `axis` vectors of its length.
      signed_input: whether there are negative numbers.
      num_bits: how many bits.
      range_given: whether the range is given, or that of `input` is taken.
      round_mode: "HALF_TO_EVEN" or "HALF_UP".
      name: name of the operation; "QuantizeAndDequantizeV4" if None.
      narrow_range: whether the least number is not used.
      axis: the axis whose slices have ranges of their own; None: there is one range.

    Source: TensorFlow's `tf.quantization.quantize_and_dequantize_v2`.

    Example:
      >>> import headrace as hr
      >>> hr.quantization.quantize_and_dequantize_v2([0.2, 0.9], -1.0, 1.0, num_bits=2, range_given=True)
      <EagerTensor shape=[2] dtype=float32: array([0., 1.], dtype=float32)>
    """
    attrs = {
        "signed_input": signed_input,
        "num_bits": num_bits,
        "range_given": range_given,
        "round_mode": round_mode,
        "narrow_range": narrow_range,
    }
    return _through("QuantizeAndDequantizeV4", input, input_min, input_max, attrs, axis, name)


def fake_quant_with_min_max_args(
    inputs: Any, min: float = -6, max: float = 6, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Any:
    """Floats, rounded to the levels that `num_bits` bits have over a range, and cut off at its ends.

    Args:
      inputs: float32.
      min, max: the range, which must contain a number below `max`; it is moved a little so that 0 is a level.
      num_bits: 2 to 16.
      narrow_range: whether there is one level less.
      name: name of the operation.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_args`.

    Example:
      >>> import headrace as hr
      >>> hr.quantization.fake_quant_with_min_max_args([-7.0, 0.0, 7.0], -3.0, 4.5, num_bits=4)
      <EagerTensor shape=[3] dtype=float32: array([-3. ,  0. ,  4.5], dtype=float32)>
    """
    attrs = {"min": min, "max": max, "num_bits": num_bits, "narrow_range": narrow_range}
    return scopes.builder(inputs).make("FakeQuantWithMinMaxArgs", (inputs,), attrs, name)


def fake_quant_with_min_max_args_gradient(
    gradients: Any,
    inputs: Any,
    min: float = -6,
    max: float = 6,
    num_bits: int = 8,
    narrow_range: bool = False,
    name: str | None = None,
) -> Any:
    """The gradient of `fake_quant_with_min_max_args`: that of its result where `inputs` are in the range, else 0.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_args_gradient`.
    """
    attrs = {"min": min, "max": max, "num_bits": num_bits, "narrow_range": narrow_range}
    args = (gradients, inputs)
    return scopes.builder(*args).make("FakeQuantWithMinMaxArgsGradient", args, attrs, name)


def _fake(op: str, args: tuple[Any, ...], num_bits: int, narrow_range: bool, name: str | None) -> Any:
    return scopes.builder(*args).make(op, args, {"num_bits": num_bits, "narrow_range": narrow_range}, name)


def fake_quant_with_min_max_vars(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Any:
    """`fake_quant_with_min_max_args` with a range of two float32 scalars, which have gradients.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars`.
    """
    return _fake("FakeQuantWithMinMaxVars", (inputs, min, max), num_bits, narrow_range, name)


def fake_quant_with_min_max_vars_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: Any = None
) -> Any:
    """The gradients of `fake_quant_with_min_max_vars` by its inputs and the two ends of the range.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars_gradient`.
    """
    args = (gradients, inputs, min, max)
    return _fake("FakeQuantWithMinMaxVarsGradient", args, num_bits, narrow_range, name)


def fake_quant_with_min_max_vars_per_channel(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Any:
    """`fake_quant_with_min_max_vars` with a range for each element of the last axis: `min` and `max` are vectors.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars_per_channel`.
    """
    return _fake("FakeQuantWithMinMaxVarsPerChannel", (inputs, min, max), num_bits, narrow_range, name)


def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: Any = None
) -> Any:
    """The gradients of `fake_quant_with_min_max_vars_per_channel` by its inputs and the ends of the ranges.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars_per_channel_gradient`.
    """
    args = (gradients, inputs, min, max)
    return _fake("FakeQuantWithMinMaxVarsPerChannelGradient", args, num_bits, narrow_range, name)
