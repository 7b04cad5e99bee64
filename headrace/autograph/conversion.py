"""Conversion of functions: `convert`, `to_code`, `do_not_convert`.

A converted function is compiled from the changed tree with the file and the positions of the user's source. It has the
globals, cells, defaults and annotations of the original. Its operators come through one more cell, `ag__`.
"""

from __future__ import annotations

import ast
import functools
import os
import sysconfig
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar, cast

from headrace import thresholds
from headrace.api import tracing
from headrace.autograph import operators, origin
from headrace.autograph.convert import function
from headrace.autograph.operators import calls
from headrace.autograph.origin import SourceError
from headrace.errors import AutographError
from headrace.ir import source
from headrace.memo import Memo, cached

F = TypeVar("F", bound=Callable[..., Any])

OPERATORS: Final = "ag__"
_MARK: Final = "_headrace_do_not_convert"
_LIBRARIES: Final = tuple(
    {
        os.path.normcase(os.path.abspath(path)) + os.sep
        for path in map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
        if path
    }
)


class _Converted(NamedTuple):
    """Result of a conversion, which all functions with one code object share.

    Attributes:
      code: the compiled code of the function.
      tree: the converted tree.
    """

    code: types.CodeType
    tree: ast.FunctionDef | ast.Lambda


_memo: Final[Memo[types.CodeType, _Converted]] = Memo("converted functions", thresholds.CONVERTED_FUNCTIONS)


def convert(f: F) -> F:
    """Converts a function so that tensors can decide its conditionals and loops.

    The result has the signature, defaults, globals and variables of `f`. Python decides each conditional and loop at
    run time as long as no symbolic tensor does; otherwise it becomes `hr.cond` or `hr.while_loop`. Functions that the
    result calls are converted when they are called. Functions of headrace, of Python and of installed packages,
    generators and functions marked by `do_not_convert` are returned unchanged.

    Args:
      f: a function, method, lambda, `functools.partial` or callable object.

    Returns:
      The converted function. It is `f` itself if there is nothing to convert.

    Raises:
      AutographError: there is no source, or the function has a construct without a conversion.

    Source: TensorFlow's `tf.autograph.to_graph`.

    Example (in a file):
      >>> import headrace as hr
      >>> def f(x):
      ...     while x < 100:
      ...         x = x * 2
      ...     return x
      >>> with hr.Graph() as g:
      ...     y = hr.autograph.convert(f)(hr.constant(3))
      >>> hr.Session(graph=g).run(y)
      np.int32(192)
    """
    if isinstance(f, types.FunctionType):
        made: Any = f if not is_convertible(f) else _bound_to(f, _converted(f))
    elif isinstance(f, types.MethodType):
        inner = convert(f.__func__)
        made = f if inner is f.__func__ else types.MethodType(inner, f.__self__)
    elif isinstance(f, functools.partial):
        inner = convert(f.func)
        made = f if inner is f.func else functools.partial(inner, *f.args, **f.keywords)
    else:
        call = vars(type(f)).get("__call__")
        if isinstance(f, type) or not isinstance(call, types.FunctionType) or not is_convertible(call):
            made = f
        else:
            made = types.MethodType(_bound_to(call, _converted(call)), f)
    return cast("F", made)


def traceable(f: Callable[..., Any]) -> Callable[..., Any]:
    """Converts a function that will be traced; one without source stays as it is.

    Python decides the conditionals and loops of a function without source. If a tensor would decide one, which is a
    TypeError, the error gets a note about the source.

    Args:
      f: a function; see `convert`.

    Raises:
      AutographError: the function has a construct without a conversion.
    """
    try:
        return convert(f)
    except SourceError as e:
        text = str(e)

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeError as error:
            error.add_note(text)
            raise

    return run


tracing.set_converter(traceable)


def to_code(f: Callable[..., Any]) -> str:
    """Returns the converted form of a function as text.

    The text is for reading: the compiled function has the line numbers of the user's source, and operators come from
    `headrace.autograph.operators` as `ag__`.

    Args:
      f: a function, method or lambda.

    Raises:
      AutographError: the function cannot be converted, or is not one of those that `convert` changes.

    Source: TensorFlow's `tf.autograph.to_code`.
    """
    while True:
        if isinstance(f, types.MethodType):
            f = f.__func__
        elif isinstance(f, functools.partial):
            f = f.func
        else:
            break
    if not isinstance(f, types.FunctionType):
        call = vars(type(f)).get("__call__")
        if not isinstance(call, types.FunctionType):
            raise AutographError(f"{f!r} is not a Python function, so it has no code to convert")
        f = call
    original = getattr(f, "__headrace_original__", f)
    assert isinstance(original, types.FunctionType)
    if not is_convertible(original):
        raise AutographError(
            f"'{original.__qualname__}' is not converted: it belongs to a library, is a generator or is marked by "
            "do_not_convert"
        )
    return ast.unparse(_converted(original).tree)


def do_not_convert(f: F) -> F:
    """Marks a function that converted code calls unchanged, as a decorator.

    Args:
      f: a function.

    Returns:
      The same function.

    Source: TensorFlow's `tf.autograph.experimental.do_not_convert`.

    Example:
      >>> import headrace as hr
      >>> @hr.autograph.do_not_convert
      ... def f(x):
      ...     return x
      >>> hr.autograph.convert(f) is f
      True
    """
    setattr(f, _MARK, True)
    return f


def is_convertible(f: types.FunctionType) -> bool:
    """Whether `convert` changes a function: it is a plain one of the user's.

    Raises:
      AutographError: it is a coroutine.
    """
    code = f.__code__
    if (
        "__headrace_original__" in f.__dict__
        or OPERATORS in code.co_freevars
        or getattr(f, _MARK, False)
        or is_library(code.co_filename)
    ):
        return False
    if code.co_flags & (0x80 | 0x200):
        raise AutographError(
            f"'{f.__qualname__}' ({code.co_filename}:{code.co_firstlineno}) is an asynchronous function, which is not "
            "converted; give a plain function, and await outside of it"
        )
    return not code.co_flags & 0x20


@cached(4096, "files that autograph does not convert")
def is_library(file: str) -> bool:
    """Whether a source file belongs to headrace, to Python or to an installed package."""
    if file.startswith("<frozen") or source.is_ours(file):
        return True
    path = os.path.normcase(os.path.abspath(file))
    return path.startswith(_LIBRARIES)


def _converted(f: types.FunctionType) -> _Converted:
    found = _memo.get(f.__code__)
    if found is None:
        found = _made(f)
        _memo.put(f.__code__, found)
    return found


def _made(f: types.FunctionType) -> _Converted:
    """Converts and compiles a function."""
    code = f.__code__
    where = origin.find(f)
    tree = function(where)
    definition: Any = tree
    name = code.co_name
    args = definition.args
    for arg in origin.parameters(args):
        arg.annotation = None
    outer: Any = tree
    if isinstance(tree, ast.Lambda):
        outer = ast.Return(tree)
        name = "<lambda>"
    else:
        tree.decorator_list, tree.returns = [], None
    given = ast.arguments([], [ast.arg(n) for n in (OPERATORS, *code.co_freevars)], None, [], [], None, [])
    stub = _without_defaults(outer)
    use = ast.Expr(ast.Name(OPERATORS, ast.Load()))  # so that each converted function has the cell of its operators
    if isinstance(tree, ast.FunctionDef):
        at = 1 if isinstance(tree.body[0], ast.Expr) and isinstance(tree.body[0].value, ast.Constant) else 0
        tree.body.insert(at, use)
    # a function of a module that names itself means the variable of the module
    own = [ast.Global([name])] if isinstance(tree, ast.FunctionDef) and name not in code.co_freevars else []
    factory: Any = ast.FunctionDef("factory__", given, [*own, stub], [], None)
    within = f.__qualname__.split(".")[-2] if where.within else ""
    top: Any = factory
    if within and within != "<locals>":  # the class around it, so that Python mangles private names
        top = ast.ClassDef(where.within, [], [], [factory], [])
    module = ast.Module([top], [])
    for node in ast.walk(module):
        if "lineno" in node._attributes and getattr(node, "lineno", None) is None:
            node.lineno = node.end_lineno = definition.lineno  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = definition.col_offset  # type: ignore[attr-defined]
    future = code.co_flags & 0x1000000  # from __future__ import annotations
    compiled = compile(module, code.co_filename, "exec", flags=future, dont_inherit=True)
    found = _inner(compiled, "factory__")
    inner = _inner(found, name)
    if isinstance(tree, ast.FunctionDef):
        tree.body.remove(use)
    return _Converted(_named(inner, code, code.co_name), tree)


def _without_defaults(outer: Any) -> Any:
    """Gives the outermost function constant defaults: those of the original function object replace them."""
    definition: Any = outer.value if isinstance(outer, ast.Return) else outer
    args = definition.args
    args.defaults = [ast.Constant(None) for _ in args.defaults]
    args.kw_defaults = [d and ast.Constant(None) for d in args.kw_defaults]
    return outer


def _inner(code: types.CodeType, name: str) -> types.CodeType:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            if const.co_name == name:
                return const
            if const.co_name not in ("<lambda>", "<listcomp>") and name == "factory__":
                return _inner(const, name)
    raise AssertionError(f"no code of {name}")


def _named(code: types.CodeType, original: types.CodeType, name: str) -> types.CodeType:
    """Returns the code with the user's name for the functions that converters made, for tracebacks."""
    consts = tuple(
        _named(c, original, name if c.co_name.endswith("_") and not c.co_name.startswith("__") else c.co_name)
        if isinstance(c, types.CodeType)
        else c
        for c in code.co_consts
    )
    qualname = original.co_qualname if name == original.co_name else f"{original.co_qualname}.<locals>.{name}"
    return code.replace(co_consts=consts, co_name=name, co_qualname=qualname)


def _bound_to(f: types.FunctionType, made: _Converted) -> types.FunctionType:
    """Returns a function with the converted code and everything else of `f`."""
    cells = dict(zip(f.__code__.co_freevars, f.__closure__ or (), strict=True))
    cells[OPERATORS] = types.CellType(_namespace)
    closure = tuple(cells[n] for n in made.code.co_freevars)
    out = types.FunctionType(made.code, f.__globals__, f.__name__, f.__defaults__, closure)
    out.__kwdefaults__ = f.__kwdefaults__
    out.__qualname__, out.__module__, out.__doc__ = f.__qualname__, f.__module__, f.__doc__
    out.__annotations__ = f.__annotations__
    out.__dict__.update(f.__dict__)
    out.__headrace_original__ = f  # type: ignore[attr-defined]
    return out


def _convertible(f: types.FunctionType) -> bool:
    """Whether a function that converted code calls is converted, coroutines left aside."""
    return not f.__code__.co_flags & (0x80 | 0x200) and is_convertible(f)


# The operators as converted code sees them: `of` needs `convert`, which is above the operators.
_namespace: Final = types.SimpleNamespace(
    **{name: getattr(operators, name) for name in operators.__all__},
    of=calls.Caller(convert, _convertible, is_library).of,
)
