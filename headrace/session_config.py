"""Config of sessions: a mapping with TensorFlow's names of fields, checked and read.

`settings` makes the mapping of a `ConfigProto` message, headrace's or TensorFlow's. The messages have all of
TensorFlow's fields, so that programs that set them run. `headrace docs reference/session_config` lists the fields with
their effects, and those without.

Example:
  >>> import headrace.v1 as tf
  >>> config = tf.ConfigProto(allow_soft_placement=True)
  >>> config.gpu_options.allow_growth = True
  >>> config.graph_options.optimizer_options.global_jit_level = tf.OptimizerOptions.ON_1
  >>> print(str(config).rstrip())
  gpu_options {
    allow_growth: true
  }
  allow_soft_placement: true
  graph_options {
    optimizer_options {
      global_jit_level: ON_1
    }
  }
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace import notices, plugins
from headrace.environment import PlacementOptions
from headrace.execute.devices import EXTRAS, available, device_types
from headrace.records import record

if TYPE_CHECKING:
    from headrace.pb import ConfigProto
    from headrace.place import Placement

_FIELDS: Final = ("device_count", "operation_timeout_in_ms", "allow_soft_placement", "log_device_placement",
                  "enable_bfloat16_sendrecv", "enable_recv_scheduling",
                  "inter_op_parallelism_threads", "intra_op_parallelism_threads", "device_filters",
                  "optimize", "max_folded_constant_in_bytes", "isolate_session_state")  # fmt: skip

_FIELDS_OF_MESSAGE: Final = (
    "operation_timeout_in_ms", "allow_soft_placement", "log_device_placement", "intra_op_parallelism_threads",
    "isolate_session_state",
)  # fmt: skip
_FIELDS_OF_GRAPHS: Final = ("enable_bfloat16_sendrecv", "enable_recv_scheduling")

_LOOPS: Final = "loop_*"  # all passes on loops

# Fields of `OptimizerOptions` -> the passes that they keep at level L0. Level L1 has all of them.
_AT_LEVEL_0: Final = {
    "do_common_subexpression_elimination": ("cse",),
    "do_constant_folding": ("fold", "push_constants"),
    "do_function_inlining": ("inline",),
}

#: Fields of `RewriterConfig` -> the passes that they switch off, and the names of these groups in `optimizers`.
REWRITERS: Final = {
    "constant_folding": (("fold", "push_constants"), "constfold"),
    "common_subgraph_elimination": (("cse",), "common_subgraph_elimination"),
    "arithmetic_optimization": (("identities", "einsum", "slices", "pieces"), "arithmetic"),
    "dependency_optimization": (("controls",), "dependency"),
    "loop_optimization": ((_LOOPS, "branches"), "loop"),
    "function_optimization": (("inline",), "function"),
    "remapping": (("batch_norm",), "remap"),
}
OFF: Final = 2  #: `RewriterConfig.OFF`
_ALWAYS: Final = "prune"  # every step is pruned


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


# *** the message ***


def settings(config: ConfigProto | None) -> dict[str, Any]:
    """Returns the config of `headrace.Session` with the effect of a message.

    Args:
      config: headrace's message or TensorFlow's; None: one without fields.

    Raises:
      TypeError: an argument that is no such message.
    """
    if config is None:
        return {"allow_soft_placement": False}  # without the messages, which take long to load
    if getattr(getattr(config, "DESCRIPTOR", None), "name", None) != "ConfigProto":
        raise TypeError(f"config must be a tf.ConfigProto, got {config!r} ({type(config).__name__})")
    of_graphs = config.graph_options
    return {
        **{name: getattr(config, name) for name in _FIELDS_OF_MESSAGE},
        **{name: getattr(of_graphs, name) for name in _FIELDS_OF_GRAPHS},
        "device_count": {
            kind: there for kind, n in config.device_count.items() if (there := _there(kind, n)) or kind == "CPU"
        },
        "device_filters": list(config.device_filters),
        "inter_op_parallelism_threads": _inter_op_threads(config),
        "max_folded_constant_in_bytes": of_graphs.optimizer_options.max_folded_constant_in_bytes,
        "optimize": left_out(of_graphs),
    }


def _there(kind: str, n: int) -> int:
    """Number of devices of a type in a session whose config allows at most `n`.

    To count GPUs, PyTorch is imported if it is installed.
    """
    if kind == "CPU":
        return n
    if n <= 0:
        return 0
    if kind in EXTRAS:
        return min(n, available(kind))
    plugins.load()
    return n if device_types.find(kind) is not None else 0


def _inter_op_threads(config: ConfigProto) -> int:
    """Number of threads for kernels: that of the session's first pool, if pools are described."""
    pools = config.session_inter_op_thread_pool
    n: int = (pools[0].num_threads if pools else 0) or config.inter_op_parallelism_threads
    return 1 if n < 0 else n  # a negative number asks for one operation after the other


def left_out(options: Any) -> str:
    """Returns the passes that a `GraphOptions` message leaves out.

    The text is that of the flag OPTIMIZE; "": none.

    Args:
      options: the message.
    """
    optimizer, rewriter = options.optimizer_options, options.rewrite_options
    is_low = optimizer.opt_level < 0
    kept = [passes for name, passes in _AT_LEVEL_0.items() if getattr(optimizer, name) or not is_low]
    off = [passes for name, (passes, _) in REWRITERS.items() if getattr(rewriter, name) == OFF]
    listed = [passes for passes, word in REWRITERS.values() if word in rewriter.optimizers]
    only = [
        *([kept] if is_low or rewriter.disable_meta_optimizer else []),
        *([listed] if rewriter.optimizers else []),
    ]
    if not (off or only):
        return ""
    from headrace.optimize.pipeline import names  # it imports all passes, which few configs name

    found = {name for name in names() if _is_in(name, off)}
    for groups in only:
        found |= {name for name in names() if name != _ALWAYS and not _is_in(name, groups)}
    return ",".join(f"-{name}" for name in sorted(found))


def _is_in(name: str, groups: list[tuple[str, ...]]) -> bool:
    return any(name in passes or (_LOOPS in passes and name.startswith("loop_")) for passes in groups)
