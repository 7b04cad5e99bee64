"""Distributions of integers and of counts: `Bernoulli`, `Categorical`, `Multinomial`, `DirichletMultinomial`."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.v1 import array_ops, check_ops, math_ops, nn, random
from headrace.v1.control_flow import map_fn
from headrace.v1.distributions.continuous import VectorDistribution, further_seed, outer_covariance
from headrace.v1.distributions.distribution import NOT_REPARAMETERIZED, Distribution, after
from headrace.v1.distributions.divergence import RegisterKL
from headrace.v1.scoping import name_scope
from headrace.v1.tensor_shape import TensorShape, broadcast_static_shape


def _logits_and_probs(logits: Any, probs: Any, validate_args: bool, is_vector: bool) -> tuple[Any, Any]:
    """Returns logits and probabilities, given one of the two.

    Raises:
      ValueError: both are given, or neither is.
    """
    if (logits is None) == (probs is None):
        raise ValueError("Must pass probs or logits, but not both.")
    if logits is not None:
        t = array_ops.convert_to_tensor(logits, name="logits")
        return t, (nn.softmax if is_vector else math_ops.sigmoid)(t, name="probs")
    p = array_ops.convert_to_tensor(probs, name="probs")
    if validate_args:
        one = array_ops.ones([], dtype=p.dtype)
        at_most_one = "probs has components greater than 1."
        p = after(
            p,
            lambda: check_ops.assert_non_negative(p),
            lambda: (
                check_ops.assert_near(math_ops.reduce_sum(p, -1), one, message="probs does not sum to 1.")
                if is_vector
                else check_ops.assert_less_equal(p, one, message=at_most_one)
            ),
        )
    with name_scope("logits"):
        return math_ops.log(p) if is_vector else math_ops.log(p) - math_ops.log1p(-p), p


def _integers(self: Distribution, x: Any) -> Any:
    """`x`; with `validate_args`, after the assertion that it has integers."""
    if not x.dtype.is_floating:
        return x
    text = "cannot contain fractional components."
    return self._checked(x, lambda: check_ops.assert_equal(x, math_ops.floor(x), message=text))


class Bernoulli(Distribution):
    """Bernoulli distribution: 1 with the probability `probs`, else 0.

    Args:
      logits, probs: one of the two: the log-odds of 1, or the probability of 1.
      dtype: of samples.
      validate_args: whether operations check the parameter and the values.
      allow_nan_stats: not used: all statistics are defined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Bernoulli`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     sess.run(tf.distributions.Bernoulli(probs=[0.25, 0.75]).mode())
      array([0, 1], dtype=int32)
    """

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Bernoulli",
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        with name_scope(name, values=[logits, probs]) as scope:
            self.logits, self.probs = _logits_and_probs(logits, probs, validate_args, is_vector=False)
        parents = [self.logits, self.probs]
        super().__init__(
            dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, given, parents, str(scope)
        )  # fmt: skip

    @staticmethod
    def _param_shapes(sample_shape: Any) -> dict[str, Any]:
        return {"logits": array_ops.convert_to_tensor(sample_shape, dtype=dtypes.int32)}

    def _batch_shape(self) -> Any:
        return self.logits.get_shape()

    def _batch_shape_tensor(self) -> Any:
        return array_ops.shape(self.logits)

    def _event_shape(self) -> Any:
        return TensorShape([])

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        shape = array_ops.concat([[n], self.batch_shape_tensor()], 0)
        drawn = random.uniform(shape, seed=seed, dtype=self.probs.dtype)
        return math_ops.cast(math_ops.less(drawn, self.probs), self.dtype)

    def _log_prob(self, event: Any) -> Any:
        event = math_ops.cast(_integers(self, event), self.logits.dtype)
        logits, labels = self.logits + array_ops.zeros_like(event), event + array_ops.zeros_like(self.logits)
        return -nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def _entropy(self) -> Any:
        return self.logits * math_ops.sigmoid(-self.logits) + nn.softplus(-self.logits)

    def _mean(self) -> Any:
        return array_ops.identity(self.probs)

    def _variance(self) -> Any:
        return self.probs * (1.0 - self.probs)

    def _mode(self) -> Any:
        return math_ops.cast(self.probs > 0.5, self.dtype)


class Categorical(Distribution):
    """Categorical distribution of the classes 0 to k - 1.

    Args:
      logits, probs: one of the two, of the shape [..., k]: unnormalized log-probabilities, or probabilities.
      dtype: of samples.
      validate_args: whether operations check the parameter and the values.
      allow_nan_stats: not used: all statistics are defined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Categorical`.
    """

    def __init__(
        self,
        logits: Any = None,
        probs: Any = None,
        dtype: Any = dtypes.int32,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Categorical",
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        with name_scope(name, values=[logits, probs]) as scope:
            self.logits, self.probs = _logits_and_probs(logits, probs, validate_args, is_vector=True)
            known = self.logits.get_shape().with_rank_at_least(1).as_list()[-1]
            self.event_size = array_ops.shape(self.logits)[-1] if known is None else array_ops.constant(
                known, dtypes.int32, name="event_size"
            )  # fmt: skip
        parents = [self.logits, self.probs]
        super().__init__(
            dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, given, parents, str(scope)
        )  # fmt: skip

    def _batch_shape(self) -> Any:
        return self.logits.get_shape()[:-1]

    def _batch_shape_tensor(self) -> Any:
        return array_ops.shape(self.logits)[:-1]

    def _event_shape(self) -> Any:
        return TensorShape([])

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        rows = array_ops.reshape(self.logits, array_ops.stack([-1, self.event_size]))
        kind = dtypes.int64 if self.dtype.size > 4 else dtypes.int32
        drawn = random.multinomial(rows, n, seed=seed, output_dtype=kind)
        shape = array_ops.concat([[n], self.batch_shape_tensor()], 0)
        return math_ops.cast(array_ops.reshape(array_ops.transpose(drawn), shape), self.dtype)

    def _log_prob(self, k: Any) -> Any:
        k, logits = self._broadcast(k, self.logits)
        return -nn.sparse_softmax_cross_entropy_with_logits(labels=k, logits=logits)

    def _cdf(self, k: Any) -> Any:
        k, probs = self._broadcast(k, self.probs)
        return math_ops.reduce_sum(probs * array_ops.sequence_mask(k, self.event_size, dtype=probs.dtype), axis=-1)

    def _broadcast(self, k: Any, parameter: Any) -> tuple[Any, Any]:
        """Broadcasts values and a parameter to the same leading axes."""
        k = math_ops.cast(_integers(self, k), dtypes.int32)
        static = broadcast_static_shape(k.get_shape(), parameter.get_shape()[:-1])
        shape = array_ops.broadcast_dynamic_shape(array_ops.shape(k), array_ops.shape(parameter)[:-1])
        whole = array_ops.concat([shape, [self.event_size]], 0)
        k, parameter = array_ops.broadcast_to(k, shape), array_ops.broadcast_to(parameter, whole)
        k.set_shape(static)
        return k, parameter

    def _entropy(self) -> Any:
        return -math_ops.reduce_sum(nn.log_softmax(self.logits) * self.probs, axis=-1)

    def _mode(self) -> Any:
        return math_ops.cast(math_ops.argmax(self.logits, axis=-1), self.dtype)


class Multinomial(Distribution):
    """Multinomial distribution: counts of the classes of `total_count` draws.

    Args:
      total_count: float tensor of whole numbers, [...].
      logits, probs: one of the two, of the shape [..., k]: unnormalized log-probabilities, or probabilities.
      validate_args: whether operations check the parameters and the values.
      allow_nan_stats: not used: all statistics are defined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.Multinomial`.
    """

    def __init__(
        self,
        total_count: Any,
        logits: Any = None,
        probs: Any = None,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "Multinomial",
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        with name_scope(name, values=[total_count, logits, probs]) as scope:
            self.total_count = _total(total_count, validate_args)
            self.logits, self.probs = _logits_and_probs(logits, probs, validate_args, is_vector=True)
            self._counts = self.total_count[..., None] * self.probs
        parents = [self.total_count, self.logits, self.probs]
        super().__init__(
            self.probs.dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, given, parents, str(scope)
        )  # fmt: skip

    def _batch_shape(self) -> Any:
        return self._counts.get_shape()[:-1]

    def _batch_shape_tensor(self) -> Any:
        return array_ops.shape(self._counts)[:-1]

    def _event_shape(self) -> Any:
        return self._counts.get_shape()[-1:]

    def _event_shape_tensor(self) -> Any:
        return array_ops.shape(self._counts)[-1:]

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        batch, k = self.batch_shape_tensor(), self.event_shape_tensor()[0]
        whole = array_ops.concat([batch, [k]], 0)
        rows = array_ops.reshape(array_ops.broadcast_to(self.logits, whole), array_ops.stack([-1, k]))
        trials = array_ops.broadcast_to(math_ops.cast(self.total_count, dtypes.int32), batch)

        def draw(row: Any) -> Any:
            drawn = random.multinomial(row[0][None], n * row[1], seed=seed)
            one_hot = array_ops.one_hot(array_ops.reshape(drawn, array_ops.stack([n, row[1]])), k, dtype=self.dtype)
            return math_ops.reduce_sum(one_hot, axis=-2)

        # One iteration at a time: the draws of all rows use one generator, and a seed must give one result.
        drawn = map_fn(draw, [rows, array_ops.reshape(trials, [-1])], dtype=self.dtype, parallel_iterations=1)
        return array_ops.reshape(array_ops.transpose(drawn, [1, 0, 2]), array_ops.concat([[n], whole], 0))

    def _log_prob(self, counts: Any) -> Any:
        counts = _valid_counts(self, self.total_count, counts)
        return math_ops.reduce_sum(counts * nn.log_softmax(self.logits), -1) + _log_ways(self.total_count, counts)

    def _mean(self) -> Any:
        return array_ops.identity(self._counts)

    def _variance(self) -> Any:
        return self._counts - self._counts * self.probs

    def _covariance(self) -> Any:
        return outer_covariance(self._counts, self.probs + array_ops.zeros_like(self._counts), self._variance())


class DirichletMultinomial(VectorDistribution):
    """Multinomial distribution with probabilities that a Dirichlet distribution draws.

    Args:
      total_count: float tensor of whole numbers, [...].
      concentration: float tensor, [..., k]; see `Dirichlet`.
      validate_args: whether operations check the parameters and the values.
      allow_nan_stats: not used: all statistics are defined.
      name: name scope of the operations.

    Source: TensorFlow's `tf.distributions.DirichletMultinomial`.
    """

    def __init__(
        self,
        total_count: Any,
        concentration: Any,
        validate_args: bool = False,
        allow_nan_stats: bool = True,
        name: str = "DirichletMultinomial",
    ) -> None:
        given = {k: v for k, v in locals().items() if k not in ("self", "__class__")}
        with name_scope(name, values=[total_count, concentration]) as scope:
            self.total_count = _total(total_count, validate_args)
            self._take_concentration(concentration, validate_args)
        parents = [self.total_count, self.concentration]
        super().__init__(
            self.concentration.dtype, NOT_REPARAMETERIZED, validate_args, allow_nan_stats, given, parents, str(scope)
        )  # fmt: skip

    def _sample_n(self, n: Any, seed: int | None = None) -> Any:
        k = self.event_shape_tensor()[0]
        gammas = random.gamma([n], self.concentration, dtype=self.dtype, seed=seed)
        drawn = random.multinomial(
            array_ops.reshape(math_ops.log(gammas), array_ops.stack([-1, k])),
            math_ops.cast(self.total_count, dtypes.int32),
            seed=further_seed(seed, "dirichlet_multinomial"),
        )
        counts = math_ops.reduce_sum(array_ops.one_hot(drawn, k, dtype=self.dtype), -2)
        return array_ops.reshape(counts, array_ops.concat([[n], self.batch_shape_tensor(), [k]], 0))

    def _log_prob(self, counts: Any) -> Any:
        counts = _valid_counts(self, self.total_count, counts)
        ordered = math_ops.lbeta(self.concentration + counts) - math_ops.lbeta(self.concentration)
        return ordered + _log_ways(self.total_count, counts)

    def _mean(self) -> Any:
        return self.total_count * (self.concentration / self.total_concentration[..., None])

    def _scale(self) -> Any:
        c = self.total_concentration[..., None]
        return math_ops.sqrt((1.0 + c / self.total_count) / (1.0 + c))

    def _variance(self) -> Any:
        x = self._scale() * self._mean()
        return x * (self.total_count * self._scale() - x)

    def _covariance(self) -> Any:
        x = self._scale() * self._mean()
        return outer_covariance(x, x, self._variance())


def _total(total_count: Any, validate_args: bool) -> Any:
    t = array_ops.convert_to_tensor(total_count, name="total_count")
    if not validate_args:
        return t
    return after(
        t,
        lambda: check_ops.assert_non_negative(t, message="total_count must be non-negative."),
        lambda: check_ops.assert_equal(t, math_ops.floor(t), message="cannot contain fractional components."),
    )


def _valid_counts(self: Distribution, total_count: Any, counts: Any) -> Any:
    return self._checked(
        _integers(self, counts),
        lambda: check_ops.assert_non_negative(counts),
        lambda: check_ops.assert_equal(
            total_count, math_ops.reduce_sum(counts, -1), message="counts must sum to `self.total_count`"
        ),
    )


def _log_ways(total_count: Any, counts: Any) -> Any:
    """Logarithm of the number of orders of draws that have the counts."""
    return math_ops.lgamma(1.0 + total_count) - math_ops.reduce_sum(math_ops.lgamma(1.0 + counts), -1)


@RegisterKL(Bernoulli, Bernoulli)
def _kl_bernoulli(a: Bernoulli, b: Bernoulli, name: str | None = None) -> Any:
    with name_scope(name, "kl_bernoulli_bernoulli", [a.logits, b.logits]):
        zero = nn.softplus(b.logits) - nn.softplus(a.logits)
        one = nn.softplus(-b.logits) - nn.softplus(-a.logits)
        return math_ops.sigmoid(a.logits) * one + math_ops.sigmoid(-a.logits) * zero


@RegisterKL(Categorical, Categorical)
def _kl_categorical(a: Categorical, b: Categorical, name: str | None = None) -> Any:
    with name_scope(name, "kl_categorical_categorical", [a.logits, b.logits]):
        logs = nn.log_softmax(a.logits) - nn.log_softmax(b.logits)
        return math_ops.reduce_sum(nn.softmax(a.logits) * logs, axis=-1)
