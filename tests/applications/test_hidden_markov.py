"""The hidden Markov model of examples/applications, against sums over all paths of states."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from examples.applications import hidden_markov


def test_posteriors_are_sums_over_all_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    length, sequences, states = 4, 2, hidden_markov.STATES
    monkeypatch.setattr(hidden_markov, "LENGTH", length)
    monkeypatch.setattr(hidden_markov, "SEQUENCES", sequences)
    parameters, symbols = hidden_markov.first_parameters(0), hidden_markov.sampled(0)
    first, transition, emission = (np.exp(p) for p in parameters)
    wanted = np.zeros((length, sequences, states))
    for path in itertools.product(range(states), repeat=length):
        moves = first[path[0]] * np.prod([transition[a, b] for a, b in itertools.pairwise(path)])
        for n in range(sequences):
            joint = moves * np.prod([emission[state, symbol] for state, symbol in zip(path, symbols[:, n])])
            for t, state in enumerate(path):
                wanted[t, n, state] += joint
    wanted /= wanted.sum(2, keepdims=True)
    np.testing.assert_allclose(hidden_markov.posteriors(parameters, symbols), wanted, rtol=1e-12)
