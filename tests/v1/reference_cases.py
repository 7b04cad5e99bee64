"""Programs with TensorFlow 1's variables, by name, for TensorFlow 1 or `headrace.v1`.

python tests/v1/reference_cases.py              # with TensorFlow: writes reference_values.json

Each program gets the module, a session of its graph, and `use_resource` for its variables. With reference variables the
results do not depend on time. Where they do with resource variables, the value is RACE.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

VALUES = Path(__file__).parent / "reference_values.json"
KINDS = {"reference": False, "resource": True, "default": None}
RACE = "depends on time"


def _variable(tf: Any, s: Any, use_resource: Any, initial: Any = (0.0, 0.0), name: str = "v") -> Any:
    v = tf.Variable(initial, name=name, use_resource=use_resource)
    s.run(v.initializer)
    return v


def a_fetch_of_a_read_before_an_assignment(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, 0.0)
    r = tf.identity(v)
    with tf.control_dependencies([r]):
        a = v.assign_add(1.0)
    return s.run([r, a])


def a_consumer_after_an_assignment(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    r = tf.identity(v)
    with tf.control_dependencies([r]):
        a = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([a]):
        y = r + 0.0
    return s.run([r, a, y])


def reads_under_control_dependencies(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
        return s.run([v + 0.0, v.read_value(), tf.identity(v), v.value() + 0.0])


def a_value_taken_before_control_dependencies(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    before = v.value()
    with tf.control_dependencies([before]):
        a = v.assign([3.0, 4.0])
    with tf.control_dependencies([a]):
        return s.run(before * 2.0)


def an_old_value_computed_before_an_assignment(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0])
    old = v * 1.0
    with tf.control_dependencies([old]):
        a = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([a]):
        return s.run(v - old)


def results_of_two_assignments(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    a = v.assign([1.0, 1.0])
    with tf.control_dependencies([a]):
        b = v.assign([5.0, 5.0])
    return s.run([a, b])


def an_identity_of_an_assignments_result(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    first = tf.identity(v.assign([1.0, 1.0]))
    with tf.control_dependencies([first]):
        second = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([second]):
        return s.run(first + 0.0)


def a_chain_of_assignments(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, 1.0)
    a = tf.assign(v, 2.0)
    b = tf.assign_add(a, 3.0) if u is not True else v.assign_add(3.0)
    return s.run(b) if u is not True else (s.run(a), s.run(b))[1]


def values_of_two_steps(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    first = s.run(v)
    s.run(v.assign_add([1.0, 1.0]))
    return [first, s.run(v)]


def a_reshaped_read(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    r = tf.reshape(v, [2, 1])
    with tf.control_dependencies([r]):
        a = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([a]):
        return s.run(r + 0.0)


def an_expanded_and_squeezed_read(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    r, q = tf.expand_dims(v, 0), tf.squeeze(tf.reshape(v, [1, 2]))
    with tf.control_dependencies([r, q]):
        a = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([a]):
        return s.run([r + 0.0, q + 0.0])


def a_stopped_gradient(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    r = tf.stop_gradient(v)
    with tf.control_dependencies([r]):
        a = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([a]):
        return s.run(r + 0.0)


def two_changes_with_a_consumer_between(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
        y = v * 1.0
    with tf.control_dependencies([y]):
        b = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([b]):
        z = v * 1.0
    return s.run([y, z])


def an_assignment_of_its_own_value(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0])
    s.run(v.assign(v + v))
    s.run(v.assign(tf.reverse(v, [0])))
    return s.run(v)


def a_swap_of_two_variables(tf: Any, s: Any, u: Any) -> Any:
    v, w = _variable(tf, s, u, [1.0, 1.0]), _variable(tf, s, u, [2.0, 2.0], "w")
    x, y = tf.identity(v), tf.identity(w)
    with tf.control_dependencies([x, y]):
        first = v.assign(y)
        with tf.control_dependencies([first]):
            second = w.assign(x)
    s.run(second)
    return s.run([v, w])


def a_scatter_after_a_read(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [[1.0], [2.0]])
    r = tf.identity(v)
    with tf.control_dependencies([r]):
        a = tf.scatter_add(v, [1, 1], [[1.0], [2.0]])
    with tf.control_dependencies([a]):
        return s.run([r + 0.0, tf.gather(v, [1])])


def scatters(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0, 4.0])
    found = []
    for f, x in ((tf.scatter_update, 7.0), (tf.scatter_sub, 1.0), (tf.scatter_mul, 3.0), (tf.scatter_div, 2.0),
                 (tf.scatter_min, 0.5), (tf.scatter_max, 9.0)):  # fmt: skip
        found.append(s.run(f(v, [0], [x])))
    found += [s.run(f(v, [[2]], [1.5])) for f in (tf.scatter_nd_update, tf.scatter_nd_add, tf.scatter_nd_sub)]
    return found


def an_assignment_to_a_slice(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0, 3.0])
    s.run(v[1:].assign([5.0, 6.0]))
    return s.run(v)


def counting(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, 3)
    n = v.count_up_to(5)
    return [s.run(n), s.run(n), s.run(v)]


def a_conditional_assignment(tf: Any, s: Any, u: Any) -> Any:
    v, p = _variable(tf, s, u), tf.placeholder(tf.bool, [])
    c = tf.cond(p, lambda: tf.identity(v.assign_add([1.0, 1.0])), lambda: v * 1.0)
    with tf.control_dependencies([c]):
        y = v + 0.0
    return [s.run([c, y], {p: True}), s.run([c, y], {p: False})]


def a_read_in_a_branch(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
        return s.run(tf.cond(tf.constant(True), lambda: v + 0.0, lambda: v - 1.0))


def assignments_in_a_loop(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)

    def body(i: Any) -> Any:
        with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
            return i + 1

    n = tf.while_loop(lambda i: i < 3, body, [0])
    with tf.control_dependencies([n]):
        y = v + 0.0
    return s.run([n, y])


def reads_in_a_loop_that_assigns(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)

    def body(i: Any, total: Any) -> Any:
        with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
            total = total + v
        with tf.control_dependencies([total]):
            return tf.identity(i) + 1, total

    return s.run(tf.while_loop(lambda i, _: i < 3, body, [0, tf.zeros([2])], parallel_iterations=1))


def a_training_step(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0])
    loss = tf.reduce_sum(tf.square(v))
    step = tf.train.GradientDescentOptimizer(0.25).minimize(loss)
    with tf.control_dependencies([step]):
        after = tf.reduce_sum(tf.square(v))
    return [s.run([loss, step])[0], s.run([v, after]), s.run(v)]


def training_with_each_optimizer(tf: Any, s: Any, u: Any) -> Any:
    found = []
    train = tf.train
    for i, make in enumerate((
        lambda: train.MomentumOptimizer(0.1, 0.9), lambda: train.AdagradOptimizer(0.1),
        lambda: train.RMSPropOptimizer(0.1), lambda: train.FtrlOptimizer(0.1), lambda: train.AdamOptimizer(0.1),
        lambda: train.AdadeltaOptimizer(0.1), lambda: train.ProximalAdagradOptimizer(0.1),
    )):  # fmt: skip
        v = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name=f"v{i}", use_resource=u)
        with tf.variable_scope(f"o{i}", use_resource=u):
            loss = tf.reduce_sum(tf.square(v)) + tf.reduce_sum(tf.square(tf.gather(v, [1])))
            step = make().minimize(loss, var_list=[v])
        s.run(tf.global_variables_initializer())
        s.run(step)
        s.run(step)
        found.append(s.run(v))
    return found


def training_of_rows(tf: Any, s: Any, u: Any) -> Any:
    found = []
    for i, make in enumerate((tf.train.GradientDescentOptimizer, tf.train.AdagradOptimizer, tf.train.AdamOptimizer)):
        v = tf.Variable([[1.0, 2.0], [3.0, 4.0]], name=f"v{i}", use_resource=u)
        loss = tf.reduce_sum(tf.square(tf.nn.embedding_lookup(v, [1, 1])))
        step = make(0.1).minimize(loss, var_list=[v])
        s.run(tf.global_variables_initializer())
        s.run(step)
        found.append(s.run(v))
    return found


def a_moving_average_after_a_step(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0])
    average = tf.train.ExponentialMovingAverage(0.5)
    step = v.assign_add([4.0, 4.0])
    with tf.control_dependencies([step]):
        apply = average.apply([v])
    s.run(tf.global_variables_initializer())
    s.run(apply)
    return s.run([v, average.average(v)])


def gradients_of_a_variable_and_its_value(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0])
    y = tf.reduce_sum(v * v)
    return s.run([tf.gradients(y, v)[0], tf.gradients(tf.reduce_sum(tf.identity(v) * 3.0), v)[0]])


def an_initial_value_of_another_variable(tf: Any, s: Any, u: Any) -> Any:
    v = tf.Variable([1.0, 2.0], use_resource=u)
    x = tf.Variable(v + 1.0, use_resource=u)
    s.run(tf.global_variables_initializer())
    return s.run([v, x])


def uninitialized_variables(tf: Any, s: Any, u: Any) -> Any:
    v = tf.Variable([1.0, 2.0], use_resource=u, name="v")
    w = tf.Variable([1.0, 2.0], use_resource=u, name="w")
    s.run(w.initializer)
    return [s.run([tf.is_variable_initialized(v), tf.is_variable_initialized(w)]),
            [str(x.decode()) for x in s.run(tf.report_uninitialized_variables())]]  # fmt: skip


def a_loaded_value(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    v.load([3.0, 4.0], s)
    return [v.eval(session=s), s.run(v + 1.0, {v: [0.0, 1.0]})]


def a_value_of_another_shape(tf: Any, s: Any, u: Any) -> Any:
    v = tf.Variable([1.0, 2.0], validate_shape=False, use_resource=u)
    s.run(v.initializer)
    s.run(tf.assign(v, [[1.0], [2.0], [3.0]], validate_shape=False))
    return s.run(v)


def the_end_of_a_step(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u)
    with tf.control_dependencies([v.value()]):
        a = v.assign_add([1.0, 1.0])
    with tf.control_dependencies([a]):
        b = v.assign_add([1.0, 1.0])
    return s.run([a, b] if u is not True else [b])


def an_imported_graph(tf: Any, s: Any, u: Any) -> Any:
    with tf.Graph().as_default() as g:
        v = tf.Variable([0.0, 0.0], name="v", use_resource=u)
        with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
            tf.add(v, 0.0, name="y")
    tf.import_graph_def(g.as_graph_def(), name="")
    s.run("v/Assign")
    return s.run("y:0")


def gradients_of_a_branch_that_assigns(tf: Any, s: Any, u: Any) -> Any:
    v, x, p = _variable(tf, s, u, [1.0, 2.0]), tf.constant([3.0, 4.0]), tf.placeholder(tf.bool, [])

    def assigned() -> Any:
        with tf.control_dependencies([v.assign_add([1.0, 1.0])]):
            return tf.sin(x) * v.read_value() * x

    dx = tf.gradients(tf.cond(p, assigned, lambda: x * x), x)[0]
    return [s.run(dx, {p: True}), s.run(dx, {p: False}), s.run(dx, {p: True})]


def gradients_of_an_assignments_result(tf: Any, s: Any, u: Any) -> Any:
    v, x = _variable(tf, s, u, 1.0), tf.constant(3.0)
    y = tf.cond(x > 0.0, lambda: v.assign_add(1.0) * x * x, lambda: x)
    dx = tf.gradients(y, x)[0]
    return s.run([tf.gradients(dx, x)[0], dx]) + s.run([dx])


def gradients_of_nested_conditionals(tf: Any, s: Any, u: Any) -> Any:
    v, w = _variable(tf, s, u, [1.0, 2.0]), _variable(tf, s, u, [3.0, 4.0], "w")
    p, q = tf.placeholder(tf.bool, []), tf.placeholder(tf.bool, [])

    def inner() -> Any:
        with tf.control_dependencies([w.assign_add([1.0, 1.0])]):
            return tf.cond(q, lambda: v * v * w.read_value(), lambda: tf.exp(v))

    y = tf.reduce_sum(tf.cond(p, inner, lambda: tf.square(v)))
    return [s.run(tf.gradients(y, v)[0], {p: a, q: b}) for a in (True, False) for b in (True, False)]


def second_gradients_of_a_conditional(tf: Any, s: Any, u: Any) -> Any:
    v, p = _variable(tf, s, u, [1.0, 2.0]), tf.placeholder(tf.bool, [])
    y = tf.reduce_sum(tf.cond(p, lambda: v * v * v, lambda: tf.sin(v)))
    second = tf.gradients(tf.gradients(y, v)[0], v)[0]
    return [s.run(second, {p: True}), s.run(second, {p: False})]


def gradients_of_a_loop(tf: Any, s: Any, u: Any) -> Any:
    v, x = _variable(tf, s, u, [1.0, 0.5]), tf.constant([1.0, 2.0])
    y = tf.while_loop(lambda i, _: i < 3, lambda i, y: (i + 1, tf.sin(y) * v), [0, x])[1]
    return s.run(tf.gradients(y, [v, x]))


def gradients_of_a_loop_with_a_conditional_that_assigns(tf: Any, s: Any, u: Any) -> Any:
    w = tf.Variable([1.0, 2.0], trainable=False, use_resource=u)
    s.run(w.initializer)
    x = tf.constant([1.0, 2.0])

    def body(i: Any, y: Any) -> Any:
        def assigned() -> Any:
            with tf.control_dependencies([w.assign_add([1.0, 1.0])]):
                return y * (w.read_value() + 0.0)  # a stack of TensorFlow keeps the buffer of a read itself

        return i + 1, tf.cond(tf.equal(i % 2, 0), assigned, lambda: tf.sin(y))

    y = tf.while_loop(lambda i, _: i < 4, body, [0, x], parallel_iterations=1)[1]
    return s.run([tf.gradients(y, x)[0], y])


def gradients_with_statistics_of_a_branch(tf: Any, s: Any, u: Any) -> Any:
    w, p = _variable(tf, s, u, [1.0, 2.0]), tf.placeholder(tf.bool, [])
    m = tf.Variable([0.5, 0.5], trainable=False, use_resource=u)
    s.run(m.initializer)
    mean = tf.cond(p, lambda: tf.identity(tf.assign(m, m * 0.5 + w * 0.5)), lambda: m.read_value())
    step = tf.train.GradientDescentOptimizer(0.5).minimize(tf.reduce_sum(tf.square(w - tf.stop_gradient(mean))))
    s.run(step, {p: True})
    s.run(step, {p: False})
    return s.run([w, m])


def partitions_in_a_file(tf: Any, s: Any, u: Any) -> Any:
    with tf.variable_scope("p", partitioner=tf.fixed_size_partitioner(2), use_resource=u):
        v = tf.get_variable("v", initializer=tf.range(4.0))
    saver = tf.train.Saver()
    s.run(tf.global_variables_initializer())
    with tempfile.TemporaryDirectory() as folder:
        path = saver.save(s, f"{folder}/model")
        s.run([x.assign(-x) for x in v])
        saver.restore(s, path)
        kept = s.run(tf.convert_to_tensor(v))
        with tf.Graph().as_default(), tf.Session() as other:
            tf.train.import_meta_graph(path + ".meta").restore(other, path)
            x = tf.global_variables()[1]
            return [kept, other.run(x.assign_add([1.0, 1.0])), [v.name for v in tf.global_variables()]]


def a_frozen_graph(tf: Any, s: Any, u: Any) -> Any:
    v = _variable(tf, s, u, [1.0, 2.0])
    tf.identity(tf.gather(v, [1]) + v.read_value(), name="y")
    frozen = tf.graph_util.convert_variables_to_constants(s, s.graph.as_graph_def(), ["y"])
    with tf.Graph().as_default(), tf.Session() as other:
        tf.import_graph_def(frozen, name="")
        return [other.run("y:0"), other.run("v:0" if u is not True else "y:0")]


PROGRAMS: dict[str, Callable[[Any, Any, Any], Any]] = {
    k: f for k, f in list(globals().items()) if callable(f) and k[0] != "_" and k not in ("Any", "Callable", "Path")
}


def plain(x: Any) -> Any:
    """Nested lists of numbers."""
    return [plain(y) for y in x] if isinstance(x, (list, tuple)) else x.tolist() if hasattr(x, "tolist") else x


def result(tf: Any, name: str, use_resource: bool | None) -> Any:
    """Runs one program. The result of one that fails is the class of the error."""
    with tf.Graph().as_default(), tf.Session() as s:
        try:
            return plain(PROGRAMS[name](tf, s, use_resource))
        except (tf.errors.OpError, ValueError) as e:
            return type(e).__name__


def stable(f: Callable[[], Any]) -> Any:
    """Returns the result of ten runs, or RACE if they differ."""
    results = [f() for _ in range(10)]
    return results[0] if all(r == results[0] for r in results) else RACE


if __name__ == "__main__":
    import importlib

    tensorflow: Any = importlib.import_module("tensorflow.compat.v1")
    tensorflow.disable_v2_behavior()
    found = {}
    for name in PROGRAMS:
        found[name] = {k: stable(lambda u=u, name=name: result(tensorflow, name, u)) for k, u in KINDS.items()}
        assert found[name]["reference"] == found[name]["default"] != RACE, name
    VALUES.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
