"""Monitored sessions against TensorFlow's, with the same programs.

Both log the same events, write the same steps, and go on where the other one stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = r"""
import json, logging, os, re, sys, time, warnings
warnings.simplefilter("ignore")
import tensorflow.compat.v1 as tensorflow
tensorflow.disable_v2_behavior()
import headrace.v1 as headrace
from headrace.train import hooks
from headrace.v1 import monitored

folder = sys.argv[1]


class Names:
    # the names of tf.train, wherever headrace has them
    def __init__(self, *places):
        self.places = places

    def __getattr__(self, name):
        return next(getattr(p, name) for p in self.places if hasattr(p, name))


def story_of(tf, train):
    told = []

    class Story(train.SessionRunHook):
        def __init__(self, name, **fails):
            self.name, self.fails = name, fails

        def tell(self, method):
            told.append(f"{self.name}.{method}")
            if self.fails.get(method):
                raise self.fails[method].pop()

        def begin(self):
            self.tell("begin")

        def after_create_session(self, session, coord):
            self.tell("after_create_session")

        def before_run(self, run_context):
            self.tell("before_run")

        def after_run(self, run_context, run_values):
            self.tell("after_run")

        def end(self, session):
            self.tell("end")

    class Stop(train.SessionRunHook):
        def before_run(self, run_context):
            return train.SessionRunArgs("step:0", {"x:0": 5})

        def after_run(self, run_context, run_values):
            told.append([str(type(run_values.results).__name__), int(run_values.results) >= 0])
            if run_context.session.run("step:0") >= 3:
                run_context.request_stop()

    def tried(what, make, use):
        told.append(f"*** {what}")
        tf.reset_default_graph()
        step = tf.get_variable("step", (), tf.int32, tf.zeros_initializer())
        x = tf.placeholder_with_default(1, (), name="x")
        with tf.control_dependencies([x]):
            count = tf.identity(tf.assign_add(step, 1), name="count")
        try:
            with make() as session:
                use(session, count)
        except Exception as e:
            told.append(type(e).__name__)
        if "after_create_session" not in what:  # TensorFlow leaves the graph finalized then
            told.append(tf.get_default_graph().finalized)

    def loop(session, count):
        while not session.should_stop():
            told.append(int(session.run(count)))

    def fail(error):
        def use(session, count):
            session.run(count)
            raise error
        return use

    def steps(session, count):
        def step(step_context):
            a = int(step_context.session.run(count))
            b = int(step_context.run_with_hooks(count))
            told.append((a, b))
            if b > 3:
                step_context.request_stop()
            return b
        while not session.should_stop():
            session.run_step_fn(step)

    def past_the_end(session, count):
        loop(session, count)
        session.run(count)

    errors = tf.errors
    for kind in (train.MonitoredSession, train.SingularMonitoredSession):
        two = lambda: kind(hooks=[Story("a"), Stop(), Story("b")])
        for use in (loop, steps, past_the_end, fail(KeyError("k")), fail(StopIteration())):
            tried(kind.__name__, two, use)
        tried("out of range", two, fail(errors.OutOfRangeError(None, None, "no more") if tf is tensorflow
                                        else errors.OutOfRangeError("no more")))
        aborted = lambda: [errors.AbortedError(None, None, "a") if tf is tensorflow else errors.AbortedError("a")]
        for method in ("before_run", "after_run", "after_create_session", "begin", "end"):
            fails = lambda errors: kind(hooks=[Story("a"), Story("b", **{method: errors}), Stop()])
            tried(f"aborted in {method}", lambda: fails(aborted()), loop)
            if method != "end":  # where TensorFlow leaves out the hooks that come after
                tried(f"wrong in {method}", lambda: fails([ValueError("w")]), loop)

    def queue(session_class, bad):
        tf.reset_default_graph()
        q = tf.FIFOQueue(2, [tf.int32], shapes=[()])
        source = tf.FIFOQueue(5, [tf.int32], shapes=[()])
        with tf.control_dependencies([source.enqueue_many([[1, 2, 3]])]):
            init = source.close()
        value = source.dequeue()
        if bad:
            with tf.control_dependencies([tf.Assert(value < 3, ["too much"])]):
                value = tf.identity(value)
        tf.train.add_queue_runner(tf.train.QueueRunner(q, [q.enqueue(value)]))
        got = q.dequeue()
        scaffold = train.Scaffold(init_op=init)
        try:
            with train.MonitoredSession(train.ChiefSessionCreator(scaffold)) as session:
                while not session.should_stop():
                    value = int(session.run(got))
                    told.append(value) if not bad else None  # how far it gets depends on when the thread fails
        except Exception as e:
            told.append(type(e).__name__)
        told.append("closed")

    queue(train.MonitoredSession, False)
    queue(train.MonitoredSession, True)
    return told


def trained(tf, train, where, last, stop_at):
    tf.reset_default_graph()
    step = tf.get_variable("global_step", (), tf.int64, tf.zeros_initializer(), trainable=False, use_resource=True,
                           collections=[tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.GLOBAL_STEP])
    w = tf.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
    tf.summary.scalar("size", tf.reduce_sum(w))
    with tf.control_dependencies([tf.assign_sub(w, 0.25 * w)]):
        count = tf.assign_add(step, 1)
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger = logging.getLogger("tensorflow" if tf is tensorflow else "headrace")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel("INFO")
    final = train.FinalOpsHook([step])
    hooks = [train.StopAtStepHook(last_step=last), final, train.ProfilerHook(save_steps=3, output_dir=where),
             train.LoggingTensorHook({"w": w, "step": step}, every_n_iter=2, at_end=True)]
    seen = []
    try:
        with train.MonitoredTrainingSession(checkpoint_dir=where, hooks=hooks, save_checkpoint_steps=3,
                                            save_summaries_steps=2, log_step_count_steps=2) as session:
            while not session.should_stop():
                session.run(count)
                seen.append(1)
                if len(seen) == stop_at:
                    break
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    with train.SingularMonitoredSession(checkpoint_dir=where) as session:
        values = session.raw_session().run([step, w])
    logged = [re.sub(r" \(.*sec\)", "", m) for m in messages if m.startswith("step = ")]
    # what is read in the step that counts is from before or after, as it happens
    logged = [re.sub(r"step = \d+, w = .*", "step, w", m) for m in logged]
    events = []
    tf.summary.FileWriterCache.clear()  # TensorFlow's hooks leave the last event unwritten
    logs = [os.path.join(where, name) for name in os.listdir(where) if "tfevents" in name]
    for found in sorted((list(tensorflow.train.summary_iterator(p)) for p in logs), key=lambda f: f[0].wall_time):
        for e in found:
            events += [(e.step, v.tag) for v in e.summary.value]
            events += [(e.step, "log", e.session_log.status)] if e.HasField("session_log") else []
    # the first step that ProfilerHook sees may be counted already, or not, and the next trace comes 3 later
    files = [n for n in os.listdir(where) if n.endswith((".index", ".json", ".pbtxt", ".meta"))]
    files = sorted(re.sub(r"(?<=timeline-)\d+", "n", n) for n in files)
    return {"steps": len(seen), "values": [values[0].item(), values[1].tolist()], "logged": logged, "events": events,
            "files": files, "final": [int(v) for v in final.final_ops_values]}


both = {"tensorflow": (tensorflow, tensorflow.train), "headrace": (headrace, Names(monitored, hooks, headrace.train))}
out = {"story": {k: story_of(*v) for k, v in both.items()}, "trained": {}, "across": {}}
for name, (tf, train) in both.items():
    where = os.path.join(folder, name)
    out["trained"][name] = [trained(tf, train, where, 5, 99)]
    time.sleep(1.1)  # TensorFlow names event files by the second: it would write over its first
    out["trained"][name] += [trained(tf, train, where, 12, 4)]
for first, second in (("tensorflow", "headrace"), ("headrace", "tensorflow")):
    where = os.path.join(folder, first + "_" + second)
    trained(*both[first], where, 5, 99)
    out["across"][first] = trained(*both[second], where, 9, 99)["values"]
print("RESULT" + json.dumps(out))
"""


def test_the_same_programs_do_the_same(run_python: Callable[..., bytes], tmp_path: Path) -> None:
    program = f"import sys\nsys.argv = ['program', {str(tmp_path)!r}]\n" + PROGRAM
    result = json.loads(run_python(program).decode().rpartition("RESULT")[2])
    ours, theirs = (result["story"][k] for k in ("headrace", "tensorflow"))
    assert ours == theirs
    for ours, theirs in zip(result["trained"]["headrace"], result["trained"]["tensorflow"], strict=True):
        for key in theirs:
            assert ours[key] == theirs[key], key
    for first in ("headrace", "tensorflow"):
        step, w = result["across"][first]
        assert step == 9
        assert w == pytest.approx([0.75**9, 2 * 0.75**9], rel=1e-6)
