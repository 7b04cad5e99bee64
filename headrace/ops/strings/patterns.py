"""Strings and regular expressions: RegexReplace, RegexFullMatch, and the forms whose pattern is an attribute.

Source: TensorFlow's ops of the same names. The expressions are those of RE2, in which the time of a match is
proportional to the length of the string for every pattern; https://github.com/google/re2/wiki/Syntax describes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, string_attr
from headrace.opkit.batch_rules import first_in_step
from headrace.opkit.shape_rules import same_as
from headrace.ops.strings.elements import Budget, each, texts
from headrace.shapes import Shape, show, with_rank

_COST = Facts(cost=flops_per_element(5000))
_CHARACTER = re.compile(rb"[\xc0-\xff][\x80-\xbf]{1,3}")


def _compiled(pattern: bytes) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as e:
        why = e.args[0] if e.args else b""
        raise InvalidArgumentError(f"Invalid pattern: {_shown(pattern)}, error: {_shown(why)}") from None


def _shown(text: bytes | str) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


# *** Replacing ***


def _pieces(rewrite: bytes) -> tuple[list[bytes | int], bool]:
    r"""Parses `rewrite` into texts and group numbers, and reports whether it is valid.

    `\0` to `\9` stand for groups, `\\` for a backslash; it ends before another backslash.
    """
    found: list[bytes | int] = []
    at = 0
    for escape in re.finditer(rb"\\(.?)", rewrite, re.DOTALL):
        found.append(rewrite[at : escape.start()])
        what = escape[1]
        if what.isdigit():
            found.append(int(what))
        elif what == b"\\":
            found.append(what)
        else:
            return found, False
        at = escape.end()
    return [*found, rewrite[at:]], True


def _matches(pattern: Any, text: bytes) -> Iterator[Any]:
    """The matches that do not overlap; none is empty right behind another."""
    at, last = 0, -1
    while at <= len(text):
        found = pattern.search(text, at)
        if found is None:
            return
        begin, end = found.span()
        if begin == end == last:
            at = begin + _character(text, begin)
            continue
        yield found
        at = last = end


def _character(text: bytes, at: int) -> int:
    """Number of bytes of the character at `at`; 1 for invalid UTF-8."""
    found = _CHARACTER.match(text, at)
    for n in range(2, len(found[0]) + 1) if found else ():
        try:
            text[at : at + n].decode()
        except UnicodeDecodeError:
            continue
        return n
    return 1


def _replacer(pattern: bytes, rewrite: bytes, everywhere: bool) -> Callable[[bytes, Budget], bytes]:
    compiled = _compiled(pattern)
    pieces, is_valid = _pieces(rewrite)
    if any(isinstance(p, int) and p > compiled.groups for p in pieces) or not (is_valid or everywhere):
        return lambda text, budget: text  # as RE2 has it: nothing is replaced

    def replaced(text: bytes, budget: Budget) -> bytes:
        out: list[bytes] = []
        at = 0
        for match in _matches(compiled, text):
            new = [p if isinstance(p, bytes) else match[p] or b"" for p in pieces]
            budget.take(match.start() - at + sum(map(len, new)))
            out.append(text[at : match.start()])
            out += new
            at = match.end()
            if not everywhere:
                break
        return b"".join([*out, text[at:]])

    return replaced


def _matcher(pattern: bytes) -> Callable[[bytes], bool]:
    fullmatch = _compiled(pattern).fullmatch
    return lambda text: fullmatch(text) is not None


# *** Kernels ***


def _scalar(x: Any, name: str) -> bytes:
    if x.ndim:
        raise InvalidArgumentError(f"{name} must be scalar, but received {show(x.shape)}")
    out: bytes = x.item()
    return out


def _replace_kernel(attrs: Mapping[str, Any]) -> Any:
    everywhere = attrs["replace_global"]

    def kernel(x: Any, pattern: Any, rewrite: Any) -> Any:
        replaced = _replacer(_scalar(pattern, "Pattern"), _scalar(rewrite, "Rewrite"), everywhere)
        budget = Budget("RegexReplace")
        return each(lambda text: replaced(text, budget), x)

    return kernel


def _static_replace_kernel(attrs: Mapping[str, Any]) -> Any:
    replaced = _replacer(_bytes(attrs["pattern"]), _bytes(attrs["rewrite"]), attrs["replace_global"])

    def kernel(x: Any) -> Any:
        budget = Budget("StaticRegexReplace")
        return each(lambda text: replaced(text, budget), x)

    return kernel


def _match_kernel(attrs: Mapping[str, Any]) -> Any:
    return lambda x, pattern: each(_matcher(_scalar(pattern, "Pattern")), x, np.bool_)


def _static_match_kernel(attrs: Mapping[str, Any]) -> Any:
    matches = _matcher(_bytes(attrs["pattern"]))
    return lambda x: each(matches, x, np.bool_)


def _bytes(attribute: str) -> bytes:
    return attribute.encode("utf-8", "surrogateescape")


def _dynamic_shape(c: Inference) -> Sequence[Shape]:
    for s in c.shapes[1:]:
        with_rank(s, 0)
    return [c.shapes[0]]


# *** Records ***


_REPLACED = (
    ("a(b)", r"<\1\0>", (b"abc", b"xaby", b""), (b"<bab>c", b"x<bab>y", b"")),
    ("b*", "-", (b"abc", b"h\xc3\xa9"), (b"-a-c-", b"-h-\xc3\xa9-")),
    ("", r"\\", (b"a\xff",), (b"\\a\\\xff\\",)),
    ("(a)|b", r"[\1]", (b"ab", b"c"), (b"[a][]", b"c")),
    ("a", r"\1", (b"ab",), (b"ab",)),
)
_FIRST = (("a", "bb", (b"aa", b"c"), (b"bba", b"c")),)
_MATCHED = (
    ("a|ab", (b"a", b"ab", b"b"), (True, True, False)),
    (r"(?s)\pL.", (b"\xc3\xa9\n", b"a", b"a\xff"), (True, False, False)),
)


def _replacements(static: bool) -> Any:
    def one(pattern: str, rewrite: str, before: tuple[bytes, ...], after: tuple[bytes, ...], **attrs: Any) -> Any:
        x, want = texts(*before), texts(*after)
        if static:
            return case(x, want=want, pattern=pattern, rewrite=rewrite, **attrs)
        return case(x, *(np.array(_bytes(s), object) for s in (pattern, rewrite)), want=want, **attrs)

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        return [one(*r) for r in _REPLACED] + [one(*r, replace_global=False) for r in _FIRST]

    return sample


def _matching(static: bool) -> Any:
    def one(pattern: str, found: tuple[bytes, ...], want: tuple[bool, ...]) -> Any:
        x = texts(*found)
        if static:
            return case(x, want=np.array(want), pattern=pattern)
        return case(x, np.array(_bytes(pattern), object), want=np.array(want))

    return lambda rng, dtype: [one(*m) for m in _MATCHED]


_PATTERN, _REWRITE = {"pattern": string_attr()}, {"rewrite": string_attr()}
_ALL = {"replace_global": True}

for _type, _ins, _outs, _attrs, _shape, _kernel, _sample, _doc in (
    (
        "RegexReplace",
        "input: string, pattern: string, rewrite: string",
        "output: string",
        _ALL,
        _dynamic_shape,
        _replace_kernel,
        _replacements(static=False),
        "Each string with what matches a pattern replaced, everywhere or once.",
    ),
    (
        "StaticRegexReplace",
        "input: string",
        "output: string",
        _PATTERN | _REWRITE | _ALL,
        same_as(0),
        _static_replace_kernel,
        _replacements(static=True),
        "Each string with what matches a fixed pattern replaced, everywhere or once.",
    ),
    (
        "RegexFullMatch",
        "input: string, pattern: string",
        "output: bool",
        {},
        _dynamic_shape,
        _match_kernel,
        _matching(static=False),
        "Whether each string as a whole matches a pattern.",
    ),
    (
        "StaticRegexFullMatch",
        "input: string",
        "output: bool",
        _PATTERN,
        same_as(0),
        _static_match_kernel,
        _matching(static=True),
        "Whether each string as a whole matches a fixed pattern.",
    ),
):
    op(
        _type,
        _ins,
        _outs,
        _attrs,
        shape=_shape,
        kernel=_kernel,
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        batch=first_in_step(0),
        facts=_COST,
        sample=_sample,
        doc=_doc,
    )
