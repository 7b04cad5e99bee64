"""Capsules: routing by agreement, margin loss, reconstruction of the masked capsule."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

epsilon = 1e-9
iter_routing, num_classes, batch_size = 3, 3, 6


def squash(vector, axis=-2):
    vec_squared_norm = tf.reduce_sum(tf.square(vector), axis, keep_dims=True)
    scalar_factor = vec_squared_norm / (1 + vec_squared_norm) / tf.sqrt(vec_squared_norm + epsilon)
    return scalar_factor * vector


def routing(input, b_IJ, num_outputs=num_classes, num_dims=6):
    input_shape = input.get_shape().as_list()
    W = tf.get_variable(
        "Weight",
        shape=[1, input_shape[1], num_dims * num_outputs, *input_shape[-2:]],
        dtype=tf.float32,
        initializer=tf.random_normal_initializer(stddev=0.1, seed=4),
    )
    biases = tf.get_variable("bias", shape=(1, 1, num_outputs, num_dims, 1), initializer=tf.zeros_initializer())
    input = tf.tile(input, [1, 1, num_dims * num_outputs, 1, 1])
    u_hat = tf.reduce_sum(W * input, axis=3, keepdims=True)
    u_hat = tf.reshape(u_hat, shape=[-1, input_shape[1], num_outputs, num_dims, 1])
    u_hat_stopped = tf.stop_gradient(u_hat, name="stop_gradient")
    for r_iter in range(iter_routing):
        with tf.variable_scope("iter_" + str(r_iter)):
            c_IJ = tf.nn.softmax(b_IJ, axis=2)
            if r_iter == iter_routing - 1:
                s_J = tf.multiply(c_IJ, u_hat)
                s_J = tf.reduce_sum(s_J, axis=1, keepdims=True) + biases
                v_J = squash(s_J)
            else:
                s_J = tf.multiply(c_IJ, u_hat_stopped)
                s_J = tf.reduce_sum(s_J, axis=1, keepdims=True) + biases
                v_J = squash(s_J)
                v_J_tiled = tf.tile(v_J, [1, input_shape[1], 1, 1, 1])
                u_produce_v = tf.reduce_sum(u_hat_stopped * v_J_tiled, axis=3, keepdims=True)
                b_IJ += u_produce_v
    return v_J


def k(seed):
    return tf.truncated_normal_initializer(stddev=0.2, seed=seed)


graph = tf.Graph()
with graph.as_default():
    X = tf.placeholder(tf.float32, shape=(batch_size, 8, 8, 1))
    labels = tf.placeholder(tf.int32, shape=(batch_size,))
    Y = tf.one_hot(labels, depth=num_classes, axis=1, dtype=tf.float32)
    with tf.variable_scope("Conv1_layer"):
        conv1 = tf.layers.conv2d(X, 8, 3, 1, padding="VALID", activation=tf.nn.relu, kernel_initializer=k(1))
    with tf.variable_scope("PrimaryCaps_layer"):
        caps = tf.layers.conv2d(conv1, 8, 3, 2, padding="VALID", activation=tf.nn.relu, kernel_initializer=k(2))
        caps = tf.reshape(caps, (batch_size, -1, 4, 1))
        caps = squash(caps)
        assert caps.get_shape() == [batch_size, 8, 4, 1], caps.get_shape()
    with tf.variable_scope("DigitCaps_layer"):
        inp = tf.reshape(caps, shape=(batch_size, -1, 1, caps.shape[-2].value, 1))
        with tf.variable_scope("routing"):
            b_IJ = tf.constant(np.zeros([batch_size, caps.shape[1].value, num_classes, 1, 1], dtype=np.float32))
            caps2 = tf.squeeze(routing(inp, b_IJ), axis=1)
    with tf.variable_scope("Masking"):
        v_length = tf.sqrt(tf.reduce_sum(tf.square(caps2), axis=2, keepdims=True) + epsilon)
        softmax_v = tf.nn.softmax(v_length, axis=1)
        argmax_idx = tf.reshape(tf.to_int32(tf.argmax(softmax_v, axis=1)), shape=(batch_size,))
        masked_v = tf.multiply(tf.squeeze(caps2), tf.reshape(Y, (-1, num_classes, 1)))
    with tf.variable_scope("Decoder"):
        fc = tf.layers.dense(tf.reshape(masked_v, (batch_size, -1)), 16, tf.nn.relu, kernel_initializer=k(5))
        decoded = tf.layers.dense(fc, 64, tf.sigmoid, kernel_initializer=k(6))
    max_l = tf.square(tf.maximum(0.0, 0.9 - v_length))
    max_r = tf.square(tf.maximum(0.0, v_length - 0.1))
    max_l, max_r = (tf.reshape(m, shape=(batch_size, -1)) for m in (max_l, max_r))
    L_c = Y * max_l + 0.5 * (1 - Y) * max_r
    margin_loss = tf.reduce_mean(tf.reduce_sum(L_c, axis=1))
    reconstruction_err = tf.reduce_mean(tf.squared_difference(decoded, tf.reshape(X, (batch_size, -1))))
    total_loss = margin_loss + 0.392 * reconstruction_err
    correct = tf.reduce_sum(tf.cast(tf.equal(labels, argmax_idx), tf.float32))
    train_summary = tf.summary.merge(
        [
            tf.summary.scalar("train/margin_loss", margin_loss),
            tf.summary.image("reconstruction_img", tf.reshape(decoded, (batch_size, 8, 8, 1)), 1),
            tf.summary.histogram("activation", v_length),
        ]
    )
    global_step = tf.Variable(0, name="global_step", trainable=False)
    train_op = tf.train.AdamOptimizer(0.01).minimize(total_loss, global_step=global_step)
    init = tf.global_variables_initializer()

rng = np.random.RandomState(0)
protos = rng.rand(num_classes, 8, 8, 1)
y = np.array([0, 1, 2, 0, 1, 2])
x = protos[y] + 0.1 * rng.rand(batch_size, 8, 8, 1)
with tf.Session(graph=graph, config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    sess.run(init)
    for step in range(30):
        _, m, r, acc, s = sess.run(
            [train_op, margin_loss, reconstruction_err, correct, train_summary], {X: x, labels: y}
        )
        if step % 10 == 9:
            print("step %d margin %.4f reconstruction %.4f correct %d" % (step, m, r, acc))
    proto = tf.Summary.FromString(s)
    print([v.tag for v in proto.value])
print([v.op.name for v in graph.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)])
