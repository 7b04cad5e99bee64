"""Ports of a step on one device."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.api import scopes
from headrace.errors import InvalidArgumentError


@pytest.mark.parametrize("kind", ["_Send", "_Recv"])
def test_a_transfer_of_the_users_graph_is_an_invalid_argument(kind: str) -> None:
    attrs = {"tensor_name": "e", "send_device": "a", "recv_device": "b"}
    with hr.Graph() as g:
        x = hr.constant(1.0)
        if kind == "_Send":
            mine = scopes.builder().make("_Send", (x,), {"T": hr.float32, **attrs}, "mine")
        else:
            mine = scopes.builder().make("_Recv", (), {"tensor_type": hr.float32, "shape": (), **attrs}, "mine")
    with hr.Session(graph=g) as session, pytest.raises(InvalidArgumentError, match=f"'mine' \\({kind}\\) runs only in"):
        session.run(mine, timeout_ms=20_000)
