"""TensorFlow 1's `tf.summary`."""
