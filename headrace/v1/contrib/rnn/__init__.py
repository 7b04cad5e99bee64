"""TensorFlow 1's `tf.contrib.rnn`: cells, wrappers of cells, and networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1.contrib import equivalents
from headrace.v1.contrib.rnn.block_cells import (
    FusedRNNCell,
    FusedRNNCellAdaptor,
    GRUBlockCell,
    GRUBlockCellV2,
    LSTMBlockCell,
    LSTMBlockFusedCell,
    TimeReversedFusedRNN,
)
from headrace.v1.contrib.rnn.cells import (
    Conv1DLSTMCell,
    Conv2DLSTMCell,
    Conv3DLSTMCell,
    ConvLSTMCell,
    CoupledInputForgetGateLSTMCell,
    IntersectionRNNCell,
    LayerNormBasicLSTMCell,
    NASCell,
    UGRNNCell,
)
from headrace.v1.contrib.rnn.networks import (
    stack_bidirectional_dynamic_rnn,
    stack_bidirectional_rnn,
    transpose_batch_time,
)
from headrace.v1.contrib.rnn.wrappers import (
    AttentionCellWrapper,
    EmbeddingWrapper,
    InputProjectionWrapper,
    OutputProjectionWrapper,
)
from headrace.v1.rnn import static_bidirectional_rnn, static_rnn, static_state_saving_rnn
from headrace.v1.rnn_cell import (
    BasicLSTMCell,
    BasicRNNCell,
    DeviceWrapper,
    DropoutWrapper,
    GRUCell,
    LSTMCell,
    LSTMStateTuple,
    MultiRNNCell,
    ResidualWrapper,
    RNNCell,
)

# fmt: off
__all__ = [
    "AttentionCellWrapper", "BasicLSTMCell", "BasicRNNCell", "Conv1DLSTMCell", "Conv2DLSTMCell", "Conv3DLSTMCell",
    "ConvLSTMCell", "CoupledInputForgetGateLSTMCell", "DeviceWrapper", "DropoutWrapper", "EmbeddingWrapper",
    "FusedRNNCell", "FusedRNNCellAdaptor", "GRUBlockCell", "GRUBlockCellV2", "GRUCell", "InputProjectionWrapper",
    "IntersectionRNNCell", "LSTMBlockCell", "LSTMBlockFusedCell", "LSTMCell", "LSTMStateTuple",
    "LayerNormBasicLSTMCell", "MultiRNNCell", "NASCell", "OutputProjectionWrapper", "RNNCell", "ResidualWrapper",
    "TimeReversedFusedRNN", "UGRNNCell", "stack_bidirectional_dynamic_rnn", "stack_bidirectional_rnn",
    "static_bidirectional_rnn", "static_rnn", "static_state_saving_rnn", "transpose_batch_time",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
