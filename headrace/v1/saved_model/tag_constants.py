"""TensorFlow 1's `tf.saved_model.tag_constants`: tags of graphs."""

from typing import Final

SERVING: Final = "serve"
TRAINING: Final = "train"
GPU: Final = "gpu"
TPU: Final = "tpu"
