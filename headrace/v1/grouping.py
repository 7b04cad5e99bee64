"""Operations that wait for others, print values or call Python.

They are separate from other modules because they use the names of Python's builtins.
"""

from __future__ import annotations

from headrace.api import debugging, grouping
from headrace.api import py_func as calls
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph

no_op = in_default_graph(grouping.no_op)
group = in_default_graph(grouping.group)
tuple = named(grouping.tuple, "tensors name control_inputs")
Print = in_default_graph(debugging.Print)
print = in_default_graph(debugging.print)
numpy_function = in_default_graph(calls.numpy_function)
py_function = in_default_graph(calls.py_function)
py_func = in_default_graph(calls.py_func)
