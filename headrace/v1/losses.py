"""TensorFlow 1's `tf.losses`."""
