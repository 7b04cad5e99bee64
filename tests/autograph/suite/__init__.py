"""Conversion suite: plain Python functions run in several ways, with equal results and gradients.

`python -m tests.autograph.suite` prints the matrix of constructs. The parts:

- `matrix`: all pairs of constructs, one nested in the other, enumerated from templates;
- `functions`: short functions with control flow;
- `programs`: one module for each longer program;
- `ways`: plain Python, eager, jitted, in a graph, interpreted;
- `spaces`: array functions for numpy and for headrace under the same names.
"""
