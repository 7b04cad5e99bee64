"""TensorFlow 1's `tf.nn.rnn_cell`: headrace's cells, with the variables of `get_variable`.

A cell's variables are in a variable scope of its name below that of the network: "rnn/basic_lstm_cell/kernel:0",
"rnn/multi_rnn_cell/cell_0/gru_cell/gates/bias:0". A wrapper has no scope of its own.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.api import scopes
from headrace.api.layers.base import Layer
from headrace.api.partitioned import parts_of
from headrace.api.rnn import cells, wrappers
from headrace.api.rnn.cells import LSTMStateTuple as LSTMStateTuple
from headrace.ir.source import is_ours
from headrace.v1.graph import in_default_graph
from headrace.v1.layers import Scoped
from headrace.v1.partitioners import fixed_size_partitioner
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.variable_scopes import get_variable_scope, variable_scope


class RNNCell(Scoped, cells.RNNCell):
    """Base class of recurrent cells.

    A subclass overrides `state_size`, `output_size` and `call`. It creates its variables in `call` by `get_variable`,
    or in `build` by `add_variable`. See `headrace.layers.RNNCell`.

    Source: TensorFlow's `tf.nn.rnn_cell.RNNCell`.
    """

    def __init__(self, trainable: bool = True, name: str | None = None, dtype: Any = None, **kwargs: Any) -> None:
        self._reuse = kwargs.pop("_reuse", None)
        name = self._with_style(name, self._reuse)
        super().__init__(name=name, trainable=trainable, dtype=dtype, **kwargs)

    @in_default_graph
    def __call__(self, inputs: Any, *args: Any, scope: Any = None, **kwargs: Any) -> Any:
        """Computes a time step.

        Args:
          inputs: a tensor [batch, ...].
          *args: the state of the previous step, and optionally the scope.
          scope: variable scope of the cell or its name, for the first call.
          **kwargs: further arguments of `call`.

        Returns:
          A pair: the output and the new state.
        """
        state, *given = args
        return super().__call__(inputs, state, scope=given[0] if given else scope, **kwargs)

    @in_default_graph
    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns a state of zeros. See `headrace.layers.RNNCell.zero_state`."""
        return super().zero_state(batch_size, dtype)

    @in_default_graph
    def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
        """Returns the default initial state. See `headrace.layers.RNNCell`."""
        return super().get_initial_state(inputs, batch_size, dtype)

    @contextlib.contextmanager
    def _entered(self, inputs: Any) -> Iterator[None]:
        if self._owns:
            with scopes.name_scope(self.name):
                yield
            return
        self._choose_scope(None)
        assert self._scope is not None
        with (
            variable_scope(self._scope, reuse=self._reuses(), auxiliary_name_scope=False) as found,
            scopes.name_scope(found.original_name_scope),
        ):
            yield

    def _shape_of(self, x: Any) -> Any:
        found = super()._shape_of(x)
        is_plain = is_ours(inspect.unwrap(type(self).build).__code__.co_filename)  # headrace's own cells read a tuple
        return found if is_plain else TensorShape(found)

    def _run(self, inputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(self).build is not Layer.build:
            return super()._run(inputs, args, kwargs)
        with variable_scope(get_variable_scope(), custom_getter=self._kept, auxiliary_name_scope=False):
            return super()._run(inputs, args, kwargs)

    def _kept(self, getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls `getter`, and records the variable that it returns as one of the cell."""
        got = getter(*args, **kwargs)
        for part in parts_of(got):
            if not any(part is v for v in self.variables):
                self._own_variables.append(part)
        return got


class BasicRNNCell(RNNCell, cells.BasicRNNCell, only_computes=True):
    """Recurrent cell without gates. See `headrace.layers.BasicRNNCell`.

    Source: TensorFlow's `tf.nn.rnn_cell.BasicRNNCell`.
    """

    def __init__(
        self, num_units: int, activation: Any = None, reuse: Any = None, name: str | None = None, dtype: Any = None,
        trainable: bool = True,
    ) -> None:  # fmt: skip
        name = self._with_style(name, reuse)
        cells.BasicRNNCell.__init__(self, num_units, activation, name, dtype, trainable)
        self._reuse = reuse


class GRUCell(RNNCell, cells.GRUCell, only_computes=True):
    """Gated recurrent unit. See `headrace.layers.GRUCell`.

    Source: TensorFlow's `tf.nn.rnn_cell.GRUCell`.
    """

    def __init__(
        self, num_units: int, activation: Any = None, reuse: Any = None, kernel_initializer: Any = None,
        bias_initializer: Any = None, name: str | None = None, dtype: Any = None, trainable: bool = True,
    ) -> None:  # fmt: skip
        name = self._with_style(name, reuse)
        cells.GRUCell.__init__(
            self, num_units, activation, kernel_initializer, bias_initializer, name, dtype, trainable
        )
        self._reuse = reuse


class BasicLSTMCell(RNNCell, cells.BasicLSTMCell, only_computes=True):
    """LSTM cell without peepholes, clipping and projection. See `headrace.layers.BasicLSTMCell`.

    Source: TensorFlow's `tf.nn.rnn_cell.BasicLSTMCell`.
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, state_is_tuple: bool = True, activation: Any = None,
        reuse: Any = None, name: str | None = None, dtype: Any = None, trainable: bool = True,
    ) -> None:  # fmt: skip
        name = self._with_style(name, reuse)
        cells.BasicLSTMCell.__init__(self, num_units, forget_bias, state_is_tuple, activation, name, dtype, trainable)
        self._reuse = reuse


class LSTMCell(RNNCell, cells.LSTMCell, only_computes=True):
    """LSTM cell with optional peepholes, clipping and projection. See `headrace.layers.LSTMCell`.

    Args:
      num_unit_shards, num_proj_shards: numbers of parts of the kernel and of the projection. None: one part.
      num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip: see `headrace.layers.LSTMCell`.
      forget_bias, state_is_tuple, activation, reuse, name, dtype, trainable: see `headrace.layers.LSTMCell`.

    Source: TensorFlow's `tf.nn.rnn_cell.LSTMCell`.
    """

    def __init__(
        self, num_units: int, use_peepholes: bool = False, cell_clip: float | None = None, initializer: Any = None,
        num_proj: int | None = None, proj_clip: float | None = None, num_unit_shards: int | None = None,
        num_proj_shards: int | None = None, forget_bias: float = 1.0, state_is_tuple: bool = True,
        activation: Any = None, reuse: Any = None, name: str | None = None, dtype: Any = None, trainable: bool = True,
    ) -> None:  # fmt: skip
        name = self._with_style(name, reuse)
        cells.LSTMCell.__init__(
            self, num_units, use_peepholes, cell_clip, initializer, num_proj, proj_clip, forget_bias, state_is_tuple,
            activation, name, dtype, trainable,
        )  # fmt: skip
        self._reuse = reuse
        self._shards = {"kernel": num_unit_shards, "projection/kernel": num_proj_shards}

    def _make_variable(self, name: str, *args: Any, **kwargs: Any) -> Any:
        shards = self._shards.get(name)
        with self._cut_by(None if shards is None else fixed_size_partitioner(shards)):
            return super()._make_variable(name, *args, **kwargs)


class MultiRNNCell(RNNCell, wrappers.MultiRNNCell, only_computes=True):
    """Stack of cells: the output of each is the input of the next.

    See `headrace.layers.MultiRNNCell`.

    Source: TensorFlow's `tf.nn.rnn_cell.MultiRNNCell`.
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True) -> None:
        wrappers.MultiRNNCell.__init__(self, cells, state_is_tuple)

    @contextlib.contextmanager
    def _place_of(self, k: int) -> Iterator[None]:
        with variable_scope(f"cell_{k}"):
            yield


class _Wrapper(RNNCell):
    """Base class of cells that wrap a cell. A wrapper has no variable scope."""

    @in_default_graph
    def __call__(self, inputs: Any, *args: Any, scope: Any = None, **kwargs: Any) -> Any:
        """Computes a time step of the wrapped cell and of the wrapper.

        Args:
          inputs: inputs of the step.
          *args: the state of the previous step, and optionally the scope.
          scope: variable scope of the wrapped cell or its name, for the first call.
          **kwargs: further arguments of `call`.
        """
        state, *given = args
        scope = given[0] if given else scope
        return self.call(inputs, state, **kwargs) if scope is None else self.call(inputs, state, scope=scope, **kwargs)


class DropoutWrapper(_Wrapper, wrappers.DropoutWrapper, only_computes=True):
    """Cell with dropout. See `headrace.layers.DropoutWrapper`.

    Source: TensorFlow's `tf.nn.rnn_cell.DropoutWrapper`.
    """

    @in_default_graph
    def __init__(
        self, cell: Any, input_keep_prob: Any = 1.0, output_keep_prob: Any = 1.0, state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False, input_size: Any = None, dtype: Any = None, seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        wrappers.DropoutWrapper.__init__(
            self, cell, input_keep_prob, output_keep_prob, state_keep_prob, variational_recurrent, input_size, dtype,
            seed, dropout_state_filter_visitor,
        )  # fmt: skip


class ResidualWrapper(_Wrapper, wrappers.ResidualWrapper):
    """Cell whose inputs are added to its outputs. See `headrace.layers.ResidualWrapper`.

    Source: TensorFlow's `tf.nn.rnn_cell.ResidualWrapper`.
    """

    def __init__(self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None) -> None:
        wrappers.ResidualWrapper.__init__(self, cell, residual_fn)


class DeviceWrapper(_Wrapper, wrappers.DeviceWrapper, only_computes=True):
    """Cell whose operations request a device. See `headrace.layers.DeviceWrapper`.

    Source: TensorFlow's `tf.nn.rnn_cell.DeviceWrapper`.
    """

    def __init__(self, cell: Any, device: Any) -> None:
        wrappers.DeviceWrapper.__init__(self, cell, device)
