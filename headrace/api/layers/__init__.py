"""`hr.layers`: layers, which are functions with their own variables.

`base` defines layers. `core` has the layers without windows; `convolution`, `pooling` and `normalization` have the
others. `regularizers` has penalties on variables, and `arguments` interprets common arguments. Recurrent cells and
attention are in `api.rnn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api.layers.base import Layer
from headrace.api.layers.convolution import (
    Conv1D,
    Conv2D,
    Conv2DTranspose,
    Conv3D,
    Conv3DTranspose,
    DepthwiseConv2D,
    SeparableConv1D,
    SeparableConv2D,
)
from headrace.api.layers.core import Activation, Dense, Dropout, Embedding, Flatten, Sequential
from headrace.api.layers.normalization import BatchNormalization, LayerNormalization
from headrace.api.layers.pooling import (
    AveragePooling1D,
    AveragePooling2D,
    AveragePooling3D,
    GlobalAveragePooling2D,
    GlobalMaxPooling2D,
    MaxPooling1D,
    MaxPooling2D,
    MaxPooling3D,
)
from headrace.api.layers.regularizers import l1, l1_l2, l2
from headrace.api.rnn.attention import MultiHeadAttention
from headrace.api.rnn.block_cells import GRUBlockCellV2, LSTMBlockCell, LSTMBlockFusedCell
from headrace.api.rnn.cells import BasicLSTMCell, BasicRNNCell, GRUCell, LSTMCell, LSTMStateTuple, RNNCell
from headrace.api.rnn.memory import AttentionWrapper, AttentionWrapperState, BahdanauAttention, LuongAttention
from headrace.api.rnn.wrappers import DeviceWrapper, DropoutWrapper, MultiRNNCell, ResidualWrapper

__all__ = [
    "Activation", "AttentionWrapper", "AttentionWrapperState", "AveragePooling1D", "AveragePooling2D",
    "AveragePooling3D", "BahdanauAttention", "BasicLSTMCell", "BasicRNNCell", "BatchNormalization", "Conv1D", "Conv2D",
    "Conv2DTranspose", "Conv3D", "Conv3DTranspose", "Dense", "DepthwiseConv2D", "DeviceWrapper", "Dropout",
    "DropoutWrapper", "Embedding", "Flatten", "GRUBlockCellV2", "GRUCell", "GlobalAveragePooling2D",
    "GlobalMaxPooling2D", "LSTMBlockCell", "LSTMBlockFusedCell", "LSTMCell", "LSTMStateTuple", "Layer",
    "LayerNormalization", "LuongAttention", "MaxPooling1D", "MaxPooling2D", "MaxPooling3D", "MultiHeadAttention",
    "MultiRNNCell", "RNNCell", "ResidualWrapper", "SeparableConv1D", "SeparableConv2D", "Sequential", "l1", "l1_l2",
    "l2",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
