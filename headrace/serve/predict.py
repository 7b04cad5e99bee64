"""The JSON of predictions, in TensorFlow Serving's REST format.

A request has its arguments by columns or by rows:

    {"inputs": {"x": [[1, 2], [3, 4]], "y": [5, 6]}}                      an array for each argument
    {"inputs": [[1, 2], [3, 4]]}                                          the array of the only argument
    {"instances": [{"x": [1, 2], "y": 5}, {"x": [3, 4], "y": 6}]}         a row of each argument
    {"instances": [[1, 2], [3, 4]]}                                       rows of the only argument

The response has the same form: `{"outputs": ...}` or `{"predictions": ...}`, and no names if there is one result. Bytes
are `{"b64": "..."}`: in a request in place of any string, in a response for results whose names end in "_bytes" and for
strings that are not UTF-8. NaN, Infinity and -Infinity are written without quotes, as TensorFlow Serving writes
them; other JSON is strict.

Source: TensorFlow Serving's "RESTful API".
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import InvalidArgumentError
from headrace.records import record
from headrace.serve.runners import DEFAULT, ServingSignature

_KEYS: Final = frozenset(("signature_name", "inputs", "instances"))
_TOKENS: Final = (b"NaN", b"Infinity")
MOST_DIMENSIONS: Final = 32  # numpy has 64; a deeper list is an attack or an error


@record(slots=True)
class Request:
    """A request with its arguments still in JSON's types.

    Attributes:
      signature_name: the signature to call.
      by_rows: whether the arguments are rows ("instances").
      given: the value of "inputs" or "instances".
    """

    signature_name: str
    by_rows: bool
    given: Any


def parse(body: bytes | bytearray) -> Request:
    """Parses the body of a request.

    Raises:
      InvalidArgumentError: it is no JSON object with "inputs" or "instances", or has other keys.
    """
    found = _loads(body)
    if not isinstance(found, dict):
        raise InvalidArgumentError(f'expected a JSON object with "inputs" or "instances", got {_brief(found)}')
    unknown = found.keys() - _KEYS
    if unknown:
        raise InvalidArgumentError(
            f'unknown key {min(unknown)!r}; the keys of a request are "signature_name" and "inputs" or "instances"'
        )
    by_rows = "instances" in found
    if by_rows == ("inputs" in found):
        raise InvalidArgumentError('a request has either "inputs" (arrays) or "instances" (rows)')
    name = found.get("signature_name", DEFAULT)
    if not isinstance(name, str):
        raise InvalidArgumentError(f"signature_name is a string, got {_brief(name)}")
    return Request(name or DEFAULT, by_rows, found["instances" if by_rows else "inputs"])


def _loads(body: bytes | bytearray) -> Any:
    import orjson

    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as e:
        if not any(token in body for token in _TOKENS):
            raise InvalidArgumentError(f"the body is no JSON: {e}") from e
    try:  # the standard library accepts the three tokens
        return json.loads(body)
    except (ValueError, RecursionError) as e:
        raise InvalidArgumentError(f"the body is no JSON: {e}") from e


def arguments(request: Request, signature: ServingSignature) -> list[np.ndarray]:
    """Converts the arguments of a request to arrays, in the order of the signature.

    Raises:
      InvalidArgumentError: an argument is missing or unknown, is ragged, or does not fit its dtype or shape.
    """
    specs = signature.inputs
    columns = _of_rows(request.given, specs) if request.by_rows else _of_columns(request.given, specs)
    return [_array(columns[name], spec, name) for name, spec in specs.items()]


def _of_columns(given: Any, specs: Mapping[str, TensorSpec]) -> Mapping[str, Any]:
    if isinstance(given, dict) and not _is_bytes(given):
        _check_names(given, specs, "inputs")
        return given
    return {_only(specs, "inputs"): given}


def _of_rows(given: Any, specs: Mapping[str, TensorSpec]) -> Mapping[str, Any]:
    if not isinstance(given, list) or not given:
        raise InvalidArgumentError(f'"instances" is a list of at least one row, got {_brief(given)}')
    if not isinstance(given[0], dict) or _is_bytes(given[0]):
        if any(isinstance(row, dict) and not _is_bytes(row) for row in given):
            raise InvalidArgumentError('"instances": all rows have names, or none has')
        return {_only(specs, "instances"): given}
    for k, row in enumerate(given):
        if not isinstance(row, dict) or _is_bytes(row):
            raise InvalidArgumentError('"instances": all rows have names, or none has')
        _check_names(row, specs, f"instances[{k}]")
    return {name: [row[name] for row in given] for name in specs}


def _check_names(given: Mapping[str, Any], specs: Mapping[str, TensorSpec], where: str) -> None:
    if given.keys() != specs.keys():
        missing, unknown = sorted(specs.keys() - given.keys()), sorted(given.keys() - specs.keys())
        parts = [f"lacks {', '.join(missing)}"] * bool(missing) + [f"has unknown {', '.join(unknown)}"] * bool(unknown)
        raise InvalidArgumentError(f"{where} {' and '.join(parts)}; the arguments are {', '.join(specs) or 'none'}")


def _only(specs: Mapping[str, TensorSpec], where: str) -> str:
    if len(specs) != 1:
        raise InvalidArgumentError(
            f"{where}: the signature has {len(specs)} arguments, give them by name: {list(specs)}"
        )
    return next(iter(specs))


def _is_bytes(x: Any) -> bool:
    return isinstance(x, dict) and len(x) == 1 and "b64" in x


def _array(given: Any, spec: TensorSpec, name: str) -> np.ndarray:
    dtype = spec.dtype.base
    try:
        out = _strings(given) if dtype is dtypes.string else _numbers(given, dtype.numpy)
    except InvalidArgumentError as e:
        raise InvalidArgumentError(f"the argument '{name}': {e}") from e
    if not shapes.fits(out.shape, spec.shape):
        raise InvalidArgumentError(
            f"the argument '{name}' has shape {list(out.shape)}; the signature asks for {shapes.show(spec.shape)}"
        )
    return out


def _numbers(given: Any, wanted: np.dtype[Any]) -> np.ndarray:
    try:
        found = np.array(given)
    except (ValueError, OverflowError) as e:
        raise InvalidArgumentError(_ragged(given)) from e
    kind = found.dtype.kind
    if found.dtype == wanted:
        return found
    if kind in "if" and wanted.kind == "f":
        with np.errstate(over="ignore"):
            return found.astype(wanted)
    if kind not in "bif" and not (kind == "u" and wanted.kind in "uf") and found.size:
        raise InvalidArgumentError(f"expected {wanted.name}, got {_other(given)}")
    is_bool = kind == "b"
    if is_bool != (wanted.kind == "b") and found.size:
        raise InvalidArgumentError(f"expected {wanted.name}, got {'booleans' if is_bool else 'numbers'}")
    if wanted.kind in "iu" and found.size:
        if kind == "f":  # also if integers have no common dtype in numpy, as 1 and 2**63
            found = np.array(given, object)
            if not all(isinstance(x, int) for x in found.flat):
                raise InvalidArgumentError(f"expected {wanted.name}, got a number with a decimal point or an exponent")
        bounds = np.iinfo(wanted)
        if int(found.min()) < bounds.min or int(found.max()) > bounds.max:
            raise InvalidArgumentError(f"a number is outside of {wanted.name}: {bounds.min} to {bounds.max}")
    if wanted.kind == "c":
        raise InvalidArgumentError(f"{wanted.name} has no form in JSON")
    with np.errstate(over="ignore"):
        return found.astype(wanted)


def _strings(given: Any) -> np.ndarray:
    shape: list[int] = []
    level: list[Any] = [given]
    while level and isinstance(level[0], list):
        length = len(level[0])
        if any(not isinstance(x, list) or len(x) != length for x in level):
            raise InvalidArgumentError(_ragged(given))
        shape.append(length)
        if len(shape) > MOST_DIMENSIONS:
            raise InvalidArgumentError(f"its lists are nested more than {MOST_DIMENSIONS} deep")
        level = [y for x in level for y in x]
    out = np.empty(len(level), object)
    out[:] = [_string(x) for x in level]
    return out.reshape(shape)


def _string(x: Any) -> bytes:
    if isinstance(x, str):
        try:
            return x.encode()
        except UnicodeEncodeError as e:
            raise InvalidArgumentError(f"a string has half of a surrogate pair at position {e.start}") from e
    if not _is_bytes(x) or not isinstance(x["b64"], str):
        raise InvalidArgumentError(f'expected a string or {{"b64": "..."}}, got {_brief(x)}')
    try:
        return base64.b64decode(x["b64"], validate=True)
    except binascii.Error as e:
        raise InvalidArgumentError(f'"b64": {e}') from e


def _ragged(given: Any) -> str:
    """Returns a text about the first list with another length or depth."""
    level: list[tuple[str, Any]] = [("", given)]
    while level and isinstance(level[0][1], list):
        for where, x in level:
            if not isinstance(x, list):
                return f"at {where}: expected a list, as at {level[0][0]}, got {_brief(x)}"
            if len(x) != len(level[0][1]):
                return f"at {where}: a list of {len(x)}, but one of {len(level[0][1])} at {level[0][0]}"
        level = [(f"{where}[{k}]", y) for where, x in level for k, y in enumerate(x)]
    where, x = next(((where, x) for where, x in level if isinstance(x, (list, dict))), ("", given))
    return f"at {where}: expected a number, got {_brief(x)}" if where else "its lists have different depths"


def _other(given: Any) -> str:
    """The text about the first element that is no number."""
    todo: list[tuple[str, Any]] = [("", given)]
    while todo:
        where, x = todo.pop()
        if isinstance(x, list):
            todo.extend((f"{where}[{k}]", x[k]) for k in reversed(range(len(x))))
        elif not isinstance(x, (int, float)):
            return f"{_brief(x)} at {where}" if where else _brief(x)
    return "a number beyond 64 bits"


def _brief(x: Any) -> str:
    if isinstance(x, (list, dict)):
        return "a list" if isinstance(x, list) else "an object"
    text = repr(x)
    return text if len(text) <= 40 else text[:37] + "..."


# *** responses ***


def response(request: Request, signature: ServingSignature, values: Sequence[np.ndarray]) -> bytes:
    """Returns the JSON of results.

    Args:
      request: the request, whose form the response has.
      signature: its signature.
      values: the results in the order of the signature.

    Raises:
      InvalidArgumentError: the request has rows, and the results have different numbers of rows.
    """
    named = {name: _shown(v, name) for name, v in zip(signature.outputs, values, strict=True)}
    key = "predictions" if request.by_rows else "outputs"
    if len(named) == 1 and (not request.by_rows or np.ndim(values[0])):
        return _dumps({key: next(iter(named.values()))}, values)
    if not request.by_rows:
        return _dumps({key: named}, values)
    lengths = {len(v) if np.ndim(v) else None for v in values}
    if len(lengths) != 1 or None in lengths:
        raise InvalidArgumentError('the results have no common number of rows: send "inputs" in place of "instances"')
    rows = [dict(zip(named, row, strict=True)) for row in zip(*named.values(), strict=True)]
    return _dumps({key: rows}, values)


def _shown(value: Any, name: str) -> Any:
    """Converts a result to an array or lists of strings that orjson can write."""
    value = np.asarray(value)
    if value.dtype == object or value.dtype.kind in "SU":
        as_bytes = name.endswith("_bytes")
        flat = np.empty(value.size, object)
        flat[:] = [_text(x, as_bytes) for x in value.ravel().tolist()]
        return flat.reshape(value.shape).tolist()
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        value = value.astype(np.float32)  # bfloat16 and the 8-bit floats
    return value if value.flags.c_contiguous else np.ascontiguousarray(value).reshape(value.shape)


def _text(x: Any, as_bytes: bool) -> Any:
    data = x.encode() if isinstance(x, str) else bytes(x)
    if not as_bytes:
        try:
            return data.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(data).decode()}


def _dumps(content: Any, values: Sequence[Any]) -> bytes:
    import orjson

    if all(_is_finite(v) for v in values):
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY, default=_listed)
    return json.dumps(content, default=_listed, separators=(",", ":")).encode()


def _is_finite(value: Any) -> bool:
    value = np.asarray(value)
    return value.dtype.kind in "biuSUO" or bool(np.isfinite(value).all())


def _listed(x: Any) -> Any:
    """Arrays that orjson leaves to its caller, such as those of no dimension."""
    if isinstance(x, (np.ndarray, np.generic)):
        return x.tolist()
    raise TypeError(f"{type(x).__name__} has no form in JSON")
