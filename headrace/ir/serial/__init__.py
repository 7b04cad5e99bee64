"""Graphs and functions as TensorFlow's messages: `GraphDef`, `FunctionDef`, `NodeDef`, attribute values."""
