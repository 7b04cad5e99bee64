"""TensorFlow 1's configuration messages for sessions and steps, as plain records.

Fields without a function in headrace exist too, so that programs that set them run; the docstrings state which fields
have an effect.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace import metadata, public_names
from headrace.metadata import RunMetadata as RunMetadata
from headrace.records import record


@record
class _Record:
    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__dataclass_fields__:
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; it has {list(type(self).__dataclass_fields__)}"
            )
        object.__setattr__(self, name, value)

    def CopyFrom(self, other: Any) -> None:
        """Copies all fields of another message.

        Args:
          other: a message of the same class.
        """
        for f in dataclasses.fields(self):
            setattr(self, f.name, getattr(other, f.name))


@record
class GPUOptions(_Record):
    """Settings of GPUs. No field has an effect.

    Source: TensorFlow's `tf.GPUOptions`.
    """

    per_process_gpu_memory_fraction: float = 0.0
    allow_growth: bool = False
    allocator_type: str = ""
    visible_device_list: str = ""
    force_gpu_compatible: bool = False
    polling_active_delay_usecs: int = 0
    polling_inactive_delay_msecs: int = 0
    deferred_deletion_bytes: int = 0
    experimental: Any = None


@record
class OptimizerOptions(_Record):
    """Settings of graph optimization. No field has an effect.

    Source: TensorFlow's `tf.OptimizerOptions`.
    """

    do_common_subexpression_elimination: bool = False
    do_constant_folding: bool = False
    do_function_inlining: bool = False
    opt_level: int = 0
    global_jit_level: int = 0
    max_folded_constant_in_bytes: int = 0
    cpu_global_jit: bool = False

    L1: ClassVar[int] = 0
    L0: ClassVar[int] = -1
    DEFAULT: ClassVar[int] = 0
    OFF: ClassVar[int] = -1
    ON_1: ClassVar[int] = 1
    ON_2: ClassVar[int] = 2


@record
class GraphOptions(_Record):
    """Settings of graphs. `enable_recv_scheduling` and `enable_bfloat16_sendrecv` have TensorFlow's meaning.

    Source: TensorFlow's `tf.GraphOptions`.
    """

    enable_recv_scheduling: bool = False
    optimizer_options: OptimizerOptions = field(default_factory=OptimizerOptions)
    build_cost_model: int = 0
    build_cost_model_after: int = 0
    infer_shapes: bool = False
    place_pruned_graph: bool = False
    enable_bfloat16_sendrecv: bool = False
    timeline_step: int = 0
    rewrite_options: Any = None


@record
class ConfigProto(_Record):
    """Settings of a session.

    `device_count`, `allow_soft_placement`, `log_device_placement`, `operation_timeout_in_ms`, the two numbers of
    threads and two fields of `graph_options` (see there) have TensorFlow's meaning. Other fields have no effect.

    Source: TensorFlow's `tf.ConfigProto`.

    Example:
      >>> config = ConfigProto(allow_soft_placement=True)
      >>> config.gpu_options.allow_growth = True
      >>> config.allow_soft_placement, config.log_device_placement
      (True, False)
    """

    device_count: dict[str, int] = field(default_factory=dict)
    intra_op_parallelism_threads: int = 0
    inter_op_parallelism_threads: int = 0
    use_per_session_threads: bool = False
    session_inter_op_thread_pool: list[Any] = field(default_factory=list)
    placement_period: int = 0
    device_filters: list[str] = field(default_factory=list)
    gpu_options: GPUOptions = field(default_factory=GPUOptions)
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    graph_options: GraphOptions = field(default_factory=GraphOptions)
    operation_timeout_in_ms: int = 0
    rpc_options: Any = None
    cluster_def: Any = None
    isolate_session_state: bool = False
    share_cluster_devices_in_session: bool = False
    experimental: Any = None


@record
class RunOptions(metadata.RunOptions):
    """Options of a run.

    Of TensorFlow's fields, `timeout_in_ms` and `trace_level` have an effect. `listener`, `ready`, `check_numerics`,
    `breakpoints` and `watch` are headrace's.

    Source: TensorFlow's `tf.RunOptions`.
    """

    inter_op_thread_pool: int = 0
    output_partition_graphs: bool = False
    debug_options: Any = None
    report_tensor_allocations_upon_oom: bool = False
    experimental: Any = None


# fmt: off
__all__ = [
    "ConfigProto", "GPUOptions", "GraphOptions", "OptimizerOptions", "RunMetadata", "RunOptions",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
