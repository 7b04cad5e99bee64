"""TensorFlow 1's `tf.nn.rnn_cell`."""
