"""Programs in which control edges alone reach an update, with TensorFlow 1's results.

Each is text over `tf` (headrace.v1, or TensorFlow with `disable_v2_behavior` and resource variables) that defines
`targets`, `reads`, and where they matter `feeds` and `steps`. `expected` has the values of the reads after the steps;
`tests/conformance/test_order.py` compares it with TensorFlow.
"""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and its expected results.

    Attributes:
      text: The program.
      expected: The values of the reads after the steps.
      in_tensorflow: Whether TensorFlow 1 can build the program.
    """

    text: str
    expected: Any
    in_tensorflow: bool = True


START = """\
import numpy as np
feeds, steps, reads = {}, 1, []
x = tf.placeholder(tf.float64, (), name="x")
v = tf.Variable(np.float64(1.0), name="v")
def after(deps, make):
    with tf.control_dependencies(deps):
        return make()
def assigned(value, to=5.0):
    "value, behind v.assign(to)"
    return after([v.assign(to)], lambda: tf.identity(value))
def added(value, by=1.0):
    "value, behind v.assign_add(by)"
    return after([v.assign_add(by)], lambda: tf.identity(value))
def read():
    return v.read_value()
feeds = {x: 3.0}
zero = tf.constant(0.0, tf.float64)
def passed(k, trips=2.0):
    "k, which a loop passes through"
    return tf.while_loop(lambda i, k: i < trips, lambda i, k: (i + 1.0, k), [zero, k])[1]
"""

TRAIN = """\
w = tf.Variable(np.float64(0.5), name="w")
step = tf.train.get_or_create_global_step()
loss = tf.square(w * x - 1.0)
train = tf.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
out = after([train], lambda: tf.identity(loss))
steps, reads = 5, [step]
"""

_V = "reads = [v]\n"

CASES: dict[str, Case] = {
    # *** A: a tensor behind a training step, captured by a branch ***
    "a branch returns it": Case(
        TRAIN + "targets = [tf.group(tf.cond(x > 0.0, lambda: out, lambda: zero))]", [5]
    ),
    "the other branch returns it": Case(
        TRAIN + "targets = [tf.group(tf.cond(x < 0.0, lambda: out, lambda: zero))]", [5]
    ),
    "a branch returns it, as a target": Case(
        TRAIN + "targets = [tf.cond(x > 0.0, lambda: out, lambda: zero).op]", [5]
    ),
    "a branch computes with it": Case(
        TRAIN + "targets = [tf.group(tf.cond(x > 0.0, lambda: out + 1.0, lambda: zero))]", [5]
    ),
    "a conditional in a conditional returns it": Case(
        TRAIN
        + "inner = lambda: tf.cond(x > 1.0, lambda: out, lambda: zero)\n"
        + "targets = [tf.group(tf.cond(x > 0.0, inner, lambda: zero))]",
        [5],
    ),
    "a conditional is waited for": Case(
        TRAIN
        + "c = tf.cond(x > 0.0, lambda: out, lambda: zero)\n"
        + "targets = [after([c], lambda: tf.identity(x)).op]",
        [5],
    ),
    "another result of the conditional is waited for": Case(
        TRAIN
        + "a, b = tf.cond(x > 0.0, lambda: (out, x), lambda: (zero, x))\n"
        + "targets = [after([a, b], lambda: tf.identity(x)).op]",
        [5],
    ),
    "a loop returns it": Case(TRAIN + "targets = [tf.group(passed(out))]", [5]),
    "a loop returns it, as a target": Case(TRAIN + "targets = [passed(out).op]", [5]),
    "a loop of no iteration returns it": Case(TRAIN + "targets = [tf.group(passed(out, 0.0))]", [5]),
    "a loop is waited for": Case(
        TRAIN + "k = passed(out)\ntargets = [after([k], lambda: tf.identity(x)).op]", [5]
    ),
    "a loop in a branch returns it": Case(
        TRAIN + "targets = [tf.group(tf.cond(x > 0.0, lambda: passed(out), lambda: zero))]", [5]
    ),
    "the predicate is behind it": Case(
        TRAIN + "p = after([train], lambda: tf.identity(x > 0.0))\n"
        "targets = [tf.group(tf.cond(p, lambda: zero, lambda: zero + 1.0))]", [5]
    ),
    "a constant in a branch is behind it": Case(
        TRAIN + "c = after([train], lambda: tf.constant(4.0, tf.float64))\n"
        "targets = [tf.group(tf.cond(x > 0.0, lambda: c, lambda: zero))]", [5]
    ),
    "a tuple is behind it": Case(
        TRAIN + "t = tf.tuple([x, x + 1.0], control_inputs=[train])\n"
        "targets = [tf.group(tf.cond(x > 0.0, lambda: t[0], lambda: zero))]", [5]
    ),
    "a map returns it": Case(
        TRAIN + "targets = [tf.group(tf.map_fn(lambda e: e, tf.stack([out, x])))]", [5]
    ),
    "a fold begins with it": Case(
        TRAIN + "targets = [tf.group(tf.foldl(lambda a, e: e, tf.stack([x, x]), out))]", [5]
    ),
    # *** B: a value that enters a structure comes out unchanged, and consumers wait for it ***
    "a read behind what a loop passes through": Case(
        "k = passed(assigned(x))\nr = after([k], read)\nfetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a read behind what a loop of no iteration passes through": Case(
        "k = passed(assigned(x), 0.0)\nr = after([k], read)\nfetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a read behind what two loops pass through": Case(
        "k = passed(passed(assigned(x)), 3.0)\nr = after([k], read)\nfetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a read behind what a loop in a loop passes through": Case(
        "k = tf.while_loop(lambda i, k: i < 2.0, lambda i, k: (i + 1.0, passed(k)), [zero, assigned(x)])[1]\n"
        "r = after([k], read)\nfetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a read behind what both branches pass through": Case(
        "k = assigned(x)\nc = tf.cond(x > 0.0, lambda: k, lambda: k)\n"
        "r = after([c], read)\nfetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a read behind another result of the loop": Case(
        "i, k = tf.while_loop(lambda i, k: i < 2.0, lambda i, k: (i + 1.0, k), [zero, assigned(x)])\n"
        "r = after([k, i], read)\nfetches, targets = [r], []\n" + _V, [5.0]
    ),
    # *** C: a structure's result as the only reason to run ***
    "a group of a loop": Case("targets = [tf.group(passed(assigned(x)))]\n" + _V, [5.0]),
    "a loop as a target": Case("targets = [passed(assigned(x)).op]\n" + _V, [5.0]),
    "a group of a conditional": Case(
        "k = assigned(x)\ntargets = [tf.group(tf.cond(x > 5.0, lambda: k, lambda: zero))]\n" + _V, [5.0]
    ),
    "a body as the only reason": Case(
        "targets = [tf.group(tf.while_loop(lambda i: i < 3.0, lambda i: added(i) + 1.0, [zero]))]\n" + _V, [4.0]
    ),
    "a condition as the only reason": Case(
        "targets = [tf.group(tf.while_loop(lambda i, k: added(i) < 3.0, lambda i, k: (i + 1.0, k), [zero, x])[1])]\n"
        + _V, [5.0]
    ),
    "a branch as the only reason": Case(
        "targets = [tf.group(tf.cond(x > 0.0, lambda: added(x), lambda: x))]\n" + _V, [2.0]
    ),
    "a group in a branch": Case(
        "targets = [tf.group(tf.cond(x > 0.0, lambda: tf.group(v.assign_add(1.0)), lambda: tf.no_op()))]\n" + _V, [2.0]
    ),
    # *** D: a dependency inside a branch on a captured tensor ***
    "a branch reads behind a captured tensor": Case(
        "k = assigned(x)\nr = tf.cond(x > 0.0, lambda: after([k], read), lambda: zero)\n"
        "fetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a branch reads behind a captured operation": Case(
        "o = v.assign(5.0).op\nr = tf.cond(x > 0.0, lambda: after([o], read), lambda: zero)\n"
        "fetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a branch of a branch reads behind a captured tensor": Case(
        "k = assigned(x)\ninner = lambda: tf.cond(x > 1.0, lambda: after([k], read), lambda: zero)\n"
        "r = tf.cond(x > 0.0, inner, lambda: zero)\nfetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a body reads behind a captured tensor": Case(
        "k = assigned(x)\n"
        "r = tf.while_loop(lambda i, r: i < 2.0, lambda i, r: (i + 1.0, after([k], read)), [zero, zero])[1]\n"
        "fetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a condition reads behind a captured tensor": Case(
        "k = assigned(x)\nr = tf.while_loop(lambda i: i < after([k], read), lambda i: i + 1.0, [zero])\n"
        "fetches, targets = [r], []\n" + _V, [5.0]
    ),
    "a map reads behind a captured tensor": Case(
        "k = assigned(x)\nr = tf.reduce_sum(tf.map_fn(lambda e: e * after([k], read), tf.stack([x, x])))\n"
        "fetches, targets = [r], []\n" + _V, [5.0]
    ),
    # *** E: in a body, on a loop variable that reaches nothing else ***
    "a body waits for a loop variable": Case(
        "v0 = v.assign(10.0)\nstart = after([v0], lambda: tf.identity(zero))\n"
        "i, t = tf.while_loop(lambda i, t: i < 2.0, lambda i, t: (after([t], lambda: i + 1.0), added(t)), [start, x])\n"
        "fetches, targets = [i], []\n" + _V, [12.0]
    ),
    "a body waits for what it makes of a loop variable": Case(
        "v0 = v.assign(10.0)\nstart = after([v0], lambda: tf.identity(zero))\n"
        "def body(i, t):\n    t = added(t)\n    return after([t], lambda: i + 1.0), t\n"
        "i, t = tf.while_loop(lambda i, t: i < 2.0, body, [start, x])\nfetches, targets = [i], []\n" + _V, [12.0]
    ),
    "the loop variable of another iteration is waited for": Case(
        "def body(i, t):\n    return after([t], lambda: i + 1.0), tf.cond(i < 1.0, lambda: added(t), lambda: t)\n"
        "i, t = tf.while_loop(lambda i, t: i < 3.0, body, [zero, x])\nfetches, targets = [i], []\n" + _V, [2.0]
    ),
    "a condition waits for a loop variable": Case(
        "i, t = tf.while_loop(lambda i, t: after([t], lambda: tf.identity(i)) < 2.0, "
        "lambda i, t: (i + 1.0, added(t)), [zero, x])\nfetches, targets = [i], []\n" + _V, [3.0]
    ),
    # *** F: a read in a loop, and a write outside ***
    "a read in a loop behind a scatter": Case(
        "u = tf.Variable(np.array([1.0, 2.0]), name='u')\ns = tf.scatter_update(u, [1], [9.0])\n"
        "def loop():\n    return tf.while_loop(lambda i, r: i < 2.0, lambda i, r: (i + 1.0, u.read_value()), "
        "[zero, tf.zeros([2], tf.float64)])[1]\nr = after([s.op], loop)\nfetches, targets = [r], []\nreads = [r]",
        [[1.0, 9.0]],
    ),
    "a read in a loop behind a scatter that a loop variable waits for": Case(
        "u = tf.Variable(np.array([1.0, 2.0]), name='u')\ns = tf.scatter_update(u, [1], [9.0])\n"
        "t = after([s.op], lambda: tf.identity(x))\n"
        "r = tf.while_loop(lambda i, t, r: i < 2.0, lambda i, t, r: (i + 1.0, t, after([t], u.read_value)), "
        "[zero, t, tf.zeros([2], tf.float64)])[2]\nfetches, targets = [r], []\nreads = [r]", [[1.0, 9.0]]
    ),
    "a read in a loop behind a scatter that a captured tensor waits for": Case(
        "u = tf.Variable(np.array([1.0, 2.0]), name='u')\ns = tf.scatter_update(u, [1], [9.0])\n"
        "t = after([s.op], lambda: tf.identity(x))\n"
        "r = tf.while_loop(lambda i, r: i < 2.0, lambda i, r: (i + 1.0, after([t], u.read_value)), "
        "[zero, tf.zeros([2], tf.float64)])[1]\nfetches, targets = [r], []\nreads = [r]", [[1.0, 9.0]]
    ),
    "a read in a loop behind a write in the loop": Case(
        "r = tf.while_loop(lambda i, r: i < 3.0, lambda i, r: (i + 1.0, after([v.assign_add(r)], read)), "
        "[zero, x])[1]\nfetches, targets = [r], []\n" + _V, [16.0]
    ),
    "two reads with a write between them": Case(
        "a = read()\nb = after([after([a], lambda: v.assign(7.0)).op], read)\n"
        "d = after([b], lambda: tf.identity(a))\nfetches, targets = [a, b, d], []\n" + _V, [7.0]
    ),
    # *** gradients as the only reason to run ***
    "a gradient is of a product with it": Case(
        TRAIN + "fetches, targets = [tf.gradients(out * x, x)[0]], []", [5]
    ),
    "a gradient is of a branch with it": Case(
        TRAIN + "y = tf.cond(x > 0.0, lambda: out * x, lambda: zero)\n"
        "fetches, targets = [tf.gradients(y, x)[0]], []", [5]
    ),
    "a gradient is of a loop with it": Case(
        TRAIN + "y = tf.while_loop(lambda i, y: i < 2.0, lambda i, y: (i + 1.0, y * out), [zero, x])[1]\n"
        "fetches, targets = [tf.gradients(y, x)[0]], []", [5]
    ),
    "a gradient is of a map with it": Case(
        TRAIN + "y = tf.map_fn(lambda e: e * out, tf.stack([x, x]))\n"
        "fetches, targets = [tf.gradients(y, x)[0]], []", [5]
    ),
    "a gradient is waited for": Case(
        TRAIN + "g = tf.gradients(out * x, x)[0]\ntargets = [after([g], tf.no_op)]", [5]
    ),
    "a gradient needs what a branch adds": Case(
        "y = tf.cond(x > 0.0, lambda: added(x) * x, lambda: zero)\n"
        "targets = [tf.group(tf.gradients(y, x)[0])]\n" + _V, [2.0]
    ),
    "a gradient needs what a body adds": Case(
        "y = tf.while_loop(lambda i, y: i < 3.0, lambda i, y: (i + 1.0, y * added(x)), [zero, x])[1]\n"
        "targets = [tf.group(tf.gradients(y, x)[0])]\n" + _V, [4.0]
    ),
    "a gradient and its loop need what a body adds once": Case(
        "y = tf.while_loop(lambda i, y: i < 3.0, lambda i, y: (i + 1.0, y * added(x)), [zero, x])[1]\n"
        "targets = [tf.group(y, tf.gradients(y, x)[0])]\n" + _V, [4.0]
    ),
    "a gradient of a gradient needs what a body adds once": Case(
        "y = tf.while_loop(lambda i, y: i < 3.0, lambda i, y: (i + 1.0, y * y * added(x)), [zero, x])[1]\n"
        "g = tf.gradients(y, x)[0]\ntargets = [tf.group(y, g, tf.gradients(g * y, x)[0])]\n" + _V,
        [4.0], in_tensorflow=False,
    ),
    "a read behind the gradient of a loop": Case(
        "y = tf.while_loop(lambda i, y: i < 3.0, lambda i, y: (i + 1.0, y * added(x)), [zero, x])[1]\n"
        "r = after([tf.gradients(y, x)[0]], read)\nfetches, targets = [r], []\nreads = [r]", [4.0]
    ),
    "a condition adds, and a gradient is taken": Case(
        "y = tf.while_loop(lambda i, y: added(i) < 3.0, lambda i, y: (i + 1.0, y * y), [zero, x])[1]\n"
        "targets = [tf.group(tf.gradients(y, x)[0])]\n" + _V, [5.0]
    ),
}  # fmt: skip


def program(name: str) -> str:
    """The whole text of a case."""
    text = CASES[name].text
    return START + ("" if "fetches" in text else "fetches = []\n") + text
