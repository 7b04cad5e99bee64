"""Sparse and ragged tensors, sets, and compressed sparse matrices."""
