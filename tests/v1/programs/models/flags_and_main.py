"""A program with flags and a `main` for `tf.app.run`, logging, `set_verbosity` and an exit status."""

import sys

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

FLAGS = tf.app.flags.FLAGS
for name in ("model_steps", "model_rate", "model_name", "model_verbose", "model_sizes", "model_kind"):
    if name in FLAGS:
        delattr(FLAGS, name)
tf.app.flags.DEFINE_integer("model_steps", 10, "Number of steps to run trainer.")
tf.app.flags.DEFINE_float("model_rate", 0.1, "Initial learning rate.")
tf.app.flags.DEFINE_string("model_name", "none", "Name.")
tf.app.flags.DEFINE_boolean("model_verbose", False, "If true, prints each step.")
tf.app.flags.DEFINE_list("model_sizes", ["4", "2"], "Sizes of layers.")
tf.app.flags.DEFINE_enum("model_kind", "sgd", ["sgd", "momentum"], "Optimizer.")


def main(argv):
    print(argv[1:], FLAGS.model_steps, FLAGS.model_rate, FLAGS.model_name, FLAGS.model_sizes, FLAGS.model_kind)
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.logging.info("not shown")
    optimizers = {
        "sgd": tf.train.GradientDescentOptimizer(FLAGS.model_rate),
        "momentum": tf.train.MomentumOptimizer(FLAGS.model_rate, 0.5),
    }
    with tf.Graph().as_default(), tf.Session() as sess:
        v = tf.Variable(tf.fill([int(n) for n in FLAGS.model_sizes], 3.0))
        loss = tf.reduce_sum(tf.square(v))
        train = optimizers[FLAGS.model_kind].minimize(loss)
        tf.global_variables_initializer().run()
        for i in range(FLAGS.model_steps):
            sess.run(train)
            if FLAGS.model_verbose:
                print(i, "%.6f" % sess.run(loss))
    FLAGS.model_name = "changed"
    print(FLAGS.model_name, FLAGS["model_name"].default, tf.logging.get_verbosity() == tf.logging.ERROR)
    return 3


given = ["program", "--model_steps=4", "--model_rate", "0.05", "--model_verbose", "--model_sizes=2,3", "rest"]
try:
    tf.app.run(main=main, argv=[*given, "--model_kind=momentum"])
except SystemExit as e:
    print("exit", e.code)
sys.stdout.flush()
