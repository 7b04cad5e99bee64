"""WaveNet: dilated causal convolutions with gates, mu-law, fast generation with queues of states."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

QUANT, RES, DIL, SKIP = 16, 8, 8, 12
DILATIONS = [1, 2, 4, 1, 2, 4]


def mu_law_encode(audio, quantization_channels):
    with tf.name_scope("encode"):
        mu = tf.to_float(quantization_channels - 1)
        safe_audio_abs = tf.minimum(tf.abs(audio), 1.0)
        magnitude = tf.log1p(mu * safe_audio_abs) / tf.log1p(mu)
        signal = tf.sign(audio) * magnitude
        return tf.to_int32((signal + 1) / 2 * mu + 0.5)


def mu_law_decode(output, quantization_channels):
    with tf.name_scope("decode"):
        mu = quantization_channels - 1
        signal = 2 * (tf.to_float(output) / mu) - 1
        magnitude = (1 / mu) * ((1 + mu) ** abs(signal) - 1)
        return tf.sign(signal) * magnitude


def time_to_batch(value, dilation, name=None):
    with tf.name_scope("time_to_batch"):
        shape = tf.shape(value)
        pad_elements = dilation - 1 - (shape[1] + dilation - 1) % dilation
        padded = tf.pad(value, [[0, 0], [0, pad_elements], [0, 0]])
        reshaped = tf.reshape(padded, [-1, dilation, shape[2]])
        transposed = tf.transpose(reshaped, perm=[1, 0, 2])
        return tf.reshape(transposed, [shape[0] * dilation, -1, shape[2]])


def batch_to_time(value, dilation, name=None):
    with tf.name_scope("batch_to_time"):
        shape = tf.shape(value)
        prepared = tf.reshape(value, [dilation, -1, shape[2]])
        transposed = tf.transpose(prepared, perm=[1, 0, 2])
        return tf.reshape(transposed, [tf.div(shape[0], dilation), -1, shape[2]])


def causal_conv(value, filter_, dilation, name="causal_conv"):
    with tf.name_scope(name):
        filter_width = tf.shape(filter_)[0]
        if dilation > 1:
            transformed = time_to_batch(value, dilation)
            conv = tf.nn.conv1d(transformed, filter_, stride=1, padding="VALID")
            restored = batch_to_time(conv, dilation)
        else:
            restored = tf.nn.conv1d(value, filter_, stride=1, padding="VALID")
        out_width = tf.shape(value)[1] - (filter_width - 1) * dilation
        return tf.slice(restored, [0, 0, 0], [-1, out_width, -1])


def create_variable(name, shape, seed):
    return tf.Variable(tf.random_normal(shape, stddev=0.3, seed=seed), name=name)


class WaveNet:
    def __init__(self):
        self.vars = {}
        with tf.variable_scope("wavenet"):
            with tf.variable_scope("causal_layer"):
                self.causal = create_variable("filter", [2, QUANT, RES], 1)
            self.stack = []
            with tf.variable_scope("dilated_stack"):
                for i, _dilation in enumerate(DILATIONS):
                    with tf.variable_scope(f"layer{i}"):
                        cur = {}
                        cur["filter"] = create_variable("filter", [2, RES, DIL], 10 * i + 2)
                        cur["gate"] = create_variable("gate", [2, RES, DIL], 10 * i + 3)
                        cur["dense"] = create_variable("dense", [1, DIL, RES], 10 * i + 4)
                        cur["skip"] = create_variable("skip", [1, DIL, SKIP], 10 * i + 5)
                        self.stack.append(cur)
            with tf.variable_scope("postprocessing"):
                self.post1 = create_variable("postprocess1", [1, SKIP, SKIP], 91)
                self.post2 = create_variable("postprocess2", [1, SKIP, QUANT], 92)

    def network(self, batch):
        outputs = []
        cur = causal_conv(batch, self.causal, 1)
        width = tf.shape(batch)[1] - 1 - sum(DILATIONS)
        for i, dilation in enumerate(DILATIONS):
            v = self.stack[i]
            out = tf.tanh(causal_conv(cur, v["filter"], dilation)) * tf.sigmoid(causal_conv(cur, v["gate"], dilation))
            transformed = tf.nn.conv1d(out, v["dense"], stride=1, padding="SAME", name="dense")
            skip_cut = tf.shape(out)[1] - width
            outputs.append(tf.nn.conv1d(tf.slice(out, [0, skip_cut, 0], [-1, -1, -1]), v["skip"], 1, "SAME"))
            input_cut = tf.shape(cur)[1] - tf.shape(transformed)[1]
            cur = tf.slice(cur, [0, input_cut, 0], [-1, -1, -1]) + transformed
            tf.summary.histogram(f"layer{i}", out)
        total = sum(outputs)
        conv1 = tf.nn.conv1d(tf.nn.relu(total), self.post1, stride=1, padding="SAME")
        return tf.nn.conv1d(tf.nn.relu(conv1), self.post2, stride=1, padding="SAME")

    def loss(self, audio):
        encoded = mu_law_encode(audio, QUANT)
        one_hot = tf.one_hot(encoded, depth=QUANT, dtype=tf.float32)
        raw = self.network(tf.slice(one_hot, [0, 0, 0], [-1, tf.shape(one_hot)[1] - 1, -1]))
        target = tf.slice(one_hot, [0, 2 + sum(DILATIONS), 0], [-1, -1, -1])
        loss = tf.nn.softmax_cross_entropy_with_logits(
            logits=tf.reshape(raw, [-1, QUANT]), labels=tf.reshape(target, [-1, QUANT])
        )
        l2 = tf.add_n([tf.nn.l2_loss(v) for v in tf.trainable_variables() if "bias" not in v.name])
        return tf.reduce_mean(loss), tf.reduce_mean(loss) + 1e-4 * l2

    def generate(self, sample):
        """Fast generation: FIFO queues of previous states, one per layer."""
        init_ops, push_ops, outputs = [], [], []

        def step(value, dilation, channels, filt):
            q = tf.FIFOQueue(dilation, dtypes=tf.float32, shapes=(1, channels))
            init_ops.append(q.enqueue_many(tf.zeros((dilation, 1, channels))))
            state = q.dequeue()
            push_ops.append(q.enqueue([value]))
            return state

        cur = tf.one_hot([sample], QUANT)
        past = step(cur, 1, QUANT, self.causal)
        cur = tf.matmul(past, self.causal[0, :, :]) + tf.matmul(cur, self.causal[1, :, :])
        for i, d in enumerate(DILATIONS):
            v = self.stack[i]
            past = step(cur, d, RES, None)
            f = tf.matmul(past, v["filter"][0]) + tf.matmul(cur, v["filter"][1])
            g = tf.matmul(past, v["gate"][0]) + tf.matmul(cur, v["gate"][1])
            out = tf.tanh(f) * tf.sigmoid(g)
            outputs.append(tf.matmul(out, v["skip"][0]))
            cur = cur + tf.matmul(out, v["dense"][0])
        h = tf.matmul(tf.nn.relu(tf.add_n(outputs)), self.post1[0])
        logits = tf.matmul(tf.nn.relu(h), self.post2[0])
        proba = tf.cast(tf.nn.softmax(tf.cast(logits, tf.float64)), tf.float32)
        return tf.reshape(proba, [-1]), init_ops, push_ops


net = WaveNet()
audio = tf.placeholder(tf.float32, [None, None])
ce, loss = net.loss(audio)
global_step = tf.train.create_global_step()
opt = tf.train.AdamOptimizer(learning_rate=1e-2, epsilon=1e-4)
train = opt.minimize(loss, var_list=tf.trainable_variables(), global_step=global_step)
sample = tf.placeholder(tf.int32, [])
proba, init_ops, push_ops = net.generate(sample)

t = np.arange(64)
data = np.stack([np.sin(t * 0.4 + p) * 0.8 for p in (0.0, 1.0, 2.0)])
with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    print(sess.run(mu_law_encode(tf.constant(data[0, :8], tf.float32), QUANT)))
    print(sess.run(mu_law_decode(tf.range(0, 16, 3), QUANT)))
    for i in range(15):
        _, l, s = sess.run([train, ce, global_step], {audio: data})
        if i % 5 == 4:
            print(f"step {s} loss {l:.4f}")
    sess.run(init_ops)
    x, wave = 8, []
    for _ in range(12):
        p, _ = sess.run([proba, push_ops], {sample: x})
        x = int(np.argmax(p))
        wave.append(x)
    print(wave)
