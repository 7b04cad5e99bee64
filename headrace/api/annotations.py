"""Annotated types and shapes of functions, checked at each call: `check_types`.

    @hr.check_types
    def rotated(points: hr.Tensor["n 3", hr.float32], by: hr.Tensor["3 3"]) -> hr.Tensor["n 3"]: ...

A name of a dimension stands for one number in all arguments and results of a call. Type checkers accept the same
annotation in the form `Annotated[hr.Tensor, "n 3", hr.float32]`.

`Checks` has the checks of a function, for callers that trace or convert it.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar, Union

import numpy as np

from headrace import dtypes, shapes
from headrace.api.tensors import is_tensor
from headrace.errors import ShapeError, SignatureError
from headrace.ir.tensor_annotation import TensorAnnotation, annotation, is_several
from headrace.ir.tensor_type import Tensor
from headrace.shapes import Shape

F = TypeVar("F", bound=Callable[..., Any])

# name of a dimension -> (its value, the argument that it is from)
Names: TypeAlias = "dict[str, tuple[Any, str]]"
_Check: TypeAlias = Callable[[Any, str, Names], None]


def check_types(f: F) -> F:
    """Wraps a function so that each call checks annotated types and shapes.

    Annotations of tensors state their shapes, dtypes, or both: `hr.Tensor["n 3", hr.float32]`. The words of a shape are
    numbers; names, which stand for the same number in all arguments and results of a call; `_` for any dimension; and
    `...` or `*name` for any number of dimensions. Several dtypes are alternatives. Unknown dimensions of symbolic
    tensors fit. Type checkers accept the form `Annotated[hr.Tensor, "n 3", hr.float32]`.

    Annotations may be in lists, tuples, dicts, unions, dataclasses and named tuples. Classes are checked too; other
    annotations are not. `hr.jit(f, strict=True)` makes the same checks.

    Args:
      f: a function with annotations.

    Returns:
      A function with the same arguments and results.

    Raises (a call):
      SignatureError (a TypeError): a value has another type or dtype.
      ShapeError (a ValueError): a tensor has another shape.
      TypeError: an annotation cannot be evaluated.

    Source: the `jaxtyping` annotations of arrays.

    Example:
      >>> import headrace as hr
      >>> @hr.check_types
      ... def f(queries: hr.Tensor["m d"], keys: hr.Tensor["n d"]) -> hr.Tensor["m n"]:
      ...     return queries @ keys.T
      >>> f(hr.ones((2, 3)), hr.ones((4, 3))).shape
      (2, 4)
      >>> f(hr.ones((2, 3)), hr.ones((4, 5)))
      Traceback (most recent call last):
      ...
      headrace.errors.ShapeError: f(): argument 'keys' has shape [4,5], expected [n,d]: d = 3 from argument 'queries'
    """
    checks = Checks(f)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        names = checks.check_arguments(args, kwargs)
        result = f(*args, **kwargs)
        checks.check_result(result, names)
        return result

    return call  # type: ignore[return-value]  # it has the signature of `f`


class Checks:
    """Checks of the annotated arguments and results of a function.

    Args:
      f: the function.

    Raises (the first check):
      TypeError: an annotation cannot be evaluated.
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        self._f = f
        self._title = f"{getattr(f, '__name__', repr(f))}()"
        self._signature = inspect.signature(f)

    def check_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Names:
        """Checks the arguments of a call.

        Returns:
          The dimensions that the names stand for, for `check_result`.

        Raises:
          SignatureError (a TypeError), ShapeError (a ValueError): see `check_types`.
        """
        names: Names = {}
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            check = self._checks.get(name)
            if check is None:
                continue
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                parts = {f"argument {name!r}[{i}]": x for i, x in enumerate(value)}
            elif kind is inspect.Parameter.VAR_KEYWORD:
                parts = {f"argument {k!r}": x for k, x in value.items()}
            else:
                parts = {f"argument {name!r}": value}
            for where, x in parts.items():
                self._run(check, x, where, names)
        return names

    def check_result(self, result: Any, names: Names) -> None:
        """Checks what a call returns; `names` is the result of `check_arguments`."""
        check = self._checks.get("return")
        if check is not None:
            self._run(check, result, "the result", names)

    def _run(self, check: _Check, value: Any, where: str, names: Names) -> None:
        try:
            check(value, where, names)
        except _Misfit as e:
            raise e.error(f"{self._title}: {e}") from None

    @functools.cached_property
    def _checks(self) -> dict[str, _Check]:
        """Checks by the name of the argument, and of the result by "return"."""
        known: dict[type, _Check] = {}
        made = {name: _check_of(hint, known) for name, hint in _hints(self._f).items()}
        return {name: check for name, check in made.items() if check is not None}


class _Misfit(Exception):
    """A value does not fit an annotation.

    Args:
      error: the class of the error that the caller of the function gets.
      text: its text, without the name of the function.
    """

    def __init__(self, error: type[Exception], text: str) -> None:
        super().__init__(text)
        self.error = error


def _hints(f: Any) -> dict[str, Any]:
    """Returns the evaluated annotations of a function or class.

    Raises:
      TypeError: one of them cannot be evaluated.
    """
    inner = inspect.unwrap(f) if callable(f) else f
    inner = getattr(inner, "__func__", inner)
    around = inspect.getclosurevars(inner).nonlocals if inspect.isfunction(inner) else {}
    try:
        return typing.get_type_hints(inner, localns=dict(around) or None, include_extras=True)
    except NameError as e:
        raise TypeError(f"an annotation of {getattr(f, '__name__', f)!r} cannot be evaluated: {e}") from e


def _check_of(hint: Any, known: dict[type, _Check]) -> _Check | None:
    """Returns the check of an annotation; None if there is nothing to check.

    Args:
      hint: the annotation.
      known: the checks of dataclasses and named tuples, which may contain themselves.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, TensorAnnotation):
        return functools.partial(_check_tensor, hint)
    if origin is Annotated:
        words = [m for m in args[1:] if isinstance(m, (str, dtypes.DType))]
        return _check_of(annotation(words) if args[0] is Tensor else args[0], known)
    if origin in (Union, types.UnionType):
        parts = [_check_of(a, known) for a in args]
        checks = [c for c in parts if c is not None]
        return functools.partial(_check_union, checks, args) if len(checks) == len(parts) else None
    if origin is tuple and args and args[-1] is not ...:
        return functools.partial(_check_tuple, [_check_of(a, known) for a in args])
    if isinstance(origin, type) and issubclass(origin, collections.abc.Mapping):
        return functools.partial(_check_items, origin, _check_of(args[1], known), _items_of_mapping)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Collection):
        return functools.partial(_check_items, origin, _check_of(args[0], known), enumerate)
    if hint is None:
        hint = type(None)
    if not isinstance(hint, type) or origin is not None or hint in (Any, object) or _is_protocol(hint):
        return None
    if hint is Tensor:
        return functools.partial(_check_tensor, TensorAnnotation(None, ()))
    if dataclasses.is_dataclass(hint) or (issubclass(hint, tuple) and hasattr(hint, "_fields")):
        if hint not in known:
            fields: dict[str, _Check | None] = {}
            known[hint] = functools.partial(_check_fields, hint, fields)
            fields.update((name, _check_of(h, known)) for name, h in _hints(hint).items())
        return known[hint]
    return functools.partial(_check_class, hint)


def _is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


def _items_of_mapping(value: Mapping[Any, Any]) -> Any:
    return value.items()


def _show(value: Any) -> str:
    """Returns a value for messages."""
    if _is_array(value):
        return f"{'an array' if isinstance(value, (np.ndarray, np.generic)) else 'a tensor'} of {_dtype_of(value).name}"
    text = repr(value)
    return f"{text if len(text) < 40 else text[:37] + '...'} ({type(value).__name__})"


def _is_array(value: Any) -> bool:
    return is_tensor(value) or isinstance(value, (np.ndarray, np.generic))


def _dtype_of(value: Any) -> dtypes.DType:
    return value.dtype.base if is_tensor(value) else dtypes.from_numpy(value.dtype)


def _check_class(kind: type, value: Any, where: str, names: Names) -> None:
    allowed: tuple[type, ...] = (kind,)
    if kind is float:
        allowed = (float, int, np.floating, np.integer)
    elif kind is int:
        allowed = (int, np.integer)
    if not isinstance(value, allowed):
        raise _Misfit(SignatureError, f"{where} is {_show(value)}, expected {kind.__name__}")


def _check_fields(kind: type, fields: Mapping[str, _Check | None], value: Any, where: str, names: Names) -> None:
    _check_class(kind, value, where, names)
    for name, check in fields.items():
        if check is not None:
            check(getattr(value, name), f"{where}.{name}", names)


def _check_items(
    kind: type, check: _Check | None, items: Callable[[Any], Any], value: Any, where: str, names: Names
) -> None:
    if not isinstance(value, kind) or _is_array(value):
        raise _Misfit(SignatureError, f"{where} is {_show(value)}, expected a {kind.__name__}")
    if check is None:
        return
    for key, x in items(value):
        check(x, f"{where}[{key!r}]", names)


def _check_tuple(checks: list[_Check | None], value: Any, where: str, names: Names) -> None:
    if not isinstance(value, tuple) or len(value) != len(checks):
        got = f"of {len(value)} elements" if isinstance(value, tuple) else _show(value)
        raise _Misfit(SignatureError, f"{where} is {got}, expected a tuple of {len(checks)} elements")
    for i, (check, x) in enumerate(zip(checks, value, strict=True)):
        if check is not None:
            check(x, f"{where}[{i}]", names)


def _check_union(checks: list[_Check], hints: tuple[Any, ...], value: Any, where: str, names: Names) -> None:
    misfits = []
    for check, hint in zip(checks, hints, strict=True):
        tried = dict(names)
        try:
            check(value, where, tried)
        except _Misfit as e:
            if hint is not type(None):
                misfits.append(e)
            continue
        names.update(tried)
        return
    if len(misfits) == 1:
        raise misfits[0]
    raise _Misfit(SignatureError, "; or ".join(str(e) for e in misfits))


def _check_tensor(wanted: TensorAnnotation, value: Any, where: str, names: Names) -> None:
    if not _is_array(value):
        raise _Misfit(SignatureError, f"{where} is {_show(value)}, expected {wanted}")
    dtype = _dtype_of(value)
    if wanted.dtypes and dtype not in wanted.dtypes:
        raise _Misfit(SignatureError, f"{where} is of dtype {dtype.name}, expected {wanted.dtype}")
    shape = shapes.as_shape(value.shape)
    if wanted.words is None or shape is None:
        return
    reason = _mismatch(wanted.words, shape, where, names)
    if reason is not None:
        text = f"{where} has shape {shapes.show(shape)}, expected {wanted.shape}"
        raise _Misfit(ShapeError, f"{text}: {reason}" if reason else text)


def _mismatch(words: tuple[str, ...], shape: Shape, where: str, names: Names) -> str | None:
    """Returns the reason why a shape does not fit; None if it fits.

    The dimensions of a shape that fits are added to `names`.
    """
    assert shape is not None
    several = next((i for i, w in enumerate(words) if is_several(w)), None)
    extra = len(shape) - (len(words) - (several is not None))
    if extra < 0 or (extra > 0 and several is None):
        return ""
    pairs: list[tuple[str, Any]] = list(zip(words, shape))
    if several is not None:
        after = len(words) - several - 1
        pairs = list(zip(words[:several], shape))
        pairs.append((words[several], shape[several : several + extra]))
        pairs += zip(words[several + 1 :], shape[len(shape) - after :])
    for word, dim in pairs:
        if word in ("_", "...") or dim is None:
            continue
        if word.isdecimal():
            if int(word) != dim:
                return ""
        elif word not in names:
            names[word] = dim, where
        else:
            bound, source = names[word]
            if not _agree(bound, dim):
                shown = shapes.show(bound) if isinstance(bound, tuple) else bound
                return f"{word} = {shown} from {source}"
    return None


def _agree(a: Any, b: Any) -> bool:
    """Whether two dimensions, or two tuples of them, may be the same."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(x is None or y is None or x == y for x, y in zip(a, b, strict=True))
    return bool(a == b)
