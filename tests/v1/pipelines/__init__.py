"""Pipelines of `tf.data`, and the elements that TensorFlow gives for them.

`python -m tests.v1.pipelines.collect`, run by a Python with TensorFlow, writes `recorded.json`.
"""
