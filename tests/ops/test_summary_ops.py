"""Summaries beyond the cases of the records, and the functions that make them."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import headrace as hr
from headrace.api import summary
from headrace.errors import GraphError, InvalidArgumentError, UnimplementedError
from headrace.files import summaries
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph
from headrace.ops.io.histograms import histogram, limits

if TYPE_CHECKING:
    from headrace.pb import Summary

F32 = np.float32


def text(*items: bytes) -> np.ndarray:
    out = np.empty(len(items), object)
    out[:] = items
    return out


TAG = np.array(b"tag", object)


def run(type: str, *inputs: Any, **attrs: Any) -> Summary:
    b = Builder(Graph())
    made = b.make(type, inputs, attrs, "node")
    with hr.Session(graph=b.graph) as session:
        return summaries.read(session.run(made))


def pixels(image: Any) -> np.ndarray:
    from PIL import Image

    with Image.open(io.BytesIO(image.encoded_image_string), formats=["PNG"]) as opened:
        return np.array(opened).reshape(image.height, image.width, image.colorspace)


# *** errors ***


@pytest.mark.parametrize(
    ("type", "inputs", "attrs", "match"),
    [
        ("ScalarSummary", [text(b"a", b"b"), F32([1])], {}, r"not the same shape: \[2\] != \[1\]"),
        ("ScalarSummary", [TAG, F32([1])], {}, r"\[\] != \[1\] \(tag 'tag'\)"),
        ("ScalarSummary", [np.array(b"\xff", object), F32(1)], {}, "a tag must be UTF-8"),
        ("HistogramSummary", [text(b"a"), F32([1])], {}, r"tags must be a scalar, got the shape \[1\]"),
        ("HistogramSummary", [TAG, F32([1, np.nan])], {}, "Nan in summary histogram for: tag: 1 of 2 values"),
        ("HistogramSummary", [TAG, np.float64([-np.inf])], {}, "Infinity in summary histogram for: tag"),
        ("ImageSummary", [text(b"a"), np.zeros((1, 2, 2, 1), F32)], {}, "Tags must be a scalar"),
        ("ImageSummary", [TAG, np.zeros((2, 2, 1), F32)], {}, "Tensor must be 4-D with last dim 1, 3, or 4"),
        ("ImageSummary", [TAG, np.zeros((1, 2, 2, 2), F32)], {}, "Tensor must be 4-D with last dim 1, 3, or 4"),
        ("ImageSummary", [TAG, np.zeros((1, 0, 2, 1), F32)], {}, "must have non-zero dims"),
        ("ImageSummary", [TAG, np.broadcast_to(np.uint8(0), (1, 2**15, 2**14, 1))], {}, "too large for summary"),
        ("ImageSummary", [TAG, np.zeros((1, 2, 2, 1), F32)], {"bad_color": np.zeros(1)}, "must be uint8, got float64"),
        (
            "ImageSummary",
            [TAG, np.zeros((1, 2, 2, 1), F32)],
            {"bad_color": np.array(1, np.uint8)},
            "bad_color must be a vector",
        ),
        ("ImageSummary", [TAG, np.zeros((1, 2, 2, 4), F32)], {"bad_color": np.uint8([1])}, "depth = 4"),
        ("ImageSummary", [TAG, np.zeros((1, 2, 2, 1), F32)], {"max_images": 2**31}, "max_images must be < 2"),
        ("AudioSummaryV2", [text(b"a"), np.zeros((1, 2), F32), F32(1)], {}, "Tag must be a scalar"),
        ("AudioSummaryV2", [TAG, np.zeros(2, F32), F32(1)], {}, "Tensor must be 3-D or 2-D"),
        ("AudioSummaryV2", [TAG, np.zeros((1, 2), F32), F32(0)], {}, "sample_rate must be > 0"),
        ("AudioSummaryV2", [TAG, np.zeros((1, 2), F32), F32(np.nan)], {}, "sample_rate must be > 0"),
        ("AudioSummaryV2", [TAG, np.zeros((1, 2), F32), F32(1e10)], {}, "sample_rate must be > 0"),
        ("AudioSummaryV2", [TAG, np.zeros((1, 2), F32), F32([1, 2])], {}, "contain a single value"),
        ("AudioSummaryV2", [TAG, np.zeros((1, 0), F32), F32(1)], {}, "0 frames of 1 channels"),
        ("AudioSummaryV2", [TAG, np.zeros((1, 1, 2**16), F32), F32(1)], {}, "num_channels must be in"),
        ("TensorSummaryV2", [text(b"a"), F32(1), TAG], {}, "tag must be a scalar"),
        ("TensorSummaryV2", [TAG, F32(1), text(b"a")], {}, "serialized_summary_metadata must be a scalar"),
        ("TensorSummaryV2", [TAG, F32(1), np.array(b"\xff", object)], {}, "is no SummaryMetadata message"),
        ("MergeSummary", [[np.array(b"\xff", object)]], {}, "Could not parse one of the summary inputs: input 0"),
    ],
)
def test_what_is_wrong_is_said(type: str, inputs: list[Any], attrs: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidArgumentError, match=match):
        run(type, *inputs, **attrs)


def test_a_tag_that_is_there_twice_is_refused_and_no_tag_is_not() -> None:
    a = np.array(summaries.scalars([b"loss", b"acc"], [1, 2]), object)
    with pytest.raises(InvalidArgumentError, match="Duplicate tag acc found in summary inputs"):
        run("MergeSummary", [a, np.array(summaries.scalars([b"acc"], [1]), object)])
    untagged = np.array(summaries.tensor(b"", node="n"), object)
    assert len(run("MergeSummary", [untagged, a, untagged]).value) == 4


def test_handles_have_no_summary() -> None:
    b = Builder(Graph())
    made = b.TensorSummary(b.EmptyTensorList(b.const([2]), b.const(4), element_dtype=hr.float32))
    with pytest.raises(UnimplementedError, match="a variant has no wire form"):
        hr.Session(graph=b.graph).run(made)


# *** histograms ***


@pytest.mark.matrix
@given(arrays.arrays(np.float64, st.integers(0, 60), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_every_number_is_counted_in_its_bucket(values: np.ndarray) -> None:
    with np.errstate(over="ignore"):  # as kernels have it
        got = histogram(values)
    assert sum(got.counts) == got.number == len(values)
    assert got.limits[-1] == sys.float_info.max
    assert (np.diff(got.limits) > 0).all()
    assert set(got.limits) <= set(limits())
    begins = [-np.inf, *got.limits[:-1]]
    ends = [*got.limits[:-1], np.inf]
    for begin, end, count in zip(begins, ends, got.counts, strict=True):
        assert count == np.count_nonzero((begin <= values) & (values < end))
    if len(values):
        assert (got.least, got.greatest) == (values.min(), values.max())


def test_sums_are_made_one_number_after_the_other_in_parts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32) * 1e6
    total = squares = 0.0
    for v in values.astype(np.float64).tolist():
        total, squares = total + v, squares + v * v
    for part in (1, 7, 1000, 2000):
        monkeypatch.setattr("headrace.thresholds.HISTOGRAM_ELEMENTS", part)
        got = histogram(values)
        assert (got.total, got.squares, sum(got.counts)) == (total, squares, 1000)


# *** pictures ***


def test_bytes_are_shown_as_they_are() -> None:
    x = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3)).astype(np.uint8)
    made = run("ImageSummary", TAG, x, max_images=2)
    assert [v.tag for v in made.value] == ["tag/image/0", "tag/image/1"]
    for value, image in zip(made.value, x, strict=False):
        assert (value.image.height, value.image.width, value.image.colorspace) == (5, 6, 3)
        np.testing.assert_array_equal(pixels(value.image), image)
    assert run("ImageSummary", TAG, x, max_images=1).value[0].tag == "tag/image"
    assert not run("ImageSummary", TAG, x[:0]).value


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_scaled_to_what_can_be_shown(dtype: type) -> None:
    def shown(*numbers: float) -> list[int]:
        image = run("ImageSummary", TAG, np.array(numbers, dtype).reshape(1, 1, -1, 1), bad_color=np.uint8([7]))
        return pixels(image.value[0].image).ravel().tolist()

    assert shown(0, 0.5, 2) == [0, 63, 255]
    assert shown(-1, 0, 0.5) == [1, 128, 191]
    assert shown(-0.25, 1) == [96, 255]
    assert shown(np.nan, np.inf, -np.inf, 4) == [7, 7, 7, 255]
    assert shown(0, 5e-7) == [0, 0]  # too little to be anything
    assert shown(np.nan) == [7]


def test_a_pixel_is_bad_as_a_whole() -> None:
    x = np.ones((1, 2, 2, 3), F32)
    x[0, 1, 0, 2] = np.nan
    got = pixels(run("ImageSummary", TAG, x, bad_color=np.uint8([1, 2, 3, 4])).value[0].image)
    assert got.tolist() == [[[255] * 3, [255] * 3], [[1, 2, 3], [255] * 3]]


def test_without_pillow_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnimplementedError, match=r"pip install headrace\[train\]"):
        run("ImageSummary", TAG, np.zeros((1, 2, 2, 1), F32))


# *** sounds ***


def test_samples_are_rounded_away_from_zero_and_kept_in_range() -> None:
    step = 1 / 2**15
    x = np.array([[0.5 * step, -0.5 * step, 0.49 * step, 1.0, -2.0, np.nan, np.inf, 1e30]], F32)
    made = run("AudioSummaryV2", TAG, x, F32(8000.4), max_outputs=1).value[0]
    assert (made.tag, made.audio.length_frames, made.audio.num_channels) == ("tag/audio", 8, 1)
    assert made.audio.sample_rate == F32(8000.4)
    samples = np.frombuffer(made.audio.encoded_audio_string[44:], "<i2")
    assert samples.tolist() == [1, -1, 0, 32767, -32768, 0, 32767, 32767]
    assert int.from_bytes(made.audio.encoded_audio_string[24:28], "little") == 8000


# *** tensors ***


@pytest.mark.parametrize("engine", ["compiled", "interpret"])
def test_an_untagged_tensor_has_its_operations_name(engine: str) -> None:
    with hr.Graph() as g:
        made = [hr.raw_ops.TensorSummary(tensor=hr.constant(3), name=n) for n in ("a", "b")]
    with hr.Session(graph=g, engine=engine) as session:
        values = [summaries.read(s).value[0] for s in session.run(made)]
    assert [v.node_name for v in values] == ["a", "b"]
    assert [v.tensor.tensor_content for v in values] == [b"\x03\0\0\0"] * 2


# *** hr.summary ***


def test_tags_are_the_names_with_scopes_and_families() -> None:
    with hr.Graph() as g:
        with hr.name_scope("net"):
            made = [
                summary.scalar("loss", 1.0),
                summary.scalar("loss", 1.0),
                summary.histogram("/a b:c", [1.0]),
                summary.scalar("loss", 1.0, family="all"),
                summary.text("note", "x"),
                summary.tensor_summary("t", [1], family="f", display_name="shown"),
                summary.image("i", np.zeros((1, 1, 1, 1), F32), max_outputs=1),
            ]
        both = summary.merge(made)
        named = summary.merge(made[:2], name="two")
    names = ["net/loss", "net/loss_1", "net/a_b_c", "net/all/loss", "net/note", "net/f/t", "net/i"]
    assert [t.op.name for t in made] == names
    assert (both.op.name, named.op.name) == ("Merge/MergeSummary", "two/two")
    with hr.Session(graph=g) as session:
        got = summaries.read(session.run(both))
    tags = ["net/loss", "net/loss_1", "net/a_b_c", "all/net/all/loss", "net/note", "f/net/f/t", "net/i/image"]
    assert [v.tag for v in got.value] == tags
    assert got.value[5].metadata.display_name == "shown"


def test_a_summary_in_a_loop_is_of_its_last_iteration() -> None:
    with hr.Graph() as g:
        _, last = hr.while_loop(
            lambda i, s: i < 3, lambda i, s: (i + 1, summary.scalar("i", i)), (0, hr.constant("", hr.string))
        )
    with hr.Session(graph=g) as session:
        value = summaries.read(session.run(last)).value[0]
    assert value.simple_value == 2.0


def test_notes_of_others_are_taken_over() -> None:
    note = summaries.metadata("pr_curves")
    made = summary.tensor_summary("t", hr.constant(1), "rows", note)
    got = summaries.read(made.numpy()).value[0].metadata
    assert (got.plugin_data.plugin_name, got.summary_description) == ("pr_curves", "rows")
    with pytest.raises(InvalidArgumentError, match="no SummaryMetadata"):
        summary.tensor_summary("t", hr.constant(1), "rows", b"\xff")


def test_what_cannot_be_summarized_is_said_when_it_is_made() -> None:
    with pytest.raises(ValueError, match="at least one summary"):
        summary.merge([])
    with pytest.raises(ValueError, match="to have dtype string, got float32"):
        summary.text("t", hr.constant(1.0))
    with pytest.raises((GraphError, TypeError)):
        summary.scalar("t", hr.constant("x"))
