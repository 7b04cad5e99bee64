"""ONNX's backend interface: `prepare`, `run_model` and `supports_device` (`onnx.backend.base.Backend`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from headrace.onnx.element_types import array_of, as_text
from headrace.onnx.loading import OnnxModel, load


class HeadraceBackendRep(BackendRep):
    """Loaded model with the interface of ONNX's backends.

    Args:
      model: the model.
    """

    def __init__(self, model: OnnxModel) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Computes the outputs as arrays.

        A sequence is a list of arrays. An absent optional value is None.

        Args:
          inputs: the inputs in their order.
          kwargs: not used.
        """
        del kwargs
        results = self.model(*map(_given, inputs))
        return tuple(map(_array, results if isinstance(results, tuple) else (results,)))


class HeadraceBackend(Backend):
    """Backend of ONNX's interface that runs models eagerly on the CPU."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> HeadraceBackendRep:
        """Loads a model.

        Args:
          model: the model.
          device: "CPU".
          kwargs: arguments of `hr.onnx.load`.
        """
        del device
        return HeadraceBackendRep(load(model, **kwargs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models run on a device."""
        return device == "CPU"


def _given(value: Any) -> Any:
    return array_of(value) if isinstance(value, onnx.TensorProto) else value


def _array(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_array(v) for v in value]
    array = np.asarray(value.numpy())
    if array.dtype.kind not in "OS":
        return array
    texts = np.empty(array.size, object)
    texts[:] = [as_text(b) for b in array.reshape(-1)]
    return texts.reshape(array.shape)


prepare = HeadraceBackend.prepare
run_model = HeadraceBackend.run_model
supports_device = HeadraceBackend.supports_device
