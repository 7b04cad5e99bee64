"""Base class of distributions: shapes, sampling, and the functions that follow from others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from headrace.api.tensors import constant_value
from headrace.dtypes import as_dtype, int32
from headrace.v1 import array_ops, math_ops
from headrace.v1.check_ops import assert_positive, assert_same_float_dtype
from headrace.v1.distributions.divergence import kl_divergence
from headrace.v1.scoping import control_dependencies, name_scope
from headrace.v1.tensor_shape import TensorShape, broadcast_static_shape


class ReparameterizationType:
    """Statement whether samples have gradients with respect to the parameters.

    Source: TensorFlow's `tf.distributions.ReparameterizationType`.
    """

    def __init__(self, rep_type: str) -> None:
        self._rep_type = rep_type

    def __repr__(self) -> str:
        return f"<Reparameterization Type: {self._rep_type}>"

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


FULLY_REPARAMETERIZED = ReparameterizationType("FULLY_REPARAMETERIZED")
NOT_REPARAMETERIZED = ReparameterizationType("NOT_REPARAMETERIZED")


class Distribution:
    """Base class of distributions.

    A subclass defines some of the methods `_batch_shape`, `_batch_shape_tensor`, `_event_shape`, `_event_shape_tensor`,
    `_sample_n`, `_prob` or `_log_prob`, `_cdf` or `_log_cdf`, `_survival_function`, `_log_survival_function`,
    `_quantile`, `_entropy`, `_mean`, `_mode`, `_variance` or `_stddev`, `_covariance` and `_param_shapes`. The public
    methods of the same names call them.

    Args:
      dtype: dtype of samples.
      reparameterization_type: FULLY_REPARAMETERIZED or NOT_REPARAMETERIZED.
      validate_args: whether operations check parameters and values.
      allow_nan_stats: whether an undefined statistic is NaN; if not, it is an error of the step.
      parameters: arguments of the constructor, for `copy`.
      graph_parents: tensors that the distribution depends on.
      name: name scope of all operations.

    Source: TensorFlow's `tf.distributions.Distribution`.
    """

    _parameters: dict[str, Any]

    def __init__(
        self,
        dtype: Any,
        reparameterization_type: ReparameterizationType,
        validate_args: bool,
        allow_nan_stats: bool,
        parameters: dict[str, Any] | None = None,
        graph_parents: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> None:
        for i, t in enumerate(graph_parents or ()):
            if not array_ops.is_tensor(t):
                raise ValueError(f"Graph parent item {i} is not a Tensor; {t}.")
        if not name or not name.endswith("/"):
            with name_scope(name or type(self).__name__) as scope:
                name = str(scope)
        self._dtype = None if dtype is None else as_dtype(dtype)
        self._reparameterization_type = reparameterization_type
        self._validate_args = validate_args
        self._allow_nan_stats = allow_nan_stats
        self._parameters = parameters or {}
        self._graph_parents = list(graph_parents or ())
        self._name = name

    # *** properties ***

    @property
    def name(self) -> str:
        """Name scope of the operations, with a slash at the end."""
        return self._name

    @property
    def dtype(self) -> Any:
        """Dtype of samples."""
        return self._dtype

    @property
    def parameters(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {k: v for k, v in self._parameters.items() if not k.startswith("__") and k != "self"}

    @property
    def reparameterization_type(self) -> ReparameterizationType:
        """FULLY_REPARAMETERIZED if samples have gradients with respect to the parameters."""
        return self._reparameterization_type

    @property
    def allow_nan_stats(self) -> bool:
        """Whether an undefined statistic is NaN."""
        return self._allow_nan_stats

    @property
    def validate_args(self) -> bool:
        """Whether operations check parameters and values."""
        return self._validate_args

    def copy(self, **override_parameters_kwargs: Any) -> Any:
        """Returns another distribution of the class, with some arguments of the constructor replaced."""
        return type(self)(**{**self.parameters, **override_parameters_kwargs})

    # *** shapes ***

    @classmethod
    def param_shapes(cls, sample_shape: Any, name: str = "DistributionParamShapes") -> dict[str, Any]:
        """Returns the shapes of parameters, as tensors, with which `sample()` has a shape."""
        with name_scope(name, values=[sample_shape]):
            return cls._param_shapes(sample_shape)

    @classmethod
    def param_static_shapes(cls, sample_shape: Any) -> dict[str, TensorShape]:
        """Returns the static shapes of parameters with which `sample()` has a shape.

        Raises:
          ValueError: the shape is not known statically.
        """
        if isinstance(sample_shape, TensorShape):
            if not sample_shape.is_fully_defined():
                raise ValueError("TensorShape sample_shape must be fully defined")
            sample_shape = sample_shape.as_list()
        out = {}
        for name, t in cls.param_shapes(sample_shape).items():
            known = constant_value(t)
            if known is None:
                raise ValueError("sample_shape must be a fully-defined TensorShape or list/tuple")
            out[name] = TensorShape(known.tolist())
        return out

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Any]:
        raise NotImplementedError("_param_shapes not implemented")

    def _batch_shape(self) -> Any:
        return TensorShape(None)

    def _event_shape(self) -> Any:
        return TensorShape(None)

    @property
    def batch_shape(self) -> TensorShape:
        """Static shape of the independent distributions that the parameters give."""
        return TensorShape(self._batch_shape())

    @property
    def event_shape(self) -> TensorShape:
        """Static shape of one draw of one distribution."""
        return TensorShape(self._event_shape())

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Any:
        """Returns the batch shape, an int32 vector."""
        return self._shape_tensor(self.batch_shape, "_batch_shape_tensor", name, "batch_shape")

    def event_shape_tensor(self, name: str = "event_shape_tensor") -> Any:
        """Returns the event shape, an int32 vector."""
        return self._shape_tensor(self.event_shape, "_event_shape_tensor", name, "event_shape")

    def _shape_tensor(self, static: TensorShape, hook: str, name: str, constant: str) -> Any:
        with self._name_scope(name):
            if static.is_fully_defined():
                return array_ops.convert_to_tensor(np.array(static.as_list(), np.int32), int32, name=constant)
            return self._first((hook, None))

    def is_scalar_event(self, name: str = "is_scalar_event") -> Any:
        """Returns whether the event shape is that of a scalar, a bool tensor."""
        return self._is_scalar(self.event_shape, self.event_shape_tensor, name)

    def is_scalar_batch(self, name: str = "is_scalar_batch") -> Any:
        """Returns whether the batch shape is that of a scalar, a bool tensor."""
        return self._is_scalar(self.batch_shape, self.batch_shape_tensor, name)

    def _is_scalar(self, static: TensorShape, dynamic: Callable[[], Any], name: str) -> Any:
        with self._name_scope(name):
            if static.ndims is not None:
                return array_ops.convert_to_tensor(static.ndims == 0, name=name)
            return math_ops.equal(array_ops.size(dynamic()), 0, name=name)

    # *** samples ***

    def sample(self, sample_shape: Any = (), seed: int | None = None, name: str = "sample") -> Any:
        """Draws samples.

        Args:
          sample_shape: shape of the draws, a number, a list or an int32 tensor.
          seed: seed of the operations; see `tf.set_random_seed`.
          name: of the operations.

        Returns:
          A tensor of the shape `sample_shape + batch_shape + event_shape`.
        """
        with self._name_scope(name):
            wanted: Any = array_ops.convert_to_tensor(sample_shape, dtype=int32, name="sample_shape")
            if wanted.get_shape().ndims not in (None, 0, 1):
                raise ValueError("Input is neither scalar nor vector.")
            known = constant_value(wanted)
            count = math_ops.reduce_prod(wanted) if known is None else int(np.prod(known))
            if wanted.get_shape().ndims != 1:
                wanted = array_ops.reshape(wanted, [-1])
            drawn = self._first(("_sample_n", None), count, seed)
            out = array_ops.reshape(drawn, array_ops.concat([wanted, array_ops.shape(drawn)[1:]], 0))
            if known is not None:
                inner = self.batch_shape.concatenate(self.event_shape)
                out.set_shape(TensorShape(np.reshape(known, -1).tolist()).concatenate(inner))
            return out

    # *** functions of values ***

    def prob(self, value: Any, name: str = "prob") -> Any:
        """Computes the density, or the probability, of values."""
        return self._of(value, name, ("_prob", None), ("_log_prob", math_ops.exp))

    def log_prob(self, value: Any, name: str = "log_prob") -> Any:
        """Computes the logarithm of the density, or of the probability, of values."""
        return self._of(value, name, ("_log_prob", None), ("_prob", math_ops.log))

    def cdf(self, value: Any, name: str = "cdf") -> Any:
        """Computes the probability of draws of at most `value`."""
        return self._of(value, name, ("_cdf", None), ("_log_cdf", math_ops.exp))

    def log_cdf(self, value: Any, name: str = "log_cdf") -> Any:
        """Computes the logarithm of the probability of draws of at most `value`."""
        return self._of(value, name, ("_log_cdf", None), ("_cdf", math_ops.log))

    def survival_function(self, value: Any, name: str = "survival_function") -> Any:
        """Computes the probability of draws greater than `value`."""
        return self._of(
            value, name, ("_survival_function", None), ("_cdf", _one_minus),
            ("_log_cdf", lambda x: _one_minus(math_ops.exp(x))),
        )  # fmt: skip

    def log_survival_function(self, value: Any, name: str = "log_survival_function") -> Any:
        """Computes the logarithm of the probability of draws greater than `value`."""
        return self._of(
            value, name, ("_log_survival_function", None), ("_cdf", lambda x: math_ops.log1p(-x)),
            ("_log_cdf", lambda x: math_ops.log1p(-math_ops.exp(x))),
        )  # fmt: skip

    def quantile(self, value: Any, name: str = "quantile") -> Any:
        """Computes the value below which a draw is with the probability `value`."""
        return self._of(value, name, ("_quantile", None))

    # *** statistics ***

    def entropy(self, name: str = "entropy") -> Any:
        """Computes the entropy, in nats."""
        return self._statistic(name, ("_entropy", None))

    def mean(self, name: str = "mean") -> Any:
        """Computes the mean."""
        return self._statistic(name, ("_mean", None))

    def mode(self, name: str = "mode") -> Any:
        """Computes the value of the greatest density or probability."""
        return self._statistic(name, ("_mode", None))

    def variance(self, name: str = "variance") -> Any:
        """Computes the variance."""
        return self._statistic(name, ("_variance", None), ("_stddev", math_ops.square))

    def stddev(self, name: str = "stddev") -> Any:
        """Computes the standard deviation."""
        return self._statistic(name, ("_stddev", None), ("_variance", math_ops.sqrt))

    def covariance(self, name: str = "covariance") -> Any:
        """Computes the covariance matrix of a draw that is a vector."""
        return self._statistic(name, ("_covariance", None))

    def kl_divergence(self, other: Distribution, name: str = "kl_divergence") -> Any:
        """Computes KL(self || other), the Kullback-Leibler divergence."""
        with self._name_scope(name):
            return kl_divergence(self, other, allow_nan_stats=self.allow_nan_stats)

    def cross_entropy(self, other: Distribution, name: str = "cross_entropy") -> Any:
        """Computes the cross entropy, in nats: the entropy plus KL(self || other)."""
        with self._name_scope(name):
            return self.entropy() + kl_divergence(self, other, allow_nan_stats=self.allow_nan_stats)

    # *** hooks ***

    def _of(self, value: Any, name: str, *ways: tuple[str, Callable[[Any], Any] | None]) -> Any:
        with self._name_scope(name):
            return self._first(*ways, value=array_ops.convert_to_tensor(
                value, name="value", preferred_dtype=self.dtype
            ))  # fmt: skip

    def _statistic(self, name: str, *ways: tuple[str, Callable[[Any], Any] | None]) -> Any:
        with self._name_scope(name):
            return self._first(*ways)

    def _first(self, *ways: Any, **kwargs: Any) -> Any:
        """Calls the first hook that the class has, and applies the function behind its name.

        Raises:
          NotImplementedError: the class has no such hook.
        """
        hooks = [way for way in ways if isinstance(way, tuple)]
        args = [x for x in ways if not isinstance(x, tuple)]
        for hook, convert in hooks:
            f = getattr(self, hook, None)
            if f is not None:
                out = f(*args, *kwargs.values())
                return out if convert is None else convert(out)
        raise NotImplementedError(f"{hooks[0][0][1:]} is not implemented: {type(self).__name__}")

    @contextlib.contextmanager
    def _name_scope(self, name: str) -> Iterator[str]:
        with name_scope(self.name), name_scope(name, values=self._graph_parents) as scope:
            yield scope

    def _checked(self, x: Any, *checks: Callable[[], Any]) -> Any:
        """`x`; with `validate_args`, after the assertions that `checks` make."""
        return after(x, *checks) if self.validate_args else x

    def _defined(self, x: Any, is_defined: Callable[[], Any], *checks: Callable[[], Any]) -> Any:
        """`x` with NaN where it is undefined; without `allow_nan_stats`, after assertions."""
        if not self.allow_nan_stats:
            return after(x, *checks)
        return array_ops.where_v2(is_defined(), x, array_ops.convert_to_tensor(np.nan, x.dtype, name="nan"))

    def __str__(self) -> str:
        shapes = [(n, getattr(self, n)) for n in ("batch_shape", "event_shape")]
        shown = "".join(f", {n}={s}" for n, s in shapes if s.ndims is not None)
        return f'tfp.distributions.{type(self).__name__}("{self.name}"{shown}, dtype={self.dtype.name})'

    def __repr__(self) -> str:
        return (
            f"<tfp.distributions.{type(self).__name__} '{self.name}' batch_shape={self.batch_shape} "
            f"event_shape={self.event_shape} dtype={self.dtype.name}>"
        )


def _one_minus(x: Any) -> Any:
    return 1.0 - x


def after(x: Any, *checks: Callable[[], Any]) -> Any:
    """`x`, after the assertions that `checks` make."""
    with control_dependencies([check() for check in checks]):
        return array_ops.identity(x)


class ScalarDistribution(Distribution):
    """Base class of distributions of scalars, with float parameters that are broadcast.

    Attributes:
      _names: names of the parameters.
      _positive: names of those that must be positive.
    """

    _names: tuple[str, ...] = ()
    _positive: tuple[str, ...] = ()

    def _start(self, given: dict[str, Any], checks: Callable[[], Sequence[Any]] = list) -> None:
        """Makes the distribution.

        Args:
          given: variables of the constructor: its arguments, and `self`.
          checks: function that makes further assertions about the parameters.
        """
        arguments = {k: v for k, v in given.items() if k != "self" and not k.startswith("__")}
        values = [arguments[n] for n in self._names]
        validate = arguments["validate_args"]
        with name_scope(arguments["name"], values=values) as scope:
            made = [assert_positive(arguments[n]) for n in self._positive] + list(checks()) if validate else []
            with control_dependencies(made):
                tensors = [array_ops.identity(x, name=n) for n, x in zip(self._names, values, strict=True)]
            assert_same_float_dtype(tensors)
        for n, t in zip(self._names, tensors, strict=True):
            setattr(self, n, t)
        self._tensors = tensors
        Distribution.__init__(
            self, tensors[0].dtype, FULLY_REPARAMETERIZED, validate, arguments["allow_nan_stats"], arguments, tensors,
            str(scope),
        )  # fmt: skip

    @classmethod
    def _param_shapes(cls, sample_shape: Any) -> dict[str, Any]:
        shape = array_ops.convert_to_tensor(sample_shape, dtype=int32)
        return dict.fromkeys(cls._names, shape)

    def _batch_shape(self) -> Any:
        out = TensorShape([])
        for t in self._tensors:
            out = broadcast_static_shape(out, t.get_shape())
        return out

    def _batch_shape_tensor(self) -> Any:
        out = array_ops.shape(self._tensors[0])
        for t in self._tensors[1:]:
            out = array_ops.broadcast_dynamic_shape(out, array_ops.shape(t))
        return out

    def _event_shape(self) -> Any:
        return TensorShape([])

    def _drawn_shape(self, n: Any) -> Any:
        return array_ops.concat([[n], self.batch_shape_tensor()], 0)

    def _whole(self, x: Any) -> Any:
        """`x`, broadcast to the batch shape."""
        return x * array_ops.ones(self.batch_shape_tensor(), dtype=self.dtype)
