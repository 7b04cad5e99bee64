"""Layers without a window: dense, dropout, embeddings, and compositions of layers."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, initializers, linalg, nn, tensors
from headrace.api.cond import cond
from headrace.api.layers.arguments import activation_of, count, has_channels_first, known_size, rank_of
from headrace.api.layers.base import Layer
from headrace.api.variable import Variable


class Dense(Layer):
    """Fully connected layer: computes activation(inputs @ kernel + bias).

    The inputs are floats of shape [..., n], the outputs of shape [..., units]. Variables: "kernel", [n, units], and
    "bias", [units].

    Args:
      units: size of the last axis of the outputs.
      activation: a function of a tensor, or its name in `hr.nn`; None: no activation.
      use_bias: whether a bias is added.
      kernel_initializer, bias_initializer: see `hr.initializers`; None: glorot_uniform.
      kernel_regularizer, bias_regularizer: functions from the variable to a scalar loss, which is an element of
        `losses`; see `hr.layers.l2`.
      activity_regularizer: see `Layer`.
      kernel_constraint, bias_constraint: functions from a value of the variable to an allowed value; optimizers apply
        them.
      trainable, name, dtype: see `Layer`.

    Raises:
      ValueError: `units` is not positive; in the call: the last dimension of the inputs is unknown.

    Source: TensorFlow's `tf.layers.Dense`.

    Example:
      >>> import headrace as hr
      >>> dense = hr.layers.Dense(2, hr.nn.relu, kernel_initializer="ones")
      >>> dense([[1.0, 2.0, 3.0]]).numpy().tolist()
      [[6.0, 6.0]]
      >>> [v.name for v in dense.variables]
      ['dense/kernel:0', 'dense/bias:0']
    """

    kernel: Any
    bias: Any = None

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = initializers.zeros,
        kernel_regularizer: Callable[[Any], Any] | None = None,
        bias_regularizer: Callable[[Any], Any] | None = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        kernel_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype, activity_regularizer=activity_regularizer)
        self.units = count("units", units)
        self.activation = activation_of(activation)
        self.use_bias = use_bias
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        n = known_size(input_shape, -1, self.name)
        self.kernel = self.add_variable(
            "kernel", (n, self.units), None, self.kernel_initializer, True, self.kernel_regularizer,
            self.kernel_constraint,
        )  # fmt: skip
        if self.use_bias:
            self.bias = self.add_variable(
                "bias", (self.units,), None, self.bias_initializer, True, self.bias_regularizer, self.bias_constraint
            )

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        rank = rank_of(inputs.shape, self.name)
        if rank == 2:
            outputs = linalg.matmul(inputs, self.kernel)
        else:
            outputs = linalg.tensordot(inputs, self.kernel, [[rank - 1], [0]])
            tensors.narrow(outputs, (*inputs.shape[:-1], self.units))
        if self.use_bias:
            outputs = nn.bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)


class Activation(Layer):
    """Layer that applies a function of a tensor.

    Args:
      activation: the function, or its name in `hr.nn`; None: the identity.
      name: see `Layer`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.Activation("relu")([-1.0, 2.0]).numpy().tolist()
      [0.0, 2.0]
    """

    def __init__(self, activation: Any, name: str | None = None) -> None:
        super().__init__(name=name)
        self.activation = activation_of(activation)

    def call(self, inputs: Any) -> Any:
        """Applies the function."""
        return inputs if self.activation is None else self.activation(inputs)


class Flatten(Layer):
    """Layer that joins all axes except the first.

    Args:
      data_format: "channels_last", or "channels_first": then the second axis is moved to the end first.
      name: see `Layer`.

    Source: TensorFlow's `tf.layers.Flatten`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.Flatten()(hr.ones((2, 3, 4))).shape
      (2, 12)
    """

    def __init__(self, data_format: str = "channels_last", name: str | None = None) -> None:
        super().__init__(name=name)
        self.data_format = data_format
        self._is_first = has_channels_first(data_format)

    def call(self, inputs: Any) -> Any:
        """Returns a matrix with the elements of `inputs`."""
        rank = rank_of(inputs.shape, self.name)
        if rank < 1:
            raise ValueError(f"layer '{self.name}' takes inputs with a batch axis, got a scalar")
        if self._is_first and rank > 2:
            inputs = arrays.transpose(inputs, [0, *range(2, rank), 1])
        size = shapes.size(inputs.shape[1:])
        batch = inputs.shape[0]
        if size is not None:
            # reshape cannot infer -1 for an empty tensor
            rows = -1 if batch is None and size else arrays.shape(inputs)[0] if batch is None else batch
            return arrays.reshape(inputs, arrays.stack([rows, size]) if tensors.is_tensor(rows) else [rows, size])
        made = arrays.reshape(inputs, arrays.stack([arrays.shape(inputs)[0], -1]))
        tensors.narrow(made, (batch, None))
        return made


class Dropout(Layer):
    """Layer that sets elements to 0 at random in training.

    Each element becomes 0 with probability `rate`; the other elements are scaled by 1 / (1 - rate), so that the
    expected sum is unchanged. Outside of training the layer returns its inputs.

    Args:
      rate: probability of 0, at least 0 and less than 1; a number or a tensor.
      noise_shape: shape of the random mask, which is broadcast to the shape of the inputs; None: the shape of the
        inputs. None in a list stands for the dimension of the inputs.
      seed: seed of the random numbers; see `hr.random`.
      name: see `Layer`.

    Raises:
      ValueError: the rate is out of range.

    Source: TensorFlow's `tf.layers.Dropout`.

    Example:
      >>> import headrace as hr
      >>> drop = hr.layers.Dropout(0.5)
      >>> drop([1.0, 2.0]).numpy().tolist(), sorted(set(drop(hr.ones(100), training=True).numpy().tolist()))
      ([1.0, 2.0], [0.0, 2.0])
    """

    def __init__(
        self, rate: Any = 0.5, noise_shape: Any = None, seed: int | None = None, name: str | None = None
    ) -> None:
        super().__init__(name=name)
        if not tensors.is_tensor(rate) and not 0 <= rate < 1:
            raise ValueError(f"'rate' must be a number from 0 to below 1, the part that is dropped; got {rate!r}")
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Computes the outputs.

        Args:
          inputs: a tensor of floats.
          training: whether this is training: a bool or a scalar tensor.
        """
        flag = as_flag(training)
        if flag is None:
            return cond(training, lambda: self._dropped(inputs), lambda: tensors.identity(inputs))
        return self._dropped(inputs) if flag else tensors.identity(inputs)

    def _dropped(self, inputs: Any) -> Any:
        noise = self.noise_shape
        if isinstance(noise, (list, tuple)) and None in noise:
            sizes = arrays.shape(inputs)
            noise = [sizes[i] if n is None else n for i, n in enumerate(noise)]
        return nn.dropout(inputs, self.rate, noise, self.seed)


def as_flag(training: Any) -> bool | None:
    """Returns the bool value of `training`; None if only a run determines it."""
    if tensors.is_tensor(training) or isinstance(training, Variable):
        if isinstance(training, Variable):
            return None if training.graph is not None else bool(training)
        value = tensors.constant_value(training)
        return None if value is None else bool(value)
    return bool(training)


class Embedding(Layer):
    """Layer that looks up rows of a table by their indices.

    The gradient of the table is sparse: it has only the rows that were read.

    The inputs are int32 or int64 of any shape; the outputs have that shape with a further axis of size `output_dim`.
    Variable: "embeddings", [input_dim, output_dim].

    Args:
      input_dim: number of rows.
      output_dim: size of a row.
      embeddings_initializer: see `hr.initializers`; None: uniform from -0.05 to 0.05.
      embeddings_regularizer, embeddings_constraint: see `Dense`.
      trainable, name, dtype: see `Layer`; the dtype is float32 if None.

    Raises:
      TypeError: in the call: the inputs are not integers.

    Source: TensorFlow's `tf.keras.layers.Embedding`.

    Example:
      >>> import headrace as hr
      >>> table = hr.layers.Embedding(3, 2, hr.constant([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]))
      >>> table([2, 0]).numpy().tolist()
      [[2.0, 2.0], [0.0, 0.0]]
    """

    embeddings: Any

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = None,
        embeddings_regularizer: Callable[[Any], Any] | None = None,
        embeddings_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype or dtypes.float32)
        self.input_dim, self.output_dim = count("input_dim", input_dim), count("output_dim", output_dim)
        self.embeddings_initializer = embeddings_initializer
        self.embeddings_regularizer, self.embeddings_constraint = embeddings_regularizer, embeddings_constraint

    def build(self, input_shape: Any) -> None:
        """Creates the table."""
        first = self.embeddings_initializer
        if first is None:
            first = initializers.random_uniform(-0.05, 0.05)
        self.embeddings = self.add_variable(
            "embeddings", (self.input_dim, self.output_dim), None, first, True, self.embeddings_regularizer,
            self.embeddings_constraint,
        )  # fmt: skip

    def call(self, inputs: Any) -> Any:
        """Returns the rows of the table."""
        if not inputs.dtype.base.is_integer:
            raise TypeError(f"layer '{self.name}' takes numbers of rows (int32 or int64), got {inputs!r}")
        if isinstance(self.embeddings, Variable):
            return self.embeddings.sparse_read(inputs)
        return nn.embedding_lookup(self.embeddings, inputs)


class Sequential(Layer):
    """Chain of layers: the outputs of each layer are the inputs of the next.

    Args:
      layers: layers, or functions of a tensor.
      name: see `Layer`.

    Raises:
      TypeError: an element of `layers` is not callable.

    Example:
      >>> import headrace as hr
      >>> model = hr.layers.Sequential([hr.layers.Dense(4, "relu"), hr.layers.Dropout(0.5), hr.layers.Dense(2)])
      >>> model([[1.0, 2.0, 3.0]], training=True).shape, [v.name for v in model.variables][:2]
      ((1, 2), ['sequential/dense/kernel:0', 'sequential/dense/bias:0'])
    """

    def __init__(self, layers: Iterable[Callable[..., Any]] = (), name: str | None = None) -> None:
        super().__init__(name=name)
        self.layers: list[Callable[..., Any]] = []
        for layer in layers:
            self.add(layer)

    def add(self, layer: Callable[..., Any]) -> None:
        """Appends a layer or a function. This is possible only before the first call.

        Raises:
          TypeError: `layer` is not callable.
          ValueError: the chain has been called already.
        """
        if not callable(layer):
            raise TypeError(f"Sequential takes layers and functions, got {layer!r}")
        if self.built:
            raise ValueError(f"'{self.name}' has been called already, and cannot get more layers")
        self.layers.append(layer)

    def call(self, inputs: Any, training: Any = False) -> Any:
        """Computes the outputs of the last layer.

        Args:
          inputs: inputs of the first layer.
          training: a bool or a scalar tensor. Layers whose `call` has a parameter `training` receive it.
        """
        for layer in self.layers:
            inputs = layer(inputs, training=training) if _asks_for_training(layer) else layer(inputs)
        return inputs

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, i: int) -> Any:
        return self.layers[i]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)


def _asks_for_training(layer: Callable[..., Any]) -> bool:
    if not isinstance(layer, Layer):
        return False
    return "training" in inspect.signature(layer.call).parameters
