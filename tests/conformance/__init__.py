"""Tests against an installed TensorFlow (the `conformance` extra); without one they skip."""
