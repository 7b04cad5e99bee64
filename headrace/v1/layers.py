"""TensorFlow 1's `tf.layers`: layers with the variables of `tf.get_variable`.

Each layer of `headrace.layers` exists as a class, and as a function that creates a layer and calls it. The difference
is the place of the variables. They are in a variable scope of the layer's name ("dense/kernel:0"), so that they can be
found and shared by name (`reuse=`). They are also in TensorFlow 1's collections, with the regularizers' losses and the
updates of moving averages (`GraphKeys.REGULARIZATION_LOSSES`, `GraphKeys.UPDATE_OPS`).
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace import dtypes, public_names
from headrace.api import initializers, layers, scopes
from headrace.api.layers import base
from headrace.api.partitioned import parts_of
from headrace.v1 import input_specs
from headrace.v1.graph import GraphKeys, get_default_graph, in_default_graph
from headrace.v1.input_specs import InputSpec as InputSpec
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.variable_scopes import VariableScope, variable_scope
from headrace.v1.variable_store import get_variable
from headrace.v1.variables import Variable, VariableAggregation, VariableSynchronization, synchronized

_has_keras_style = False  # of the layers that are made now
_names: weakref.WeakKeyDictionary[Any, collections.Counter[str]] = weakref.WeakKeyDictionary()  # by graph


@contextlib.contextmanager
def _keras_style_scope() -> Iterator[None]:
    """Context in which new layers own their variables.

    The variables are not those of `tf.get_variable`: two layers of one name never share them, variable scopes have no
    effect on them, and updates are in no collection.

    Source: TensorFlow's `tf.layers.experimental.keras_style_scope`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.layers.experimental.keras_style_scope():
      ...     for _ in range(2):
      ...         y = tf.layers.Dense(3, name="a")(tf.ones([1, 2]))
      ...     [v.name for v in tf.global_variables()]
      ['a/kernel:0', 'a/bias:0', 'a_1/kernel:0', 'a_1/bias:0']
    """
    global _has_keras_style
    before, _has_keras_style = _has_keras_style, True
    try:
        yield
    finally:
        _has_keras_style = before


def _set_keras_style() -> None:
    """Lets all later layers own their variables; see `keras_style_scope`.

    Source: TensorFlow's `tf.layers.experimental.set_keras_style`.
    """
    global _has_keras_style
    _has_keras_style = True


class experimental:
    """The style of layers; TensorFlow's `tf.layers.experimental`."""

    keras_style_scope = staticmethod(_keras_style_scope)
    set_keras_style = staticmethod(_set_keras_style)


class Scoped(base.Layer):
    """TensorFlow 1 layer: `get_variable` makes its variables in a scope of its name.

    Put it behind a class of headrace's layers: `class Dense(headrace.layers.Dense, Scoped)`, or before it, if that has
    no scope of its own.

    Attributes:
      input_spec: an `InputSpec`, or one for each input, that each call checks; None: no check.
      _reuse: whether variables are found and not made; as in `variable_scope`.
      _scope: the variable scope, once it is chosen.
      _partitioner: partitioner of variables that are made now; None: that of the variable scope.
      _options: further arguments of `get_variable` for the variables that are made now.
      _owns: whether its variables are its own, in Keras's style, and no variables of scopes.
    """

    input_spec: Any = None
    _reuse: Any = None
    _scope: VariableScope | None = None
    _partitioner: Any = None
    _options: Mapping[str, Any] = {}
    _owns = False

    def _take_style(self, scope: Any, reuse: Any) -> None:
        """Takes the style of the layers that are made now."""
        if not _has_keras_style:
            return
        for name, value in (("scope", scope), ("reuse", reuse)):
            if value is not None:
                raise ValueError(f"{name} argument not allowed when keras style layers are enabled, but saw: {value}")
        self._owns = True

    def _with_style(self, name: str | None, reuse: Any) -> str | None:
        """Takes the style of the layers that are made now, and returns the name."""
        self._take_style(None, reuse)
        return self._new_name(name)

    def _new_name(self, name: str | None) -> str | None:
        """Returns a name, or in Keras's style a new one of the graph for None."""
        if name is not None or not _has_keras_style:
            return name
        title = base.snake_case(type(self).__name__)
        used = _names.setdefault(get_default_graph(), collections.Counter())
        used[title] += 1
        return f"{title}_{used[title]}"

    @property
    def scope_name(self) -> str:
        """The name of the variable scope that it is in.

        Raises:
          ValueError: it has not been called yet.
        """
        if self._scope is None:
            raise ValueError(f"layer '{self.name}' has no scope before its first call: call it first")
        return self._scope.name

    def _choose_scope(self, scope: Any) -> None:
        """Chooses the variable scope at the first call.

        It is `scope`, or a scope of the layer's name, which is made unique unless variables are reused.
        """
        if self._scope is None:
            reused = self.name if scope is None and self._reuse else scope
            with variable_scope(reused, default_name=self.name) as found:
                self._scope = found

    def _reuses(self) -> Any:
        """Returns the `reuse` of its variable scope."""
        return True if self.built else self._reuse

    def _variables_scope(self) -> Any:
        assert self._scope is not None
        return variable_scope(
            self._scope, reuse=self._reuses(), partitioner=self._partitioner, auxiliary_name_scope=False
        )

    @in_default_graph
    def __call__(self, inputs: Any, *args: Any, scope: Any = None, **kwargs: Any) -> Any:
        """Returns the outputs for `inputs`, a tensor or a structure of tensors.

        Args:
          scope: at the first call, the variable scope (or its name) to be in.

        Raises:
          ValueError: the inputs do not fit the `input_spec`.
        """
        if self.input_spec is not None:
            input_specs.check(self.input_spec, inputs, self.name)
        if self._owns:
            self._take_style(scope, None)
            with scopes.name_scope(self.name):
                return self._run(inputs, args, kwargs)
        self._choose_scope(scope)
        with self._variables_scope() as found, scopes.name_scope(found.original_name_scope):
            return self._run(inputs, args, kwargs)

    @contextlib.contextmanager
    def _cut_by(self, partitioner: Any) -> Iterator[None]:
        """Within, variables are cut by `partitioner`, unless it is None."""
        before, self._partitioner = self._partitioner, partitioner or self._partitioner
        try:
            yield
        finally:
            self._partitioner = before

    @contextlib.contextmanager
    def _making(self, **options: Any) -> Iterator[None]:
        """Within, variables are made with further arguments of `get_variable`."""
        before, self._options = self._options, {**self._options, **options}
        try:
            yield
        finally:
            self._options = before

    def apply(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """The same as calling it."""
        return self(inputs, *args, **kwargs)

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
        """The variable of that name in the variable scope."""
        known = {id(v) for v in get_default_graph().variables}
        if self._owns:
            first = initializers.get(initializer, dtype)
            made = Variable(lambda: first(list(dims), dtype), trainable, name=name, dtype=dtype, constraint=constraint)
        else:
            made = self._scoped_variable(name, dims, dtype, initializer, trainable, constraint)
        for part in parts_of(made):
            if regularizer is not None and id(part) not in known:
                with scopes.colocate_with(part.op), scopes.name_scope(f"{name}/Regularizer"):
                    self.add_loss(regularizer(part))
        return made

    def _scoped_variable(
        self, name: str, dims: tuple[int, ...], dtype: dtypes.DType, initializer: Any, trainable: bool, constraint: Any
    ) -> Any:
        self._choose_scope(None)
        with self._variables_scope() as scope:
            first = scope.initializer if initializer is None else None
            first = initializers.get(initializer, dtype) if first is None else first
            if name in self._undivided:
                scope.set_partitioner(None)
            return get_variable(
                name, list(dims), dtype, first, trainable=trainable, constraint=constraint, **self._options
            )

    def add_loss(self, loss: Any) -> None:
        """Adds a loss to `losses` and to the collection GraphKeys.REGULARIZATION_LOSSES.

        Args:
          loss: a tensor, a function that returns one, or None for no loss.
        """
        loss = loss() if callable(loss) else loss
        super().add_loss(loss)
        if loss is not None:
            get_default_graph().add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)

    def _add_activity_loss(self, outputs: Any) -> None:
        for loss in self._activity_loss(outputs):
            self.add_loss(loss)

    def add_update(self, update: Any) -> None:
        """Adds an operation to `updates` and to the collection GraphKeys.UPDATE_OPS.

        Args:
          update: the operation, which every step of training runs.
        """
        super().add_update(update)
        if update is not None and not self._owns:
            get_default_graph().add_to_collection(GraphKeys.UPDATE_OPS, update)

    @property
    def weights(self) -> list[Any]:
        """Its variables, those to be learned first."""
        return [*self.trainable_variables, *self.non_trainable_variables]

    @property
    def trainable_weights(self) -> list[Any]:
        """`trainable_variables` under another name."""
        return self.trainable_variables

    @property
    def non_trainable_weights(self) -> list[Any]:
        """`non_trainable_variables` under another name."""
        return self.non_trainable_variables


class Layer(Scoped):
    """Base class of layers, whose variables are made by the first call.

    Args:
      trainable: whether its variables go into GraphKeys.TRAINABLE_VARIABLES.
      name: of its variable scope, made unique; the class's name if None.
      dtype: of its variables; None: that of the first input, if that is a float, else float32.
      activity_regularizer: a function from outputs to a loss.
      _scope: the variable scope (or its name) to be in; nothing is made unique then.
      _reuse: whether variables are found and not made; as in `tf.variable_scope`.

    A class overrides `build(input_shape)`, which is given a `TensorShape` and makes variables with `add_weight`, and
    `call(inputs)`. See `headrace.layers.Layer`.

    Source: TensorFlow's `tf.layers.Layer`.

    Example:
      >>> import headrace.v1 as tf
      >>> class Scale(tf.layers.Layer):
      ...     def build(self, input_shape):
      ...         self.factor = self.add_weight("factor", [input_shape[-1].value])
      ...
      ...     def call(self, inputs):
      ...         return inputs * self.factor
      >>> with tf.Graph().as_default():
      ...     y = Scale()(tf.ones([2, 3]))
      ...     tf.global_variables()[0].name
      'scale/factor:0'
    """

    def __init__(
        self,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        _scope: Any = None,
        _reuse: Any = None,
    ) -> None:
        name = self._new_name(name)
        super().__init__(name=name, trainable=trainable, dtype=dtype, activity_regularizer=activity_regularizer)
        self._stand(_scope, _reuse)

    def _stand(self, scope: Any, reuse: Any) -> None:
        self._take_style(scope, reuse)
        self._reuse = reuse
        if scope:
            with variable_scope(scope) as found:
                self._scope = found

    def _shape_of(self, x: Any) -> Any:
        return TensorShape(super()._shape_of(x))

    def add_weight(
        self,
        name: str,
        shape: Any,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Callable[[Any], Any] | None = None,
        trainable: bool | None = None,
        constraint: Callable[[Any], Any] | None = None,
        use_resource: bool | None = None,
        synchronization: Any = VariableSynchronization.AUTO,
        aggregation: Any = VariableAggregation.NONE,
        partitioner: Any = None,
    ) -> Any:
        """Makes a variable of the layer, with further arguments of `tf.get_variable`.

        It is `add_variable` with the arguments in TensorFlow's order.

        Raises:
          ValueError: it is to be trainable and synchronized ON_READ.
        """
        if trainable and synchronization is VariableSynchronization.ON_READ:
            raise ValueError(
                "Synchronization value can be set to VariableSynchronization.ON_READ only for non-trainable variables. "
                "You have specified trainable=True and synchronization=VariableSynchronization.ON_READ."
            )
        when, how, learned = synchronized(synchronization, aggregation, trainable, name)
        with self._cut_by(partitioner), self._making(synchronization=when, aggregation=how):
            return self.add_variable(name, shape, dtype, initializer, learned, regularizer, constraint)


class _Options:
    """Takes the arguments that only TensorFlow 1's layers have off those of headrace's."""

    def __init__(self, *args: Any, _scope: Any = None, _reuse: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stand(_scope, _reuse)  # type: ignore[attr-defined]


def _of(cls: Any) -> Any:
    """The class `cls` of headrace's layers as a class of layers here."""
    doc = f"""{cls.__doc__.split(chr(10) + chr(10))[0].strip()}

    Its variables are those of `tf.get_variable`, in a variable scope of the layer's name. For its arguments see
    `headrace.layers.{cls.__name__}`.

    Source: TensorFlow's `tf.layers.{cls.__name__}`.
    """
    members = {"__doc__": doc, "__module__": __name__, "__signature__": inspect.signature(cls)}
    return type(cls.__name__, (_Options, cls, Layer), members)


Dense = _of(layers.Dense)
Dropout = _of(layers.Dropout)
Flatten = _of(layers.Flatten)
BatchNormalization = _of(layers.BatchNormalization)
Conv1D, Conv2D, Conv3D = _of(layers.Conv1D), _of(layers.Conv2D), _of(layers.Conv3D)
Conv2DTranspose, Conv3DTranspose = _of(layers.Conv2DTranspose), _of(layers.Conv3DTranspose)
SeparableConv1D, SeparableConv2D = _of(layers.SeparableConv1D), _of(layers.SeparableConv2D)
MaxPooling1D, MaxPooling2D = _of(layers.MaxPooling1D), _of(layers.MaxPooling2D)
MaxPooling3D = _of(layers.MaxPooling3D)
AveragePooling1D, AveragePooling2D = _of(layers.AveragePooling1D), _of(layers.AveragePooling2D)
AveragePooling3D = _of(layers.AveragePooling3D)


def _function(cls: Any, order: str = "") -> Any:
    """A function that makes a layer of `cls` and calls it.

    Args:
      order: the names of its arguments behind the inputs; those of `cls`, and `reuse`, if not given.
    """
    own = inspect.signature(cls).parameters
    with_variables = "trainable" in own
    names = order.split() or [n for n in own if n != "dtype"] + ["reuse"] * with_variables
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    added = {"reuse": None, "training": False}
    parameters = [inspect.Parameter("inputs", kind)]
    parameters += [own[n] if n in own else inspect.Parameter(n, kind, default=added[n]) for n in names]
    signature = inspect.Signature(parameters)
    title = base.snake_case(cls.__name__)

    @in_default_graph
    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as e:
            raise TypeError(f"{title}(): {e}; its arguments are {', '.join(signature.parameters)}") from None
        inputs, reuse = given.pop("inputs"), given.pop("reuse", None)
        called = {"training": given.pop("training")} if "training" in given else {}
        scope = given.get("name") if with_variables else None
        return cls(**given, _scope=scope, _reuse=reuse)(inputs, **called)

    function.__name__ = function.__qualname__ = title
    function.__signature__ = signature  # type: ignore[attr-defined]
    reusing = """ With a `name`, the variables are in the scope of that name; with `reuse` they are found
    there and not made (see `tf.variable_scope`).""" if with_variables else ""  # fmt: skip
    function.__doc__ = f"""Makes a layer, as `{cls.__name__}`, and calls it with `inputs`.{reusing}

    Source: TensorFlow's `tf.layers.{title}`.
    """
    return function


dense = _function(Dense)
conv1d, conv2d, conv3d = _function(Conv1D), _function(Conv2D), _function(Conv3D)
conv2d_transpose, conv3d_transpose = _function(Conv2DTranspose), _function(Conv3DTranspose)
separable_conv1d, separable_conv2d = _function(SeparableConv1D), _function(SeparableConv2D)
max_pooling1d, max_pooling2d, max_pooling3d = map(_function, (MaxPooling1D, MaxPooling2D, MaxPooling3D))
average_pooling1d, average_pooling2d = _function(AveragePooling1D), _function(AveragePooling2D)
average_pooling3d = _function(AveragePooling3D)
flatten = _function(Flatten, "name data_format")
dropout = _function(Dropout, "rate noise_shape seed training name")
batch_normalization = _function(
    BatchNormalization,
    "axis momentum epsilon center scale beta_initializer gamma_initializer moving_mean_initializer "
    "moving_variance_initializer beta_regularizer gamma_regularizer beta_constraint gamma_constraint training "
    "trainable name reuse renorm renorm_clipping renorm_momentum fused virtual_batch_size adjustment",
)

# fmt: off
__all__ = [
    "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "BatchNormalization", "Conv1D", "Conv2D",
    "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Dense", "Dropout", "Flatten", "InputSpec", "Layer", "MaxPooling1D",
    "MaxPooling2D", "MaxPooling3D", "SeparableConv1D", "SeparableConv2D", "average_pooling1d", "average_pooling2d",
    "average_pooling3d", "batch_normalization", "conv1d", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose",
    "dense", "dropout", "experimental", "flatten", "max_pooling1d", "max_pooling2d", "max_pooling3d",
    "separable_conv1d", "separable_conv2d",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
