"""Config of a session: fields of TensorFlow's ConfigProto as a mapping."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.environment import PlacementOptions
from headrace.session_config import read_config
from tests.inside import target_of

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize("config", [None, {}, {"device_count": None, "operation_timeout_in_ms": None}])
def test_fields_that_are_not_given_have_defaults(config: Any) -> None:
    found = read_config(config)
    assert (dict(found.devices), found.timeout_ms, found.intra_op_threads, found.inter_op_threads) == ({}, 0, 0, 0)
    assert found.placement == PlacementOptions()


def test_every_field_is_read() -> None:
    found = read_config(
        {
            "device_count": {"CPU": 2},
            "operation_timeout_in_ms": 500,
            "allow_soft_placement": False,
            "log_device_placement": True,
            "enable_bfloat16_sendrecv": True,
            "enable_recv_scheduling": True,
            "inter_op_parallelism_threads": 3,
            "intra_op_parallelism_threads": 4,
            "optimize": "-fold, -cse",
            "max_folded_constant_in_bytes": 100,
            "isolate_session_state": True,
        }
    )
    assert (found.off, found.fold_bytes, found.is_isolated) == ({"fold", "cse"}, 100, True)
    assert (found.devices, found.timeout_ms) == ({"CPU": 2}, 500)
    assert (found.intra_op_threads, found.inter_op_threads) == (4, 3)
    assert found.placement.log is not None
    assert found.placement == PlacementOptions(False, found.placement.log, True, True)


def test_an_unknown_field_is_an_error_that_lists_the_fields() -> None:
    with pytest.raises(ValueError, match=r"Session config has no \['gpu_options'\]; it has \['device_count', "):
        read_config({"gpu_options": 1})


def test_arguments_of_a_session_add_to_its_config() -> None:
    config = {"device_count": {"CPU": 3}, "intra_op_parallelism_threads": 2}
    with hr.Session(graph=hr.Graph(), config=config, intra_op_threads=5) as s:
        assert len(s.list_devices()) == 3
        assert target_of(s).run_environment.blas_threads == 2
    with hr.Session(graph=hr.Graph(), config=config, devices={"CPU": 2}) as s:
        assert len(s.list_devices()) == 2


def test_the_options_of_placement_reach_the_environment() -> None:
    with hr.Session(graph=hr.Graph(), config={"allow_soft_placement": False}) as s:
        assert not target_of(s).environment.options.soft
