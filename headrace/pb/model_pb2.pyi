from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class NodeClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[NodeClass]
    INTERLEAVE_MANY: _ClassVar[NodeClass]
    ASYNC_INTERLEAVE_MANY: _ClassVar[NodeClass]
    KNOWN_RATIO: _ClassVar[NodeClass]
    ASYNC_KNOWN_RATIO: _ClassVar[NodeClass]
    UNKNOWN_RATIO: _ClassVar[NodeClass]
    ASYNC_UNKNOWN_RATIO: _ClassVar[NodeClass]

class AutotuneAlgorithm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEFAULT: _ClassVar[AutotuneAlgorithm]
    HILL_CLIMB: _ClassVar[AutotuneAlgorithm]
    GRADIENT_DESCENT: _ClassVar[AutotuneAlgorithm]
    MAX_PARALLELISM: _ClassVar[AutotuneAlgorithm]
    STAGE_BASED: _ClassVar[AutotuneAlgorithm]
UNKNOWN: NodeClass
INTERLEAVE_MANY: NodeClass
ASYNC_INTERLEAVE_MANY: NodeClass
KNOWN_RATIO: NodeClass
ASYNC_KNOWN_RATIO: NodeClass
UNKNOWN_RATIO: NodeClass
ASYNC_UNKNOWN_RATIO: NodeClass
DEFAULT: AutotuneAlgorithm
HILL_CLIMB: AutotuneAlgorithm
GRADIENT_DESCENT: AutotuneAlgorithm
MAX_PARALLELISM: AutotuneAlgorithm
STAGE_BASED: AutotuneAlgorithm

class ModelProto(_message.Message):
    __slots__ = ("dataset_name", "nodes", "output", "id_counter", "optimization_params", "gap_times")
    class Node(_message.Message):
        __slots__ = ("id", "name", "autotune", "buffered_bytes", "buffered_elements", "bytes_consumed", "bytes_produced", "num_elements", "processing_time", "record_metrics", "parameters", "input_processing_time_sum", "input_processing_time_count", "inputs", "node_class", "ratio", "memory_ratio")
        class Parameter(_message.Message):
            __slots__ = ("name", "value", "state_value", "min", "max", "tunable")
            NAME_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            STATE_VALUE_FIELD_NUMBER: _ClassVar[int]
            MIN_FIELD_NUMBER: _ClassVar[int]
            MAX_FIELD_NUMBER: _ClassVar[int]
            TUNABLE_FIELD_NUMBER: _ClassVar[int]
            name: str
            value: float
            state_value: float
            min: float
            max: float
            tunable: bool
            def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., state_value: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., tunable: bool = ...) -> None: ...
        ID_FIELD_NUMBER: _ClassVar[int]
        NAME_FIELD_NUMBER: _ClassVar[int]
        AUTOTUNE_FIELD_NUMBER: _ClassVar[int]
        BUFFERED_BYTES_FIELD_NUMBER: _ClassVar[int]
        BUFFERED_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
        BYTES_CONSUMED_FIELD_NUMBER: _ClassVar[int]
        BYTES_PRODUCED_FIELD_NUMBER: _ClassVar[int]
        NUM_ELEMENTS_FIELD_NUMBER: _ClassVar[int]
        PROCESSING_TIME_FIELD_NUMBER: _ClassVar[int]
        RECORD_METRICS_FIELD_NUMBER: _ClassVar[int]
        PARAMETERS_FIELD_NUMBER: _ClassVar[int]
        INPUT_PROCESSING_TIME_SUM_FIELD_NUMBER: _ClassVar[int]
        INPUT_PROCESSING_TIME_COUNT_FIELD_NUMBER: _ClassVar[int]
        INPUTS_FIELD_NUMBER: _ClassVar[int]
        NODE_CLASS_FIELD_NUMBER: _ClassVar[int]
        RATIO_FIELD_NUMBER: _ClassVar[int]
        MEMORY_RATIO_FIELD_NUMBER: _ClassVar[int]
        id: int
        name: str
        autotune: bool
        buffered_bytes: int
        buffered_elements: int
        bytes_consumed: int
        bytes_produced: int
        num_elements: int
        processing_time: int
        record_metrics: bool
        parameters: _containers.RepeatedCompositeFieldContainer[ModelProto.Node.Parameter]
        input_processing_time_sum: float
        input_processing_time_count: int
        inputs: _containers.RepeatedScalarFieldContainer[int]
        node_class: NodeClass
        ratio: float
        memory_ratio: float
        def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., autotune: bool = ..., buffered_bytes: _Optional[int] = ..., buffered_elements: _Optional[int] = ..., bytes_consumed: _Optional[int] = ..., bytes_produced: _Optional[int] = ..., num_elements: _Optional[int] = ..., processing_time: _Optional[int] = ..., record_metrics: bool = ..., parameters: _Optional[_Iterable[_Union[ModelProto.Node.Parameter, _Mapping]]] = ..., input_processing_time_sum: _Optional[float] = ..., input_processing_time_count: _Optional[int] = ..., inputs: _Optional[_Iterable[int]] = ..., node_class: _Optional[_Union[NodeClass, str]] = ..., ratio: _Optional[float] = ..., memory_ratio: _Optional[float] = ...) -> None: ...
    class OptimizationParams(_message.Message):
        __slots__ = ("algorithm", "cpu_budget", "ram_budget", "model_input_time")
        ALGORITHM_FIELD_NUMBER: _ClassVar[int]
        CPU_BUDGET_FIELD_NUMBER: _ClassVar[int]
        RAM_BUDGET_FIELD_NUMBER: _ClassVar[int]
        MODEL_INPUT_TIME_FIELD_NUMBER: _ClassVar[int]
        algorithm: AutotuneAlgorithm
        cpu_budget: int
        ram_budget: int
        model_input_time: float
        def __init__(self, algorithm: _Optional[_Union[AutotuneAlgorithm, str]] = ..., cpu_budget: _Optional[int] = ..., ram_budget: _Optional[int] = ..., model_input_time: _Optional[float] = ...) -> None: ...
    class NodesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: ModelProto.Node
        def __init__(self, key: _Optional[int] = ..., value: _Optional[_Union[ModelProto.Node, _Mapping]] = ...) -> None: ...
    DATASET_NAME_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    ID_COUNTER_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZATION_PARAMS_FIELD_NUMBER: _ClassVar[int]
    GAP_TIMES_FIELD_NUMBER: _ClassVar[int]
    dataset_name: str
    nodes: _containers.MessageMap[int, ModelProto.Node]
    output: int
    id_counter: int
    optimization_params: ModelProto.OptimizationParams
    gap_times: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dataset_name: _Optional[str] = ..., nodes: _Optional[_Mapping[int, ModelProto.Node]] = ..., output: _Optional[int] = ..., id_counter: _Optional[int] = ..., optimization_params: _Optional[_Union[ModelProto.OptimizationParams, _Mapping]] = ..., gap_times: _Optional[_Iterable[int]] = ...) -> None: ...
