"""Recurrent cells: the computation of a recurrent network in one time step.

A cell takes the inputs of a time step and the state after the previous one, and returns outputs and a new state:

    output, state = cell(inputs, state)

`hr.nn.dynamic_rnn` calls a cell in a loop over time. The state of a cell is a tensor or a structure of tensors.
`state_size` describes it, and `zero_state` creates the initial state.

The cells here are TensorFlow 1's, with its variables: their names, their shapes, and the order of the gates in a
kernel. A kernel is one matrix for the inputs and the previous outputs, one above the other, so that one product
computes all gates. In a loop headrace splits the product again: the product with the inputs does not depend on the
loop, and is computed for all time steps at once before it (`headrace docs reference/loops`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from headrace import dtypes, nest
from headrace.api import arrays, gathering, linalg, math, scopes, tensors
from headrace.api.layers.base import Layer
from headrace.api.nn import activations
from headrace.api.nn.layers import bias_add
from headrace.api.rnn import sizes
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable
from headrace.errors import ShapeError

Activation: TypeAlias = Callable[[Any], Any]


class LSTMStateTuple(NamedTuple):
    """The state of an LSTM.

    Attributes:
      c: cell state (long-term memory): [batch, units].
      h: last output: [batch, units], or [batch, num_proj].

    Source: TensorFlow's `tf.nn.rnn_cell.LSTMStateTuple`.

    Example:
      >>> import headrace as hr
      >>> state = hr.layers.LSTMStateTuple(c=1.0, h=2.0)
      >>> state.h
      2.0
    """

    c: Any
    h: Any

    @property
    def dtype(self) -> dtypes.DType:
        """The dtype of both tensors.

        Raises:
          TypeError: c and h have different dtypes.
        """
        if self.c.dtype.base != self.h.dtype.base:
            raise TypeError(f"the parts of the state have different dtypes: c is {self.c.dtype}, h is {self.h.dtype}")
        found: dtypes.DType = self.c.dtype
        return found


class RNNCell(Layer):
    """Base class of recurrent cells.

    A cell overrides `state_size`, `output_size` and `call`, and `build` if it has variables.

    Args:
      name, trainable, dtype: see `hr.layers.Layer`.

    Source: TensorFlow's `tf.nn.rnn_cell.RNNCell`.

    Example:
      >>> import headrace as hr
      >>> class Adding(hr.layers.RNNCell):
      ...     state_size = output_size = 1
      ...
      ...     def call(self, inputs, state):
      ...         return inputs + state, inputs + state
      >>> outputs, total = hr.nn.dynamic_rnn(Adding(), hr.constant([[[1.0], [2.0], [4.0]]]), dtype=hr.float32)
      >>> outputs.numpy().ravel().tolist(), total.numpy().tolist()
      ([1.0, 3.0, 7.0], [[7.0]])
    """

    _only_computes = False  # whether a call has no effects, so that a copy of the cell may be called instead

    def __init_subclass__(cls, only_computes: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._only_computes = only_computes  # a subclass must declare it again

    if not TYPE_CHECKING:  # a subclass defines attributes or properties

        @property
        def state_size(self) -> Any:
            """Size of an example's state: an int, a shape, or a structure of them."""
            raise NotImplementedError(f"{type(self).__name__} does not say how large its state is: define state_size")

        @property
        def output_size(self) -> Any:
            """Size of an example's output: an int, a shape, or a structure of them."""
            raise NotImplementedError(f"{type(self).__name__} does not say how large its output is: define output_size")

    def __call__(self, inputs: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes a time step.

        Args:
          inputs: [batch, ...]: a tensor, or a structure of them.
          state: the state after the previous step, in the structure of `state_size`.
          args, kwargs: further arguments of `call`.

        Returns:
          The output and the new state.
        """
        return super().__call__(inputs, state, *args, **kwargs)

    def zero_state(self: Any, batch_size: Any, dtype: Any) -> Any:
        """Returns a state of zeros.

        Args:
          batch_size: number of examples: an int or an int32 scalar.
          dtype: dtype of all tensors of the state.

        Example:
          >>> import headrace as hr
          >>> hr.layers.BasicLSTMCell(2).zero_state(3, hr.float32).h.shape
          (3, 2)
        """
        with scopes.name_scope(None, type(self).__name__ + "ZeroState", [batch_size]):
            return sizes.zeros(batch_size, self.state_size, dtype)

    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """Returns the default initial state: zeros.

        Args:
          inputs: inputs of a step, [batch, ...], which determine batch size and dtype.
          batch_size: number of examples; needed if there are no `inputs`.
          dtype: dtype of the state; needed if there are no `inputs`.

        Raises:
          ValueError: the batch size or the dtype is unknown, or contradicts `inputs`.
        """
        if inputs is not None:
            x = nest.flatten(inputs)[0]
            found = scopes.builder(x).tensor(x, None, "inputs")
            size = sizes.batch_size(found, 0)
            if batch_size is not None and isinstance(size, int) and isinstance(batch_size, int) and batch_size != size:
                raise ShapeError(f"the batch size of the inputs is {size}, but batch_size={batch_size} is given")
            if dtype is not None and dtypes.as_dtype(dtype).base != found.dtype.base:
                raise ValueError(f"the inputs are of dtype {found.dtype.name}, but dtype={dtype} is given")
            batch_size, dtype = size, found.dtype.base
        if batch_size is None or dtype is None:
            raise ValueError(
                f"the first state needs a batch size and a dtype, got batch_size={batch_size!r} and dtype={dtype!r}"
            )
        return self.zero_state(batch_size, dtype)

    def prepare(self, inputs: Any) -> None:
        """Creates the variables before a loop that calls the cell; no effect if they exist.

        Args:
          inputs: tensors, or a `hr.TensorSpec` for each.
        """
        own = type(self).build
        if self.built or own is RNNCell.build or own is Layer.build:
            return  # a cell without `build` may make variables when it is called
        with self._entered(inputs):
            self._build(inputs)

    def with_values_read(self) -> Any:
        """Returns a copy of the cell with the current values of its variables.

        A loop calls the copy, so that it does not read the variables in each iteration. If calls of the cell may have
        effects, the method returns the cell itself.
        """
        if not _only_compute(self):
            return self
        read = {id(v): v.value() for v in self.variables if isinstance(v, Variable)}
        return self._copied(read) if read else self


def _only_compute(layer: Any) -> bool:
    return bool(getattr(layer, "_only_computes", False)) and all(map(_only_compute, layer._inside))


def columns(x: Any, name: str) -> int:
    """Returns the known number of columns of the shape of inputs, [batch, columns].

    Raises:
      ShapeError (a ValueError): it is unknown, or the rank is not 2.
    """
    if x is None or len(x) != 2 or x[1] is None:
        raise ShapeError(f"Expected inputs.shape[-1] to be known, saw shape: {x}; '{name}' takes [batch, input_size]")
    return int(x[1])


def activation_of(given: Activation | str | None) -> Activation:
    """Returns the activation function for a function, a name in `hr.nn`, or None (tanh).

    Raises:
      ValueError: no function has this name.
    """
    if given is None:
        return math.tanh
    if callable(given):
        return given
    found: Activation | None = getattr(activations, given, None) or getattr(math, given, None)
    if not callable(found):
        raise ValueError(
            f"there is no activation called {given!r}: give a function, or a name such as 'tanh' or 'relu'"
        )
    return found


def no_integers(*values: Any) -> None:
    """Checks that tensors are of floats or complex numbers, which tanh accepts.

    Raises:
      ValueError: a tensor has another dtype.
    """
    for x in nest.flatten(values):
        if not (x.dtype.is_floating or x.dtype.is_complex):
            raise ValueError(f"cells compute with floats, got {x.dtype.name}; cast it (hr.cast): {x!r}")


def _product(x: Any, h: Any, kernel: Any, bias: Any) -> Any:
    return bias_add(linalg.matmul(arrays.concat([x, h], 1), kernel), bias)


class BasicRNNCell(RNNCell, only_computes=True):
    """Basic recurrent cell: the output is tanh([inputs, state] @ kernel + bias).

    Args:
      num_units: size of the state and the output.
      activation: a function, or its name; None: tanh.
      name, trainable, dtype: see `hr.layers.Layer`.

    Variables: kernel [inputs + units, units], bias [units].

    Source: TensorFlow's `tf.nn.rnn_cell.BasicRNNCell`.

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.BasicRNNCell(4)
      >>> output, state = cell(hr.ones((2, 3)), cell.zero_state(2, hr.float32))
      >>> output.shape, [v.shape for v in cell.variables]
      ((2, 4), [(7, 4), (4,)])
    """

    def __init__(
        self,
        num_units: int,
        activation: Activation | str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._num_units = num_units
        self._activation = activation_of(activation)

    @property
    def state_size(self) -> int:
        """`num_units`."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """`num_units`."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        rows = columns(input_shape, self.name) + self._num_units
        self._kernel = self.add_variable("kernel", [rows, self._num_units])
        self._bias = self.add_variable("bias", [self._num_units], initializer="zeros")

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes activation([inputs, state] @ kernel + bias), the output and the new state."""
        no_integers(inputs, state)
        output = self._activation(_product(inputs, state, self._kernel, self._bias))
        return output, output


class GRUCell(RNNCell, only_computes=True):
    """Gated recurrent unit (GRU) cell; the reset gate is applied before the matrix product.

    Args:
      num_units: size of the state and the output.
      activation: activation of the candidate state: a function, or its name; None: tanh.
      kernel_initializer: initializer of both kernels.
      bias_initializer: initializer of both biases; None: 1 for the gates and 0 for the candidate.
      name, trainable, dtype: see `hr.layers.Layer`.

    Variables: gates/kernel [inputs + units, 2 * units] and gates/bias, with the reset gate r and the update gate u in
      this order; candidate/kernel [inputs + units, units] and candidate/bias.

    Source: TensorFlow's `tf.nn.rnn_cell.GRUCell`; Cho et al., "Learning phrase representations using RNN
    encoder-decoder" (2014).

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.GRUCell(4)
      >>> output, state = cell(hr.ones((2, 3)), cell.zero_state(2, hr.float32))
      >>> [v.name for v in cell.variables]  # doctest: +NORMALIZE_WHITESPACE
      ['gru_cell/gates/kernel:0', 'gru_cell/gates/bias:0', 'gru_cell/candidate/kernel:0',
       'gru_cell/candidate/bias:0']
    """

    def __init__(
        self,
        num_units: int,
        activation: Activation | str | None = None,
        kernel_initializer: Any = None,
        bias_initializer: Any = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._num_units = num_units
        self._activation = activation_of(activation)
        self._kernel_initializer, self._bias_initializer = kernel_initializer, bias_initializer

    @property
    def state_size(self) -> int:
        """`num_units`."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """`num_units`."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Creates the kernels and biases."""
        n = self._num_units
        rows = columns(input_shape, self.name) + n
        given = self._bias_initializer
        self._gate_kernel = self.add_variable("gates/kernel", [rows, 2 * n], initializer=self._kernel_initializer)
        self._gate_bias = self.add_variable("gates/bias", [2 * n], initializer="ones" if given is None else given)
        self._candidate_kernel = self.add_variable("candidate/kernel", [rows, n], initializer=self._kernel_initializer)
        self._candidate_bias = self.add_variable("candidate/bias", [n], initializer="zeros" if given is None else given)

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes u * state + (1 - u) * candidate."""
        no_integers(inputs, state)
        r, u = arrays.split(math.sigmoid(_product(inputs, state, self._gate_kernel, self._gate_bias)), 2, axis=1)
        new = self._activation(_product(inputs, r * state, self._candidate_kernel, self._candidate_bias))
        output = u * state + (1 - u) * new
        return output, output


class _LSTM(RNNCell):
    """Base of LSTM cells, whose state is (c, h) or one joined tensor."""

    _state_is_tuple: bool

    def _parts(self, state: Any, units: int, outputs: int) -> tuple[Any, Any]:
        if self._state_is_tuple:
            try:
                c, h = state
            except (TypeError, ValueError):
                raise ValueError(
                    f"'{self.name}' takes a state of two tensors (c, h), got {nest.describe(state)}; zero_state makes "
                    "one, and state_is_tuple=False takes both side by side in one tensor"
                ) from None
            return c, h
        return (
            gathering.slice(state, [0, 0], [-1, units]),
            gathering.slice(state, [0, units], [-1, outputs]),
        )

    def _whole(self, c: Any, h: Any) -> Any:
        return LSTMStateTuple(c, h) if self._state_is_tuple else arrays.concat([c, h], 1)


class BasicLSTMCell(_LSTM, only_computes=True):
    """LSTM cell without peepholes, clipping and projection.

    Args:
      num_units: size of the state and the output.
      forget_bias: a number that is added to the forget gate; a positive one reduces forgetting early in training.
      state_is_tuple: whether a state is an `LSTMStateTuple`; otherwise c and h are joined along axis 1 in one tensor.
      activation: activation of the candidate values and of c: a function, or its name; None: tanh.
      name, trainable, dtype: see `hr.layers.Layer`.

    Variables: kernel [inputs + units, 4 * units], bias [4 * units], with the parts i (input gate), j (candidate
      values), f (forget gate), o (output gate) in this order.

    Source: TensorFlow's `tf.nn.rnn_cell.BasicLSTMCell`; Zaremba et al., "Recurrent neural network regularization"
    (2014).

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.BasicLSTMCell(4)
      >>> output, (c, h) = cell(hr.ones((2, 3)), cell.zero_state(2, hr.float32))
      >>> output.shape, [(v.name, v.shape) for v in cell.variables]
      ((2, 4), [('basic_lstm_cell/kernel:0', (7, 16)), ('basic_lstm_cell/bias:0', (16,))])
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation | str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = activation_of(activation)

    @property
    def state_size(self) -> Any:
        """`num_units` for c and for h."""
        n = self._num_units
        return LSTMStateTuple(n, n) if self._state_is_tuple else 2 * n

    @property
    def output_size(self) -> int:
        """`num_units`."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        n = self._num_units
        self._kernel = self.add_variable("kernel", [columns(input_shape, self.name) + n, 4 * n])
        self._bias = self.add_variable("bias", [4 * n], initializer="zeros")

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes h and the new state."""
        no_integers(inputs, state)
        c, h = self._parts(state, self._num_units, self._num_units)
        i, j, f, o = arrays.split(_product(inputs, h, self._kernel, self._bias), 4, axis=1)
        c = c * math.sigmoid(f + self._forget_bias) + math.sigmoid(i) * self._activation(j)
        h = self._activation(c) * math.sigmoid(o)
        return h, self._whole(c, h)


class LSTMCell(_LSTM, only_computes=True):
    """LSTM cell with optional peepholes, clipping and output projection.

    Args:
      num_units: size of c.
      use_peepholes: whether the gates also depend on c (peephole connections).
      cell_clip: c is clipped to [-cell_clip, cell_clip]; None: no clipping.
      initializer: initializer of the kernels and the peephole weights.
      num_proj: size of the projected output; None: no projection.
      proj_clip: the projected output is clipped to [-proj_clip, proj_clip]; None: no clipping.
      forget_bias: a number that is added to the forget gate.
      state_is_tuple: whether a state is an `LSTMStateTuple`; otherwise c and h are joined along axis 1 in one tensor.
      activation: activation of the candidate values and of c: a function, or its name; None: tanh.
      name, trainable, dtype: see `hr.layers.Layer`.

    Variables: kernel [inputs + outputs, 4 * units] and bias [4 * units], with the parts i, j, f, o in this order;
    w_f_diag, w_i_diag and w_o_diag [units]; projection/kernel [units, num_proj].

    Source: TensorFlow's `tf.nn.rnn_cell.LSTMCell`; Sak et al., "Long short-term memory recurrent neural network
    architectures for large scale acoustic modeling" (2014).

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.LSTMCell(4, use_peepholes=True, num_proj=2)
      >>> output, (c, h) = cell(hr.ones((2, 3)), cell.zero_state(2, hr.float32))
      >>> c.shape, h.shape, cell.variables[0].shape
      ((2, 4), (2, 2), (5, 16))
    """

    def __init__(
        self,
        num_units: int,
        use_peepholes: bool = False,
        cell_clip: float | None = None,
        initializer: Any = None,
        num_proj: int | None = None,
        proj_clip: float | None = None,
        forget_bias: float = 1.0,
        state_is_tuple: bool = True,
        activation: Activation | str | None = None,
        name: str | None = None,
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._num_units = num_units
        self._use_peepholes = use_peepholes
        self._cell_clip, self._proj_clip = cell_clip, proj_clip
        self._initializer = initializer
        self._num_proj = num_proj
        self._forget_bias = forget_bias
        self._state_is_tuple = state_is_tuple
        self._activation = activation_of(activation)

    @property
    def state_size(self) -> Any:
        """`num_units` for c, and `output_size` for h."""
        n, m = self._num_units, self.output_size
        return LSTMStateTuple(n, m) if self._state_is_tuple else n + m

    @property
    def output_size(self) -> int:
        """`num_proj`, or `num_units` if there is no projection."""
        return self._num_units if self._num_proj is None else self._num_proj

    def build(self, input_shape: Any) -> None:
        """Creates the kernels, the bias and the peephole weights."""
        n, given = self._num_units, self._initializer
        rows = columns(input_shape, self.name) + self.output_size
        self._kernel = self.add_variable("kernel", [rows, 4 * n], initializer=given)
        self._bias = self.add_variable("bias", [4 * n], initializer="zeros")
        if self._use_peepholes:
            self._w_f_diag = self.add_variable("w_f_diag", [n], initializer=given)
            self._w_i_diag = self.add_variable("w_i_diag", [n], initializer=given)
            self._w_o_diag = self.add_variable("w_o_diag", [n], initializer=given)
        if self._num_proj is not None:
            self._proj_kernel = self.add_variable("projection/kernel", [n, self._num_proj], initializer=given)

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes h and the new state."""
        no_integers(inputs, state)
        c, h = self._parts(state, self._num_units, self.output_size)
        i, j, f, o = arrays.split(_product(inputs, h, self._kernel, self._bias), 4, axis=1)
        f = f + self._forget_bias
        if self._use_peepholes:
            f, i = f + self._w_f_diag * c, i + self._w_i_diag * c
        c = math.sigmoid(f) * c + math.sigmoid(i) * self._activation(j)
        if self._cell_clip is not None:
            c = math.clip_by_value(c, -self._cell_clip, self._cell_clip)
        if self._use_peepholes:
            o = o + self._w_o_diag * c
        h = math.sigmoid(o) * self._activation(c)
        if self._num_proj is not None:
            h = linalg.matmul(h, self._proj_kernel)
            if self._proj_clip is not None:
                h = math.clip_by_value(h, -self._proj_clip, self._proj_clip)
        return h, self._whole(c, h)


def like_inputs(output_size: Any, inputs: Any) -> Any:
    """Returns a `TensorSpec` for each output of a cell, the inputs of the next cell."""
    x = nest.flatten(inputs)[0]
    dtype = getattr(x, "dtype", dtypes.float32)
    batch = None if not x.shape else x.shape[0]
    return nest.map_leaves(lambda size: TensorSpec(sizes.static(batch, size), dtype.base), output_size)


def check_cell(what: str, cell: Any) -> None:
    """Checks that an object is a cell.

    Raises:
      TypeError: it has no `output_size`, `state_size` or `zero_state`, or is not callable.
    """
    missing = [name for name in ("output_size", "state_size") if not _has(cell, name)]
    if not _has(cell, "zero_state") and not _has(cell, "get_initial_state"):
        missing.append("zero_state")
    if missing or not callable(cell):
        lacks = "it cannot be called" if not missing else f"it has no {', no '.join(missing)}"
        raise TypeError(f"The argument {what!r} ({cell!r}) is not an RNNCell: {lacks}. See hr.layers.RNNCell")


def _has(x: Any, name: str) -> bool:
    try:
        return hasattr(x, name)
    except NotImplementedError:
        return False


def is_symbolic(x: Any) -> bool:
    """Whether a value is known only in a run."""
    return tensors.is_tensor(x) and tensors.constant_value(x) is None
