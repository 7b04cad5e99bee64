"""TensorFlow 1's `tf.distributions`: samples, densities and statistics of probability distributions."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.distributions.continuous import Beta as Beta
from headrace.v1.distributions.continuous import Dirichlet as Dirichlet
from headrace.v1.distributions.continuous import Exponential as Exponential
from headrace.v1.distributions.continuous import Gamma as Gamma
from headrace.v1.distributions.continuous import Laplace as Laplace
from headrace.v1.distributions.continuous import Normal as Normal
from headrace.v1.distributions.continuous import StudentT as StudentT
from headrace.v1.distributions.continuous import Uniform as Uniform
from headrace.v1.distributions.discrete import Bernoulli as Bernoulli
from headrace.v1.distributions.discrete import Categorical as Categorical
from headrace.v1.distributions.discrete import DirichletMultinomial as DirichletMultinomial
from headrace.v1.distributions.discrete import Multinomial as Multinomial
from headrace.v1.distributions.distribution import FULLY_REPARAMETERIZED as FULLY_REPARAMETERIZED
from headrace.v1.distributions.distribution import NOT_REPARAMETERIZED as NOT_REPARAMETERIZED
from headrace.v1.distributions.distribution import Distribution as Distribution
from headrace.v1.distributions.distribution import ReparameterizationType as ReparameterizationType
from headrace.v1.distributions.divergence import RegisterKL as RegisterKL
from headrace.v1.distributions.divergence import kl_divergence as kl_divergence

# fmt: off
__all__ = [
    "FULLY_REPARAMETERIZED", "NOT_REPARAMETERIZED", "Bernoulli", "Beta", "Categorical", "Dirichlet",
    "DirichletMultinomial", "Distribution", "Exponential", "Gamma", "Laplace", "Multinomial", "Normal", "RegisterKL",
    "ReparameterizationType", "StudentT", "Uniform", "kl_divergence",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
