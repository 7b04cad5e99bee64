"""Normalization layers: over the batch, or over the channels of each example.

Batch normalization has two modes. In training it uses the mean and variance of the batch, and moves two variables, its
*moving averages*, slightly towards them. In inference it uses the moving averages, so that an output does not depend on
the other examples of the batch.

In a graph two operations for each call, the layer's `updates`, change the moving averages and must run in each training
step. They are outside of the order of reads and writes, so inference never waits for a training step. In eager
execution they run immediately.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, gathering, initializers, math, nn, scopes, tensors
from headrace.api.cond import cond
from headrace.api.layers.arguments import known_size, rank_of
from headrace.api.layers.base import Layer
from headrace.api.layers.core import as_flag
from headrace.errors import UnimplementedError
from headrace.ir.builder import Builder

_HALF = (dtypes.float16, dtypes.bfloat16)


class _Normalization(Layer):
    gamma: Any = None
    beta: Any = None

    def _param_dtype(self) -> Any:
        """Returns the dtype of variables: float32 for half precision, which is too coarse for statistics."""
        return dtypes.float32 if self.dtype in _HALF else self.dtype

    def _add_factors(
        self, dims: Sequence[int], gamma: tuple[Any, Any, Any] | None, beta: tuple[Any, Any, Any] | None
    ) -> None:
        if gamma is not None:
            first, regularizer, constraint = gamma
            self.gamma = self.add_variable("gamma", dims, self._param_dtype(), first, True, regularizer, constraint)
        if beta is not None:
            first, regularizer, constraint = beta
            self.beta = self.add_variable("beta", dims, self._param_dtype(), first, True, regularizer, constraint)


class BatchNormalization(_Normalization):
    """Batch normalization layer: normalizes each channel to mean 0 and variance 1.

    It computes gamma * (inputs - mean) / sqrt(variance + epsilon) + beta. The mean and variance of a channel are those
    of the batch in training, and moving averages otherwise. The module's docstring describes the moving averages.

    Variables, each [channels]: "gamma", "beta", "moving_mean" and "moving_variance".

    Args:
      axis: the axis of the channels; the statistics are taken over all other axes.
      momentum: decay of the moving averages: the part of the old value that an update keeps.
      epsilon: a small number that is added to the variance; the fused operation uses at least 1.001e-5.
      center, scale: whether the layer has `beta`, and `gamma`.
      beta_initializer, gamma_initializer, moving_mean_initializer, moving_variance_initializer: see `hr.initializers`.
      beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint: see `Dense`.
      renorm, renorm_clipping, renorm_momentum, virtual_batch_size, adjustment: parameters of TensorFlow's layer that
        are not supported. Only the defaults are accepted, and any `renorm_momentum`, which has no effect.
      fused: whether one fused operation computes the layer. This needs inputs of rank 4, of float32, bfloat16 or
        float16, with the channels in the second or last axis; None: if possible. The fused moving variance is n / (n -
        1) times the variance of the batch, for n elements for each channel.
      trainable, name, dtype: see `Layer`.

    Raises:
      UnimplementedError: an argument that is not supported is given.
      ValueError: in the call: the number of channels is unknown, or `fused` is True and the inputs do not allow it.

    Source: Ioffe and Szegedy, Batch Normalization; TensorFlow's `tf.layers.BatchNormalization`.

    Example:
      >>> import headrace as hr
      >>> norm = hr.layers.BatchNormalization(momentum=0.5)
      >>> norm(hr.constant([[1.0], [3.0]]), training=True).numpy().round(2).tolist()
      [[-1.0], [1.0]]
      >>> norm.moving_mean.numpy().tolist()
      [1.0]
    """

    moving_mean: Any
    moving_variance: Any

    def __init__(
        self,
        axis: int = -1,
        momentum: Any = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = initializers.zeros,
        gamma_initializer: Any = initializers.ones,
        moving_mean_initializer: Any = initializers.zeros,
        moving_variance_initializer: Any = initializers.ones,
        beta_regularizer: Callable[[Any], Any] | None = None,
        gamma_regularizer: Callable[[Any], Any] | None = None,
        beta_constraint: Callable[[Any], Any] | None = None,
        gamma_constraint: Callable[[Any], Any] | None = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: Any = 0.99,
        fused: bool | None = None,
        trainable: bool = True,
        virtual_batch_size: int | None = None,
        adjustment: Any = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        refused = {
            "renorm": renorm or None, "renorm_clipping": renorm_clipping, "virtual_batch_size": virtual_batch_size,
            "adjustment": adjustment,
        }  # fmt: skip
        for what, value in refused.items():
            if value is not None:
                raise UnimplementedError(
                    f"BatchNormalization({what}={value!r}): headrace has plain batch normalization alone; leave {what} "
                    "out"
                )
        if isinstance(axis, (list, tuple)):
            if len(axis) != 1:
                raise UnimplementedError(
                    f"BatchNormalization(axis={axis!r}): headrace keeps one axis, that of channels"
                )
            axis = axis[0]
        self.axis, self.momentum, self.epsilon = int(axis), momentum, epsilon
        self.center, self.scale, self.fused = center, scale, fused
        self._beta = (beta_initializer, beta_regularizer, beta_constraint) if center else None
        self._gamma = (gamma_initializer, gamma_regularizer, gamma_constraint) if scale else None
        self._first = moving_mean_initializer, moving_variance_initializer
        self._undivided = frozenset(("moving_mean", "moving_variance"))  # updates assign to the whole variable

    def build(self, input_shape: Any) -> None:
        """Creates the variables."""
        n = known_size(input_shape, self.axis, self.name)
        rank = rank_of(input_shape, self.name)
        fits = rank == 4 and self.axis % rank in (1, 3) and self.dtype in (*_HALF, dtypes.float32)
        if self.fused and not fits:
            raise ValueError(
                f"layer '{self.name}' cannot be fused: that takes inputs with four axes of float32 or less, the "
                f"channels second or last; got {shapes.show(shapes.as_shape(input_shape))} with axis={self.axis}; "
                "leave `fused` out"
            )
        self._is_fused = fits if self.fused is None else self.fused
        self._add_factors((n,), self._gamma, self._beta)
        dtype, (mean, variance) = self._param_dtype(), self._first
        self.moving_mean = self.add_variable("moving_mean", (n,), dtype, mean, trainable=False)
        self.moving_variance = self.add_variable("moving_variance", (n,), dtype, variance, trainable=False)

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Computes the normalized inputs.

        Args:
          inputs: a tensor of floats.
          training: whether this is training: a bool or a scalar tensor.
        """
        flag = as_flag(training)
        compute = self._fused if self._is_fused else self._in_steps
        if flag is None:
            made = cond(training, lambda: compute(inputs, True), lambda: compute(inputs, False))
        else:
            made = compute(inputs, flag)
        outputs, mean, variance = made
        tensors.narrow(outputs, inputs.shape)
        if flag is not False:
            self._note(mean, variance, None if flag else training)
        return outputs

    def _fused(self, x: Any, training: bool) -> tuple[Any, Any, Any]:
        """Computes the outputs, mean and variance by the fused operation."""
        layout = "NCHW" if self.axis % 4 == 1 else "NHWC"
        n = int(self.moving_mean.shape[0])
        b = scopes.builder(x)
        gamma = arrays.ones((n,), self._param_dtype()) if self.gamma is None else b.tensor(self.gamma)
        beta = arrays.zeros((n,), self._param_dtype()) if self.beta is None else b.tensor(self.beta)
        if training:
            y, mean, variance = nn.fused_batch_norm(x, gamma, beta, epsilon=self.epsilon, data_format=layout)
            return y, mean, variance
        kept = b.tensor(self.moving_mean), b.tensor(self.moving_variance)
        y, _, _ = nn.fused_batch_norm(
            x, gamma, beta, *kept, epsilon=self.epsilon, data_format=layout, is_training=False
        )
        return y, *kept

    def _in_steps(self, x: Any, training: bool) -> tuple[Any, Any, Any]:
        """Computes the results of `_fused` with several operations."""
        rank = rank_of(x.shape, self.name)
        axis = self.axis % rank
        dtype = self._param_dtype()
        b = scopes.builder(x)
        y = math.cast(x, dtype) if x.dtype.base in _HALF else x
        if training:
            mean, variance = nn.moments(y, [i for i in range(rank) if i != axis])
        else:
            mean, variance = b.tensor(self.moving_mean), b.tensor(self.moving_variance)
        dims = [-1 if i == axis else 1 for i in range(rank)]

        def broad(v: Any) -> Any:
            return v if v is None or axis == rank - 1 else arrays.reshape(v, dims)

        z = nn.batch_normalization(y, broad(mean), broad(variance), broad(self.beta), broad(self.gamma), self.epsilon)
        return math.cast(z, x.dtype.base) if z.dtype.base is not x.dtype.base else z, mean, variance

    def _note(self, mean: Any, variance: Any, training: Any) -> None:
        """Updates the moving averages; if `training` is a tensor, only where it is True."""
        b = scopes.builder(mean)
        # Variables outside of graphs must be up to date after a call, also if the call runs in a traced graph.
        is_later = isinstance(b, Builder) and not self._is_outside
        with scopes.entered(dataclasses.replace(b, is_ordered=False)) if is_later else contextlib.nullcontext():
            rate = math.subtract(1.0, math.cast(self.momentum, self._param_dtype()))
            if training is not None:
                rate = gathering.where(training, rate, arrays.zeros_like(rate))
            for moving, value in ((self.moving_mean, mean), (self.moving_variance, variance)):
                with scopes.name_scope("AssignMovingAvg") as scope:
                    step = math.multiply(math.subtract(moving, value), rate)
                    made = moving.assign_sub(step, name=scope, read_value=False)
                if is_later:
                    self.add_update(made)


class LayerNormalization(_Normalization):
    """Layer normalization: normalizes each example to mean 0 and variance 1.

    It computes gamma * (inputs - mean) / sqrt(variance + epsilon) + beta, with the mean and variance of each example
    over `axis`.

    Variables, with the sizes of the inputs along `axis`: "gamma" and "beta".

    Args:
      axis: the axis or axes over which the statistics are taken.
      epsilon: a small number that is added to the variance.
      center, scale: whether the layer has `beta`, and `gamma`.
      beta_initializer, gamma_initializer, beta_regularizer, gamma_regularizer, beta_constraint, gamma_constraint: see
        `Dense`.
      trainable, name, dtype: see `Layer`.

    Raises:
      ValueError: in the call: a size along `axis` is unknown, or `axis` names an axis twice.

    Source: Ba, Kiros and Hinton, Layer Normalization; TensorFlow's `tf.keras.layers.LayerNormalization`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.LayerNormalization()(hr.constant([[1.0, 3.0], [10.0, 30.0]])).numpy().round(2).tolist()
      [[-1.0, 1.0], [-1.0, 1.0]]
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = initializers.zeros,
        gamma_initializer: Any = initializers.ones,
        beta_regularizer: Callable[[Any], Any] | None = None,
        gamma_regularizer: Callable[[Any], Any] | None = None,
        beta_constraint: Callable[[Any], Any] | None = None,
        gamma_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self.axis = [axis] if isinstance(axis, int) else [int(a) for a in axis]
        self.epsilon, self.center, self.scale = epsilon, center, scale
        self._beta = (beta_initializer, beta_regularizer, beta_constraint) if center else None
        self._gamma = (gamma_initializer, gamma_regularizer, gamma_constraint) if scale else None

    def build(self, input_shape: Any) -> None:
        """Creates the variables."""
        rank = rank_of(input_shape, self.name)
        axes = sorted({a % rank for a in self.axis if -rank <= a < rank})
        if len(axes) != len(self.axis):
            known_size(input_shape, min(self.axis, key=lambda a: -rank <= a < rank), self.name)
            raise ValueError(f"layer '{self.name}' was given the same axis twice: {self.axis}")
        self._add_factors([known_size(input_shape, a, self.name) for a in axes], self._gamma, self._beta)

    def call(self, inputs: Any) -> Any:
        """Computes the normalized inputs."""
        rank = rank_of(inputs.shape, self.name)
        axes = sorted(a % rank for a in self.axis)
        y = math.cast(inputs, self._param_dtype()) if inputs.dtype.base in _HALF else inputs
        mean, variance = nn.moments(y, axes, keepdims=True)
        dims = [inputs.shape[i] if i in axes else 1 for i in range(rank)]

        def broad(v: Any) -> Any:
            return v if v is None or axes == list(range(rank - len(axes), rank)) else arrays.reshape(v, dims)

        z = nn.batch_normalization(y, mean, variance, broad(self.beta), broad(self.gamma), self.epsilon)
        tensors.narrow(z, inputs.shape)
        return math.cast(z, inputs.dtype.base) if z.dtype.base is not inputs.dtype.base else z
