"""Every op type as a function: `hr.raw_ops.AddV2(x=..., y=...)`.

The arguments and attributes are those of the op's record, by keyword. Attributes that follow from the inputs (dtypes,
numbers of inputs) and those with a default may be omitted.

Source: TensorFlow's `tf.raw_ops`.
"""

from __future__ import annotations

import functools
import typing  # its Any would hide the op of that name
from collections.abc import Callable

import headrace.ops  # noqa: F401 - registers the op types
from headrace.api import scopes
from headrace.ir.attr_values import REQUIRED
from headrace.ir.opdef import OpDef, op_registry
from headrace.ir.source import is_ours


def __getattr__(type: str) -> Callable[..., typing.Any]:
    if type not in op_registry and (not type[:1].isupper() or op_registry.sought(type) is None):
        import difflib  # a slow import, needed only here

        near = difflib.get_close_matches(type, op_registry)
        hint = f"; did you mean {' or '.join(f'hr.raw_ops.{n}' for n in near)}?" if near else ""
        text = f"module {__name__!r} has no attribute {type!r}: no op type of that name is registered{hint}"
        raise AttributeError(text, name=type)
    return _function(type)


def __dir__() -> list[str]:
    return sorted(op_registry)


@functools.cache
def _function(type: str) -> Callable[..., typing.Any]:
    record = op_registry.get(type)
    arguments = [a.name for a in record.ins]

    def function(**kwargs: typing.Any) -> typing.Any:
        name = kwargs.pop("name", None)
        missing = [a for a in arguments if a not in kwargs]
        unknown = [k for k in kwargs if k not in arguments and k not in record.attrs and not k.startswith("_")]
        if missing or unknown:
            wrong = f"missing {missing}" if missing else f"unknown {unknown}"
            raise TypeError(f"{type} takes the keyword arguments {_signature(record)}; {wrong}")
        args = [kwargs.pop(a) for a in arguments]
        return scopes.builder(*args).make(type, args, kwargs, name)

    function.__name__ = function.__qualname__ = type
    theirs = f"\n\n    Source: TensorFlow's `tf.raw_ops.{type}`." if is_ours(op_registry.where(type)) else ""
    function.__doc__ = f"""{record.doc or f"The op {type}."}

    Keyword arguments: {_signature(record)}

    Returns:
      {_returns(record)}{theirs}
    """
    return function


def _signature(record: OpDef) -> str:
    inferred = {a for arg in record.ins for a in (arg.type_attr, arg.number_attr, arg.type_list_attr)}
    parts = [a.name for a in record.ins]
    for name, spec in record.attrs.items():
        if name not in inferred:
            parts.append(name if spec.default is REQUIRED else f"{name}={spec.default!r}")
    return ", ".join([*parts, "name=None"])


def _returns(record: OpDef) -> str:
    outs = [a.name for a in record.outs]
    if not outs:
        return "The operation."
    return f"The tensor `{outs[0]}`." if len(outs) == 1 else f"The tensors {', '.join(f'`{o}`' for o in outs)}."
