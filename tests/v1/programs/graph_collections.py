"""Collections, scopes, graphs and their names."""

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

g = tf.Graph()
with g.as_default():
    w1 = tf.get_variable("layer1/w", [2], initializer=tf.ones_initializer(), regularizer=lambda w: tf.reduce_sum(w * w))
    w2 = tf.get_variable("layer2/w", [3], initializer=tf.constant_initializer(2.0), trainable=False)
    with tf.variable_scope("layer3", regularizer=lambda w: 0.5 * tf.reduce_sum(w)):
        w3 = tf.get_variable("w", [4], initializer=tf.constant_initializer(3.0))
    local = tf.Variable(5, collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False, name="local")
    also = tf.get_local_variable("also", [], initializer=tf.zeros_initializer())

    def names(key, scope=None):
        return [v.op.name for v in tf.get_collection(key, scope)]

    print(names(tf.GraphKeys.GLOBAL_VARIABLES))
    print(names(tf.GraphKeys.TRAINABLE_VARIABLES))
    print(names(tf.GraphKeys.LOCAL_VARIABLES))
    print(names(tf.GraphKeys.GLOBAL_VARIABLES, "layer2"), names(tf.GraphKeys.GLOBAL_VARIABLES, "layer[12]/"))
    penalties = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    penalty = tf.add_n(penalties)
    print(len(penalties))

    tf.add_to_collection("outputs", w1 * 2.0)
    g.add_to_collection("outputs", w2 + 1.0)
    g.add_to_collections(["outputs", "more"], tf.constant(7.0))
    print(len(tf.get_collection("outputs")), len(tf.get_collection("more")), len(tf.get_collection("nothing")))
    tf.get_collection("outputs").clear()
    print(len(tf.get_collection("outputs")), len(tf.get_collection_ref("outputs")))
    tf.get_collection_ref("more").append(tf.constant(8.0))
    print(sorted(k for k in g.get_all_collection_keys() if isinstance(k, str)))

    with tf.name_scope("train") as scope:
        a = tf.constant(1.0, name="a")
        b = tf.constant(2.0, name="a")
        with tf.name_scope("deep"):
            c = a + b
        with tf.device("/device:CPU:0"):
            d = tf.identity(c, name="d")
    with tf.name_scope("train"):
        e = tf.identity(d, name="a")
    with tf.name_scope(scope):
        f = tf.identity(e, name="back")
    print(scope, [t.op.name for t in (a, b, c, d, e, f)], d.device)
    print(g.unique_name("train/a"), g.get_tensor_by_name("train/d:0") is d, g.get_operation_by_name("train/a").type)
    print(a.graph is tf.get_default_graph(), d.op.inputs[0] is c, [o.name for o in d.consumers()])

    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        print(sess.run(penalty), [v.tolist() for v in sess.run(tf.get_collection("outputs"))], sess.run([local, also]))

print(tf.get_default_graph() is g, w1.graph is g)
try:
    with tf.Graph().as_default():
        tf.identity(w1 + 1.0) + tf.constant(1.0)
    print("mixed")
except ValueError:
    print("two graphs cannot be mixed")
g.finalize()
try:
    with g.as_default():
        tf.constant(1)
except RuntimeError:
    print("finalized")

# a graph as data, and back into another one, some of it replaced
with tf.Graph().as_default() as source:
    p = tf.placeholder(tf.float32, [], name="p")
    q = tf.add(tf.square(p, name="s"), 1.0, name="q")
with tf.Graph().as_default() as target:
    fresh = tf.constant(3.0)
    (out,) = tf.import_graph_def(source.as_graph_def(), {"p:0": fresh}, ["q:0"], name="copy")
    print(out.name, [op.name for op in target.get_operations() if op.type != "Const"])
    with tf.Session() as sess:
        print(sess.run(out), sess.run("copy/s:0"))
