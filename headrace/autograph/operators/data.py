"""Changes of elements and attributes, and reads of elements."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from headrace.api import scopes
from headrace.autograph.operators import containers, journal, values
from headrace.autograph.operators.lists import ListSpec, TensorList, list_spec
from headrace.autograph.operators.slices import updated
from headrace.autograph.operators.undefined import ld
from headrace.errors import AutographError


def item(x: Any) -> Any:
    """Returns an object whose `[]` reads elements of `x`, by tensors too."""
    kind = type(x)
    if kind is dict or kind is list or kind is tuple or kind is str:
        return _Elements(x)
    return x


class _Elements:
    """Elements of a container of Python."""

    __slots__ = ("_of",)

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getitem__(self, index: Any) -> Any:
        x = self._of
        if isinstance(x, dict):
            _refuse_key(x, index)
            return ld(x[index], f"[{index!r}]")
        if values.is_symbolic(index):
            return _element(x, index)
        if isinstance(index, slice) and any(map(values.is_symbolic, (index.start, index.stop, index.step))):
            return _stacked(x)[index]
        return x[index]


def _refuse_key(x: Any, key: Any) -> None:
    if values.is_symbolic(key):
        raise AutographError(
            f"a tensor cannot be the key of a dictionary: {values.described(key)}. Its value is known only when the "
            "graph runs; keep the values in a tensor and index it (hr.gather)"
        )


def _stacked(x: Any) -> Any:
    spec = list_spec("", x) if x and all(map(values.is_tensor_like, x)) else None
    if isinstance(spec, ListSpec):
        x = [values.converted(e, spec.dtype) for e in x]
    try:
        return scopes.builder(*x).tensor(list(x))
    except (TypeError, ValueError) as e:
        raise AutographError(
            f"a {type(x).__name__} is indexed by a tensor, but its {len(x)} elements are not tensors of one shape and "
            f"dtype: {e}"
        ) from e


def _element(x: Any, index: Any) -> Any:
    if isinstance(x, str):
        raise AutographError(
            "a tensor cannot index a text of Python; make it a tensor (hr.constant, hr.strings.substr)"
        )
    found = _stacked(x)[index]
    return values.weak(found) if all(map(values.is_weak_value, x)) else found


# *** changes of elements ***


def set_item(holder: Any, path: Sequence[Any], value: Any) -> Any:
    """Returns `holder` after `holder[path[0]]... = value`; a new tensor if it is one."""
    return _changed(holder, path, lambda old, key: _with_element(old, key, value))


def augment_item(holder: Any, path: Sequence[Any], op: str, value: Any) -> Any:
    """Returns `holder` after an augmented assignment of an element."""
    return _changed(holder, path, lambda old, key: _with_element(old, key, augmented(item(old)[key], op, value)))


def delete_item(holder: Any, path: Sequence[Any]) -> Any:
    """Returns `holder` after `del holder[path[0]]...`."""
    return _changed(holder, path, _without_element)


def _changed(holder: Any, path: Sequence[Any], change: Callable[[Any, Any], Any]) -> Any:
    key, *rest = path
    if not rest:
        return change(holder, key)
    inner = item(holder)[key]
    new = _changed(inner, rest, change)
    return holder if new is inner else _with_element(holder, key, new)


def _with_element(x: Any, key: Any, value: Any) -> Any:
    if values.is_tensor(x):
        return updated(x, key, value)
    if isinstance(x, list) and values.is_symbolic(key):
        return _with_chosen_element(x, key, value)
    if isinstance(x, (list, dict)):
        _refuse_key(x, key)
        journal.touch(x)
    x[key] = value
    return x


def _with_chosen_element(x: list[Any], key: Any, value: Any) -> list[Any]:
    """Assigns the element of a Python list that a tensor chooses.

    Raises:
      AutographError: the elements and the value are not tensors or numbers of one dtype.
    """
    b, n = scopes.builder(key), len(x)
    place = b.SelectV2(b.Less(key, 0), b.AddV2(key, n), key)
    is_inside = b.LogicalAnd(b.GreaterEqual(place, 0), b.Less(place, n))
    with scopes.control_dependencies([b.Assert(is_inside, ["list assignment index out of range:", key])]):
        place = b.Identity(place)
    new = []
    for k, old in enumerate(x):
        tensors = values.is_tensor_like(old) and values.is_tensor_like(value)
        found = values.common_dtype(old, value) if tensors else None
        if found is None or values.shape_of(old) != values.shape_of(value):
            raise AutographError(
                f"a tensor chooses the element of a list that is assigned {values.described(value)}, but element {k} "
                f"is {values.described(old)}; let all have one dtype and shape, or keep them in a tensor"
            )
        b = scopes.builder(place)
        new.append(b.SelectV2(b.Equal(place, k), values.converted(value, found[0]), values.converted(old, found[0])))
    journal.touch(x)
    x[:] = new
    return x


def _without_element(x: Any, key: Any) -> Any:
    if values.is_tensor(x):
        raise AutographError("'del' of an element of a tensor: a tensor has no such change; take the rest by slices")
    if isinstance(x, list) and values.is_symbolic(key):
        raise AutographError(f"'del' of an element of a list that a tensor chooses: {values.described(key)}")
    if isinstance(x, (list, dict)):
        _refuse_key(x, key)
        journal.touch(x)
    del x[key]
    return x


def rebound(value: Any, names: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the values of a changed variable and of its possible aliases.

    Args:
      value: the new value of the first one.
      names: the values before the change; those that are the object that was changed get the new value.
    """
    old = names[0]
    return (value, *(value if x is old else x for x in names[1:]))


def of_attribute(change: Callable[..., Any], x: Any, name: str, *args: Any) -> None:
    """Changes an element of an attribute: `x.name[...] = value`."""
    old = getattr(x, name)
    new = change(old, *args)
    if new is not old:
        set_attribute(x, name, new)


def of_value(change: Callable[..., Any], x: Any, *args: Any) -> None:
    """Changes an element of an object without a name.

    Raises:
      AutographError: it is a tensor, so that the changed value would be lost.
    """
    if change(x, *args) is not x:
        raise AutographError(
            "an element is assigned of a tensor that has no name in this function; a tensor is a value, so the change "
            "would be lost. Give it a name before: m = f(); m[i] = v, or declare its name nonlocal or global"
        )


# *** attributes and augmented assignment ***


def set_attribute(x: Any, name: str, value: Any) -> None:
    """Sets an attribute."""
    if journal.is_tracing() and not isinstance(x, TensorList):
        is_property = isinstance(getattr(type(x), name, None), property)  # its setter changes other attributes
        for changed in list(vars(x)) if is_property and hasattr(x, "__dict__") else [name]:
            journal.touch(x, changed)
    setattr(x, name, value)


def augment_attribute(x: Any, name: str, op: str, value: Any) -> None:
    """Changes an attribute by an augmented assignment."""
    set_attribute(x, name, augmented(getattr(x, name), op, value))


def delete_attribute(x: Any, name: str) -> None:
    """Deletes an attribute."""
    if journal.is_tracing():
        journal.touch(x, name)
    delattr(x, name)


def augmented(x: Any, op: str, value: Any) -> Any:
    """Returns the value of a variable after `x op= value`."""
    if isinstance(x, (list, dict, set)):
        journal.touch(x)
        if isinstance(x, list) and (values.is_symbolic(value) or isinstance(value, TensorList)):
            x.extend(containers.rows(value))
            return x
    return getattr(operator, op)(x, value)
