"""Files of recordings: a round trip, and damaged, hostile and other files."""

from __future__ import annotations

import base64
import copy
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.errors import DataLossError
from headrace.observe.recorded import MEMBER, check, is_recording, read_recording, write_recording


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2,), name="x")
        y = hr.cond(x[0] > 1.0, lambda: hr.exp(x), lambda: -x, name="c")
    with hr.Session(graph=g) as s, hr.record() as recording:
        s.run(y, {x: [0.5, 1.0]})
    out: dict[str, Any] = json.loads(json.dumps(recording.document()))
    return out


def written(path: Path, text: bytes, name: str = MEMBER, method: int = zipfile.ZIP_DEFLATED, n: int = 1) -> Path:
    with zipfile.ZipFile(path, "w", method) as z:
        for i in range(n):
            z.writestr(name if i == 0 else f"{name}{i}", text)
    return path


def test_a_file_has_the_document_unchanged(document: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "step.hrrec"
    write_recording(file, document)
    assert is_recording(file)
    assert read_recording(file) == document
    with zipfile.ZipFile(file) as z:
        assert z.namelist() == ["recording.json"]
    odd = copy.deepcopy(document)
    odd["files"][0]["name"] = "umläut\ud800</script>.py"
    write_recording(file, odd)
    assert read_recording(file)["files"][0]["name"].startswith("umläut")


def test_other_files_are_refused(document: dict[str, Any], tmp_path: Path) -> None:
    text = json.dumps(document).encode()
    (tmp_path / "text").write_bytes(b"PK\x03\x04 is no zip")
    cut = tmp_path / "cut"
    cut.write_bytes(written(tmp_path / "whole", text).read_bytes()[:-200])
    damaged = bytearray(written(tmp_path / "whole", text, method=zipfile.ZIP_STORED).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    cases = {
        "text": "not a recording",
        "cut": "not a recording",
        "damaged": "damaged",
        written(tmp_path / "name", text, "other.json").name: "one member",
        written(tmp_path / "two", text, n=2).name: "one member",
        written(tmp_path / "bytes", b"\xff").name: "utf-8",
        written(tmp_path / "json", text[:-1]).name: "delimiter|Expecting",
        written(tmp_path / "nan", text.replace(b'"version": 2', b'"version": NaN')).name: "NaN",
        written(tmp_path / "deep", b"[" * 100_000).name: "nested too deeply",
        written(tmp_path / "list", b"[]").name: "format",
        written(tmp_path / "newer", text.replace(b'"version": 2', b'"version": 3')).name: "version: 3",
    }
    for name, why in cases.items():
        with pytest.raises(DataLossError, match=why):
            read_recording(tmp_path / name)


def test_a_bomb_is_not_decompressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "RECORDING_DOCUMENT", 10_000)
    bomb = written(tmp_path / "bomb", b" " * 1_000_000)
    with pytest.raises(DataLossError, match=r"1,000,000 bytes; at most 10,000"):
        read_recording(bomb)
    data = bytearray(bomb.read_bytes())
    size = (1_000_000).to_bytes(4, "little")
    data = bytearray(bytes(data).replace(size, (5_000).to_bytes(4, "little")))  # the sizes that it states are wrong
    bomb.write_bytes(data)
    with pytest.raises(DataLossError):
        read_recording(bomb)
    monkeypatch.setattr(thresholds, "RECORDING_FILE", 100)
    with pytest.raises(DataLossError, match="more than the 100"):
        read_recording(bomb)


def column(dtype: str, values: list[int]) -> dict[str, Any]:
    data = np.array(values, dtype).tobytes()
    return {"dtype": dtype, "n": len(values), "base64": base64.b64encode(data).decode()}


def long(given: dict[str, Any], to: int) -> dict[str, Any]:
    """A column of the same length in which each entry is `to`."""
    return column(given["dtype"], [to] * given["n"])


WRONG: dict[str, Callable[[dict[str, Any]], object]] = {
    "document: .*extra": lambda d: d.update(extra=1),
    "document: .*nodes": lambda d: d.pop("nodes"),
    "step.seconds": lambda d: d["step"].update(seconds="1"),
    "step.error": lambda d: d["step"].update(error=3),
    "made": lambda d: d.update(made=None),
    r"strings\[0\]": lambda d: d["strings"].__setitem__(0, 1),
    "frames, tags": lambda d: d.update(tags=[]),
    r"frames\[0\]\.parent": lambda d: d["frames"][0].update(parent=0),
    r"frames\[1\]\.parent": lambda d: d["frames"][1].update(parent=1),
    r"frames\[1\]\.kind": lambda d: d["frames"][1].update(kind="<b>"),
    r"frames\[1\]\.op": lambda d: d["frames"][1].update(op=10**6),
    r"tags\[0\]\.frame": lambda d: d["tags"][0].update(frame=-1),
    r"nodes\[0\]\.frame": lambda d: d["nodes"][0].update(frame=99),
    r"nodes\[0\]\.device": lambda d: d["nodes"][0].update(device=True),
    r"nodes\[0\]\.source": lambda d: d["nodes"][0].update(source=[7, 1]),
    r"nodes\[0\]\.inputs: node 0 has no output": lambda d: d["nodes"][0].update(inputs=[[0, 5]]),
    r"nodes\[0\]\.controls": lambda d: d["nodes"][0].update(controls=[-1]),
    r"nodes\[0\]\.outputs": lambda d: d["nodes"][0].update(outputs=[["float32", [2.5]]]),
    r"nodes\[0\]\.setup": lambda d: d["nodes"][0].update(setup=1),
    r"causes\[0\]\.value": lambda d: d["causes"][0].update(value=1 << 70),
    "tokens.node: expected a column of u4": lambda d: d["tokens"].update(node=[1, 2]),
    "tokens.begin: expected a column of f8": lambda d: d["tokens"].update(begin=column("u4", [1])),
    "tokens.end: .*bytes for": lambda d: d["tokens"]["end"].update(n=10**9),
    "tokens.tag: no base64": lambda d: d["tokens"]["tag"].update(base64="§"),
    "tokens: its columns": lambda d: d["tokens"].update(dead=column("u1", [1])),
    "tokens.node: 77": lambda d: d["tokens"].update(node=long(d["tokens"]["node"], 77)),
    "tokens.node: 4294967295": lambda d: d["tokens"].update(node=long(d["tokens"]["node"], 0xFFFFFFFF)),
    "tokens.value: ": lambda d: d["tokens"].update(value=long(d["tokens"]["value"], 10**9)),
    "values.elements: ": lambda d: d["values"].update(elements=long(d["values"]["elements"], 10**9)),
    "iterations.held_by: ": lambda d: d["iterations"].update(held_by=long(d["iterations"]["held_by"], 10**9)),
    "critical: ": lambda d: d.update(critical=column("u4", [10**6])),
    r"stages\[0\]": lambda d: d["stages"].__setitem__(0, "text"),
    r"stages\[0\].graph: 99": lambda d: d["stages"][0].update(graph=99),
    r"stage_graphs.frames\[0\].parent": lambda d: d["stage_graphs"]["frames"][0].update(parent=0),
    r"stage_graphs.frames: expected the root": lambda d: d["stage_graphs"].update(frames=[]),
    r"stage_graphs.nodes\[1\].frame: 99": lambda d: d["stage_graphs"]["nodes"][1].update(frame=99),
    r"stage_graphs.nodes\[1\].part: -1": lambda d: d["stage_graphs"]["nodes"][1].update(part=-1),
    r"stage_graphs.nodes\[1\].device: 99": lambda d: d["stage_graphs"]["nodes"][1].update(device=99),
    r"stage_graphs.nodes\[1\].source": lambda d: d["stage_graphs"]["nodes"][1].update(source=[99, 1]),
    r"stage_graphs.nodes\[1\].inputs\[0\]": lambda d: d["stage_graphs"]["nodes"][1].update(inputs=[[0, 0]]),
    r"stage_graphs.graphs\[0\]: 9999": lambda d: d["stage_graphs"]["graphs"][0].append(9999),
    "dropped.tokens": lambda d: d["dropped"].update(tokens=0.5),
}


@pytest.mark.parametrize("why", WRONG)
def test_a_wrong_field_is_named(why: str, document: dict[str, Any]) -> None:
    check(document)
    wrong = copy.deepcopy(document)
    WRONG[why](wrong)
    with pytest.raises(ValueError, match=why):
        check(wrong)


def test_a_failed_write_leaves_the_old_file(document: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "step.hrrec"
    write_recording(file, document)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"not JSON compliant|Out of range"):
        write_recording(file, {**document, "step": {"seconds": float("nan")}})
    assert file.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["step.hrrec"]
    assert zipfile.is_zipfile(io.BytesIO(before))
