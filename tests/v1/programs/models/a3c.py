"""A3C with threads, a Coordinator, shared RMSProp and a network for each worker."""

import threading

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
N_S, N_A, GAMMA, ENTROPY_BETA = 4, 2, 0.9, 0.01
GLOBAL_NET_SCOPE = "Global_Net"


class ACNet:
    def __init__(self, scope, globalAC=None):
        if scope == GLOBAL_NET_SCOPE:
            with tf.variable_scope(scope):
                self.s = tf.placeholder(tf.float32, [None, N_S], "S")
                self.a_params, self.c_params = self._build_net(scope)[-2:]
        else:
            with tf.variable_scope(scope):
                self.s = tf.placeholder(tf.float32, [None, N_S], "S")
                self.a_his = tf.placeholder(
                    tf.int32,
                    [
                        None,
                    ],
                    "A",
                )
                self.v_target = tf.placeholder(tf.float32, [None, 1], "Vtarget")
                self.a_prob, self.v, self.a_params, self.c_params = self._build_net(scope)
                td = tf.subtract(self.v_target, self.v, name="TD_error")
                with tf.name_scope("c_loss"):
                    self.c_loss = tf.reduce_mean(tf.square(td))
                with tf.name_scope("a_loss"):
                    log_prob = tf.reduce_sum(
                        tf.log(self.a_prob + 1e-5) * tf.one_hot(self.a_his, N_A, dtype=tf.float32),
                        axis=1,
                        keep_dims=True,
                    )
                    exp_v = log_prob * tf.stop_gradient(td)
                    entropy = -tf.reduce_sum(self.a_prob * tf.log(self.a_prob + 1e-5), axis=1, keep_dims=True)
                    self.exp_v = ENTROPY_BETA * entropy + exp_v
                    self.a_loss = tf.reduce_mean(-self.exp_v)
                with tf.name_scope("local_grad"):
                    self.a_grads = tf.gradients(self.a_loss, self.a_params)
                    self.c_grads = tf.gradients(self.c_loss, self.c_params)
            with tf.name_scope("sync"):
                with tf.name_scope("pull"):
                    self.pull_a_params_op = [l_p.assign(g_p) for l_p, g_p in zip(self.a_params, globalAC.a_params)]
                    self.pull_c_params_op = [l_p.assign(g_p) for l_p, g_p in zip(self.c_params, globalAC.c_params)]
                with tf.name_scope("push"):
                    self.update_a_op = OPT_A.apply_gradients(zip(self.a_grads, globalAC.a_params))
                    self.update_c_op = OPT_C.apply_gradients(zip(self.c_grads, globalAC.c_params))

    def _build_net(self, scope):
        w_init = tf.random_normal_initializer(0.0, 0.1)
        with tf.variable_scope("actor"):
            l_a = tf.layers.dense(self.s, 20, tf.nn.relu6, kernel_initializer=w_init, name="la")
            a_prob = tf.layers.dense(l_a, N_A, tf.nn.softmax, kernel_initializer=w_init, name="ap")
        with tf.variable_scope("critic"):
            l_c = tf.layers.dense(self.s, 10, tf.nn.relu6, kernel_initializer=w_init, name="lc")
            v = tf.layers.dense(l_c, 1, kernel_initializer=w_init, name="v")
        a_params = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope + "/actor")
        c_params = tf.get_collection(tf.GraphKeys.TRAINABLE_VARIABLES, scope=scope + "/critic")
        return a_prob, v, a_params, c_params

    def update_global(self, feed_dict):
        SESS.run([self.update_a_op, self.update_c_op], feed_dict)

    def pull_global(self):
        SESS.run([self.pull_a_params_op, self.pull_c_params_op])

    def choose_action(self, s, rng):
        prob_weights = SESS.run(self.a_prob, feed_dict={self.s: s[np.newaxis, :]})
        return rng.choice(range(prob_weights.shape[1]), p=prob_weights.ravel())


class Worker:
    def __init__(self, name, globalAC, seed):
        self.rng = np.random.RandomState(seed)
        self.name = name
        self.AC = ACNet(name, globalAC)

    def work(self, turn, nxt):
        buffer = []
        for episode in range(4):
            turn.acquire()
            s, total = self.rng.normal(size=N_S), 0.0
            for _t in range(8):
                a = self.AC.choose_action(s, self.rng)
                r = float(a == int(s[0] > 0))
                buffer.append((s, a, r))
                s, total = self.rng.normal(size=N_S), total + r
            v_s_ = SESS.run(self.AC.v, {self.AC.s: s[np.newaxis, :]})[0, 0]
            targets = []
            for _, _, r in buffer[::-1]:
                v_s_ = r + GAMMA * v_s_
                targets.append(v_s_)
            targets.reverse()
            self.AC.update_global(
                {
                    self.AC.s: np.vstack([b[0] for b in buffer]),
                    self.AC.a_his: np.array([b[1] for b in buffer]),
                    self.AC.v_target: np.vstack(targets),
                }
            )
            del buffer[:]
            self.AC.pull_global()
            with LOCK:
                LOG.append((self.name, episode, total))
            nxt.release()
            if COORD.should_stop():
                break
        if self.name == "W_1":
            COORD.request_stop()


tf.set_random_seed(2)
LOCK, LOG = threading.Lock(), []
with tf.device("/cpu:0"):
    OPT_A = tf.train.RMSPropOptimizer(0.01, name="RMSPropA")
    OPT_C = tf.train.RMSPropOptimizer(0.01, name="RMSPropC")
    GLOBAL_AC = ACNet(GLOBAL_NET_SCOPE)
    workers = [Worker("W_%i" % i, GLOBAL_AC, i) for i in range(2)]
SESS = tf.Session()
COORD = tf.train.Coordinator()
SESS.run(tf.global_variables_initializer())
turns = [threading.Semaphore(1), threading.Semaphore(0)]
threads = []
for i, worker in enumerate(workers):
    t = threading.Thread(target=lambda i=i, w=worker: w.work(turns[i], turns[1 - i]))
    t.start()
    threads.append(t)
COORD.join(threads)
for row in LOG:
    print(*row)
print(sum(float(np.abs(p).sum()) for p in SESS.run(GLOBAL_AC.a_params)).__round__(3))
print(COORD.should_stop(), [v.name for v in tf.global_variables() if "RMSProp" in v.name][:4], OPT_A.get_slot_names())


class Boom(Exception):
    pass


coord = tf.train.Coordinator(clean_stop_exception_types=(tf.errors.OutOfRangeError,))


def bad():
    with coord.stop_on_exception():
        raise Boom("worker died")


t = threading.Thread(target=bad)
t.start()
try:
    coord.join([t], stop_grace_period_secs=5)
except Boom as e:
    print("raised", e)
loop = tf.train.LooperThread.loop(tf.train.Coordinator(), None, target=lambda: None)
print(type(loop).__name__)
loop.coord if hasattr(loop, "coord") else None
loop._coord.request_stop()
loop.join()
