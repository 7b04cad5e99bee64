"""TensorFlow 1's `tf.estimator`: models of a function, trained, evaluated and used for prediction.

`headrace docs how-to/estimators` explains them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.estimator import experimental as experimental
from headrace.v1.estimator import export as export
from headrace.v1.estimator import inputs as inputs
from headrace.v1.estimator.canned import (
    BaselineClassifier,
    BaselineRegressor,
    DNNClassifier,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
    DNNRegressor,
    LinearClassifier,
    LinearRegressor,
)
from headrace.v1.estimator.estimator import Estimator
from headrace.v1.estimator.exporters import BestExporter, FinalExporter, LatestExporter
from headrace.v1.estimator.modes import ModeKeys
from headrace.v1.estimator.run_config import RunConfig
from headrace.v1.estimator.spec import EstimatorSpec, EvalSpec, Exporter, TrainSpec
from headrace.v1.estimator.training import train_and_evaluate
from headrace.v1.warm_starting import VocabInfo, WarmStartSettings

# fmt: off
__all__ = [
    "BaselineClassifier", "BaselineRegressor", "BestExporter", "DNNClassifier", "DNNLinearCombinedClassifier",
    "DNNLinearCombinedRegressor", "DNNRegressor", "Estimator", "EstimatorSpec", "EvalSpec", "Exporter",
    "FinalExporter", "LatestExporter", "LinearClassifier", "LinearRegressor", "ModeKeys", "RunConfig", "TrainSpec",
    "VocabInfo", "WarmStartSettings", "experimental", "export", "inputs", "train_and_evaluate",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
