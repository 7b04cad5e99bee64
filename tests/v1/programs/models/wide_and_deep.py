"""A wide and deep model of feature columns: buckets, vocabularies, crosses, hashed and embedded columns."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

rng = np.random.RandomState(25)
n = 60
jobs = np.array(["clerk", "baker", "pilot", "nurse"])
columns = {
    "age": rng.randint(18, 70, size=n).astype(np.float32),
    "hours": rng.normal(40, 8, size=n).astype(np.float32),
    "job": jobs[rng.randint(4, size=n)],
    "education": np.array(["school", "college", "none"])[rng.randint(3, size=n)],
}
labels = ((columns["age"] > 40) ^ (columns["job"] == "pilot")).astype(np.float32).reshape(-1, 1)

age = tf.feature_column.numeric_column("age")
hours = tf.feature_column.numeric_column("hours", normalizer_fn=lambda x: (x - 40.0) / 8.0)
age_buckets = tf.feature_column.bucketized_column(age, boundaries=[25, 30, 40, 50, 60])
education = tf.feature_column.categorical_column_with_vocabulary_list("education", ["school", "college"])
job = tf.feature_column.categorical_column_with_hash_bucket("job", hash_bucket_size=20)
wide = [age_buckets, education, job, tf.feature_column.crossed_column([age_buckets, "job"], hash_bucket_size=50)]
deep = [
    hours,
    tf.feature_column.bucketized_column(age, [35, 45]),
    tf.feature_column.indicator_column(education),
    tf.feature_column.embedding_column(job, dimension=3, initializer=tf.truncated_normal_initializer(seed=1)),
]
features = {k: tf.placeholder(tf.string if v.dtype.kind == "U" else tf.float32, [None], k) for k, v in columns.items()}
target = tf.placeholder(tf.float32, [None, 1])
linear_logits = tf.feature_column.linear_model(features, wide)
with tf.variable_scope("dnn"):
    net = tf.feature_column.input_layer(features, deep)
    print("input layer", net.shape.as_list())
    for i, units in enumerate([8, 4]):
        net = tf.layers.dense(net, units, tf.nn.relu, kernel_initializer=tf.glorot_uniform_initializer(seed=i + 2))
    dnn_logits = tf.layers.dense(net, 1, kernel_initializer=tf.glorot_uniform_initializer(seed=4))
logits = linear_logits + dnn_logits
loss = tf.losses.sigmoid_cross_entropy(target, logits)
for v in tf.trainable_variables():
    print(v.name, v.shape.as_list())
dnn_vars = tf.trainable_variables("dnn/")
train_op = tf.group(
    tf.train.FtrlOptimizer(0.3, l1_regularization_strength=0.001).minimize(
        loss, var_list=tf.trainable_variables("linear_model/")
    ),
    tf.train.ProximalAdagradOptimizer(0.1, l2_regularization_strength=1e-4).minimize(loss, var_list=dnn_vars),
)
auc, auc_update = tf.metrics.auc(target, tf.sigmoid(logits))
with tf.Session() as sess:
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
    feed = {features[k]: v for k, v in columns.items()}
    feed[target] = labels
    for step in range(12):
        value, _ = sess.run([loss, train_op], feed)
        if step % 4 == 3:
            print(step, "loss %.5f" % value)
    sess.run(auc_update, feed)
    print("auc %.4f" % sess.run(auc))
