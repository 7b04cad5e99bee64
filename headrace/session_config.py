"""Config of sessions: a mapping with TensorFlow's names of fields, checked and read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace import notices
from headrace.environment import PlacementOptions
from headrace.records import record

if TYPE_CHECKING:
    from headrace.place import Placement

_FIELDS: Final = ("device_count", "operation_timeout_in_ms", "allow_soft_placement", "log_device_placement",
                  "enable_bfloat16_sendrecv", "enable_recv_scheduling",
                  "inter_op_parallelism_threads", "intra_op_parallelism_threads", "device_filters",
                  "optimize", "max_folded_constant_in_bytes", "isolate_session_state")  # fmt: skip


@record(frozen=True, slots=True)
class SessionConfig:
    """Fields of a session's config.

    Attributes:
      devices: number of devices of each type.
      timeout_ms: milliseconds that a run may take; 0: no limit.
      intra_op_threads: threads that a single operation may use; 0: not given.
      inter_op_threads: threads for heavy kernels that can run in parallel; 0: not given.
      placement: options of placement and partition.
      device_filters: partial names of the devices of a cluster that the session uses; none: all.
      off: names of the optimizer's passes that are switched off, besides those of the flag OPTIMIZE.
      fold_bytes: the largest size of a constant that folding makes, in bytes; 0: the usual one.
      is_isolated: whether no other session may share the variables of this one.
    """

    devices: Mapping[str, int]
    timeout_ms: int
    intra_op_threads: int
    inter_op_threads: int
    placement: PlacementOptions
    device_filters: tuple[str, ...] = ()
    off: frozenset[str] = frozenset()
    fold_bytes: int = 0
    is_isolated: bool = False


def read_config(config: Mapping[str, Any] | None) -> SessionConfig:
    """Reads a config.

    Args:
      config: name of field → value, see `Session`; a value that is None or 0 counts as not given.

    Raises:
      ValueError: a name that is no field, or a pass that does not exist; the text lists them.

    Example:
      >>> read_config({"operation_timeout_in_ms": 500}).timeout_ms
      500
    """
    given = dict(config or {})
    unknown = set(given) - set(_FIELDS)
    if unknown:
        raise ValueError(f"Session config has no {sorted(unknown)}; it has {list(_FIELDS)}")
    placement = PlacementOptions(
        soft=bool(given.get("allow_soft_placement", True)),
        log=_log_placement if given.get("log_device_placement") else None,
        bfloat16=bool(given.get("enable_bfloat16_sendrecv")),
        recv_scheduling=bool(given.get("enable_recv_scheduling")),
    )
    return SessionConfig(
        given.get("device_count") or {},
        int(given.get("operation_timeout_in_ms") or 0),
        int(given.get("intra_op_parallelism_threads") or 0),
        int(given.get("inter_op_parallelism_threads") or 0),
        placement,
        tuple(given.get("device_filters") or ()),
        _switched_off(given.get("optimize") or ""),
        max(int(given.get("max_folded_constant_in_bytes") or 0), 0),
        bool(given.get("isolate_session_state")),
    )


def _switched_off(text: str) -> frozenset[str]:
    """Names of the passes that a text like that of the flag OPTIMIZE switches off."""
    if not text:
        return frozenset()
    from headrace.optimize.pipeline import options_from  # it imports all passes, which few configs name

    return options_from(text).off


def _log_placement(placement: Placement) -> None:
    """Logs the devices of operations, for `log_device_placement`."""
    notices.inform("placement", [f"{op.name}: ({op.type}): {d}" for op, d in placement.of.items()], asked=True)
