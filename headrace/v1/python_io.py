"""TensorFlow 1's `tf.python_io`."""
