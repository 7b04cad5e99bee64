"""Variable scopes, `get_variable` and custom getters. Expected names and values are TensorFlow 2.21's (`compat.v1`)."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf


def shown(value: Any) -> Any:
    """A value as the lists of expected values have it."""
    if isinstance(value, (list, tuple)):
        return [shown(v) for v in value]
    if isinstance(value, (tf.VariableSynchronization, tf.VariableAggregation, tf.DType)):
        return value.name
    return "AUTO" if value is tf.AUTO_REUSE else value


class Log:
    """Records of a test, call by call."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def __call__(self, *values: Any) -> None:
        found = [shown(v) for v in values]
        self.lines.append(found[0] if len(found) == 1 else tuple(found))


@pytest.fixture
def seen() -> Log:
    tf.reset_default_graph()
    return Log()


def test_default_names_are_made_unique(seen: Log) -> None:
    for _ in range(3):
        with tf.variable_scope(None, "d") as s:
            seen(s.name, s.original_name_scope)
            seen(tf.get_variable("v", [2]).name, tf.constant(1).name)
    assert seen.lines == [
        ("d", "d/"),
        ("d/v:0", "d/Const:0"),
        ("d_1", "d_1/"),
        ("d_1/v:0", "d_1/Const:0"),
        ("d_2", "d_2/"),
        ("d_2/v:0", "d_2/Const:0"),
    ]


def test_a_scope_entered_again_keeps_its_name_and_opens_a_new_name_scope(seen: Log) -> None:
    with tf.variable_scope("a") as s:
        seen(tf.constant(1).name)
    with tf.variable_scope(s) as t:
        seen(t.name, t.original_name_scope, tf.constant(1).name, tf.get_variable("v", [2]).name)
    with tf.variable_scope(s, reuse=True) as t:
        seen(t.name, t.original_name_scope, tf.constant(1).name, tf.get_variable("v").name)
    with tf.variable_scope("a", reuse=True) as t:
        seen(t.name, t.original_name_scope, tf.constant(1).name, tf.get_variable("v").name)
    assert seen.lines == [
        "a/Const:0",
        ("a", "a/", "a_1/Const:0", "a/v:0"),
        ("a", "a/", "a_2/Const:0", "a/v:0"),
        ("a", "a_3/", "a_3/Const:0", "a/v:0"),
    ]


def test_default_names_below_a_scope_entered_again_are_counted_anew_and_the_counts_restored(seen: Log) -> None:
    with tf.variable_scope("a") as s:
        for _ in range(2):
            with tf.variable_scope(None, "d") as t:
                seen(t.name, t.original_name_scope)
        with tf.variable_scope(s):
            for _ in range(2):
                with tf.variable_scope(None, "d") as t:
                    seen(t.name, t.original_name_scope)
        for _ in range(2):
            with tf.variable_scope(None, "d") as t:
                seen(t.name, t.original_name_scope)
    with tf.variable_scope(s):
        for _ in range(2):
            with tf.variable_scope(None, "d") as t:
                seen(t.name, t.original_name_scope, tf.get_variable("v", [1]).name)
    with tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    assert seen.lines == [
        ("a/d", "a/d/"),
        ("a/d_1", "a/d_1/"),
        ("a/d_2", "a/a/d/"),
        ("a/d_3", "a/a/d_1/"),
        ("a/d_2", "a/d_2/"),
        ("a/d_3", "a/d_3/"),
        ("a/d", "a_1/d/", "a/d/v:0"),
        ("a/d_1", "a_1/d_1/", "a/d_1/v:0"),
        ("d", "d/"),
    ]


def test_the_outermost_scope_entered_again_restores_the_counts_of_default_names(seen: Log) -> None:
    with tf.variable_scope(tf.get_variable_scope()) as r:
        seen(r.name, r.original_name_scope, r.reuse)
        for _ in range(2):
            with tf.variable_scope(None, "d") as t:
                seen(t.name, t.original_name_scope)
    for _ in range(2):
        with tf.variable_scope(None, "d") as t:
            seen(t.name, t.original_name_scope)
    with tf.variable_scope(tf.get_variable_scope(), reuse=True) as r:
        seen(r.reuse)
    with tf.variable_scope("") as r:
        seen(r.name, r.original_name_scope)
    assert seen.lines == [("", "", False), ("d", "d/"), ("d_1", "d_1/"), ("d", "d_2/"), ("d_1", "d_3/"), True, ("", "")]


def test_the_outermost_scope_entered_inside_another(seen: Log) -> None:
    root = tf.get_variable_scope()
    with tf.variable_scope("a"):
        with tf.variable_scope(root):
            seen(tf.get_variable("v", [1]).name, tf.constant(1).name)
            with tf.variable_scope("b") as b:
                seen(b.name, b.original_name_scope, tf.constant(1).name)
        with tf.variable_scope("c") as b:
            seen(b.name, b.original_name_scope, tf.constant(1).name)
    assert seen.lines == [("v:0", "a/Const:0"), ("b", "a/b/", "a/b/Const:0"), ("a/c", "a/c/", "a/c/Const:0")]


def test_default_names_pass_over_given_names_and_name_scopes_have_their_own_numbers(seen: Log) -> None:
    with tf.variable_scope("d"):
        pass
    with tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    with tf.variable_scope("d_2"):
        pass
    with tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    with tf.name_scope("d"):
        pass
    with tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    with tf.variable_scope("D"):
        pass
    with tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    assert seen.lines == [("d_1", "d_1/"), ("d_3", "d_3/"), ("d_4", "d_5/"), ("d_5", "d_7/")]


def test_a_default_name_gives_the_name_scope_its_own_number(seen: Log) -> None:
    with tf.name_scope("n"), tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    with tf.name_scope("n"), tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    with tf.variable_scope("x"), tf.variable_scope(None, "d") as t:
        seen(t.name, t.original_name_scope)
    with tf.variable_scope("x"):
        with tf.variable_scope(None, "d") as t:
            seen(t.name, t.original_name_scope)
        with tf.variable_scope(None, "d") as t:
            seen(t.name, t.original_name_scope)
    assert seen.lines == [("d", "n/d/"), ("d_1", "n_1/d/"), ("x/d", "x/d/"), ("x/d", "x_1/d/"), ("x/d_1", "x_1/d_1/")]


def test_names_with_slashes(seen: Log) -> None:
    with tf.variable_scope("a/b") as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    with tf.variable_scope(s) as t:
        seen(t.name, t.original_name_scope, tf.constant(1).name)
    with tf.variable_scope("a/b") as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    with tf.variable_scope(None, "a/b") as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    assert seen.lines == [
        ("a/b", "a/b/", "a/b/Const:0"),
        ("a/b", "a/b/", "b/Const:0"),
        ("a/b", "a/b_1/", "a/b_1/Const:0"),
        ("a/b_1", "a/b_2/", "a/b_2/Const:0"),
    ]


def test_scopes_without_a_name_scope(seen: Log) -> None:
    with tf.variable_scope("a", auxiliary_name_scope=False) as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name, tf.get_variable("v", [1]).name)
    with tf.name_scope("n"):
        with tf.variable_scope("a", auxiliary_name_scope=False) as s:
            seen(s.name, s.original_name_scope, tf.constant(1).name, tf.get_variable("w", [1]).name)
        with tf.variable_scope(None, "a", auxiliary_name_scope=False) as s:
            seen(s.name, s.original_name_scope, tf.constant(1).name)
    with tf.variable_scope("b") as s:
        pass
    with tf.variable_scope(s, auxiliary_name_scope=False) as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
        with tf.name_scope(s.original_name_scope):
            seen(tf.constant(1).name)
        with tf.variable_scope("c") as t:
            seen(t.name, t.original_name_scope)
    assert seen.lines == [
        ("a", "", "Const:0", "a/v:0"),
        ("a", "n/", "n/Const:0", "a/w:0"),
        ("a_1", "n/", "n/Const_1:0"),
        ("b", "b/", "Const_1:0"),
        "b/Const:0",
        ("b/c", "c/"),
    ]


def test_one_scope_object_entered_twice(seen: Log) -> None:
    m = tf.variable_scope("a")
    with m as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    with m as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    with tf.variable_scope("x"), m as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    assert seen.lines == [("a", "a/", "a/Const:0"), ("a", "a/", "a_1/Const:0"), ("x/a", "a/", "x/a/Const:0")]


def test_one_scope_object_with_a_default_name_entered_twice(seen: Log) -> None:
    m = tf.variable_scope(None, "a")
    with m as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    with m as s:
        seen(s.name, s.original_name_scope, tf.constant(1).name)
    assert seen.lines == [("a", "a/", "a/Const:0"), ("a", "a/", "a_1/Const:0")]


def test_a_getter_without_the_constraint_parameter_is_not_given_it(seen: Log) -> None:
    def g(
        getter: Any,
        name: str,
        shape: Any,
        dtype: Any,
        initializer: Any,
        regularizer: Any,
        reuse: Any,
        trainable: Any,
        collections: Any,
        caching_device: Any,
        partitioner: Any,
        validate_shape: Any,
        use_resource: Any,
        synchronization: Any,
        aggregation: Any,
    ) -> Any:
        seen(name, reuse, trainable)
        return getter(name, shape, dtype)

    seen(tf.get_variable("v", [2], custom_getter=g).name)
    with tf.variable_scope("a", custom_getter=g):
        seen(tf.get_variable("v", [2]).name)
    assert seen.lines == [("v", False, True), "v:0", ("a/v", False, True), "a/v:0"]


def test_getters_of_scopes_nest_and_one_given_to_get_variable_replaces_them(seen: Log) -> None:
    def mk(n: str) -> Any:
        def g(getter: Any, name: str, *a: Any, **k: Any) -> Any:
            seen(n, name, sorted(k))
            r = getter(name + n, *a, **k)
            seen("done", n)
            return r

        return g

    with tf.variable_scope("a", custom_getter=mk("1")), tf.variable_scope("b", custom_getter=mk("2")) as s:
        with tf.variable_scope("c", custom_getter=mk("3")):
            seen(tf.get_variable("v", [2]).name)
        seen(tf.get_variable("w", [2], custom_getter=mk("4")).name)
    with tf.variable_scope(s, custom_getter=mk("5")):
        seen(tf.get_variable("v", [2]).name)
    with tf.variable_scope(s):
        seen(tf.get_variable("u", [2]).name)
    assert seen.lines == [
        (
            "3",
            "a/b/c/v",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        (
            "2",
            "a/b/c/v3",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        (
            "1",
            "a/b/c/v32",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        ("done", "1"),
        ("done", "2"),
        ("done", "3"),
        "a/b/c/v321:0",
        (
            "4",
            "a/b/w",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        ("done", "4"),
        "a/b/w4:0",
        (
            "5",
            "a/b/v",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        (
            "2",
            "a/b/v5",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        (
            "1",
            "a/b/v52",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        ("done", "1"),
        ("done", "2"),
        ("done", "5"),
        "a/b/v521:0",
        (
            "2",
            "a/b/u",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        (
            "1",
            "a/b/u2",
            [
                "aggregation",
                "caching_device",
                "collections",
                "constraint",
                "dtype",
                "initializer",
                "partitioner",
                "regularizer",
                "reuse",
                "shape",
                "synchronization",
                "trainable",
                "use_resource",
                "validate_shape",
            ],
        ),
        ("done", "1"),
        ("done", "2"),
        "a/b/u21:0",
    ]


def test_a_getter_that_passes_reuse_none_finds_or_makes(seen: Log) -> None:
    v = tf.get_variable("v", [2])

    def g(getter: Any, name: str, *a: Any, **k: Any) -> Any:
        k["reuse"] = None
        return getter(name, *a, **k)

    seen(tf.get_variable("v", [2], custom_getter=g) is v)
    assert seen.lines == [True]


def test_a_getter_may_return_another_tensor(seen: Log) -> None:
    def g(getter: Any, name: str, *a: Any, **k: Any) -> Any:
        return getter(name, *a, **k) * 2

    with tf.variable_scope("a", custom_getter=g):
        x = tf.get_variable("v", [2])
        seen(x.name, [v.name for v in tf.global_variables()])
    assert seen.lines == [("mul:0", ["a/v:0"])]


def test_synchronization_on_read_makes_variables_not_trainable(seen: Log) -> None:
    S, A = tf.VariableSynchronization, tf.VariableAggregation
    v = tf.get_variable("a", [1], synchronization=S.ON_READ)
    seen(v.trainable, v.synchronization, v.aggregation, [x.name for x in tf.trainable_variables()])
    v = tf.get_variable("b", [1], synchronization=S.ON_READ, trainable=True)
    seen(v.trainable, v.synchronization)
    v = tf.get_variable("c", [1], synchronization=S.ON_WRITE, aggregation=A.MEAN)
    seen(v.trainable, v.synchronization, v.aggregation)
    v = tf.Variable(1.0, synchronization=S.ON_READ)
    seen(v.trainable, v.synchronization)
    v = tf.Variable(1.0, aggregation=A.SUM, trainable=False)
    seen(v.trainable, v.aggregation)
    v = tf.Variable(1.0, synchronization=None, aggregation=None)
    seen(v.trainable, v.synchronization, v.aggregation)
    v = tf.get_variable("d", [4], synchronization=S.ON_READ, partitioner=tf.fixed_size_partitioner(2))
    seen([p.trainable for p in v])
    seen([x.name for x in tf.trainable_variables()])
    v = tf.get_local_variable("l", [1], synchronization=S.ON_READ, aggregation=A.SUM)
    seen(v.trainable, v.synchronization)
    p = tf.Variable(1.0, synchronization=S.ON_READ, aggregation=A.SUM).to_proto()
    seen(p.synchronization, p.aggregation, p.trainable)
    assert seen.lines == [
        (False, "ON_READ", "NONE", []),
        (True, "ON_READ"),
        (True, "ON_WRITE", "MEAN"),
        (False, "ON_READ"),
        (False, "SUM"),
        (True, "AUTO", "NONE"),
        [False, False],
        ["b:0", "c:0", "Variable_2:0"],
        (False, "ON_READ"),
        (3, 1, False),
    ]


def test_synchronization_of_a_layers_weights(seen: Log) -> None:
    class L(tf.layers.Layer):
        def build(self, s: Any) -> None:
            self.w = self.add_weight(
                "w", [1], synchronization=tf.VariableSynchronization.ON_READ, aggregation=tf.VariableAggregation.MEAN
            )
            self.u = self.add_weight("u", [1])
            self.built = True

        def call(self, x: Any) -> Any:
            return x * self.w

    l = L()
    l(tf.ones([1]))
    seen(l.w.trainable, [v.name for v in l.trainable_weights])
    assert seen.lines == [(False, ["l/u:0"])]


def test_reuse_is_inherited(seen: Log) -> None:
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE) as s:
        seen(s.reuse)
        seen(tf.get_variable("v", [1]) is tf.get_variable("v", [1]))
    with tf.variable_scope(s, reuse=False) as t:
        seen(t.reuse)
    with tf.variable_scope("a", reuse=True) as s:
        with tf.variable_scope("b", reuse=False) as t:
            seen(t.reuse)
        with tf.variable_scope("b", reuse=tf.AUTO_REUSE) as t:
            seen(t.reuse)
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE) as s, tf.variable_scope("b", reuse=True) as t:
        seen(t.reuse)
    with tf.variable_scope("z") as s:
        seen(s.reuse)
        s.reuse_variables()
        seen(s.reuse)
        with tf.variable_scope("b") as t:
            seen(t.reuse)
    with tf.variable_scope("z") as s:
        seen(s.reuse)
    seen(tf.get_variable_scope().reuse)
    assert seen.lines == ["AUTO", True, "AUTO", True, "AUTO", True, False, True, True, False, False]


def test_values_as_initializers_of_reused_variables(seen: Log) -> None:
    tf.get_variable("v", initializer=3.0)
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        seen(tf.get_variable("v", initializer=4.0).name)
    assert seen.lines == ["v:0"]


def test_dtypes_of_variables_made_from_values_and_functions(seen: Log) -> None:
    seen(tf.get_variable("a", initializer=3).dtype.base_dtype)
    with tf.variable_scope("x", dtype=tf.float64):
        seen(
            tf.get_variable("a", initializer=3).dtype.base_dtype,
            tf.get_variable("b", [1]).dtype.base_dtype,
            tf.get_variable("c", initializer=np.float32(2)).dtype.base_dtype,
            tf.get_variable("d", initializer=lambda: 2.0).dtype.base_dtype,
        )
    seen(tf.get_variable("f", initializer=lambda: [1, 2]).dtype.base_dtype)
    assert seen.lines == ["int32", ("int32", "float64", "float32", "float32"), "int32"]


def test_constraints_are_not_inherited(seen: Log) -> None:
    f = lambda x: x
    with tf.variable_scope("a", constraint=f) as s:
        seen(tf.get_variable("v", [1]).constraint is f)
        with tf.variable_scope("b") as t:
            seen(t.constraint is f, tf.get_variable("v", [1]).constraint is f)
    with tf.variable_scope(s) as t:
        seen(t.constraint is f)
    seen(tf.get_variable("v", [1], constraint=f).constraint is f, tf.get_variable("w", [1]).constraint)
    assert seen.lines == [True, (False, False), False, (True, None)]


def test_regularizers_of_new_variables_alone(seen: Log) -> None:
    r = lambda w: tf.reduce_sum(w * 2, name="r")
    with tf.variable_scope("a", regularizer=r) as s:
        tf.get_variable("v", [1])
        with tf.variable_scope("b"):
            tf.get_variable("w", [1])
        tf.get_variable("n", [1], regularizer=tf.no_regularizer)
        tf.get_variable("p", [4], partitioner=tf.fixed_size_partitioner(2))
    with tf.variable_scope(s, reuse=True):
        tf.get_variable("v")
    with tf.variable_scope("a", regularizer=tf.no_regularizer):
        tf.get_variable("q", [1])
    tf.get_variable("z", [1], regularizer=r)
    seen(len(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)))
    seen([t.name.split("_")[0] for t in tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)])
    assert seen.lines == [
        5,
        ["a/v/Regularizer/r:0", "a/b/w/Regularizer/r:0", "a/p/part", "a/p/part", "z/Regularizer/r:0"],
    ]


def test_partitioners_of_scopes(seen: Log) -> None:
    with tf.variable_scope("a", partitioner=tf.fixed_size_partitioner(2)):
        v = tf.get_variable("v", [5, 3])
        seen(type(v).__name__, [p.name for p in v], [str(p.shape) for p in v])
        seen(tf.get_variable("s", []).name)
        with tf.variable_scope("b", partitioner=None) as t:
            seen(t.partitioner is not None)
    with tf.variable_scope("a", reuse=True):
        seen(tf.get_variable("v", [5, 3]) is v)
    with tf.variable_scope("a", reuse=tf.AUTO_REUSE, partitioner=tf.fixed_size_partitioner(2)):
        seen(tf.get_variable("v", [5, 3]) is v)
    assert seen.lines == [
        ("PartitionedVariable", ["a/v/part_0:0", "a/v/part_1:0"], ["(3, 3)", "(2, 3)"]),
        "a/s:0",
        True,
        True,
        True,
    ]


def test_templates_and_their_name_scopes(seen: Log) -> None:
    def f(x: Any) -> Any:
        return tf.get_variable("w", []) * x

    t = tf.make_template("t", f)
    a, b = t(1.0), t(2.0)
    seen(a.name, b.name, [v.name for v in tf.global_variables()])
    u = tf.make_template("t", f)
    seen(u(1.0).name)
    w = tf.make_template("q", f, create_scope_now_=True)
    with tf.variable_scope("in"):
        seen(w(1.0).name)
        z = tf.make_template("t", f)
        seen(z(1.0).name)
    seen([v.name for v in tf.global_variables()])
    assert seen.lines == [
        ("t/mul:0", "t_1/mul:0", ["t/w:0"]),
        "t_2/mul:0",
        "in/q/mul:0",
        "in/t/mul:0",
        ["t/w:0", "t_1/w:0", "q/w:0", "in/t/w:0"],
    ]


def test_tf_variable_in_scopes(seen: Log) -> None:
    with tf.variable_scope("a"):
        seen(tf.Variable(1.0).name, tf.Variable(1.0, name="k").name)
    with tf.variable_scope("a"):
        seen(tf.Variable(1.0).name, tf.Variable(1.0, name="k").name)
    with tf.name_scope("n"):
        seen(tf.get_variable("q", [1]).name)
    with tf.variable_scope("b", reuse=True):
        seen(tf.Variable(1.0).name)
    assert seen.lines == [("a/Variable:0", "a/k:0"), ("a_1/Variable:0", "a_1/k:0"), "q:0", "b/Variable:0"]


def test_layers_in_scopes_entered_again(seen: Log) -> None:
    for _ in range(2):
        seen(tf.layers.dense(tf.ones([1, 2]), 2).name)
    with tf.variable_scope("s") as s:
        for _ in range(2):
            seen(tf.layers.dense(tf.ones([1, 2]), 2).name)
    with tf.variable_scope(s, reuse=True):
        for _ in range(2):
            seen(tf.layers.dense(tf.ones([1, 2]), 2).name)
    seen([v.name for v in tf.global_variables()])
    assert seen.lines == [
        "dense/BiasAdd:0",
        "dense_1/BiasAdd:0",
        "s/dense/BiasAdd:0",
        "s/dense_1/BiasAdd:0",
        "s_1/dense/BiasAdd:0",
        "s_1/dense_1/BiasAdd:0",
        [
            "dense/kernel:0",
            "dense/bias:0",
            "dense_1/kernel:0",
            "dense_1/bias:0",
            "s/dense/kernel:0",
            "s/dense/bias:0",
            "s/dense_1/kernel:0",
            "s/dense_1/bias:0",
        ],
    ]


def test_layers_that_reuse(seen: Log) -> None:
    d = lambda: tf.layers.dense(tf.ones([1, 2]), 2, name="d", reuse=tf.AUTO_REUSE).name
    seen(d(), d())
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        seen(tf.layers.dense(tf.ones([1, 2]), 2, name="d").name)
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        seen(tf.layers.dense(tf.ones([1, 2]), 2, name="d").name)
    seen([v.name for v in tf.global_variables()])
    assert seen.lines == [
        ("d/BiasAdd:0", "d_1/BiasAdd:0"),
        "s/d/BiasAdd:0",
        "s_1/d/BiasAdd:0",
        ["d/kernel:0", "d/bias:0", "s/d/kernel:0", "s/d/bias:0"],
    ]


def test_recurrent_networks_in_scopes_entered_again(seen: Log) -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(2)
    x = tf.ones([1, 2, 3])
    a, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32)
    seen(a.name.split("/")[0])
    with tf.variable_scope("s") as s:
        a, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicRNNCell(2), x, dtype=tf.float32)
        seen("/".join(a.name.split("/")[:2]))
    with tf.variable_scope(s, reuse=True):
        a, _ = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicRNNCell(2), x, dtype=tf.float32)
        seen("/".join(a.name.split("/")[:2]))
    seen([v.name for v in tf.global_variables()])
    assert seen.lines == [
        "rnn",
        "s/rnn",
        "s_1/rnn",
        [
            "rnn/basic_rnn_cell/kernel:0",
            "rnn/basic_rnn_cell/bias:0",
            "s/rnn/basic_rnn_cell/kernel:0",
            "s/rnn/basic_rnn_cell/bias:0",
        ],
    ]


def test_threads_count_their_own_scopes(seen: Log) -> None:
    g = tf.get_default_graph()
    out: list[Any] = []

    def f() -> None:
        with g.as_default():
            out.append(tf.get_variable_scope().name)
            with tf.variable_scope(None, "d") as s:
                out.append(s.name)

    with tf.variable_scope("a"):
        with tf.variable_scope(None, "d"):
            pass
        t = threading.Thread(target=f)
        t.start()
        t.join()
    with tf.variable_scope(None, "d"):
        pass
    t = threading.Thread(target=f)
    t.start()
    t.join()
    seen(out)
    assert seen.lines == [["", "d", "", "d"]]


def test_collections_of_a_scope(seen: Log) -> None:
    with tf.variable_scope("a") as s:
        tf.get_variable("v", [1])
        tf.get_local_variable("l", [1])
        tf.get_variable("n", [1], trainable=False)
    tf.get_variable("ab", [1])
    seen(
        [v.name for v in s.global_variables()],
        [v.name for v in s.local_variables()],
        [v.name for v in s.trainable_variables()],
        [v.name for v in tf.trainable_variables("a")],
        [v.name for v in tf.global_variables("a/n")],
    )
    assert seen.lines == [(["a/v:0", "a/n:0"], ["a/l:0"], ["a/v:0"], ["a/v:0", "ab:0"], ["a/n:0"])]


def test_values_choose_the_graph(seen: Log) -> None:
    tf.get_default_graph()
    g2 = tf.Graph()
    with g2.as_default():
        t = tf.constant(1.0)
    with tf.variable_scope(None, "x", [t]) as s:
        seen(tf.get_default_graph() is g2, s.name)
    with tf.variable_scope("x", values=[t]) as s:
        seen(tf.get_default_graph() is g2)
    assert seen.lines == [(True, "x"), True]


def test_variable_op_scope(seen: Log) -> None:
    with tf.variable_op_scope([], None, "x") as s:
        seen(s.name)
    with tf.variable_op_scope([], "y") as s:
        seen(s.name)
    assert seen.lines == ["x", "y"]


def test_getters_are_given_all_arguments_by_name(seen: Log) -> None:
    def getter(getter: Any, name: str, *args: Any, **given: Any) -> Any:
        seen(name, list(args), [f"{k}={shown(v)}" for k, v in sorted(given.items()) if v is not None])
        return getter(name, *args, **given)

    with tf.variable_scope("a", custom_getter=getter):
        tf.get_variable("v", [2])
        tf.get_variable("k", initializer=tf.constant(1))
    with tf.variable_scope("a", custom_getter=getter, reuse=tf.AUTO_REUSE, dtype=tf.float64):
        tf.layers.dense(tf.ones([2, 3]), 4, use_bias=False, kernel_initializer=tf.ones)
    on_read, mean = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.MEAN
    tf.get_variable("r", [2], custom_getter=getter, synchronization=on_read, aggregation=mean)
    tf.get_local_variable("l", [2], custom_getter=getter)
    common = ["synchronization=AUTO", "trainable=True", "validate_shape=True"]
    assert [(name, args) for name, args, _ in seen.lines] == [
        (name, []) for name in ("a/v", "a/k", "a/dense/kernel", "r", "l")
    ]
    v, k, dense, r, local = ([x for x in given if not x.startswith("initializer")] for _, _, given in seen.lines)
    assert v == ["aggregation=NONE", "dtype=float32", "reuse=False", "shape=[2]", *common]
    assert k == ["aggregation=NONE", "dtype=float32", "reuse=False", *common]
    assert dense == ["aggregation=NONE", "dtype=float32", "reuse=AUTO", "shape=[3, 4]", *common]
    assert r == ["aggregation=MEAN", "dtype=float32", "reuse=False", "shape=[2]", "synchronization=ON_READ",
                 "trainable=False", "validate_shape=True"]  # fmt: skip
    assert local == ["aggregation=NONE", "collections=['local_variables']", "dtype=float32", "reuse=False",
                     "shape=[2]", "synchronization=AUTO", "trainable=False", "validate_shape=True"]  # fmt: skip


def test_the_current_scopes_dtype_is_not_that_of_layers_inputs(seen: Log) -> None:
    with tf.variable_scope("a", dtype=tf.float64):
        tf.layers.dense(tf.ones([2, 3]), 4)
        assert tf.get_variable("v", [1]).dtype.base_dtype is tf.float64
    assert tf.get_default_graph().get_collection("variables")[0].dtype.base_dtype is tf.float32


def variable_twice(**again: Any) -> None:
    tf.get_variable("v", [1])
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        tf.get_variable("v", **again)


def entered(*args: Any, **kwargs: Any) -> None:
    with tf.variable_scope(*args, **kwargs):
        tf.get_variable("v", [1])


def weight_read_on_demand_and_trained() -> None:
    layer = tf.layers.Layer()
    layer.add_weight("w", [1], trainable=True, synchronization=tf.VariableSynchronization.ON_READ)


def unpartitioned_where_parts_are() -> None:
    entered("a", partitioner=tf.fixed_size_partitioner(2))
    entered("a", reuse=tf.AUTO_REUSE)


def left_in_the_wrong_order() -> None:
    outer, inner = tf.variable_scope("a"), tf.variable_scope("b")
    outer.__enter__()
    inner.__enter__()
    try:
        outer.__exit__(None, None, None)
    finally:
        inner.__exit__(None, None, None)


def same_integer_twice() -> None:
    tf.get_variable("v", initializer=3)
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        tf.get_variable("v", initializer=3)


REFUSED: list[tuple[type[Exception], str, Callable[[], Any]]] = [
    (TypeError, "auxiliary_name_scope", lambda: entered("a", auxiliary_name_scope=1)),
    (TypeError, "default_name", lambda: entered(None)),
    (TypeError, "VariableScope", lambda: entered(3)),
    (ValueError, "reuse", lambda: entered("a", reuse="x")),
    (ValueError, "default name", lambda: entered(None, "a", reuse=True)),
    (ValueError, "default name", lambda: entered(None, "a", reuse=tf.AUTO_REUSE)),
    (ValueError, "does not exist", lambda: entered("a", reuse=True)),
    (ValueError, "already exists", lambda: [tf.get_variable("v", [1]) for _ in range(2)]),
    (ValueError, "specified shape", lambda: variable_twice(shape=[2])),
    (ValueError, "specified dtype", lambda: variable_twice(dtype=tf.float64)),
    (ValueError, "specified dtype float32 and found dtype int32", same_integer_twice),
    (ValueError, "not callable", lambda: tf.get_variable("v", [1], custom_getter=3)),
    (ValueError, "callable", lambda: tf.get_variable("v", [1], constraint=3)),
    (ValueError, "synchronization mode", lambda: tf.get_variable("v", [1], synchronization="x")),
    (ValueError, "aggregation mode", lambda: tf.Variable(1.0, aggregation="y")),
    (ValueError, "ON_READ only for non-trainable", weight_read_on_demand_and_trained),
    (ValueError, "don't match", lambda: tf.get_variable("v", dtype=tf.float32, initializer=3)),
    (ValueError, "don't match", lambda: tf.get_variable("v", dtype=tf.float64, initializer=3.0)),
    (ValueError, "Partitioner must be callable", lambda: tf.get_variable("v", [4], partitioner=3)),
    (ValueError, "partition", unpartitioned_where_parts_are),
    (RuntimeError, "Improper nesting", lambda: contextvars.copy_context().run(left_in_the_wrong_order)),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_wrong_scopes_and_variables_are_refused(case: int) -> None:
    error, text, program = REFUSED[case]
    with tf.Graph().as_default(), pytest.raises(error, match=text):
        program()
