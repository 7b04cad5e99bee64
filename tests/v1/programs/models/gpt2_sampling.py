"""A small GPT-2 with cached keys and values; `while_loop` draws tokens by top k."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()

n_vocab, n_ctx, n_embd, n_head, n_layer = 17, 16, 12, 3, 2


def shape_list(x):
    static, dynamic = x.shape.as_list(), tf.shape(x)
    return [dynamic[i] if s is None else s for i, s in enumerate(static)]


def gelu(x):
    return 0.5 * x * (1 + tf.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * tf.pow(x, 3))))


def norm(x, scope, *, axis=-1, epsilon=1e-5):
    with tf.variable_scope(scope):
        n_state = x.shape[-1].value
        g = tf.get_variable("g", [n_state], initializer=tf.constant_initializer(1))
        b = tf.get_variable("b", [n_state], initializer=tf.constant_initializer(0))
        u = tf.reduce_mean(x, axis=axis, keepdims=True)
        s = tf.reduce_mean(tf.square(x - u), axis=axis, keepdims=True)
        return (x - u) * tf.rsqrt(s + epsilon) * g + b


def conv1d(x, scope, nf, *, w_init_stdev=0.4):
    with tf.variable_scope(scope):
        *start, nx = shape_list(x)
        w = tf.get_variable("w", [1, nx, nf], initializer=tf.random_normal_initializer(stddev=w_init_stdev, seed=nf))
        b = tf.get_variable("b", [nf], initializer=tf.constant_initializer(0))
        return tf.reshape(tf.matmul(tf.reshape(x, [-1, nx]), tf.reshape(w, [-1, nf])) + b, [*start, nf])


def attn(x, scope, past):
    def split_heads(x):
        *start, m = shape_list(x)
        return tf.transpose(tf.reshape(x, [*start, n_head, m // n_head]), [0, 2, 1, 3])

    with tf.variable_scope(scope):
        q, k, v = map(split_heads, tf.split(conv1d(x, "c_attn", n_embd * 3), 3, axis=2))
        present = tf.stack([k, v], axis=1)
        if past is not None:
            pk, pv = tf.unstack(past, axis=1)
            k, v = tf.concat([pk, k], axis=-2), tf.concat([pv, v], axis=-2)
        w = tf.matmul(q, k, transpose_b=True) * tf.rsqrt(tf.cast(v.shape[-1].value, x.dtype))
        _, _, nd, ns = shape_list(w)
        i, j = tf.range(nd)[:, None], tf.range(ns)
        b = tf.reshape(tf.cast(i >= j - ns + nd, w.dtype), [1, 1, nd, ns])
        a = tf.transpose(tf.matmul(tf.nn.softmax(w * b - tf.cast(1e10, w.dtype) * (1 - b)), v), [0, 2, 1, 3])
        *start, m, n = shape_list(a)
        return conv1d(tf.reshape(a, [*start, m * n]), "c_proj", n_embd), present


def model(X, past=None, reuse=False):
    with tf.variable_scope("model", reuse=reuse):
        batch, sequence = shape_list(X)
        wpe = tf.get_variable("wpe", [n_ctx, n_embd], initializer=tf.random_normal_initializer(stddev=0.1, seed=1))
        wte = tf.get_variable("wte", [n_vocab, n_embd], initializer=tf.random_normal_initializer(stddev=0.5, seed=2))
        past_length = 0 if past is None else tf.shape(past)[-2]
        at = tf.tile(tf.expand_dims(past_length + tf.range(sequence), 0), [batch, 1])
        h = tf.gather(wte, X) + tf.gather(wpe, at)
        presents = []
        pasts = tf.unstack(past, axis=1) if past is not None else [None] * n_layer
        for layer, one in enumerate(pasts):
            with tf.variable_scope("h%d" % layer):
                a, present = attn(norm(h, "ln_1"), "attn", one)
                h = h + a
                h = h + conv1d(gelu(conv1d(norm(h, "ln_2"), "c_fc", n_embd * 4)), "c_proj", n_embd)
            presents.append(present)
        h_flat = tf.reshape(norm(h, "ln_f"), [batch * sequence, n_embd])
        logits = tf.reshape(tf.matmul(h_flat, wte, transpose_b=True), [batch, sequence, n_vocab])
        return {"present": tf.stack(presents, axis=1), "logits": logits}


def top_k_logits(logits, k):
    values, _ = tf.nn.top_k(logits, k=k)
    min_values = values[:, -1, tf.newaxis]
    return tf.where(logits < min_values, tf.ones_like(logits, dtype=logits.dtype) * -1e10, logits)


def sample_sequence(length, context, temperature=1.0, top_k=0):
    def step(tokens, past=None):
        out = model(tokens, past=past, reuse=tf.AUTO_REUSE)
        presents = out["present"]
        presents.set_shape([None, n_layer, 2, n_head, None, n_embd // n_head])
        return out["logits"][:, :, :n_vocab], presents

    with tf.name_scope("sample_sequence"):
        _, context_presents = step(context[:, :-1])

        def body(past, prev, output):
            logits, presents = step(prev[:, tf.newaxis], past=past)
            logits = top_k_logits(logits[:, -1, :] / tf.to_float(temperature), k=top_k)
            samples = tf.multinomial(logits, num_samples=1, output_dtype=tf.int32, seed=6)
            return [
                tf.concat([past, presents], axis=-2),
                tf.squeeze(samples, axis=[1]),
                tf.concat([output, samples], axis=1),
            ]

        _, _, tokens = tf.while_loop(
            cond=lambda *args: True, body=body, maximum_iterations=length,
            loop_vars=[context_presents, context[:, -1], context],
            shape_invariants=[
                tf.TensorShape([None, n_layer, 2, n_head, None, n_embd // n_head]),
                tf.TensorShape([None]),
                tf.TensorShape([None, None]),
            ],
            back_prop=False,
        )  # fmt: skip
        return tokens


with tf.Session(graph=tf.Graph()) as sess:
    context = tf.placeholder(tf.int32, [2, None])
    greedy = sample_sequence(8, context, top_k=1)
    drawn = sample_sequence(8, context, temperature=0.7, top_k=5)
    whole = model(context, reuse=True)["logits"]
    sess.run(tf.global_variables_initializer())
    prompt = [[1, 2, 3], [4, 5, 6]]
    tokens = sess.run(greedy, feed_dict={context: prompt})
    print(tokens.tolist())
    print(sess.run(drawn, feed_dict={context: prompt})[:, 3:].tolist())
    logits = sess.run(whole, {context: tokens})
    print("cache agrees", bool((logits[:, 2:-1].argmax(-1) == tokens[:, 3:]).all()), np.round(logits[0, -1, :4], 4))
