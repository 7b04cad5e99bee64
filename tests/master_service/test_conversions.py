"""Errors, names and tensors between messages and headrace."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes, errors, pb
from headrace.master_service import conversions
from headrace.pb import master_pb2
from tests.master_service.clients import tensor


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.OutOfRangeError("the end"), errors.OUT_OF_RANGE),
        (errors.UnauthenticatedError("no"), errors.UNAUTHENTICATED),
        (errors.GraphError("a cycle"), errors.INVALID_ARGUMENT),
        (errors.FeedError("a shape"), errors.INVALID_ARGUMENT),
        (RuntimeError("Attempted to use a closed Session."), errors.CANCELLED),
        (MemoryError("too much"), errors.RESOURCE_EXHAUSTED),
        (errors.HeadraceInternalError("a defect"), errors.INTERNAL),
        (ZeroDivisionError("a defect"), errors.INTERNAL),
    ],
)
def test_an_error_has_tensorflows_code(error: Exception, code: int) -> None:
    status = conversions.status_of(error)
    assert status.code == code
    assert str(error) in status.text
    assert status.is_defect == (code == errors.INTERNAL)


def test_every_code_of_an_error_is_one_of_grpc() -> None:
    from headrace.master_service.service import _CODES

    assert set(_CODES) == {errors.OK, *(cls.error_code for cls in errors.OpError.__subclasses__())}


@pytest.mark.parametrize("node", ["loop/add", "loop/add:0"])
def test_the_text_names_the_node_in_the_form_that_clients_read(node: str) -> None:
    assert "[[{{node loop/add}}]]" in conversions.status_of(errors.InvalidArgumentError("no", node)).text


def test_the_text_of_a_status_is_cut_at_a_character() -> None:
    assert conversions.shortened("ä" * 5000) == "ä" * (conversions.LONGEST_STATUS // 2)
    assert conversions.shortened("lone \ud800 surrogate") == "lone ? surrogate"


def test_bytes_that_are_no_message_are_an_error() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="RunStepRequest"):
        conversions.parsed(master_pb2.RunStepRequest, b"\xff\xff\xff")


# *** names ***


@pytest.fixture
def graph() -> hr.Graph:
    with hr.Graph() as g:
        hr.split(hr.placeholder(dtypes.float32, (2,), name="x"), 2, name="halves")
    return g


def test_a_name_without_a_number_is_the_first_output(graph: hr.Graph) -> None:
    assert [t.name for t in conversions.fetched_tensors(graph, ["halves", "halves:1"])] == ["halves:0", "halves:1"]


@pytest.mark.parametrize("name", ["halves:2", "halves:-1", "halves:x", "halves:99999999999", "halves:0:0", "halves:²"])
def test_a_wrong_output_is_an_invalid_argument(graph: hr.Graph, name: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        conversions.fetched_tensors(graph, [name])


def test_unknown_names_are_not_found(graph: hr.Graph) -> None:
    with pytest.raises(errors.NotFoundError, match="FetchOutputs node z:0: not found"):
        conversions.fetched_tensors(graph, ["z:0"])
    with pytest.raises(errors.NotFoundError, match="unable to find feed output z:0"):
        conversions.fed_tensors(graph, ["z:0"])
    with pytest.raises(errors.NotFoundError, match="Some target nodes not found: z"):
        conversions.targets(graph, ["z"])


def test_a_tensor_cannot_be_fed_twice(graph: hr.Graph) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="fed twice"):
        conversions.fed_tensors(graph, ["x", "x:0"])


# *** tensors ***


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1.5),
        np.array([[1, 2], [3, 4]], np.int64),
        np.array([True, False]),
        np.array([1 + 2j], np.complex64),
        np.array([1.5, -2], dtypes.bfloat16.numpy),
        np.zeros((0, 3), np.float16),
        np.array([b"a\x00", b""], object),
        b"text",
    ],
)
def test_a_value_survives_its_message(value: object) -> None:
    array = np.asarray(value, object if isinstance(value, bytes) else None)
    g = hr.Graph()
    t = g.add_op("Placeholder", "x", [], {"dtype": dtypes.from_numpy(array.dtype), "shape": None}).outputs[0]
    proto = conversions.proto_of(value, t)
    assert proto.dtype == t.dtype.number
    np.testing.assert_array_equal(conversions.value_of(proto, "x", 1 << 20), np.asarray(value, t.dtype.numpy))


def test_a_few_bytes_cannot_describe_a_huge_array() -> None:
    bomb = pb.TensorProto(dtype=pb.DT_FLOAT, float_val=[1.0])
    bomb.tensor_shape.dim.add(size=1 << 40)
    with pytest.raises(errors.ResourceExhaustedError, match="4,398,046,511,104 bytes"):
        conversions.value_of(bomb, "x", 1 << 20)


@pytest.mark.parametrize("sizes", [[-1], [1 << 62, 1 << 62], [3]])
def test_a_shape_that_does_not_fit_its_elements_is_an_invalid_argument(sizes: list[int]) -> None:
    proto = pb.TensorProto(dtype=pb.DT_FLOAT, tensor_content=b"1234")
    for size in sizes:
        proto.tensor_shape.dim.add(size=size)
    with pytest.raises(errors.InvalidArgumentError, match="'x' is no tensor"):
        conversions.value_of(proto, "x", 1 << 20)


@pytest.mark.parametrize("dtype", [0, 77, 101, 9999])
def test_an_unknown_dtype_is_an_invalid_argument(dtype: int) -> None:
    proto = tensor(1.0)
    proto.dtype = dtype  # type: ignore[assignment]
    with pytest.raises(errors.InvalidArgumentError):
        conversions.value_of(proto, "x", 1 << 20)


def test_handles_cannot_be_fed() -> None:
    with pytest.raises(errors.UnimplementedError, match="'x' is a handle"):
        conversions.value_of(pb.TensorProto(dtype=pb.DT_RESOURCE), "x", 1 << 20)
