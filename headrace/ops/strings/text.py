"""Ops on strings: AsString, StringToNumber, Substr, StringJoin, ReduceJoin, StringLength, StringStrip, upper and lower.

Source: TensorFlow's ops of the same names. A string is any sequence of bytes; where characters are counted, a byte that
does not continue a UTF-8 character begins a new one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import COMPLEX, FLOATING, INDEX, NUMERIC, UNSIGNED, DType
from headrace.errors import InvalidArgumentError, OutOfRangeError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, int_attr, op, string_attr, type_attr
from headrace.opkit.arrays import axis_in
from headrace.opkit.batch_rules import of_whole_shape, shifting_axes
from headrace.opkit.csv import number
from headrace.opkit.shape_rules import same_as
from headrace.ops.strings.elements import Budget, each
from headrace.shapes import Shape

_COST = Facts(cost=flops_per_element(100))
_UNIT = string_attr("BYTE", {"BYTE", "UTF8_CHAR"})
_CHARACTER = re.compile(rb"[\x00-\xff][\x80-\xbf]*")


def _each(f: Callable[..., bytes], *arrays: Any) -> np.ndarray:
    """`f` of the elements of arrays that broadcast, as an array of strings."""
    return np.asarray(np.frompyfunc(f, len(arrays), 1)(*arrays), object)


def _strings(*elements: Any, shape: Sequence[int] | None = None) -> np.ndarray:
    out = np.empty(len(elements), object)
    out[:] = [e.encode() if isinstance(e, str) else e for e in elements]
    return out if shape is None else out.reshape(shape)


# *** AsString ***


def _formatter(attrs: Mapping[str, Any]) -> Callable[[Any], bytes]:
    """The function from one element to its text."""
    t, precision, width, fill = attrs["T"], attrs["precision"], attrs["width"], attrs["fill"]
    inexact = t in FLOATING or t in COMPLEX
    if not inexact and t is not dtypes.string:
        if attrs["scientific"] or attrs["shortest"]:
            raise InvalidArgumentError(f"scientific and shortest format not supported for datatype {t.name}")
        if precision > -1:
            raise InvalidArgumentError(f"precision not supported for datatype {t.name}")
    if attrs["scientific"] and attrs["shortest"]:
        raise InvalidArgumentError("Cannot select both scientific and shortest notation")
    if len(fill) > 1:
        raise InvalidArgumentError(f"Fill string must be one or fewer characters, got {fill!r}")
    if fill not in ("", " ", "-", "0", "+"):
        raise InvalidArgumentError(f'Fill argument not supported: "{fill}"')
    if t is dtypes.bool_:
        return lambda x: b"true" if x else b"false"
    flag = "" if t in UNSIGNED and fill in " +" else fill
    size = str(width) if width > -1 else ""
    digits = f".{precision}" if precision > -1 else ""
    if not inexact:
        pattern = f"%{flag}{size}" + (f"{digits if width > 0 else ''}s" if t is dtypes.string else "d")
        return lambda x: pattern.encode() % x
    notation = "e" if attrs["scientific"] else "g" if attrs["shortest"] else "f"

    def real(x: float) -> bytes:
        no_zeros = flag.replace("0", "") if x - x != 0 else flag  # nan and inf are filled with blanks
        return f"%{no_zeros}{size}{digits}{notation}".encode() % x

    if t in COMPLEX:
        return lambda x: b"(%s,%s)" % (real(float(x.real)), real(float(x.imag)))
    return lambda x: real(float(x))


def _as_string_kernel(attrs: Mapping[str, Any]) -> Any:
    to_text = _formatter(attrs)
    is_string = attrs["T"] is dtypes.string

    longest = max(attrs["width"], attrs["precision"], 0) * (2 if attrs["T"] in COMPLEX else 1)

    def kernel(x: Any) -> Any:
        Budget("AsString").take(longest * x.size)
        out = np.empty(x.size, object)
        out[:] = [to_text(v) for v in (x.ravel().tolist() if not is_string else x.ravel())]
        return out.reshape(x.shape)

    return kernel


def _as_strings(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype in dtypes.OBJECT:
        return [case(_strings(b"ab", b""), want=_strings("ab", ""))] if dtype is dtypes.string else []
    if dtype is dtypes.bool_:
        return [case(np.array([True, False]), want=_strings("true", "false"))]
    x = np.array([[0, 1], [3, 120]], dtype.numpy)
    if dtype in dtypes.INTEGER:
        return [
            case(x, want=_strings("0", "1", "3", "120", shape=(2, 2))),
            case(x[1], width=4, fill="0", want=_strings("0003", "0120")),
            case(x[1, 1], width=4, fill="-", want=np.array(b"120 ", object)),
        ]
    if dtype in COMPLEX:
        return [case(x[1] + dtype.numpy.type(0.5j), shortest=True, want=_strings("(3,0.5)", "(120,0.5)"))]
    return [
        case(x[0], want=_strings("0.000000", "1.000000")),
        case(x[1], shortest=True, want=_strings("3", "120")),
        case(x[1], scientific=True, precision=1, want=_strings("3.0e+00", "1.2e+02")),
        case(np.array([np.nan, -np.inf], dtype.numpy), width=5, fill="0", want=_strings("  nan", " -inf")),
    ]


op(
    "AsString",
    "input: T",
    "output: string",
    {
        "T": type_attr(NUMERIC | {dtypes.bool_, dtypes.string}),
        "precision": -1,
        "scientific": False,
        "shortest": False,
        "width": -1,
        "fill": "",
    },
    shape=same_as(0),
    kernel=_as_string_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_as_strings,
    doc="Each element as text, as C's printf would write it.",
)

# *** StringToNumber ***


def _to_number_kernel(attrs: Mapping[str, Any]) -> Any:
    out = attrs["out_type"]

    def converted(text: bytes) -> Any:
        try:
            return number(text, out)
        except ValueError:
            raise InvalidArgumentError(
                f"StringToNumberOp could not correctly convert string: {text.decode('utf-8', 'replace')} to {out.name}"
            ) from None

    return lambda x: each(converted, x, out.numpy)


op(
    "StringToNumber",
    "string_tensor: string",
    "output: out_type",
    {"out_type": type_attr({dtypes.float32, dtypes.float64, *INDEX, dtypes.uint32, dtypes.uint64}, dtypes.float32)},
    shape=same_as(0),
    kernel=_to_number_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, dtype: [
        case(_strings("1", " 25 ", "+3"), out_type=dtype, want=np.array([1, 25, 3], dtype.numpy)),
        case(np.array(b"7", object), out_type=dtype, want=np.array(7, dtype.numpy)),
    ],
    doc="The number that each text says.",
)

# *** Substr ***


def _bytes_part(text: bytes, at: int, n: int) -> bytes | None:
    if not -len(text) <= at <= len(text):
        return None
    at += len(text) if at < 0 else 0
    return text[at : at + n] if n >= 0 else text[at:]


def _characters_part(text: bytes, at: int, n: int) -> bytes | None:
    characters = _CHARACTER.findall(text)
    if not -len(characters) <= at <= len(characters):
        return None
    at += len(characters) if at < 0 else 0
    return b"".join(characters[at : at + max(n, 0)])


def _substr_kernel(attrs: Mapping[str, Any]) -> Any:
    part = _bytes_part if attrs["unit"] == "BYTE" else _characters_part

    def one(text: bytes, at: int, n: int) -> bytes:
        found = part(text, int(at), int(n))
        if found is None:
            raise InvalidArgumentError(f"pos {at} out of range for string {text!r}")
        return found

    def kernel(x: Any, pos: Any, n: Any) -> Any:
        if pos.shape != n.shape:
            raise InvalidArgumentError(
                f"pos and len should have the same shape, got: {shapes.show(pos.shape)} vs. {shapes.show(n.shape)}"
            )
        if pos.ndim and pos.shape != x.shape and max(x.ndim, pos.ndim) > 2:
            raise UnimplementedError(f"Substr broadcast not implemented for {max(x.ndim, pos.ndim)} dimensions")
        return _each(one, x, pos, n)

    return kernel


def _substr_shape(c: Inference) -> Sequence[Shape]:
    return [shapes.broadcast(c.shapes[0], shapes.merge(c.shapes[1], c.shapes[2]))]


def _substrings(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(text: np.ndarray, pos: Any, n: Any, want: np.ndarray, **attrs: str) -> Any:
        return case(text, np.array(pos, np.int32), np.array(n, np.int64).astype(np.int32), want=want, **attrs)

    words = _strings("hello", "worldly")
    return [
        some(words, 1, 2, _strings("el", "or")),
        some(words, [1, -3], [2, 9], _strings("el", "dly")),
        some(np.array(b"hello", object), [0, 5], [2, 1], _strings("he", "")),
        some(words.reshape(2, 1), [0, 1], [1, 2], _strings("h", "el", "w", "or", shape=(2, 2))),
        some(_strings("h\u00e9llo\u20ac"), -2, 5, _strings("o\u20ac"), unit="UTF8_CHAR"),
    ]


op(
    "Substr",
    "input: string, pos: T, len: T",
    "output: string",
    {"T": INDEX, "unit": _UNIT},
    shape=_substr_shape,
    kernel=_substr_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_substrings,
    doc="`len` bytes or characters of each string from `pos` on, which counts from the end if negative.",
)

# *** StringJoin, ReduceJoin ***


def _string_join_kernel(attrs: Mapping[str, Any]) -> Any:
    separator = attrs["separator"].encode("utf-8", "surrogateescape")

    def kernel(*inputs: Any) -> Any:
        full = {x.shape for x in inputs if x.ndim}
        if len(full) > 1:
            raise InvalidArgumentError(
                "Input shapes do not match: all inputs must be scalars or of one shape, got "
                + " and ".join(sorted(map(shapes.show, full)))
            )
        budget = Budget("StringJoin")
        return _each(lambda *texts: budget.join(separator, texts), *inputs) if inputs else np.array(b"", object)

    return kernel


def _string_join_shape(c: Inference) -> Sequence[Shape]:
    full: Shape = None
    for s in c.shapes:
        if s != ():
            full = shapes.merge(full, s)
    return [() if all(s == () for s in c.shapes) else full]


op(
    "StringJoin",
    "inputs: N * string",
    "output: string",
    {"N": int_attr(minimum=0), "separator": ""},
    shape=_string_join_shape,
    kernel=_string_join_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    batch=of_whole_shape,
    facts=_COST,
    sample=lambda rng, dtype: [
        case([_strings("a", "b"), np.array(b"x", object)], separator="-", want=_strings("a-x", "b-x")),
        case([_strings("a", "b"), _strings("", "c")], want=_strings("a", "bc")),
        case([], want=np.array(b"", object)),
    ],
    doc="The strings at each position of the inputs, joined; scalars go with every position.",
)


def _reduce_join_kernel(attrs: Mapping[str, Any]) -> Any:
    separator, keep = attrs["separator"].encode("utf-8", "surrogateescape"), attrs["keep_dims"]

    def kernel(x: Any, axis: Any) -> Any:
        wanted = np.ravel(axis).tolist()
        try:
            axes = [axis_in(a, x.ndim) for a in wanted]
        except ValueError as e:
            raise OutOfRangeError(f"Invalid reduction dimension: {e}") from None
        if len(set(axes)) < len(axes):
            raise InvalidArgumentError(f"Duplicate reduction dimension in {wanted}")
        if not axes:
            return x
        left = [a for a in range(x.ndim) if a not in axes]
        shape = [x.shape[a] for a in left]
        n = int(np.prod(shape))
        # the first of the axes varies fastest
        rows = x.transpose(left + axes[::-1]).reshape(n, -1 if n else 0)
        budget = Budget("ReduceJoin")
        out = _strings(*(budget.join(separator, row.tolist()) for row in rows))
        return out.reshape([1 if a in axes else d for a, d in enumerate(x.shape)] if keep else shape)

    return kernel


def _reduce_joins(rng: np.random.Generator, dtype: DType) -> list[Any]:
    x = _strings("a", "b", "c", "d", shape=(2, 2))

    def some(axes: Any, want: np.ndarray, **attrs: Any) -> Any:
        return case(x, np.array(axes, np.int32), want=want, **attrs)

    return [
        some([0], _strings("ac", "bd")),
        some(-1, _strings("a.b", "c.d", shape=(2, 1)), keep_dims=True, separator="."),
        some([0, 1], np.array(b"acbd", object)),
        some([1, 0], np.array(b"abcd", object)),
        some([], x),
        case(x[:, :0], np.array([1], np.int32), want=_strings("", "")),
    ]


op(
    "ReduceJoin",
    "inputs: string, reduction_indices: int32",
    "output: string",
    {"keep_dims": False, "separator": ""},
    shape=lambda c: [shapes.reduced(c.shapes[0], c.axes(1), c.attrs["keep_dims"])],
    kernel=_reduce_join_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    batch=shifting_axes(1, 0),
    facts=Facts(dynamic_shape=True, cost=flops_per_element(100)),
    sample=_reduce_joins,
    doc="The strings along some axes joined, along the first axis first.",
)

# *** one string to one ***


def _length_kernel(attrs: Mapping[str, Any]) -> Any:
    size = len if attrs["unit"] == "BYTE" else lambda x: sum(b & 0xC0 != 0x80 for b in x)
    return lambda x: np.array([size(v) for v in x.ravel()], np.int32).reshape(x.shape)


op(
    "StringLength",
    "input: string",
    "output: int32",
    {"unit": _UNIT},
    shape=same_as(0),
    kernel=_length_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, dtype: [
        case(_strings("h\u00e9llo\u20ac", ""), want=np.array([9, 0], np.int32)),
        case(_strings("h\u00e9llo\u20ac", ""), unit="UTF8_CHAR", want=np.array([6, 0], np.int32)),
        case(np.array(b"abc", object), want=np.array(3, np.int32)),
    ],
    doc="The number of bytes or characters of each string.",
)


def _case_kernel(of_bytes: Callable[[bytes], bytes], of_text: Callable[[str], str]) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Any:
        encoding = attrs["encoding"]
        if encoding not in ("", "utf-8"):
            raise InvalidArgumentError(f"only utf-8 or '' (no encoding) is supported, received: '{encoding}'")
        if not encoding:
            return lambda x: _each(of_bytes, x)
        return lambda x: _each(lambda v: of_text(v.decode("utf-8", "replace")).encode(), x)

    return factory


for _name, _of_bytes, _of_text in (("Lower", bytes.lower, str.lower), ("Upper", bytes.upper, str.upper)):
    op(
        f"String{_name}",
        "input: string",
        "output: string",
        {"encoding": ""},
        shape=same_as(0),
        kernel=_case_kernel(_of_bytes, _of_text),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=_COST,
        oracle=lambda x, encoding="", f=_of_text, g=_of_bytes: _strings(
            *(f(v.decode()).encode() if encoding else g(v) for v in x.ravel()), shape=x.shape
        ),
        sample=lambda rng, dtype: [
            case(_strings("H\u00c9Llo 1", "")),
            case(_strings("H\u00c9Llo", "stra\u00dfe"), encoding="utf-8"),
            case(np.array(b"aB", object)),
        ],
        doc=f"Each string in {_name.lower()} case: of ASCII letters, or of all with the encoding utf-8.",
    )

op(
    "StringStrip",
    "input: string",
    "output: string",
    shape=same_as(0),
    kernel=lambda attrs: lambda x: _each(bytes.strip, x),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=lambda rng, dtype: [
        case(_strings(" \t a b\n\x0b\x0c\r", "", "x"), want=_strings("a b", "", "x")),
        case(np.array(b" x", object), want=np.array(b"x", object)),
    ],
    doc="Each string without white space at its ends.",
)
