"""A recommender by factors and biases: sparse gradients, two optimizers."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

n_users, n_items, dim = 20, 15, 4
rng = np.random.RandomState(24)
users, items = rng.randint(n_users, size=300), rng.randint(n_items, size=300)
likes = rng.normal(size=(n_users, 2)) @ rng.normal(size=(2, n_items)) + rng.normal(size=n_users)[:, None]
rates = (3 + likes[users, items]).clip(1, 5).astype(np.float32)


def inference_svd(user_batch, item_batch, device="/cpu:0"):
    with tf.device(device):
        bias_global = tf.get_variable("bias_global", shape=[])
        w_bias_user = tf.get_variable("embd_bias_user", shape=[n_users])
        w_bias_item = tf.get_variable("embd_bias_item", shape=[n_items])
        bias_user = tf.nn.embedding_lookup(w_bias_user, user_batch, name="bias_user")
        bias_item = tf.nn.embedding_lookup(w_bias_item, item_batch, name="bias_item")
        init = tf.truncated_normal_initializer(stddev=0.3, seed=1)
        w_user = tf.get_variable("embd_user", shape=[n_users, dim], initializer=init)
        w_item = tf.get_variable("embd_item", shape=[n_items, dim], initializer=init)
        embd_user = tf.nn.embedding_lookup(w_user, user_batch, name="embedding_user")
        embd_item = tf.nn.embedding_lookup(w_item, item_batch, name="embedding_item")
        infer = tf.reduce_sum(tf.multiply(embd_user, embd_item), 1)
        infer = tf.add(infer, bias_global)
        infer = tf.add(infer, bias_user)
        infer = tf.add(infer, bias_item, name="svd_inference")
        regularizer = tf.add(tf.nn.l2_loss(embd_user), tf.nn.l2_loss(embd_item), name="svd_regularizer")
    return infer, regularizer


tf.set_random_seed(13575)
user_batch = tf.placeholder(tf.int32, shape=[None], name="id_user")
item_batch = tf.placeholder(tf.int32, shape=[None], name="id_item")
rate_batch = tf.placeholder(tf.float32, shape=[None])
infer, regularizer = inference_svd(user_batch, item_batch)
cost_l2 = tf.nn.l2_loss(tf.subtract(infer, rate_batch))
cost = cost_l2 + tf.constant(0.05, dtype=tf.float32, shape=[], name="l2") * regularizer
global_step = tf.train.create_global_step()
biases = [v for v in tf.trainable_variables() if "bias" in v.name]
factors = [v for v in tf.trainable_variables() if v not in biases]
grads = tf.gradients(cost, biases + factors)
print([type(g).__name__ == "IndexedSlices" for g in grads])
opt1, opt2 = tf.train.FtrlOptimizer(0.5), tf.train.AdagradOptimizer(0.3)
train_op = tf.group(
    opt1.apply_gradients(zip(grads[: len(biases)], biases)),
    opt2.apply_gradients(zip(grads[len(biases) :], factors), global_step=global_step),
)
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for epoch in range(6):
        errors = []
        for i in range(0, 300, 60):
            feed = {user_batch: users[i : i + 60], item_batch: items[i : i + 60], rate_batch: rates[i : i + 60]}
            _, pred = sess.run([train_op, infer], feed)
            errors.append(np.power(np.clip(pred, 1.0, 5.0) - rates[i : i + 60], 2))
        print(
            "epoch",
            epoch,
            "train error %.5f" % np.sqrt(np.mean(errors)),
            "step",
            tf.train.global_step(sess, global_step),
        )
