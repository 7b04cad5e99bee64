"""Deep Q-learning of CartPole inside the graph: `python -m examples.applications.dqn`.

The environment, the replay memory, exploration, the gradient, Adam and the target network are operations of the body of
one `while_loop` (`cartpole.py`, `q_learning.py`). The program starts the loop and reads the returns of episodes that
have ended: in-graph reinforcement learning as in Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning"
(2018), section 6.5. They report 1.21 times the speed of a client that drives the steps. The twin of the program is such
a client: it calls the same operations as compiled callables, with the loop, the conditional and the counters in Python.

The task counts as solved with a mean return of 195 over 100 episodes without exploration.
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
from examples.applications.cartpole import LONGEST, first_state, moved
from examples.applications.q_learning import WARM, Agent

EPISODES, SOLVED = 100, 195
FULL, CHUNK = 40_000, 1000

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
    n, action, goes_on = (tf.placeholder(dtype, []) for dtype in (tf.int32, tf.int32, tf.bool))
    state, after = (tf.placeholder(tf.float32, [4]) for _ in range(2))
    call = session.make_callable
    act, move = call(agent.act(state, agent.chance(n)), [state, n]), call(moved(tf, state, action), [state, action])
    remember = call(agent.remember(n, state, action, after, goes_on).op, [n, state, action, after, goes_on])
    learn, new = call(agent.learn(n), [n]), call(first_state(tf))
    begun, now, age = 0, np.zeros(4, np.float32), 0

    def drive(steps: int) -> tuple[np.ndarray, float]:
        nonlocal begun, now, age
        lengths, loss = [], 0.0
        for k in range(begun, begun + steps):
            chosen = act(now, k)
            later, failed = move(now, chosen)
            remember(k, now, chosen, later, not failed)
            if k >= WARM:
                loss = learn(k + 1)
            now, age = later, age + 1
            if failed or age >= LONGEST:
                lengths.append(age)
                now, age = new(), 0
        begun += steps
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
    for _ in steps:  # in turns, so that the machine is the same for both
        for name, (_, _, drive) in agents.items():
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
