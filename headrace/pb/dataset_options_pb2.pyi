from headrace.pb import model_pb2 as _model_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AutoShardPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AUTO: _ClassVar[AutoShardPolicy]
    FILE: _ClassVar[AutoShardPolicy]
    DATA: _ClassVar[AutoShardPolicy]
    HINT: _ClassVar[AutoShardPolicy]
    OFF: _ClassVar[AutoShardPolicy]

class ExternalStatePolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POLICY_WARN: _ClassVar[ExternalStatePolicy]
    POLICY_IGNORE: _ClassVar[ExternalStatePolicy]
    POLICY_FAIL: _ClassVar[ExternalStatePolicy]
AUTO: AutoShardPolicy
FILE: AutoShardPolicy
DATA: AutoShardPolicy
HINT: AutoShardPolicy
OFF: AutoShardPolicy
POLICY_WARN: ExternalStatePolicy
POLICY_IGNORE: ExternalStatePolicy
POLICY_FAIL: ExternalStatePolicy

class AutotuneOptions(_message.Message):
    __slots__ = ("enabled", "cpu_budget", "ram_budget", "autotune_algorithm", "initial_parallelism", "min_parallelism")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    CPU_BUDGET_FIELD_NUMBER: _ClassVar[int]
    RAM_BUDGET_FIELD_NUMBER: _ClassVar[int]
    AUTOTUNE_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    INITIAL_PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    MIN_PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    cpu_budget: int
    ram_budget: int
    autotune_algorithm: _model_pb2.AutotuneAlgorithm
    initial_parallelism: int
    min_parallelism: int
    def __init__(self, enabled: bool = ..., cpu_budget: _Optional[int] = ..., ram_budget: _Optional[int] = ..., autotune_algorithm: _Optional[_Union[_model_pb2.AutotuneAlgorithm, str]] = ..., initial_parallelism: _Optional[int] = ..., min_parallelism: _Optional[int] = ...) -> None: ...

class CardinalityOptions(_message.Message):
    __slots__ = ("compute_level",)
    class ComputeLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CARDINALITY_COMPUTE_UNSPECIFIED: _ClassVar[CardinalityOptions.ComputeLevel]
        CARDINALITY_COMPUTE_LOW: _ClassVar[CardinalityOptions.ComputeLevel]
        CARDINALITY_COMPUTE_MODERATE: _ClassVar[CardinalityOptions.ComputeLevel]
    CARDINALITY_COMPUTE_UNSPECIFIED: CardinalityOptions.ComputeLevel
    CARDINALITY_COMPUTE_LOW: CardinalityOptions.ComputeLevel
    CARDINALITY_COMPUTE_MODERATE: CardinalityOptions.ComputeLevel
    COMPUTE_LEVEL_FIELD_NUMBER: _ClassVar[int]
    compute_level: CardinalityOptions.ComputeLevel
    def __init__(self, compute_level: _Optional[_Union[CardinalityOptions.ComputeLevel, str]] = ...) -> None: ...

class DistributeOptions(_message.Message):
    __slots__ = ("auto_shard_policy", "num_devices")
    AUTO_SHARD_POLICY_FIELD_NUMBER: _ClassVar[int]
    NUM_DEVICES_FIELD_NUMBER: _ClassVar[int]
    auto_shard_policy: AutoShardPolicy
    num_devices: int
    def __init__(self, auto_shard_policy: _Optional[_Union[AutoShardPolicy, str]] = ..., num_devices: _Optional[int] = ...) -> None: ...

class OptimizationOptions(_message.Message):
    __slots__ = ("apply_default_optimizations", "filter_fusion", "map_and_batch_fusion", "map_and_filter_fusion", "map_fusion", "map_parallelization", "noop_elimination", "parallel_batch", "shuffle_and_repeat_fusion", "filter_parallelization", "inject_prefetch", "seq_interleave_prefetch")
    APPLY_DEFAULT_OPTIMIZATIONS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FUSION_FIELD_NUMBER: _ClassVar[int]
    MAP_AND_BATCH_FUSION_FIELD_NUMBER: _ClassVar[int]
    MAP_AND_FILTER_FUSION_FIELD_NUMBER: _ClassVar[int]
    MAP_FUSION_FIELD_NUMBER: _ClassVar[int]
    MAP_PARALLELIZATION_FIELD_NUMBER: _ClassVar[int]
    NOOP_ELIMINATION_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_BATCH_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_AND_REPEAT_FUSION_FIELD_NUMBER: _ClassVar[int]
    FILTER_PARALLELIZATION_FIELD_NUMBER: _ClassVar[int]
    INJECT_PREFETCH_FIELD_NUMBER: _ClassVar[int]
    SEQ_INTERLEAVE_PREFETCH_FIELD_NUMBER: _ClassVar[int]
    apply_default_optimizations: bool
    filter_fusion: bool
    map_and_batch_fusion: bool
    map_and_filter_fusion: bool
    map_fusion: bool
    map_parallelization: bool
    noop_elimination: bool
    parallel_batch: bool
    shuffle_and_repeat_fusion: bool
    filter_parallelization: bool
    inject_prefetch: bool
    seq_interleave_prefetch: bool
    def __init__(self, apply_default_optimizations: bool = ..., filter_fusion: bool = ..., map_and_batch_fusion: bool = ..., map_and_filter_fusion: bool = ..., map_fusion: bool = ..., map_parallelization: bool = ..., noop_elimination: bool = ..., parallel_batch: bool = ..., shuffle_and_repeat_fusion: bool = ..., filter_parallelization: bool = ..., inject_prefetch: bool = ..., seq_interleave_prefetch: bool = ...) -> None: ...

class ServiceOptions(_message.Message):
    __slots__ = ("pinned",)
    PINNED_FIELD_NUMBER: _ClassVar[int]
    pinned: bool
    def __init__(self, pinned: bool = ...) -> None: ...

class ThreadingOptions(_message.Message):
    __slots__ = ("max_intra_op_parallelism", "private_threadpool_size")
    MAX_INTRA_OP_PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    PRIVATE_THREADPOOL_SIZE_FIELD_NUMBER: _ClassVar[int]
    max_intra_op_parallelism: int
    private_threadpool_size: int
    def __init__(self, max_intra_op_parallelism: _Optional[int] = ..., private_threadpool_size: _Optional[int] = ...) -> None: ...

class Options(_message.Message):
    __slots__ = ("dataset_name", "framework_type", "deterministic", "autotune_options", "distribute_options", "optimization_options", "service_options", "slack", "threading_options", "external_state_policy", "symbolic_checkpoint", "warm_start")
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_TYPE_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    AUTOTUNE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZATION_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    SLACK_FIELD_NUMBER: _ClassVar[int]
    THREADING_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_STATE_POLICY_FIELD_NUMBER: _ClassVar[int]
    SYMBOLIC_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WARM_START_FIELD_NUMBER: _ClassVar[int]
    dataset_name: str
    framework_type: _containers.RepeatedScalarFieldContainer[str]
    deterministic: bool
    autotune_options: AutotuneOptions
    distribute_options: DistributeOptions
    optimization_options: OptimizationOptions
    service_options: ServiceOptions
    slack: bool
    threading_options: ThreadingOptions
    external_state_policy: ExternalStatePolicy
    symbolic_checkpoint: bool
    warm_start: bool
    def __init__(self, dataset_name: _Optional[str] = ..., framework_type: _Optional[_Iterable[str]] = ..., deterministic: bool = ..., autotune_options: _Optional[_Union[AutotuneOptions, _Mapping]] = ..., distribute_options: _Optional[_Union[DistributeOptions, _Mapping]] = ..., optimization_options: _Optional[_Union[OptimizationOptions, _Mapping]] = ..., service_options: _Optional[_Union[ServiceOptions, _Mapping]] = ..., slack: bool = ..., threading_options: _Optional[_Union[ThreadingOptions, _Mapping]] = ..., external_state_policy: _Optional[_Union[ExternalStatePolicy, str]] = ..., symbolic_checkpoint: bool = ..., warm_start: bool = ...) -> None: ...
