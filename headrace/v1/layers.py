"""TensorFlow 1's `tf.layers`."""
