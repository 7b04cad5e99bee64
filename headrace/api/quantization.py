"""`hr.quantization`: real numbers with few bits.

`quantize` returns tensors of the quantized dtypes (`hr.qint8`, `hr.quint8`, ...), and `dequantize` converts them back.
*Fake* quantization keeps floats and rounds them to the values that such a dtype can represent, so that a model can be
trained for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import dtypes, public_names
from headrace.api import scopes
from headrace.ir.tensor_type import Tensor


class Quantized(NamedTuple):
    """Result of `quantize`: the quantized tensor and its range.

    Example:
      >>> import headrace as hr
      >>> result = hr.quantization.quantize([0.0, 0.5, 1.0], 0.0, 1.0, hr.quint8)
      >>> result.output.numpy().tolist(), float(result.output_max)
      ([0, 128, 255], 1.0)
    """

    output: Tensor
    output_min: Tensor
    output_max: Tensor


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
    """Quantizes floats.

    Args:
      input: float32.
      min_range, max_range: the floats that the least and the greatest quantized number represent: scalars, or vectors
        of the length of `axis`.
      T: the dtype: qint8, quint8, qint16, quint16 or qint32.
      mode: "MIN_COMBINED", "MIN_FIRST" or "SCALED" (0 is represented exactly).
      round_mode: "HALF_AWAY_FROM_ZERO" or, with "SCALED", "HALF_TO_EVEN".
      name: name of the operation; "QuantizeV2" if None.
      narrow_range: with "SCALED": whether the least quantized number is unused.
      axis: the axis whose slices have separate ranges; None: one range.
      ensure_minimum_range: the least width of the range; a narrower one is widened.

    Returns:
      `Quantized`: the quantized tensor and its range.

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
) -> Tensor:
    """Converts quantized numbers to floats.

    Args:
      input: a tensor of a quantized dtype.
      min_range, max_range, mode, axis, narrow_range: as for `quantize`.
      name: name of the operation; "Dequantize" if None.
      dtype: float32 or (with "MIN_COMBINED") bfloat16.

    Source: TensorFlow's `tf.quantization.dequantize`.

    Example:
      >>> import headrace as hr
      >>> hr.quantization.dequantize(hr.cast([0, 255], hr.quint8), 0.0, 1.0).numpy()
      array([0., 1.], dtype=float32)
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
    """Adds an op that quantizes and dequantizes."""
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
) -> Tensor:
    """Rounds floats to values that `num_bits` bits represent; the gradient is passed through.

    The arguments are those of `quantize_and_dequantize_v2`; the default name is "QuantizeAndDequantizeV2".

    Source: TensorFlow's `tf.quantization.quantize_and_dequantize`.

    Example:
      >>> import headrace as hr
      >>> hr.quantization.quantize_and_dequantize([0.1, 1.0], -1.0, 1.0, num_bits=3, range_given=True).numpy().round(3)
      array([0., 1.], dtype=float32)
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
) -> Tensor:
    """Rounds floats to values that `num_bits` bits represent.

    The gradient is 0 for inputs outside of the range.

    Args:
      input: floats.
      input_min, input_max: the range if `range_given`: scalars, or vectors of the length of `axis`.
      signed_input: whether the quantized numbers are signed.
      num_bits: number of bits.
      range_given: whether the range is given; otherwise it is that of `input`.
      round_mode: "HALF_TO_EVEN" or "HALF_UP".
      name: name of the operation; "QuantizeAndDequantizeV4" if None.
      narrow_range: whether the least quantized number is unused.
      axis: the axis whose slices have separate ranges; None: one range.

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
) -> Tensor:
    """Clips floats to a range and rounds them to its quantization levels.

    Args:
      inputs: float32.
      min, max: the range, with min < max; it is shifted slightly so that 0 is a level.
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
) -> Tensor:
    """Computes the gradient of `fake_quant_with_min_max_args`.

    It is `gradients` where `inputs` are in the range, else 0.

    Args:
      gradients: the gradient with respect to the result.
      inputs, min, max, num_bits, narrow_range: see `fake_quant_with_min_max_args`.
      name: name of the operation.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_args_gradient`.

    Example:
      >>> import headrace as hr
      >>> hr.quantization.fake_quant_with_min_max_args_gradient([1.0, 1.0], [0.0, 9.0]).numpy()
      array([1., 0.], dtype=float32)
    """
    attrs = {"min": min, "max": max, "num_bits": num_bits, "narrow_range": narrow_range}
    args = (gradients, inputs)
    return scopes.builder(*args).make("FakeQuantWithMinMaxArgsGradient", args, attrs, name)


def _fake(op: str, args: tuple[Any, ...], num_bits: int, narrow_range: bool, name: str | None) -> Any:
    return scopes.builder(*args).make(op, args, {"num_bits": num_bits, "narrow_range": narrow_range}, name)


def fake_quant_with_min_max_vars(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Tensor:
    """Computes `fake_quant_with_min_max_args` with a range of two float32 scalars.

    The range has gradients.

    Args:
      min, max: float32 scalars: the range.
      Others: see `fake_quant_with_min_max_args`.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars`.

    Example:
      >>> import headrace as hr
      >>> hr.quantization.fake_quant_with_min_max_vars([0.1, 0.6, 2.0], 0.0, 1.0, num_bits=2).numpy().round(3)
      array([0.   , 0.667, 1.   ], dtype=float32)
    """
    return _fake("FakeQuantWithMinMaxVars", (inputs, min, max), num_bits, narrow_range, name)


def fake_quant_with_min_max_vars_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: Any = None
) -> Tensor:
    """Computes the gradients of `fake_quant_with_min_max_vars` for its inputs and its range.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars_gradient`.

    Example:
      >>> import headrace as hr
      >>> grads = hr.quantization.fake_quant_with_min_max_vars_gradient([1.0, 1.0], [0.5, 9.0], 0.0, 1.0)
      >>> [g.numpy().tolist() for g in grads]
      [[1.0, 0.0], 0.0, 1.0]
    """
    args = (gradients, inputs, min, max)
    return _fake("FakeQuantWithMinMaxVarsGradient", args, num_bits, narrow_range, name)


def fake_quant_with_min_max_vars_per_channel(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: str | None = None
) -> Tensor:
    """Computes `fake_quant_with_min_max_vars` with a range for each channel.

    Args:
      min, max: float32 vectors: a range for each element of the last axis.
      Others: see `fake_quant_with_min_max_args`.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars_per_channel`.

    Example:
      >>> import headrace as hr
      >>> quantize = hr.quantization.fake_quant_with_min_max_vars_per_channel
      >>> quantize([[0.4, 4.0]], [0.0, 0.0], [1.0, 3.0], num_bits=2).numpy().round(3)
      array([[0.333, 3.   ]], dtype=float32)
    """
    return _fake("FakeQuantWithMinMaxVarsPerChannel", (inputs, min, max), num_bits, narrow_range, name)


def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False, name: Any = None
) -> Tensor:
    """Computes the gradients of `fake_quant_with_min_max_vars_per_channel` for its inputs and ranges.

    Source: TensorFlow's `tf.quantization.fake_quant_with_min_max_vars_per_channel_gradient`.

    Example:
      >>> import headrace as hr
      >>> gradient = hr.quantization.fake_quant_with_min_max_vars_per_channel_gradient
      >>> grads = gradient([[1.0, 1.0]], [[0.5, 9.0]], [0.0, 0.0], [1.0, 1.0])
      >>> [g.numpy().tolist() for g in grads]
      [[[1.0, 0.0]], [0.0, 0.0], [0.0, 1.0]]
    """
    args = (gradients, inputs, min, max)
    return _fake("FakeQuantWithMinMaxVarsPerChannelGradient", args, num_bits, narrow_range, name)


# fmt: off
__all__ = [
    "Quantized", "dequantize", "fake_quant_with_min_max_args", "fake_quant_with_min_max_args_gradient",
    "fake_quant_with_min_max_vars", "fake_quant_with_min_max_vars_gradient", "fake_quant_with_min_max_vars_per_channel",
    "fake_quant_with_min_max_vars_per_channel_gradient", "quantize", "quantize_and_dequantize",
    "quantize_and_dequantize_v2",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
