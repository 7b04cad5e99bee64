"""CartPole as operations of a graph: a pole on a cart.

A force pushes the cart left or right in each step. The equations and limits are those of Barto, Sutton and Anderson,
"Neuronlike Adaptive Elements" (1983), as in CartPole-v0, where an episode ends after 200 steps. A state is the
position and the speed of the cart and the angle and the angular speed of the pole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LONGEST = 200  # steps of an episode


def first_state(tf: Any) -> Any:
    """A random state near the equilibrium, [4]."""
    return tf.random_uniform([4], -0.05, 0.05)


def moved(tf: Any, state: Any, action: Any) -> tuple[Any, Any]:
    """Returns the next state, [4], and whether the episode has failed.

    It fails if the pole has fallen or the cart has left the track.
    """
    x, v, angle, spin = tf.unstack(state)
    force = 20.0 * tf.cast(action, tf.float32) - 10.0
    sin, cos = tf.sin(angle), tf.cos(angle)
    push = (force + 0.05 * spin * spin * sin) / 1.1
    turn = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * cos * cos / 1.1))
    pull = push - 0.05 * turn * cos / 1.1
    state = tf.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn])
    return state, tf.logical_or(tf.abs(state[0]) > 2.4, tf.abs(state[2]) > 12 * np.pi / 180)
