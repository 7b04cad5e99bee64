"""Strings of bytes."""

from __future__ import annotations

from typing import Any

from headrace import dtypes
from headrace.build import reductions, scopes


def join(inputs: Any, separator: str = "", name: str | None = None) -> Any:
    """Tensors of strings, joined element by element; their shapes broadcast if some are scalars.

    Source: TensorFlow's `tf.strings.join`.
    """
    return scopes.builder(*inputs).make("StringJoin", (list(inputs),), {"separator": separator}, name)


def reduce_join(
    inputs: Any, axis: Any = None, keepdims: bool = False, separator: str = "", name: str | None = None
) -> Any:
    """The strings of a tensor, joined along axes (None: all).

    Source: TensorFlow's `tf.strings.reduce_join`.
    """
    with scopes.name_scope(name, "ReduceJoin", [inputs, axis]):
        b = scopes.builder(inputs, axis)
        x = b.tensor(inputs, None, "inputs")
        attrs = {"keep_dims": keepdims, "separator": separator}
        return b.make("ReduceJoin", (x, reductions.axes_of(b, x, axis)), attrs)


def format(template: str, inputs: Any, placeholder: str = "{}", summarize: int = 3, name: str | None = None) -> Any:
    """A string: a template in which the text of a tensor stands for each placeholder.

    Args:
      template: text with as many placeholders as there are tensors.
      inputs: a tensor, or a list of them.
      placeholder: what stands for a tensor.
      summarize: how many elements at each end of an axis are shown; -1: all.
      name: name of the operation; "StringFormat" if None.

    Raises:
      ValueError: the numbers of placeholders and tensors differ.

    Source: TensorFlow's `tf.strings.format`.
    """
    items = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if template.count(placeholder) != len(items):
        raise ValueError(
            f"{len(items)} placeholder(s) {placeholder!r} needed in the template for as many tensors, found "
            f"{template.count(placeholder)}: {template!r}"
        )
    attrs = {"template": template, "placeholder": placeholder, "summarize": summarize}
    b = scopes.builder(*items)
    return b.make("StringFormat", ([b.tensor(x) for x in items],), attrs, name)


def as_string(
    input: Any,
    precision: int = -1,
    scientific: bool = False,
    shortest: bool = False,
    width: int = -1,
    fill: str = "",
    name: str | None = None,
) -> Any:
    """Numbers as strings.

    Source: TensorFlow's `tf.strings.as_string`.
    """
    attrs = {"precision": precision, "scientific": scientific, "shortest": shortest, "width": width, "fill": fill}
    return scopes.builder(input).make("AsString", (input,), attrs, name)


def to_number(input: Any, out_type: Any = dtypes.float32, name: str | None = None) -> Any:
    """Strings as numbers.

    Source: TensorFlow's `tf.strings.to_number`.
    """
    return scopes.builder(input).make("StringToNumber", (input,), {"out_type": dtypes.as_dtype(out_type)}, name)


def length(input: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """The lengths of strings, in bytes or (unit "UTF8_CHAR") characters.

    Source: TensorFlow's `tf.strings.length`.
    """
    return scopes.builder(input).make("StringLength", (input,), {"unit": unit}, name)


def substr(input: Any, pos: Any, len: Any, unit: str = "BYTE", name: str | None = None) -> Any:
    """The part of each string that starts at `pos` and is `len` long.

    Source: TensorFlow's `tf.strings.substr`.
    """
    return scopes.builder(input, pos, len).make("Substr", (input, pos, len), {"unit": unit}, name)


def lower(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Strings in lower case: of ASCII letters, or (encoding "utf-8") of all.

    Source: TensorFlow's `tf.strings.lower`.
    """
    return scopes.builder(input).make("StringLower", (input,), {"encoding": encoding}, name)


def upper(input: Any, encoding: str = "", name: str | None = None) -> Any:
    """Strings in upper case; see `lower`.

    Source: TensorFlow's `tf.strings.upper`.
    """
    return scopes.builder(input).make("StringUpper", (input,), {"encoding": encoding}, name)


def strip(input: Any, name: str | None = None) -> Any:
    """Strings without the white space at both ends.

    Source: TensorFlow's `tf.strings.strip`.
    """
    return scopes.builder(input).make("StringStrip", (input,), {}, name)
