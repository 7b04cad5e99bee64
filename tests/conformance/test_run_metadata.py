"""`RunMetadata` against TensorFlow's of the same program; and TensorFlow's own reader of it reads ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# a loop in a loop, a branch that is taken and one that is not
BOTH = """
import collections, json, sys
import numpy as np

def program(tf):
    n = tf.placeholder(tf.int32, [], name="n")
    x = tf.placeholder(tf.float32, [3], name="x")
    def outer(i, y):
        inner = lambda j, y: (j + 1, tf.sin(y) * 2.0)
        return i + 1, tf.while_loop(lambda j, y: j < i, inner, [0, y], name="inner")[1]
    i, y = tf.while_loop(lambda i, y: i < n, outer, [0, x], name="outer")
    z = tf.cond(n > 100, lambda: tf.sqrt(y, name="never"), lambda: tf.exp(y, name="taken"))
    return {"n:0": 4, "x:0": np.ones(3, np.float32)}, z

def measured(tf):
    with tf.Graph().as_default():
        feeds, z = program(tf)
        m = tf.RunMetadata()
        with tf.Session() as s:
            options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
            value = s.run(z, feeds, options=options, run_metadata=m)
    return value, m

def stats(m):
    calls, sizes = collections.Counter(), collections.Counter()
    for device in m.step_stats.dev_stats:
        for node in device.node_stats:
            calls[node.node_name] += 1
            for out in node.output:
                sizes[node.node_name] += out.tensor_description.allocation_description.requested_bytes
    return {name: (calls[name], sizes[name]) for name in calls}

import tensorflow.compat.v1 as tf
import headrace.v1 as ours
tf.disable_v2_behavior()
tf.disable_control_flow_v2()
"""

COMPARE = (
    BOTH
    + """
(a, theirs), (b, mine) = measured(tf), measured(ours)
np.testing.assert_allclose(a, b, rtol=1e-6)
json.dump([stats(theirs), stats(mine), [d.device for d in theirs.step_stats.dev_stats],
           [d.device for d in mine.step_stats.dev_stats]], sys.stdout)
"""
)

TIMELINE = (
    BOTH
    + """
from tensorflow.python.client import timeline
_, mine = measured(ours)
text = timeline.Timeline(mine.step_stats).generate_chrome_trace_format(show_memory=True)
calls = sum(len(device.node_stats) for device in mine.step_stats.dev_stats)
json.dump([json.loads(text), calls], sys.stdout)
"""
)


def test_operations_fire_as_often_and_give_as_many_bytes(run_python: Callable[[str], bytes]) -> None:
    theirs, mine, their_devices, my_devices = json.loads(run_python(COMPARE))
    assert my_devices == their_devices
    loops = {name for name in theirs if name.startswith("outer/") and not name.endswith("Enter")}
    shared = theirs.keys() & mine.keys()
    assert len(shared & loops) > 15
    assert "cond/taken" in shared
    assert "cond/never" not in mine
    calls = {name: (theirs[name][0], mine[name][0]) for name in shared}
    assert {name: pair for name, pair in calls.items() if pair[0] != pair[1]} == {}
    # a kernel that writes into its input's buffer reports what it has all the same, so bytes are equal too
    sizes = {name: (theirs[name][1], mine[name][1]) for name in shared if "Merge" not in name}
    assert {name: pair for name, pair in sizes.items() if pair[0] != pair[1]} == {}


def test_tensorflows_timeline_reads_it(run_python: Callable[[str], bytes]) -> None:
    drawn, calls = json.loads(run_python(TIMELINE))
    bars = [e for e in drawn["traceEvents"] if e["ph"] == "X"]
    assert len(bars) == calls
    assert {"Sin", "Exp", "LoopCond"} <= {e["name"] for e in bars}
