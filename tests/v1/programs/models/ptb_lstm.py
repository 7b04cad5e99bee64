"""A language model after the Penn Treebank tutorial: epochs, clipping, rate decay, perplexity."""

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()


class SmallConfig:
    init_scale, learning_rate, max_grad_norm = 0.1, 1.0, 5
    num_layers, num_steps, hidden_size, batch_size, vocab_size = 2, 5, 16, 4, 20
    max_epoch, max_max_epoch, keep_prob, lr_decay = 1, 3, 1.0, 0.5


class PTBInput:
    def __init__(self, config, data, name=None):
        self.batch_size, self.num_steps = config.batch_size, config.num_steps
        self.epoch_size = ((len(data) // self.batch_size) - 1) // self.num_steps
        with tf.name_scope(name, "PTBProducer", [data]):
            raw = tf.convert_to_tensor(data, name="raw_data", dtype=tf.int32)
            batch_len = tf.size(raw) // self.batch_size
            rows = tf.reshape(raw[0 : self.batch_size * batch_len], [self.batch_size, batch_len])
            epoch_size = (batch_len - 1) // self.num_steps
            assertion = tf.assert_positive(epoch_size, message="epoch_size == 0, decrease batch_size or num_steps")
            with tf.control_dependencies([assertion]):
                epoch_size = tf.identity(epoch_size, name="epoch_size")
            i = tf.train.range_input_producer(epoch_size, shuffle=False).dequeue()
            x = tf.strided_slice(rows, [0, i * self.num_steps], [self.batch_size, (i + 1) * self.num_steps])
            x.set_shape([self.batch_size, self.num_steps])
            y = tf.strided_slice(rows, [0, i * self.num_steps + 1], [self.batch_size, (i + 1) * self.num_steps + 1])
            y.set_shape([self.batch_size, self.num_steps])
            self.input_data, self.targets = x, y


class PTBModel:
    def __init__(self, is_training, config, input_):
        self.input = input_
        size = config.hidden_size
        with tf.device("/cpu:0"):
            embedding = tf.get_variable("embedding", [config.vocab_size, size], dtype=tf.float32)
            inputs = tf.nn.embedding_lookup(embedding, input_.input_data)
        cell = tf.nn.rnn_cell.MultiRNNCell(
            [tf.nn.rnn_cell.BasicLSTMCell(size, forget_bias=0.0) for _ in range(config.num_layers)]
        )
        self.initial_state = cell.zero_state(config.batch_size, tf.float32)
        state, outputs = self.initial_state, []
        with tf.variable_scope("RNN"):
            for time_step in range(config.num_steps):
                if time_step > 0:
                    tf.get_variable_scope().reuse_variables()
                cell_output, state = cell(inputs[:, time_step, :], state)
                outputs.append(cell_output)
        output = tf.reshape(tf.concat(outputs, 1), [-1, size])
        softmax_w = tf.get_variable("softmax_w", [size, config.vocab_size])
        softmax_b = tf.get_variable("softmax_b", [config.vocab_size])
        logits = tf.nn.xw_plus_b(output, softmax_w, softmax_b)
        loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(input_.targets, [-1]), logits=logits)
        self.cost = tf.reduce_sum(loss) / config.batch_size
        self.final_state = state
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


def run_epoch(session, model, eval_op=None):
    costs, iters = 0.0, 0
    state = session.run(model.initial_state)
    fetches = {"cost": model.cost, "final_state": model.final_state}
    if eval_op is not None:
        fetches["eval_op"] = eval_op
    for _ in range(model.input.epoch_size):
        feed_dict = {}
        for i, (c, h) in enumerate(model.initial_state):
            feed_dict[c] = state[i].c
            feed_dict[h] = state[i].h
        vals = session.run(fetches, feed_dict)
        state = vals["final_state"]
        costs += vals["cost"]
        iters += model.input.num_steps
    return np.exp(costs / iters)


rng = np.random.RandomState(8)
words = (np.arange(240) * 3 + rng.randint(2, size=240)) % 20
config = SmallConfig()
with tf.Graph().as_default():
    initializer = tf.random_uniform_initializer(-config.init_scale, config.init_scale, seed=2)
    with tf.name_scope("Train"):
        train_input = PTBInput(config, words, name="TrainInput")
        with tf.variable_scope("Model", reuse=None, initializer=initializer):
            m = PTBModel(True, config, train_input)
        tf.summary.scalar("Training Loss", m.cost)
    with tf.name_scope("Valid"):
        valid_input = PTBInput(config, words[:80], name="ValidInput")
        with tf.variable_scope("Model", reuse=True, initializer=initializer):
            mvalid = PTBModel(False, config, valid_input)
    sv = tf.train.Supervisor(logdir=None, summary_op=None)
    with sv.managed_session() as session:
        for i in range(config.max_max_epoch):
            lr_decay = config.lr_decay ** max(i + 1 - config.max_epoch, 0.0)
            session.run(m.lr_update, {m.new_lr: config.learning_rate * lr_decay})
            train_perplexity = run_epoch(session, m, eval_op=m.train_op)
            print("Epoch: %d Learning rate: %.3f Train Perplexity: %.3f" % (i + 1, session.run(m.lr), train_perplexity))
            print("Epoch: %d Valid Perplexity: %.3f" % (i + 1, run_epoch(session, mvalid)))
