"""Summaries: what a step tells of itself, for TensorBoard."""
