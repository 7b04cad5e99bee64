"""TensorFlow 1's `tf.metrics`."""
