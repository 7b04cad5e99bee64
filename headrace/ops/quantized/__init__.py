"""Quantised numbers: to and fro, and arithmetic on them."""
