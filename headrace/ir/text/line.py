"""Lexical level of the text form: words, names and attribute values of a line.

A line is read from left to right. See `ir.text`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import GraphError, TextError
from headrace.ir import attr_values
from headrace.ir.attr_values import Func
from headrace.ir.notes import Note, note_from_data
from headrace.ir.serial import attrs as wire
from headrace.records import record
from headrace.shapes import Shape

WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")  # names of attributes
NAME: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9_.\\/>-]*")  # names of operations and types
_ATOM: Final = re.compile(r"[A-Za-z0-9_.+-]+")
INT: Final = re.compile(r"[+-]?[0-9]{1,20}(?![0-9])")
_DIM: Final = re.compile(r"[0-9]{1,19}(?![0-9])|\?")
_ELEMENT: Final = re.compile(r"[^\s,{}\"]+?(?=\.\.\.|[\s,{}\"])")
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_UNESCAPED: Final = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b'"': b'"', b"\\": b"\\"}
_SPACE: Final = re.compile(r"[ \t\r]*")


def from_words(dtype: DType, words: Sequence[str]) -> wire.Values:
    """Returns the vector of the elements `words`, in text form.

    Raises:
      ValueError: a word is not an element of `dtype`.
    """
    of: Callable[[str], Any]
    if dtype is dtypes.bool_:
        values: list[Any] = [{"true": True, "false": False}.get(w) for w in words]
        if None in values:
            raise ValueError(f"{words[values.index(None)]!r} is neither true nor false")
        return np.array(values, bool)
    if dtype.is_integer:
        return np.array([int(w) for w in words], dtype.numpy)
    of = complex if dtype.is_complex else float
    wide = np.array([of(w) for w in words], np.complex128 if dtype.is_complex else np.float64)
    with np.errstate(over="ignore"):
        return wide.astype(dtype.numpy)


@record(frozen=True, slots=True)
class OwnedName:
    """Value of an attribute that a block below the operation's line describes: `@"name"`.

    Attributes:
      name: the name of the block's graph.
    """

    name: str


class Line:
    """Line with a read position, which moves from left to right.

    Attributes:
      text: the line.
      number: its number in the file, from 1.
      file: the name of the file for messages.
      at: the read position.
    """

    def __init__(self, text: str, number: int, file: str) -> None:
        self.text = text
        self.number = number
        self.file = file
        self.at = 0

    def error(self, message: str, at: int | None = None) -> TextError:
        at = min(self.at if at is None else at, len(self.text))
        shown = self.text.replace("\t", " ")
        return TextError(f"{self.file}:{self.number}:{at + 1}: {message}\n  {shown}\n  {' ' * at}^")

    def skip(self) -> int:
        m = _SPACE.match(self.text, self.at)
        self.at = m.end() if m else self.at
        return self.at

    def ends(self) -> bool:
        self.skip()
        return self.at == len(self.text) or self.text[self.at] == "#"

    def looks_at(self, what: str) -> bool:
        return self.text.startswith(what, self.skip())

    def take(self, what: str) -> bool:
        if not self.looks_at(what):
            return False
        self.at += len(what)
        return True

    def take_word(self, word: str) -> bool:
        m = WORD.match(self.text, self.skip())
        return m is not None and m.group() == word and self.take(word)

    def need(self, what: str) -> None:
        if not self.take(what):
            raise self.error(f"expected {what!r}")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        m = pattern.match(self.text, self.skip())
        if m is None:
            raise self.error(f"expected {what}")
        self.at = m.end()
        return m.group()

    def several(self, read: Callable[[], Any], end: str) -> list[Any]:
        """Returns the results of `read()` for a list with commas, up to `end`."""
        out: list[Any] = []
        while not self.take(end):
            if out:
                self.need(",")
            out.append(read())
        return out

    def tensor_name(self) -> tuple[int, str, int]:
        """Returns (column, name of the operation, index of the output)."""
        at = self.skip()
        name = self.match(NAME, "the name of a tensor")
        index = int(self.match(INT, "the index of an output")) if self.take(":") else 0
        return at, name, index

    def control_names(self) -> list[tuple[int, str]]:
        """Returns (column, name) for each name in `^a ^b ...`."""
        out = []
        while self.take("^"):
            out.append((self.at, self.match(NAME, "the name of an operation")))
        return out

    # *** values ***

    def string(self) -> bytes:
        start = self.skip()
        quoted = self.match(_STRING, "a string in double quotes")[1:-1]

        def unescape(m: re.Match[bytes]) -> bytes:
            if m.group(1):
                return bytes([int(m.group(1), 16)])
            plain = _UNESCAPED.get(m.group(2))
            if plain is None:
                raise self.error(f"\\{m.group(2).decode(errors='replace')} is no escape in a string", start)
            return plain

        return _ESCAPE.sub(unescape, quoted.encode("utf-8", "surrogatepass"))

    def word(self) -> str:
        return self.string().decode("utf-8", "surrogateescape")

    def base64(self) -> bytes:
        self.need("base64")
        start = self.at
        try:
            return base64.b64decode(self.string(), validate=True)
        except binascii.Error as e:
            raise self.error(f"not base64: {e}", start) from e

    def shape(self) -> Shape:
        if self.take("<unknown>"):
            return None
        self.need("[")
        dims = self.several(lambda: self.match(_DIM, "a dimension or '?'"), "]")
        return tuple(None if d == "?" else int(d) for d in dims)

    def dtype(self) -> DType:
        start = self.skip()
        word = self.match(_ATOM, "a dtype")
        try:
            return dtypes.as_dtype(word)
        except TypeError as e:
            raise self.error(str(e), start) from None

    def attrs(self) -> dict[str, Any]:
        """Returns the attributes of `[name=value, ...]`, or none."""
        out: dict[str, Any] = {}
        if not self.take("["):
            return out

        def one() -> None:
            start = self.skip()
            name = self.word() if self.looks_at('"') else self.match(WORD, "the name of an attribute")
            if name in out:
                raise self.error(f"the attribute {name!r} is given twice", start)
            self.need("=")
            out[name] = self.value()

        self.several(one, "]")
        return out

    def notes(self) -> list[Note]:
        """Returns the notes of `{Name[field=value, ...], ...}`, or none."""

        def one() -> Note:
            start = self.skip()
            name = self.match(WORD, "the name of a note")
            try:
                return note_from_data(name, self.attrs())
            except GraphError as e:
                raise self.error(str(e), start) from e

        return self.several(one, "}") if self.take("{") else []

    def value(self) -> Any:
        start = self.skip()
        if self.looks_at('"'):
            return self.word()
        if self.looks_at("[") or self.looks_at("<"):
            return self.shape()
        if self.take("("):
            return tuple(self.several(self.value, ")"))
        if self.take("@"):
            return OwnedName(self.word())
        if self.take("&"):
            name = self.word()
            return Func(name, tuple(self.attrs().items()))
        word = self.match(_ATOM, "a value")
        if word in ("true", "false"):
            return word == "true"
        if word == "bad":
            self.need("(")
            reason = self.word()
            self.need(",")
            bad = attr_values.BadTensor(reason, self.base64())
            self.need(")")
            return bad
        if word == "raw":
            self.need("(")
            raw = attr_values.Raw(self.base64())
            self.need(")")
            return raw
        if word.lstrip("+-").isdigit():
            self.at = start
            return int(self.match(INT, "an integer of 64 bits"))
        try:
            return float(word)
        except ValueError:
            self.at = start
        dtype = self.dtype()
        return self.array(dtype) if self.text.startswith("[", self.at) else dtype

    def array(self, dtype: DType) -> wire.Values:
        start = self.at
        shape = self.shape()
        if shape is None or None in shape or dtype.is_ref or dtype in (dtypes.resource, dtypes.variant):
            raise self.error(f"there is no array of {dtype.name}{shapes.show(shape)}", start)
        sizes = tuple(d for d in shape if d is not None)
        try:
            flat, repeated = self.elements(dtype)
            array = np.broadcast_to(flat.reshape(()), sizes) if repeated else flat.reshape(sizes)
        except (ValueError, OverflowError, TypeError) as e:
            if isinstance(e, TextError):
                raise
            raise self.error(f"no elements of an array of {dtype.name}{shapes.show(shape)}: {e}", start) from e
        array.flags.writeable = False
        return array

    def elements(self, dtype: DType) -> tuple[wire.Values, bool]:
        """Returns the elements of an array, and whether "..." repeats the element."""
        if self.take(":"):
            stored = np.dtype(np.uint8) if dtype is dtypes.bool_ else dtype.numpy.newbyteorder("<")
            return np.frombuffer(self.base64(), stored).astype(dtype.numpy), self.take("...")
        self.need("{")
        words: list[Any] = []
        while not self.looks_at("}") and not self.looks_at("..."):
            if words:
                self.need(",")
            words.append(self.string() if dtype is dtypes.string else self.match(_ELEMENT, "an element"))
        repeated = self.take("...")
        self.need("}")
        if dtype is not dtypes.string:
            return from_words(dtype, words), repeated
        out = np.empty(len(words), object)
        out[:] = words
        return out, repeated
