"""Python target: a program becomes one Python function, as fast as hand-written numpy.

printer = Printer(program)
code = printer.out.finish("step")
"""

from headrace.targets.python.printer import Printer

__all__ = ["Printer"]
