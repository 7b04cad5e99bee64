"""Agent of deep Q-learning, as operations of a graph.

It has networks, a replay memory, exploration and updates. It is double Q-learning (van Hasselt et al., "Deep
Reinforcement Learning with Double Q-learning", 2016) with Adam and a target network that follows slowly. Two actions,
states of 4 numbers, and a reward of 1 in each step.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

HIDDEN, MEMORY, BATCH, DISCOUNT, RATE, FOLLOW = 64, 10_000, 64, 0.99, 5e-4, 0.01
WARM, EXPLORED, LEAST_CHANCE = 500, 4000, 0.02  # steps before learning, steps of falling exploration, its end


class Agent:
    """Networks, state of Adam and replay memory, as variables of the current graph."""

    def __init__(self, tf: Any, seed: int) -> None:
        self.tf, rng = tf, np.random.default_rng(seed)

        def variable(value: Any) -> Any:
            return tf.Variable(np.asarray(value, np.float32), trainable=False, use_resource=True)

        sizes, weights = (4, HIDDEN, HIDDEN, 2), []
        for n, m in itertools.pairwise(sizes):
            weights += [rng.standard_normal((n, m)) * np.sqrt(2 / n), np.zeros(m)]
        self.online, self.target = [variable(w) for w in weights], [variable(w) for w in weights]
        self.means, self.squares = [variable(0 * w) for w in weights], [variable(0 * w) for w in weights]
        self.updates = variable(0.0)
        # a row of the memory: a state, the next one, the action, and whether the episode goes on
        self.memory = variable(np.zeros((MEMORY, 10)))

    def values(self, weights: list[Any], states: Any) -> Any:
        """The values of both actions, [batch, 2]."""
        tf, (w1, b1, w2, b2, w3, b3) = self.tf, weights
        return tf.matmul(tf.nn.relu(tf.matmul(tf.nn.relu(tf.matmul(states, w1) + b1), w2) + b2), w3) + b3

    def act(self, state: Any, chance: Any) -> Any:
        """The best action, or with a chance a random one."""
        tf = self.tf
        best = tf.argmax(self.values([v.read_value() for v in self.online], state[None])[0], output_type=tf.int32)
        return tf.where(tf.random_uniform([]) < chance, tf.random_uniform([], 0, 2, tf.int32), best)

    def chance(self, n: Any) -> Any:
        """The chance of a random action in step `n`."""
        return self.tf.maximum(LEAST_CHANCE, 1 - (1 - LEAST_CHANCE) * self.tf.cast(n, self.tf.float32) / EXPLORED)

    def remember(self, n: Any, state: Any, action: Any, after: Any, goes_on: Any) -> Any:
        tf = self.tf
        row = tf.concat([state, after, tf.stack([tf.cast(action, tf.float32), tf.cast(goes_on, tf.float32)])], 0)
        return tf.scatter_update(self.memory, n % MEMORY, row)

    def learn(self, n: Any) -> Any:
        """Updates the weights by a batch of the memory's `n` rows; returns the loss."""
        tf = self.tf
        rows = tf.gather(self.memory, tf.random_uniform([BATCH], 0, tf.minimum(n, MEMORY), tf.int32))
        states, after, action, goes_on = rows[:, :4], rows[:, 4:8], tf.cast(rows[:, 8], tf.int32), rows[:, 9]
        online, target = ([v.read_value() for v in vs] for vs in (self.online, self.target))
        best = tf.argmax(self.values(online, after), 1, output_type=tf.int32)
        future = tf.reduce_sum(tf.one_hot(best, 2) * self.values(target, after), 1)
        wanted = tf.stop_gradient(1.0 + DISCOUNT * goes_on * future)
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(tf.one_hot(action, 2) * self.values(online, states), 1) - wanted))
        count, done = self.updates.assign_add(1.0), []
        rate = RATE * tf.sqrt(1.0 - tf.pow(0.999, count)) / (1.0 - tf.pow(0.9, count))
        grads = tf.gradients(loss, online)
        for k, (mean, square) in enumerate(zip(self.means, self.squares)):
            m, s = 0.9 * mean + 0.1 * grads[k], 0.999 * square + 0.001 * grads[k] * grads[k]
            new = online[k] - rate * m / (tf.sqrt(s) + 1e-8)
            slow = target[k] + FOLLOW * (new - target[k])
            done += [mean.assign(m), square.assign(s), self.online[k].assign(new), self.target[k].assign(slow)]
        with tf.control_dependencies(done):
            return tf.identity(loss)
