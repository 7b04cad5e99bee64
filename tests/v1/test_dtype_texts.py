"""Texts of dtypes, tensors and variables in a program for TensorFlow 1."""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

import headrace.v1 as tf


class Pair(NamedTuple):
    """A field with a dtype."""

    dtype: object


def test_dtypes_print_as_in_tensorflow() -> None:
    assert (str(tf.float32), f"{tf.int64}", str(tf.bool)) == (
        "<dtype: 'float32'>", "<dtype: 'int64'>", "<dtype: 'bool'>"
    )  # fmt: skip
    assert str([tf.string, Pair(tf.int32)]) == "[tf.string, Pair(dtype=tf.int32)]"


def test_a_module_with_arrays_has_headraces_texts() -> None:
    """The search for `headrace.v1` among a module's names compares identities: arrays have no truth value."""
    names = {"values": np.ones(3), "show": str, "dtype": tf.float32, "out": []}
    thread = threading.Thread(target=exec, args=("out.append(show(dtype))", names))  # a stack without this module
    thread.start()
    thread.join()
    assert names["out"] == ["float32"]


def test_tensors_and_variables_print_as_in_tensorflow() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [None, 3], name="x")
        y = tf.placeholder(tf.int32, name="y")
        v = tf.get_variable("v", [2])
        assert str(x) == 'Tensor("x:0", shape=(?, 3), dtype=float32)'
        assert repr(x) == "<tf.Tensor 'x:0' shape=(?, 3) dtype=float32>"
        assert (str(y), repr(y)) == ('Tensor("y:0", dtype=int32)', "<tf.Tensor 'y:0' shape=<unknown> dtype=int32>")
        assert str(v) == repr(v) == "<tf.Variable 'v:0' shape=(2,) dtype=float32_ref>"
        with tf.device("/cpu:0"):
            assert str(tf.constant(1, name="c")) == 'Tensor("c:0", shape=(), dtype=int32, device=/device:CPU:0)'
