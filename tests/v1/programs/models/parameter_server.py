"""Asynchronous training in the manner of distributed TensorFlow: a cluster, a device setter, a Supervisor."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

cluster = tf.train.ClusterSpec({"ps": ["ps0.example:2222", "ps1.example:2222"], "worker": ["w0.example:2222"]})
print(cluster.jobs, cluster.num_tasks("ps"), cluster.task_address("worker", 0), sorted(cluster.as_dict()))
with tf.Graph().as_default() as graph:
    with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device="/job:worker/task:0")):
        w = tf.get_variable("w", [3, 1])
        b = tf.get_variable("b", [1])
        step = tf.train.get_or_create_global_step()
        total = tf.reduce_sum(w) + b
    print([(v.op.name, v.device) for v in (w, b, step)], total.device)

server = tf.train.Server.create_local_server()
print(server.server_def.job_name, server.server_def.task_index, server.server_def.cluster.job[0].name)
is_chief = True
rng = np.random.RandomState(32)
with tf.Graph().as_default():
    setter = tf.train.replica_device_setter(0, worker_device="/job:local/task:0")
    with tf.device(setter):
        x = tf.placeholder(tf.float32, [None, 3])
        y = tf.placeholder(tf.float32, [None, 1])
        w = tf.get_variable("weights", [3, 1], initializer=tf.zeros_initializer())
        b = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
        loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
        global_step = tf.train.get_or_create_global_step()
        train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=global_step)
        init_op = tf.global_variables_initializer()
    sv = tf.train.Supervisor(
        is_chief=is_chief, logdir=None, init_op=init_op, global_step=global_step, summary_op=None, saver=None
    )
    with sv.prepare_or_wait_for_session(server.target) as sess:
        while not sv.should_stop() and sess.run(global_step) < 20:
            xs = rng.normal(size=(16, 3))
            ys = xs @ [[1.0], [-2.0], [0.5]] + 0.3
            _, value = sess.run([train_op, loss], {x: xs, y: ys})
            if sess.run(global_step) % 5 == 0:
                print("step", sess.run(global_step), "loss %.5f" % value)
        print(np.round(sess.run(w).ravel(), 4), sess.run(b).round(4))
    sv.stop()
