"""Gradients: graphs that compute the derivatives of graphs."""
