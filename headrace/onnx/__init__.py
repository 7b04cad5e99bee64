"""Models in ONNX's format: `hr.onnx.load`. Needs the extra `onnx`."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.onnx.graphs import ValueInfo
from headrace.onnx.loading import OnnxModel, load

__all__ = ["OnnxModel", "ValueInfo", "load"]

if not TYPE_CHECKING:  # type checkers must find unknown names
    __getattr__, __dir__ = public_names.of(__name__, __all__)
