"""The Penn Treebank language model: block cells with dropout, a learning rate that decays, perplexity."""

import numpy as np
import tensorflow as tf


class Config:
    init_scale, learning_rate, max_grad_norm, num_layers = 0.3, 2.0, 5, 2
    num_steps, hidden_size, max_epoch, max_max_epoch = 6, 24, 8, 12
    keep_prob, lr_decay, batch_size, vocab_size = 0.9, 0.5, 4, 12


class PTBModel:
    def __init__(self, is_training, config):
        self.config = config
        self.input_data = tf.placeholder(tf.int32, [config.batch_size, config.num_steps])
        self.targets = tf.placeholder(tf.int32, [config.batch_size, config.num_steps])

        def make_cell():
            cell = tf.contrib.rnn.LSTMBlockCell(config.hidden_size, forget_bias=0.0)
            if is_training and config.keep_prob < 1:
                cell = tf.contrib.rnn.DropoutWrapper(cell, output_keep_prob=config.keep_prob)
            return cell

        cell = tf.contrib.rnn.MultiRNNCell([make_cell() for _ in range(config.num_layers)], state_is_tuple=True)
        self.initial_state = cell.zero_state(config.batch_size, tf.float32)
        embedding = tf.get_variable("embedding", [config.vocab_size, config.hidden_size])
        inputs = tf.nn.embedding_lookup(embedding, self.input_data)
        outputs, state = [], self.initial_state
        with tf.variable_scope("RNN"):
            for time_step in range(config.num_steps):
                if time_step > 0:
                    tf.get_variable_scope().reuse_variables()
                cell_output, state = cell(inputs[:, time_step, :], state)
                outputs.append(cell_output)
        output = tf.reshape(tf.concat(outputs, 1), [-1, config.hidden_size])
        softmax_w = tf.get_variable("softmax_w", [config.hidden_size, config.vocab_size])
        softmax_b = tf.get_variable("softmax_b", [config.vocab_size])
        logits = tf.nn.xw_plus_b(output, softmax_w, softmax_b)
        logits = tf.reshape(logits, [config.batch_size, config.num_steps, config.vocab_size])
        loss = tf.contrib.seq2seq.sequence_loss(
            logits,
            self.targets,
            tf.ones([config.batch_size, config.num_steps]),
            average_across_timesteps=False,
            average_across_batch=True,
        )
        self.cost, self.final_state = tf.reduce_sum(loss), state
        self.train_op = tf.no_op()
        if not is_training:
            return
        self.lr = tf.Variable(0.0, trainable=False)
        tvars = tf.trainable_variables()
        grads, _ = tf.clip_by_global_norm(tf.gradients(self.cost, tvars), config.max_grad_norm)
        self.train_op = tf.train.GradientDescentOptimizer(self.lr).apply_gradients(
            zip(grads, tvars), global_step=tf.train.get_or_create_global_step()
        )
        self.new_lr = tf.placeholder(tf.float32, shape=[], name="new_learning_rate")
        self.lr_update = tf.assign(self.lr, self.new_lr)


def run_epoch(session, model, data):
    costs, iters, state = 0.0, 0, session.run(model.initial_state)
    n, size = model.config.num_steps, model.config.batch_size
    rows = data[: len(data) // size * size].reshape(size, -1)
    for i in range((rows.shape[1] - 1) // n):
        feed = {model.input_data: rows[:, i * n : (i + 1) * n], model.targets: rows[:, i * n + 1 : (i + 1) * n + 1]}
        for k, (c, h) in enumerate(model.initial_state):
            feed[c], feed[h] = state[k].c, state[k].h
        cost, state, _ = session.run([model.cost, model.final_state, model.train_op], feed)
        costs, iters = costs + cost, iters + n
    return np.exp(costs / iters)


tf.set_random_seed(2)
words = np.arange(600) % 11 + (np.arange(600) % 7 == 0)
config = Config()
initializer = tf.random_uniform_initializer(-config.init_scale, config.init_scale)
with tf.name_scope("Train"), tf.variable_scope("Model", reuse=None, initializer=initializer):
    m = PTBModel(True, config)
with tf.name_scope("Valid"), tf.variable_scope("Model", reuse=True, initializer=initializer):
    valid = PTBModel(False, config)
for v in tf.trainable_variables():
    print(v.name, v.shape.as_list())
with tf.train.MonitoredTrainingSession() as session:
    perplexities = [run_epoch(session, valid, words)]
    for i in range(config.max_max_epoch):
        lr_decay = config.lr_decay ** max(i + 1 - config.max_epoch, 0.0)
        session.run(m.lr_update, {m.new_lr: config.learning_rate * lr_decay})
        run_epoch(session, m, words)
        perplexities.append(run_epoch(session, valid, words))
    print("at first", round(float(perplexities[0])))
    print("better", perplexities[-1] < 0.6 * perplexities[0])
