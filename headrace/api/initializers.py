"""Initializers: objects that create the initial value for a given shape and dtype.

    zeros = hr.initializers.zeros()
    kernel = hr.Variable(lambda: hr.initializers.glorot_uniform(seed=1)((3, 4)))

Source: TensorFlow 1's `tf.initializers`. A call with the same seed gives the same numbers as TensorFlow's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, public_names, shapes
from headrace.api import arrays, linalg, random, scopes
from headrace.api.tensors import is_tensor
from headrace.dtypes import DType, as_dtype


class Initializer:
    """Base of the initializers of variables.

    Subclasses define `__call__(shape, dtype=None, partition_info=None)`, and keep their arguments as attributes of the
    same names. `partition_info` describes the part of a partitioned variable: `full_shape` of the whole, and
    `var_offset` of the part; None: the variable is not partitioned.

    Example:
      >>> import headrace as hr
      >>> init = hr.initializers.ones()
      >>> isinstance(init, hr.initializers.Initializer), init((2,)).numpy().tolist()
      (True, [1.0, 1.0])
    """

    dtype: DType = dtypes.float32

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments with which an equal initializer is created."""
        return {k: v.name if isinstance(v, DType) else v for k, v in vars(self).items()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Initializer:
        """Creates the initializer that `get_config` describes."""
        return cls(**config)

    def _dtype(self, dtype: Any) -> DType:
        return self.dtype if dtype is None else as_dtype(dtype).base


def _floating(dtype: Any) -> DType:
    made = as_dtype(dtype)
    if not made.is_floating:
        raise ValueError(f"this initializer makes floats; got dtype {made.name}")
    return made


class _Filled(Initializer):
    value: Any
    _called = ""  # name of the constant

    def __init__(self, dtype: Any = dtypes.float32) -> None:
        self.dtype = as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Creates a tensor of a fully known shape with the value."""
        dtype = self._dtype(dtype)
        value = b"" if dtype is dtypes.string and self.value == 0 else self.value
        return scopes.builder().const(np.full(_known(shape), value, dtype.numpy), dtype, self._called)


class Zeros(_Filled):
    """Zeros (`False` for bool, empty ones for strings). Source: TensorFlow's `tf.zeros_initializer`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.zeros()((2,)).numpy()
      array([0., 0.], dtype=float32)
    """

    value, _called = 0, "zeros"


class Ones(_Filled):
    """Ones. Source: TensorFlow's `tf.ones_initializer`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.ones()((2,)).numpy()
      array([1., 1.], dtype=float32)
    """

    value, _called = 1, "ones"


class Constant(Initializer):
    """Initializer with given values, in row-major order; the last one is repeated.

    Args:
      value: a number, or a list or array of numbers.
      dtype: dtype of the tensor if a call gives none.
      verify_shape: whether the value must have the shape of the variable.

    Source: TensorFlow's `tf.constant_initializer`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.constant(3.0)((2,)).numpy()
      array([3., 3.], dtype=float32)
    """

    def __init__(self, value: Any = 0, dtype: Any = dtypes.float32, verify_shape: bool = False) -> None:
        if not np.isscalar(value) and not isinstance(value, (list, tuple, np.ndarray)):
            raise TypeError(f"constant_initializer takes a number, a list or an array, got {value!r}")
        self.value, self.dtype, self.verify_shape = value, as_dtype(dtype), verify_shape

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None, verify_shape: Any = None) -> Any:
        """Creates a tensor of a fully known shape."""
        dtype = self._dtype(dtype)
        dims = _known(shape)
        values = np.asarray(self.value, dtype.numpy)
        if (self.verify_shape if verify_shape is None else verify_shape) and values.shape != dims:
            raise TypeError(f"expected a value of shape {list(dims)}, got one of shape {list(values.shape)}")
        size = math.prod(dims)
        if values.size > size:
            raise ValueError(f"a constant of {values.size} elements does not fit the shape {list(dims)}")
        if values.size < size:
            flat = values.ravel()
            values = np.concatenate([flat, np.full(size - flat.size, flat[-1], flat.dtype)])
        return scopes.builder().const(values.reshape(dims), dtype)


class RandomNormal(Initializer):
    """Normally distributed numbers. Source: TensorFlow's `tf.random_normal_initializer`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.random_normal(0.0, 0.1, seed=1)((2, 3)).shape
      (2, 3)
    """

    draw = staticmethod(random.normal)

    def __init__(
        self, mean: Any = 0.0, stddev: Any = 1.0, seed: int | None = None, dtype: Any = dtypes.float32
    ) -> None:
        self.mean, self.stddev, self.seed, self.dtype = mean, stddev, seed, _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Creates a tensor of `shape`."""
        return self.draw(shape, self.mean, self.stddev, self._dtype(dtype), self.seed)


class TruncatedNormal(RandomNormal):
    """Normally distributed numbers within two deviations. Source: TensorFlow's `tf.truncated_normal_initializer`.

    Example:
      >>> import headrace as hr
      >>> x = hr.initializers.truncated_normal(0.0, 0.1, seed=1)((100,)).numpy()
      >>> bool((abs(x) <= 0.2).all())
      True
    """

    draw = staticmethod(random.truncated_normal)


class RandomUniform(Initializer):
    """Evenly distributed numbers. Source: TensorFlow's `tf.random_uniform_initializer`.

    Example:
      >>> import headrace as hr
      >>> x = hr.initializers.random_uniform(-1.0, 1.0, seed=1)((100,)).numpy()
      >>> bool((abs(x) <= 1.0).all())
      True
    """

    def __init__(
        self, minval: Any = 0.0, maxval: Any = None, seed: int | None = None, dtype: Any = dtypes.float32
    ) -> None:
        self.minval, self.maxval, self.seed, self.dtype = minval, maxval, seed, as_dtype(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Creates a tensor of `shape`."""
        return random.uniform(shape, self.minval, self.maxval, self._dtype(dtype), seed=self.seed)


class UniformUnitScaling(Initializer):
    """Uniformly distributed numbers that keep the scale of the inputs of a product.

    Source: TensorFlow's `tf.uniform_unit_scaling_initializer`.

    Example:
      >>> import headrace as hr
      >>> x = hr.initializers.uniform_unit_scaling(seed=1)((3, 100)).numpy()
      >>> bool((abs(x) <= 1.0).all())
      True
    """

    def __init__(self, factor: float = 1.0, seed: int | None = None, dtype: Any = dtypes.float32) -> None:
        self.factor, self.seed, self.dtype = factor, seed, _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Creates a tensor of a known shape; a part is scaled as the whole."""
        inputs = max(math.prod(_whole(shape, partition_info)[:-1]), 1)
        limit = math.sqrt(3 / inputs) * self.factor
        return random.uniform(shape, -limit, limit, self._dtype(dtype), seed=self.seed)


# The deviation of a normal distribution cut off at two deviations.
_TRUNCATED = 0.87962566103423978


class VarianceScaling(Initializer):
    """Initializer of weights with variance `scale` / n, for n inputs or outputs.

    Args:
      scale: a positive number.
      mode: the number n: "fan_in" (inputs), "fan_out" (outputs) or "fan_avg" (their mean).
      distribution: "truncated_normal" (or "normal"), "untruncated_normal" or "uniform".
      seed: seed of the random numbers; see `hr.random`.
      dtype: dtype of the tensor if a call gives none.

    Source: TensorFlow's `tf.variance_scaling_initializer`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.variance_scaling(2.0, "fan_in", seed=1)((100, 10)).shape
      (100, 10)
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: int | None = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        if scale <= 0.0:
            raise ValueError(f"scale must be positive, got {scale}")
        if mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(f"mode must be 'fan_in', 'fan_out' or 'fan_avg', got {mode!r}")
        if distribution not in ("normal", "uniform", "truncated_normal", "untruncated_normal"):
            raise ValueError(
                f"distribution must be a truncated_normal, untruncated_normal or uniform, got {distribution!r}"
            )
        self.scale, self.mode, self.distribution, self.seed = scale, mode, distribution, seed
        self.dtype = _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Creates a tensor of a known shape; a part is scaled as the whole."""
        dtype = self._dtype(dtype)
        fan_in, fan_out = _fans(_whole(shape, partition_info))
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[self.mode]
        variance = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            limit = math.sqrt(3.0 * variance)
            return random.uniform(shape, -limit, limit, dtype, seed=self.seed)
        if self.distribution == "untruncated_normal":
            return random.normal(shape, 0.0, math.sqrt(variance), dtype, seed=self.seed)
        return random.truncated_normal(shape, 0.0, math.sqrt(variance) / _TRUNCATED, dtype, seed=self.seed)


def _known(shape: Any) -> tuple[int, ...]:
    """Returns a fully known shape as a tuple of ints."""
    dims = shapes.as_shape(shape) or ()
    if None in dims:
        raise ValueError(f"this initializer needs a shape that is fully known, got {list(dims)}")
    return tuple(int(d) for d in dims if d is not None)


def _dims(shape: Any) -> list[int]:
    return list(_known(shape))


def _whole(shape: Any, partition_info: Any) -> list[int]:
    """Returns the shape of the whole variable."""
    return _dims(shape if partition_info is None else partition_info.full_shape)


def _fans(dims: list[int]) -> tuple[float, float]:
    """Returns the numbers of inputs and outputs for a weight shape [..., inputs, outputs]."""
    if len(dims) < 2:
        n = dims[0] if dims else 1
        return n, n
    field = math.prod(dims[:-2])
    return dims[-2] * field, dims[-1] * field


class GlorotUniform(VarianceScaling):
    """Glorot's uniform distribution. Source: TensorFlow's `tf.glorot_uniform_initializer`.

    Example:
      >>> import headrace as hr
      >>> x = hr.initializers.glorot_uniform(seed=1)((3, 3)).numpy()
      >>> bool((abs(x) <= 1.0).all())
      True
    """

    def __init__(self, seed: int | None = None, dtype: Any = dtypes.float32) -> None:
        super().__init__(1.0, "fan_avg", "uniform", seed, dtype)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments with which an equal initializer is created."""
        return {"seed": self.seed, "dtype": self.dtype.name}


class GlorotNormal(GlorotUniform):
    """Glorot's normal distribution. Source: TensorFlow's `tf.glorot_normal_initializer`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.glorot_normal(seed=1)((3, 3)).shape
      (3, 3)
    """

    def __init__(self, seed: int | None = None, dtype: Any = dtypes.float32) -> None:
        VarianceScaling.__init__(self, 1.0, "fan_avg", "truncated_normal", seed, dtype)


def he_normal(seed: int | None = None) -> VarianceScaling:
    """He's normal distribution. Source: TensorFlow's `tf.initializers.he_normal`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.he_normal(seed=1)((3, 3)).shape
      (3, 3)
    """
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> VarianceScaling:
    """He's uniform distribution. Source: TensorFlow's `tf.initializers.he_uniform`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.he_uniform(seed=1)((3, 3)).shape
      (3, 3)
    """
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


def lecun_normal(seed: int | None = None) -> VarianceScaling:
    """LeCun's normal distribution. Source: TensorFlow's `tf.initializers.lecun_normal`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.lecun_normal(seed=1)((3, 3)).shape
      (3, 3)
    """
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> VarianceScaling:
    """LeCun's uniform distribution. Source: TensorFlow's `tf.initializers.lecun_uniform`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.lecun_uniform(seed=1)((3, 3)).shape
      (3, 3)
    """
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


class Identity(Initializer):
    """A matrix with ones on its diagonal, times `gain`. Source: TensorFlow's `tf.initializers.identity`.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.identity()((2, 2)).numpy().tolist()
      [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, gain: float = 1.0, dtype: Any = dtypes.float32) -> None:
        self.gain, self.dtype = gain, _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Creates a matrix of `shape`, or that part of one."""
        dtype = self._dtype(dtype)
        dims = _whole(shape, partition_info)
        if len(dims) != 2:
            raise ValueError(f"Identity matrix initializer can only be used for 2D matrices, got the shape {dims}")
        eye = self.gain * np.eye(dims[0], dims[1])
        if partition_info is not None:
            pairs = zip(partition_info.var_offset, _dims(shape), strict=True)
            eye = eye[tuple(slice(start, start + n) for start, n in pairs)]
        return scopes.builder().const(eye.astype(dtype.numpy), dtype)


class Orthogonal(Initializer):
    """A matrix with orthonormal rows, or columns if there are fewer of them, times `gain`.

    Source: TensorFlow's `tf.orthogonal_initializer`; Saxe and others, Exact solutions to the nonlinear dynamics of
    learning in deep linear neural networks.

    Example:
      >>> import headrace as hr, numpy as np
      >>> q = hr.initializers.orthogonal(seed=1)((2, 2)).numpy()
      >>> np.allclose(q @ q.T, np.eye(2), atol=1e-5)
      True
    """

    def __init__(self, gain: float = 1.0, seed: int | None = None, dtype: Any = dtypes.float32) -> None:
        self.gain, self.seed, self.dtype = gain, seed, _floating(dtype)

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        """Creates a tensor of rank 2 or more, orthogonal as a matrix."""
        dtype = self._dtype(dtype)
        dims = _dims(shape)
        if len(dims) < 2:
            raise ValueError(f"The tensor to initialize must be at least two-dimensional, got the shape {dims}")
        rows, columns = math.prod(dims[:-1]), dims[-1]
        drawn = random.normal((max(rows, columns), min(rows, columns)), dtype=dtype, seed=self.seed)
        b = scopes.builder(drawn)
        q, r = b.make("Qr", (drawn,), {"full_matrices": False})
        q = q * b.Sign(b.make("DiagPart", (r,), {}))  # makes the distribution uniform
        if rows < columns:
            q = linalg.matrix_transpose(q)
        return self.gain * arrays.reshape(q, dims)


# public names
zeros, ones, constant, identity = Zeros, Ones, Constant, Identity
random_normal, truncated_normal, random_uniform = RandomNormal, TruncatedNormal, RandomUniform
orthogonal = Orthogonal
variance_scaling, uniform_unit_scaling = VarianceScaling, UniformUnitScaling
glorot_normal, glorot_uniform = GlorotNormal, GlorotUniform

__all__ = [
    "Initializer", "constant", "get", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity",
    "lecun_normal", "lecun_uniform", "ones", "orthogonal", "random_normal", "random_uniform", "truncated_normal",
    "uniform_unit_scaling", "variance_scaling", "zeros",
]  # fmt: skip

_NAMED: dict[str, Callable[[], Initializer]] = {
    "zeros": Zeros, "ones": Ones, "constant": Constant, "identity": Identity, "orthogonal": Orthogonal,
    "random_normal": RandomNormal, "truncated_normal": TruncatedNormal, "random_uniform": RandomUniform,
    "variance_scaling": VarianceScaling, "uniform_unit_scaling": UniformUnitScaling, "glorot_normal": GlorotNormal,
    "glorot_uniform": GlorotUniform, "he_normal": he_normal, "he_uniform": he_uniform, "lecun_normal": lecun_normal,
    "lecun_uniform": lecun_uniform,
}  # fmt: skip


def get(initializer: Any, dtype: Any = dtypes.float32) -> Callable[..., Any]:
    """Returns an initializer, a function of shape and dtype.

    Args:
      initializer: an initializer; a class of this module; the name of one, such as "he_normal"; a value (number, array
        or tensor) of the requested shape; None: the default for `dtype`.
      dtype: dtype of the variable; used only for None.

    Raises:
      ValueError: the name is unknown, or the dtype has no default.

    Example:
      >>> import headrace as hr
      >>> hr.initializers.get("zeros")((2,), hr.float32).numpy().tolist()
      [0.0, 0.0]
    """
    if initializer is None:
        wanted = as_dtype(dtype)
        if wanted.is_floating:
            return GlorotUniform()
        if wanted.is_integer or wanted.is_bool:
            return Zeros()
        raise ValueError(f"an initializer is required for a variable of {wanted.name}: give one")
    if isinstance(initializer, str):
        if initializer not in _NAMED:
            raise ValueError(f"there is no initializer {initializer!r}; there are {', '.join(sorted(_NAMED))}")
        return _NAMED[initializer]()
    if isinstance(initializer, type):
        made: Callable[..., Any] = initializer()
        return made
    if callable(initializer):
        asked: Callable[..., Any] = initializer
        return asked
    if is_tensor(initializer) or isinstance(initializer, (int, float, complex, list, tuple, np.ndarray, np.generic)):
        return lambda shape, dtype=None: scopes.builder(initializer).tensor(initializer, dtype)
    raise ValueError(f"{initializer!r} is no initializer: give a function of shape and dtype, a name, or a value")


if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
