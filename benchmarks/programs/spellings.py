"""The same cell in several spellings, which should run as the same code.

A spelling says how the product is written (of a concatenation, or two), how gates are taken apart, what the loop is,
and how the graph has the weights. Not all combinations are here, but each of these ways is.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from benchmarks.programs import Program, lstm, numbers

How = Literal["variable", "constant"]  # None: the weights are fed

LSTM: tuple[tuple[str, str, How | None], ...] = (
    ("concat, split, TensorArray, feeds", "lstm", None),
    ("two products, split, TensorArray, feeds", "lstm_products", None),
    ("concat, slices, TensorArray, variables", "lstm_slices", "variable"),
    ("concat, split, scan, feeds", "lstm_scan", None),
    ("BasicLSTMCell, dynamic_rnn, variables", "lstm_cell", "variable"),
    ("concat, split, TensorArray, constants", "lstm", "constant"),
)
RNN: tuple[tuple[str, str, How | None], ...] = (
    ("concat, TensorArray, feeds", "fed_rnn", None),
    ("two products, TensorArray, constants", "fed_rnn_products", "constant"),
    ("concat, rows of a tensor, feeds", "fed_rnn_rows", None),
    ("concat, TensorArray, variables", "fed_rnn", "variable"),
    ("concat, scan, feeds", "fed_rnn_scan", None),
    ("BasicRNNCell, dynamic_rnn, variables", "fed_rnn_cell", "variable"),
)


def fed_rnn(batch: int, hidden: int, time: int) -> Program:
    """An RNN over a sequence; its inputs are as wide as its state."""
    new = numbers()
    arguments = {
        "xs": new(time, batch, hidden, scale=1.0),
        "h": new(batch, hidden),
        "w": new(2 * hidden, hidden),
        "b": new(hidden),
    }
    return Program(f"RNN {batch}x{hidden} with inputs", "fed_rnn", time, {"n": time}, arguments, ("w", "b"))


def of_lstm(batch: int, time: int, hidden: int) -> dict[str, Program]:
    """Spelling → the program."""
    return _spelled(lstm(batch, time, hidden), LSTM)


def of_rnn(batch: int, hidden: int, time: int) -> dict[str, Program]:
    """Spelling → the program."""
    return _spelled(fed_rnn(batch, hidden, time), RNN)


def _spelled(program: Program, ways: tuple[tuple[str, str, How | None], ...]) -> dict[str, Program]:
    made = {}
    for name, function, how in ways:
        given = {} if how is None else dict.fromkeys(("w", "b"), how)
        made[name] = dataclasses.replace(program, function=function, given=given)
    return made
