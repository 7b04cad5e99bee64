"""TensorFlow's object-based checkpoints: `tf.train.Checkpoint`, `tf.train.CheckpointManager`, `tf.Module`.

A checkpoint has the values under the paths of attributes from a root object ("model/w"), and a message with the graph
of the objects, so that it can be read into other objects with the same attributes.
"""
