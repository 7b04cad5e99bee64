"""Cells made of cells: stacked cells, and cells with additional computations."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace import nest, shapes
from headrace.api import arrays, gathering, math, random, scopes, tensors
from headrace.api.nn.layers import dropout
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import LSTMStateTuple, RNNCell, check_cell, is_symbolic, like_inputs
from headrace.errors import ShapeError


class MultiRNNCell(RNNCell, only_computes=True):
    """Stack of cells: each takes the outputs of the previous one.

    Args:
      cells: the cells, from that of the inputs to that of the outputs.
      state_is_tuple: whether a state is a tuple of the cells' states; otherwise they are joined along axis 1 in one
        tensor.
      name: name of the layer; the scopes of the cells are "cell_0", "cell_1", ... in its scope.

    Raises:
      ValueError: there are no cells, or states that are structures are to be joined.
      TypeError: `cells` is not a list or tuple, or an element is not a cell.

    Source: TensorFlow's `tf.nn.rnn_cell.MultiRNNCell`.

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.MultiRNNCell([hr.layers.GRUCell(4), hr.layers.GRUCell(3)])
      >>> cell.state_size, cell.output_size
      ((4, 3), 3)
    """

    def __init__(self, cells: Sequence[Any], state_is_tuple: bool = True, name: str | None = None) -> None:
        super().__init__(name=name)
        if not isinstance(cells, (list, tuple)):
            raise TypeError(f"cells must be a list or tuple of cells, got {cells!r}")
        if not cells:
            raise ValueError("Must specify at least one cell for MultiRNNCell.")
        for k, cell in enumerate(cells):
            check_cell(f"cells[{k}]", cell)
        self._cells = list(cells)
        self._state_is_tuple = state_is_tuple
        if not state_is_tuple and any(nest.is_nested(cell.state_size) for cell in cells):
            raise ValueError(
                "Some cells have states of several tensors, but state_is_tuple=False joins states side by side: the "
                f"state sizes are {[cell.state_size for cell in cells]}"
            )

    @property
    def state_size(self) -> Any:
        """Tuple of the cells' state sizes, or their sum if states are joined."""
        found = tuple(cell.state_size for cell in self._cells)
        return found if self._state_is_tuple else sum(map(sizes.width, found))

    @property
    def output_size(self) -> Any:
        """Output size of the last cell."""
        return self._cells[-1].output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the tuple of the cells' states of zeros; see `RNNCell.zero_state`."""
        if not self._state_is_tuple:
            return super().zero_state(batch_size, dtype)
        with scopes.name_scope(None, type(self).__name__ + "ZeroState", [batch_size]):
            return tuple(cell.zero_state(batch_size, dtype) for cell in self._cells)

    def prepare(self, inputs: Any) -> None:
        """See `RNNCell.prepare`."""
        if all(getattr(cell, "built", False) for cell in self._cells):
            return
        with self._entered(inputs):
            for k, cell in enumerate(self._cells):
                with self._place_of(k):
                    if hasattr(cell, "prepare"):
                        cell.prepare(inputs)
                inputs = like_inputs(cell.output_size, inputs)

    @contextlib.contextmanager
    def _place_of(self, k: int) -> Iterator[None]:
        """Enters the scope of cell `k`."""
        with scopes.name_scope(f"cell_{k}"):
            kept = self._path, self._names_inside
            self._path, self._names_inside = f"{self._path}/cell_{k}", {}
            try:
                yield
            finally:
                self._path, self._names_inside = kept

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes the output of the last cell, and the new states of all cells."""
        before = self._states(state)
        after = []
        for k, (cell, own) in enumerate(zip(self._cells, before, strict=True)):
            with self._place_of(k):
                inputs, new = cell(inputs, own)
            after.append(new)
        return inputs, tuple(after) if self._state_is_tuple else arrays.concat(after, 1)

    def _states(self, state: Any) -> list[Any]:
        if self._state_is_tuple:
            if not isinstance(state, (list, tuple)) or len(state) != len(self._cells):
                raise ValueError(
                    f"Expected state to be a tuple of length {len(self._cells)}, but received: {nest.describe(state)}"
                )
            return list(state)
        found, at = [], 0
        for cell in self._cells:
            n = sizes.width(cell.state_size)
            found.append(gathering.slice(state, [0, at], [-1, n]))
            at += n
        return found


class _Wrapper(RNNCell):
    """Base of cells that wrap a cell; the variables keep their names.

    Attributes:
      cell: the wrapped cell.
    """

    def __init__(self, cell: Any, name: str | None = None, dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        check_cell("cell", cell)
        self.cell = cell

    @property
    def wrapped_cell(self) -> Any:
        """The wrapped cell."""
        return self.cell

    @property
    def state_size(self) -> Any:
        """State size of the wrapped cell."""
        return self.cell.state_size

    @property
    def output_size(self) -> Any:
        """Output size of the wrapped cell."""
        return self.cell.output_size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the zero state of the wrapped cell."""
        return self.cell.zero_state(batch_size, dtype)

    def prepare(self, inputs: Any) -> None:
        """See `RNNCell.prepare`."""
        if hasattr(self.cell, "prepare"):
            self.cell.prepare(inputs)

    def __call__(self, inputs: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a step of the wrapped cell with the change that the wrapper makes."""
        self._note_call(inputs, (state, *args), kwargs)
        return self.call(inputs, state, *args, **kwargs)


class DropoutWrapper(_Wrapper, only_computes=True):
    """Cell wrapper that applies dropout to the inputs, the outputs and the state.

    Args:
      cell: the cell to wrap.
      input_keep_prob, output_keep_prob, state_keep_prob: the probability that an element is kept: a number in [0, 1],
        or a scalar tensor. 1: no dropout.
      variational_recurrent: whether the same mask is used for all steps and all examples. The mask is drawn when the
        wrapper is created: in a graph by an operation, so each run has another mask; outside of graphs once.
      input_size: size of the inputs; needed if `variational_recurrent` is True and inputs are dropped.
      dtype: dtype of inputs, states and outputs; needed if `variational_recurrent` is True.
      seed: the seed from which the seeds of the dropout of inputs, states and outputs are derived.
      dropout_state_filter_visitor: a function from a state, or a part of one, to a bool: whether dropout is applied to
        it. It may return a structure of bools for the parts. None: all states except the c of an LSTM and tensor
        arrays.
      name: accepted for compatibility; the variables keep the names that they have in the cell.

    Raises:
      ValueError: a probability is not in [0, 1], or an argument is missing.
      TypeError: `cell` is not a cell, or the filter is not callable.

    Source: TensorFlow's `tf.nn.rnn_cell.DropoutWrapper`; Gal and Ghahramani, "A theoretically grounded application of
    dropout in recurrent neural networks" (2016).

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.DropoutWrapper(hr.layers.GRUCell(1000), output_keep_prob=0.5, seed=3)
      >>> output, _ = cell(hr.ones((1, 2)), cell.zero_state(1, hr.float32))
      >>> 400 < int((output.numpy() == 0).sum()) < 600
      True
    """

    def __init__(
        self,
        cell: Any,
        input_keep_prob: Any = 1.0,
        output_keep_prob: Any = 1.0,
        state_keep_prob: Any = 1.0,
        variational_recurrent: bool = False,
        input_size: Any = None,
        dtype: Any = None,
        seed: int | None = None,
        dropout_state_filter_visitor: Callable[[Any], Any] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(cell, name, dtype)
        if dropout_state_filter_visitor is not None and not callable(dropout_state_filter_visitor):
            raise TypeError(f"dropout_state_filter_visitor must be callable, got {dropout_state_filter_visitor!r}")
        self._filter = dropout_state_filter_visitor or _all_but_memory
        self._input_keep = _probability("input_keep_prob", input_keep_prob)
        self._output_keep = _probability("output_keep_prob", output_keep_prob)
        self._state_keep = _probability("state_keep_prob", state_keep_prob)
        self._seed = seed
        self._noise: dict[str, Any] | None = None
        if variational_recurrent:
            if dtype is None:
                raise ValueError("When variational_recurrent=True, dtype must be provided: that of inputs and states")
            wanted = {"state": cell.state_size, "output": cell.output_size}
            if _drops(self._input_keep):
                if input_size is None:
                    raise ValueError(
                        "When variational_recurrent=True and input_keep_prob is below 1, or not known, input_size must "
                        "be provided: the number of columns of the inputs"
                    )
                wanted = {"input": input_size, **wanted}
            with scopes.name_scope("DropoutWrapperInit"):
                self._noise = {what: self._drawn(what, size, dtype) for what, size in wanted.items()}

    def _drawn(self, what: str, size: Any, dtype: Any) -> Any:
        """Draws numbers in [0, 1) for one example, in the structure of a size."""
        leaves = [
            random.uniform([1, *sizes.dims_of(leaf)], seed=self._seed_of(what, k), dtype=dtype)
            for k, leaf in enumerate(nest.flatten(size))
        ]
        return nest.pack(size, leaves)

    def _seed_of(self, what: str, index: int) -> int | None:
        """Returns TensorFlow's seed, so that the same elements are dropped as in TensorFlow."""
        if self._seed is None:
            return None
        digest = hashlib.md5(f"{self._seed}{what}_{index}".encode(), usedforsecurity=False).hexdigest()
        return int(digest[:8], 16) & 0x7FFFFFFF

    def call(self, inputs: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a step of the cell with dropout."""
        if _drops(self._input_keep):
            inputs = self._dropped("input", inputs, self._input_keep, None)
        output, new = self.cell(inputs, state, *args, **kwargs)
        if _drops(self._state_keep):
            new = self._dropped("state", new, self._state_keep, self._filter)
        if _drops(self._output_keep):
            output = self._dropped("output", output, self._output_keep, None)
        return output, new

    def _dropped(self, what: str, values: Any, keep: Any, chooses: Callable[[Any], Any] | None) -> Any:
        leaves = nest.flatten(values)
        noise = [None] * len(leaves) if self._noise is None else nest.flatten(self._noise[what])
        parts = [(True, 1)] * len(leaves) if chooses is None else _answers(chooses, values)
        out = list(leaves)
        at = 0
        for index, (is_subject, n) in enumerate(parts):
            for k in range(at, at + n) if is_subject else ():
                if noise[k] is None:
                    out[k] = dropout(leaves[k], 1 - keep, seed=self._seed_of(what, index))
                else:
                    out[k] = leaves[k] / keep * math.floor(keep + noise[k])
            at += n
        return nest.pack(values, out)


def _probability(name: str, value: Any) -> Any:
    if is_symbolic(value):
        return value
    # float32, as in TensorFlow, so that the same seed drops the same elements
    known = float(np.float32(tensors.constant_value(value) if tensors.is_tensor(value) else value))
    if not 0 <= known <= 1:
        raise ValueError(f"Parameter {name} must be between 0 and 1: {known}")
    return known


def _drops(keep: Any) -> bool:
    return not isinstance(keep, float) or keep < 1


def _all_but_memory(state: Any) -> Any:
    if isinstance(state, LSTMStateTuple):
        return LSTMStateTuple(c=False, h=True)
    return not nest.is_composite(state)  # a tensor array


def _answers(chooses: Callable[[Any], Any], state: Any) -> list[tuple[bool, int]]:
    """Returns for each part of a state whether dropout applies, and its number of tensors."""
    answer, node = chooses(state), nest.nodes[type(state)]
    if nest.is_nested(answer):
        chosen = list(zip(nest.flatten(answer), nest.flatten_up_to(answer, state), strict=True))
    elif answer and node is not None and not node.is_composite:
        chosen = [(True, part) for part in node.parts(state)]
    else:
        return [(bool(answer), len(nest.flatten(state)))]
    out = []
    for yes, part in chosen:
        out += _answers(chooses, part) if yes else [(False, len(nest.flatten(part)))]
    return out


class ResidualWrapper(_Wrapper):
    """Cell wrapper that adds the inputs to the outputs.

    Args:
      cell: the cell to wrap.
      residual_fn: a function from inputs and outputs to the new outputs; None: their sum.
      name: accepted for compatibility; the variables keep the names that they have in the cell.

    Raises:
      ShapeError (a ValueError): in a call: inputs and outputs have different shapes or structures.

    Source: TensorFlow's `tf.nn.rnn_cell.ResidualWrapper`; Wu et al., "Google's neural machine translation system"
    (2016).

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.GRUCell(2)
      >>> x, state = hr.ones((1, 2)), cell.zero_state(1, hr.float32)
      >>> both, _ = hr.layers.ResidualWrapper(cell)(x, state)
      >>> bool((both.numpy() == cell(x, state)[0].numpy() + 1).all())
      True
    """

    def __init__(
        self, cell: Any, residual_fn: Callable[[Any, Any], Any] | None = None, name: str | None = None
    ) -> None:
        super().__init__(cell, name)
        self._residual_fn = residual_fn or _sum

    def call(self, inputs: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a step of the cell, and adds the inputs to the outputs."""
        outputs, new = self.cell(inputs, state, *args, **kwargs)
        return self._residual_fn(inputs, outputs), new


def _sum(inputs: Any, outputs: Any) -> Any:
    found = nest.mismatch(inputs, outputs)
    if found is not None:
        raise ShapeError(f"a residual adds inputs to outputs of the same structure, got different ones{found}")

    def add(x: Any, y: Any) -> Any:
        if not shapes.compatible(x.shape, y.shape):
            raise ShapeError(
                f"a residual adds inputs to outputs of the same shape, got {shapes.show(x.shape)} and "
                f"{shapes.show(y.shape)}; make the cell as wide as its inputs, or give residual_fn"
            )
        return x + y

    return nest.map_leaves(add, inputs, outputs)


class DeviceWrapper(_Wrapper, only_computes=True):
    """Cell wrapper that requests a device for the operations of the cell.

    Args:
      cell: the cell to wrap.
      device: see `hr.device`.
      name: accepted for compatibility; the variables keep the names that they have in the cell.

    Source: TensorFlow's `tf.nn.rnn_cell.DeviceWrapper`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     cell = hr.layers.DeviceWrapper(hr.layers.GRUCell(2), "/device:CPU:1")
      ...     output, _ = cell(hr.ones((1, 2)), cell.zero_state(1, hr.float32))
      ...     output.device
      '/device:CPU:1'
    """

    def __init__(self, cell: Any, device: Any, name: str | None = None) -> None:
        super().__init__(cell, name)
        self._device = device

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the zero state of the cell, created on the device."""
        with scopes.device(self._device):
            return self.cell.zero_state(batch_size, dtype)

    def prepare(self, inputs: Any) -> None:
        """See `RNNCell.prepare`."""
        with scopes.device(self._device):
            super().prepare(inputs)

    def call(self, inputs: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs a step of the cell on the device."""
        with scopes.device(self._device):
            return self.cell(inputs, state, *args, **kwargs)
