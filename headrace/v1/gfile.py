"""TensorFlow 1's `tf.gfile`."""
