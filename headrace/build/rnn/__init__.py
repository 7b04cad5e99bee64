"""Recurrent networks: cells, and loops over time."""
