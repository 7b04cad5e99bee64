"""Files of recordings: zip files with one JSON document, checked on reading.

The document is described in `headrace docs how-to/recording`. A file may come from anywhere, so sizes are bounded
before anything is decompressed, and each field is compared with the schema before a page shows it.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace import thresholds
from headrace.errors import DataLossError
from headrace.files.commit import replacing
from headrace.observe import columns

MEMBER: Final = "recording.json"
FORMAT: Final = "headrace-recording"
VERSION: Final = 2

Check = Callable[[Any, str], None]


class _Wrong(ValueError):
    """A part of a document does not fit; the text names it."""


def write_recording(path: str | os.PathLike[str], document: Mapping[str, Any]) -> None:
    """Writes a document to a file, which is replaced as a whole.

    Raises:
      NotFoundError, PermissionDeniedError, ResourceExhaustedError: the system refused an operation.
    """
    text = json.dumps(document, allow_nan=False, separators=(",", ":"))
    with replacing(os.fspath(path)) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as z:
        z.writestr(MEMBER, text.encode("ascii"))


def is_recording(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a recording does.

    Raises:
      OSError: the file cannot be read.
    """
    with open(path, "rb") as f:
        return f.read(4) == b"PK\x03\x04"


def read_recording(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads and checks a file of `hr.record`.

    Returns:
      The document, each field of which fits the schema.

    Raises:
      DataLossError: the file is not a recording, is damaged, or is larger than `thresholds.RECORDING_FILE` and
        `thresholds.RECORDING_DOCUMENT` allow.
      OSError: the file cannot be read.
    """
    name = os.fspath(path)
    size = os.stat(name).st_size
    if size > thresholds.RECORDING_FILE:
        raise DataLossError(f"{name}: {size:,} bytes, more than the {thresholds.RECORDING_FILE:,} of a recording")
    most = thresholds.RECORDING_DOCUMENT
    try:
        with zipfile.ZipFile(name) as z:
            members = z.infolist()
            if [m.filename for m in members] != [MEMBER]:
                raise DataLossError(
                    f"{name}: not a recording: expected one member {MEMBER!r}, as `hr.record` writes it"
                )
            if members[0].file_size > most:
                raise DataLossError(f"{name}: a document of {members[0].file_size:,} bytes; at most {most:,} are read")
            with z.open(members[0]) as member:
                data = member.read(most + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as e:
        raise DataLossError(f"{name}: not a recording, or damaged: {e}") from e
    if len(data) > most:
        raise DataLossError(f"{name}: the document is longer than the file says; at most {most:,} bytes are read")
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
        check(document)
    except RecursionError as e:
        raise DataLossError(f"{name}: the document is nested too deeply") from e
    except ValueError as e:  # of json, of utf-8 and of `check`
        raise DataLossError(f"{name}: {e}") from e
    return document  # type: ignore[no-any-return]


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def check(document: Any) -> None:
    """Raises ValueError unless `document` fits the schema, with all indices in range."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _Wrong(f"format: expected {FORMAT!r}")
    if document.get("version") != VERSION:
        raise _Wrong(f"version: {document.get('version')!r:.40}; this headrace reads version {VERSION}")
    _DOCUMENT(document, "")
    _Indices(document).check()


# *** the schema: a function for each kind of field, with the field's name for its error ***


def _text(value: Any, at: str) -> None:
    if not isinstance(value, str):
        raise _Wrong(f"{at}: expected a text")


def _flag(value: Any, at: str) -> None:
    if type(value) is not bool:
        raise _Wrong(f"{at}: expected true or false")


def _number(value: Any, at: str) -> None:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise _Wrong(f"{at}: expected a number")


def _integer(value: Any, at: str) -> None:
    if type(value) is not int or not -1 <= value < 1 << 53:
        raise _Wrong(f"{at}: expected an integer from -1 on")


def _signed(value: Any, at: str) -> None:
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise _Wrong(f"{at}: expected an integer of 64 bits")


def _or_none(inner: Check) -> Check:
    return lambda value, at: None if value is None else inner(value, at)


def _list(inner: Check, n: int | None = None) -> Check:
    def check_list(value: Any, at: str) -> None:
        if not isinstance(value, list) or (n is not None and len(value) != n):
            raise _Wrong(f"{at}: expected a list" + ("" if n is None else f" of {n}"))
        for i, x in enumerate(value):
            inner(x, f"{at}[{i}]")

    return check_list


def _pair(first: Check, second: Check) -> Check:
    def check_pair(value: Any, at: str) -> None:
        if not isinstance(value, list) or len(value) != 2:
            raise _Wrong(f"{at}: expected a pair")
        first(value[0], f"{at}[0]")
        second(value[1], f"{at}[1]")

    return check_pair


def _fields(**inner: Check) -> Check:
    def check_fields(value: Any, at: str) -> None:
        if not isinstance(value, dict):
            raise _Wrong(f"{at or 'document'}: expected an object")
        if value.keys() != inner.keys():
            odd = sorted(map(str, value.keys() ^ inner.keys()))
            raise _Wrong(f"{at or 'document'}: a field is missing or unknown: {', '.join(odd)[:200]}")
        for name, one in inner.items():
            one(value[name], f"{at}.{name}" if at else name)

    return check_fields


def _one_of(*texts: str) -> Check:
    def check_choice(value: Any, at: str) -> None:
        if value not in texts:
            raise _Wrong(f"{at}: expected one of {', '.join(texts)}")

    return check_choice


def _column(dtype: str) -> Check:
    def check_column(value: Any, at: str) -> None:
        if not isinstance(value, dict) or value.get("dtype") != dtype:
            raise _Wrong(f"{at}: expected a column of {dtype}")
        try:
            columns.read(value)
        except ValueError as e:
            raise _Wrong(f"{at}: {e}") from e

    return check_column


_U1, _U4, _F8 = _column("u1"), _column("u4"), _column("f8")

_OUTPUTS: Final = _list(_pair(_text, _or_none(_list(_or_none(_integer)))))

_NODE: Final = _fields(
    name=_text,
    type=_text,
    frame=_integer,
    device=_integer,
    source=_or_none(_list(_integer, 2)),
    scope=_text,
    inputs=_list(_list(_integer, 2)),
    controls=_list(_integer),
    outputs=_OUTPUTS,
    attrs=_text,
    constant=_or_none(_text),
    setup=_flag,
    variable=_or_none(_text),
)

_STAGE_NODE: Final = _fields(
    name=_text,
    type=_text,
    part=_integer,
    frame=_integer,
    device=_integer,
    source=_or_none(_list(_integer, 2)),
    inputs=_list(_pair(_text, _integer)),
    controls=_list(_text),
    outputs=_OUTPUTS,
    attrs=_text,
    constant=_or_none(_text),
    setup=_flag,
)

_FRAMES: Final = _list(
    _fields(
        name=_text, kind=_one_of("root", "loop", "function", "branch"), parent=_integer, op=_integer, limit=_integer
    )
)

_DOCUMENT: Final = _fields(
    format=_text,
    version=_integer,
    headrace=_text,
    made=_text,
    step=_fields(number=_integer, seconds=_number, error=_or_none(_text), fetches=_list(_text), feeds=_list(_text)),
    strings=_list(_text),
    devices=_list(_text),
    files=_list(_fields(name=_text, text=_or_none(_text))),
    frames=_FRAMES,
    nodes=_list(_NODE),
    tags=_list(_fields(frame=_integer, iteration=_integer, parent=_integer, text=_text)),
    tokens=_fields(node=_U4, tag=_U4, begin=_F8, end=_F8, dead=_U1, waited=_U1, cause=_U4, value=_U4, device=_U4),
    values=_fields(dtype=_U4, shape=_U4, min=_F8, max=_F8, mean=_F8, nans=_U4, bytes=_F8, elements=_U4),
    iterations=_fields(tag=_U4, device=_U4, open=_F8, close=_F8, held_by=_U4),
    crossings=_fields(**{"edge": _U4, "tag": _U4, "from": _U4, "to": _U4, "sent": _F8, "received": _F8, "dead": _U1}),
    critical=_U4,
    causes=_list(_fields(op=_text, node=_integer, where=_text, selector=_text, value=_signed)),
    stages=_list(_fields(name=_text, text=_text, graph=_integer)),
    stage_graphs=_fields(
        frames=_FRAMES,
        parts=_list(_pair(_text, _text)),
        devices=_list(_text),
        nodes=_list(_STAGE_NODE),
        graphs=_list(_list(_integer)),
        note=_text,
    ),
    dropped=_fields(tokens=_integer, values=_integer),
)


class _Indices:
    """Indices of a document that fits the schema.

    Args:
      document: the document.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        tables = ("strings", "devices", "files", "frames", "nodes", "tags", "causes")
        self._n = {name: len(document[name]) for name in tables}
        for name in ("tokens", "values", "iterations", "crossings"):
            lengths = {c["n"] for c in document[name].values()}
            if len(lengths) > 1:
                raise _Wrong(f"{name}: its columns have different lengths")
            self._n[name] = min(lengths)

    def check(self) -> None:
        """Raises `_Wrong` for an index out of range."""
        d = self._document
        if not d["frames"] or not d["tags"]:
            raise _Wrong("frames, tags: expected the root")
        for name in ("frames", "tags"):
            _check_parents(d[name], name)
        self._stages()
        for i, f in enumerate(d["frames"]):
            self._one("nodes", f["op"], f"frames[{i}].op", least=-1)
        for i, t in enumerate(d["tags"]):
            self._one("frames", t["frame"], f"tags[{i}].frame")
        for i, n in enumerate(d["nodes"]):
            self._node(n, f"nodes[{i}]")
        for i, c in enumerate(d["causes"]):
            self._one("nodes", c["node"], f"causes[{i}].node", least=-1)
        for table, fields in _REFERENCES.items():
            for field, (to, has_none) in fields.items():
                self._column(d[table][field], f"{table}.{field}", to, has_none)
        self._column(d["critical"], "critical", "tokens", False)

    def _stages(self) -> None:
        found = self._document["stage_graphs"]
        if not found["frames"]:
            raise _Wrong("stage_graphs.frames: expected the root")
        _check_parents(found["frames"], "stage_graphs.frames")
        at = "stage_graphs.nodes"
        for i, n in enumerate(found["nodes"]):
            _in_range(n["frame"], len(found["frames"]), f"{at}[{i}].frame")
            _in_range(n["part"], len(found["parts"]), f"{at}[{i}].part")
            _in_range(n["device"], len(found["devices"]), f"{at}[{i}].device")
            if n["source"] is not None:
                self._one("files", n["source"][0], f"{at}[{i}].source")
        for i, graph in enumerate(found["graphs"]):
            for node in graph:
                _in_range(node, len(found["nodes"]), f"stage_graphs.graphs[{i}]")
        for i, stage in enumerate(self._document["stages"]):
            _in_range(stage["graph"], len(found["graphs"]), f"stages[{i}].graph", least=-1)

    def _node(self, n: Mapping[str, Any], at: str) -> None:
        self._one("frames", n["frame"], f"{at}.frame")
        self._one("devices", n["device"], f"{at}.device")
        if n["source"] is not None:
            self._one("files", n["source"][0], f"{at}.source")
        for source, output in n["inputs"]:
            self._one("nodes", source, f"{at}.inputs")
            if not 0 <= output < len(self._document["nodes"][source]["outputs"]):
                raise _Wrong(f"{at}.inputs: node {source} has no output {output}")
        for c in n["controls"]:
            self._one("nodes", c, f"{at}.controls")

    def _one(self, table: str, index: int, at: str, least: int = 0) -> None:
        if not least <= index < self._n[table]:
            raise _Wrong(f"{at}: {index}, and there are {self._n[table]} {table}")

    def _column(self, given: Mapping[str, Any], at: str, table: str, has_none: bool) -> None:
        array = columns.read(given)
        bad = array >= self._n[table]
        if has_none:
            bad &= array != columns.NONE
        if bad.any():
            raise _Wrong(f"{at}: {int(array[np.argmax(bad)])}, and there are {self._n[table]} {table}")


def _check_parents(rows: Sequence[Mapping[str, Any]], name: str) -> None:
    for i, x in enumerate(rows):
        if not -1 <= x["parent"] < i or (x["parent"] < 0) != (i == 0):
            raise _Wrong(f"{name}[{i}].parent: expected an earlier one")


def _in_range(index: int, n: int, at: str, least: int = 0) -> None:
    if not least <= index < n:
        raise _Wrong(f"{at}: {index}, and there are {n}")


#: Columns of indices: the table that they refer to, and whether an entry may refer to nothing.
_REFERENCES: Final[Mapping[str, Mapping[str, tuple[str, bool]]]] = {
    "tokens": {
        "node": ("nodes", False),
        "tag": ("tags", False),
        "cause": ("causes", True),
        "value": ("values", True),
        "device": ("devices", False),
    },
    "values": {"dtype": ("strings", False), "shape": ("strings", False), "elements": ("strings", False)},
    "iterations": {"tag": ("tags", False), "device": ("devices", False), "held_by": ("nodes", True)},
    "crossings": {
        "edge": ("strings", False),
        "tag": ("tags", False),
        "from": ("devices", False),
        "to": ("devices", False),
    },
}
