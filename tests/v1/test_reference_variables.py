"""Reference variables, compared with what TensorFlow 2.21 computed (`reference_cases`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import flags
from tests.v1.reference_cases import KINDS, PROGRAMS, RACE, VALUES, result

WANTED = json.loads(VALUES.read_text(encoding="utf-8"))
ENGINES = {"compiled": {}, "interpret": {"ENGINE": "interpret"}, "native": {"NATIVE": "on"}}

# Programs that resource variables of TensorFlow refuse or answer otherwise: headrace initializes variables in the order
# of their initial values, feeds a variable to all of its readers, and takes a value of another shape.
RESOURCES_DIFFER = ("an_initial_value_of_another_variable", "a_loaded_value", "a_value_of_another_shape",
                    "results_of_two_assignments")  # fmt: skip


@pytest.fixture(autouse=True)
def _old_defaults() -> Iterator[None]:
    tf.disable_v2_behavior()
    yield
    tf.enable_resource_variables()
    tf.enable_control_flow_v2()


def flat(x: Any) -> Any:
    return np.concatenate([flat(y) for y in x]) if isinstance(x, list) else np.array([x])


def same(found: Any, wanted: Any) -> None:
    a, b = flat(found), flat(wanted)
    if a.dtype.kind == "f":
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    else:
        assert a.tolist() == b.tolist()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.system
def test_programs_compute_tensorflows_values(name: str, engine: str) -> None:
    for kind, use_resource in KINDS.items():
        wanted = WANTED[name][kind]
        if wanted != RACE and not (kind == "resource" and name in RESOURCES_DIFFER):
            with flags.override(**ENGINES[engine]):
                same(result(tf, name, use_resource), wanted)


def test_every_program_has_recorded_values() -> None:
    assert list(WANTED) == list(PROGRAMS)
    assert len(PROGRAMS) >= 25
    differ = [k for k, v in WANTED.items() if v["reference"] != v["resource"]]
    assert len(differ) >= 12


def test_kinds_of_variables_are_those_of_tensorflow() -> None:
    with tf.Graph().as_default():
        v, w = tf.Variable(1.0), tf.get_variable("w", [2])
        x, y = tf.Variable(1.0, use_resource=True), tf.get_variable("y", [2], use_resource=True)
        assert [a.op.type for a in (v, w, x, y)] == ["VariableV2", "VariableV2", "VarHandleOp", "VarHandleOp"]
        with tf.variable_scope("s", use_resource=True):
            assert tf.Variable(1.0).op.type == tf.get_variable("q", [1]).op.type == "VarHandleOp"
        assert (v.dtype.name, x.dtype.name, v._ref().name) == ("float32_ref", "float32", "Variable:0")
        assert not hasattr(x, "_ref")
        assert [t.dtype.name for t in (v.assign(2.0), v.value(), tf.scatter_add(w, [0], [1.0]))] == [
            "float32_ref", "float32", "float32_ref"
        ]  # fmt: skip
    assert not tf.resource_variables_enabled()
    tf.enable_resource_variables()
    assert tf.resource_variables_enabled()
    with tf.Graph().as_default():
        assert tf.Variable(1.0).op.type == "VarHandleOp"
        assert tf.Variable(1.0, use_resource=False).op.type == "VariableV2"
        with tf.variable_scope("s", use_resource=False):
            assert tf.Variable(1.0).op.type == "VariableV2"
    tf.disable_resource_variables()
    assert not tf.resource_variables_enabled()


def test_operations_of_a_training_step_are_those_of_tensorflow() -> None:
    with tf.Graph().as_default() as g:
        v = tf.Variable([1.0], name="v")
        tf.train.AdamOptimizer().minimize(tf.reduce_sum(v * v), global_step=tf.train.get_or_create_global_step())
        found = {op.name: op.type for op in g.get_operations()}
    wanted = {
        "v/initial_value": "Const", "v": "VariableV2", "v/Assign": "Assign", "v/read": "Identity",
        "global_step": "VariableV2", "beta1_power": "VariableV2", "beta1_power/read": "Identity",
        "v/Adam": "VariableV2", "v/Adam/read": "Identity", "Adam/update_v/ApplyAdam": "ApplyAdam",
    }  # fmt: skip
    assert {k: found.get(k) for k in wanted} == wanted


def test_initial_values_and_assigned_values_are_named_as_in_tensorflow() -> None:
    with tf.Graph().as_default() as g:
        v = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
        tf.get_variable("w", [2], initializer=tf.ones_initializer())
        tf.assign(v, [1.0, 2.0])
        v.assign_sub([1.0, 2.0], name="less")
        tf.scatter_nd_sub(v, [[0]], [1.0])
        v.read_value()
        tf.train.AdamOptimizer().minimize(tf.reduce_sum(v), var_list=[v])
        names = {op.name: op.type for op in g.get_operations()}
    wanted = {
        "v/Initializer/zeros": "Const", "w/Initializer/ones": "Const", "Assign/value": "Const", "less/value": "Const",
        "ScatterNdSub/updates": "Const", "read": "Identity", "beta1_power/initial_value": "Const",
        "v/Adam/Initializer/zeros": "Fill", "v/Adam/Assign": "Assign",
    }  # fmt: skip
    assert {k: names.get(k) for k in wanted} == wanted


def test_branches_and_loops_take_the_handles_from_outside() -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        v, w = tf.Variable([1.0, 2.0], trainable=False), tf.Variable(0, trainable=False)
        p = tf.placeholder(tf.bool, [])

        def body(i: Any) -> Any:
            with tf.control_dependencies([tf.cond(i > 0, lambda: w.assign_add(i), lambda: w.assign_sub(1))]):
                return i + 1

        y = tf.cond(p, lambda: v.assign_add([1.0, 1.0]) * 2.0, lambda: v * 3.0)
        n = tf.while_loop(lambda i: i < 3, body, [0])
        s.run(tf.global_variables_initializer())
        for fetches, feeds in ((y, {p: True}), (n, {})):
            text = str(s.explain(fetches, feeds))
            assert "AssignAddVariableOp" in text
            assert "VarHandleOp)" not in text
        assert s.run(y, {p: True}).tolist() == [4.0, 6.0]
        assert s.run([n, w.read_value()]) is not None
        assert [s.run(w), s.run(y, {p: False}).tolist()] == [2, [6.0, 9.0]]


def test_the_gradient_of_a_branch_reads_a_reference_in_the_branch() -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        v, x = tf.Variable([1.0, 2.0], trainable=False), tf.constant([3.0, 4.0])
        y = tf.cond(tf.constant(True), lambda: tf.sin(v.assign_add([1.0, 1.0])) * x, lambda: x)
        dx = tf.gradients(y, x)[0]
        s.run(v.initializer)
        with tf.control_dependencies([y]):
            after = v.assign([9.0, 9.0])
        np.testing.assert_allclose(s.run([dx, after])[0], np.sin([2.0, 3.0]), rtol=1e-6)


def test_a_step_with_reference_variables_is_compiled_with_handles() -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        v = tf.Variable([1.0, 2.0])
        s.run(v.initializer)
        step = tf.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(v * v))
        source = str(s.explain(step))
        s.run(step)
        assert s.run(v).tolist() == [0.5, 1.0]
    assert "ResourceApplyGradientDescent" in source or "compiled" in source


def test_an_uninitialized_reference_is_named() -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        v = tf.Variable([1.0, 2.0], name="weights")
        for fetch in (v, v + 1.0, v.assign_add([1.0, 1.0]), tf.scatter_add(v, [0], [1.0])):
            with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value weights"):
                s.run(fetch)


def test_a_fed_reference_reaches_no_branch() -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        v = tf.Variable(1.0, name="v")
        assert s.run(v * 2.0, {v: 3.0}) == 6.0
        chosen = tf.cond(tf.constant(True), lambda: v * 2.0, lambda: v)
        assert s.run(chosen, {v: 3.0}) == 6.0
        v = tf.Variable(1.0, name="v", trainable=False)
        chosen = tf.cond(tf.constant(True), lambda: v * 2.0, lambda: v)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"uses the reference variable 'v_1:0', which is fed"):
            s.run(chosen, {v: 3.0})


def test_checkpoints_of_both_kinds_are_exchanged(tmp_path: Any) -> None:
    path = None
    for use_resource in (False, True):
        with tf.Graph().as_default(), tf.Session() as s:
            v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=use_resource)
            saver = tf.train.Saver()
            if path is None:
                s.run(v.initializer)
                s.run(v.assign_add([1.0, 1.0]))
                path = saver.save(s, str(tmp_path / "m"))
            else:
                saver.restore(s, path)
                assert s.run(v).tolist() == [2.0, 3.0]


def test_an_initial_value_is_read_from_a_checkpoint(tmp_path: Any) -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        v = tf.get_variable("v", initializer=[1.0, 2.0])
        s.run(v.initializer)
        path = tf.train.Saver().save(s, str(tmp_path / "m"))
    with tf.Graph().as_default(), tf.Session() as s:
        w = tf.get_variable("w", [2])
        tf.train.init_from_checkpoint(path, {"v": w})
        s.run(w.initializer)
        assert s.run(w).tolist() == [1.0, 2.0]


def test_partial_runs_fetch_a_reference_before_the_change() -> None:
    with tf.Graph().as_default(), tf.Session() as s:
        v, x = tf.Variable([1.0, 2.0]), tf.placeholder(tf.float32, [2])
        s.run(v.initializer)
        read = tf.identity(v)
        with tf.control_dependencies([read]):
            changed = v.assign(x)
        h = s.partial_run_setup([read, changed], [x])
        assert s.partial_run(h, read).tolist() == [1.0, 2.0]
        assert s.partial_run(h, changed, {x: [5.0, 6.0]}).tolist() == [5.0, 6.0]


def test_a_loop_of_primitives_sees_its_own_assignments() -> None:
    with tf.Graph().as_default():
        v = tf.Variable([0.0, 0.0], name="v")

        def body(i: Any, total: Any) -> Any:
            with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
                return i + 1, total + v

        tf.identity(tf.while_loop(lambda i, _: i < 3, body, [0, tf.zeros([2])], parallel_iterations=1)[1], name="y")
        exported = tf.get_default_graph().as_graph_def()
    assert "Enter" in {n.op for n in exported.node}
    with tf.Graph().as_default(), tf.Session() as s:
        tf.import_graph_def(exported, name="")
        s.run("v/Assign")
        assert s.run("y:0").tolist() == [6.0, 6.0]
        assert "VariableV2)" not in str(s.explain("y:0"))


def test_several_devices_read_after_the_change() -> None:
    with hr.Session(config={"device_count": {"CPU": 2}}, graph=tf.Graph()) as s, s.graph.as_default():
        with tf.device("/cpu:0"):
            v = tf.Variable([1.0, 2.0])
        with tf.device("/cpu:1"):
            r = tf.identity(v)
            with tf.control_dependencies([r, v.assign_add([1.0, 1.0])]):
                y = v * 2.0
        s.run(v.initializer)
        assert s.run(y).tolist() == [4.0, 6.0]


def test_a_fetch_of_the_global_step_sees_the_update_of_its_run() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.get_variable("x", [1], initializer=tf.ones_initializer())
        step = tf.Variable(0, trainable=False)
        train = tf.train.GradientDescentOptimizer(0.25).minimize(tf.reduce_sum(x * x), global_step=step)
        sess.run(tf.global_variables_initializer())
        assert sess.run([train, step, x])[1:] == [1, 0.5]
        assert sess.run([train, step, x])[1:] == [2, 0.25]


def test_a_branch_and_a_body_train() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        p = tf.placeholder(tf.bool, [])
        x = tf.get_variable("x", [2], initializer=tf.ones_initializer())
        optimizer = tf.train.AdamOptimizer(0.1)
        gradients = optimizer.compute_gradients(tf.reduce_sum(x * x))

        def train() -> Any:
            with tf.control_dependencies([optimizer.apply_gradients(gradients)]):
                return tf.constant(1)

        branch = tf.cond(p, train, lambda: tf.constant(0))
        loop = tf.while_loop(lambda i: i < 3, lambda i: i + train(), [0])
        sess.run(tf.global_variables_initializer())
        found = [(sess.run(branch, {p: v}), sess.run(x)[0]) for v in (True, False)]
        same(found, [(1, 0.9), (0, 0.9)])
        assert sess.run(loop) == 3
        assert sess.run(x)[0] < 0.9


def test_a_gradient_through_a_branch_reads_a_reference() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        p = tf.placeholder(tf.bool, [])
        x = tf.reshape(tf.range(8.0), [2, 2, 2, 1])
        y = tf.layers.batch_normalization(x, training=p, fused=True)
        (g,) = tf.gradients(tf.reduce_sum(y * y), [x])
        sess.run(tf.global_variables_initializer())
        same(sess.run(g, {p: False}).ravel().tolist(), (2 * np.arange(8.0) / 1.001).tolist())
        assert np.abs(sess.run(g, {p: True})).max() < 0.01


def test_hooks_read_the_step_before_its_update() -> None:
    with tf.Graph().as_default() as graph:
        step = tf.train.get_or_create_global_step()
        hook = tf.train.StopAtStepHook(last_step=3)
        hook.begin()
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            before = hook.before_run(None).fetches
            assert sess.run([step.assign_add(1), step, before])[1:] == [1, 0]
        assert before.op.graph is graph
