"""TensorFlow 1's `tf.initializers`: initial values of variables.

They are those of `headrace.initializers`, called in the default graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.api import initializers as plain
from headrace.v1 import lookup
from headrace.v1 import variables as state
from headrace.v1.graph import in_default_graph

Initializer = plain.Initializer


def _entering(cls: Any) -> Any:
    """Returns `cls` with calls that enter the default graph if no graph is current."""
    members = {"__call__": in_default_graph(cls.__call__), "__doc__": cls.__doc__, "__module__": __name__}
    return type(cls.__name__, (cls,), members)


Zeros = _entering(plain.Zeros)
Ones = _entering(plain.Ones)
Constant = _entering(plain.Constant)
RandomNormal = _entering(plain.RandomNormal)
TruncatedNormal = _entering(plain.TruncatedNormal)
RandomUniform = _entering(plain.RandomUniform)
UniformUnitScaling = _entering(plain.UniformUnitScaling)
VarianceScaling = _entering(plain.VarianceScaling)
GlorotUniform = _entering(plain.GlorotUniform)
GlorotNormal = _entering(plain.GlorotNormal)
Identity = _entering(plain.Identity)
Orthogonal = _entering(plain.Orthogonal)


def he_normal(seed: int | None = None) -> Any:
    """He's normal distribution. Source: TensorFlow's `tf.initializers.he_normal`."""
    return VarianceScaling(2.0, "fan_in", "truncated_normal", seed)


def he_uniform(seed: int | None = None) -> Any:
    """He's uniform distribution. Source: TensorFlow's `tf.initializers.he_uniform`."""
    return VarianceScaling(2.0, "fan_in", "uniform", seed)


def lecun_normal(seed: int | None = None) -> Any:
    """LeCun's normal distribution. Source: TensorFlow's `tf.initializers.lecun_normal`."""
    return VarianceScaling(1.0, "fan_in", "truncated_normal", seed)


def lecun_uniform(seed: int | None = None) -> Any:
    """LeCun's uniform distribution. Source: TensorFlow's `tf.initializers.lecun_uniform`."""
    return VarianceScaling(1.0, "fan_in", "uniform", seed)


# the names that `tf.initializers` has
zeros, ones, constant, identity = Zeros, Ones, Constant, Identity
random_normal, truncated_normal, random_uniform = RandomNormal, TruncatedNormal, RandomUniform
orthogonal = Orthogonal
variance_scaling, uniform_unit_scaling = VarianceScaling, UniformUnitScaling
glorot_normal, glorot_uniform = GlorotNormal, GlorotUniform
global_variables, local_variables = state.global_variables_initializer, state.local_variables_initializer
variables = state.variables_initializer
tables_initializer = lookup.tables_initializer

# fmt: off
__all__ = [
    "Constant", "GlorotNormal", "GlorotUniform", "Identity", "Initializer", "Ones", "Orthogonal", "RandomNormal",
    "RandomUniform", "TruncatedNormal", "UniformUnitScaling", "VarianceScaling", "Zeros", "constant",
    "global_variables", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "identity", "lecun_normal",
    "lecun_uniform", "local_variables", "ones", "orthogonal", "random_normal", "random_uniform", "tables_initializer",
    "truncated_normal", "uniform_unit_scaling", "variables", "variance_scaling", "zeros",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
