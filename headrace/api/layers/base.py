"""Base class of layers.

A layer is a function with its own variables. The first call creates the variables, because their sizes depend on the
inputs. Each later call uses the same variables, so a layer is shared by calling it several times.

    dense = hr.layers.Dense(10)
    y = dense(x)        # creates dense/kernel and dense/bias, and computes with them
    z = dense(other)    # computes with the same two

A class of layers overrides `build`, which creates the variables with `add_variable`, and `call`, which computes. Both
may call layers that are attributes (or members of lists, tuples and dicts that are attributes). The variables, losses
and updates of these layers count among those of the layer with the attributes.

In a graph the operations and variables of a layer are in a name scope with the layer's name, the same for all calls.
Eager execution has no scopes. There the running layer prefixes the names of the layers inside, so that variables have
the same names as in a graph.
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import arrays, initializers, math, scopes, tensors, tracing
from headrace.api.partitioned import parts_of
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable
from headrace.errors import ShapeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor

# The layer whose call is running in this context.
_running: contextvars.ContextVar[Layer | None] = contextvars.ContextVar("headrace_running_layer", default=None)


def snake_case(name: str) -> str:
    """Converts the name of a class to that of its layers: "MaxPooling2D" to "max_pooling2d"."""
    apart = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", apart).lower().lstrip("_")


class Layer:
    """A function that owns variables, which its first call creates.

    Args:
      name: name of the layer and of its name scope; None: the class's name in snake case, as in "max_pooling2d".
      trainable: whether the variables of the layer are trainable.
      dtype: dtype of the variables; None: the dtype of the first input if that is floating or complex, else float32.
      activity_regularizer: a function from the outputs to a scalar loss. The loss divided by the batch size is an
        element of `losses`.

    Attributes:
      name, trainable: as given.
      dtype: dtype of the variables; None before the first call unless it was given.
      built: whether the variables exist.

    Source: TensorFlow's `tf.layers.Layer`.

    Example:
      >>> import headrace as hr
      >>> class Scale(hr.layers.Layer):
      ...     def build(self, input_shape):
      ...         self.factor = self.add_variable("factor", input_shape[-1:], initializer=hr.initializers.ones())
      ...
      ...     def call(self, inputs):
      ...         return inputs * self.factor
      >>> scale = Scale()
      >>> scale(hr.constant([[1.0, 2.0]])).numpy().tolist(), scale.variables[0].name
      ([[1.0, 2.0]], 'scale/factor:0')
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "build" in vars(cls):
            cls.build = _marking_built(cls.build)  # type: ignore[method-assign]

    def __init__(
        self,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
    ) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a layer is a string, got {name!r}")
        self.name = name or snake_case(type(self).__name__)
        self.trainable = trainable
        self.dtype: dtypes.DType | None = None if dtype is None else dtypes.as_dtype(dtype).base
        self.built = False
        self._is_building = False
        self.activity_regularizer = activity_regularizer
        self._undivided: frozenset[str] = frozenset()  # names of the variables that are never partitioned
        self._own_variables: list[Any] = []
        self._own_losses: list[Any] = []  # tensors, functions of none, or (regularizer, its argument)
        self._activity_losses: list[Any] = []
        self._own_updates: list[Any] = []
        self._path = self.name
        self._is_outside = False  # whether the variables are outside of graphs
        self._stands_in: tuple[Any, str] | None = None  # the root graph and the name scope of the first call
        self._names_inside: dict[str, int] = {}
        self._first_call: tuple[Any, Any] | None = None

    # *** for classes of layers ***

    def build(self, input_shape: Any) -> None:
        """Creates the variables.

        The layer calls this method once, before the first `call`. A subclass overrides it.

        Args:
          input_shape: the static shape of the inputs, a tuple with None for unknown dimensions, or None for an unknown
            rank. For a structure of inputs, the same structure of shapes.
        """

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes the outputs. A subclass overrides it.

        Args:
          inputs: tensors.
          args, kwargs: the other arguments of the layer's call.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes: define call(self, inputs)")

    def add_variable(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        initializer: Any = None,
        trainable: bool = True,
        regularizer: Callable[[Any], Any] | None = None,
        constraint: Callable[[Any], Any] | None = None,
    ) -> Any:
        """Creates a variable of the layer. `build` calls it.

        Args:
          name: name of the variable, relative to the layer's name scope.
          shape: the fully known shape.
          dtype: dtype of the variable; None: the dtype of the layer.
          initializer: a function of shape and dtype (see `hr.initializers`), the name of one, or a value; None:
            glorot_uniform for floats, and zeros for other dtypes.
          trainable: whether the variable is trainable, if the layer is.
          regularizer: a function from the variable to a scalar loss, or to None for no loss. The loss is an element of
            `losses`.
          constraint: a function from a value of the variable to an allowed value; optimizers apply it.

        Raises:
          ShapeError (a ValueError): the shape is not fully known.
        """
        wanted = dtypes.as_dtype(dtype or self.dtype or dtypes.float32).base
        dims = shapes.as_shape(shape)
        known = () if dims is None else tuple(d for d in dims if d is not None)
        if dims is None or len(known) < len(dims):
            raise ShapeError(
                f"the variable '{name}' of layer '{self.name}' needs a shape that is fully known, got "
                f"{shapes.show(dims)}"
            )
        is_learned = bool(trainable and self.trainable)
        made = self._make_variable(name, known, wanted, initializer, is_learned, regularizer, constraint)
        for part in parts_of(made):
            if not any(v is part for v in self._own_variables):
                self._own_variables.append(part)
        return made

    def _make_variable(
        self,
        name: str,
        dims: tuple[int, ...],
        dtype: dtypes.DType,
        initializer: Any,
        trainable: bool,
        regularizer: Callable[[Any], Any] | None,
        constraint: Callable[[Any], Any] | None,
    ) -> Any:
        """Creates the variable. Subclasses that create variables in another way override this."""
        make = initializers.get(initializer, dtype)
        b = scopes.builder()
        full = name if isinstance(b, Builder) else f"{self._path}/{name}"
        variable = Variable(lambda: make(dims, dtype), trainable, full, dtype, dims, constraint=constraint)
        if regularizer is not None:
            if variable.graph is None:
                self._own_losses.append((regularizer, variable))  # `losses` applies it to the current value
            else:
                scope = f"{variable.name.partition(':')[0]}/Regularizer/"
                around = dataclasses.replace(b, graph=variable.graph, scope=scope, control_inputs=())
                with scopes.entered(around):
                    self.add_loss(regularizer(variable))
        return variable

    def add_loss(self, loss: Any) -> None:
        """Adds a loss to `losses`.

        Args:
          loss: a scalar, a function that returns one, or None, which has no effect.
        """
        if loss is not None:
            self._own_losses.append(loss)

    def add_update(self, update: Any) -> None:
        """Adds an operation that every training step must run to `updates`."""
        if update is not None:
            self._own_updates.append(update)

    # *** calling ***

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes the outputs for `inputs`, a structure of tensors or of values convertible to them."""
        with self._entered(inputs):
            return self._run(inputs, args, kwargs)

    def _note_call(self, inputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keeps the descriptions of the first call's arguments, for `hr.save`."""
        if self._first_call is None:
            given = (self._tensors(inputs), *args), kwargs
            self._first_call = nest.map_leaves(_described, given)

    @contextlib.contextmanager
    def _entered(self, inputs: Any) -> Iterator[None]:
        """Enters the name scope in which the layer is built and called."""
        near = nest.flatten(inputs)
        root = _root(scopes.builder(*near).graph)
        known = self._stands_in is not None and self._stands_in[0] is root
        with scopes.name_scope(self._stands_in[1] if known and self._stands_in else self.name, values=near) as scope:
            if not self.built and root is not None:
                self._stands_in = root, scope
            outer = _running.get()
            if not self.built and outer is not None and outer is not self:
                before = outer._names_inside.get(self.name, 0)
                outer._names_inside[self.name] = before + 1
                self._path = f"{outer._path}/{self.name}" + (f"_{before}" if before else "")
            token = _running.set(self)
            try:
                yield
            finally:
                _running.reset(token)

    def _run(self, inputs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = self._tensors(inputs)
        self._note_call(inputs, args, kwargs)
        if not self.built:
            self._build(inputs)
        outputs = self.call(inputs, *args, **kwargs)
        if self.activity_regularizer is not None:
            self._add_activity_loss(outputs)
        return outputs

    def _tensors(self, inputs: Any) -> Any:
        """Converts the leaves of `inputs` that are values to tensors."""
        leaves = nest.flatten(inputs)
        b = scopes.builder(*leaves)

        def tensor(x: Any) -> Any:
            return b.tensor(x, None if tensors.is_tensor(x) else self._dtype_for(x), "inputs")

        if isinstance(inputs, (list, tuple)) and not any(_is_whole(x) for x in leaves):
            return tensor(inputs)  # rows of numbers
        return nest.map_leaves(lambda x: tensor(x) if _is_plain(x) else x, inputs)

    def _dtype_for(self, value: Any) -> dtypes.DType | None:
        """Returns the dtype to which a Python or numpy value is converted as an input."""
        return self.dtype if np.asarray(value).dtype.kind == "f" else None

    def _build(self, inputs: Any) -> None:
        if self.dtype is None:
            found = next((x.dtype.base for x in nest.flatten(inputs) if hasattr(x, "dtype")), dtypes.float32)
            self.dtype = found if found.is_floating or found.is_complex else dtypes.float32
        with self._building(inputs):
            self.build(nest.map_leaves(self._shape_of, inputs))

    @contextlib.contextmanager
    def _building(self, inputs: Any) -> Iterator[None]:
        """Marks the layer as built after the block."""
        self._is_outside = not isinstance(scopes.builder(*nest.flatten(inputs)), Builder)
        kept = len(self._own_variables), len(self._own_losses)
        self._is_building = True
        try:
            yield
        except BaseException:
            # the next call builds the layer again
            del self._own_variables[kept[0] :], self._own_losses[kept[1] :]
            raise
        finally:
            self._is_building = False
        self.built = True

    def _shape_of(self, x: Any) -> Any:
        """Returns the static shape of an input, for `build`."""
        return shapes.as_shape(getattr(x, "shape", None))

    def _add_activity_loss(self, outputs: Any) -> None:
        found = self._activity_loss(outputs)
        if self._is_outside:
            self._activity_losses.clear()  # only those of the last call are kept
        self._activity_losses += found

    def _activity_loss(self, outputs: Any) -> list[Any]:
        """Returns the loss of each output by the activity regularizer, divided by the batch size."""
        assert self.activity_regularizer is not None
        found = []
        for y in nest.flatten(outputs):
            with scopes.name_scope("ActivityRegularizer", values=[y]):
                loss = self.activity_regularizer(y)
                if loss is not None:
                    found.append(math.truediv(loss, math.cast(arrays.shape(y)[0], loss.dtype.base)))
        return found

    # *** variables, losses and updates ***

    @property
    def _inside(self) -> list[Layer]:
        """Layers kept as attributes, in order, without duplicates."""
        found: dict[int, Layer] = {}
        for key, value in vars(self).items():
            if not key.startswith("_own_"):
                for layer in _layers_in(value):
                    found.setdefault(id(layer), layer)
        found.pop(id(self), None)
        return list(found.values())

    @property
    def variables(self) -> list[Any]:
        """Variables of the layer and of the layers inside."""
        return _once([*self._own_variables, *(v for layer in self._inside for v in layer.variables)])

    @property
    def trainable_variables(self) -> list[Any]:
        """Trainable variables; none if the layer is not `trainable`."""
        if not self.trainable:
            return []
        own = [v for v in self._own_variables if v.trainable]
        return _once([*own, *(v for layer in self._inside for v in layer.trainable_variables)])

    @property
    def non_trainable_variables(self) -> list[Any]:
        """Variables that are not trainable."""
        learned = {id(v) for v in self.trainable_variables}
        return [v for v in self.variables if id(v) not in learned]

    @property
    def losses(self) -> list[Any]:
        """Losses of the regularizers, as scalars.

        Outside of graphs, the losses of variables are computed at each access, and the losses of outputs are those of
        the last call.
        """
        own = [x[0](x[1]) if isinstance(x, tuple) else x() if callable(x) else x for x in self._own_losses]
        # a layer outside of graphs may have been called in a graph, whose tensors are unusable after it
        is_here = not (self._is_outside and scopes.is_outside())
        activity = [x for x in self._activity_losses if is_here or not isinstance(x, Tensor)]
        found = [*own, *activity, *(x for layer in self._inside for x in layer.losses)]
        return _once([x for x in found if x is not None])

    @property
    def updates(self) -> list[Any]:
        """Operations that every training step must run; outside of graphs, calls run them."""
        return _once([*self._own_updates, *(x for layer in self._inside for x in layer.updates)])

    def with_values(self, values: Sequence[Any] | Mapping[Any, Any]) -> Any:
        """Returns a copy of the layer that computes with other values for its trainable variables.

        Functions of parameters, as `hr.grad` takes them, are written with it. The layer must be built.

        Args:
          values: tensors, one for each of `trainable_variables`, as a sequence, or as a mapping whose values are in
            that order.

        Example:
          >>> import headrace as hr
          >>> dense = hr.layers.Dense(1, use_bias=False)
          >>> _ = dense([[1.0, 2.0]])
          >>> hr.grad(lambda w: hr.reduce_sum(dense.with_values(w)([[1.0, 2.0]])))([dense.kernel.value()])[0].numpy()
          array([[1.],
                 [2.]], dtype=float32)

        Raises:
          ValueError: the number of values is not that of the variables, or the layer has not been built.
        """
        learned = self.trainable_variables
        given = list(values.values() if isinstance(values, Mapping) else values)
        if not self.built:
            raise ValueError(f"layer '{self.name}' has no variables before its first call: call it once")
        if len(given) != len(learned):
            raise ValueError(
                f"layer '{self.name}' has {len(learned)} trainable variables, got {len(given)} values: give one for "
                "each, in the order of trainable_variables"
            )
        return self._copied({id(v): x for v, x in zip(learned, given, strict=True)})

    def _copied(self, instead: Mapping[int, Any]) -> Any:
        """Returns a copy with objects replaced by their ids, in nested layers too."""
        made = copy.copy(self)
        for key, value in vars(self).items():
            setattr(made, key, _replaced(value, instead))
        return made

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self.name}'{'' if self.built else ', not built'}>"


def _marking_built(build: Callable[..., None]) -> Callable[..., None]:
    """Wraps a class's `build`: the layer is built after a call by the user too."""

    @functools.wraps(build)
    def wrapped(self: Layer, *args: Any, **kwargs: Any) -> None:
        with contextlib.nullcontext() if self._is_building else self._building(()):
            build(self, *args, **kwargs)

    return wrapped


def _root(graph: Any) -> Any:
    """Returns the outermost graph, around all branches and bodies; None outside of graphs."""
    while graph is not None and graph.outer is not None:
        graph = graph.outer
    return graph


def _described(x: Any) -> Any:
    """Returns the description of a tensor; other objects are unchanged."""
    return TensorSpec(x.shape, x.dtype) if tracing.is_tensor_argument(x) else x


def _is_plain(x: Any) -> bool:
    """Whether `x` is a tensor or a value convertible to one, and no other object."""
    return x is not None and (_is_whole(x) or isinstance(x, (bool, int, float, complex, str, bytes)))


def _is_whole(x: Any) -> bool:
    return tensors.is_tensor(x) or isinstance(x, (np.ndarray, np.generic, Variable))


def _layers_in(value: Any) -> list[Layer]:
    """Returns the layers in nested lists, tuples and dicts, in the order of insertion."""
    leaves = nest.flatten(value, is_leaf=lambda x: not isinstance(x, (list, tuple, dict)), as_given=True)
    return [x for x in leaves if isinstance(x, Layer)]


def _replaced(value: Any, instead: Mapping[int, Any]) -> Any:
    """Replaces leaves by their ids, in nested containers and in layers."""

    def replaced(x: Any) -> Any:
        return x._copied(instead) if isinstance(x, Layer) else instead.get(id(x), x)

    # an object of another class keeps its identity
    return nest.map_leaves(replaced, value, is_leaf=lambda x: not isinstance(x, (list, tuple)) and type(x) is not dict)


def _once(things: list[Any]) -> list[Any]:
    return list({id(x): x for x in things}.values())
