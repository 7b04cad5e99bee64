"""Source conversion: plain Python functions as functions that build graphs.

    convert     a function whose conditionals and loops tensors may decide
    to_code     the converted form as text
    do_not_convert  mark of functions that stay as they are

`origin` finds the source, `analysis` examines it, `convert` changes it by `templates`, and `conversion` compiles the
result. The code calls `operators`, which choose Python or graph at run time by the values that they receive.
"""

from headrace.autograph.conversion import convert, do_not_convert, to_code
from headrace.errors import AutographError, UndefinedError

__all__ = ["AutographError", "UndefinedError", "convert", "do_not_convert", "to_code"]
