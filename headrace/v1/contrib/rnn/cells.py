"""Recurrent cells of `tf.contrib.rnn` that are not in `tf.nn.rnn_cell`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes
from headrace.api import arrays, initializers, linalg, math, nn
from headrace.api.rnn.cells import LSTMStateTuple, activation_of, columns
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import ShapeError
from headrace.v1.rnn_cell import RNNCell


def linear(inputs: Sequence[Any], kernel: Any, bias: Any) -> Any:
    """Returns [inputs] @ kernel + bias; the bias may be None."""
    x = inputs[0] if len(inputs) == 1 else arrays.concat(list(inputs), 1)
    y = linalg.matmul(x, kernel)
    return y if bias is None else nn.bias_add(y, bias)


def normalized(x: Any, gamma: Any, beta: Any) -> Any:
    """Returns the layer normalization of `x` [batch, units], as `tf.contrib.layers.layer_norm` computes it."""
    mean, variance = nn.moments(x, [1], keepdims=True)
    epsilon = 1e-3 if x.dtype.base is dtypes.float16 else 1e-12
    return nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)


class _Normalizing(RNNCell):
    """Base of cells that may normalize their gates, by "NAME/gamma" and "NAME/beta"."""

    _gain: float
    _shift: float

    def _add_norm(self, name: str, size: int) -> tuple[Any, Any]:
        gamma = self.add_variable(f"{name}/gamma", [size], initializer=initializers.Constant(self._gain))
        return gamma, self.add_variable(f"{name}/beta", [size], initializer=initializers.Constant(self._shift))


class LayerNormBasicLSTMCell(_Normalizing, only_computes=True):
    """LSTM cell with layer normalization and recurrent dropout.

    Variables: kernel [inputs + units, 4 * units]; "input", "transform", "forget", "output" and "state", each with gamma
    and beta; without normalization bias [4 * units].

    Args:
      num_units: size of the state and the output.
      forget_bias: a number that is added to the forget gate.
      input_size: accepted as in TensorFlow, without effect.
      activation: a function.
      layer_norm: whether the gates and the new state are normalized.
      norm_gain, norm_shift: initial values of gamma and beta.
      dropout_keep_prob: the probability that an element of the candidate values is kept: a number or a scalar.
      dropout_prob_seed: seed of the dropout.
      reuse: see `tf.variable_scope`.

    Source: TensorFlow's `tf.contrib.rnn.LayerNormBasicLSTMCell`; Ba, Kiros and Hinton, "Layer normalization" (2016);
    Semeniuta et al., "Recurrent dropout without memory loss" (2016).
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, input_size: Any = None, activation: Any = math.tanh,
        layer_norm: bool = True, norm_gain: float = 1.0, norm_shift: float = 0.0, dropout_keep_prob: Any = 1.0,
        dropout_prob_seed: int | None = None, reuse: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units, self._forget_bias = num_units, forget_bias
        self._activation, self._normalizes = activation_of(activation), layer_norm
        self._gain, self._shift = norm_gain, norm_shift
        self._keep_prob, self._seed = dropout_keep_prob, dropout_prob_seed

    @property
    def state_size(self) -> LSTMStateTuple:
        """`num_units` for c and for h."""
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        """`num_units`."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Creates the kernel, and the bias or the variables of the normalization."""
        n = self._num_units
        self._kernel = self.add_variable("kernel", [columns(input_shape, self.name) + n, 4 * n])
        self._bias, self._norms = None, []
        if self._normalizes:
            self._norms = [self._add_norm(g, n) for g in ("input", "transform", "forget", "output", "state")]
        else:
            self._bias = self.add_variable("bias", [4 * n], initializer="zeros")

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes h and the new state."""
        c, h = state
        gates = arrays.split(linear([inputs, h], self._kernel, self._bias), 4, axis=1)
        if self._normalizes:
            gates = [normalized(x, *norm) for x, norm in zip(gates, self._norms, strict=False)]
        i, j, f, o = gates
        g = self._activation(j)
        if not isinstance(self._keep_prob, (int, float)) or self._keep_prob < 1:
            g = nn.dropout(g, 1 - self._keep_prob, seed=self._seed)
        c = c * math.sigmoid(f + self._forget_bias) + math.sigmoid(i) * g
        if self._normalizes:
            c = normalized(c, *self._norms[4])
        h = self._activation(c) * math.sigmoid(o)
        return h, LSTMStateTuple(c, h)


class CoupledInputForgetGateLSTMCell(_Normalizing, only_computes=True):
    """LSTM cell whose input gate is 1 minus its forget gate.

    Variables: W_0 [inputs + outputs, 3 * units] with the parts j, f, o, and B; W_F_diag, W_O_diag (peepholes);
    W_P_0 [units, num_proj] (projection); with `num_unit_shards` W_0, W_1 and so on.

    Args:
      layer_norm: whether the gates and the new state are normalized.
      norm_gain, norm_shift: initial values of gamma and beta.
      Others: see `tf.nn.rnn_cell.LSTMCell`.

    Source: TensorFlow's `tf.contrib.rnn.CoupledInputForgetGateLSTMCell`; Greff et al., "LSTM: a search space odyssey"
    (2015).
    """

    def __init__(
        self, num_units: int, use_peepholes: bool = False, initializer: Any = None, num_proj: int | None = None,
        proj_clip: float | None = None, num_unit_shards: int = 1, num_proj_shards: int = 1, forget_bias: float = 1.0,
        state_is_tuple: bool = True, activation: Any = math.tanh, reuse: Any = None, layer_norm: bool = False,
        norm_gain: float = 1.0, norm_shift: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units, self._peepholes, self._first = num_units, use_peepholes, initializer
        self._num_proj, self._proj_clip = num_proj, proj_clip
        self._shards = num_unit_shards, num_proj_shards
        self._forget_bias, self._is_tuple = forget_bias, state_is_tuple
        self._activation, self._normalizes = activation_of(activation), layer_norm
        self._gain, self._shift = norm_gain, norm_shift

    @property
    def state_size(self) -> Any:
        """`num_units` for c, and `output_size` for h."""
        n, m = self._num_units, self.output_size
        return LSTMStateTuple(n, m) if self._is_tuple else n + m

    @property
    def output_size(self) -> int:
        """`num_proj`, or `num_units` if there is no projection."""
        return self._num_units if self._num_proj is None else self._num_proj

    def _add_shards(self, name: str, rows: int, size: int, shards: int) -> list[Any]:
        sizes = [rows // shards + (k < rows % shards) for k in range(shards)]
        return [self.add_variable(f"{name}_{k}", [m, size], initializer=self._first) for k, m in enumerate(sizes)]

    def build(self, input_shape: Any) -> None:
        """Creates the kernels, the bias, the peephole weights and the variables of the normalization."""
        n, first = self._num_units, self._first
        self._kernels = self._add_shards(
            "W", columns(input_shape, self.name) + self.output_size, 3 * n, self._shards[0]
        )
        self._bias = self.add_variable("B", [3 * n], initializer="zeros")
        self._diagonals = [
            self.add_variable(name, [n], initializer=first) for name in ("W_F_diag", "W_O_diag") if self._peepholes
        ]
        names = ("transform", "forget", "output", "state") if self._normalizes else ()
        self._norms = [self._add_norm(name, n) for name in names]
        self._projections = []
        if self._num_proj is not None:
            self._projections = self._add_shards("W_P", n, self._num_proj, self._shards[1])

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes h and the new state."""
        c, h = state if self._is_tuple else arrays.split(state, [self._num_units, self.output_size], axis=1)
        kernel = self._kernels[0] if len(self._kernels) == 1 else arrays.concat(self._kernels, 0)
        j, f, o = arrays.split(linear([inputs, h], kernel, self._bias), 3, axis=1)
        if self._normalizes:
            j, f, o = (normalized(x, *norm) for x, norm in zip((j, f, o), self._norms, strict=False))
        f = f + self._forget_bias
        if self._peepholes:
            f = f + self._diagonals[0] * c
        forget = math.sigmoid(f)
        c = forget * c + (1 - forget) * self._activation(j)
        if self._normalizes:
            c = normalized(c, *self._norms[3])
        if self._peepholes:
            o = o + self._diagonals[1] * c
        h = math.sigmoid(o) * self._activation(c)
        if self._projections:
            h = linalg.matmul(h, arrays.concat(self._projections, 0))
            if self._proj_clip is not None:
                h = math.clip_by_value(h, -self._proj_clip, self._proj_clip)
        return h, LSTMStateTuple(c, h) if self._is_tuple else arrays.concat([c, h], 1)


class OfUnits(RNNCell):
    """Base of cells whose state and output have `num_units` elements."""

    _num_units: int

    @property
    def state_size(self) -> int:
        """`num_units`."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """`num_units`."""
        return self._num_units


class UGRNNCell(OfUnits, only_computes=True):
    """Update gate recurrent cell: one gate mixes the old state and a candidate.

    Variables: kernel [inputs + units, 2 * units] with the parts g (gate) and c (candidate), and bias.

    Args:
      num_units: size of the state and the output.
      initializer: initializer of the kernel.
      forget_bias: a number that is added to the gate.
      activation: a function, or its name.
      reuse: see `tf.variable_scope`.

    Source: TensorFlow's `tf.contrib.rnn.UGRNNCell`; Collins et al., "Capacity and trainability in recurrent neural
    networks" (2017).
    """

    def __init__(
        self, num_units: int, initializer: Any = None, forget_bias: float = 1.0, activation: Any = math.tanh,
        reuse: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units, self._first, self._forget_bias = num_units, initializer, forget_bias
        self._activation = activation_of(activation)

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        n = self._num_units
        rows = columns(input_shape, self.name) + n
        self._kernel = self.add_variable("kernel", [rows, 2 * n], initializer=self._first)
        self._bias = self.add_variable("bias", [2 * n], initializer="zeros")

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes the output, which is also the new state."""
        g, c = arrays.split(linear([inputs, state], self._kernel, self._bias), 2, axis=1)
        gate = math.sigmoid(g + self._forget_bias)
        new = gate * state + (1 - gate) * self._activation(c)
        return new, new


class IntersectionRNNCell(OfUnits, only_computes=True):
    """Intersection recurrent cell: a gate in depth, and a gate in time.

    Variables: kernel [2 * units, 4 * units] with the parts gh, h, gy, y, and bias; with `num_in_proj`
    in_projection/kernel and in_projection/bias.

    Args:
      num_units: size of the state and the output.
      num_in_proj: size of a projection of the inputs, which must be `num_units`; needed if the inputs have another
        size.
      initializer: initializer of the kernels.
      forget_bias: a number that is added to the gates.
      y_activation: activation of the part y: a function, or its name.
      reuse: see `tf.variable_scope`.

    Raises:
      ValueError: the inputs have another size than the state, and there is no projection.

    Source: TensorFlow's `tf.contrib.rnn.IntersectionRNNCell`; Collins et al., "Capacity and trainability in recurrent
    neural networks" (2017).
    """

    def __init__(
        self, num_units: int, num_in_proj: int | None = None, initializer: Any = None, forget_bias: float = 1.0,
        y_activation: Any = nn.relu, reuse: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        self._num_units, self._num_in_proj, self._first = num_units, num_in_proj, initializer
        self._forget_bias, self._y_activation = forget_bias, activation_of(y_activation)

    def build(self, input_shape: Any) -> None:
        """Creates the kernel, the bias and the projection."""
        n, size = self._num_units, columns(input_shape, self.name)
        self._projection: tuple[Any, ...] = ()
        if size != n:
            if not self._num_in_proj:
                raise ShapeError(f"Must have input size == output size for Intersection RNN: {size}, {n}")
            self._projection = (
                self.add_variable("in_projection/kernel", [size, n], initializer=self._first),
                self.add_variable("in_projection/bias", [n], initializer="zeros"),
            )
        self._kernel = self.add_variable("kernel", [2 * n, 4 * n], initializer=self._first)
        self._bias = self.add_variable("bias", [4 * n], initializer="zeros")

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes the output and the new state."""
        if self._projection:
            inputs = linear([inputs], *self._projection)
        gh, h, gy, y = arrays.split(linear([inputs, state], self._kernel, self._bias), 4, axis=1)
        in_time, in_depth = math.sigmoid(gh + self._forget_bias), math.sigmoid(gy + self._forget_bias)
        new = in_time * state + (1 - in_time) * math.tanh(h)
        return in_depth * inputs + (1 - in_depth) * self._y_activation(y), new


class NASCell(RNNCell, only_computes=True):
    """Cell that neural architecture search found.

    Variables: kernel [inputs, 8 * units], recurrent_kernel [outputs, 8 * units]; bias (with `use_bias`);
    projection_weights [units, num_proj] (with `num_proj`).

    Args:
      num_units: size of c.
      num_proj: size of the projected output; None: no projection.
      use_bias: whether there is a bias.
      reuse: see `tf.variable_scope`.
      **kwargs: arguments of `RNNCell`.

    Source: TensorFlow's `tf.contrib.rnn.NASCell`; Zoph and Le, "Neural architecture search with reinforcement learning"
    (2017).
    """

    def __init__(
        self, num_units: int, num_proj: int | None = None, use_bias: bool = False, reuse: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(_reuse=reuse, **kwargs)
        self._num_units, self._num_proj, self._use_bias = num_units, num_proj, use_bias

    @property
    def state_size(self) -> LSTMStateTuple:
        """`num_units` for c, and `output_size` for h."""
        return LSTMStateTuple(self._num_units, self.output_size)

    @property
    def output_size(self) -> int:
        """`num_proj`, or `num_units` if there is no projection."""
        return self._num_units if self._num_proj is None else self._num_proj

    def build(self, input_shape: Any) -> None:
        """Creates the kernels, the bias and the projection."""
        n = self._num_units
        self._recurrent = self.add_variable("recurrent_kernel", [self.output_size, 8 * n])
        self._kernel = self.add_variable("kernel", [columns(input_shape, self.name), 8 * n])
        self._bias = self.add_variable("bias", [8 * n], initializer="zeros") if self._use_bias else None
        self._projection = None
        if self._num_proj is not None:
            self._projection = self.add_variable("projection_weights", [n, self._num_proj])

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes h and the new state."""
        c, h = state
        m = arrays.split(linear([h], self._recurrent, self._bias), 8, axis=1)
        x = arrays.split(linalg.matmul(inputs, self._kernel), 8, axis=1)
        sums = [a + b for a, b in zip(x, m, strict=True)]
        sums[3] = x[3] * m[3]
        first: list[Callable[[Any], Any]] = [math.sigmoid, nn.relu, math.sigmoid, nn.relu]
        first += [math.tanh, math.sigmoid, math.tanh, math.sigmoid]
        a = [f(s) for f, s in zip(first, sums, strict=True)]
        b = [math.tanh(a[0] * a[1]), math.tanh(a[2] + a[3]), math.tanh(a[4] * a[5]), math.sigmoid(a[6] + a[7])]
        c = math.tanh(b[0] + c) * b[1]
        h = math.tanh(c * math.tanh(b[2] + b[3]))
        if self._projection is not None:
            h = linalg.matmul(h, self._projection)
        return h, LSTMStateTuple(c, h)


class ConvLSTMCell(RNNCell, only_computes=True):
    """LSTM cell whose products are convolutions.

    Variables: kernel [*window, channels + outputs, 4 * outputs] with the parts i, j, f, o, and biases.

    Args:
      conv_ndims: number of axes of space: 1 to 3.
      input_shape: shape of an example's inputs, [*space, channels].
      output_channels: number of channels of the state.
      kernel_shape: size of the windows along each axis.
      use_bias: whether there are biases.
      skip_connection: whether the output is joined with the inputs.
      forget_bias: a number that is added to the forget gate.
      initializers: accepted as in TensorFlow, without effect.
      name: name of the layer.

    Raises:
      ValueError: the shape of the inputs has another number of axes.

    Source: TensorFlow's `tf.contrib.rnn.ConvLSTMCell`; Shi et al., "Convolutional LSTM network" (2015).
    """

    def __init__(
        self, conv_ndims: int, input_shape: Sequence[int], output_channels: int, kernel_shape: Sequence[int],
        use_bias: bool = True, skip_connection: bool = False, forget_bias: float = 1.0, initializers: Any = None,
        name: str | None = "conv_lstm_cell",
    ) -> None:  # fmt: skip
        super().__init__(name=name)
        if conv_ndims != len(input_shape) - 1:
            raise ShapeError(f"Invalid input_shape {input_shape} for conv_ndims={conv_ndims}.")
        self._space, self._channels = list(input_shape[:-1]), output_channels
        self._window, self._use_bias, self._skips = list(kernel_shape), use_bias, skip_connection
        self._forget_bias, self._in_channels = forget_bias, input_shape[-1]

    @property
    def state_size(self) -> LSTMStateTuple:
        """Shapes of c and h: [*space, output_channels]."""
        size = TensorSpec((*self._space, self._channels), dtypes.float32)
        return LSTMStateTuple(size, size)

    @property
    def output_size(self) -> Any:
        """Shape of an example's output."""
        channels = self._channels + (self._in_channels if self._skips else 0)
        return TensorSpec((*self._space, channels), dtypes.float32)

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the biases."""
        channels = int(input_shape[-1])
        outs = 4 * self._channels
        self._kernel = self.add_variable("kernel", [*self._window, channels + self._channels, outs])
        self._bias = self.add_variable("biases", [outs], initializer="zeros") if self._use_bias else None

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes the output and the new state."""
        c, h = state
        gates = nn.convolution(arrays.concat([inputs, h], -1), self._kernel, padding="SAME")
        if self._bias is not None:
            gates = gates + self._bias
        i, j, f, o = arrays.split(gates, 4, axis=-1)
        c = math.sigmoid(f + self._forget_bias) * c + math.sigmoid(i) * math.tanh(j)
        h = math.tanh(c) * math.sigmoid(o)
        return arrays.concat([h, inputs], -1) if self._skips else h, LSTMStateTuple(c, h)


class Conv1DLSTMCell(ConvLSTMCell, only_computes=True):
    """`ConvLSTMCell` with one axis of space. Source: TensorFlow's `tf.contrib.rnn.Conv1DLSTMCell`."""

    def __init__(self, name: str | None = "conv_1d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=1, name=name, **kwargs)


class Conv2DLSTMCell(ConvLSTMCell, only_computes=True):
    """`ConvLSTMCell` with two axes of space. Source: TensorFlow's `tf.contrib.rnn.Conv2DLSTMCell`."""

    def __init__(self, name: str | None = "conv_2d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=2, name=name, **kwargs)


class Conv3DLSTMCell(ConvLSTMCell, only_computes=True):
    """`ConvLSTMCell` with three axes of space. Source: TensorFlow's `tf.contrib.rnn.Conv3DLSTMCell`."""

    def __init__(self, name: str | None = "conv_3d_lstm_cell", **kwargs: Any) -> None:
        super().__init__(conv_ndims=3, name=name, **kwargs)
