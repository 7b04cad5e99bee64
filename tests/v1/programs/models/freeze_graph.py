"""A trained graph frozen to constants by `graph_util`, written, read and imported; its inputs replaced."""

import os
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

folder = tempfile.mkdtemp()
rng = np.random.RandomState(29)
xs = rng.normal(size=(12, 6, 6, 2)).astype(np.float32)
with tf.Graph().as_default() as graph, tf.Session(graph=graph) as sess:
    x = tf.placeholder(tf.float32, [None, 6, 6, 2], name="input")
    net = tf.layers.conv2d(x, 4, 3, kernel_initializer=tf.glorot_uniform_initializer(seed=1), name="conv")
    net = tf.nn.relu6(tf.layers.batch_normalization(net, training=False, name="bn"))
    net = tf.reduce_mean(net, [1, 2])
    logits = tf.layers.dense(net, 3, kernel_initializer=tf.glorot_uniform_initializer(seed=2), name="logits")
    tf.nn.softmax(logits, name="softmax")
    loss = tf.reduce_mean(tf.square(logits))
    train = tf.train.MomentumOptimizer(0.1, 0.5).minimize(loss)
    sess.run(tf.global_variables_initializer())
    for _ in range(3):
        sess.run(train, {x: xs})
    wanted = sess.run("softmax:0", {x: xs})
    frozen = tf.graph_util.convert_variables_to_constants(sess, graph.as_graph_def(), ["softmax"])
    frozen = tf.graph_util.remove_training_nodes(frozen, protected_nodes=["softmax"])
    tf.train.write_graph(frozen, folder, "frozen.pb", as_text=False)
    tf.train.write_graph(frozen, folder, "frozen.pbtxt")
print(sorted(os.listdir(folder)), np.round(wanted[0], 5))
print({n.op for n in frozen.node} & {"VariableV2", "VarHandleOp"})

graph_def = tf.GraphDef()
with tf.gfile.FastGFile(os.path.join(folder, "frozen.pb"), "rb") as f:
    graph_def.ParseFromString(f.read())
with tf.Graph().as_default() as graph:
    y = tf.placeholder(tf.float32, [None, 2, 36], name="other")
    moved = tf.reshape(tf.transpose(y, [0, 2, 1]), [-1, 6, 6, 2])
    (softmax,) = tf.import_graph_def(graph_def, input_map={"input:0": moved}, return_elements=["softmax:0"], name="net")
    print(softmax.name, len(tf.global_variables()), graph.get_operation_by_name("net/softmax").type)
    with tf.Session() as sess:
        found = sess.run(softmax, {y: xs.reshape(12, 36, 2).transpose(0, 2, 1)})
        middle = sess.run("net/logits/BiasAdd:0", {moved: xs})
    print("equal", bool(np.allclose(found, wanted, atol=1e-6)), np.round(middle[0], 5))
part = tf.graph_util.extract_sub_graph(graph_def, ["conv/Conv2D"])
print([n.name for n in part.node if n.op != "Identity"])
