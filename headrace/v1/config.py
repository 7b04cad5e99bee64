"""TensorFlow 1's messages for sessions and runs: their fields that sessions of headrace understand.

The messages are those of `headrace.pb`, with all of TensorFlow's fields, so that programs that set them run.
`headrace docs reference/session_config` lists the fields with their effects, and those without.

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

from typing import TYPE_CHECKING, Any, Final

from headrace import plugins
from headrace.execute.devices import device_types

if TYPE_CHECKING:
    from headrace.pb import ConfigProto

_FIELDS: Final = (
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
        **{name: getattr(config, name) for name in _FIELDS},
        **{name: getattr(of_graphs, name) for name in _FIELDS_OF_GRAPHS},
        "device_count": {kind: n for kind, n in config.device_count.items() if _exists(kind, n)},
        "device_filters": list(config.device_filters),
        "inter_op_parallelism_threads": _inter_op_threads(config),
        "max_folded_constant_in_bytes": of_graphs.optimizer_options.max_folded_constant_in_bytes,
        "optimize": left_out(of_graphs),
    }


def _exists(kind: str, n: int) -> bool:
    """Whether there are devices of a type, of which a config allows at most `n`."""
    if kind == "CPU":
        return True
    if n <= 0:
        return False
    plugins.load()
    return device_types.find(kind) is not None


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
