"""Tests of `headrace.onnx`."""
