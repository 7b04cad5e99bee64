"""Optimizers, which update variables by gradients: in graphs, eagerly, and as functions of tensors."""

from headrace.train.optimizers.adagrad import Adadelta, Adagrad, AdagradDA, ProximalAdagrad
from headrace.train.optimizers.adam import Adam, AdaMax, AdamW, Lamb
from headrace.train.optimizers.base import Optimizer
from headrace.train.optimizers.descent import SGD, Momentum, ProximalGradientDescent
from headrace.train.optimizers.ftrl import Ftrl
from headrace.train.optimizers.rmsprop import RMSProp
from headrace.train.optimizers.rule import Slot
from headrace.train.optimizers.sync_replicas import SyncReplicasOptimizer

__all__ = [
    "SGD",
    "AdaMax",
    "Adadelta",
    "Adagrad",
    "AdagradDA",
    "Adam",
    "AdamW",
    "Ftrl",
    "Lamb",
    "Momentum",
    "Optimizer",
    "ProximalAdagrad",
    "ProximalGradientDescent",
    "RMSProp",
    "Slot",
    "SyncReplicasOptimizer",
]
