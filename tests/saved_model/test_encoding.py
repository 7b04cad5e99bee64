"""Messages of Python structures."""

from __future__ import annotations

import collections
import inspect

import pytest

import headrace as hr
from headrace.saved_model.encoding import encode, encode_parameters


def test_structures_keep_their_kinds() -> None:
    pair = collections.namedtuple("pair", ["a", "b"])
    found = encode((pair(1, None), [2.0, True], {"k": "text"}, hr.TensorSpec((None, 3), hr.int32, "x"))).tuple_value
    assert found.values[0].named_tuple_value.name == "pair"
    assert [v.key for v in found.values[0].named_tuple_value.values] == ["a", "b"]
    assert found.values[1].list_value.values[0].float64_value == 2.0
    assert found.values[1].list_value.values[1].bool_value
    assert found.values[2].dict_value.fields["k"].string_value == "text"
    assert [d.size for d in found.values[3].tensor_spec_value.shape.dim] == [-1, 3]


@pytest.mark.parametrize("value", [object(), {1: 2}, 2**63, b"bytes"])
def test_other_objects_are_errors(value: object) -> None:
    with pytest.raises(hr.errors.GraphError, match="SavedModel"):
        encode(value)


def test_parameters_have_their_defaults() -> None:
    def f(a: int, b: int = 2, *rest: int, c: int, d: int = 4, **more: int) -> None: ...

    fields = {p.key: p.value for p in encode_parameters(inspect.signature(f)).named_tuple_value.values}
    assert [v.string_value for v in fields["args"].list_value.values] == ["a", "b"]
    assert fields["varargs"].string_value == "rest"
    assert fields["varkw"].string_value == "more"
    assert fields["kwonlydefaults"].dict_value.fields["d"].int64_value == 4
