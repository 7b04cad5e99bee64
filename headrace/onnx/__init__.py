"""Models in ONNX's format: `hr.onnx.load`. Needs the extra `onnx`."""

from headrace.onnx.graphs import ValueInfo
from headrace.onnx.loading import OnnxModel, load

__all__ = ["OnnxModel", "ValueInfo", "load"]
