"""Continuous distributions: `Normal`, `Uniform`, `Laplace`, `StudentT`, `Gamma`, `Exponential`, `Beta`, `Dirichlet`."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

from headrace.v1 import array_ops, check_ops, math_ops, random
from headrace.v1.distributions.distribution import (
    FULLY_REPARAMETERIZED,
    Distribution,
    ScalarDistribution,
    after,
)
from headrace.v1.distributions.divergence import RegisterKL
from headrace.v1.scoping import name_scope

# Bounds between which float32 and float64 compute log(ndtr(x)) directly.
_DIRECT = {"float16": (-3.0, 2.0), "float32": (-10.0, 5.0), "float64": (-20.0, 8.0)}


def further_seed(seed: int | None, salt: str) -> int | None:
    """Returns the seed of a distribution's second random operation, equal to TensorFlow's."""
    if seed is None:
        return None
    digest = hashlib.md5(f"{seed}{salt}".encode(), usedforsecurity=False).hexdigest()
    return int(digest[:8], 16) & 0x7FFFFFFF


def outer_covariance(x: Any, y: Any, variance: Any) -> Any:
    """Returns -x y', with `variance` on the diagonal."""
    product = -math_ops.matmul(x[..., None], y[..., None, :])
    return math_ops.matrix_set_diag(product, variance)


def _ndtr(z: Any) -> Any:
    return 0.5 * math_ops.erfc(-math.sqrt(0.5) * z)


def _log_ndtr(z: Any) -> Any:
    """Computes log(ndtr(z)): with an asymptotic series far below zero, as log1p far above."""
    low, high = _DIRECT[z.dtype.base.name]
    direct = math_ops.log(_ndtr(math_ops.maximum(z, low)))
    below: Any = math_ops.minimum(z, low)
    squared: Any = math_ops.square(below)
    inverse = 1.0 / squared
    series = 1.0 - inverse * (1.0 - inverse * (3.0 - 15.0 * inverse))
    far = -0.5 * squared - math_ops.log(-below) - 0.5 * math.log(2 * math.pi) + math_ops.log(series)
    return array_ops.where_v2(z > high, -_ndtr(-z), array_ops.where_v2(z > low, direct, far))


class Normal(ScalarDistribution):
    """Normal distribution of the mean `loc` and the standard deviation `scale`.

    Args:
      loc, scale: float tensors, which are broadcast.
      validate_args: whether operations check that `scale` is positive.
      allow_nan_stats: not used: all statistics are defined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Normal`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     d = tf.distributions.Normal(loc=[0.0, 1.0], scale=2.0)
      ...     sess.run([d.cdf([0.0, 1.0]), d.variance()]), d.sample(3).shape.as_list()
      ([array([0.5, 0.5], dtype=float32), array([4., 4.], dtype=float32)], [3, 2])
    """

    _names, _positive = ("loc", "scale"), ("scale",)
    loc: Any
    scale: Any

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Normal"
    ) -> None:
        self._start(dict(locals()))

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        drawn = random.normal(self._drawn_shape(n), dtype=self.dtype, seed=seed)
        return drawn * self.scale + self.loc

    def _log_prob(self, x: Any) -> Any:
        return -0.5 * math_ops.square(self._z(x)) - (0.5 * math.log(2 * math.pi) + math_ops.log(self.scale))

    def _cdf(self, x: Any) -> Any:
        return _ndtr(self._z(x))

    def _log_cdf(self, x: Any) -> Any:
        return _log_ndtr(self._z(x))

    def _survival_function(self, x: Any) -> Any:
        return _ndtr(-self._z(x))

    def _log_survival_function(self, x: Any) -> Any:
        return _log_ndtr(-self._z(x))

    def _quantile(self, p: Any) -> Any:
        return math_ops.ndtri(p) * self.scale + self.loc

    def _entropy(self) -> Any:
        return 0.5 * math.log(2 * math.pi * math.e) + math_ops.log(self._whole(self.scale))

    def _mean(self) -> Any:
        return self._whole(self.loc)

    _mode = _mean

    def _stddev(self) -> Any:
        return self._whole(self.scale)

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale


class Uniform(ScalarDistribution):
    """Uniform distribution of the numbers from `low` to below `high`.

    Args:
      low, high: float tensors, which are broadcast.
      validate_args: whether operations check that `low` is less than `high`.
      allow_nan_stats: not used: all statistics are defined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Uniform`.
    """

    _names = ("low", "high")
    low: Any
    high: Any

    def __init__(
        self,
        low: Any = 0.0,
        high: Any = 1.0,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Uniform",
    ) -> None:
        text = "uniform not defined when low >= high."
        self._start(dict(locals()), lambda: [check_ops.assert_less(low, high, message=text)])

    def range(self, name: str = "range") -> Any:
        """Computes `high - low`."""
        with self._name_scope(name):
            return self.high - self.low

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        drawn = random.uniform(self._drawn_shape(n), dtype=self.dtype, seed=seed)
        return self.low + self.range() * drawn

    def _prob(self, x: Any) -> Any:
        x = self._whole(x)
        outside = math_ops.logical_or(x < self.low, x >= self.high)
        inside = array_ops.where_v2(outside, array_ops.zeros_like(x), array_ops.ones_like(x) / self.range())
        return array_ops.where_v2(math_ops.is_nan(x), x, inside)

    def _cdf(self, x: Any) -> Any:
        part = (self._whole(x) - self.low) / self.range()
        zeros, ones = array_ops.zeros_like(part), array_ops.ones_like(part)
        return array_ops.where_v2(x >= self.high, ones, array_ops.where_v2(x < self.low, zeros, part))

    def _entropy(self) -> Any:
        return math_ops.log(self.range())

    def _mean(self) -> Any:
        return (self.low + self.high) / 2.0

    def _variance(self) -> Any:
        return math_ops.square(self.range()) / 12.0

    def _stddev(self) -> Any:
        return self.range() / math.sqrt(12.0)


class Laplace(ScalarDistribution):
    """Laplace distribution of the center `loc` and the spread `scale`.

    Args:
      loc, scale: float tensors, which are broadcast.
      validate_args: whether operations check that `scale` is positive.
      allow_nan_stats: not used: all statistics are defined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Laplace`.
    """

    _names, _positive = ("loc", "scale"), ("scale",)
    loc: Any
    scale: Any

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Laplace"
    ) -> None:
        self._start(dict(locals()))

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        kind = np.dtype(self.dtype.numpy).type
        least = np.nextafter(kind(-1.0), kind(0.0))  # log1p(-1) is infinite
        u = random.uniform(self._drawn_shape(n), minval=least, maxval=1.0, dtype=self.dtype, seed=seed)
        return self.loc - self.scale * math_ops.sign(u) * math_ops.log1p(-math_ops.abs(u))

    def _log_prob(self, x: Any) -> Any:
        return -math_ops.abs(self._z(x)) - (math.log(2.0) + math_ops.log(self.scale))

    def _cdf(self, x: Any) -> Any:
        z = self._z(x)
        return 0.5 + 0.5 * math_ops.sign(z) * (1.0 - math_ops.exp(-math_ops.abs(z)))

    def _log_cdf(self, x: Any) -> Any:
        return self._log_half(self._z(x))

    def _log_survival_function(self, x: Any) -> Any:
        return self._log_half(-self._z(x))

    def _entropy(self) -> Any:
        return math.log(2.0) + 1.0 + math_ops.log(self._whole(self.scale))

    def _mean(self) -> Any:
        return self._whole(self.loc)

    _mode = _mean

    def _stddev(self) -> Any:
        return math.sqrt(2.0) * self._whole(self.scale)

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale

    @staticmethod
    def _log_half(z: Any) -> Any:
        above = math_ops.log1p(-0.5 * math_ops.exp(-math_ops.abs(z)))
        return array_ops.where_v2(z < 0.0, z - math.log(2.0), above)


class StudentT(ScalarDistribution):
    """Student's t distribution of `df` degrees of freedom, moved by `loc` and scaled by `scale`.

    Args:
      df, loc, scale: float tensors, which are broadcast.
      validate_args: whether operations check that `df` is positive.
      allow_nan_stats: whether the mean (for `df` of at most 1) and the variance are NaN where they are undefined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.StudentT`.
    """

    _names, _positive = ("df", "loc", "scale"), ("df",)
    df: Any
    loc: Any
    scale: Any

    def __init__(
        self,
        df: Any,
        loc: Any,
        scale: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "StudentT",
    ) -> None:
        self._start(dict(locals()))

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        drawn = random.normal(self._drawn_shape(n), dtype=self.dtype, seed=seed)
        df = self._whole(self.df)
        other = random.gamma([n], 0.5 * df, beta=0.5, dtype=self.dtype, seed=further_seed(seed, "student_t"))
        return drawn * math_ops.rsqrt(other / df) * self.scale + self.loc

    def _log_prob(self, x: Any) -> Any:
        y = (x - self.loc) / self.scale
        whole = (
            math_ops.log(math_ops.abs(self.scale)) + 0.5 * math_ops.log(self.df) + 0.5 * math.log(math.pi)
            + math_ops.lgamma(0.5 * self.df) - math_ops.lgamma(0.5 * (self.df + 1.0))
        )  # fmt: skip
        return -0.5 * (self.df + 1.0) * math_ops.log1p(math_ops.square(y) / self.df) - whole

    def _cdf(self, x: Any) -> Any:
        y = (x - self.loc) / math_ops.abs(self.scale)
        df = self.df + array_ops.zeros_like(y)
        tail = 0.5 * math_ops.betainc(0.5 * df, 0.5 * array_ops.ones_like(df), df / (math_ops.square(y) + df))
        return array_ops.where_v2(y < 0.0, tail, 1.0 - tail)

    def _entropy(self) -> Any:
        df = self._whole(self.df)
        half, next_half = 0.5 * df, 0.5 * (df + 1.0)
        beta = math_ops.lgamma(half) + math.log(math.pi) / 2 - math_ops.lgamma(next_half)
        spread = math_ops.log(math_ops.abs(self.scale)) + 0.5 * math_ops.log(df)
        return spread + beta + next_half * (math_ops.digamma(next_half) - math_ops.digamma(half))

    def _mean(self) -> Any:
        return self._with_mean(self._whole(self.loc), "mean")

    def _variance(self) -> Any:
        df = self._whole(self.df)
        finite = math_ops.square(self.scale) * df / array_ops.where_v2(df > 2.0, df - 2.0, array_ops.ones_like(df))
        infinite = array_ops.convert_to_tensor(np.inf, self.dtype, name="inf")
        return self._with_mean(array_ops.where_v2(df > 2.0, finite, infinite), "variance")

    def _mode(self) -> Any:
        return array_ops.identity(self.loc)

    def _with_mean(self, x: Any, what: str) -> Any:
        one = array_ops.ones([], dtype=self.dtype)
        text = f"{what} not defined for components of df <= 1"
        return self._defined(
            x, lambda: self._whole(self.df) > 1.0, lambda: check_ops.assert_less(one, self.df, message=text)
        )


class Gamma(ScalarDistribution):
    """Gamma distribution of the shape `concentration` and the inverse scale `rate`.

    Args:
      concentration, rate: float tensors, which are broadcast.
      validate_args: whether operations check that parameters and values are positive.
      allow_nan_stats: whether the mode is NaN where `concentration` is at most 1.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Gamma`.
    """

    _names: tuple[str, ...] = ("concentration", "rate")
    _positive: tuple[str, ...] = ("concentration", "rate")
    concentration: Any
    rate: Any

    def __init__(
        self,
        concentration: Any,
        rate: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Gamma",
    ) -> None:
        self._start(dict(locals()))

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        return random.gamma([n], self.concentration, beta=self.rate, dtype=self.dtype, seed=seed)

    def _log_prob(self, x: Any) -> Any:
        x = self._valid(x)
        return math_ops.xlogy(self.concentration - 1.0, x) - self.rate * x - self._log_normalization()

    def _log_normalization(self) -> Any:
        return math_ops.lgamma(self.concentration) - self.concentration * math_ops.log(self.rate)

    def _cdf(self, x: Any) -> Any:
        return math_ops.igamma(self.concentration, self.rate * self._valid(x))

    def _entropy(self) -> Any:
        a = self.concentration
        return a - math_ops.log(self.rate) + math_ops.lgamma(a) + (1.0 - a) * math_ops.digamma(a)

    def _mean(self) -> Any:
        return self.concentration / self.rate

    def _variance(self) -> Any:
        return self.concentration / math_ops.square(self.rate)

    def _stddev(self) -> Any:
        return math_ops.sqrt(self.concentration) / self.rate

    def _mode(self) -> Any:
        text = "mode not defined when any concentration <= 1"
        return self._defined(
            (self.concentration - 1.0) / self.rate,
            lambda: self.concentration > 1.0,
            lambda: check_ops.assert_less(array_ops.ones([], dtype=self.dtype), self.concentration, message=text),
        )

    def _valid(self, x: Any) -> Any:
        check_ops.assert_same_float_dtype([x], self.dtype)
        return self._checked(x, lambda: check_ops.assert_positive(x))


class Exponential(Gamma):
    """Exponential distribution: the gamma distribution of the concentration 1.

    Args:
      rate: inverse of the mean, a float tensor.
      validate_args: whether operations check that parameters and values are positive.
      allow_nan_stats: whether the mode is NaN, which is undefined as a `Gamma`'s.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Exponential`.
    """

    _names: tuple[str, ...] = ("rate",)
    _positive: tuple[str, ...] = ("rate",)

    def __init__(
        self, rate: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Exponential"
    ) -> None:
        self._start(dict(locals()))
        with name_scope(self.name):
            self.concentration = array_ops.ones([], dtype=self.dtype)

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        least = float(np.finfo(np.dtype(self.dtype.numpy)).tiny)  # log(0) is infinite
        u = random.uniform(self._drawn_shape(n), minval=least, maxval=1.0, dtype=self.dtype, seed=seed)
        return -math_ops.log(u) / self.rate

    def _log_survival_function(self, x: Any) -> Any:
        return self._log_prob(x) - math_ops.log(self.rate)


class Beta(ScalarDistribution):
    """Beta distribution of numbers between 0 and 1.

    Args:
      concentration1, concentration0: float tensors of the mean numbers of successes and of failures.
      validate_args: whether operations check that the parameters are positive and values between 0 and 1.
      allow_nan_stats: whether the mode is NaN where a concentration is at most 1.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Beta`.
    """

    _names = _positive = ("concentration1", "concentration0")
    concentration1: Any
    concentration0: Any

    def __init__(
        self,
        concentration1: Any = None,
        concentration0: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Beta",
    ) -> None:
        self._start(dict(locals()))
        with name_scope(self.name):
            self.total_concentration = self.concentration1 + self.concentration0

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        a, b = self._whole(self.concentration1), self._whole(self.concentration0)
        x = random.gamma([n], a, dtype=self.dtype, seed=seed)
        y = random.gamma([n], b, dtype=self.dtype, seed=further_seed(seed, "beta"))
        return x / (x + y)

    def _log_prob(self, x: Any) -> Any:
        one = array_ops.ones([], dtype=self.dtype)
        x = self._checked(
            x,
            lambda: check_ops.assert_positive(x, message="sample must be positive"),
            lambda: check_ops.assert_less(x, one, message="sample must be less than `1`."),
        )
        power = math_ops.xlogy(self.concentration1 - 1.0, x) + (self.concentration0 - 1.0) * math_ops.log1p(-x)
        return power - self._log_normalization()

    def _cdf(self, x: Any) -> Any:
        zeros = array_ops.zeros_like(self.total_concentration + x)
        return math_ops.betainc(self.concentration1 + zeros, self.concentration0 + zeros, x + zeros)

    def _log_normalization(self) -> Any:
        a, b = self.concentration1, self.concentration0
        return math_ops.lgamma(a) + math_ops.lgamma(b) - math_ops.lgamma(self.total_concentration)

    def _entropy(self) -> Any:
        a, b, total = self.concentration1, self.concentration0, self.total_concentration
        return (
            self._log_normalization() - (a - 1.0) * math_ops.digamma(a) - (b - 1.0) * math_ops.digamma(b)
            + (total - 2.0) * math_ops.digamma(total)
        )  # fmt: skip

    def _mean(self) -> Any:
        return self.concentration1 / self.total_concentration

    def _variance(self) -> Any:
        mean = self._mean()
        return mean * (1.0 - mean) / (1.0 + self.total_concentration)

    def _mode(self) -> Any:
        one = array_ops.ones([], dtype=self.dtype)
        a, b = self.concentration1, self.concentration0
        return self._defined(
            (a - 1.0) / (self.total_concentration - 2.0),
            lambda: math_ops.logical_and(a > 1.0, b > 1.0),
            lambda: check_ops.assert_less(one, a, message="Mode undefined for concentration1 <= 1."),
            lambda: check_ops.assert_less(one, b, message="Mode undefined for concentration0 <= 1."),
        )


class VectorDistribution(Distribution):
    """Base class of distributions of vectors.

    The last axis of the parameter `concentration` has their length.
    """

    concentration: Any
    total_concentration: Any

    def _take_concentration(self, concentration: Any, validate_args: bool) -> None:
        t = array_ops.convert_to_tensor(concentration, name="concentration")
        if validate_args:
            two = "Concentration parameter must have event_size >= 2."
            positive = "Concentration parameter must be positive."
            t = after(
                t,
                lambda: check_ops.assert_positive(t, message=positive),
                lambda: check_ops.assert_less(1, array_ops.shape(t)[-1], message=two),
            )
        self.concentration, self.total_concentration = t, math_ops.reduce_sum(t, -1)

    def _batch_shape(self) -> Any:
        return self.total_concentration.get_shape()

    def _batch_shape_tensor(self) -> Any:
        return array_ops.shape(self.total_concentration)

    def _event_shape(self) -> Any:
        return self.concentration.get_shape()[-1:]

    def _event_shape_tensor(self) -> Any:
        return array_ops.shape(self.concentration)[-1:]


class Dirichlet(VectorDistribution):
    """Dirichlet distribution of vectors of positive numbers with the sum 1.

    Args:
      concentration: float tensor of the mean numbers of occurrences; its last axis is the event's.
      validate_args: whether operations check the parameter and the values.
      allow_nan_stats: whether the mode is NaN where a concentration is at most 1.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Dirichlet`.
    """

    def __init__(
        self, concentration: Any, validate_args: bool = False, allow_nan_stats: bool = True, name: str = "Dirichlet"
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        with name_scope(name, values=[concentration]) as scope:
            self._take_concentration(concentration, validate_args)
        super().__init__(
            self.concentration.dtype, FULLY_REPARAMETERIZED, validate_args, allow_nan_stats, given,
            [self.concentration, self.total_concentration], str(scope),
        )  # fmt: skip

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        drawn = random.gamma([n], self.concentration, dtype=self.dtype, seed=seed)
        return drawn / math_ops.reduce_sum(drawn, -1, keepdims=True)

    def _log_prob(self, x: Any) -> Any:
        one, text = array_ops.ones([], dtype=self.dtype), "sample last-dimension must sum to `1`"
        x = self._checked(
            x,
            lambda: check_ops.assert_positive(x, message="samples must be positive"),
            lambda: check_ops.assert_near(one, math_ops.reduce_sum(x, -1), message=text),
        )
        power = math_ops.reduce_sum(math_ops.xlogy(self.concentration - 1.0, x), -1)
        return power - math_ops.lbeta(self.concentration)

    def _entropy(self) -> Any:
        k = math_ops.cast(self.event_shape_tensor()[0], self.dtype)
        each = math_ops.reduce_sum((self.concentration - 1.0) * math_ops.digamma(self.concentration), axis=-1)
        total = self.total_concentration
        return math_ops.lbeta(self.concentration) + (total - k) * math_ops.digamma(total) - each

    def _mean(self) -> Any:
        return self.concentration / self.total_concentration[..., None]

    def _variance(self) -> Any:
        mean = self._mean()
        return mean * (1.0 - mean) / (1.0 + self.total_concentration[..., None])

    def _covariance(self) -> Any:
        x = self._mean() * math_ops.rsqrt(1.0 + self.total_concentration[..., None])
        return outer_covariance(x, x, self._variance())

    def _mode(self) -> Any:
        k = math_ops.cast(self.event_shape_tensor()[0], self.dtype)
        one, text = array_ops.ones([], dtype=self.dtype), "Mode undefined when any concentration <= 1"
        return self._defined(
            (self.concentration - 1.0) / (self.total_concentration[..., None] - k),
            lambda: math_ops.reduce_all(self.concentration > 1.0, axis=-1, keepdims=True),
            lambda: check_ops.assert_less(one, self.concentration, message=text),
        )


@RegisterKL(Normal, Normal)
def _kl_normal(a: Normal, b: Normal, name: str | None = None) -> Any:
    with name_scope(name, "kl_normal_normal", [a.loc, b.loc]):
        below = math_ops.square(b.scale)
        ratio = math_ops.square(a.scale) / below
        return math_ops.squared_difference(a.loc, b.loc) / (2.0 * below) + 0.5 * (ratio - 1.0 - math_ops.log(ratio))


@RegisterKL(Gamma, Gamma)
def _kl_gamma(a: Gamma, b: Gamma, name: str | None = None) -> Any:
    with name_scope(name, "kl_gamma_gamma", [a.concentration, a.rate, b.concentration, b.rate]):
        p, q = a.concentration, b.concentration
        return (
            (p - q) * math_ops.digamma(p) + math_ops.lgamma(q) - math_ops.lgamma(p)
            + q * math_ops.log(a.rate) - q * math_ops.log(b.rate) + p * (b.rate / a.rate - 1.0)
        )  # fmt: skip


@RegisterKL(Beta, Beta)
def _kl_beta(a: Beta, b: Beta, name: str | None = None) -> Any:
    with name_scope(name, "kl_beta_beta", [a.total_concentration, b.total_concentration]):
        return (
            b._log_normalization() - a._log_normalization()
            - math_ops.digamma(a.concentration1) * (b.concentration1 - a.concentration1)
            - math_ops.digamma(a.concentration0) * (b.concentration0 - a.concentration0)
            + math_ops.digamma(a.total_concentration) * (b.total_concentration - a.total_concentration)
        )  # fmt: skip


@RegisterKL(Dirichlet, Dirichlet)
def _kl_dirichlet(a: Dirichlet, b: Dirichlet, name: str | None = None) -> Any:
    with name_scope(name, "kl_dirichlet_dirichlet", [a.concentration, b.concentration]):
        mean_logs = math_ops.digamma(a.concentration) - math_ops.digamma(a.total_concentration)[..., None]
        moved = math_ops.reduce_sum((a.concentration - b.concentration) * mean_logs, -1)
        return moved - math_ops.lbeta(a.concentration) + math_ops.lbeta(b.concentration)
