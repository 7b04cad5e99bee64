"""Deep Q-learning of CartPole inside the graph: `python -m examples.applications.dqn`.

The environment, the replay memory, exploration, the gradient, Adam and the target network are operations of the body of
one `while_loop`. The program starts the loop and reads the returns of the episodes that have ended: in-graph
reinforcement learning as in Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning" (2018), section 6.5, which
reports 1.21 times the speed of a client that drives the steps. The twin of the program is such a client: it calls the
same operations as compiled callables, with the loop, the conditional and the counters in Python.

An episode ends after 200 steps; the task counts as solved with a mean return of 195 over 100 episodes without
exploration. Learning is double Q-learning (van Hasselt et al., 2016) with a target network that follows slowly.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace.v1
from examples.applications import records

HIDDEN, MEMORY, BATCH, DISCOUNT, RATE, FOLLOW = 64, 10_000, 64, 0.99, 5e-4, 0.01
WARM, EXPLORED, LEAST_CHANCE = 500, 4000, 0.02  # steps before learning, steps of falling exploration, its end
LONGEST, EPISODES, SOLVED = 200, 100, 195
FULL, CHUNK = 40_000, 1000


def first_state(tf: Any) -> Any:
    return tf.random_uniform([4], -0.05, 0.05)


def moved(tf: Any, state: Any, action: Any) -> tuple[Any, Any]:
    """The next state, [4], and whether the pole has fallen or the cart has left the track."""
    x, v, angle, spin = tf.unstack(state)
    force = 20.0 * tf.cast(action, tf.float32) - 10.0
    sin, cos = tf.sin(angle), tf.cos(angle)
    push = (force + 0.05 * spin * spin * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
    pull = push - 0.05 * turn * cos / 1.1
    state = tf.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn])
    return state, tf.logical_or(tf.abs(state[0]) > 2.4, tf.abs(state[2]) > 12 * np.pi / 180)


class Agent:
    """The networks, the state of Adam and the replay memory, as variables of the current graph."""

    def __init__(self, tf: Any, seed: int) -> None:
        self.tf, rng = tf, np.random.default_rng(seed)

        def variable(value: Any) -> Any:
            return tf.Variable(np.asarray(value, np.float32), trainable=False, use_resource=True)

        sizes, weights = (4, HIDDEN, HIDDEN, 2), []
        for n, m in zip(sizes[:-1], sizes[1:]):
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
        """Updates the weights by Adam with a batch of the `n` rows in the memory; returns the loss."""
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
            done += [mean.assign(m), square.assign(s), self.online[k].assign(new)]
            done.append(self.target[k].assign(target[k] + FOLLOW * (new - target[k])))
        with tf.control_dependencies(done):
            return tf.identity(loss)


Driver = Callable[[int], "tuple[np.ndarray, float]"]  # number of steps -> lengths of episodes that ended, last loss


def in_graph(agent: Agent, session: Any) -> Driver:
    """Makes a function that runs steps in a loop of the graph."""
    tf = agent.tf
    start, count, given_age = (tf.placeholder(tf.int32, []) for _ in range(3))
    given_state = tf.placeholder(tf.float32, [4])

    def body(n: Any, state: Any, age: Any, _: Any, lengths: Any) -> Any:
        action = agent.act(state, agent.chance(n))
        after, failed = moved(tf, state, action)
        with tf.control_dependencies([action, agent.remember(n, state, action, after, tf.logical_not(failed))]):
            loss = tf.cond(n >= WARM, lambda: agent.learn(n + 1), lambda: 0.0)
        over = tf.logical_or(failed, age + 1 >= LONGEST)
        lengths = lengths.write(n - start, tf.where(over, age + 1, 0))
        return n + 1, tf.where(over, first_state(tf), after), tf.where(over, 0, age + 1), loss, lengths

    first = [start, given_state, given_age, 0.0, tf.TensorArray(tf.int32, count)]
    loop = tf.while_loop(lambda n, *_: n < start + count, body, first, parallel_iterations=1)
    run = session.make_callable([*loop[1:4], loop[4].stack()], [start, count, given_state, given_age])
    n, now, age = 0, np.zeros(4, np.float32), 0

    def drive(steps: int) -> tuple[np.ndarray, float]:
        nonlocal n, now, age
        now, age, loss, lengths = run(n, steps, now, age)
        n += steps
        return lengths[lengths > 0], float(loss)

    return drive


def by_client(agent: Agent, session: Any) -> Driver:
    """Makes a function that calls the operations of each step."""
    tf = agent.tf
    n, action = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
    state, after, goes_on = (
        tf.placeholder(tf.float32, [4]),
        tf.placeholder(tf.float32, [4]),
        tf.placeholder(tf.bool, []),
    )
    call = session.make_callable
    act, move = call(agent.act(state, agent.chance(n)), [state, n]), call(moved(tf, state, action), [state, action])
    remember = call(agent.remember(n, state, action, after, goes_on).op, [n, state, action, after, goes_on])
    learn, new = call(agent.learn(n), [n]), call(first_state(tf))
    k, now, age = 0, np.zeros(4, np.float32), 0

    def drive(steps: int) -> tuple[np.ndarray, float]:
        nonlocal k, now, age
        lengths, loss = [], 0.0
        for k in range(k, k + steps):
            chosen = act(now, k)
            later, failed = move(now, chosen)
            remember(k, now, chosen, later, not failed)
            if k >= WARM:
                loss = learn(k + 1)
            now, age = later, age + 1
            if failed or age >= LONGEST:
                lengths.append(age)
                now, age = new(), 0
        k += 1
        return np.array(lengths), float(loss)

    return drive


def evaluated(agent: Agent, session: Any) -> float:
    """The mean return of episodes without exploration, in a loop of the graph."""
    tf = agent.tf

    def body(k: Any, state: Any, age: Any, total: Any) -> Any:
        after, failed = moved(tf, state, agent.act(state, 0.0))
        over = tf.logical_or(failed, age + 1 >= LONGEST)
        state, total = tf.where(over, first_state(tf), after), total + tf.where(over, age + 1, 0)
        return k + tf.cast(over, tf.int32), state, tf.where(over, 0, age + 1), total

    loop = tf.while_loop(lambda k, *_: k < EPISODES, body, [0, first_state(tf), 0, 0], parallel_iterations=1)
    return float(session.run(loop[3])) / EPISODES


def started(tf: Any, seed: int, driver: Callable[[Agent, Any], Driver]) -> tuple[Agent, Any, Driver]:
    """A new agent, its session, and the driver."""
    with tf.Graph().as_default():
        tf.set_random_seed(seed)
        agent, session = Agent(tf, seed), tf.Session()
        drive = driver(agent, session)
        session.run(tf.global_variables_initializer())
    return agent, session, drive


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    """Makes a function that runs steps in the graph and returns the last loss."""
    drive = started(tf, seed, in_graph)[2]
    return lambda steps: drive(steps)[1]


def run(options: argparse.Namespace) -> records.Record:
    record, chunk = records.Record(), min(CHUNK, options.steps)
    names, steps = {"in the graph": in_graph, "by a client": by_client}, range(chunk, options.steps + 1, chunk)
    agents = {name: started(headrace.v1, options.seed, driver) for name, driver in names.items()}
    returns: dict[str, list[float]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for _ in steps:
        for name, (_, _, drive) in agents.items():  # in turns, so that the machine is the same for both
            begun = time.perf_counter()
            lengths, _ = drive(chunk)
            seconds[name].append(time.perf_counter() - begun)
            returns[name].append(float(lengths.mean()) if len(lengths) else float(LONGEST))
    speeds = {}
    for name, (agent, session, _) in agents.items():
        record.curve(name, steps, returns[name], "mean return of an episode")
        with session.graph.as_default():
            record.figure(f"return of {EPISODES} episodes, learned {name}", evaluated(agent, session), at_least=SOLVED)
        speeds[name] = chunk / float(np.median(seconds[name]))
        record.figure(f"speed {name}", speeds[name], "steps/s", timed=True)
    record.figure(
        "speed in the graph / by a client", speeds["in the graph"] / speeds["by a client"], at_least=1.2, timed=True
    )
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=FULL))
