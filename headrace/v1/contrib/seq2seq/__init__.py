"""TensorFlow 1's `tf.contrib.seq2seq`: decoders with helpers, attention and beam search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1.contrib import equivalents
from headrace.v1.contrib.seq2seq.attention import (
    AttentionMechanism,
    AttentionWrapper,
    AttentionWrapperState,
    BahdanauAttention,
    BahdanauMonotonicAttention,
    LuongAttention,
    LuongMonotonicAttention,
    hardmax,
    monotonic_attention,
    safe_cumprod,
)
from headrace.v1.contrib.seq2seq.beam_search import (
    BeamSearchDecoder,
    BeamSearchDecoderOutput,
    BeamSearchDecoderState,
    FinalBeamSearchDecoderOutput,
    gather_tree,
    tile_batch,
)
from headrace.v1.contrib.seq2seq.decoding import BasicDecoder, BasicDecoderOutput, Decoder, dynamic_decode
from headrace.v1.contrib.seq2seq.inputs import (
    CustomHelper,
    GreedyEmbeddingHelper,
    Helper,
    InferenceHelper,
    SampleEmbeddingHelper,
    ScheduledEmbeddingTrainingHelper,
    ScheduledOutputTrainingHelper,
    TrainingHelper,
)
from headrace.v1.contrib.seq2seq.losses import sequence_loss

# fmt: off
__all__ = [
    "AttentionMechanism", "AttentionWrapper", "AttentionWrapperState", "BahdanauAttention",
    "BahdanauMonotonicAttention", "BasicDecoder", "BasicDecoderOutput", "BeamSearchDecoder", "BeamSearchDecoderOutput",
    "BeamSearchDecoderState", "CustomHelper", "Decoder", "FinalBeamSearchDecoderOutput", "GreedyEmbeddingHelper",
    "Helper", "InferenceHelper", "LuongAttention", "LuongMonotonicAttention", "SampleEmbeddingHelper",
    "ScheduledEmbeddingTrainingHelper", "ScheduledOutputTrainingHelper", "TrainingHelper", "dynamic_decode",
    "gather_tree", "hardmax", "monotonic_attention", "safe_cumprod", "sequence_loss", "tile_batch",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
